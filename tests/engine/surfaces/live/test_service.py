"""The live answers of a scheduler on the embedded API server."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp
import msgspec
import pytest
from click.testing import CliRunner

from devkit.cluster import DevCluster
from engine.app import App
from engine.io.leader_election import LeaseSettings
from engine.rollout.measures import ShadowMeasures
from engine.rollout.status import RolloutStatus
from engine.surfaces.live.answers import (
    Leader,
    NodesPage,
    PodAnswer,
    PodsPage,
    PoliciesPage,
    QueuePage,
    Refusal,
    RequestRange,
    RolloutPage,
    Score,
)
from engine.surfaces.live.queue_page import QueueFilter
from engine.surfaces.live.share_answers import ShareAnswer, SharesPage
from tests.engine.app.harness import config_map, edit, namespace, scheduler
from tests.engine.core.kernel.queue_world import FAIR, tree_files
from tests.engine.core.kernel.small_world import CONFIG
from tests.engine.core.kernel.test_reclaims import SHARED
from tests.engine.core.kernel.test_turn_queue import DRF
from tests.live import node, pod
from tests.waiting import eventually
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("no_sandboxes")

POLICY = '''"""Keeps pods off nodes of the wrong colour."""

def filter(pod, node):
    if node.labels.get("colour") == pod.labels.get("colour"):
        return None
    return unresolvable("node(s) had another colour")
'''


class Everybody:
    """Sees everything, as the local listener's caller."""

    is_local = True

    async def may_read(self, namespace: str) -> bool:
        return True

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str]:
        return frozenset(namespaces)


class OfOneNamespace:
    """Sees the pods of one namespace."""

    is_local = False

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    async def may_read(self, namespace: str) -> bool:
        return namespace == self.namespace

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str]:
        return frozenset(namespaces) & {self.namespace}


ALL = Everybody()


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as running:
        running.create(namespace())
        yield running


async def queue(app: App, viewer: Any = ALL, **query: str) -> QueuePage:
    status, page = await app.surfaces.live.queue(viewer, query)
    assert status == 200, page
    assert isinstance(page, QueuePage)
    return page


async def explain(app: App, name: str, viewer: Any = ALL, **query: str) -> PodAnswer:
    status, answer = await app.surfaces.live.explain(viewer, query, "default", name)
    assert status == 200, answer
    assert isinstance(answer, PodAnswer)
    return answer


async def settled(app: App, waiting: int) -> None:
    """Until so many pods were tried and wait."""

    def is_settled() -> bool:
        counts = app.kernel.queue.counts()
        return counts["active"] == 0 and counts["unschedulable"] + counts["backoff"] >= waiting

    await eventually(is_settled)
    app.kernel.queue.flush()


async def test_equal_pods_are_one_row(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="1"))
        for number in range(300):
            cluster.create(pod(f"big-{number}", cpu="9"))
        cluster.create(pod("other", cpu="8"))
        await settled(app, 301)
        page = await queue(app, place="unschedulable")
        assert (page.total_rows, page.total_pods) == (2, 301)
        rows = {row.pods: row for row in page.rows}
        big = rows[300]
        assert (big.reason, big.node_helps, big.policies) == (
            "InsufficientResources", True, ("NodeResourcesFit",),
        )  # fmt: skip
        assert big.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert "Node added" in big.waits_for
        assert big.attempts >= 1
        assert big.next_try_at is not None
        assert len(big.names) == 10
        assert page.counts.unschedulable == 301
        # In steps of a few pods, between which decisions are made.
        steps = app.surfaces.live._rows.page(QueueFilter(), Leader())
        assert sum(1 for _ in steps) >= 301 / 128
        # A page at a time, and each row once.
        first = await queue(app, limit="1")
        second = await queue(app, limit="1", **{"continue": first.next or ""})
        assert second.next is None
        assert {first.rows[0].row_id, second.rows[0].row_id} == {row.row_id for row in page.rows}


async def test_a_row_is_the_group_that_is_asked_for(cluster: DevCluster) -> None:
    """Pods that differ in requests alone are a workload, with the range of what they request."""
    controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "u", "controller": True}
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="1"))
        for number in range(5):
            one = pod(f"big-{number}", cpu=str(5 + number))
            one["metadata"]["ownerReferences"] = [{**controller, "name": f"rs-{number % 2}"}]
            cluster.create(one)
        cluster.create(pod("other", cpu="9", nodeSelector={"disk": "tape"}))
        await settled(app, 6)
        got = {
            by: sorted(row.pods for row in (await queue(app, by=by)).rows)
            for by in ("class", "workload", "owner", "namespace", "reason")
        }
        assert got == {
            "class": [1] * 6,
            "workload": [1, 5],
            "owner": [1, 2, 3],
            "namespace": [1, 5],
            "reason": [1, 5],
        }
        (row,) = (await queue(app, by="workload", owner="ReplicaSet/rs-0")).rows
        assert row.requests["cpu"] == RequestRange(5000, 9000, 21000)
        assert row.owner == "ReplicaSet/rs-0"
        everything = await queue(app)
        assert everything.values["owner"] == ("ReplicaSet/rs-0", "ReplicaSet/rs-1")
        assert everything.values["policy"][0] == "NodeResourcesFit"
        status, refusal = await app.surfaces.live.queue(ALL, {"by": "colour"})
        assert status == 400
        assert isinstance(refusal, Refusal)
        want = "by: want one of class, workload, owner, namespace, reason, got `colour`"
        assert refusal.error == want


