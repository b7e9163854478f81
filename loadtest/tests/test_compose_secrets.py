"""Each service of the stack has its own secrets and nobody else's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from loadtest.tests.composed import PRODUCTION, ROOT, SERVICES, environment

#: Service -> the volume of secrets that it mounts.
MOUNTS = {
    **dict.fromkeys(["web-a", "web-b", "settle"], "secrets-shop"),
    **dict.fromkeys(["locust", "locust-ui"], "secrets-locust"),
    **dict.fromkeys(["redis", *(f"redlock-{n}" for n in range(1, 6))], "secrets-redis"),
    "migrate": "secrets-migrate",
    "postgres": "secrets-postgres",
}
#: Service of make_secrets.sh -> what it gets: nobody else's password, and the key of no certificate
#: but its own.
GIVEN = {
    "shop": {
        *("secret_key", "restock_token", "metrics_token", "redis_password"),
        *("pgpass_app", "ca.crt"),
    },
    "migrate": {"pgpass_migrate", "ca.crt"},
    "postgres": {
        *("postgres_password", "migrate_password", "app_password", "postgres.crt", "postgres.key")
    },
    "redis": {"users.acl", "redis.crt", "redis.key", "ca.crt"},
    "locust": {"restock_token"},
    "nginx": {"tls.crt", "tls.key"},
}


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_mounts_its_own_secrets_and_no_others(name: str) -> None:
    volumes = [volume.split(":") for volume in SERVICES[name].get("volumes", [])]
    secret = {source: mode for source, _, *mode in volumes if re.match("vault|secrets", source)}
    if name == "secrets":
        assert set(secret) == {"vault", *(f"secrets-{service}" for service in GIVEN)}
    else:
        assert secret == ({MOUNTS[name]: ["ro"]} if name in MOUNTS else {})


def test_the_vault_is_mounted_by_the_step_that_fills_it_alone() -> None:
    for name, service in [*SERVICES.items(), *PRODUCTION.items()]:
        volumes = (service or {}).get("volumes", [])
        assert name == "secrets" or not any(volume.startswith("vault") for volume in volumes)


def test_no_secret_is_in_the_file_or_in_the_image() -> None:
    for service in SERVICES.values():
        for name, value in environment(service).items():
            if re.search("SECRET|PASSWORD|TOKEN", name) and not name.endswith("_TTL"):
                assert name.endswith("_FILE"), name
                assert value == "" or value.startswith("/run/oversold/")
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"  # then what is let in


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def make_secrets(folder: Path, *more: Path, **environment: str) -> dict[str, str]:
    command = [ROOT / "docker/make_secrets.sh", folder, *more]
    subprocess.run(command, check=True, env={**os.environ, **environment})
    return contents(folder)


def test_each_service_is_given_its_own_secrets_random_private_and_kept(tmp_path: Path) -> None:
    first = make_secrets(tmp_path)
    for service, names in GIVEN.items():
        assert {path.name for path in (tmp_path / service).iterdir()} == names
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / service).iterdir()}
        assert modes == {0o400}
    vault = {path.name: path for path in (tmp_path / "vault").iterdir()}
    assert {path.stat().st_mode & 0o777 for path in vault.values()} == {0o600}
    random = [first[f"vault/{name}"] for name in vault if "." not in name and "pgpass" not in name]
    assert len(random) == len(set(random)) == 7
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in random)
    password = first["postgres/app_password"]
    assert first["shop/pgpass_app"] == f"*:*:*:oversold_app:{password}"
    assert make_secrets(tmp_path) == first, "the second start changes nothing"


def test_redis_is_given_the_digest_of_the_password_and_not_the_password(tmp_path: Path) -> None:
    made = make_secrets(tmp_path, REDIS_ACL="production")
    password = made["shop/redis_password"]
    assert f"#{sha256(password.encode()).hexdigest()} " in made["redis/users.acl"]
    assert password not in made["redis/users.acl"]
    assert "~stock:*" not in made["redis/users.acl"]
    assert "~stock:*" in make_secrets(tmp_path, REDIS_ACL="demo")["redis/users.acl"]


def test_secrets_of_ones_own_take_the_place_of_the_random_ones(tmp_path: Path) -> None:
    given, folder = tmp_path / "given", tmp_path / "made"
    (given).mkdir()
    folder.mkdir()
    make_secrets(folder)
    (given / "redis_password").write_text("mine\n")
    (given / "tls.crt").write_text("my certificate")
    (given / "tls.key").write_text("my key")
    made = make_secrets(folder, given)
    assert made["shop/redis_password"] == "mine"
    assert (made["nginx/tls.crt"], made["nginx/tls.key"]) == ("my certificate", "my key")


def test_the_certificates_name_their_servers_and_are_the_authoritys(tmp_path: Path) -> None:
    """Strictly, as Python 3.13 and newer check them."""
    make_secrets(tmp_path)
    for name in ("postgres", "redis"):
        subprocess.run(
            ["openssl", "verify", "-x509_strict", "-CAfile", tmp_path / "shop/ca.crt",
             "-verify_hostname", name, tmp_path / name / f"{name}.crt"],
            check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip


def test_the_shop_reads_a_secret_from_the_file_that_a_name_with_file_at_its_end_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("from the file")
    result = subprocess.run(
        [sys.executable, "-c", "from shop import settings; print(settings.SHOP_RESTOCK_TOKEN)"],
        cwd=ROOT,
        env={**os.environ, "SHOP_RESTOCK_TOKEN_FILE": str(tmp_path / "token")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "from the file\n"
