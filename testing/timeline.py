"""A failed interleaving as two columns that are read from top to bottom."""

from itertools import pairwise

from .run import Run, Step
from .statements import WIDTH


def timeline(run: Run) -> str:
    """One line for each step, in the column of who did it."""
    actors = sorted({step.actor for step in run.steps})
    width = max([len(_text(step)) for step in run.steps] + [12])
    lines = ["  ".join(actor.ljust(width) for actor in actors).rstrip()]
    for step in run.steps:
        column = actors.index(step.actor) * (min(width, WIDTH + 12) + 2)
        lines.append(" " * column + _text(step))
    return "\n".join(f"    {line}" for line in lines)


def between(run: Run) -> str:
    """The two steps of one call between which another call wrote, and what it wrote; "" if none."""
    done = [step for step in run.steps if step.kind == "step"]
    for actor in sorted({step.actor for step in done}):
        own = [number for number, step in enumerate(done) if step.actor == actor]
        for one, two in pairwise(own):
            others = done[one + 1 : two]
            if any(not step.text.startswith("SELECT") for step in others):
                return (
                    f"Between {actor}'s\n    {done[one].text}\nand {actor}'s\n"
                    f"    {done[two].text}\ncame\n"
                    + "\n".join(f"    {step.text}    ({step.actor})" for step in others)
                )
    return ""


def _text(step: Step) -> str:
    return step.text if step.kind == "step" else f"({step.kind}{step.text and ' '}{step.text})"
