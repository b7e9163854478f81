"""The exit code and the output of a process that has run a check."""

from dataclasses import dataclass

#: Timeout of a check. The steps of a check have a shorter timeout.
CHECK_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class EndedCheck:
    """A process that has run a check, and has ended.

    exit_code  negative if a signal ended the process; None if it took too long and was killed
    stdout     its output; the last line is the outcome, unless the process failed
    stderr     its error messages
    """

    exit_code: int | None
    stdout: str
    stderr: str
