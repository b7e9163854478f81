"""Lessons on overselling: predict, run, observe, explain, and repair code that a judge checks."""

from __future__ import annotations
