"""Where ours differs from kube-scheduler on purpose; docs/parity.md names these tests."""

from typing import Any

import msgspec

from engine.offline.judge import Judgement, judge
from engine.offline.world import World, pod_of
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.scheduling.scheduling_cycle import Scheduler
from tests.parity.oracle import Oracle

Plain = dict[str, Any]


def _node(name: str) -> Plain:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}}


def _pod(name: str, **spec: Any) -> Plain:
    containers = [{"name": "c", "image": "x"}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": containers, **spec},
        "status": {},
    }


def _theirs(oracle: Oracle, scenario: Plain) -> Plain:
    (answered,) = oracle.ask([{"id": "x", **scenario}])
    answer: Plain = answered["answers"][0]
    return answer


def _ours(scenario: Plain) -> Judgement:
    config = scenario.get("config")
    files = {} if config is None else {"config.yaml": msgspec.json.encode(config).decode()}
    bundle = build_bundle(files, None)
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    world = World.from_manifests(
        scenario["nodes"], scenario.get("pods", ()), scenario.get("objects", ())
    )
    return judge(world, scheduler, pod_of(scenario["incoming"][0]))


def _config(**profile: Any) -> Plain:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


def test_every_feasible_node_is_scored_whatever_share_is_asked_for() -> None:
    nodes = [_node(f"n{i:03}") for i in range(300)]
    config = {**_config(), "percentageOfNodesToScore": 1}
    judgement = _ours({"config": config, "nodes": nodes, "incoming": [_pod("p")]})
    assert len(judgement.total) == 300


def test_a_plugin_that_is_enabled_for_score_alone_scores(oracle: Oracle) -> None:
    """Without its preScore, kube-scheduler's plugin finds no state, and the attempt is lost."""
    plugins = {
        "multiPoint": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}],
        },
        "score": {"enabled": [{"name": "PodTopologySpread", "weight": 1}]},
    }
    scenario = {
        "config": _config(plugins=plugins),
        "nodes": [_node("n0")],
        "incoming": [_pod("p")],
    }
    assert "PreScorePodTopologySpread" in _theirs(oracle, scenario)["error"]
    assert _ours(scenario).best == ("n0",)


def test_a_disk_whose_name_makes_no_sense_fails_no_attempt(oracle: Oracle) -> None:
    """kube-scheduler tries again and again; ours names the disk, or lets its owner find out."""
    csi_node = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n0"},
        "spec": {"drivers": [{"name": "d", "nodeID": "n0", "allocatable": {"count": 1}}]},
    }
    volume = {"name": "v", "awsElasticBlockStore": {"volumeID": "aws://z1/odd"}}
    scenario = {
        "nodes": [_node("n0")],
        "objects": [csi_node],
        "incoming": [_pod("p", volumes=[volume])],
    }
    assert 'running "NodeVolumeLimits" filter plugin' in _theirs(oracle, scenario)["error"]
    judgement = _ours(scenario)
    assert judgement.failures == ()
    assert judgement.rejected["n0"].plugin == "NodeVolumeLimits"


def test_a_claim_that_belongs_to_another_fails_no_attempt(oracle: Oracle) -> None:
    """A placed pod's claim was made by somebody else: that must not keep others off its node."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    objects = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": "n0"},
            "spec": {"drivers": [{"name": "d", "nodeID": "n0", "allocatable": {"count": 1}}]},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "placed-v", "namespace": "default"},
            "spec": spec,
        },
    ]
    disk = {"name": "v", "azureDisk": {"diskName": "a", "diskURI": "a"}}
    scenario = {
        "nodes": [_node("n0")],
        "pods": [_pod("placed", nodeName="n0", volumes=[volume])],
        "objects": objects,
        "incoming": [_pod("p", volumes=[disk])],
    }
    assert "pod is not owner" in _theirs(oracle, scenario)["error"]
    assert _ours(scenario).best == ("n0",)
