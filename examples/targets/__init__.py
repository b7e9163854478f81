"""Example shops for the load test. README.md in this folder describes them.

Each shop has a target, a class that tells the load test how to buy there. A rush lets many buyers
buy from the shop at the same moment.
"""
