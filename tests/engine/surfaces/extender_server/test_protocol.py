"""The protocol as kube-scheduler speaks it, against policies that see only the request."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.builders import node_manifest, pod_manifest, taint
from tests.engine.surfaces.extender_server.harness import extender, with_names, with_nodes, write
from tests.waiting import eventually

POD = pod_manifest("p", uid="u", labels={"tier": "gold"})
NODES = [node_manifest(name, labels={"disk": disk}) for name, disk in (("a", "ssd"), ("b", "hdd"))]

DISKS = '''"""Wants fast disks for gold pods."""

def filter(pod, node):
    if pod.labels.get("tier") == "gold" and node.labels.get("disk") == "hdd":
        return "slow disk"
    if node.labels.get("disk") == "none":
        return unresolvable("no disk")
    return None
'''
PREFER = '''"""Prefers what the label says."""

def score(pod, node):
    return int(node.labels.get("score", "0"))
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "policies", {"disks.star": DISKS, "prefer.star": PREFER})


async def test_filter_answers_with_the_nodes_as_they_came_and_reasons_for_the_others(
    folder: Path,
) -> None:
    none = node_manifest("c", labels={"disk": "none"})
    async with extender(folder) as running:
        status, answer = await running.post("filter", with_nodes(POD, *NODES, none))
    assert status == 200
    assert answer == {
        "Nodes": {"metadata": {}, "items": [NODES[0]]},
        "NodeNames": None,
        "FailedNodes": {"b": "slow disk"},
        "FailedAndUnresolvableNodes": {"c": "no disk"},
        "Error": "",
    }


async def test_names_alone_need_a_cluster_to_look_at(folder: Path) -> None:
    async with extender(folder) as running:
        for verb in ("filter", "prioritize"):
            status, answer = await running.post(verb, with_names(POD, ["a"]))
            assert status == 400
            assert "does not watch the cluster" in answer


async def test_scores_are_shares_of_the_highest_possible_in_0_to_10(folder: Path) -> None:
    nodes = [
        node_manifest(f"n{score}", labels={"score": str(score)}) for score in (0, 4, 5, 44, 95, 100)
    ]
    slow = node_manifest("slow", labels={"score": "100", "disk": "hdd"})
    async with extender(folder) as running:
        status, answer = await running.post("prioritize", with_nodes(POD, *nodes, slow))
    assert status == 200
    assert answer == [
        {"Host": "n0", "Score": 0},
        {"Host": "n4", "Score": 0},
        {"Host": "n5", "Score": 1},
        {"Host": "n44", "Score": 4},
        {"Host": "n95", "Score": 10},
        {"Host": "n100", "Score": 10},
        {"Host": "slow", "Score": 0},  # rejected by a filter
    ]


async def test_scores_are_normalized_over_the_nodes_that_are_asked_about(tmp_path: Path) -> None:
    text = PREFER + "\ndef normalize(score, over):\n    return 100 * score // over.max\n"
    folder = write(tmp_path / "p", {"prefer.star": text})
    nodes = [node_manifest(f"n{s}", labels={"score": str(s)}) for s in (10, 20, 80)]
    async with extender(folder) as running:
        _, all_of_them = await running.post("prioritize", with_nodes(POD, *nodes))
        _, two_of_them = await running.post("prioritize", with_nodes(POD, *nodes[:2]))
    assert [item["Score"] for item in all_of_them] == [1, 3, 10]
    assert [item["Score"] for item in two_of_them] == [5, 10]


async def test_weights_share_the_score_out(tmp_path: Path) -> None:
    config = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: mine
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled:
      - {name: prefer, weight: 3}
      - {name: other, weight: 1}
      - {name: PrioritySort}
      - {name: DefaultBinder}
"""
    other = '"""Likes b."""\n\ndef score(pod, node):\n    return 100 if node.name == "b" else 0\n'
    files = {"prefer.star": PREFER, "other.star": other, "config.yaml": config}
    nodes = [node_manifest("a", labels={"score": "100"}), node_manifest("b")]
    async with extender(write(tmp_path / "p", files)) as running:
        _, answer = await running.post("prioritize", with_nodes(POD, *nodes))
    assert answer == [{"Host": "a", "Score": 8}, {"Host": "b", "Score": 3}]


