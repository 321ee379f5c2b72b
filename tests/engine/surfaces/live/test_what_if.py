"""What-if answers of a scheduler on the embedded API server, over HTTP, as commands and a page."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner
from multidict import MultiDict

from devkit.cluster import DevCluster
from engine.app import App
from engine.surfaces.live.answers import Refusal
from engine.surfaces.live.what_if.answers import WhatIfAnswer
from engine.surfaces.live.what_if.changes import WrongQuestion, changes_of
from engine.surfaces.live.what_if.shapes import WrongTypes, machine_types
from tests.engine.app.harness import config_map, namespace, node_of, scheduler
from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.surfaces.live.test_service import ALL, OfOneNamespace, settled
from tests.live import node, pod
from tests.properties.test_what_if_beside_reality import QUOTAS
from tests.waiting import eventually
from workbench.cli.kubectl_plugin import main as kubectl_starsched

pytestmark = pytest.mark.usefixtures("no_sandboxes")

TYPES = """
kind: Node
metadata: {name: large, labels: {disk: ssd}}
status: {allocatable: {cpu: "16", memory: 64Gi, pods: "110"}}
"""


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as running:
        running.create(namespace())
        yield running


async def what_if(app: App, viewer: Any = ALL, **query: str) -> WhatIfAnswer:
    status, answer = await app.surfaces.live.what_if(viewer, query)
    assert status == 200, answer
    assert isinstance(answer, WhatIfAnswer)
    return answer


async def refusal(app: App, **query: str) -> str:
    status, answer = await app.surfaces.live.what_if(ALL, query)
    assert status == 400
    assert isinstance(answer, Refusal)
    return answer.error


async def test_pods_start_on_the_nodes_that_the_answer_names(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="2"), pod("first", cpu="2"))
        await eventually(lambda: node_of(cluster, "first") == "n")
        cluster.create(pod("a", cpu="2"), pod("b", cpu="2"), pod("huge", cpu="9"))
        await settled(app, 3)
        answer = await what_if(app, add="2", like="n")
        assert answer.added == ("n-new-1", "n-new-2")
        assert (answer.counts.start, answer.counts.wait) == (2, 1)
        assert {one.pod: one.is_new_node for one in answer.start} == {
            "default/a": True,
            "default/b": True,
        }
        (huge,) = answer.wait
        assert (huge.pod, huge.token) == ("default/huge", "InsufficientResources")
        assert "Insufficient cpu" in huge.message
        cluster.create(node("n-new-1", cpu="2"), node("n-new-2", cpu="2"))
        for one in answer.start:
            name = one.pod.partition("/")[2]
            await eventually(lambda name=name: bool(node_of(cluster, name)))  # type: ignore[misc]


async def test_a_drain_names_the_pods_that_could_not_be_placed_again(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        managed = pod("managed", cpu="3")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1"}
        managed["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        cluster.create(node("n", cpu="4"), managed, pod("bare", cpu="1"))
        for name in ("managed", "bare"):
            await eventually(lambda name=name: node_of(cluster, name) == "n")  # type: ignore[misc]
        cluster.create(node("small", cpu="1"))
        await eventually(lambda: app.cache.node_count == 2)
        answer = await what_if(app, drain="n")
        assert (answer.counts.moved, answer.counts.unplaced, answer.counts.lost) == (0, 1, 1)
        (waits,) = answer.wait
        assert (waits.pod, waits.origin, waits.was_on) == ("default/managed", "drained", "n")
        assert {one.pod: one.comes_back for one in answer.end} == {
            "default/managed": True,
            "default/bare": False,
        }
        both = await what_if(app, drain="n", add="1", like="n")
        assert (both.counts.moved, both.start[0].node) == (1, "n-new-1")


async def test_a_taint_of_a_cordon_can_be_removed(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        mark = "node.kubernetes.io/unschedulable:NoSchedule"
        cluster.create(node("n", taints=[mark], cordoned=True), pod("p", cpu="1"))
        await settled(app, 1)
        answer = await what_if(app, taint=mark)
        assert [(one.pod, one.node) for one in answer.start] == [("default/p", "n")]
        assert "nothing to do: nodes have the taints" in await refusal(app, taint="x:NoSchedule")


async def test_a_pod_that_its_quota_holds_starts_with_a_higher_one(cluster: DevCluster) -> None:
    files = tree_files(QUOTAS, queues={"a": {"quota": {"cpu": 2}}})
    cluster.create(config_map(files))
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(node("n", cpu="8"))
        cluster.create(pod("first", cpu="2", labels={"queue": "a"}))
        await eventually(lambda: node_of(cluster, "first") == "n")
        cluster.create(pod("second", cpu="2", labels={"queue": "a"}))
        await eventually(lambda: any(one.message for one in app.kernel.queue.waiting_pods()))
        held = await what_if(app, add="1", like="n")
        assert (held.counts.start, held.wait[0].token) == (0, "QuotaReached")
        raised = await what_if(app, queue="a", quota="cpu=4")
        assert [one.pod for one in raised.start] == ["default/second"]
        assert "from 2 cpu" in raised.changes[0]
        assert "want more cpu than `quota` of queue `a` has" in await refusal(
            app, queue="a", quota="cpu=1"
        )
        assert "no queue `b` is known here" in await refusal(app, queue="b", quota="cpu=1")


async def test_pods_of_other_namespaces_are_counted_and_not_named(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="1"), pod("a", cpu="9"))
        await settled(app, 1)
        answer = await what_if(app, OfOneNamespace("other"), add="1", like="n")
        assert (answer.counts.wait, answer.hidden_pods, answer.wait) == (1, 1, ())


async def test_the_cheapest_shape_that_helps_most_pods_is_best(
    cluster: DevCluster, tmp_path: Path
) -> None:
    path = tmp_path / "types.yaml"
    path.write_text(TYPES)
    async with scheduler(cluster, local_port=0, machine_types=machine_types(path)) as app:
        cluster.create(node("n", cpu="2"))
        await eventually(lambda: app.cache.node_count == 1)
        cluster.create(*(pod(f"p{number}", cpu="3") for number in range(4)))
        await settled(app, 4)
        tiny = {"metadata": {"name": "tiny"}, "status": {"allocatable": {"cpu": "3", "pods": "9"}}}
        shapes = [
            {"like": "n", "price": 0.1},
            {"like": "large", "price": 5.0},
            {"node": tiny, "price": 1.0},
            {"name": "few", "node": tiny, "price": 0.1, "max": 2},
        ]
        server = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}"
        async with aiohttp.ClientSession(server) as session:
            async with session.post("/whatif/best-shape", json={"shapes": shapes}) as got:
                assert got.status == 200
                answer = await got.json()
            found = [(one["name"], one["nodes"], one["helped"]) for one in answer["shapes"]]
            assert found == [("tiny", 4, 4), ("large", 1, 4), ("few", 2, 2), ("n", 0, 0)]
            assert (answer["best"], answer["shapes"][0]["cost"]) == ("tiny", 4.0)
            async with session.post("/whatif/best-shape", json={"shapes": []}) as got:
                assert got.status == 400
                assert "want 1 to 20 of them, got 0" in (await got.json())["error"]
            async with session.get("/whatif", headers={"Accept": "text/html"}) as got:
                assert '<option value="large">' in await got.text()
            html = {"Accept": "text/html"}
            async with session.get("/whatif?add=1&like=large&drain=", headers=html) as got:
                page = await got.text()
                assert "4 would start and 0 would still wait" in page
                assert "large-new-1" in page

        async def asked(*words: str) -> Any:
            arguments = ["whatif", *words, f"--server={server}"]
            return await asyncio.to_thread(CliRunner().invoke, kubectl_starsched, arguments)

        result = await asked("add-nodes", "1", "--like", "large")
        assert result.exit_code == 0, result.output
        assert "of the pods that wait, 4 would start" in result.output
        assert "default/p0" in result.output
        assert (await asked("add-nodes", "1", "--like", "n")).exit_code == 3
        unknown = await asked("drain", "nowhere")
        assert unknown.exit_code == 1
        assert "drain: no node `nowhere` is known here" in unknown.output
        found = json.loads((await asked("drain", "n", "--output", "json")).output)
        assert found["changes"] == ["drain `n`"]
        cluster.create(pod("bare", cpu="1"))
        await eventually(lambda: node_of(cluster, "bare") == "n")
        lost = await asked("drain", "n")
        assert "1 would be gone for good" in lost.output
        assert lost.exit_code == 3
        untainted = await asked("remove-taint", "x:NoSchedule", "--node", "n")
        assert "node `n` has no taints, got `x:NoSchedule`" in untainted.output


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["add-nodes", "1", "--like", ""], id="like nothing"),
        pytest.param(["drain", "n", ""], id="a node"),
        pytest.param(["remove-taint", ""], id="a taint"),
        pytest.param(["remove-taint", "x:NoSchedule", "--node", ""], id="of which node"),
        pytest.param(["raise-quota", "", "cpu=1"], id="a queue"),
        pytest.param(["raise-quota", "q", " "], id="a quota"),
    ],
)
def test_an_empty_word_is_wrong_usage(words: list[str]) -> None:
    result = CliRunner().invoke(kubectl_starsched, ["whatif", *words])
    assert result.exit_code == 2, result.output
    assert "want a value, got an empty one" in result.output


def test_a_word_that_is_given_twice_is_refused() -> None:
    with pytest.raises(WrongQuestion, match="drain: want it once; nodes are separated by commas"):
        changes_of(MultiDict([("drain", "a"), ("drain", "b")]))


@pytest.mark.parametrize(
    ("query", "want"),
    [
        pytest.param({"add": "0", "like": "n"}, "add: want a number of nodes in 1..100", id="none"),
        pytest.param({"add": "3"}, "like: want the name of a node", id="like nothing"),
        pytest.param({"taint": "x"}, r"taint: want KEY\[=VALUE\]:EFFECT", id="a taint"),
        pytest.param({"node": "n"}, "node: is for `taint`", id="of no taint"),
        pytest.param({"queue": "q", "quota": "cpu"}, "quota: want", id="a quota"),
        pytest.param({"queue": "q", "quota": "cpu=1,memory=2"}, "quota: want", id="two quotas"),
        pytest.param({"queue": "q", "quota": "cpu=x"}, "quota: cpu: ", id="an amount"),
        pytest.param({"nodes": "3"}, "nodes: want one of `add`", id="an unknown word"),
    ],
)
def test_a_question_that_makes_no_sense_says_what_was_wanted(
    query: dict[str, str], want: str
) -> None:
    with pytest.raises(WrongQuestion, match=want):
        changes_of(query)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("kind: Pod", "document 1: kind: want `Node`, got `Pod`", id="a pod"),
        pytest.param("kind: Node", "metadata.name: want a name", id="no name"),
        pytest.param(
            "{kind: Node, metadata: {name: n}}", "status.allocatable: want", id="offers nothing"
        ),
        pytest.param(
            "{kind: Node, metadata: {name: n}, spec: {taints: [{key: a, effect: noschedule}]}}",
            r"spec.taints\[0\]: want a key and an effect of NoSchedule, .*`noschedule`",
            id="a taint",
        ),
        pytest.param(f"{TYPES}---{TYPES}", "`large` is twice", id="twice"),
        pytest.param("a: [", "want YAML", id="no YAML"),
    ],
)
def test_a_file_of_machine_types_that_is_wrong_says_where(
    text: str, want: str, tmp_path: Path
) -> None:
    path = tmp_path / "types.yaml"
    path.write_text(text)
    with pytest.raises(WrongTypes, match=want):
        machine_types(path)
