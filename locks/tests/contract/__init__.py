"""Tests of what a lock guarantees, which run with each kind of lock."""
