"""The chart's life in a cluster: installed, upgraded, rolled back and uninstalled by the real helm.

On a real API server with its rules of access, where the scheduler runs as the release's account
with the arguments and policies of the release.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.io.kube.client import APPLY_PATCH
from tests.controlplane import ControlPlane, ControlPlaneError
from tests.deploy.chart import CHART, given, render_chart, run_helm
from tests.deploy.image import Image
from tests.deploy.rendering import ROOT, Manifest, container, object_path, pick, policies, render
from tests.deploy.scheduler_process import SchedulerProcess, create_all, node, pod
from tests.deploy.test_chart import OPTIONS
from tests.scripts import script
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow("starts a control plane"),
    pytest.mark.usefixtures("helm"),
]

PODS = "/api/v1/namespaces/default/pods"
POLICIES = "/api/v1/namespaces/starsched/configmaps/starsched-policies"
#: The token of kubeadm's `scheduler.conf`.
OF_A_STATIC_POD = "of-kube-scheduler"


class Cluster:
    """A control plane, and helm as its administrator."""

    def __init__(self, plane: ControlPlane, kubeconfig: Path) -> None:
        self.plane = plane
        self.kubeconfig = kubeconfig

    def run(
        self, *arguments: str | Path, values: dict[str, Any] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run helm on the cluster."""
        return run_helm(*arguments, "--kubeconfig", self.kubeconfig, *given(values or {}))

    def helm(self, *arguments: str | Path, values: dict[str, Any] | None = None) -> str:
        """Run helm on the cluster, which succeeds; what it prints."""
        result = self.run(*arguments, values=values)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def install(
        self,
        release: str = "starsched",
        namespace: str = "starsched",
        values: dict[str, Any] | None = None,
    ) -> None:
        """Install the chart."""
        self.helm("install", release, CHART, "-n", namespace, "--create-namespace", values=values)

    def refusal(
        self, release: str, namespace: str, values: dict[str, Any], verb: str = "install"
    ) -> str:
        """Why the chart cannot be installed."""
        arguments = (verb, release, CHART, "-n", namespace)
        result = self.run(*arguments, values=values)
        assert result.returncode != 0, result.stdout
        return result.stderr

    def objects_of(self, release: str, namespace: str) -> list[Manifest]:
        """What helm says that the release consists of."""
        text = self.helm("get", "manifest", release, "-n", namespace)
        return [one for one in yaml.safe_load_all(text) if one is not None]

    def get(self, path: str) -> Any:
        """An object, or None."""
        try:
            return self.plane.request("GET", path)
        except ControlPlaneError as error:
            if ": 404 " in str(error):
                return None
            raise

    def node_of(self, name: str) -> str | None:
        """Where a pod of the namespace `default` is."""
        found: str | None = self.plane.request("GET", f"{PODS}/{name}")["spec"].get("nodeName")
        return found


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(users={OF_A_STATIC_POD: "system:kube-scheduler"}) as plane:
        yield plane