async def test_pods_are_found_waiting_or_placed(cluster: DevCluster) -> None:
    """By parts of names, owners, nodes and labels; only where the caller may see them."""
    controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "u", "controller": True}
    async with scheduler(cluster) as app:
        cluster.create(node("node-1", cpu="2"))
        for name, cpu, labels in (
            ("web-1", "1", {"app": "web"}),
            ("web-big", "9", {"app": "web", "tier": "gold"}),
            ("db", "1", {"app": "db"}),
        ):
            one = pod(name, cpu=cpu, labels=labels)
            one["metadata"]["ownerReferences"] = [{**controller, "name": f"rs-{labels['app']}"}]
            cluster.create(one)
        await settled(app, 1)
        await eventually(lambda: app.kernel.cache.assumed_count == 0 and app.cache.pod_count == 2)

        async def found(viewer: Any = ALL, **query: str) -> list[str]:
            status, page = await app.surfaces.live.pods(viewer, query)
            assert status == 200
            assert isinstance(page, PodsPage)
            assert page.total == len(page.rows)
            return [row.pod.partition("/")[2] for row in page.rows]

        for want, query in (
            (["web-big", "db", "web-1"], {}),
            (["web-big", "web-1"], {"text": "WEB"}),
            (["web-big"], {"text": "app=web gold"}),
            (["db", "web-1"], {"text": "node-1"}),
            (["db"], {"text": "replicaset/rs-db"}),
            ([], {"text": "web db"}),
            (["db", "web-1"], {"node": "node-1"}),
            (["web-big", "web-1"], {"owner": "ReplicaSet/rs-web", "namespace": "default"}),
        ):
            assert await found(**query) == want, query
        assert await found(OfOneNamespace("default"), text="web-big") == ["web-big"]
        assert await found(OfOneNamespace("other")) == []
        _, page = await app.surfaces.live.pods(ALL, {"text": "web"})
        assert isinstance(page, PodsPage)
        waits, runs = page.rows
        assert (waits.reason, waits.node, waits.owner) == (
            "InsufficientResources", "", "ReplicaSet/rs-web",
        )  # fmt: skip
        assert (runs.place, runs.node) == ("bound", "node-1")


async def test_rows_are_sorted_and_paged(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="1"))
        for number in range(6):
            cluster.create(*(pod(f"p{number}-{i}", cpu=str(2 + number)) for i in range(1 + number)))
        await settled(app, 21)

        async def pods(**query: str) -> list[int]:
            first = await queue(app, limit="4", **query)
            rest = await queue(app, limit="4", **query, **{"continue": first.next or ""})
            return [row.pods for page in (first, rest) for row in page.rows]

        assert await pods(sort="pods") == [1, 2, 3, 4, 5, 6]
        assert await pods(sort="-pods") == [6, 5, 4, 3, 2, 1]
        names = [row.example for row in (await queue(app, sort="-pod")).rows]
        assert names == sorted(names, reverse=True)


async def test_rows_are_filtered(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="1"))
        cluster.create(pod("big", cpu="9"))
        cluster.create(pod("gated", schedulingGates=[{"name": "later"}]))
        await settled(app, 1)
        await eventually(lambda: app.kernel.queue.counts()["gated"] == 1)

        async def names(**query: str) -> list[str]:
            return [row.example for row in (await queue(app, **query)).rows]

        assert await names() == ["default/big", "default/gated"]
        assert await names(place="gated") == ["default/gated"]
        assert await names(reason="InsufficientResources") == ["default/big"]
        assert await names(reason="none") == []
        assert await names(owner="none") == await names()
        assert await names(policy="SchedulingGates") == ["default/gated"]
        assert await names(namespace="elsewhere") == []
        assert await names(profile="default-scheduler") == await names()
        elsewhere = await queue(app, OfOneNamespace("elsewhere"))
        assert elsewhere.rows == ()
        status, _ = await app.surfaces.live.explain(
            OfOneNamespace("elsewhere"), {}, "default", "big"
        )
        assert status == 403


