"""The manifests in deploy/kubernetes.

Django's checks pass with them, they contain no secret, their probes are answered, and kubectl
renders them where it is installed.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.urls import resolve

from deploy.tests.test_compose import passes_check_deploy
from servers.embedded import ROOT

FOLDER = ROOT / "deploy/kubernetes"
BASE = [
    manifest
    for name in yaml.safe_load((FOLDER / "base/kustomization.yaml").read_text())["resources"]
    for manifest in yaml.safe_load_all((FOLDER / "base" / name).read_text())
]
#: Old ones know no `replicas` in a kustomization.
KUBECTL = (
    shutil.which("kubectl")
    and "Kustomize Version: v5"
    in subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True).stdout
)


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [manifest for manifest in BASE if manifest["kind"] == kind]


SETTINGS: dict[str, str] = of_kind("ConfigMap")[0]["data"]
PODS = [
    manifest["spec"]["template"]["spec"] for manifest in (*of_kind("Deployment"), *of_kind("Job"))
]


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
    settings_with_tls = {**SETTINGS, "REDIS_URL": "rediss://127.0.0.1:1/0"}
    passes_check_deploy(
        {
            name: value.replace("/run/oversold", str(tmp_path))
            for name, value in settings_with_tls.items()
        }
    )


def test_every_setting_is_one_of_the_shops_and_a_secret_is_in_a_file() -> None:
    documented_settings = set(
        re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    )
    pod_settings = dict(SETTINGS)
    for pod in PODS:
        pod_settings |= {
            variable["name"]: variable.get("value", "")
            for variable in pod["containers"][0].get("env", [])
        }
    assert {name.removesuffix("_FILE") for name in pod_settings} <= documented_settings
    secret = [
        name for name in pod_settings if re.search("SECRET|TOKEN|PASSWORD|DATABASE_URL", name)
    ]
    assert [name for name in secret if not name.endswith("_FILE")] == []
    assert of_kind("Secret") == []


def test_node_answers_its_probes_and_has_time_to_stop() -> None:
    pod, container = PODS[0], PODS[0]["containers"][0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert resolve(container[probe]["httpGet"]["path"])
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz", "or PostgreSQL restarts it"
    _, pause = container["lifecycle"]["preStop"]["exec"]["command"]
    takes = int(pause) + int(SETTINGS["WEB_GRACEFUL_TIMEOUT"])
    assert pod["terminationGracePeriodSeconds"] > takes


def test_containers_have_no_further_privileges() -> None:
    for pod in PODS:
        own = pod["containers"][0]["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"]) == (True, False)
        assert "cpu" not in pod["containers"][0]["resources"]["limits"], "throttled while it holds"


@pytest.mark.skipif(not KUBECTL, reason="kubectl 1.27 is not installed")
@pytest.mark.parametrize("folder", ["base", "example"])
def test_kubectl_renders_it_and_every_selector_finds_pods(folder: str) -> None:
    rendered = subprocess.run(
        ["kubectl", "kustomize", FOLDER / folder], capture_output=True, text=True, check=True
    ).stdout
    if kubeconform := shutil.which("kubeconform"):
        subprocess.run([kubeconform, "-strict", "-"], input=rendered, text=True, check=True)
    objects = list(yaml.safe_load_all(rendered))
    assert len(objects) == len(BASE)
    specs = [manifest.get("spec", {}) for manifest in objects]
    pods = [spec["template"]["metadata"]["labels"] for spec in specs if "template" in spec]
    for owner, spec in zip(objects, specs, strict=True):
        chosen = spec.get("podSelector", spec.get("selector", {}))
        required_labels = chosen.get("matchLabels", {}) if owner["kind"] != "Service" else chosen
        is_matched = any(required_labels.items() <= labels.items() for labels in pods)
        assert is_matched, owner["metadata"]["name"]
