"""`deploy/examples/extender` on a real API server, in front of it the real kube-scheduler."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from engine.policy.config import decode_configuration
from tests.certificates import Authority
from tests.controlplane import ControlPlane, binaries
from tests.deploy.rendering import DEPLOY, container, object_path, pick, render
from tests.deploy.scheduler_process import create_all, node, pod
from tests.waiting import wait_until

FOLDER = "examples/extender"
SCHEDULER = DEPLOY / FOLDER / "kube-scheduler.yaml"
ACCOUNT = "starsched-extender"
PODS = "/api/v1/namespaces/default/pods"
NAME = "starsched-extender.starsched-extender.svc"

pytestmark = pytest.mark.usefixtures("kustomize")

#: Flags of the Deployment that hold for a pod's network and file system, not for ours.
OF_THE_POD = (
    "--address",
    "--secure-port",
    "--tls-cert-file",
    "--tls-private-key-file",
    "--client-ca-file",
)


@contextmanager
def running(log: Path, *command: str | Path) -> Iterator[None]:
    """A process whose output goes to *log*, until the block ends."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_the_pod_has_the_least_a_container_can_have() -> None:
    objects = render(FOLDER)
    spec = pick(objects, "Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    rules = pick(objects, "ClusterRole")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {
        "list",
        "watch",
        "create",
        "patch",
    }


def test_nobody_but_kube_scheduler_is_answered() -> None:
    """Whoever reached the port could read which nodes the policies like."""
    objects = render(FOLDER)
    arguments = dict(a.partition("=")[::2] for a in container(objects)["args"])
    assert arguments["--client-ca-file"] == "/etc/starsched/tls/ca.crt"
    (extender,) = decode_configuration(SCHEDULER.read_text(encoding="utf-8")).extenders
    assert extender.tls.cert_file
    assert extender.tls.key_file
    policy = pick(objects, "NetworkPolicy")["spec"]
    labels = pick(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    named = {port["name"] for port in container(objects)["ports"]}
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == named


def test_the_file_for_kube_scheduler_works_here_too() -> None:
    (extender,) = decode_configuration(SCHEDULER.read_text(encoding="utf-8")).extenders
    assert extender.tls.server_name == NAME
    assert extender.node_cache_capable
    assert not extender.bind_verb  # the account may not bind


@pytest.mark.slow("starts the real kube-scheduler")
def test_kube_scheduler_decides_with_the_example(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    plane = own_control_plane
    objects = render(FOLDER)
    create_all(plane, objects)
    for manifest in objects:
        stored = plane.request("GET", object_path(manifest))
        assert stored["metadata"]["name"] == manifest["metadata"]["name"]
    # 1. The extender, with the Deployment's arguments, as its account.
    authority = Authority(tmp_path)
    certificate, key = authority.issue(NAME)
    shown, its_key = authority.issue("kube-scheduler")
    token = plane.service_account_token(ACCOUNT, ACCOUNT)
    arguments = [a for a in container(objects)["args"] if a.partition("=")[0] not in OF_THE_POD]
    log = tmp_path / "extender.log"
    with running(
        log,
        sys.executable,
        "-m",
        "workbench.cli.main",
        *arguments,
        f"--kubeconfig={plane.kubeconfig(tmp_path / 'extender.kubeconfig', token)}",
        "--address=127.0.0.1:0",
        "--secure-port=0",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={authority.file}",
    ):
        port = wait_until(lambda: port_in(log), seconds=60, what="the extender serves")
        # 2. kube-scheduler, with the example's file; only what is of its host is ours.
        config = yaml.safe_load(SCHEDULER.read_text(encoding="utf-8"))
        config["clientConnection"]["kubeconfig"] = str(plane.kubeconfig(tmp_path / "kubeconfig"))
        config["leaderElection"]["leaderElect"] = False
        (extender,) = config["extenders"]
        extender["urlPrefix"] = f"https://127.0.0.1:{port}"
        extender["tlsConfig"] |= {
            "caFile": str(authority.file),
            "certFile": str(shown),
            "keyFile": str(its_key),
        }
        # Here it must not get by without the extender unnoticed.
        extender["ignorable"] = False
        path = tmp_path / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        marked = node("marked")
        marked["metadata"]["labels"] = {"example.com/maintenance": "true"}
        for manifest in (marked, node("open")):
            plane.request("POST", "/api/v1/nodes", manifest)
        with running(
            tmp_path / "scheduler.log",
            binaries()["kube-scheduler"],
            f"--config={path}",
            "--secure-port=0",
            "--authentication-skip-lookup=true",
        ):
            for i in range(3):
                plane.request("POST", PODS, pod(f"p{i}", "default-scheduler"))
            for i in range(3):
                where = wait_until(
                    partial(node_of, plane, f"p{i}"), seconds=60, what=f"p{i} is placed"
                )
                assert where == "open"
        # 3. Nothing was refused to the account, and what came into force was told and kept.
        events = wait_until(
            seconds=60,
            condition=lambda: [
                event
                for event in plane.request("GET", "/apis/events.k8s.io/v1/events")["items"]
                if event["reason"] == "PolicyAccepted"
            ],
            what="the acceptance is told",
        )
        assert events[0]["regarding"]["name"] == "starsched-extender-policies"
        kept = f"/api/v1/namespaces/{ACCOUNT}/configmaps/starsched-extender-policies-last-good"
        wait_until(
            lambda: plane.request("GET", kept).get("data"),
            seconds=60,
            what="the policies are kept",
        )
    text = log.read_text(encoding="utf-8")
    # Not the milliseconds of a time.
    assert not re.search(r"(?<![.\d])403(?!\d)", text)
    assert "Forbidden" not in text
    assert "Traceback" not in text


def node_of(plane: ControlPlane, name: str) -> str:
    return str(plane.request("GET", f"{PODS}/{name}")["spec"].get("nodeName", ""))


def port_in(log: Path) -> int:
    """The port of the extender, once it says so; 0 before."""
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["message"] == "Serving the extender protocol":
            return int(entry["port"])
    return 0
