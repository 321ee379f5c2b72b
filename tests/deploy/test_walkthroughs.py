"""The walk-throughs of deploy/, command by command as they are written.

A real control plane stands for the cluster that they make.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from devkit.cluster import make_node
from tests.controlplane import ControlPlane, ControlPlaneError
from tests.deploy.image import Image
from tests.deploy.rendering import DEPLOY, ROOT, container, pick, render
from tests.deploy.scheduler_process import SchedulerProcess
from tests.docs.walking import reader, walk
from tests.scripts import go_program
from tests.waiting import wait_until

_DEPLOYMENT = "/apis/apps/v1/namespaces/starsched/deployments/starsched"


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _join_nodes_of_kind(plane: ControlPlane) -> None:
    """What `kind create cluster` makes of the walk-through's configuration."""
    workers = 0
    for node in yaml.safe_load((DEPLOY / "kind" / "cluster.yaml").read_text())["nodes"]:
        if node["role"] == "worker":
            workers += 1
            name = f"starsched-worker{workers if workers > 1 else ''}"
            plane.create_if_missing("/api/v1/nodes", make_node(name, labels=node["labels"]))
        else:
            taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
            node = make_node("starsched-control-plane", taints=[taint])
            plane.create_if_missing("/api/v1/nodes", node)


@contextmanager
def _running_what_is_deployed(plane: ControlPlane, image: Image) -> Iterator[None]:
    """Once the Deployment is there, run its scheduler and report that it is available."""
    is_over = threading.Event()

    def deployment() -> Any:
        with suppress(ControlPlaneError):
            return plane.request("GET", _DEPLOYMENT)

    def run() -> None:
        wait_until(lambda: is_over.is_set() or deployment(), seconds=120)
        if is_over.is_set():
            return
        with SchedulerProcess(plane, image, container(render("overlays/beside"))["args"]):
            found = deployment()
            counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
            found["status"] = dict.fromkeys(counts, found["spec"]["replicas"])
            found["status"]["observedGeneration"] = found["metadata"]["generation"]
            plane.request("PUT", f"{_DEPLOYMENT}/status", found)
            is_over.wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.long("starts programs")
def test_the_walk_through_on_kind(
    own_control_plane: ControlPlane, image: Image, tmp_path: Path
) -> None:
    plane = own_control_plane
    _join_nodes_of_kind(plane)
    programs = tmp_path / "programs"
    for name in ("kind", "make"):
        _program(programs / name, f'echo {name} "$@" >> {tmp_path}/called')
    with ExitStack() as stack:
        stack.enter_context(_running_what_is_deployed(plane, image))
        kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
        shell = stack.enter_context(reader(kubeconfig, ROOT, tmp_path, programs))
        assert walk((DEPLOY / "kind" / "README.md").read_text(), shell, tmp_path) == 6
    deployment = pick(render("overlays/beside"), "Deployment", "starsched")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (tmp_path / "called").read_text().splitlines() == [
        "kind create cluster --name starsched --config deploy/kind/cluster.yaml",
        "make image",
        f"kind load docker-image {container['image']} --name starsched",
        "kind delete cluster --name starsched",
    ]


@pytest.mark.long("starts programs")
def test_the_walk_through_on_kwok(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    _program(programs / "make", "true")
    # kwokctl would make the cluster, and start kwok in it with the stages of the last argument.
    options = "--manage-nodes-with-annotation-selector kwok.x-k8s.io/node=fake"
    _program(
        programs / "kwokctl",
        f"""for stages; do :; done
        [ "$1" = delete ] || {go_program("kwok")} --kubeconfig "$KUBECONFIG" --config "$stages" \\
          {options} > {tmp_path}/kwok.log 2>&1 &""",
    )
    kubeconfig = own_control_plane.kubeconfig(tmp_path / "kubeconfig")
    with reader(kubeconfig, ROOT, tmp_path, programs) as shell:
        assert walk((DEPLOY / "kwok" / "README.md").read_text(), shell, tmp_path) == 6