@pytest.mark.slow("runs a whole scheduler")
async def test_built_in_policies_run_only_if_they_are_asked_for(folder: Path) -> None:
    tainted = node_manifest("a", taints=[taint("k")], cpu="1")
    big = pod_manifest("big", cpu="4")
    async with extender(folder) as running:
        _, answer = await running.post("filter", with_nodes(big, tainted))
        assert not answer["FailedNodes"]
        assert not answer["FailedAndUnresolvableNodes"]
        _, answer = await running.post("prioritize", with_nodes(big, tainted))
        assert answer == [{"Host": "a", "Score": 0}]
    async with extender(folder, with_builtins=True) as running:
        _, answer = await running.post("filter", with_nodes(big, tainted))
        assert list(answer["FailedAndUnresolvableNodes"]) == ["a"]


_AFFINITY = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "db"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}


@pytest.mark.slow("runs a whole scheduler")
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}, id="claim"
        ),
        pytest.param(
            {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}}, id="device"
        ),
        pytest.param({"affinity": _AFFINITY}, id="pod affinity"),
    ],
)
@pytest.mark.parametrize("configured", [False, True], ids=["built-in", "configured"])
async def test_what_no_request_contains_rejects_no_pod(
    tmp_path: Path, words: dict[str, Any], configured: bool
) -> None:
    """Without a watch nothing is known of claims and of pods on nodes: those pods never fitted."""
    files = {"prefer.star": PREFER}
    if configured:
        files["config.yaml"] = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {enabled: [{name: prefer, weight: 3}]}}
"""
    pod = pod_manifest("asking", **words)
    async with extender(write(tmp_path / "p", files), with_builtins=not configured) as running:
        asked = with_nodes(pod, node_manifest("a"), node_manifest("b", unschedulable=True))
        _, answer = await running.post("filter", asked)
    assert [node["metadata"]["name"] for node in answer["Nodes"]["items"]] == ["a"]
    assert answer["FailedAndUnresolvableNodes"] == {"b": "node(s) were unschedulable"}


async def test_sources_of_facts_that_are_not_followed_are_reported(tmp_path: Path) -> None:
    """A policy saw no facts, in silence, though the configuration beside it said where from."""
    runtime = """\
