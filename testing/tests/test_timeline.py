"""The timeline of a run as text."""

from testing.run import Run, Step
from testing.timeline import MAX_COLUMN_WIDTH, format_timeline


def test_columns_align_with_a_step_that_is_wider_than_a_column() -> None:
    """A step is wide if it calls a function with a long name."""
    steps = [Step("A", "charge()" * 20), Step("B", "COMMIT")]
    header, _, commit_line = format_timeline(Run(steps=steps)).splitlines()
    indent, gap = 4, 2
    column_of_b = indent + MAX_COLUMN_WIDTH + gap
    assert header.index("B") == commit_line.index("COMMIT") == column_of_b
