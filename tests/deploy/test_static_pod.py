"""In kubeadm's static pod of kube-scheduler, with nothing but the image changed.

Ours is started by kube-scheduler's name with the arguments of that manifest, as its user, on a real
API server; then it is asked what kubelet, a scraper, an administrator and strangers ask.
"""

import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import pytest
import yaml

from engine.surfaces.cli.go_flags import UNUSED
from engine.surfaces.cli.run_command import run_command
from tests.certificates import Authority
from tests.controlplane import ControlPlane, binaries
from tests.deploy.rendering import DEPLOY
from tests.deploy.scheduler_process import node, pod
from tests.deploy.test_account import scraper_token
from tests.engine.io.endpoints.harness import unverified
from tests.engine.io.facts.prometheus_server import prometheus
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow("starts a control plane, a scheduler and Prometheus"),
    pytest.mark.kubernetes("1.37"),
]

TOKEN = "of-the-scheduler"
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
#: What kubeadm 1.37 writes after `command:`; only the file is ours.
ARGUMENTS = (
    "--authentication-kubeconfig={kubeconfig}",
    "--authorization-kubeconfig={kubeconfig}",
    "--bind-address=127.0.0.1",
    "--kubeconfig={kubeconfig}",
    "--leader-elect=true",
)
#: Its probes, all of which kubelet asks of 127.0.0.1 over HTTPS.
PROBES = ("/livez", "/readyz")
#: Of kube-scheduler. No other test starts a scheduler without another `--secure-port`.
PORT = 10259


@dataclass
class World:
    """A control plane that knows client certificates, and what proves who somebody is."""

    plane: ControlPlane
    folder: Path
    clients: Authority
    proxies: Authority
    log: Path

    def ask(
        self,
        path: str,
        *,
        port: int = PORT,
        token: str = "",
        certificate: tuple[Path, Path] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str, str]:
        """Status, content type and body of an answer; status 0 if there is none."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{port}{path}", headers=dict(headers or {})
        )
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        tls = unverified(certificate)
        try:
            with urllib.request.urlopen(request, timeout=20, context=tls) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()
        except (OSError, ssl.SSLError):
            return 0, "", ""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("static-pod")
    clients, proxies = Authority(folder), Authority(folder)
    plane = ControlPlane(
        users={TOKEN: "system:kube-scheduler"},
        apiserver_args=[
            f"--client-ca-file={clients.file}",
            f"--requestheader-client-ca-file={proxies.file}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        ],
    )
    with plane:
        plane.request("POST", "/api/v1/nodes", node("n1"))
        made = World(plane, folder, clients, proxies, folder / "scheduler.log")
        kubeconfig = plane.kubeconfig(folder / "scheduler.conf", TOKEN)
        # As the image has it: the same program under kube-scheduler's name.
        program = folder / "kube-scheduler"
        program.symlink_to(Path(sys.executable).parent / "starsched")
        command = [str(program), *(one.format(kubeconfig=kubeconfig) for one in ARGUMENTS)]
        with made.log.open("ab") as log:
            process = subprocess.Popen(command, stderr=log, env=_environment())
        try:
            wait_until(
                lambda: process.poll() is not None or made.ask("/readyz")[0] == 200,
                seconds=240,
                what="readiness",
            )
            assert process.poll() is None, made.log.read_text()
            yield made
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    """What a static pod has: nothing of the user's."""
    return {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}


def test_the_probes_of_the_manifest_pass(world: World) -> None:
    for path in PROBES:
        status, kind, text = world.ask(path)
        assert (status, kind.split(";")[0], text) == (200, "text/plain", "ok")


def test_pods_are_placed_under_kube_schedulers_lease(world: World) -> None:
    plane = world.plane
    plane.request("POST", PODS, pod("p", "default-scheduler"))
    wait_until(
        lambda: plane.request("GET", f"{PODS}/p")["spec"].get("nodeName") == "n1",
        seconds=120,
        what="the pod to be bound",
    )
    assert plane.request("GET", LEASE)["spec"]["holderIdentity"]


def test_the_rights_of_kube_scheduler_are_enough(world: World) -> None:
    lines = [json.loads(line) for line in world.log.read_text().splitlines()]
    troubled = [one for one in lines if "forbidden" in json.dumps(one).lower()]
    # Where pod groups are switched off, kube-scheduler has no right to them: they count as none.
    assert {one["resource"] for one in troubled} <= {"podgroups.scheduling.k8s.io"}


