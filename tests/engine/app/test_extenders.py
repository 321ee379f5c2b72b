"""A whole scheduler with extenders in its configuration, on an embedded API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import web

from devkit.cluster import DevCluster, make_node, make_pod
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from tests.engine.app.harness import (
    condition,
    edit,
    events,
    metric,
    namespace,
    node_of,
    placements,
    scheduler,
)
from tests.small_extender import SmallExtender, names_asked
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


SCORE = '"""Likes all."""\n\ndef score(pod, node):\n    return 0\n'
SHORT_PROBATION = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nfallback: {window: 100ms}\n"


def configuration(*extenders: Mapping[str, Any]) -> dict[str, str]:
    return {"config.yaml": HEAD + f"extenders: {json.dumps(list(extenders))}\n"}


def verbs(extender: SmallExtender, *names: str, **more: Any) -> dict[str, Any]:
    """The entry of *extender* with these verbs."""
    entry = {f"{name}Verb": name for name in names}
    return {"urlPrefix": extender.url, "weight": 10, "nodeCacheCapable": True, **entry, **more}


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), *(make_node(f"node-{i}") for i in range(1, 5)))
        yield cluster


def only(*names: str) -> Any:
    return lambda body: {"NodeNames": [name for name in names_asked(body) if name in names]}


def all_after(may_answer: asyncio.Event) -> Any:
    async def slowly(body: dict[str, Any]) -> Any:
        await may_answer.wait()
        return {"NodeNames": names_asked(body)}

    return slowly


def prefer(name: str) -> Any:
    return lambda body: [{"Host": n, "Score": 10 * (n == name)} for n in names_asked(body)]


@pytest.mark.parametrize("cached", [True, False])
async def test_extenders_decide_where_pods_go(cluster: DevCluster, cached: bool) -> None:
    def drop_the_first(body: dict[str, Any]) -> Any:
        if cached:
            return {"NodeNames": body["NodeNames"][1:]}
        items = [n for n in body["Nodes"]["items"] if n["metadata"]["name"] != "node-1"]
        return {"Nodes": {"items": items}}

    async with SmallExtender(filter=drop_the_first, prioritize=prefer("node-3")) as extender:
        edit(
            cluster,
            configuration(verbs(extender, "filter", "prioritize", nodeCacheCapable=cached)),
        )
        async with scheduler(cluster, from_config_map=True) as app:
            cluster.create(*(make_pod(f"p{i}") for i in range(3)))
            await eventually(lambda: len(placements(cluster)) == 3)
            assert set(placements(cluster).values()) == {"node-3"}
            labels = {"extender": extender.url, "verb": "filter", "result": "success"}
            name = "starsched_extender_request_duration_seconds_count"
            assert metric(app, name, **labels) >= 3
    verbs_asked = [verb for verb, _ in extender.asked]
    assert verbs_asked == ["filter", "prioritize"] * 3
    asked_to_rank = [names_asked(body) for verb, body in extender.asked if verb == "prioritize"]
    assert "node-1" not in asked_to_rank[0]


@pytest.mark.slow("runs a whole scheduler")
async def test_a_score_beyond_all_measure_is_the_best_one(cluster: DevCluster) -> None:
    """Some say the largest int there is; each attempt ended with an unexpected exception."""

    def most(body: dict[str, Any]) -> Any:
        return [{"Host": "node-1", "Score": -(1 << 63)}, {"Host": "node-3", "Score": (1 << 63) - 1}]

    async with SmallExtender(prioritize=most) as extender:
        edit(cluster, configuration(verbs(extender, "prioritize", weight=1 << 31)))
        async with scheduler(cluster, from_config_map=True):
            cluster.create(make_pod("p"))
            await eventually(lambda: placements(cluster) == {"p": "node-3"})


async def test_what_extenders_reject_is_said_and_any_event_is_worth_a_new_try(
    cluster: DevCluster,
) -> None:
    is_open = False

    def gate(body: dict[str, Any]) -> Any:
        names = names_asked(body)
        if is_open:
            return {"NodeNames": names}
        return {
            "NodeNames": [],
            "FailedNodes": dict.fromkeys(names[:1], "no licence"),
            "FailedAndUnresolvableNodes": dict.fromkeys(names[1:], "wrong floor"),
        }

    async with SmallExtender(filter=gate) as extender:
        edit(cluster, configuration(verbs(extender, "filter")))
        async with scheduler(cluster, from_config_map=True, initial_backoff=0.01) as app:
            cluster.create(make_pod("web"))
            want = "0/4 nodes are available: 1 no licence, 3 wrong floor."
            await eventually(lambda: condition(cluster, "web").get("message", "").startswith(want))
            assert condition(cluster, "web")["reason"] == "Unschedulable"
            rejector = {"plugin": "Extender", "profile": "default-scheduler"}
            assert metric(app, "scheduler_unschedulable_pods", **rejector) == 1
            is_open = True
            cluster.create(
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": "unrelated", "namespace": "default"},
                    "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]},
                }
            )
            await eventually(lambda: node_of(cluster, "web"))


@pytest.mark.slow("runs a whole scheduler")
async def test_an_extender_that_is_down_costs_attempts_and_comes_back(cluster: DevCluster) -> None:
    answers: list[Any] = [web.Response(status=503)]
    async with SmallExtender(
        filter=lambda body: answers.pop() if answers else {"NodeNames": names_asked(body)}
    ) as extender:
        edit(cluster, configuration(verbs(extender, "filter")))
        async with scheduler(cluster, from_config_map=True, initial_backoff=0.01) as app:
            cluster.create(make_pod("web"))
            want = f"failed filter with extender at URL {extender.url}/filter, code 503"
            await eventually(lambda: events(cluster, "FailedScheduling"))
            assert events(cluster, "FailedScheduling")[0]["note"] == want
            await eventually(lambda: node_of(cluster, "web"))
            labels = {"result": "error", "profile": "default-scheduler"}
            assert metric(app, "scheduler_schedule_attempts_total", **labels) == 1
            # The policies are not to blame.
            assert app.policies.rollout.counts.failed == 0
            assert app.policies.rollout.counts.decisions == 2


@pytest.mark.slow("runs a whole scheduler")
async def test_an_extender_that_may_be_ignored_is_when_it_is_down(cluster: DevCluster) -> None:
    async with SmallExtender() as gone:
        pass
    async with SmallExtender(filter=only("node-2")) as extender:
        edit(
            cluster,
            configuration(
                verbs(gone, "filter", "prioritize", ignorable=True), verbs(extender, "filter")
            ),
        )
        async with scheduler(cluster, from_config_map=True):
            cluster.create(make_pod("web"))
            await eventually(lambda: node_of(cluster, "web") == "node-2")
    assert len(extender.asked) == 1


async def test_an_extender_binds_the_pods_that_it_wants(cluster: DevCluster) -> None:
    async with ApiClient(Endpoint(server=cluster.url)) as client:

        async def bind(body: dict[str, Any]) -> Any:
            await client.bind(
                body["PodNamespace"], body["PodName"], body["PodUID"], body["Node"], timeout=5
            )
            return {"Error": ""}

        async with SmallExtender(bind=bind) as extender:
            entry = verbs(extender, "bind", managedResources=[{"name": "x.com/card"}])
            edit(cluster, configuration(entry))
            cluster.create(make_node("card", resources={"x.com/card": "2"}))
            async with scheduler(cluster, from_config_map=True) as app:
                wants_card = make_pod("card", resources={"x.com/card": "1"})
                cluster.create(wants_card, make_pod("plain"))
                await eventually(lambda: len(placements(cluster)) == 2)
                await eventually(lambda: app.cache.assumed_count == 0)
                await eventually(lambda: len(events(cluster, "Scheduled")) == 2)
    assert [body["PodName"] for _, body in extender.asked] == ["card"]


@pytest.mark.slow("runs a whole scheduler")
@pytest.mark.parametrize("did_it", [True, False])
async def test_a_binding_whose_answer_is_lost_is_looked_up(
    cluster: DevCluster, did_it: bool
) -> None:
    """The extender may have bound the pod before it failed: only the pod itself tells."""
    tries = 0
    async with ApiClient(Endpoint(server=cluster.url)) as client:

        async def bind(body: dict[str, Any]) -> Any:
            nonlocal tries
            tries += 1
            if did_it or tries > 1:
                await client.bind(
                    body["PodNamespace"], body["PodName"], body["PodUID"], body["Node"], timeout=5
                )
            return web.Response(status=500) if tries == 1 else {}

        async with SmallExtender(bind=bind) as extender:
            edit(cluster, configuration(verbs(extender, "bind")))
            async with scheduler(cluster, from_config_map=True, initial_backoff=0.01) as app:
                cluster.create(make_pod("web"))
                await eventually(lambda: events(cluster, "Scheduled"))
                await eventually(lambda: app.cache.assumed_count == 0)
                failed = [e["note"] for e in events(cluster, "FailedScheduling")]
    assert tries == (1 if did_it else 2)
    want = f"binding rejected: failed bind with extender at URL {extender.url}/bind, code 500"
    assert failed == ([] if did_it else [want])


async def test_resources_that_the_extender_counts_are_not_counted_here(
    cluster: DevCluster,
) -> None:
    managed = [{"name": "x.com/card", "ignoredByScheduler": True}]
    async with SmallExtender(filter=only("node-4")) as extender:
        edit(cluster, configuration(verbs(extender, "filter", managedResources=managed)))
        async with scheduler(cluster, from_config_map=True):
            # No node has any: only the extender knows.
            cluster.create(make_pod("card", resources={"x.com/card": "1"}))
            await eventually(lambda: node_of(cluster, "card") == "node-4")


async def test_changes_while_an_extender_thinks_do_not_reach_into_the_decision(
    cluster: DevCluster,
) -> None:
    """Nodes come and go and pods are keyed while the answer is awaited; the decision stands."""
    may_answer = asyncio.Event()
    async with SmallExtender(filter=all_after(may_answer), prioritize=prefer("node-4")) as extender:
        edit(cluster, configuration(verbs(extender, "filter", "prioritize")))
        async with scheduler(cluster, from_config_map=True) as app:
            cluster.create(make_pod("web"))
            await asyncio.wait_for(extender.waiting.wait(), 20)
            cluster.delete("nodes", "node-1")
            cluster.create(make_node("new"), make_pod("second"))
            await eventually(
                lambda: app.cache.node_info("new") and not app.cache.node_info("node-1")
            )
            await eventually(lambda: app.kernel.queue.counts()["active"] == 1)
            before = len(extender.asked)
            may_answer.set()
            await eventually(lambda: len(placements(cluster)) == 2)
    ranked = [names_asked(body) for verb, body in extender.asked if verb == "prioritize"]
    assert before == 1
    assert "new" not in ranked[0]
    assert "node-1" in ranked[0]
    assert "new" in ranked[1]
    assert set(placements(cluster).values()) == {"node-4"}


@pytest.mark.slow("runs a whole scheduler")
async def test_policies_that_are_replaced_stay_until_the_decision_that_asks_them_has_ended(
    cluster: DevCluster,
) -> None:
    may_answer = asyncio.Event()
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "both", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    member: dict[str, Any] = {"schedulingGroup": {"podGroupName": "both"}}
    async with SmallExtender(filter=all_after(may_answer)) as extender:
        files = configuration(verbs(extender, "filter", httpTimeout="100s"))
        edit(cluster, files)
        async with scheduler(cluster, from_config_map=True) as app:
            # The policies are asked about the second pod, which is of another class, afterwards.
            cluster.create(
                group, make_pod("a", cpu="1", **member), make_pod("b", cpu="2", **member)
            )
            await asyncio.wait_for(extender.waiting.wait(), 20)
            before = app.policies.rollout.active.bundle.revision
            edit(cluster, files | {"mine.star": SCORE, "runtime.yaml": SHORT_PROBATION})
            await eventually(lambda: app.policies.rollout.active.bundle.revision != before)
            await eventually(lambda: not app.policies.rollout.describe()["active"]["on_probation"])
            may_answer.set()
            await eventually(lambda: len(placements(cluster)) == 2)
    notes = [one["note"] for one in events(cluster, "FailedScheduling")]
    assert not [note for note in notes if "waiting for minCount pods" not in note]


@pytest.mark.slow("runs a whole scheduler")
async def test_new_policies_bring_new_extenders(cluster: DevCluster) -> None:
    async with (
        SmallExtender(filter=only("node-1")) as one,
        SmallExtender(filter=only("node-2")) as two,
    ):
        edit(cluster, configuration(verbs(one, "filter")))
        async with scheduler(cluster, from_config_map=True) as app:
            cluster.create(make_pod("a"))
            await eventually(lambda: node_of(cluster, "a") == "node-1")
            before = app.policies.rollout.active.bundle.revision
            edit(cluster, configuration(verbs(two, "filter")))
            await eventually(lambda: app.policies.rollout.active.bundle.revision != before)
            cluster.create(make_pod("b"))
            await eventually(lambda: node_of(cluster, "b") == "node-2")
            edit(cluster, {})
            await eventually(lambda: not app.policies.rollout.active.bundle.extenders)
            asked = len(one.asked) + len(two.asked)
            cluster.create(make_pod("c"))
            await eventually(lambda: node_of(cluster, "c"))
            assert len(one.asked) + len(two.asked) == asked


async def test_an_extender_has_its_say_in_preemption(cluster: DevCluster) -> None:
    """Of the candidates it leaves one, and with other victims than the scheduler chose."""
    cluster.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "vip"},
            "value": 1000,
        }
    )
    for i in range(1, 5):
        for size in ("small", "large"):
            cpu = "3" if size == "small" else "4"
            cluster.create(make_pod(f"{size}-{i}", cpu=cpu, nodeName=f"node-{i}"))

    chosen: list[str] = []

    def preempt(body: dict[str, Any]) -> Any:
        uids = {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for victims in body["NodeNameToVictims"].values()
            for pod in victims["Pods"]
        }
        name = next(n for n in uids if n.endswith("-3"))
        chosen.append(name)
        return {"NodeNameToMetaVictims": {"node-3": {"Pods": [{"UID": uids[name]}]}}}

    async with SmallExtender(preempt=preempt) as extender:
        edit(cluster, configuration(verbs(extender, "preempt", nodeCacheCapable=False)))
        async with scheduler(cluster, from_config_map=True):
            cluster.create(make_pod("vip", cpu="2", priorityClassName="vip"))
            await eventually(lambda: going(cluster))
            assert going(cluster) == chosen
            vip = cluster.get("pods", "vip", "default") or {}
            assert vip["status"]["nominatedNodeName"] == "node-3"
    (_, body) = extender.asked[0]
    assert sorted(body["NodeNameToVictims"]) == ["node-1", "node-2", "node-3", "node-4"]


def going(cluster: DevCluster) -> list[str]:
    """The names of the pods that are being deleted."""
    pods = (pod["metadata"] for pod in cluster.list("pods"))
    return [meta["name"] for meta in pods if meta.get("deletionTimestamp")]


_CANARY = """apiVersion: starsched.dev/v1
kind: PolicyRuntime
rollout:
  canary:
    steps:
    - {share: 50%, duration: 1s, decisions: 1000000}
