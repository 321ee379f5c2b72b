"""A running scheduler answers recorded questions as the commands do that decide without a cluster.

Those are held against the recordings one by one
(`tests/workbench/conformance/test_conformance.py`). Here some of them go the whole way: objects
that the API server took, watched, decoded and decided about.
"""

import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest

from devkit.cluster import DevCluster
from engine.app import App
from engine.core.manifests.kinds import KINDS
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import World, pod_of
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.testing.full_decision import decide
from tests.engine.app import harness
from tests.parity import record
from tests.waiting import eventually
from workbench.conformance.conformance import Scenario, read_scenarios

pytestmark = pytest.mark.slow("runs a whole scheduler")

_DATA: Final = Path(__file__).parents[2] / "data" / "conformance"
#: Not those whose pods an API server changes: it fills in overheads, priorities and claims.
_TAKEN: Final = sorted(path for path in _DATA.glob("*.jsonl") if path.stem not in record.FILES)
#: Of so many questions of a file one is asked.
_EVERY: Final = 60
_KINDS: Final = {kind.kind: kind for kind in KINDS}
_OF_THE_NODE: Final = ("cpu", "memory", "ephemeral-storage")
Json = dict[str, Any]


@pytest.mark.long("runs a scheduler for each of many questions")
@pytest.mark.parametrize("path", _TAKEN, ids=lambda path: path.stem)
async def test_a_running_scheduler_answers_as_recorded(path: Path) -> None:
    """Spreading with a node selector once cost a running scheduler every attempt, and it alone."""
    questions = [(one, place) for one in read_scenarios(path) for place in range(len(one.incoming))]
    asked = questions[len(path.stem) % _EVERY :: _EVERY] or questions
    different = {}
    for scenario, place in asked:
        want, got = _expected(scenario, place), await _answer(scenario, place)
        if got not in want:
            different[f"{scenario.id}: {scenario.answers[place]['pod']}"] = want, got
    assert different == {}


def _expected(scenario: Scenario, place: int) -> list[str]:
    """What may be said of an incoming pod: a node, `evicts for NODE`, or why it fits nowhere."""
    answer = scenario.answers[place]
    if answer.get("best"):
        return list(answer["best"])
    if answer.get("preemption"):
        return [f"evicts for {node}" for node in answer["preemption"]]
    bundle = build_bundle(_files(scenario))
    world = World.from_manifests(scenario.nodes, scenario.pods, scenario.objects)
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    pod = pod_of(scenario.incoming[place])
    assert not decide(world, scheduler, pod).best
    return [scheduler.schedule(pod, world.snapshot).diagnosis.message()]


async def _answer(scenario: Scenario, place: int) -> str:
    async with DevCluster() as cluster:
        _fill(cluster, scenario)
        files = _files(scenario)
        if files:
            harness.edit(cluster, files)
        async with harness.scheduler(cluster, from_config_map=bool(files)) as app:
            incoming = {"apiVersion": "v1", "kind": "Pod", **scenario.incoming[place]}
            pod = _put(cluster, incoming)
            await eventually(lambda: _outcome(cluster, app, pod), what=scenario.id)
            return _outcome(cluster, app, pod)


def _outcome(cluster: DevCluster, app: App, pod: Json) -> str:
    """What became of *pod*; empty as long as it is not known."""
    metadata = pod["metadata"]
    # Where its volumes or devices must be prepared, it is assumed and not bound.
    for info in app.cache.snapshot().infos:
        if info is not None and metadata["uid"] in info.pods:
            return info.name
    now = cluster.get("pods", metadata["name"], metadata["namespace"])
    assert now is not None
    if nominated := (now.get("status") or {}).get("nominatedNodeName"):
        return f"evicts for {nominated}"
    for event in harness.events(cluster, "FailedScheduling"):
        if event["regarding"]["uid"] == metadata["uid"]:
            return str(event["note"])
    return ""


def _files(scenario: Scenario) -> dict[str, str]:
    return {} if scenario.config is None else {"config.yaml": json.dumps(scenario.config)}


# --- what an API server takes ----------------------------------------------------------------


def _fill(cluster: DevCluster, scenario: Scenario) -> None:
    named = {one["metadata"]["name"] for one in scenario.objects if one["kind"] == "Namespace"}
    known = {one["metadata"]["name"] for one in cluster.list("namespaces")} | {""}
    used = {
        one["metadata"].get("namespace", "")
        for one in (*scenario.objects, *scenario.pods, *scenario.incoming)
    }
    harness_has = {harness.NAMESPACE} if scenario.config is not None else set()
    for name in sorted((used | harness_has) - named - known):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for one in scenario.objects:
        if one["kind"] == "Namespace" and one["metadata"]["name"] in known:
            found = cluster.get("namespaces", one["metadata"]["name"])
            assert found is not None
            labels = one["metadata"].get("labels") or {}
            cluster.update(
                "namespaces", found | {"metadata": found["metadata"] | {"labels": labels}}
            )
        else:
            _put(cluster, one)
    for one in scenario.nodes:
        _put(cluster, {"kind": "Node", **one})
    for one in scenario.pods:
        _put(cluster, {"kind": "Pod", **one})


def _put(cluster: DevCluster, recorded: Json) -> Json:
    """Create an object with its status. Returns it as stored."""
    kind = _KINDS[recorded["kind"]]
    manifest = {"apiVersion": kind.api_version, **copy.deepcopy(recorded)}
    if kind.kind == "Pod":
        _make_admissible(cluster, manifest["spec"])
    (made,) = cluster.create(manifest)
    if manifest.get("status") and "status" in kind.subresources:
        status = {**(made.get("status") or {}), **manifest["status"]}
        made = cluster.update(kind.resource, {**made, "status": status}, subresource="status")
    return made


def _make_admissible(cluster: DevCluster, spec: Json) -> None:
    """Give *spec* the classes and limits without which an API server refuses what was recorded."""
    if not spec.get("priorityClassName") and (spec.get("priority") or spec.get("preemptionPolicy")):
        given = {"value": spec.get("priority", 0)}
        if spec.get("preemptionPolicy"):
            given["preemptionPolicy"] = spec["preemptionPolicy"]
        spec["priorityClassName"] = _class_of(cluster, "PriorityClass", given)
    if spec.get("overhead") and not spec.get("runtimeClassName"):
        given = {"handler": "runc", "overhead": {"podFixed": spec["overhead"]}}
        spec["runtimeClassName"] = _class_of(cluster, "RuntimeClass", given)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        resources = container.get("resources") or {}
        for name, amount in (resources.get("requests") or {}).items():
            if name not in _OF_THE_NODE:
                resources.setdefault("limits", {})[name] = amount
    # A port that is asked for twice is wanted no more than once.
    taken = set()
    for container in spec["containers"]:
        ports = []
        for port in container.get("ports") or ():
            key = port.get("hostIP", ""), port.get("hostPort"), port.get("protocol", "TCP")
            if key not in taken or not port.get("hostPort"):
                ports.append(port)
            taken.add(key)
        if ports:
            container["ports"] = ports


def _class_of(cluster: DevCluster, name: str, given: Json) -> str:
    """The name of an object of the kind *name* that says what is *given*, made if there is none."""
    kind = _KINDS[name]
    known = cluster.list(kind.resource)
    for one in known:
        if {key: one.get(key) for key in given} == given:
            return str(one["metadata"]["name"])
    metadata = {"name": f"recorded-{len(known)}"}
    cluster.create({"apiVersion": kind.api_version, "kind": name, "metadata": metadata, **given})
    return metadata["name"]
