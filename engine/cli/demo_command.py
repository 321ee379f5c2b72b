"""`starsched demo`: the product in half a minute, on a cluster in memory.

Owns the script: pods are placed by a policy, the policy is edited live, the next pods
are placed by the new text, and a bad edit changes nothing and says why. Everything is
real except the API server, which is the embedded one.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from engine.app import App, Settings
from engine.cli.json_output import output_option
from engine.devcluster import DevCluster, example_cluster, make_pod
from engine.kube.client import ApiClient
from engine.kube.config import Endpoint
from engine.lib import event_loop
from engine.rollout.assembly import make_stages
from engine.rollout.control import SUFFIX as CONTROL_SUFFIX
from engine.rollout.control import ConfigMapControl
from engine.rollout.last_good import SUFFIX, ConfigMapStore
from engine.rollout.sources import ConfigMapSource
from engine.telemetry.logs import configure_logging

NAMESPACE: Final = "starsched"
CONFIG_MAP: Final = "starsched-policies"
PODS: Final = 9
STEP_SECONDS: Final = 60.0
_PIPE_WIDTH: Final = 100

_POLICY: Final = '''\
"""Prefers nodes with one kind of disk.

Hooks: score. Reads: node.labels["example.com/disk"].
"""

_WANTED = "ssd"

def score(pod, node):
    return 100 if node.labels.get("example.com/disk") == _WANTED else 0
'''

_TEST: Final = '''\
"""Tests for prefer_disk.star."""

load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")

def test_one_disk_is_preferred():
    a = make_node("a", labels = {"example.com/disk": "ssd"})
    b = make_node("b", labels = {"example.com/disk": "hdd"})
    asserts.scores(cluster(a, b), make_pod(), {"a": 100, "b": 0})
'''

_PROFILE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      score:
        enabled:
          - name: prefer_disk
            weight: 5
"""

BEFORE: Final = {
    "prefer_disk.star": _POLICY,
    "prefer_disk_test.star": _TEST,
    "profile.yaml": _PROFILE,
}
AFTER: Final = BEFORE | {
    "prefer_disk.star": _POLICY.replace('_WANTED = "ssd"', '_WANTED = "hdd"'),
    "prefer_disk_test.star": _TEST.replace('{"a": 100, "b": 0}', '{"a": 0, "b": 100}'),
}
#: What no node of the cluster has.
_TAPE: Final = {"example.com/disk": "tape"}
BROKEN: Final = AFTER | {
    "prefer_disk.star": AFTER["prefer_disk.star"].replace("node.labels", "node.lables"),
}


class DemoFailed(Exception):
    """A step of the demo did not happen as expected."""


@click.command("demo", short_help="Show everything on a cluster in memory.")
@click.option("--keep", is_flag=True, help="Leave everything running until Ctrl-C or SIGTERM.")
@output_option("How to print the demo.")
def demo_command(keep: bool, output: str) -> None:
    """Start a cluster in memory with the scheduler, place pods, and edit the policy live.

    Needs nothing but this command: no cluster, no network. Colours only on a terminal.

    \b
    Exit codes: 0 all went as it should, 1 something did not.

    \b
    Examples:
      starsched demo
      starsched demo --keep      # then: kubectl --kubeconfig ... get pods -o wide
    """
    stream = sys.stderr if output == "json" else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    console = Console(file=stream, width=width, highlight=False)
    # The log would talk over the story; it is one file away.
    with tempfile.TemporaryDirectory(prefix="starsched-demo-") as directory:
        log_file = Path(directory) / "scheduler.log"
        with log_file.open("ab", buffering=0) as log:
            configure_logging(log_format="text", stream=log, colors=False)
            try:
                story = event_loop.run(_run_demo(console, Path(directory), keep))
            except DemoFailed as failure:
                console.print(f"demo failed: {failure}", style="bold red", markup=False)
                console.print(log_file.read_text(encoding="utf-8"), markup=False)
                raise SystemExit(1) from failure
            except (KeyboardInterrupt, asyncio.CancelledError):
                console.print("stopped")
                return
    if output == "json":
        click.echo(json.dumps(story, indent=2))