async def test_a_pod_that_fits_nowhere_is_explained_with_the_line_of_the_policy(
    cluster: DevCluster,
) -> None:
    cluster.create(config_map({"colour.star": POLICY}))
    async with scheduler(cluster, from_config_map=True) as app:
        for name, shade in (("a", "blue"), ("b", "blue"), ("c", "green")):
            cluster.create(node(name, labels={"colour": shade}))
        cluster.create(pod("red", labels={"colour": "red"}))
        await settled(app, 1)
        got = await explain(app, "red")
        assert (got.outcome, got.source, got.node) == ("unschedulable", "decided", "")
        assert got.reason == got.queue.reason if got.queue else False
        assert got.message.startswith("0/3 nodes are available: 3 node(s) had another colour.")
        colour = next(one for one in got.policies if one.policy == "colour")
        assert [(g.count, g.source, g.read) for g in colour.groups] == [
            (2, "colour.star:6", {"labels": {"colour": "blue"}}),
            (1, "colour.star:6", {"labels": {"colour": "green"}}),
        ]
        assert got.moves
        assert got.headline.startswith("default/red waits (unschedulable): ")
        assert got.next_step
        assert got.preemption is not None
        # What the record says comes true.
        cluster.create(node("d", labels={"colour": "red"}))
        await eventually(lambda: app.cache.uid_of("default/red") is not None)
        placed = await explain(app, "red")
        assert (placed.node, placed.source) == ("d", "decided")
        assert placed.outcome in ("placed", "bound")
        assert "1 of 4 nodes feasible" in placed.headline
        assert placed.ranking[0].node == "d"


async def test_a_placed_pod_that_was_decided_by_another_process_is_decided_again(
    cluster: DevCluster,
) -> None:
    cluster.create(node("n", cpu="2"))
    cluster.create(pod("there", cpu="2", nodeName="n"))
    async with scheduler(cluster) as app:
        got = await explain(app, "there")
        assert (got.outcome, got.node, got.source) == ("bound", "n", "decided_again")
        # On its node there is capacity for it only if it does not count itself.
        assert got.feasible == 1
        assert "how it was decided is not known any more" in got.notes
        assert app.cache.get_pod(got.uid) is not None


RANK = '''"""Prefers nodes of a high rank."""

def score(pod, node):
    return int(node.labels["rank"])
'''


async def test_a_placed_pod_shows_the_scores_that_its_decision_had(cluster: DevCluster) -> None:
    cluster.create(config_map({"rank.star": RANK}))
    async with scheduler(cluster, from_config_map=True) as app:
        for name, rank in (("low", "1"), ("high", "20")):
            cluster.create(node(name, labels={"rank": rank}))
        await eventually(lambda: app.cache.node_count == 2)
        cluster.create(pod("first"))
        await eventually(lambda: app.cache.uid_of("default/first") is not None)
        decided = await explain(app, "first")
        assert [(one.node, one.place) for one in decided.ranking] == [("high", 1), ("low", 2)]
        high, low = decided.ranking
        assert high.scores["rank"] == Score(20, 20, 1, 20)
        assert low.scores["rank"] == Score(1, 1, 1, 1)
        assert high.total == sum(score.weighted for score in high.scores.values())
        assert (
            f"`high` has {high.total}, {high.total - low.total} more than `low`" in decided.why[0]
        )
        assert "rank favors it: +19" in decided.why
        assert (decided.ties, decided.decided_by) == ((), decided.revision)
        assert decided.decided_at in decided.headline
        # Later nodes change neither the scores nor why.
        for name in ("higher", "equal"):
            cluster.create(node(name, labels={"rank": "50"}))
        await eventually(lambda: app.cache.node_count == 4)
        later = await explain(app, "first")
        for field in ("ranking", "ties", "why", "decided_at", "decided_by", "node"):
            assert getattr(later, field) == getattr(decided, field), field
        assert any("verdicts are of the cluster as it is now" in note for note in later.notes)
        # Of equals, how many there were and what chose.
        cluster.create(pod("second"))
        await eventually(lambda: app.cache.uid_of("default/second") is not None)
        tied = await explain(app, "second")
        assert [one.node for one in tied.ranking] == [tied.node]
        (said,) = tied.ties
        assert said.startswith(
            f"2 nodes have the highest total, {tied.ranking[0].total}: chosen by"
        )
        assert tied.why == tied.ties


async def test_scores_that_were_not_kept_are_of_now(cluster: DevCluster) -> None:
    """A pod goes where it was nominated to, whatever the scores."""
    cluster.create(node("a"), node("b"))
    (made,) = cluster.create(pod("nominated"))
    status = {**made["status"], "nominatedNodeName": "b"}
    cluster.update("pods", {**made, "status": status}, subresource="status")
    async with scheduler(cluster) as app:
        await eventually(lambda: app.cache.uid_of("default/nominated") is not None)
        got = await explain(app, "nominated")
        assert (got.node, got.source, got.decided_at) == ("b", "decided", "")
        assert any(note.startswith("scores and verdicts are of") for note in got.notes)
        assert len(got.ranking) == 2


async def test_explanations_follow_the_cluster(cluster: DevCluster) -> None:
    """Each is of the cluster as it is, although what explains is kept."""
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="1"))
        cluster.create(pod("big", cpu="9"))
        await settled(app, 1)
        assert (await explain(app, "big")).nodes == 1
        for number in range(5):
            cluster.create(node(f"m{number}", cpu="1"))
            await eventually(lambda: app.cache.node_count >= number + 2)  # noqa: B023
            got = await explain(app, "big")
            fit = next(one for one in got.policies if one.policy == "NodeResourcesFit")
            assert (got.nodes, fit.rejects) == (number + 2, number + 2)
        cluster.delete("nodes", "m0")
        await eventually(lambda: app.cache.node_count == 5)
        assert (await explain(app, "big")).nodes == 5


