"""The folder deploy/kubernetes, read without a cluster, and rules that its objects have to keep.

Each rule returns what is wrong, in sentences; nothing, where nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from tests.locked import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
Object = dict[str, Any]
Rule = Callable[[Sequence[Object]], list[str]]
#: The shop's user in the image.
UID = 10001


def base() -> list[Object]:
    """Every object of the base, in the order of its kustomization."""
    folder = FOLDER / "base"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [each for name in listed for each in yaml.safe_load_all((folder / name).read_text())]


def of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def named(each: Object) -> str:
    return f"{each['kind']} {each['metadata']['name']}"


def workloads(objects: Sequence[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Each workload's name, its pod, and its only container."""
    for each in [*of_kind(objects, "Deployment"), *of_kind(objects, "Job")]:
        pod = each["spec"]["template"]["spec"]
        yield named(each), pod, pod["containers"][0]


def the_node(objects: Sequence[Object]) -> tuple[Object, Object]:
    """The pod and the container of a node."""
    _, pod, container = next(workloads(of_kind(objects, "Deployment")))
    return pod, container


def settings(objects: Sequence[Object]) -> Mapping[str, str]:
    """What the ConfigMap sets."""
    (found,) = of_kind(objects, "ConfigMap")
    return dict(found["data"])


def selectors(each: Object) -> Iterator[Mapping[str, str]]:
    """The labels by which an object chooses pods."""
    spec = each.get("spec", {})
    if each["kind"] == "Service":
        yield spec["selector"]
    for name in ("selector", "podSelector"):
        if each["kind"] != "Service" and name in spec:
            yield spec[name]["matchLabels"]
    for spread in spec.get("template", {}).get("spec", {}).get("topologySpreadConstraints", []):
        yield spread["labelSelector"]["matchLabels"]


def every_selector_finds_pods(objects: Sequence[Object]) -> list[str]:
    pods = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in objects
        if "template" in each.get("spec", {})
    ]
    return [
        f"{named(each)} chooses {dict(wanted)}, which no pod has"
        for each in objects
        for wanted in selectors(each)
        if not any(wanted.items() <= labels.items() for labels in pods)
    ]


def probes_ask_what_the_shop_answers(objects: Sequence[Object]) -> list[str]:
    paths = set(re.findall(r'^ +"(/[a-z.]+)": ', (ROOT / "shop/openapi.py").read_text(), re.M))
    _, container = the_node(objects)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    bound = re.search(r"0\.0\.0\.0:(\d+)", (ROOT / "Dockerfile").read_text())
    assert bound is not None
    wrong = []
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container.get(kind, {}).get("httpGet", {})
        if asked.get("path") not in paths:
            wrong.append(f"{kind} asks {asked.get('path')}, which the shop does not answer")
        if ports.get(asked.get("port")) != int(bound[1]):
            wrong.append(f"{kind} asks at {asked.get('port')}, and a node listens at {bound[1]}")
    if container.get("livenessProbe", {}).get("httpGet", {}).get("path") == "/readyz":
        wrong.append("livenessProbe asks /readyz: a database that is down would restart the nodes")
    return wrong


def every_setting_is_one_of_the_shops(objects: Sequence[Object]) -> list[str]:
    known = set(re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.M))
    given = set(settings(objects))
    for _, _, container in workloads(objects):
        given |= {each["name"] for each in container.get("env", [])}
    return [
        f"{name} is no setting" for name in sorted(given) if name.removesuffix("_FILE") not in known
    ]


def a_node_has_time_to_stop(objects: Sequence[Object]) -> list[str]:
    pod, container = the_node(objects)
    _, pause = container["lifecycle"]["preStop"]["exec"]["command"]
    graceful = int(settings(objects)["WEB_GRACEFUL_TIMEOUT"])
    has = int(pod.get("terminationGracePeriodSeconds", 30))
    takes = int(pause) + graceful
    return [] if has > takes else [f"a node takes {takes} s to stop, and is killed after {has}"]


