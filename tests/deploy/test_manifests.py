"""What `kubectl apply -k` would send: rendered by kustomize, accepted by a real API server."""

import asyncio
import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from engine.io.kube.client import APPLY_PATCH, ApiClient
from engine.io.kube.resources import CONFIG_MAPS
from engine.policy.bundle import build_bundle
from engine.policy.rollout_config import CanaryStage, RolloutConfig, ShadowStage
from engine.rollout.control import SUFFIX
from tests.controlplane import ControlPlane
from tests.deploy.rendering import (
    DEPLOY,
    ROOT,
    Manifest,
    container,
    object_path,
    pick,
    policies,
    render,
)
from tests.waiting import eventually
from workbench.cli.rollout_control import write_control

OVERLAYS = ("overlays/beside", "overlays/replace")
FOLDERS = ("base", *OVERLAYS)

pytestmark = pytest.mark.usefixtures("kustomize")


async def apply(client: ApiClient, manifest: Manifest, **params: str) -> Any:
    """Server-side apply of *manifest*; an unknown or repeated field is an error."""
    raw = await client.request(
        "PATCH",
        object_path(manifest),
        body=json.dumps(manifest).encode(),
        content_type=APPLY_PATCH,
        params={"fieldManager": "tests", "fieldValidation": "Strict", "force": "true", **params},
    )
    return json.loads(raw)


@pytest.mark.parametrize("folder", OVERLAYS)
async def test_the_api_server_accepts_every_object(admin: ApiClient, folder: str) -> None:
    for manifest in render(folder):
        got = await apply(admin, manifest)
        assert got["metadata"]["name"] == manifest["metadata"]["name"]


@pytest.mark.parametrize("folder", OVERLAYS)
async def test_the_strictest_pod_security_level_admits_the_pod(
    admin: ApiClient, folder: str
) -> None:
    """A Deployment is accepted whatever its pods may do: the pod itself has to be tried."""
    objects = render(folder)
    await apply(admin, pick(objects, "Namespace"))
    template = pick(objects, "Deployment")["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": "starsched", **template["metadata"]},
        "spec": template["spec"],
    }
    raw = await admin.request(
        "POST",
        "/api/v1/namespaces/starsched/pods",
        body=json.dumps(pod).encode(),
        params={"dryRun": "All", "fieldValidation": "Strict"},
    )
    assert json.loads(raw)["spec"]["priority"] == 2_000_000_000


