"""The timeline of a run as text."""

from testing.run import Run, Step
from testing.timeline import MAX_COLUMN_WIDTH, timeline


def test_columns_align_with_a_step_that_is_wider_than_a_column() -> None:
    """A dotted name in `at` may have any length."""
    steps = [Step("A", "charge()" * 20), Step("B", "COMMIT")]
    header, _, second = timeline(Run(steps=steps)).splitlines()
    assert header.index("B") == second.index("COMMIT") == 4 + MAX_COLUMN_WIDTH + 2