@pytest.fixture
def cluster(plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """The cluster, without releases before and after."""
    found = Cluster(plane, plane.kubeconfig(tmp_path / "kubeconfig"))
    yield found
    for release in json.loads(found.helm("list", "-A", "-o", "json")):
        found.helm("uninstall", release["name"], "-n", release["namespace"])


def this_checkout() -> Image:
    """The program as it is here, in the form in which a built image is started."""
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    return Image(ROOT, environment, ["starsched"], os.getuid(), os.getgid())


def define_monitors(plane: ControlPlane) -> None:
    """Add the kinds of the Prometheus operator, from its own pinned definitions."""
    folder = ROOT / "devkit" / "tools" / "prometheus-operator"
    module = "github.com/prometheus-operator/prometheus-operator"
    go, environment = script("devkit/controlplane/build.py").find_go()
    answer = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    definitions = Path(json.loads(answer.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for name in ("podmonitors", "prometheusrules"):
        text = (definitions / f"monitoring.coreos.com_{name}.yaml").read_text()
        plane.create_if_missing(path, yaml.safe_load(text))
        wait_until(
            lambda name=name: (
                plane.request("GET", f"{path}/{name}.monitoring.coreos.com")  # type: ignore[misc]
                .get("status", {})
                .get("acceptedNames", {})
                .get("kind")
            ),
            what=f"the kind of {name}",
        )


@pytest.mark.parametrize("mode", ["beside", "replace"])
async def test_the_api_server_accepts_every_object(cluster: Cluster, mode: str) -> None:
    """By server-side apply, where an unknown or repeated field is an error."""
    define_monitors(cluster.plane)
    objects = render_chart({"mode": mode, **OPTIONS}, release=mode, namespace="applied")
    params = {"fieldManager": "tests", "fieldValidation": "Strict"}
    async with cluster.plane.client() as admin:
        for manifest in objects:
            path, body = object_path(manifest), json.dumps(manifest).encode()
            raw = await admin.request(
                "PATCH", path, body=body, content_type=APPLY_PATCH, params=params
            )
            assert json.loads(raw)["metadata"]["name"] == manifest["metadata"]["name"]
    cluster.plane.request("DELETE", object_path(pick(objects, "Deployment")))


# --- one release ---------------------------------------------------------------------------------

_ONLY_N2 = """\
\"\"\"Keeps pods off every node but n2.\"\"\"

def filter(pod, node):
    return None if node.name == "n2" else "not n2"
"""


def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(cluster: Cluster) -> None:
    plane = cluster.plane
    for name in ("n1", "n2"):
        plane.request("POST", "/api/v1/nodes", node(name))
    on_n1 = pod("waits", "starsched")
    on_n1["spec"]["affinity"] = _affinity_to("n1")
    cluster.install()
    objects = cluster.objects_of("starsched", "starsched")
    with SchedulerProcess(plane, this_checkout(), container(objects)["args"]) as process:
        wait_until(lambda: process.get("/readyz")[0] == 200, seconds=60, what="readiness")
        plane.request("POST", PODS, pod("first", "starsched"))
        wait_until(lambda: cluster.node_of("first"), what="the first pod to be bound")
        kept = f"{POLICIES}-last-good"
        wait_until(lambda: plane.request("GET", kept).get("data"), what="policies to be kept")
        before = plane.request("GET", POLICIES)["data"]

        # 1. An upgrade brings other policies, which decide without a restart.
        values = {"policyFiles": {"only_n2.star": _ONLY_N2}}
        cluster.helm("upgrade", "starsched", CHART, "-n", "starsched", values=values)
        assert set(plane.request("GET", POLICIES)["data"]) == {"only_n2.star", "profile.yaml"}
        assert plane.request("GET", kept)["data"]
        wait_until(lambda: _accepted(plane) == 2, what="the upgrade to be accepted")
        plane.request("POST", PODS, on_n1)
        wait_until(lambda: _is_refused(plane, "waits"), what="the pod to be refused")
        assert cluster.node_of("waits") is None

        # 2. A rollback brings the first ones back.
        cluster.helm("rollback", "starsched", "1", "-n", "starsched")
        assert plane.request("GET", POLICIES)["data"] == before
        wait_until(lambda: cluster.node_of("waits") == "n1", what="the pod to be bound")

        # 3. What somebody edits in place, no upgrade overwrites unasked.
        edited = plane.request("GET", POLICIES)
        edited["data"]["profile.yaml"] += "# by hand\n"
        plane.request("PUT", POLICIES, edited)
        arguments = ("upgrade", "starsched", CHART, "-n", "starsched")
        result = cluster.run(*arguments, values={"schedulerName": "other"})
        assert result.returncode != 0
        assert ".data.profile.yaml" in result.stderr
        assert "# by hand" in plane.request("GET", POLICIES)["data"]["profile.yaml"]
        cluster.helm(*arguments, "--force-conflicts")
        assert plane.request("GET", POLICIES)["data"] == before
        assert process.is_running()
    assert process.status == 0
    objects = cluster.objects_of("starsched", "starsched")
    assert all(cluster.get(object_path(one)) is not None for one in objects)
    cluster.helm("uninstall", "starsched", "-n", "starsched")
    left = [object_path(one) for one in objects if cluster.get(object_path(one)) is not None]
    assert left == []


def _affinity_to(name: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _accepted(plane: ControlPlane) -> int:
    """How many events say that policies were accepted."""
    items = plane.request("GET", "/apis/events.k8s.io/v1/events")["items"]
    return sum(event["reason"] == "PolicyAccepted" for event in items)


def _is_refused(plane: ControlPlane, name: str) -> bool:
    conditions = plane.request("GET", f"{PODS}/{name}").get("status", {}).get("conditions", [])
    return any("not n2" in condition.get("message", "") for condition in conditions)


@pytest.mark.parametrize("document", ["README.md", "deploy/helm/starsched/README.md"])
def test_the_commands_of_the_documents_install_it(cluster: Cluster, document: str) -> None:
    text = (ROOT / document).read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^ *(helm install .*)$", text, re.M)
    cluster.helm(*shlex.split(command)[1:])
    (deployment,) = cluster.plane.request("GET", "/apis/apps/v1/deployments")["items"]
    assert deployment["metadata"]["name"] == "starsched"
    (scheduler,) = deployment["spec"]["template"]["spec"]["containers"]
    assert scheduler["image"].startswith("my-registry/starsched:")


# --- the ways of docs/install.md -----------------------------------------------------------------


def commands_of(way: str) -> list[str]:
    """The commands of docs/install.md that name the values file of *way*."""
    text = (ROOT / "docs/install.md").read_text().replace("\\\n", " ")
    return re.findall(rf"^ *(helm .*values/{way}\.yaml.*)$", text, re.M)


@pytest.mark.parametrize(
    ("way", "scheduler"),
    [("beside", "starsched"), ("replace", None), ("static-pod", None)],
)
def test_a_pod_is_placed_and_another_explained_by_each_values_file(
    cluster: Cluster, way: str, scheduler: str | None
) -> None:
    """As docs/install.md has it: the commands, the arguments of the pods, and what is shown."""
    plane = cluster.plane
    plane.create_if_missing("/api/v1/nodes", node("n1"))
    said = [cluster.helm(*shlex.split(command)[1:]) for command in commands_of(way)]
    objects = cluster.objects_of("starsched", "starsched")
    if way == "static-pod":
        # kubeadm's own, and those that the chart asks to be added.
        added = re.findall(r"^ +- (--policies=.*)$", said[-1], re.M)
        lease = "--leader-elect-resource-name=kube-scheduler"  # as by that program's name
        arguments, token = ["run", "--leader-elect=true", lease, *added], OF_A_STATIC_POD
        assert added == ["--policies=configmap:starsched/starsched-policies"]
        assert not {one["kind"] for one in objects} & {"Deployment", "Service", "ServiceAccount"}
    else:
        arguments, token = container(objects)["args"], ""
        (first,) = pick(objects, "Deployment")["spec"]["template"]["spec"]["initContainers"]
        with SchedulerProcess(plane, this_checkout(), first["args"]) as preflight:
            wait_until(lambda: not preflight.is_running(), seconds=60, what="the end of preflight")
        assert preflight.status == 0, preflight.log()
    placed, waits = f"placed-{way}", f"waits-{way}"
    with SchedulerProcess(plane, this_checkout(), arguments, token) as process:
        wait_until(lambda: process.get("/readyz")[0] == 200, seconds=60, what="readiness")
        plane.request("POST", PODS, pod(placed, scheduler))
        plane.request("POST", PODS, pod(waits, scheduler, cpu="999"))
        wait_until(lambda: cluster.node_of(placed), what="the pod to be bound")
        status, page = process.get(f"/explain/default/{waits}", plane.token)
        assert (status, json.loads(page)["reason"]) == (200, "InsufficientResources"), page
        status, page = process.get(f"/explain/default/{waits}", plane.token, accept="text/html")
        assert (status, "<html" in page, "nsufficient cpu" in page) == (200, True, True), page
        # What it writes to the ConfigMaps of the release it may write.
        kept = f"{POLICIES}-last-good"
        wait_until(lambda: plane.request("GET", kept).get("data"), what="policies to be kept")
        assert "orbidden" not in process.log()
    assert process.status == 0


# --- what is in the cluster already --------------------------------------------------------------


@pytest.mark.long("installs two releases")
def test_a_second_release_has_its_own_pods_or_is_refused(cluster: Cluster) -> None:
    cluster.install()
    taken = "`starsched` is taken by the Deployment `starsched` of namespace `starsched`"
    assert f"schedulerName: {taken}" in cluster.refusal("b", "team-b", {})
    profiles = [{"schedulerName": "b"}, {"schedulerName": "starsched"}]
    by_profile = {"configuration": {"profiles": profiles}}
    assert f"configuration.profiles: {taken}" in cluster.refusal("b", "team-b", by_profile)
    cluster.install("b", "team-b", {"schedulerName": "b"})
    # One that is there is no obstacle to itself, but an upgrade is refused as an installation is.
    cluster.helm("upgrade", "b", CHART, "-n", "team-b", values={"schedulerName": "c"})
    as_before = {"schedulerName": "starsched"}
    assert taken in cluster.refusal("b", "team-b", as_before, "upgrade")
    cluster.install("starsched", "third", {"schedulerName": "third"})
    # In the place of kube-scheduler, only one.
    cluster.install("main", "main", {"schedulerName": "main"})
    cluster.helm("upgrade", "main", CHART, "-n", "main", values={"mode": "replace"})
    refused = cluster.refusal("again", "again", {"mode": "replace"})
    assert "`default-scheduler` is taken by the Deployment `main-starsched`" in refused
    cluster.install("again", "again", {"mode": "replace", "lookups": False})


def test_an_installation_by_kustomize_counts_too(cluster: Cluster) -> None:
    objects = render("overlays/beside")
    made = [*(pick(objects, kind) for kind in ("Namespace", "Deployment")), policies(objects)]
    create_all(cluster.plane, made)
    refused = cluster.refusal("b", "team-b", {})
    assert "`starsched` is taken by the Deployment `starsched` of namespace `starsched`" in refused
    cluster.install("b", "team-b", {"schedulerName": "b"})
    for manifest in made[1:]:
        cluster.plane.request("DELETE", object_path(manifest))


def test_a_config_map_of_ones_own_has_to_be_there_and_to_fit(cluster: Cluster) -> None:
    plane, values = cluster.plane, {"existingConfigMap": "ours"}
    want = "existingConfigMap: no ConfigMap `ours` in namespace `team`"
    assert want in cluster.refusal("x", "team", values)
    plane.service_account_token("team", "any")  # makes the namespace
    maps = "/api/v1/namespaces/team/configmaps"
    ours = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours"}}
    plane.request("POST", maps, ours)
    # Without a configuration, the scheduler takes kube-scheduler's pods.
    want = "existingConfigMap: `default-scheduler` is kube-scheduler's"
    assert want in cluster.refusal("x", "team", values)
    profile = (ROOT / "deploy/examples/gpu/profile.yaml").read_text()
    plane.request("PUT", f"{maps}/ours", {**ours, "data": {"gpu.yaml": profile}})
    want = "existingConfigMap: mode `replace` wants a profile `default-scheduler`, got gpu"
    assert want in cluster.refusal("x", "team", {**values, "mode": "replace"})
    cluster.install("x", "team", values)
    refused = cluster.refusal("y", "team", {"schedulerName": "gpu"})
    assert "schedulerName: `gpu` is taken by the Deployment `x-starsched`" in refused


def test_who_administers_one_namespace_installs_what_is_in_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The roles are made by who may; what such a user cannot look up, the chart is told not to."""
    plane = cluster.plane
    token = plane.service_account_token("team", "installer")
    subject = {"kind": "ServiceAccount", "name": "installer", "namespace": "team"}
    group = "rbac.authorization.k8s.io"
    metadata = {"metadata": {"name": "installer"}}
    everything: dict[str, Any] = {key: ["*"] for key in ("apiGroups", "resources", "verbs")}
    reference = {"apiGroup": group, "kind": "Role", "name": "installer"}
    path = f"/apis/{group}/v1/namespaces/team"
    plane.create_if_missing(f"{path}/roles", {**metadata, "rules": [everything]})
    plane.create_if_missing(
        f"{path}/rolebindings", {**metadata, "roleRef": reference, "subjects": [subject]}
    )
    installer = Cluster(plane, plane.kubeconfig(tmp_path / "installer", token))
    account = {"serviceAccount": {"create": False, "name": "ours"}, "rbac": {"create": False}}
    refused = installer.refusal("x", "team", account)
    assert 'namespaces "kube-system" is forbidden' in refused
    wait_until(
        lambda: installer.run("list", "-n", "team").returncode == 0,
        what="the rights to be in force",
    )
    installer.helm("install", "x", CHART, "-n", "team", values={**account, "lookups": False})
    kinds = {one["kind"] for one in cluster.objects_of("x", "team")}
    assert kinds == {
        *("ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"),
    }


def test_the_account_of_a_release_may_register_it_as_the_webhook(cluster: Cluster) -> None:
    cluster.install(values={"webhook": {"enabled": True, "selfMade": True}})
    objects = cluster.objects_of("starsched", "starsched")
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/starsched"

    def is_registered() -> bool:
        (hook,) = cluster.get(path)["webhooks"]
        called = hook["clientConfig"]
        return bool(called.get("caBundle")) and called["service"]["path"] != "/admission/"

    with SchedulerProcess(cluster.plane, this_checkout(), container(objects)["args"]) as process:
        wait_until(is_registered, seconds=60, what="the certificate")
        assert "cannot be registered" not in process.log()
    # An upgrade of the release leaves what the scheduler wrote.
    values = {"webhook": {"enabled": True, "selfMade": True}, "replicas": 3}
    cluster.helm("upgrade", "starsched", CHART, "-n", "starsched", values=values)
    assert is_registered()


def test_the_webhook_keeps_its_certificate_and_its_key_over_upgrades(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/starsched/secrets"
    names = ("starsched-webhook", "starsched-webhook-key")
    webhook = {"webhook": {"enabled": True}}
    cluster.install(values=webhook)
    made = [cluster.get(f"{path}/{name}")["data"] for name in names]
    cluster.helm("upgrade", "starsched", CHART, "-n", "starsched", values=webhook)
    assert [cluster.get(f"{path}/{name}")["data"] for name in names] == made
    # Deleted, they are made again.
    for name in names:
        cluster.plane.request("DELETE", f"{path}/{name}")
    cluster.helm("upgrade", "starsched", CHART, "-n", "starsched", values=webhook)
    renewed = [cluster.get(f"{path}/{name}")["data"] for name in names]
    assert [one != before for one, before in zip(renewed, made, strict=True)] == [True, True]