@pytest.mark.parametrize("folder", FOLDERS)
def test_two_replicas_run_with_the_least_a_container_can_have(folder: str) -> None:
    objects = render(folder)
    deployment = pick(objects, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    running = container(objects)
    assert deployment["spec"]["replicas"] == 2
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert running["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} == set(running["resources"])
    assert "memory" in running["resources"]["limits"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_names_of_services_are_found(folder: str) -> None:
    """The examples ask `prometheus.monitoring`, which the name server of a node does not know."""
    pod = pick(render(folder), "Deployment")["spec"]["template"]["spec"]
    assert pod.get("dnsPolicy", "ClusterFirst") == "ClusterFirst"
    assert not pod.get("hostNetwork", False)


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_selects_the_pods_matches_their_labels(folder: str) -> None:
    objects = render(folder)
    labels = pick(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = {
        "Deployment": pick(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        "PodDisruptionBudget": pick(objects, "PodDisruptionBudget")["spec"]["selector"][
            "matchLabels"
        ],
        "Service": pick(objects, "Service")["spec"]["selector"],
        "NetworkPolicy": pick(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    }
    for kind, selector in selectors.items():
        assert selector, kind
        assert selector.items() <= labels.items(), kind


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_port_that_is_named_is_open(folder: str) -> None:
    objects = render(folder)
    running = container(objects)
    names = {port["name"]: port["containerPort"] for port in running["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert running[probe]["httpGet"]["port"] in names
        assert running[probe]["httpGet"]["scheme"] == "HTTPS"
    for port in pick(objects, "Service")["spec"]["ports"]:
        assert port["targetPort"] in names
    assert int(flag(running["args"], "--secure-port")) == names["https"]


def flag(args: list[str], name: str) -> str:
    """The value of flag *name* in *args*."""
    found = [a.partition("=")[2] for a in args if a.partition("=")[0] == name]
    assert len(found) == 1, f"want {name} once in {args}"
    return found[0]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_scheduler_watches_the_config_map_that_is_made(folder: str) -> None:
    """kustomize adds a hash to generated names by default; then nothing would ever be reloaded."""
    objects = render(folder)
    config_map = policies(objects)
    watched = flag(container(objects)["args"], "--policies")
    metadata = config_map["metadata"]
    assert watched == f"configmap:{metadata['namespace']}/{metadata['name']}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_last_good_policies_have_a_place_whose_content_no_manifest_sets(folder: str) -> None:
    last_good = pick(render(folder), "ConfigMap", "starsched-policies-last-good")
    assert "data" not in last_good


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_config_map_holds_the_example_policies_and_their_tests(folder: str) -> None:
    data = policies(render(folder))["data"]
    examples = ROOT / "policies" / "examples"
    want = {path.name: path.read_text() for path in examples.glob("*.star")}
    got = {name: text for name, text in data.items() if name.endswith(".star")}
    assert got == want
    assert {name for name in data if not name.endswith(".star")} == {"profile.yaml"}


@pytest.mark.parametrize(
    ("folder", "scheduler"),
    [("base", "starsched"), ("overlays/beside", "starsched"), ("overlays/replace", None)],
)
def test_only_the_replacement_takes_pods_that_name_no_scheduler(
    folder: str, scheduler: str | None
) -> None:
    """The profile of the examples, under the scheduler's name of each overlay."""
    want = yaml.safe_load((ROOT / "policies" / "examples" / "profile.yaml").read_text())
    assert want["profiles"][0]["schedulerName"] == "default-scheduler"
    if scheduler is not None:
        want["profiles"][0]["schedulerName"] = scheduler
    got = yaml.safe_load(policies(render(folder))["data"]["profile.yaml"])
    assert got == want


@pytest.mark.parametrize(
    ("folder", "namespace", "name"),
    [
        pytest.param("overlays/beside", "starsched", "starsched", id="its own lease"),
        pytest.param("overlays/replace", "kube-system", "kube-scheduler", id="that of its peer"),
    ],
)
def test_the_lease_that_is_asked_for_is_the_one_allowed(
    folder: str, namespace: str, name: str
) -> None:
    objects = render(folder)
    args = container(objects)["args"]
    assert "--leader-elect" in args
    assert flag(args, "--leader-elect-resource-namespace") == namespace
    if any(a.startswith("--leader-elect-resource-name=") for a in args):
        assert flag(args, "--leader-elect-resource-name") == name
    allowed = [
        (role["metadata"]["namespace"], rule.get("resourceNames"), sorted(rule["verbs"]))
        for role in objects
        if role["kind"] == "Role"
        for rule in role["rules"]
        if "leases" in rule["resources"]
    ]
    assert allowed == [(namespace, None, ["create"]), (namespace, [name], ["get", "update"])]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_role_is_bound_to_the_account_of_the_pods(folder: str) -> None:
    objects = render(folder)
    account = pick(objects, "ServiceAccount")["metadata"]
    pod = pick(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"]
    roles = {
        (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"])
        for o in objects
        if o["kind"] in ("Role", "ClusterRole")
    }
    bound = set()
    for binding in objects:
        if binding["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            (subject,) = binding["subjects"]
            assert subject["kind"] == "ServiceAccount"
            assert (subject["namespace"], subject["name"]) == (
                account["namespace"],
                account["name"],
            )
            ref = binding["roleRef"]
            bound.add((ref["kind"], binding["metadata"].get("namespace"), ref["name"]))
    # Those for others are bound to nobody; one of every cluster is bound beside ours.
    for_others = {
        *(
            ("ClusterRole", None, f"starsched-{one}")
            for one in ("asker", "metrics-reader", "page-user", "planner", "viewer")
        ),
        *(
            ("Role", "starsched", f"starsched-{one}")
            for one in ("policy-author", "rollout-operator")
        ),
    }
    assert roles - bound == for_others
    of_the_cluster = {("Role", "kube-system", "extension-apiserver-authentication-reader")}
    assert bound - roles == (set() if folder == "base" else of_the_cluster)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_mode_of_roll_outs_is_next_to_the_policies_and_no_manifest_sets_it(folder: str) -> None:
    objects = render(folder)
    control = pick(objects, "ConfigMap", policies(objects)["metadata"]["name"] + SUFFIX)
    assert "data" not in control


@pytest.mark.parametrize("folder", OVERLAYS)
def test_stages_are_switched_on_by_a_component(folder: str, tmp_path: Path) -> None:
    """Over an overlay, as in an operator's kustomization: all defaults, and policies that load."""
    lines = (
        f"resources: [{os.path.relpath(DEPLOY / folder, tmp_path)}]",
        f"components: [{os.path.relpath(DEPLOY / 'stages', tmp_path)}]",
    )
    (tmp_path / "kustomization.yaml").write_text("\n".join(lines))
    before, after = (policies(render(one))["data"] for one in (folder, str(tmp_path)))
    assert after.keys() - before.keys() == {"stages.yaml"}
    assert {name: after[name] for name in before} == before
    bundle = build_bundle(after)
    assert bundle.runtime.rollout == RolloutConfig(ShadowStage(), CanaryStage())


@pytest.mark.slow("starts the real control plane")
async def test_authors_cannot_skip_stages_and_operators_cannot_edit_policies(
    control_plane: ControlPlane, admin: ApiClient
) -> None:
    """By the Roles that are shipped, on a real API server."""
    objects = render("overlays/beside")
    for kind in ("Namespace", "ConfigMap", "Role"):
        for manifest in (one for one in objects if one["kind"] == kind):
            await apply(admin, manifest)
    written = {
        "starsched-policy-author": "starsched-policies",
        "starsched-rollout-operator": "starsched-policies-rollout",
    }
    for role, theirs in written.items():
        token = await asyncio.to_thread(control_plane.service_account_token, "starsched", role)
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": "starsched"},
            "subjects": [{"kind": "ServiceAccount", "name": role, "namespace": "starsched"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        }
        await apply(admin, binding)
        async with control_plane.client(token) as person:

            async def may_write(name: str, person: ApiClient = person) -> bool:
                with contextlib.suppress(click.ClickException):
                    await write_control(person, f"starsched/{name}", lambda _: {"by": "tests"})
                    return True
                return False

            await eventually(lambda: may_write(theirs))  # noqa: B023  # ends in this round
            for other in {*written.values(), "starsched-policies-last-good"} - {theirs}:
                assert not await may_write(other)
    found = await admin.get(CONFIG_MAPS, "starsched-policies-rollout", "starsched")
    assert "starsched" in {one["manager"] for one in json.loads(found)["metadata"]["managedFields"]}


_ROLE_FILES = [
    path
    for path in sorted(DEPLOY.rglob("*.yaml"))
    # The chart has copies of these files, and a template that reads them.
    if "helm" not in path.relative_to(DEPLOY).parts
    and re.search(r"^rules:$", path.read_text(), re.M)
]


@pytest.mark.parametrize("path", _ROLE_FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_each_rule_says_what_needs_it(path: Path) -> None:
    lines = path.read_text().splitlines()
    rules = [
        n for n, line in enumerate(lines) if line.startswith(("  - apiGroups:", "  - nonResource"))
    ]
    assert rules
    for number in rules:
        assert lines[number - 1].startswith("  # "), f"{path.name}:{number + 1}: want a comment"


def test_the_image_is_tagged_with_the_version_of_the_project() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert version is not None
    assert container(render("base"))["image"] == f"starsched:{version[1]}"