apiVersion: starsched.dev/v1
kind: PolicyRuntime
facts: {sources: [{annotations: {keys: {heat: example.com/heat}}}]}
"""
    folder = write(tmp_path / "p", {"prefer.star": PREFER, "runtime.yaml": runtime})
    with structlog.testing.capture_logs() as logs:
        async with extender(folder):
            pass
    reported = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert reported == ["No facts are known without --watch"]


async def test_the_clock_needs_no_source_to_be_followed(tmp_path: Path) -> None:
    text = '''"""Rejects pods before there was Kubernetes."""

def filter(pod, node, cluster):
    return "node(s) are not there yet" if cluster.facts["date"].value < 20140606 else None
'''
    async with extender(write(tmp_path / "policies", {"x.star": text})) as running:
        _, answer = await running.post("filter", with_nodes(POD, *NODES))
    assert answer["Nodes"]["items"] == [*NODES]
    assert answer["Error"] == ""


@pytest.mark.slow("runs a whole scheduler")
async def test_an_extender_without_a_say_is_reported(tmp_path: Path) -> None:
    """An empty folder, or built-in policies unasked for: every node passed, in silence."""
    folder = write(tmp_path / "p", {})
    with structlog.testing.capture_logs() as logs:
        async with extender(folder) as running:
            write(folder, {"prefer.star": PREFER})
            await eventually(lambda: running.app.rollout.describe()["active"]["files"] != [])
    reported = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert reported == ["The source is empty", "No policy filters or scores"]


async def test_the_answer_depends_on_the_request_alone(folder: Path) -> None:
    changed = node_manifest("b", labels={"disk": "ssd"})
    async with extender(folder) as running:
        for nodes, want in (
            (NODES, ["a"]),
            ([changed], ["b"]),
            ([*NODES, node_manifest("c")], ["a", "c"]),
            (NODES, ["a"]),
            ([], []),
        ):
            _, answer = await running.post("filter", with_nodes(POD, *nodes))
            assert [n["metadata"]["name"] for n in answer["Nodes"]["items"]] == want


@pytest.mark.slow("runs a whole scheduler")
async def test_keys_are_read_whatever_their_case(folder: Path) -> None:
    """A list of nodes under `Items` was taken for none: every node was left out, in silence."""
    for key in ("items", "Items"):
        request = {"pod": POD, "nodes": {key: NODES}, "nodenames": None}
        async with extender(folder) as running:
            _, answer = await running.post("filter", request)
            assert [n["metadata"]["name"] for n in answer["Nodes"]["items"]] == ["a"]
            _, answer = await running.post("prioritize", request)
            assert [one["Host"] for one in answer] == [n["metadata"]["name"] for n in NODES]


async def test_a_policy_that_fails_is_an_error_of_the_protocol(tmp_path: Path) -> None:
    broken = '''"""Breaks for some."""

def filter(pod, node):
    if pod.labels.get("break") == "filter":
        fail("no idea")
    return None

def score(pod, node):
    if pod.labels.get("break") == "score":
        fail("no idea")
    return 1
'''
    folder = write(tmp_path / "p", {"broken.star": broken})
    async with extender(folder) as running:
        bad = pod_manifest("p", labels={"break": "filter"})
        status, answer = await running.post("filter", with_nodes(bad, *NODES))
        assert status == 200
        assert "broken.star:5" in answer["Error"]
        assert "no idea" in answer["Error"]
        bad = pod_manifest("p", labels={"break": "score"})
        status, answer = await running.post("filter", with_nodes(bad, *NODES))
        assert (status, answer["Error"]) == (200, "")
        status, answer = await running.post("prioritize", with_nodes(bad, *NODES))
        assert status == 500
        assert "broken.star:10" in answer
        assert running.app.rollout.counts.failed == 2
        assert running.app.rollout.counts.decisions == 3


@pytest.mark.slow("runs a whole scheduler")
async def test_an_edit_that_loses_time_is_rolled_back(tmp_path: Path) -> None:
    """Few requests failed of many, each after its two seconds: kube-scheduler waited for them."""
    runtime = """apiVersion: starsched.dev/v1
kind: PolicyRuntime
limits: {deadline: 500ms}
fallback: {errorRate: 1.0, lostTime: 800ms}
"""
    slow = """def filter(pod, node):
    x = 3
    for i in range(60 if pod.labels.get("slow") else 0):
        x = x * x
    return None