async def _run_demo(console: Console, directory: Path, keep: bool) -> dict[str, Any]:
    _end_as_by_ctrl_c()
    started = time.monotonic()
    async with _stage() as (cluster, app):
        # 1. The cluster and the policies as they are at first.
        nodes = cluster.list("nodes")
        took = time.monotonic() - started
        console.print(
            f"A cluster of {len(nodes)} nodes in memory, and the scheduler: up in {took:.1f} s."
        )
        console.print(f"Its policies are the ConfigMap {NAMESPACE}/{CONFIG_MAP}; one of them:")
        _show_policy(console, BEFORE["prefer_disk.star"])
        # 2. Pods, placed by them.
        before_revision = app.rollout.active.bundle.revision
        before = await _place(cluster, "before")
        # 3. An edit, live.
        console.print('\nNow the ConfigMap is edited: `_WANTED = "ssd"` becomes `"hdd"`.')
        edited = time.monotonic()
        await _edit(cluster, AFTER)
        await _until(
            lambda: app.rollout.active.bundle.revision != before_revision, "the new policy"
        )
        after_revision = app.rollout.active.bundle.revision
        console.print(
            f"In force after {time.monotonic() - edited:.1f} s, checked, tested and tried out: "
            f"revision {before_revision} -> {after_revision}.\n"
        )
        after = await _place(cluster, "after")
        console.print(_placements(nodes, before, after))
        _check_story(nodes, before, after)
        # 4. A bad edit.
        console.print("\nNow a bad edit: `node.labels` becomes `node.lables`.")
        await _edit(cluster, BROKEN)
        await _until(lambda: _rejection(cluster) is not None, "the rejection")
        rejection = _rejection(cluster)
        console.print("What is in force stays, and the ConfigMap has an event:")
        console.print(Panel(f"Warning  PolicyRejected\n{rejection}", expand=False))
        if app.rollout.active.bundle.revision != after_revision:
            raise DemoFailed(f"want revision {after_revision} in force after a bad edit")
        still = await _place(cluster, "still")
        console.print(f"{len(still)} more pods were placed meanwhile, by {after_revision}.")
        story = {
            "nodes": len(nodes),
            "placements": {"before": before, "after": after, "still": still},
            "revisions": {"before": before_revision, "after": after_revision},
            "rejection": rejection,
            "seconds": round(time.monotonic() - started, 2),
        }
        console.print(f"\nDone in {story['seconds']} s.")
        if keep:
            await _keep(console, cluster, app, directory)
    return story


def _end_as_by_ctrl_c() -> None:
    """Clean up when the demo is ended by a signal, such as that of a closed terminal."""
    task = asyncio.current_task()
    assert task is not None
    for sent in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sent) is not signal.SIG_IGN:  # as nohup has it
            asyncio.get_running_loop().add_signal_handler(sent, task.cancel)


