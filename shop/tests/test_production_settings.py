"""`manage.py check --deploy` over the environment of production, whole and with parts left out."""

from __future__ import annotations

import secrets
import subprocess

import pytest

from shop.tests.test_settings import run

PRODUCTION = {
    "SECRET_KEY": secrets.token_urlsafe(64),
    "ALLOWED_HOSTS": "shop.example.com",
    "DATABASE_URL": "postgresql://oversold_app@127.0.0.1:1/oversold?sslmode=verify-full",
    "REDIS_URL": "rediss://127.0.0.1:1/0",
    "REDIS_PASSWORD": secrets.token_urlsafe(32),
    "SHOP_RESTOCK_TOKEN": secrets.token_urlsafe(32),
    "SHOP_BEHIND_PROXY": "1",
    "HTTPS": "1",
    "HSTS_SECONDS": "31536000",
    "HSTS_INCLUDE_SUBDOMAINS": "0",
    "HSTS_PRELOAD": "0",
}
CHECK = ("-m", "django", "check", "--deploy", "--fail-level", "WARNING", "--no-color")


def check(**environment: str) -> subprocess.CompletedProcess[str]:
    return run(*CHECK, **environment)


def test_production_passes_without_a_single_warning() -> None:
    done = check(**PRODUCTION)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("System check identified no issues")


@pytest.mark.parametrize("name", ["HSTS_INCLUDE_SUBDOMAINS", "HSTS_PRELOAD"])
def test_hsts_for_subdomains_and_preload_may_be_on(name: str) -> None:
    assert check(**{**PRODUCTION, name: "1"}).returncode == 0


@pytest.mark.parametrize(
    ("name", "check_id"),
    [
        ("SECRET_KEY", "shop.E007"),
        ("ALLOWED_HOSTS", "shop.E007"),
        ("DATABASE_URL", "shop.E007"),
        ("REDIS_URL", "shop.E007"),
        ("HTTPS", "shop.E009"),
    ],
)
def test_each_required_setting_left_out_is_an_error_with_a_hint(name: str, check_id: str) -> None:
    done = run(
        *("-m", "django", "check", "--deploy", "--no-color"),
        **{key: value for key, value in PRODUCTION.items() if key != name},
    )
    assert done.returncode == 1, "an error, not a warning"
    said, _, rest = done.stderr.partition(f"({check_id}) {name} ")[2].partition("\n")
    assert said
    assert rest.startswith("\tHINT: ")


@pytest.mark.parametrize(
    ("name", "value", "check_id"),
    [
        ("ALLOWED_HOSTS", "*", "shop.E008"),
        ("ALLOWED_HOSTS", "shop.example.com,*", "shop.E008"),
        ("SHOP_RESTOCK_TOKEN", "short", "shop.E010"),
        ("SHOP_DEMO", "1", "shop.E004"),
        ("DEBUG", "1", "security.W018"),
        ("SECRET_KEY", "short", "security.W009"),
    ],
)
def test_each_setting_that_is_unsafe_fails_the_check(name: str, value: str, check_id: str) -> None:
    done = check(**{**PRODUCTION, name: value})
    assert done.returncode == 1
    assert f"({check_id})" in done.stderr
    assert "HINT: " in done.stderr or check_id.startswith("security.")


@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS_URL"])
def test_a_server_that_manage_py_brings_is_not_productions(name: str) -> None:
    done = check(**PRODUCTION, SHOP_EMBEDDED=name)
    assert done.returncode == 1
    assert f"(shop.E007) {name} is not set" in done.stderr


SHOW_PROXY = "from shop import settings as s; print(s.SECURE_PROXY_SSL_HEADER)"


@pytest.mark.parametrize(("behind", "trusted"), [("0", False), ("1", True)])
def test_x_forwarded_proto_is_trusted_behind_a_proxy_alone(behind: str, trusted: bool) -> None:
    done = run("-c", SHOW_PROXY, **{**PRODUCTION, "SHOP_BEHIND_PROXY": behind})
    assert ("HTTP_X_FORWARDED_PROTO" in done.stdout) is trusted


SHOW_URLS = """
from shop import settings as s
print(s.REDIS_URL, s.REDIS_LOCKS_URL, *s.REDLOCK_URLS)
"""


def test_a_redis_password_from_a_file_of_its_own_goes_into_every_url_without_one() -> None:
    done = run(
        "-c",
        SHOW_URLS,
        REDIS_URL="redis://redis:6379/0",
        REDLOCK_URLS="redis://one,redis://me:mine@two",
        REDIS_USER="shop",
        REDIS_PASSWORD="p@ss/word",
    )
    login = "shop:p%40ss%2Fword"
    assert done.stdout.split() == [
        f"redis://{login}@redis:6379/0",
        f"redis://{login}@redis:6379/1",
        f"redis://{login}@one",
        "redis://me:mine@two",
    ]