async def test_policies_replaced_meanwhile_explain_the_next(cluster: DevCluster) -> None:
    cluster.create(config_map({"colour.star": POLICY}))
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(node("a", labels={"colour": "blue"}))
        cluster.create(pod("red", labels={"colour": "red"}))
        await settled(app, 1)
        first = await explain(app, "red")
        edit(cluster, {"colour.star": POLICY.replace("another", "the wrong")})
        await eventually(lambda: app.policies.rollout.active.bundle.revision != first.revision)
        await eventually(lambda: app.kernel.queue.counts()["active"] == 0)
        second = await explain(app, "red")
        assert second.revision == app.policies.rollout.active.bundle.revision
        wrong = next(one for one in second.policies if one.policy == "colour")
        assert wrong.groups[0].reason == "node(s) had the wrong colour"
        status, page = await app.surfaces.live.policies(ALL, {})
        assert status == 200
        assert isinstance(page, PoliciesPage)
        now, before = page.revisions
        assert (now.is_in_force, before.is_in_force) == (True, False)
        assert now.compared_with == before.revision
        assert [one.file for one in now.diff] == ["colour.star"]
        assert '+    return unresolvable("node(s) had the wrong colour")' in now.diff[0].lines
        stages = [stage.stage for stage in now.stages]
        assert stages[:5] == ["offered", "checked", "tested", "loaded", "tried"]
        assert page.files["colour.star"] == POLICY.replace("another", "the wrong")
        assert page.texts == {}
        _, page = await app.surfaces.live.policies(
            ALL, {"texts": f"{first.revision},3f2a9c41d07b,"}
        )
        assert isinstance(page, PoliciesPage)
        assert page.texts == {first.revision: {"colour.star": POLICY}}


_CANARY = """apiVersion: starsched.dev/v1
kind: PolicyRuntime
rollout:
  canary:
    steps:
    - {share: 50%, duration: 1s, decisions: 1000000}
  gates: {maxNewlyPending: 1000}
"""


async def test_a_pod_that_a_canary_decides_says_so(cluster: DevCluster) -> None:
    """It is explained by the policies in force, and those did not decide about it."""
    strict = 'def filter(pod, node):\n    return "not by me"\n'
    cluster.create(node("one", cpu="100"), config_map({"runtime.yaml": _CANARY}))
    async with scheduler(cluster, from_config_map=True) as app:
        edit(cluster, {"runtime.yaml": _CANARY, "strict.star": strict})
        await eventually(lambda: app.kernel.schedulers.canary is not None)
        candidate = app.policies.rollout.status.candidate
        cluster.create(*(pod(f"p{number}", cpu="1") for number in range(30)))
        await eventually(
            lambda: app.kernel.queue.counts()["unschedulable"] + app.cache.pod_count == 30
        )
        waiting = {one.pod.name for one in app.kernel.queue.waiting_pods()}
        assert 0 < len(waiting) < 30
        note = f"this pod is decided by the canary of revision {candidate}"
        answer = await explain(app, min(waiting))
        assert answer.message.startswith("0/1 nodes are available: 1 not by me.")
        assert any(one.startswith(note) for one in answer.notes), answer.notes
        assert any("it would go to one" in one for one in answer.notes)
        placed = next(f"p{n}" for n in range(30) if f"p{n}" not in waiting)
        answer = await explain(app, placed)
        assert not any("canary" in one for one in answer.notes)


async def test_a_rejected_edit_is_shown_with_its_problems(cluster: DevCluster) -> None:
    cluster.create(config_map({"colour.star": POLICY}))
    async with scheduler(cluster, from_config_map=True) as app:
        edit(cluster, {"colour.star": POLICY.replace("node.labels", "node.lables")})

        def is_rejected() -> bool:
            latest = next(iter(app.policies.rollout.timeline), None)
            return latest is not None and latest.result == "rejected"

        await eventually(is_rejected)
        _, page = await app.surfaces.live.policies(ALL, {})
        assert isinstance(page, PoliciesPage)
        rejected = page.revisions[0]
        assert (rejected.result, rejected.problems[0].file) == ("rejected", "colour.star")
        assert rejected.problems[0].line == 4
        assert rejected.diff