def test_callers_are_recognized_by_what_the_api_server_publishes(world: World) -> None:
    admin = world.clients.issue(
        "a@example.com", common_name="kubernetes-admin", organization_name="system:masters"
    )
    reader = world.clients.issue("r@example.com", common_name="nobody-special")
    stranger = Authority(world.folder).issue(
        "a@example.com", common_name="kubernetes-admin", organization_name="system:masters"
    )
    wait_until(
        lambda: world.ask("/metrics", certificate=admin)[0] == 200,
        seconds=120,
        what="the authorities to be looked up",
    )
    assert world.ask("/metrics", certificate=reader)[0] == 403
    assert world.ask("/metrics", certificate=stranger)[0] == 0
    named = {"X-Remote-User": "kubernetes-admin", "X-Remote-Group": "system:masters"}
    proxy = world.proxies.issue("p@example.com", common_name="front-proxy")
    other = world.proxies.issue("p@example.com", common_name="another-proxy")
    assert world.ask("/metrics", certificate=proxy, headers=named)[0] == 200
    assert world.ask("/metrics", certificate=proxy)[0] == 403
    assert world.ask("/metrics", certificate=other, headers=named)[0] == 403
    assert world.ask("/metrics", certificate=reader, headers=named)[0] == 403
    assert world.ask("/metrics", headers=named)[0] == 403


def test_tokens_are_reviewed_and_rights_asked_for(world: World) -> None:
    token = world.plane.service_account_token("monitoring", "prometheus")
    assert world.ask("/metrics", token=token)[0] == 403
    assert world.ask("/metrics", token="unknown")[0] == 401
    assert world.ask("/metrics", token=world.plane.token)[0] == 200
    assert world.ask("/metrics")[0] == 403
    let_prometheus_read(world.plane)
    wait_until(lambda: world.ask("/metrics", token=token)[0] == 200, what="the right to be seen")
    assert world.ask("/configz", token=token)[0] == 403