"""


@pytest.mark.slow("runs a whole scheduler")
@pytest.mark.parametrize("is_first", [True, False], ids=["added", "replaced"])
async def test_a_canary_asks_its_own_extenders_about_its_own_pods(
    cluster: DevCluster, is_first: bool
) -> None:
    """The first question ended the scheduler: that in force asks nobody."""
    async with (
        SmallExtender(filter=only("node-1", "node-2")) as old,
        SmallExtender(filter=only("node-3"), bind=lambda _: {"Error": "not by me"}) as new,
    ):
        runtime = {"runtime.yaml": _CANARY}
        before = runtime if is_first else runtime | configuration(verbs(old, "filter"))
        edit(cluster, before)
        async with scheduler(cluster, from_config_map=True) as app:
            base = app.policies.rollout.active.bundle.revision
            edit(cluster, runtime | configuration(verbs(new, "filter", "bind")))
            await eventually(lambda: app.kernel.schedulers.canary is not None)
            candidate = app.policies.rollout.status.candidate
            cluster.create(*(make_pod(f"p{number}", cpu="1m") for number in range(40)))
            await eventually(
                lambda: len(placements(cluster)) + app.kernel.queue.counts()["backoff"] >= 40
            )
            asked = {
                body["PodName"] if verb == "bind" else body["Pod"]["metadata"]["name"]
                for verb, body in new.asked
            }
            assert {verb for verb, _ in new.asked} == {"filter", "bind"}
            assert 0 < len(asked) < 40
            # Its own pods alone, to be bound too, which fails; the others do not know of it.
            assert asked.isdisjoint(placements(cluster))
            assert not is_first or not old.asked
            by_old = {body["Pod"]["metadata"]["name"] for _, body in old.asked}
            assert by_old.isdisjoint(asked)
            # Given up, it is asked no more.
            edit(cluster, before)
            await eventually(lambda: app.kernel.schedulers.canary is None)
            await eventually(lambda: len(placements(cluster)) == 40)
            revisions = {
                event["metadata"]["annotations"]["starsched.dev/policy-revision"]
                for event in events(cluster, "Scheduled")
            }
            assert revisions <= {base}, candidate