async def test_nodes_are_listed_with_what_is_requested(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        for name in ("a", "b"):
            cluster.create(node(name, cpu="4"))
        cluster.create(pod("p", cpu="1", nodeName="b"))
        await eventually(lambda: app.cache.pod_count == 1 and app.cache.node_count == 2)
        status, page = await app.surfaces.live.nodes(ALL, {"limit": "1"})
        assert status == 200
        assert isinstance(page, NodesPage)
        assert (page.total, page.next, [row.name for row in page.rows]) == (2, "1", ["a"])
        status, page = await app.surfaces.live.nodes(ALL, {"continue": "1"})
        assert isinstance(page, NodesPage)
        (row,) = page.rows
        assert (row.pods, row.resources["cpu"].requested) == (1, 1000)
        total = page.totals["cpu"]
        assert (total.free, total.largest_free) == (7000, 4000)


LICENCE = """
def permit(pod, group):
    return wait(60, "the licence", token = "NoLicence") if pod.labels.get("licensed") else None
"""


async def test_a_pod_in_permit_says_on_which_node_it_waits_and_for_what(
    cluster: DevCluster,
) -> None:
    cluster.create(config_map({"licence.star": LICENCE}))
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(node("n", cpu="4"))
        cluster.create(pod("waits", cpu="1", labels={"licensed": "yes"}))
        await eventually(lambda: len(app.kernel.permits) == 1)
        page = await queue(app)
        (row,) = page.rows
        assert (row.place, row.reason, row.node_helps) == ("permit", "NoLicence", False)
        assert (row.policies, row.nominated_node) == (("licence",), "n")
        assert "the licence" in row.message
        assert row.next_try_at is not None
        assert page.counts.in_permit == 1
        got = await explain(app, "waits")
        assert (got.outcome, got.node, got.reason) == ("waiting", "n", "NoLicence")
        assert "waits there" in got.headline
        assert got.feasible == 1


GANG = """
def group_of(pod):
    return gang("job", min_count = 2) if pod.labels.get("gang") else None

def permit(pod, group):
    return None
"""


async def test_a_pod_of_a_group_says_that_it_is_tried_with_others(cluster: DevCluster) -> None:
    cluster.create(config_map({"gang.star": GANG}))
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(node("n", cpu="1"))
        for name in ("a", "b"):
            cluster.create(pod(name, cpu="1", labels={"gang": "yes"}))
        await settled(app, 2)
        rows = (await queue(app)).rows
        assert sum(row.pods for row in rows) == 2
        assert {row.group for row in rows} == {"default/job"}
        got = await explain(app, "a")
        assert any("group `default/job`" in note for note in got.notes)


async def test_victims_elsewhere_are_not_named_to_those_who_may_not_see_them(
    cluster: DevCluster,
) -> None:
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="2"))
        victim = pod("weak", cpu="2", nodeName="n")
        victim["metadata"]["namespace"] = "other"
        cluster.create(victim)
        await eventually(lambda: app.cache.pod_count == 1)
        cluster.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 100,
            }
        )
        # The victim has no kubelet to end it, so the pod waits for its end.
        cluster.create(pod("urgent", cpu="2", priorityClassName="high"))
        await eventually(lambda: app.kernel.queue.nominator.node_of(_uid(app, "urgent")) == "n")
        everything = await explain(app, "urgent")
        assert everything.queue is not None
        assert everything.queue.nominated_node == "n"
        mine = await explain(app, "urgent", OfOneNamespace("default"))
        for answer, want in ((everything, "other/weak"), (mine, "(a pod of another namespace)")):
            assert answer.preemption is not None
            assert answer.preemption.outcome in ("would_evict", "evicting", "cannot_help")
            assert {victim.pod for victim in answer.preemption.victims} <= {want}
        assert not any(group.read for policy in mine.policies for group in policy.groups)


def _uid(app: App, name: str) -> str:
    queued = app.kernel.queue.named(f"default/{name}")
    return "" if queued is None else queued.uid


@pytest.mark.parametrize(
    ("namespace_name", "name", "want"),
    [
        pytest.param("default", "absent", "no pod `default/absent`", id="unknown"),
        pytest.param("default", "../etc", "want `/explain/NAMESPACE/POD`", id="path"),
        pytest.param("DE fault", "x", "want `/explain/NAMESPACE/POD`", id="characters"),
        pytest.param("default", "x" * 10_000, "want `/explain/NAMESPACE/POD`", id="long"),
        pytest.param("default", "foreign", "names the scheduler `other`", id="another scheduler's"),
    ],
)
async def test_what_is_not_there_is_said(
    cluster: DevCluster, namespace_name: str, name: str, want: str
) -> None:
    cluster.create(pod("foreign", schedulerName="other"))
    async with scheduler(cluster) as app:
        await eventually(lambda: app.kernel.cluster.pending_pod("default/foreign") is not None)
        status, answer = await app.surfaces.live.explain(ALL, {}, namespace_name, name)
        assert status == 404
        assert isinstance(answer, Refusal)
        assert want in answer.error


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "x"}, {"continue": "-1"}, {"place": "x"}]
)
async def test_a_query_that_makes_no_sense_is_refused(
    cluster: DevCluster, query: dict[str, str]
) -> None:
    async with scheduler(cluster) as app:
        status, answer = await app.surfaces.live.queue(ALL, query)
        assert status == 400
        assert isinstance(answer, Refusal)
        assert next(iter(query)) in answer.error