def let_prometheus_read(plane: ControlPlane) -> str:
    """The token of a ServiceAccount that is bound to the role for scrapers."""
    documents = yaml.safe_load_all((DEPLOY / "base" / "readers.yaml").read_text(encoding="utf-8"))
    role = next(one for one in documents if one["metadata"]["name"].endswith("metrics-reader"))
    plane.create_if_missing("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    return scraper_token(plane)


def test_a_real_prometheus_scrapes_the_secure_port(world: World, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(let_prometheus_read(world.plane), encoding="ascii")
    with prometheus(tmp_path, f"127.0.0.1:{PORT}", token) as server:

        def value(query: str) -> str | None:
            url = f"{server.url}/api/v1/query?query={quote(query)}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                result = json.load(answer)["data"]["result"]
            return result[0]["value"][1] if result else None

        wait_until(lambda: value('up{job="test"}') == "1", seconds=60, what="a scrape")
        assert value("kubernetes_build_info") == "1"
        assert value('leader_election_master_status{name="kube-scheduler"}') == "1"
        assert float(value('sum(rest_client_requests_total{code="200"})') or 0) > 0


# --- what kube-scheduler itself takes and answers ------------------------------------------------


def test_every_flag_of_kube_scheduler_is_taken() -> None:
    program = binaries()["kube-scheduler"]
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    theirs = set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", text, re.M))
    assert {"bind-address", "leader-elect", "vmodule"} <= theirs
    ours = {
        name.lstrip("-")
        for option in run_command.params
        if isinstance(option, click.Option)
        for name in option.opts
    }
    assert theirs - ours - UNUSED.keys() - {"help"} == set()
    assert UNUSED.keys() <= theirs


@pytest.fixture(scope="module")
def theirs(world: World) -> Iterator[int]:
    """The port of a real kube-scheduler, which stands by."""
    kubeconfig = world.plane.kubeconfig(world.folder / "kube-scheduler.conf", TOKEN)
    port = 10269
    arguments = [one.format(kubeconfig=kubeconfig) for one in ARGUMENTS]
    with (world.folder / "kube-scheduler.log").open("ab") as log:
        process = subprocess.Popen(
            [binaries()["kube-scheduler"], *arguments, f"--secure-port={port}"], stderr=log
        )
    try:
        wait_until(
            lambda: world.ask("/livez", port=port)[0] == 200, seconds=120, what="kube-scheduler"
        )
        yield port
    finally:
        process.kill()
        process.wait()


_OBJECT = "{type};g=config.k8s.io;v={version};as={kind}"


def _accepted(kind: str) -> list[str]:
    return [
        "",
        "*/*",
        "text/plain",
        "text/html",
        "application/json",
        "application/yaml",
        "text/html, */*;q=0.1",
        *(
            _OBJECT.format(type=f"application/{form}", version=version, kind=kind)
            for form in ("json", "yaml", "vnd.kubernetes.protobuf")
            for version in ("v1alpha1", "v1beta1", "v1")
        ),
        _OBJECT.format(type="application/json", version="v1beta1", kind="Other"),
        _OBJECT.format(type="application/json", version="v1beta1", kind=kind)
        + ", text/plain;q=0.5",
    ]


@pytest.mark.parametrize(("path", "kind"), [("/statusz", "Statusz"), ("/flagz", "Flagz")])
def test_pages_of_components_have_kube_schedulers_form(
    world: World, theirs: int, path: str, kind: str
) -> None:
    for accept in _accepted(kind):
        got, want = (
            world.ask(path, port=port, token=world.plane.token, headers={"Accept": accept})
            for port in (PORT, theirs)
        )
        assert got[0] == want[0], accept
        if got[0] != 200:
            continue
        assert got[1].split(";")[0] == want[1].split(";")[0], accept
        if "json" in got[1]:
            _same_form(json.loads(got[2]), json.loads(want[2]))
        elif "text/plain" in got[1]:
            assert got[2].splitlines()[1].split()[1] == want[2].splitlines()[1].split()[1]
            assert got[2].splitlines()[2] == want[2].splitlines()[2]


def _same_form(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert (got["kind"], got["apiVersion"]) == (want["kind"], want["apiVersion"])
    assert got.keys() == want.keys()
    for key, value in want.items():
        assert type(got[key]) is type(value), key
    if "flags" in want:
        # The flags that it was given have the same values.
        for name in ("bind-address", "leader-elect"):
            assert got["flags"][name] == want["flags"][name]


def test_the_configuration_is_shown_in_kube_schedulers_form(world: World, theirs: int) -> None:
    got, want = (
        json.loads(world.ask("/configz", port=port, token=world.plane.token)[2])
        for port in (PORT, theirs)
    )
    assert got.keys() == want.keys() == {"componentconfig"}
    ours, those = got["componentconfig"], want["componentconfig"]
    assert ours.keys() <= those.keys()
    for key in ("apiVersion", "kind", "leaderElection", "podInitialBackoffSeconds"):
        assert ours[key] == those[key], key


def test_indicators_of_health_are_kube_schedulers(world: World, theirs: int) -> None:
    texts = []
    for port in (PORT, theirs):
        for path in ("/healthz", "/livez", "/readyz"):
            world.ask(path, port=port)
        texts.append(world.ask("/metrics/slis", port=port, token=world.plane.token)[2])
    samples = re.compile(r"^(kubernetes_healthchecks?(?:_total)?\{[^}]*\})", re.M)
    got, want = ({_sorted_labels(one) for one in samples.findall(text)} for text in texts)
    assert {one for one in want if 'status="error"' not in one} <= got


def _sorted_labels(sample: str) -> str:
    name, _, labels = sample.rstrip("}").partition("{")
    return name + ",".join(sorted(labels.split(",")))


def test_metrics_of_every_component_have_their_names_and_labels(world: World, theirs: int) -> None:
    texts = [
        world.ask("/metrics", port=port, token=world.plane.token)[2] for port in (PORT, theirs)
    ]
    for name in (
        "kubernetes_build_info",
        "kubernetes_feature_enabled",
        "rest_client_requests_total",
        "rest_client_request_duration_seconds_bucket",
        "process_start_time_seconds",
    ):
        got, want = (_labels_of(name, text) for text in texts)
        assert got == want, name


def _labels_of(name: str, metrics: str) -> list[str]:
    line = next(one for one in metrics.splitlines() if re.match(rf"{name}[ {{]", one))
    return sorted(re.findall(r'(\w+)="', line))
