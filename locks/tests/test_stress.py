"""The judge of the long stress finds what is planted in a history."""

from __future__ import annotations

from typing import Any

import pytest

from ..bench.stress import PROCESSES, judge

CLEAN = [{"left": {"waiters": 0}}] * PROCESSES


def good(fence: int, at: float) -> dict[str, Any]:
    return {"fence": fence, "at": at}


@pytest.mark.parametrize(
    ("planted", "wrong"),
    [
        ([good(1, 0.0), good(1, 0.4), good(2, 0.5), {"counted": 1}], ""),
        ([good(1, 0.0), good(1, 1.0), good(2, 0.5)], "was good until"),
        ([good(1, 0.0), good(2, 0.5), good(1, 1.0)], "was good until"),
        ([good(2, 0.0), good(1, 0.5)], "the fence fell"),
        ([good(1, 0.0), good(2, 4.5)], "nobody had the lock for 4.50 s"),
        ([{"left": {"waiters": 1}}], "left behind"),
    ],
)
def test_the_judge_of_the_stress_finds_a_planted_violation(
    planted: list[dict[str, Any]], wrong: str
) -> None:
    found = judge([*planted, *CLEAN], ttl=3.0)["wrong"]
    assert any(wrong in each for each in found) if wrong else found == []


def test_the_judge_of_the_stress_misses_a_process_that_hung() -> None:
    assert "did not end by themselves" in judge(CLEAN[1:], ttl=3.0)["wrong"][0]