def no_secret_is_in_the_files(objects: Sequence[Object]) -> list[str]:
    wrong = [f"{named(each)} is a secret" for each in of_kind(objects, "Secret")]
    given = list(settings(objects).items())
    for _, _, container in workloads(objects):
        given += [(each["name"], each.get("value", "")) for each in container.get("env", [])]
    secret = re.compile(r"(SECRET|TOKEN|PASSWORD|DATABASE_URL)")
    for name, value in given:
        if secret.search(name) and not name.endswith("_FILE"):
            wrong.append(f"{name} is a secret: name a file")
        if re.search(r"://[^/]*:[^/]*@", value):
            wrong.append(f"{name} has a password in it")
    return wrong


def every_file_is_mounted(objects: Sequence[Object]) -> list[str]:
    wrong = []
    for name, pod, container in workloads(objects):
        files = {each["name"]: each.get("value", "") for each in container.get("env", [])}
        if container.get("envFrom"):
            files |= settings(objects)
        mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        folders = [mounted.get(v["name"], "-") for v in pod["volumes"] if "secret" in v]
        wrong += [
            f"{name}: {key} is {value}, where no secret is mounted"
            for key, value in files.items()
            if key.endswith("_FILE") and not any(value.startswith(f"{at}/") for at in folders)
        ]
    names = [
        v["secret"]["secretName"]
        for _, p, _ in workloads(objects)
        for v in p["volumes"]
        if "secret" in v
    ]
    if len(set(names)) < len(names):
        wrong.append("nodes and migration share a secret: the shop must not own its tables")
    return wrong


def containers_may_do_nothing_else(objects: Sequence[Object]) -> list[str]:
    wrong = []
    for name, pod, container in workloads(objects):
        own = container.get("securityContext", {})
        kept = {
            "runs as the image's user": pod["securityContext"].get("runAsUser") == UID,
            "runs as root never": pod["securityContext"].get("runAsNonRoot") is True,
            "reads its secrets": pod["securityContext"].get("fsGroup") == UID,
            "has a seccomp profile": pod["securityContext"].get("seccompProfile")
            == {"type": "RuntimeDefault"},
            "gains no privileges": own.get("allowPrivilegeEscalation") is False,
            "has no capabilities": own.get("capabilities") == {"drop": ["ALL"]},
            "writes nothing to its image": own.get("readOnlyRootFilesystem") is True,
            "has no token of Kubernetes": pod.get("automountServiceAccountToken") is False,
            "has no variables of other services": pod.get("enableServiceLinks") is False,
            "asks for what it needs": {"cpu", "memory"} <= set(container["resources"]["requests"]),
            "has a limit of memory": "memory" in container["resources"]["limits"],
            "is not throttled while it holds a lock": "cpu" not in container["resources"]["limits"],
        }
        wrong += [f"{name}: not so: {what}" for what, is_so in kept.items() if not is_so]
    return wrong


def one_node_may_go(objects: Sequence[Object]) -> list[str]:
    (nodes,) = of_kind(objects, "Deployment")
    wrong = [] if nodes["spec"]["replicas"] >= 2 else ["one node: its end is the shop's"]
    if nodes["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] != 0:
        wrong.append("a new version stops a node before another one sells")
    budget = of_kind(objects, "PodDisruptionBudget")
    return (
        wrong if budget else [*wrong, "no PodDisruptionBudget: a drain may stop all nodes at once"]
    )


def every_pod_has_a_network_policy(objects: Sequence[Object]) -> list[str]:
    wanted = [
        each["spec"]["podSelector"]["matchLabels"] for each in of_kind(objects, "NetworkPolicy")
    ]
    wrong = [
        f"{named(each)} has none"
        for each in [*of_kind(objects, "Deployment"), *of_kind(objects, "Job")]
        if not any(
            labels.items() <= each["spec"]["template"]["metadata"]["labels"].items()
            for labels in wanted
        )
    ]
    for each in of_kind(objects, "NetworkPolicy"):
        if set(each["spec"]["policyTypes"]) != {"Ingress", "Egress"}:
            wrong.append(f"{named(each)} leaves a direction open")
    return wrong


RULES: tuple[Rule, ...] = (
    every_selector_finds_pods,
    probes_ask_what_the_shop_answers,
    every_setting_is_one_of_the_shops,
    a_node_has_time_to_stop,
    no_secret_is_in_the_files,
    every_file_is_mounted,
    containers_may_do_nothing_else,
    one_node_may_go,
    every_pod_has_a_network_policy,
)
