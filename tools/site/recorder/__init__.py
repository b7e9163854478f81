"""Plays schedules of buyers on the real shop, and writes the moves down in recorded/."""
