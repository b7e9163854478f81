"""A demo of a shop that does wrong in ways that its totals do not show has no exact verdict."""

import json
from pathlib import Path

from loadtest.tests.checkout import assert_nothing_is_left, start

SELLS = "            return STRATEGIES[attempt.lock].buy(attempt)\n"
#: Under `token` a third of the buyers are sent away at once, under `redis` nobody takes the lock
#: (the row's own makes it right), and under `none` a node writes lines that are none.
PLANTS = {
    "shop/sale/checkout.py": (
        SELLS,
        '            if attempt.lock == "token" and int(attempt.buyer.split("-")[1]) % 3 == 2:\n'
        "                raise SoldOut\n"
        '            if attempt.lock == "redis":\n'
        f"                return STRATEGIES['row-lock'].buy(attempt)\n{SELLS}",
    ),
    "shop/demo/hooks.py": (
        'text = "".join(',
        'garbled = b"{gar\\n" if any(line.get("lock") == "none" for line in lines) else b""\n'
        '        text = garbled + "".join(',
    ),
}


def test_what_is_planted_in_the_shop_leaves_the_demo_without_a_verdict(clone: Path) -> None:
    for file, (old, new) in PLANTS.items():
        text = (clone / file).read_text()
        assert text.count(old) == 1, file
        (clone / file).write_text(text.replace(old, new))
    demo = start(clone, "-m", "loadtest", "--buyers", "30", "--stock", "15")
    printed, _ = demo.communicate(timeout=120)

    assert demo.returncode == 1, printed
    assert "Traceback" not in printed
    summary = json.loads((clone / "results" / "latest" / "summary.json").read_text())
    runs = {run["lock"]: run for run in summary["runs"]}
    assert {lock: run["verdict"] for lock, run in runs.items()} == {
        "none": "oversold",
        "token": "unknown",
        "redis": "unknown",
    }
    for lock, rule in {
        "none": "broken_history",
        "token": "unrecorded",
        "redis": "unlocked",
    }.items():
        assert rule in runs[lock]["violations"], runs[lock]
    assert f"token: {runs['token']['why'][:40]}" in printed
    assert_nothing_is_left(clone)
