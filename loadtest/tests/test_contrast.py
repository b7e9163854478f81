"""The contrast on a running shop, with a script in place of Locust that returns given verdicts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest.commands import contrast
from loadtest.rush.secret import secret
from loadtest.stack.client import Shop, ShopUnreachable

EXPECTED = {"none": "oversold", "token": "exact", "redis": "exact"}
LOCUST = """\
import json, sys
def option(name):
    return sys.argv[sys.argv.index(name) + 1]
verdict = json.loads(sys.argv[1]).get(option("--lock"))
if verdict is None:
    sys.exit("nothing works today")
run = {"lock": option("--lock"), "fault": "rush", "verdict": verdict, "orders": 100,
       "stock_left": 0, "oversold": 0, "lost_updates": 0, "buy_ms": {"p50": 1}, "duration_s": 1}
with open(option("--result"), "w") as file:
    json.dump(run, file)
sys.exit(3 if verdict == "oversold" else 0)
"""


@pytest.fixture
def locust(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Give each lock its verdict, run the contrast, get its exit code."""
    monkeypatch.delenv("SHOP_RESTOCK_TOKEN_FILE", raising=False)
    monkeypatch.setenv("SHOP_RESTOCK_TOKEN", "given")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(Shop, "strategies", lambda shop: [])
    script = tmp_path / "locust.py"
    script.write_text(LOCUST)

    def run(verdicts: dict[str, str]) -> int:
        real = contrast.rush
        command = [sys.executable, str(script), json.dumps(verdicts)]
        monkeypatch.setattr(contrast, "rush", lambda _, lock: real(command, lock))
        return contrast.main([])

    return run


def test_the_contrast_shows_when_none_oversells_and_the_locks_are_exact(locust: Any) -> None:
    assert locust(EXPECTED) == 0


def test_a_lock_that_oversells_is_no_contrast(locust: Any) -> None:
    assert locust({**EXPECTED, "redis": "oversold"}) == 1


def test_no_lock_that_sells_exactly_is_no_contrast(locust: Any) -> None:
    assert locust({**EXPECTED, "none": "exact"}) == 1


def test_a_rush_without_a_result_names_the_command_to_try(
    locust: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert locust({"none": "oversold"}) == 2
    assert "python -m loadtest.commands.contrast --headless --lock token" in capsys.readouterr().out


def test_an_unreachable_shop_ends_with_2_and_a_message(
    locust: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def strategies(shop: Shop) -> None:
        raise ShopUnreachable(f"no shop answers at {shop.url}")

    monkeypatch.setattr(Shop, "strategies", strategies)
    monkeypatch.setenv("LOCUST_HOST", "http://nowhere.test")
    assert locust(EXPECTED) == 2
    assert "no shop answers at http://nowhere.test" in capsys.readouterr().out


def test_the_token_in_a_file_goes_before_the_one_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHOP_RESTOCK_TOKEN", "from the environment")
    monkeypatch.delenv("SHOP_RESTOCK_TOKEN_FILE", raising=False)
    assert secret("SHOP_RESTOCK_TOKEN") == "from the environment"
    (tmp_path / "token").write_text("from the file\n")
    monkeypatch.setenv("SHOP_RESTOCK_TOKEN_FILE", str(tmp_path / "token"))
    assert secret("SHOP_RESTOCK_TOKEN") == "from the file"


def test_arguments_make_it_a_plain_locust_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Became(Exception):
        pass

    def execv(path: str, arguments: list[str]) -> None:
        raise Became(*arguments)

    monkeypatch.setattr("os.execv", execv)
    monkeypatch.setenv("LOCUST_HOST", "http://nginx:8080")
    monkeypatch.setenv("SHOP_RESTOCK_TOKEN", "given")
    with pytest.raises(Became) as became:
        contrast.main(["--lock", "redis"])
    assert became.value.args[1:] == (
        *("-m", "locust", "--host", "http://nginx:8080"),
        *("--lock", "redis"),
    )
