"""What a form may ask of a rush."""

from __future__ import annotations

import pytest

from loadtest.rush.form import CROWD, RUSH, BadForm, parse

ALL = {**CROWD, **RUSH}
FIXED = {"host": "http://127.0.0.1:8000", "run_time": "", "profile": ""}


def test_a_rush_is_taken_with_its_values_parsed() -> None:
    form = {
        "user_count": ["200"],
        "spawn_rate": ["100"],
        "lock": ["redis-in-transaction"],
        "stock": ["100"],
        "hold_ms": ["0"],
        "product": ["apple"],
        "deadline": ["60.0"],
    }
    assert parse(form, allowed=ALL) == {
        "user_count": 200,
        "spawn_rate": 100.0,
        "lock": "redis-in-transaction",
        "stock": 100,
        "hold_ms": 0,
        "product": "apple",
        "deadline": 60.0,
    }


@pytest.mark.parametrize(
    "field",
    [
        *("result", "history", "restock_token", "nodes", "stay", "host", "web_allowed_hosts"),
        *("num_users", "csv_prefix", "html_file", "locustfile", "logfile", "run_time", "nonsense"),
    ],
)
def test_everything_else_is_refused_and_says_where_it_is_set(field: str) -> None:
    with pytest.raises(BadForm, match=f"{field} is set on Locust's command line alone"):
        parse({field: ["x"]}, allowed=ALL, fixed=FIXED)


def test_what_locusts_own_form_always_sends_is_taken_as_long_as_it_is_unchanged() -> None:
    assert parse({name: [value] for name, value in FIXED.items()}, allowed=ALL, fixed=FIXED) == {}
    with pytest.raises(BadForm, match="host is set on Locust's command line alone"):
        parse({"host": ["http://127.0.0.1:9"]}, allowed=ALL, fixed=FIXED)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            ("user_count", value)
            for value in ("0", "20001", "-1", "1.5", "", "many", "1_0", "\u0665")
        ),
        *(("spawn_rate", value) for value in ("0", "nan", "inf", "-1", "1e9", "20001")),
        *(("stock", value) for value in ("-1", "1000001", "9" * 5000)),
        *(("hold_ms", value) for value in ("-1", "5002")),
        *(("deadline", value) for value in ("0", "3601", "nan")),
        *(("product", value) for value in ("", "$(id)", "a b", "apple\n", "a" * 65)),
        *(("lock", value) for value in ("", "../none", "none;")),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_its_field_and_its_bounds(
    field: str, value: str
) -> None:
    with pytest.raises(BadForm, match=f"{field}: .* is not ") as refused:
        parse({field: [value]}, allowed=ALL)
    assert len(str(refused.value)) < 200


def test_a_value_that_is_given_twice_is_refused() -> None:
    with pytest.raises(BadForm, match="lock is given more than once"):
        parse({"lock": ["redis", "none"]}, allowed=ALL)
