"""Lessons on overselling: predict, run, observe, explain, and repair code that a judge checks."""