async def test_a_standby_says_who_leads(cluster: DevCluster) -> None:
    lease = LeaseSettings()
    async with (
        scheduler(cluster, lease=lease) as first,
        scheduler(cluster, lease=lease, wait=False) as second,
    ):
        assert first.leadership.elector is not None
        leader = first.leadership.elector.identity
        await eventually(
            lambda: (
                second.leadership.elector is not None and second.leadership.elector.holder == leader
            )
        )
        await eventually(second.watching.synced.is_set)
        status, answer = await second.surfaces.live.queue(ALL, {})
        assert status == 503
        assert isinstance(answer, Refusal)
        assert answer.leader is not None
        assert (answer.leader.identity, answer.leader.is_us) == (leader, False)
        assert (await queue(first)).leader.is_us
        status, _ = await second.surfaces.live.nodes(ALL, {})
        assert status == 200


async def test_too_many_at_once_are_refused_and_decisions_go_on(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="1"))
        for number in range(20):
            cluster.create(pod(f"big-{number}", cpu="9"))
        await settled(app, 20)
        asked = [
            app.surfaces.live.explain(ALL, {}, "default", f"big-{number}") for number in range(20)
        ]
        statuses = [status for status, _ in await asyncio.gather(*asked)]
        assert statuses.count(200) == 8
        assert statuses.count(429) == 12
        cluster.create(pod("small", cpu="1"))
        await eventually(lambda: app.cache.uid_of("default/small") is not None)


