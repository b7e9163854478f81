"""The reports of all pairs, added up: `python -m workshop report --merge pair-*.json`.

A pair is the participants at one laptop. Its report is the output of `report --json`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import Any

from rich.table import Table

from workshop.lessons import lessons

#: The table shows at most this many refusals of a lesson, the most frequent first.
MAX_REFUSALS = 3
#: Participants take the quiz on two occasions: before and after the workshop.
QUIZ_OCCASIONS = ("before", "after")
#: A pair's report, as FacilitatorCommands._make_report returns it.
Report = Mapping[str, Any]


class UnreadableReport(ValueError):
    """A file is missing, or is not the output of `report --json`."""


@dataclass
class LessonTally:
    """A lesson's results, summed over all pairs.

    predictions        number of pairs that predicted, "no idea" included
    right_predictions  number of pairs that predicted the right answer
    solved             number of pairs whose exercise has passed
    tries              number of checks
    refusals           refusal's code -> number of times
    """

    predictions: int = 0
    right_predictions: int = 0
    solved: int = 0
    tries: int = 0
    refusals: Counter[str] = field(default_factory=Counter)

    def add(self, record: Mapping[str, Any]) -> None:
        """Add one pair's record of this lesson. A pair is the participants at one laptop.

        Raises KeyError, TypeError or ValueError if `record` is not a record of a report.
        """
        self.predictions += record["predicted"] is not None
        self.right_predictions += record["predicted"] == record["answer"]
        self.solved += record["passed_at"] is not None
        self.tries += int(record["tries"])
        self.refusals.update(map(str, record["refused"]))


def read_reports(patterns: Sequence[str]) -> list[Report]:
    """Return the reports in these files. A file that matches two patterns is read once.

    Raises UnreadableReport if a file is missing or is not a report.

    patterns  paths, or patterns such as pair-*.json
    """
    paths = [path for pattern in patterns for path in sorted(glob(pattern)) or [pattern]]
    return [_read_report(Path(path)) for path in dict.fromkeys(paths)]


def _read_report(path: Path) -> Report:
    """Return the report in a file. Raises UnreadableReport if the file has no report."""
    try:
        report: Report = json.loads(path.read_text(encoding="utf-8"))
        # These calls only check the report: they raise an error if a field is missing.
        tally_lessons([report])
        describe_quiz([report])
    except FileNotFoundError:
        raise UnreadableReport(f"{path} does not exist") from None
    except OSError as error:
        raise UnreadableReport(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UnreadableReport(f"{path} is not the output of report --json: {error!r}") from error
    return report


def tally_lessons(reports: Iterable[Report]) -> dict[int, LessonTally]:
    """Return the results of each lesson, summed over all pairs, by the lesson's number."""
    tallies = {number: LessonTally() for number in lessons()}
    for report in reports:
        for record in report["lessons"]:
            tallies[record["number"]].add(record)
    return tallies


def describe_quiz(reports: Sequence[Report]) -> list[str]:
    """Return a line with the mean number of right answers for each occasion of the quiz."""
    lines = []
    for quiz_occasion in QUIZ_OCCASIONS:
        quizzes = [
            report["quiz"][quiz_occasion] for report in reports if quiz_occasion in report["quiz"]
        ]
        if quizzes:
            mean = sum(int(quiz["right"]) for quiz in quizzes) / len(quizzes)
            lines.append(
                f"quiz {quiz_occasion}: {mean:.1f} of {quizzes[0]['of']} right on average, in "
                f"{len(quizzes)} reports"
            )
    return lines


def make_lessons_table(reports: Sequence[Report]) -> Table:
    """Return the table of the lessons that at least one pair has begun."""
    table = Table(box=None, pad_edge=False)
    # The first column, the lesson's number, has no heading.
    for heading in ("", "lesson", "predicted right", "solved", "tries"):
        table.add_column(heading)
    table.add_column("refused most often", overflow="fold")
    for number, tally in tally_lessons(reports).items():
        if tally.predictions or tally.tries:
            refusals = tally.refusals.most_common(MAX_REFUSALS)
            table.add_row(
                str(number),
                lessons()[number].title,
                f"{tally.right_predictions} of {tally.predictions}",
                str(tally.solved),
                str(tally.tries),
                ", ".join(f"{code} {times}" for code, times in refusals),
            )
    return table
