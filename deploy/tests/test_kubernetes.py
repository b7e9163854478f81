"""The Kubernetes manifests in deploy/kubernetes.

The settings in them pass Django's checks, the manifests contain no secrets, and the shop answers
their probes. If kubectl is installed, it must be able to render them.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.urls import resolve

from deploy.tests.test_compose import assert_check_deploy_passes
from servers.embedded import ROOT

FOLDER = ROOT / "deploy/kubernetes"
#: The manifests in the folder `base`, as dicts.
BASE_MANIFESTS = [
    manifest
    for name in yaml.safe_load((FOLDER / "base/kustomization.yaml").read_text())["resources"]
    for manifest in yaml.safe_load_all((FOLDER / "base" / name).read_text())
]
#: Whether kubectl is installed and has Kustomize 5, which knows the field `replicas` in `example`.
HAS_KUBECTL = shutil.which("kubectl") is not None and (
    "Kustomize Version: v5"
    in subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True).stdout
)


def find_manifests(kind: str) -> list[dict[str, Any]]:
    """Return the manifests of this kind, such as `Deployment`, in the folder `base`."""
    return [manifest for manifest in BASE_MANIFESTS if manifest["kind"] == kind]


#: The settings of the shop: environment variable -> value.
SETTINGS: dict[str, str] = find_manifests("ConfigMap")[0]["data"]
#: The specifications of the pods: first that of a node, then that of the migration.
POD_SPECS = [
    manifest["spec"]["template"]["spec"]
    for manifest in (*find_manifests("Deployment"), *find_manifests("Job"))
]


def test_settings_of_the_pods_pass_check_deploy(tmp_path: Path) -> None:
    """`django check --deploy` passes with the ConfigMap, with secrets, and with TLS to Redis."""
    secrets = {
        "database_url": "postgresql://oversold_app:x@127.0.0.1:1/oversold?sslmode=verify-full",
        **dict.fromkeys(
            ("redis_password", "restock_token", "metrics_token"), "0123456789abcdef" * 2
        ),
        "secret_key": "0123456789abcdefghijklmnopqrstuvwxyz" * 2,
        "ca.crt": "",
    }
    for name, secret in secrets.items():
        (tmp_path / name).write_text(secret)
    settings_with_tls = {**SETTINGS, "REDIS_URL": "rediss://127.0.0.1:1/0"}
    assert_check_deploy_passes(
        {
            name: value.replace("/run/oversold", str(tmp_path))
            for name, value in settings_with_tls.items()
        }
    )


def test_every_setting_is_documented_and_every_secret_is_in_a_file() -> None:
    """.env.example documents the settings of the pods.

    A setting with a secret ends with _FILE: its value is the path of a file. No manifest is a
    Secret, because users provide the secrets.
    """
    documented_settings = set(
        re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    )
    pod_settings = dict(SETTINGS)
    for pod in POD_SPECS:
        pod_settings |= {
            variable["name"]: variable.get("value", "")
            for variable in pod["containers"][0].get("env", [])
        }
    assert {name.removesuffix("_FILE") for name in pod_settings} <= documented_settings
    secrets = [
        name for name in pod_settings if re.search("SECRET|TOKEN|PASSWORD|DATABASE_URL", name)
    ]
    assert [name for name in secrets if not name.endswith("_FILE")] == []
    assert find_manifests("Secret") == []


def test_node_answers_its_probes_and_has_time_to_stop() -> None:
    """The paths of the probes exist. Kubernetes waits until a node has ended its purchases."""
    pod = POD_SPECS[0]  # the pod of a node; POD_SPECS[1] is that of the migration
    container = pod["containers"][0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert resolve(container[probe]["httpGet"]["path"])
    # /readyz fails while PostgreSQL is down. A restart of the node would not help then.
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    _, sleep_seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    longest_stop_seconds = int(sleep_seconds) + int(SETTINGS["WEB_GRACEFUL_TIMEOUT"])
    assert pod["terminationGracePeriodSeconds"] > longest_stop_seconds


def test_containers_have_no_privileges_and_no_cpu_limit() -> None:
    """A container has a read-only file system and no capabilities, and does not run as root."""
    for pod in POD_SPECS:
        container = pod["containers"][0]
        context = container["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        # With a CPU limit, a node could be throttled while a purchase holds its lock.
        assert "cpu" not in container["resources"]["limits"]


@pytest.mark.skipif(not HAS_KUBECTL, reason="kubectl 1.27 is not installed")
@pytest.mark.parametrize("folder", ["base", "example"])
def test_kubectl_renders_the_manifests_and_every_selector_finds_pods(folder: str) -> None:
    """Each selector in a manifest has the labels of at least one pod template."""
    rendered = subprocess.run(
        ["kubectl", "kustomize", FOLDER / folder], capture_output=True, text=True, check=True
    ).stdout
    if kubeconform := shutil.which("kubeconform"):
        subprocess.run([kubeconform, "-strict", "-"], input=rendered, text=True, check=True)
    manifests = list(yaml.safe_load_all(rendered))
    assert len(manifests) == len(BASE_MANIFESTS)
    specs = [manifest.get("spec", {}) for manifest in manifests]
    labels_of_pods = [
        spec["template"]["metadata"]["labels"] for spec in specs if "template" in spec
    ]
    for manifest, spec in zip(manifests, specs, strict=True):
        selector = spec.get("podSelector", spec.get("selector", {}))
        required_labels = selector.get("matchLabels", {})
        if manifest["kind"] == "Service":  # the selector of a Service is the labels themselves
            required_labels = selector
        is_matched = any(required_labels.items() <= labels.items() for labels in labels_of_pods)
        assert is_matched, manifest["metadata"]["name"]