"""
    good = {"runtime.yaml": runtime, "mine.star": "def filter(pod, node):\n    return None\n"}
    folder = write(tmp_path / "p", good)
    async with extender(folder, has_sandbox=True) as running:
        before = running.app.rollout.active.bundle.revision
        write(folder, good | {"mine.star": slow})
        await eventually(lambda: running.app.rollout.active.bundle.revision != before)
        bad = pod_manifest("p", labels={"slow": "yes"})
        for _ in range(2):
            _, answer = await running.post("filter", with_nodes(bad, *NODES))
            assert "did not answer within 0.5 s" in answer["Error"]
        await eventually(lambda: running.app.rollout.active.bundle.revision == before)
        note = running.app.rollout.describe()["last_rejected"]["note"]
        assert "2 of 2 decisions ran into limits and took " in note


async def test_victims_are_left_as_they_are_where_nothing_is_known_of_the_nodes(
    folder: Path,
) -> None:
    victim = pod_manifest("v", uid="v1", node="a")
    asked = {
        "Pod": POD,
        "NodeNameToVictims": {"a": {"Pods": [victim], "NumPDBViolations": 2}},
        "NodeNameToMetaVictims": None,
    }
    async with extender(folder) as running:
        status, answer = await running.post("preempt", asked)
    assert status == 200
    assert answer == {
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "v1"}], "NumPDBViolations": 2}}
    }


async def test_binding_needs_an_api_server(folder: Path) -> None:
    asked = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "a"}
    async with extender(folder) as running:
        status, answer = await running.post("bind", asked)
    assert status == 200
    assert "no API server" in answer["Error"]


@pytest.mark.parametrize(
    ("verb", "body", "want"),
    [
        ("filter", b"", "want the JSON of a request"),
        ("filter", b"{", "want the JSON of a request"),
        ("filter", b"[]", "want the JSON of a request"),
        ("filter", b"[" * 20_000, "want the JSON of a request"),
        ("bind", b'{"PodName":' + b"[" * 20_000, "want the JSON of a request"),
        ("filter", {"Nodes": {"items": []}}, "want `Pod`, got none"),
        ("filter", {"Pod": POD}, "want `Nodes` or `NodeNames`, got neither"),
        ("filter", {"Pod": 7, "NodeNames": []}, "Pod: "),
        ("filter", {"Pod": POD, "Nodes": {"items": [{}]}}, "a node without a name"),
        ("filter", {"Pod": POD, "Nodes": {"items": [7]}}, "Nodes.items: "),
        ("prioritize", {"Pod": POD, "NodeNames": "a"}, "NodeNames: "),
        ("preempt", {"Pod": POD}, "want `NodeNameToVictims` or"),
        ("preempt", {"Pod": POD, "NodeNameToMetaVictims": {"a": 1}}, "want the JSON"),
        ("bind", {"PodName": "p", "PodNamespace": "n", "PodUID": "u"}, "want `Node`, got none"),
    ],
)
async def test_a_request_that_is_none_is_refused_with_the_reason(
    folder: Path, verb: str, body: Any, want: str
) -> None:
    async with extender(folder) as running:
        status, answer = await running.post(verb, body)
        assert status == 400
        assert want in answer
        name = "starsched_extender_served_duration_seconds_count"
        assert running.metric(name, verb=verb, result="refused") == 1


async def test_a_body_that_is_not_packed_as_it_says_is_refused(folder: Path) -> None:
    """It was answered as a fault of ours, with a traceback in the log for each."""
    async with extender(folder) as running:
        packed = gzip.compress(json.dumps(with_nodes(POD, *NODES)).encode())
        for body, want in ((packed, 200), (b"nonsense", 400)):
            headers = {"Content-Encoding": "gzip"}
            url = f"{running.url}/filter"
            async with running.session.post(url, data=body, headers=headers) as answer:
                assert answer.status == want


async def test_a_request_beyond_the_limit_is_refused(folder: Path) -> None:
    async with extender(folder, most_body_bytes=10_000) as running:
        assert (await running.post("filter", with_nodes(POD, *NODES)))[0] == 200
        status, _ = await running.post("filter", with_nodes(POD, *NODES * 20))
        assert status == 413


async def test_other_paths_and_methods_are_not_served(folder: Path) -> None:
    async with extender(folder) as running:
        assert (await running.post("delete", {}))[0] == 404
        async with running.session.get(f"{running.url}/filter") as answer:
            assert answer.status == 405


async def test_an_edit_answers_the_next_request_and_a_broken_one_changes_nothing(
    folder: Path,
) -> None:
    async with extender(folder) as running:
        revision = running.app.rollout.active.bundle.revision
        write(folder, {"disks.star": "def filter(pod, node):\n    return nonsense\n"})
        await eventually(lambda: running.app.rollout.describe()["last_rejected"])
        _, answer = await running.post("filter", with_nodes(POD, *NODES))
        assert answer["FailedNodes"] == {"b": "slow disk"}
        write(folder, {"disks.star": DISKS.replace("slow disk", "too slow")})
        await eventually(lambda: running.app.rollout.active.bundle.revision != revision)
        _, answer = await running.post("filter", with_nodes(POD, *NODES))
        assert answer["FailedNodes"] == {"b": "too slow"}


async def test_health_metrics_and_policies_are_served_as_well(folder: Path) -> None:
    async with extender(folder) as running:
        await running.post("filter", with_nodes(POD, *NODES))
        for path in ("/healthz", "/livez", "/readyz"):
            assert await running.get(path) == (200, "ok")
        status, text = await running.get("/metrics")
        assert status == 200
        labels = 'result="success",verb="filter"'
        assert f"starsched_extender_served_duration_seconds_count{{{labels}}} 1.0" in text
        status, text = await running.get("/policies")
        assert "disks.star" in text