@contextlib.asynccontextmanager
async def _stage() -> AsyncIterator[tuple[DevCluster, App]]:
    """A running cluster with nodes and policies, and a scheduler that leads."""
    async with DevCluster() as cluster:
        cluster.create(_namespace(), *example_cluster(), _config_map(BEFORE))
        cluster.start_kubelets()
        async with ApiClient(Endpoint(server=cluster.url)) as client:
            app = App(
                client,
                source=ConfigMapSource(client, NAMESPACE, CONFIG_MAP),
                control=ConfigMapControl(client, NAMESPACE, CONFIG_MAP + CONTROL_SUFFIX),
                stages=make_stages(),
                store=ConfigMapStore(client, NAMESPACE, CONFIG_MAP + SUFFIX),
                settings=Settings(local_port=0),
            )
            running = asyncio.ensure_future(app.run())
            leading = asyncio.ensure_future(app.leading.wait())
            try:
                await asyncio.wait(
                    {running, leading}, timeout=STEP_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if running.done():
                    running.result()
                if not app.leading.is_set():
                    raise DemoFailed(f"the scheduler did not start in {STEP_SECONDS:g} s")
                yield cluster, app
            finally:
                leading.cancel()
                app.request_stop()
                await asyncio.gather(running, return_exceptions=True)


def _namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def _config_map(files: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
        "data": files,
    }


async def _edit(cluster: DevCluster, files: dict[str, str]) -> None:
    """Change the ConfigMap as `kubectl edit` would."""
    found = cluster.get("configmaps", CONFIG_MAP, NAMESPACE)
    if found is None:
        raise DemoFailed("the ConfigMap is gone")
    cluster.update("configmaps", {**found, "data": files})
    await asyncio.sleep(0)


async def _place(cluster: DevCluster, prefix: str) -> dict[str, str]:
    """Create pods; returns their nodes, by name."""
    names = [f"{prefix}-{i + 1}" for i in range(PODS)]
    cluster.create(*(make_pod(name, cpu="500m", memory="512Mi") for name in names))

    def placed() -> dict[str, str]:
        found = {name: cluster.get("pods", name) for name in names}
        return {
            name: pod["spec"]["nodeName"]
            for name, pod in found.items()
            if pod is not None and pod["spec"].get("nodeName")
        }

    await _until(lambda: len(placed()) == len(names), f"{len(names)} pods to be placed")
    return placed()


async def _until(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(STEP_SECONDS):
            while not condition():  # noqa: ASYNC110  # the condition is the cluster's state
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise DemoFailed(f"waited {STEP_SECONDS:g} s for {what}") from error


def _rejection(cluster: DevCluster) -> str | None:
    for event in cluster.list("events", NAMESPACE):
        if event.get("reason") == "PolicyRejected":
            return str(event["message"])
    return None


def _disk(node: dict[str, Any]) -> str:
    return str(node["metadata"]["labels"].get("example.com/disk", ""))


def _check_story(
    nodes: list[dict[str, Any]], before: dict[str, str], after: dict[str, str]
) -> None:
    """The edit must have had its effect; a demo that shows nothing is a failure."""
    disks = {node["metadata"]["name"]: _disk(node) for node in nodes}
    for want, placements in (("ssd", before), ("hdd", after)):
        wrong = sorted(pod for pod, node in placements.items() if disks[node] != want)
        if wrong:
            raise DemoFailed(f"want pods on nodes with {want}, got {', '.join(wrong)} elsewhere")


def _placements(
    nodes: list[dict[str, Any]], before: dict[str, str], after: dict[str, str]
) -> Table:
    table = Table(title="Placements", title_justify="left")
    for name in ("node", "zone", "disk", "before the edit", "after the edit"):
        table.add_column(name)
    for node in nodes:
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        columns = [
            " ".join(pod for pod, place in placements.items() if place == name)
            for placements in (before, after)
        ]
        zone = labels.get("topology.kubernetes.io/zone", "")
        table.add_row(name, zone, _disk(node), *columns)
    return table


def _show_policy(console: Console, text: str) -> None:
    # Highlighted as Python, which suits Starlark; plain text without colours.
    body = Syntax(text, "python") if console.is_terminal else text.rstrip()
    console.print(Panel(body, title="prefer_disk.star", title_align="left", expand=False))


def _waiting_pods() -> list[dict[str, Any]]:
    """What the page shows that waits: a group that is one short, and pods that no node fits."""
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
    }
    member: dict[str, Any] = {"schedulingGroup": {"podGroupName": "train"}}
    return [
        group,
        *(make_pod(f"train-{i + 1}", cpu="1", **member) for i in range(3)),
        make_pod("too-large", cpu="64"),
        *(make_pod(f"no-such-disk-{i + 1}", nodeSelector=_TAPE) for i in range(3)),
    ]


async def _keep(console: Console, cluster: DevCluster, app: App, directory: Path) -> None:
    cluster.create(*_waiting_pods())
    path = cluster.write_kubeconfig(directory / "kubeconfig")
    os.chmod(path, 0o600)
    page = f"http://127.0.0.1:{app.endpoints.local_port}/"
    console.print("\nEverything keeps running until Ctrl-C. Its page shows what waits, and why:")
    console.print(f"  {page}", markup=False, soft_wrap=True)
    console.print("Look around with:")
    for line in (
        f"export KUBECONFIG={path}",
        "kubectl get pods -o wide",
        f"kubectl -n {NAMESPACE} edit configmap {CONFIG_MAP}",
        f"curl {page}queue",
        f"tail -f {directory / 'scheduler.log'}",
    ):
        console.print(f"  {line}", markup=False, soft_wrap=True)
    await asyncio.Event().wait()
