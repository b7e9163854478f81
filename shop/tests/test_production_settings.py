"""`manage.py check --deploy` over the environment of production, whole and with parts left out."""

from __future__ import annotations

import secrets

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


def test_production_passes_without_a_single_warning() -> None:
    done = run(*CHECK, **PRODUCTION)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("System check identified no issues")


def test_each_required_setting_left_out_is_an_error_with_a_hint() -> None:
    done = run("-m", "django", "check", "--deploy", "--no-color")
    assert done.returncode == 1, "an error, not a warning"
    for name in ("SECRET_KEY", "ALLOWED_HOSTS", "DATABASE_URL", "REDIS_URL", "HTTPS"):
        check = "shop.E009" if name == "HTTPS" else "shop.E007"
        said, _, rest = done.stderr.partition(f"({check}) {name} ")[2].partition("\n")
        assert said, name
        assert rest.startswith("\tHINT: "), name


def test_a_server_that_manage_py_brings_is_not_productions() -> None:
    done = run(*CHECK, **PRODUCTION, SHOP_EMBEDDED="DATABASE_URL,REDIS_URL")
    assert done.returncode == 1
    assert "(shop.E007) DATABASE_URL is not set" in done.stderr
    assert "(shop.E007) REDIS_URL is not set" in done.stderr


SHOW_PROXY = "from shop import settings as s; print(s.SECURE_PROXY_SSL_HEADER)"


@pytest.mark.parametrize(("behind", "trusted"), [("0", False), ("1", True)])
def test_x_forwarded_proto_is_trusted_only_behind_a_proxy(behind: str, trusted: bool) -> None:
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
