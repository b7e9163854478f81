"""Exercise 1. Two buyers, one unit.

A and B make three moves each: read the stock, write it back less one, commit. A schedule is six
letters that say whose move is next: one that begins "AB" has A read, then B. Goal: one schedule in
which both get the last unit, and one in which only one of them does.
"""

# TODO: six letters each, three A and three B.
SELLS_TWICE = ""
DOES_NOT = ""
# END