async def test_the_sandbox_starts_when_more_is_asked_than_was_decided(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        explainer = app.surfaces.live._explainer
        cluster.create(node("n", cpu="4"))
        cluster.create(pod("small", cpu="1"))
        await eventually(lambda: app.cache.uid_of("default/small") is not None)
        assert (await explain(app, "small")).node == "n"
        assert explainer._session is not None
        assert explainer._session.evaluator._started is None
        cluster.create(pod("big", cpu="9"))
        await settled(app, 1)
        assert (await explain(app, "big")).reason == "InsufficientResources"
        assert explainer._session.evaluator._started is not None


async def test_an_explanation_that_takes_too_long_ends(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        app.surfaces.live._explainer._limit_seconds = 0.0
        cluster.create(node("n", cpu="1"))
        cluster.create(pod("big", cpu="9"))
        await settled(app, 1)
        status, answer = await app.surfaces.live.explain(ALL, {}, "default", "big")
        assert status == 503
        assert isinstance(answer, Refusal)
        assert "time limit" in answer.error
        app.surfaces.live._explainer._limit_seconds = 5.0
        assert (await explain(app, "big")).reason == "InsufficientResources"


async def test_a_pod_that_is_deleted_while_it_is_explained(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="1"))
        cluster.create(pod("big", cpu="9"))
        await settled(app, 1)
        asked = asyncio.ensure_future(explain(app, "big"))
        await asyncio.sleep(0)
        cluster.delete("pods", "big", "default")
        await eventually(lambda: app.kernel.cluster.pending_pod("default/big") is None)
        got = await asked
        assert got.pod == "default/big"
        status, _ = await app.surfaces.live.explain(ALL, {}, "default", "big")
        assert status == 404


async def test_answers_are_json(cluster: DevCluster) -> None:
    """What programs read has the keys of the records."""
    async with scheduler(cluster) as app:
        cluster.create(node("n", cpu="1"))
        cluster.create(pod("big", cpu="9"))
        await settled(app, 1)
        encoded = msgspec.json.encode(await explain(app, "big"))
        again = msgspec.json.decode(encoded, type=PodAnswer)
        assert again.queue is not None
        assert again.queue.reason == "InsufficientResources"


async def test_answers_are_served(cluster: DevCluster) -> None:
    async with (
        scheduler(cluster, local_port=0) as app,
        aiohttp.ClientSession(f"http://127.0.0.1:{app.surfaces.endpoints.local_port}") as http,
    ):
        cluster.create(node("n", cpu="1"))
        cluster.create(pod("big", cpu="9"))
        await settled(app, 1)

        async def got(path: str) -> tuple[int, dict[str, Any]]:
            async with http.get(path) as response:
                return response.status, await response.json()

        status, page = await got("/queue?place=unschedulable&limit=5")
        assert (status, [row["example"] for row in page["rows"]]) == (200, ["default/big"])
        status, answer = await got("/explain/default/big?node=n")
        assert (status, answer["reason"]) == (200, "InsufficientResources")
        assert answer["asked"][0]["rejections"] == {"NodeResourcesFit": ["Insufficient cpu"]}
        assert answer["queue"]["row_id"] == page["rows"][0]["row_id"]
        status, answer = await got("/explain/default/big?node=x")
        assert (status, answer["error"]) == (404, "no node `x` is known here")
        status, answer = await got("/explain/default/%2e%2e%2f%00%ff")
        assert status == 404
        # A megabyte, as an address and as a body.
        async with http.get("/explain/default/" + "x" * (1 << 20)) as response:
            assert response.status == 400
        async with http.post("/queue", data=b"x" * (1 << 20)) as response:
            assert response.status == 405
        status, page = await got("/nodes")
        assert (status, page["total"]) == (200, 1)
        status, page = await got("/policies")
        assert (status, page["active"]["origin"]) == (200, "builtin")
        assert page["pod_groups"]["served"]
        statuses = await asyncio.gather(*(got(f"/explain/default/p{n}") for n in range(50)))
        assert {status for status, _ in statuses} == {404}


async def test_the_roll_out_is_told_without_the_pods_of_others(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduler(cluster, from_config_map=True) as app:
        status, page = await app.surfaces.live.rollout(ALL, {})
        assert status == 200
        assert isinstance(page, RolloutPage)
        assert page.headline == f"Nothing is being rolled out; {page.revision} is in force."
        assert (page.config_map, page.source) == (
            "starsched/policies-rollout", "configmap:starsched/policies",
        )  # fmt: skip
        shadow = ShadowMeasures(compared=3, by_namespace={"shop": 2, "secret": 1})
        running = RolloutStatus(candidate="b81c00aa7e21", result="running", shadow=shadow)
        monkeypatch.setattr(type(app.policies.rollout), "status", running)
        _, page = await app.surfaces.live.rollout(OfOneNamespace("shop"), {})
        assert isinstance(page, RolloutPage)
        assert page.shadow is not None
        assert (page.shadow.by_namespace, page.left_out) == ({"shop": 2}, 1)
        app.leadership.leading.clear()
        status, _refusal = await app.surfaces.live.rollout(ALL, {})
        assert status == 503


TEAMS = {"research": {"weight": 3}, "research/vision": {}, "web": {}}
# The value of a label has no slashes.
BY_LABEL = FAIR.replace('.get("queue")', '.get("queue", "").replace(".", "/")')


async def test_the_queues_of_a_tree_and_their_pods(cluster: DevCluster) -> None:
    cluster.create(node("n", cpu="4"), config_map(tree_files(BY_LABEL, queues=TEAMS)))
    async with scheduler(cluster, from_config_map=True, local_port=0) as app:
        for number in range(4):
            cluster.create(pod(f"w{number}", cpu="1", labels={"queue": "web"}))
        await eventually(lambda: app.cache.pod_count == 4)
        cluster.create(pod("v", cpu="3", labels={"queue": "research.vision"}))

        async def shares(viewer: Any = ALL, **query: str) -> SharesPage:
            status, page = await app.surfaces.live.shares(viewer, query)
            assert (status, type(page)) == (200, SharesPage)
            assert isinstance(page, SharesPage)
            return page

        async def has_a_pair() -> bool:
            return bool((await shares()).pairs)

        await eventually(has_a_pair)
        page = await shares()
        (pair,) = page.pairs
        assert (pair.starved, pair.borrowing, pair.amount) == ("research", "web", 3000)
        assert (page.policy, page.starved, page.borrowing) == ("fair", 2, 1)
        assert [row.path for row in (await shares(state="borrowing")).rows] == ["web"]
        status, refusal = await app.surfaces.live.shares(ALL, {"state": "calm"})
        assert (status, type(refusal)) == (400, Refusal)
        # Pods only of namespaces that may be listed; sums are of all.
        for viewer, count in ((ALL, 4), (OfOneNamespace("default"), 4), (OfOneNamespace("x"), 0)):
            status, answer = await app.surfaces.live.share(viewer, {}, "web")
            assert status == 200
            assert isinstance(answer, ShareAnswer)
            assert (len(answer.pods), answer.hidden_pods) == (count, 4 - count)
            assert answer.queue.resources["cpu"].allocated == 4000
        # Paths have slashes; what is no queue is said.
        url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}/queues"
        async with aiohttp.ClientSession() as http:
            async with http.get(f"{url}/research/vision") as response:
                found = await response.json()
                assert (response.status, found["queue"]["path"]) == (200, "research/vision")
                assert [one["pod"] for one in found["pods"]] == ["default/v"]
            async with http.get(f"{url}/research/smell") as response:
                found = await response.json()
                assert response.status == 404
                assert found["error"] == "no queue `research/smell` is known here"


async def test_what_queues_would_give_back_is_said_and_when(cluster: DevCluster) -> None:
    files = tree_files(SHARED, queues={"a": {}, "b": {}}, limits={"minRuntime": "5m"})
    cluster.create(node("n", cpu="4"), config_map(files))
    async with scheduler(cluster, from_config_map=True) as app:
        for number in range(4):
            cluster.create(pod(f"b{number}", cpu="1", labels={"queue": "b"}))
        await eventually(lambda: app.cache.pod_count == 4)
        cluster.create(pod("a0", cpu="1", labels={"queue": "a"}))
        await eventually(lambda: app.kernel.queue.counts()["unschedulable"] == 1)
        answer = await explain(app, "a0")
        preemption = answer.preemption
        assert preemption is not None
        assert (preemption.outcome, preemption.node) == ("would_evict_later", "n")
        assert 200 < preemption.in_seconds <= 300
        assert preemption.why_not[-1].reason == (
            f"in {preemption.in_seconds} s: they have not run for `minRuntime` (300 s)"
        )
        (victim,) = preemption.victims
        assert (victim.queue, victim.pod[:9]) == ("b", "default/b")
        assert preemption.rule.startswith("fair.star:")
        assert not app.kernel.reclaims.latest, "nothing has happened"
        hidden = (await explain(app, "a0", OfOneNamespace("default"))).preemption
        assert hidden is not None
        assert hidden.victims[0].pod == victim.pod
        app.kernel.check_invariants()


async def test_what_queues_would_give_back_for_a_group_is_said(cluster: DevCluster) -> None:
    files = tree_files(SHARED, queues={"a": {}, "b": {}}, limits={"minRuntime": "5m"})
    cluster.create(node("n", cpu="4"), config_map({**files, "config.yaml": CONFIG}))
    async with scheduler(cluster, from_config_map=True) as app:
        for number in range(4):
            cluster.create(pod(f"b{number}", cpu="1", labels={"queue": "b"}))
        await eventually(lambda: app.cache.pod_count == 4)
        labels = {"queue": "a", "group": "g", "min": "2"}
        for name in ("g0", "g1"):
            cluster.create(pod(name, cpu="1", labels=labels))
        await eventually(lambda: app.kernel.queue.counts()["unschedulable"] == 2)
        for name in ("g0", "g1"):
            preemption = (await explain(app, name)).preemption
            assert preemption is not None
            assert (preemption.outcome, preemption.pods) == ("would_evict_later", 2)
            assert [one.queue for one in preemption.victims] == ["b", "b"]
        app.kernel.check_invariants()


HOLDS = DRF.replace('.get("queue")', '.get("queue", "").replace(".", "/")')


async def test_a_pod_is_explained_by_what_its_queue_holds_it_for(cluster: DevCluster) -> None:
    limits = {"a": {"limit": {"cpu": 2}}, "a/x": {}, "a/y": {}, "b": {}}
    cluster.create(node("n", cpu="8"), config_map(tree_files(HOLDS, queues=limits)))
    async with scheduler(cluster, from_config_map=True, local_port=0) as app:
        for number in range(2):
            cluster.create(pod(f"y{number}", cpu="1", labels={"queue": "a.y"}))
        await eventually(lambda: app.cache.pod_count == 2)
        for name in ("x0", "x1", "x2"):
            cluster.create(pod(name, cpu="1", labels={"queue": "a.x"}))
            await eventually(lambda: bool(_uid(app, name)))  # noqa: B023  # it is awaited here
        await eventually(lambda: app.kernel.turns.hold_of(_uid(app, "x2")) is not None)
        first, third = await explain(app, "x0"), await explain(app, "x2")
        text = "queue `a/x`: is at its limit (short of 1 cpu at `a`)"
        assert (first.outcome, first.reason, first.source) == ("held", "QuotaReached", "queue")
        assert first.headline == f"default/x0 is held: {text}"
        assert third.headline == f"default/x2 is held behind default/x0: {text}"
        assert (first.node, first.node_helps, first.preemption) == ("", False, None)
        assert third.reason == "QuotaReached"
        assert third.turn is not None
        assert (third.turn.place, third.turn.pods, third.turn.behind) == (3, 3, "default/x0")
        assert third.turn.hold is not None
        (holder,) = third.turn.hold.holders
        assert (holder.queue, holder.allocated) == ("a/y", 2000)
        raised, freed = third.remedies
        assert raised.text.startswith("raise `limit` of queue `a` to 3 cpu (tree.yaml:")
        assert freed.text == "1 cpu less in use by queue `a`"
        # What is printed, and the page.
        shown = await asyncio.to_thread(_printed, app, "default/x2")
        assert shown[0].startswith("default/x2 is held by its queue; 1 of 1 nodes are feasible")
        assert "in queue `a/x` of `fair`: number 3 of 3, held behind default/x0" in shown
        assert "queue `a` has 2 cpu, and is short of 1 cpu" in shown
        assert "a/x - 0 - -" in shown
        assert "a/y 2 cpu - -" in shown
        url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}/explain/default/x2"
        async with (
            aiohttp.ClientSession(headers={"Accept": "text/html"}) as http,
            http.get(url) as response,
        ):
            page = await response.text()
        assert 'id="turn"' in page
        assert 'href="/queues/a/y"' in page
        # It is held no more once there is room.
        cluster.delete("pods", "y0", grace=0)
        await eventually(lambda: app.cache.uid_of("default/x0") is not None)
        after = await explain(app, "x0")
        assert after.outcome in ("bound", "placed")
        assert after.turn is not None
        assert (after.turn.queue, after.turn.place) == ("a/x", None)


def _printed(app: App, key: str) -> list[str]:
    server = f"--server=http://127.0.0.1:{app.surfaces.endpoints.local_port}"
    result = CliRunner().invoke(main, ["explain", key, server])
    assert result.exit_code == 3, result.output
    return [" ".join(line.split()) for line in result.output.splitlines()]


async def test_without_a_tree_of_queues_it_is_said_how_to_have_one(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        status, page = await app.surfaces.live.shares(ALL, {})
        assert status == 200
        assert isinstance(page, SharesPage)
        assert "kind: QueueTree" in page.next_step
        status, refusal = await app.surfaces.live.share(ALL, {}, "web")
        assert status == 404
        assert isinstance(refusal, Refusal)
        assert "docs/queues.md" in refusal.hint
