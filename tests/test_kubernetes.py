"""deploy/kubernetes keeps its rules, each of which finds what breaks it; kubectl renders it, where
there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import kubernetes as rules
from tests.kubernetes import FOLDER, Object, base, of_kind, settings, the_node, workloads
from tests.locked import ROOT


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: str(rule.__name__))
def test_the_folder_keeps_every_rule(rule: rules.Rule) -> None:
    assert rule(base()) == []


def test_it_has_all_that_a_shop_needs_and_nothing_twice() -> None:
    names = [rules.named(each) for each in base()]
    assert len(set(names)) == len(names)
    assert {each["kind"] for each in base()} == {
        *("Namespace", "ConfigMap", "ServiceAccount", "Job", "Deployment", "Service"),
        *("PodDisruptionBudget", "NetworkPolicy"),
    }
    listed = yaml.safe_load((FOLDER / "base/kustomization.yaml").read_text())["resources"]
    there = {path.name for path in (FOLDER / "base").glob("*.yaml")}
    assert {*listed, "kustomization.yaml"} == there


# --- each rule finds what breaks it -------------------------------------------------------------


def pod(objects: list[Object]) -> Object:
    return the_node(objects)[0]


def node(objects: list[Object]) -> Object:
    return the_node(objects)[1]


def data(objects: list[Object]) -> Any:
    return of_kind(objects, "ConfigMap")[0]["data"]


def spec(objects: list[Object], kind: str) -> Any:
    return of_kind(objects, kind)[0]["spec"]


def another(kind: str) -> Callable[[list[Object]], None]:
    return lambda o: o.append({"kind": kind, "metadata": {"name": "more"}})


def without(kind: str) -> Callable[[list[Object]], None]:
    return lambda o: o.remove(of_kind(o, kind)[-1])


BROKEN: list[tuple[rules.Rule, Callable[[list[Object]], Any]]] = [
    (rules.every_selector_finds_pods, lambda o: spec(o, "Service")["selector"].update(app="x")),
    (
        rules.every_selector_finds_pods,
        lambda o: spec(o, "PodDisruptionBudget")["selector"]["matchLabels"].update(app="x"),
    ),
    (
        rules.probes_ask_what_the_shop_answers,
        lambda o: node(o)["livenessProbe"]["httpGet"].update(path="/health"),
    ),
    (
        rules.probes_ask_what_the_shop_answers,
        lambda o: node(o)["livenessProbe"]["httpGet"].update(path="/readyz"),
    ),
    (rules.probes_ask_what_the_shop_answers, lambda o: node(o).pop("startupProbe")),
    (
        rules.probes_ask_what_the_shop_answers,
        lambda o: node(o)["ports"][0].update(containerPort=8080),
    ),
    (rules.every_setting_is_one_of_the_shops, lambda o: data(o).update(SHOP_LOCKS="redis")),
    (rules.a_node_has_time_to_stop, lambda o: pod(o).update(terminationGracePeriodSeconds=40)),
    (rules.a_node_has_time_to_stop, lambda o: pod(o).pop("terminationGracePeriodSeconds")),
    (rules.a_node_has_time_to_stop, lambda o: data(o).update(WEB_GRACEFUL_TIMEOUT="45")),
    (rules.no_secret_is_in_the_files, lambda o: data(o).update(SECRET_KEY="x")),
    (rules.no_secret_is_in_the_files, lambda o: data(o).update(REDIS_URL="redis://shop:x@here/0")),
    (rules.no_secret_is_in_the_files, another("Secret")),
    (rules.every_file_is_mounted, lambda o: data(o).update(SECRET_KEY_FILE="/etc/key")),
    (
        rules.every_file_is_mounted,
        lambda o: [p["volumes"][0]["secret"].update(secretName="shop") for _, p, _ in workloads(o)],
    ),
    (
        rules.containers_may_do_nothing_else,
        lambda o: node(o)["securityContext"].update(readOnlyRootFilesystem=False),
    ),
    (rules.containers_may_do_nothing_else, lambda o: pod(o)["securityContext"].pop("runAsNonRoot")),
    (
        rules.containers_may_do_nothing_else,
        lambda o: node(o)["resources"]["limits"].update(cpu="1"),
    ),
    (rules.one_node_may_go, lambda o: spec(o, "Deployment").update(replicas=1)),
    (rules.one_node_may_go, without("PodDisruptionBudget")),
    (rules.every_pod_has_a_network_policy, without("NetworkPolicy")),
    (
        rules.every_pod_has_a_network_policy,
        lambda o: spec(o, "NetworkPolicy").update(policyTypes=["Ingress"]),
    ),
]


@pytest.mark.parametrize(("rule", "spoil"), BROKEN, ids=lambda each: str(each.__name__))
def test_each_rule_finds_what_breaks_it(
    rule: rules.Rule, spoil: Callable[[list[Object]], Any]
) -> None:
    objects = base()
    spoil(objects)
    assert rule(objects)


def test_every_rule_is_shown_to_find_something() -> None:
    assert {rule for rule, _ in BROKEN} == set(rules.RULES)


# --- and it is a production's -------------------------------------------------------------------


def test_its_settings_pass_check_deploy(tmp_path: Path) -> None:
    secrets = {
        "database_url": "postgresql://oversold_app:x@127.0.0.1:1/oversold?sslmode=verify-full",
        **dict.fromkeys(
            ("redis_password", "restock_token", "metrics_token"), "0123456789abcdef" * 2
        ),
        "secret_key": "0123456789abcdefghijklmnopqrstuvwxyz" * 2,
        "ca.crt": "",
    }
    for name, value in secrets.items():
        (tmp_path / name).write_text(value)
    given = {**settings(base()), "REDIS_URL": "rediss://127.0.0.1:1/0"}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "django", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            **kept,
            **{key: value.replace("/run/oversold", str(tmp_path)) for key, value in given.items()},
        },
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_migration_does_what_that_of_compose_does() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["migrate"]
    ((_, _, job),) = workloads(of_kind(base(), "Job"))
    assert job["command"] == compose["command"]


def test_the_page_names_every_secret_that_is_mounted() -> None:
    page = (FOLDER / "README.md").read_text()
    for _, mounted, _ in workloads(base()):
        for volume in mounted["volumes"]:
            if "secret" in volume:
                assert f"create secret generic {volume['secret']['secretName']} " in page
    for value in settings(base()).values():
        if value.startswith("/run/oversold/"):
            assert f"--from-file={value.removeprefix('/run/oversold/')}" in page


# --- rendered by the tool itself ----------------------------------------------------------------


def version() -> str:
    """What kubectl says of the Kustomize in it; empty without a kubectl."""
    if not shutil.which("kubectl"):
        return ""
    asked = ["kubectl", "version", "--client"]
    return subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout


#: Old ones know no `replicas` in a kustomization.
kubectl = pytest.mark.skipif(
    not re.search(r"Kustomize Version: v[5-9]", version()), reason="kubectl 1.27 is not installed"
)


def rendered(folder: str) -> list[Object]:
    done = subprocess.run(
        ["kubectl", "kustomize", FOLDER / folder], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@kubectl
def test_kubectl_makes_of_the_base_what_is_in_the_files_in_their_namespace() -> None:
    def key(each: Object) -> str:
        return rules.named(each)

    expected = []
    for each in base():
        if each["kind"] != "Namespace":
            each["metadata"]["namespace"] = "oversold"
        expected.append(each)
    assert sorted(rendered("base"), key=key) == sorted(expected, key=key)


@kubectl
@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: str(rule.__name__))
def test_the_overlay_to_copy_renders_and_keeps_every_rule(
    rule: rules.Rule, overlay: list[Object]
) -> None:
    assert rule(overlay) == []
    assert spec(overlay, "Deployment")["replicas"] == 4
    images = {container["image"] for _, _, container in workloads(overlay)}
    assert images == {"registry.example.com/oversold:1"}


@pytest.fixture(scope="module")
def overlay() -> list[Object]:
    return rendered("example")
