"""Exercise 1. Two buyers, one unit.

A and B make three moves each: read the stock, write it back less one, commit. A schedule is six
letters, the buyer of each move in order. In a schedule that begins with "AB", A reads, then B
reads. Goal: one schedule in which both get the last unit, and one in which only one of them does.
"""

# TODO: six letters each, three A and three B.
SELLS_TWICE = ""
DOES_NOT = ""
# END
