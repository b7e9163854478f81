"""The timeline of a run as text, with a column for each call."""

from itertools import pairwise

from .probes import MAX_STATEMENT_CHARACTERS
from .run import Run, Step

#: Minimum number of characters in a column.
MIN_COLUMN_WIDTH = 12
#: Maximum number of characters in a column. A longer text runs over into the next column.
MAX_COLUMN_WIDTH = MAX_STATEMENT_CHARACTERS + 12


def format_timeline(run: Run) -> str:
    """Return the timeline of a run as text, with a column for each call.

    Args:
        run: The run to show.

    Returns:
        A line with the names of the calls, then a line for each step in the column of its call.
    """
    actors = sorted({step.actor for step in run.steps})
    longest_text = max([len(_format_step(step)) for step in run.steps], default=0)
    column_width = min(max(longest_text, MIN_COLUMN_WIDTH), MAX_COLUMN_WIDTH)
    lines = ["  ".join(actor.ljust(column_width) for actor in actors).rstrip()]
    for step in run.steps:
        indent = actors.index(step.actor) * (column_width + 2)
        lines.append(" " * indent + _format_step(step))
    return "\n".join(f"    {line}" for line in lines)


def explain_race(run: Run) -> str:
    """Return a text that shows where another call wrote between two successive steps of one call.

    Args:
        run: The run to explain.

    Returns:
        The first two such steps, and the steps of other calls between them. An empty string if no
        call wrote between two steps of another.
    """
    steps = [step for step in run.steps if step.kind == "step"]  # without waits and returns
    for actor in sorted({step.actor for step in steps}):
        indexes = [index for index, step in enumerate(steps) if step.actor == actor]
        for first, second in pairwise(indexes):
            steps_between = steps[first + 1 : second]
            # Every step that is not a SELECT counts as a write.
            if any(not step.text.startswith("SELECT") for step in steps_between):
                lines = [f"    {step.text}    ({step.actor})" for step in steps_between]
                return (
                    f"Between {actor}'s\n    {steps[first].text}\nand {actor}'s\n"
                    f"    {steps[second].text}\ncame\n" + "\n".join(lines)
                )
    return ""


def _format_step(step: Step) -> str:
    """Return a step as text for the timeline: `COMMIT`, `(waits)` or `(returns 200)`."""
    if step.kind == "step":
        return step.text
    if not step.text:
        return f"({step.kind})"
    return f"({step.kind} {step.text})"
