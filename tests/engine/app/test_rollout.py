"""Policies come into force when they pass everything, and a bad edit changes nothing."""

import asyncio
import base64
import math
import os
import signal
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from devkit.cluster import DevCluster, make_node, make_pod
from engine.app import App
from engine.io.binding.event_recorder import Reference
from engine.io.kube.client import ApiClient
from engine.io.leader_election import LeaseSettings
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.sandbox.process import SandboxEvaluator
from engine.rollout.assembly import make_stages
from engine.rollout.last_good import SUFFIX, ConfigMapStore, DirectoryStore, LastGood, Store
from engine.rollout.sources import Offer
from tests.engine.app.harness import (
    NAME,
    NAMESPACE,
    condition,
    edit,
    events,
    metric,
    namespace,
    node_of,
    placements,
    scheduler,
)
from tests.waiting import eventually, idle


def prefer(name: str) -> str:
    """A policy that prefers one node by its name."""
    return (
        '"""Prefers one node."""\n\ndef score(pod, node):\n'
        f'    return 100 if node.name == "{name}" else 0\n'
    )


def files(text: str, **more: str) -> dict[str, str]:
    return {"mine.star": text} | {key.replace("__", "."): value for key, value in more.items()}


#: What is said of policies, and when they are in force, is the same with and without a sandbox.
#: Tests in which it ends or is busy have one.
pytestmark = pytest.mark.usefixtures("no_sandboxes")


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("node-1"), make_node("node-2"))
        yield cluster


def rejections(cluster: DevCluster) -> list[str]:
    return [event["note"] for event in events(cluster, "PolicyRejected")]


@pytest.mark.slow("runs a whole scheduler")
async def test_no_stage_takes_less_than_no_time(cluster: DevCluster) -> None:
    """What a stage took was told less what the ones before had been rounded up by: -0.0 ms."""
    with capture_logs() as lines:
        async with scheduler(cluster, from_config_map=True, stages=make_stages()) as app:
            for number in range(8):
                before = app.policies.rollout.active.bundle.revision
                edit(cluster, {"mine.star": f'"""Edit {number}."""\n' + prefer("node-1")})
                await eventually(partial(_is_replaced, app, before))
    reported = [line for line in lines if line["event"] == "Policies in force"]
    took = [
        line[f"{stage}_ms"] for line in reported for stage in ("check", "test", "load", "trial")
    ]
    assert len(reported) == 8
    assert not [one for one in took if math.copysign(1, one) < 0]


def _is_replaced(app: App, revision: str) -> bool:
    return app.policies.rollout.active.bundle.revision != revision


@pytest.mark.slow("runs a whole scheduler")
async def test_an_edit_decides_the_next_pod(cluster: DevCluster) -> None:
    edit(cluster, files(prefer("node-1")))
    async with scheduler(cluster, from_config_map=True, stages=make_stages()) as app:
        cluster.create(make_pod("one"))
        await eventually(lambda: node_of(cluster, "one") == "node-1")
        before = app.policies.rollout.active.bundle.revision
        edit(cluster, files(prefer("node-2")))
        await eventually(lambda: app.policies.rollout.active.bundle.revision != before)
        cluster.create(make_pod("two"))
        await eventually(lambda: node_of(cluster, "two") == "node-2")
        await eventually(lambda: len(events(cluster, "PolicyAccepted")) == 2)
        after = app.policies.rollout.active.bundle.revision
        assert metric(app, "starsched_policy_revision_info", revision=after) == 1
        assert metric(app, "starsched_policy_reloads_total", result="accepted") == 1
        await eventually(lambda: len(events(cluster, "Scheduled")) == 2)
        revisions = {
            event["metadata"]["annotations"]["starsched.dev/policy-revision"]
            for event in events(cluster, "Scheduled")
        }
        assert revisions == {before, after}


_FILTER = "def filter(pod, node):\n    "

BAD_EDITS = {
    "does not parse": (files("def score(pod, node:\n"), "mine.star:1", "check"),
    "loops for ever": (
        files(_FILTER + "for i in range(1000000000):\n        pass\n    return None\n"),
        "mine.star",
        "trial",
    ),
    "allocates without end": (
        files(_FILTER + 'return None if len("a" * (1 << 36)) else "no"\n'),
        "mine.star",
        "trial",
    ),
    "recurses": (
        files("def _f(n):\n    return _f(n + 1)\n\n" + _FILTER + "return _f(0)\n"),
        "_f() calls itself",
        "check",
    ),
    "returns the wrong type": (files(_FILTER + "return 7\n"), "mine.star", "trial"),
    "gives a reason with the node's name in it": (
        files(_FILTER + 'return "not on " + node.name\n'),
        "want reasons that are constants",
        "trial",
    ),
    "scores out of range": (
        files("def score(pod, node):\n    return 101\n"),
        "mine.star",
        "trial",
    ),
    "scores in floats": (
        files("def score(pod, node):\n    return 1.5\n"),
        "mine.star:1:5: score() returned 1.5 for node `node-1`, want an int or None; hint: int(",
        "trial",
    ),
    "raises in one hook only": (
        files(prefer("node-1") + "\n" + _FILTER + 'fail("broken")\n'),
        "broken",
        "trial",
    ),
    # Until it was asked on trial too, it kept every pod out, and nothing took it back.
    "fails as a gate": (
        files("def pre_enqueue(pod):\n    return 7\n"),
        "mine.star:1:5: pre_enqueue() returned 7, want None or a reason",
        "trial",
    ),
    "fails as the order": (
        files("def queue_key(pod):\n    return None\n"),
        "mine.star:1:5: queue_key() returned None, want an int, a string or a tuple",
        "trial",
    ),
    # None of the next was asked on trial: the edit came into force, and its pods were not placed.
    "gives leave in the wrong words": (
        files("def permit(pod, group):\n    return 1\n"),
        "mine.star:1:5: permit() returned 1, want None, wait(...) or a reason",
        "trial",
    ),
    "fails for a group that is whole": (
        files(
            "def group_of(pod):\n    return gang(pod.namespace, min_count = 3)\n\n"
            "def permit(pod, group):\n"
            "    return wait(60) if group.waiting < 3 else fail(group.name)\n"
        ),
        "mine.star:5:47: permit() failed: default",
        "trial",
    ),
    "knows no group": (
        files("def group_of(pod):\n    return 1\n\ndef permit(pod, group):\n    return None\n"),
        "mine.star:1:5: group_of() returned 1, want None or gang(...)",
        "trial",
    ),
    "orders by a group that fails": (
        files("def queue_key(pod, group):\n    return None\n"),
        "mine.star:1:5: queue_key() returned None, want an int, a string or a tuple",
        "trial",
    ),
    "cannot tell victims apart": (
        files("def victim_key(pod):\n    return 1.5\n"),
        "mine.star:1:5: victim_key() returned 1.5, want None, an int, a string or a tuple",
        "trial",
    ),
    "cannot tell candidates apart": (
        files("def candidate_key(node, victims, violations):\n    return 1.5\n"),
        "mine.star:1:5: candidate_key() returned 1.5, want an int, a string or a tuple",
        "trial",
    ),
    "cannot tell nodes apart that never tied": (
        files(prefer("node-1") + "\ndef tie_key(pod, node):\n    return None\n"),
        "tie_key() returned None, want an int, a string or a tuple",
        "trial",
    ),
    "names a field that is not there": (
        files("def score(pod, node):\n    return len(node.lables)\n"),
        "did you mean `labels`?",
        "check",
    ),
    "a test fails": (
        files(
            prefer("node-1"),
            mine_test__star=(
                'load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")\n\n'
                "def test_it():\n"
                '    nodes = cluster(make_node("a"))\n'
                '    asserts.scores(nodes, make_pod(), {"a": 55})\n'
            ),
        ),
        "mine_test.star:5",
        "test",
    ),
    "a profile with an unknown field": (
        files(
            prefer("node-1"),
            profile__yaml=(
                "apiVersion: kubescheduler.config.k8s.io/v1\n"
                "kind: KubeSchedulerConfiguration\n"
                "parallelsim: 3\n"
            ),
        ),
        "profile.yaml:3",
        "check",
    ),
    "more than fits a ConfigMap": (files("# " + "x" * (1 << 20)), "1,048,576 bytes", "check"),
}

#: Those that end a sandbox.
ENDED = {"loops for ever", "allocates without end"}


@pytest.mark.slow("runs a whole scheduler")
@pytest.mark.parametrize("name", BAD_EDITS)
async def test_a_bad_edit_changes_nothing_and_says_why(cluster: DevCluster, name: str) -> None:
    bad, want, stage = BAD_EDITS[name]
    good = files(prefer("node-1"))
    edit(cluster, good)
    stages = make_stages() if name in ENDED else None
    async with scheduler(cluster, from_config_map=True, stages=stages) as app:
        revision = app.policies.rollout.active.bundle.revision
        if len(bad["mine.star"]) < 1 << 20:
            edit(cluster, bad)
        else:  # the API server would not take it
            app.policies.rollout.inbox.add(offer_of(bad))
        await eventually(lambda: app.policies.rollout.describe()["last_rejected"], seconds=40)
        rejected = app.policies.rollout.describe()["last_rejected"]
        assert rejected["stage"] == stage, rejected
        assert want in rejected["note"], rejected
        assert app.policies.rollout.active.bundle.revision == revision
        assert metric(app, "starsched_policy_reloads_total", result="rejected") == 1
        assert metric(app, "starsched_policy_last_reload_successful") == 0
        await eventually(lambda: len(rejections(cluster)) == 1)
        assert want in rejections(cluster)[0]
        cluster.create(make_pod("next"))
        await eventually(lambda: node_of(cluster, "next") == "node-1")
        # The edit taken back, all is well again.
        edit(cluster, good | {"README.md": "the same policies, told again"})
        await eventually(lambda: app.policies.rollout.describe()["last_rejected"] is None)


def offer_of(texts: dict[str, str]) -> Offer:
    return Offer(texts, "", Reference("v1", "ConfigMap", NAMESPACE, NAME, "uid"))


@pytest.mark.slow("runs a whole scheduler")
async def test_a_policy_that_is_no_text_is_not_passed_over(cluster: DevCluster) -> None:
    """kubectl puts a file that is not UTF-8 under `binaryData`, where nobody looked for it."""
    good = files(prefer("node-1"))
    edit(cluster, good)
    async with scheduler(cluster, from_config_map=True) as app:
        revision = app.policies.rollout.active.bundle.revision
        latin = base64.b64encode("# für alle\n".encode("latin-1")).decode()
        found = cluster.get("configmaps", NAME, NAMESPACE)
        assert found is not None
        cluster.update(
            "configmaps", {**found, "data": {}, "binaryData": {"mine.star": latin, "logo.png": ""}}
        )
        await eventually(lambda: len(rejections(cluster)) == 1)
        want = "mine.star: want UTF-8 text under `data`, got `binaryData`: 0xfc at offset 3"
        assert rejections(cluster) == [want]
        assert app.policies.rollout.active.bundle.revision == revision


PROFILE_OF_A_TEAM = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: {}
- schedulerName: starsched
"""


@pytest.mark.slow("runs a whole scheduler")
async def test_an_edit_that_leaves_pods_without_a_profile_says_how_many(
    cluster: DevCluster,
) -> None:
    """A typo in one line: 51 pods left the queue, its metrics and alerts, and nothing was said."""
    edit(cluster, {"profile.yaml": PROFILE_OF_A_TEAM.format("team")})
    async with scheduler(cluster, from_config_map=True) as app:
        for number in range(7):
            cluster.create(make_pod(f"waits-{number}", cpu="99", scheduler_name="team"))
        await eventually(lambda: len(app.kernel.queue.waiting_pods()) == 7)
        edit(cluster, {"profile.yaml": PROFILE_OF_A_TEAM.format("taem")})
        await eventually(lambda: metric(app, "starsched_policy_losses", kind="without_profile"))
        name = "starsched_pods_without_profile"
        await eventually(lambda: metric(app, name, scheduler_name="team") == 7)
        await eventually(lambda: len(events(cluster, "PolicyAccepted")) == 2)
        told = max(events(cluster, "PolicyAccepted"), key=lambda one: len(one["note"]))
        assert told["type"] == "Warning"
        assert "no profile has the schedulerName `team` any more, which 7 pods name" in told["note"]


@pytest.mark.slow("runs a whole scheduler")
async def test_what_is_probably_not_meant_is_reported_with_the_acceptance(
    cluster: DevCluster,
) -> None:
    """A policy under a key without `.star` decided nothing, and the event said "in force"."""
    edit(cluster, {"mine": prefer("node-1")})
    async with scheduler(cluster, from_config_map=True, stages=make_stages()) as app:
        await eventually(lambda: len(events(cluster, "PolicyAccepted")) == 1)
        revision = app.policies.rollout.active.bundle.revision
        [reported] = [event["note"] for event in events(cluster, "PolicyAccepted")]
        assert reported.startswith(
            f"revision {revision} is in force (1 files); warning: mine: not a "
        )
        [warning] = app.policies.rollout.describe()["active"]["warnings"]
        assert (warning["file"], warning["line"]) == ("mine", 0)
        assert warning["message"].startswith("not a policy file: want `*.star` or one of ")
        edit(cluster, files(prefer("node-1")))
        await eventually(lambda: len(events(cluster, "PolicyAccepted")) == 2)
        active = app.policies.rollout.describe()["active"]
        assert active["warnings"] == []
        assert active["sandbox"]["system_calls"], "what its sandbox reported"
        assert sum("warning" in event["note"] for event in events(cluster, "PolicyAccepted")) == 1


@pytest.mark.slow("runs a whole scheduler")
async def test_a_byte_order_mark_is_no_part_of_a_policy(cluster: DevCluster) -> None:
    edit(cluster, files("\ufeff" + prefer("node-2")))
    async with scheduler(cluster, from_config_map=True):
        cluster.create(make_pod("one"))
        await eventually(lambda: node_of(cluster, "one") == "node-2")
        assert rejections(cluster) == []


@pytest.mark.slow("runs a whole scheduler")
async def test_a_deleted_configmap_leaves_what_is_in_force(cluster: DevCluster) -> None:
    edit(cluster, files(prefer("node-1")))
    async with scheduler(cluster, from_config_map=True) as app:
        revision = app.policies.rollout.active.bundle.revision
        cluster.delete("configmaps", NAME, NAMESPACE)
        await eventually(lambda: app.policies.rollout.describe()["source"]["gone"])
        await eventually(lambda: events(cluster, "PolicySourceGone"))
        assert app.policies.rollout.active.bundle.revision == revision
        cluster.create(make_pod("one"))
        await eventually(lambda: node_of(cluster, "one") == "node-1")
        edit(cluster, files(prefer("node-2")))
        await eventually(lambda: app.policies.rollout.active.bundle.revision != revision)
        assert not app.policies.rollout.describe()["source"]["gone"]


@pytest.mark.slow("runs a whole scheduler")
async def test_an_empty_configmap_means_the_builtin_policies(cluster: DevCluster) -> None:
    edit(cluster, files(prefer("node-1")))
    async with scheduler(cluster, from_config_map=True) as app:
        revision = app.policies.rollout.active.bundle.revision
        edit(cluster, {})
        await eventually(lambda: app.policies.rollout.active.bundle.revision != revision)
        assert app.policies.rollout.describe()["active"]["files"] == []


@pytest.mark.usefixtures("gates_reported_soon")
@pytest.mark.parametrize("is_there", [True, False], ids=["bad", "missing"])
async def test_without_usable_policies_pods_wait_and_say_what_for(
    cluster: DevCluster, is_there: bool
) -> None:
    """The built-in ones decided, for a reason that only the log gave: pods were on wrong nodes."""
    if is_there:
        edit(cluster, files("def score(pod, node:\n"))
    cluster.create(make_pod("early"))
    async with scheduler(cluster, from_config_map=True) as app:
        # 1. Nothing is decided, and every place where one looks says why.
        assert app.policies.rollout.describe()["active"]["origin"] == "waiting"
        cluster.create(make_pod("late"))
        why = "no policies are in force from configmap:starsched/policies"
        for name in ("early", "late"):
            await answer(cluster, name, f"gated by policy `wait_for_policies`: {why}")
        await eventually(lambda: events(cluster, "NoPolicies"))
        (event,) = events(cluster, "NoPolicies")
        assert event["regarding"]["name"] == NAME
        assert event["note"].startswith(why)
        assert metric(app, "starsched_policy_origin", origin="waiting") == 1
        unready = app.policies.rollout.waits_for()
        assert unready is not None
        assert ("p.star" if is_there else "do not exist") in unready or "mine.star" in unready
        assert node_of(cluster, "early") == node_of(cluster, "late") == ""
        # 2. It ends by itself, with no roll-back to it.
        edit(cluster, files(prefer("node-2")))
        for name in ("early", "late"):
            await eventually(lambda name=name: node_of(cluster, name) == "node-2")  # type: ignore[misc]
        assert app.policies.rollout.waits_for() is None
        assert not app.policies.rollout.describe()["active"]["on_probation"]
        assert metric(app, "starsched_policy_origin", origin="source") == 1


async def test_without_a_configmap_the_builtin_policies_run_if_that_is_wanted(
    cluster: DevCluster,
) -> None:
    async with scheduler(cluster, from_config_map=True, when_no_policies="builtin") as app:
        assert app.policies.rollout.describe()["active"]["origin"] == "builtin"
        assert app.policies.rollout.waits_for() is None
        cluster.create(make_pod("one"))
        await eventually(lambda: node_of(cluster, "one"))


@pytest.mark.parametrize("kind", ["directory", "configmap"])
async def test_the_last_good_policies_survive_a_restart(
    cluster: DevCluster, tmp_path: Path, kind: str
) -> None:
    def store(client: ApiClient) -> Store:
        if kind == "directory":
            return DirectoryStore(tmp_path)
        return ConfigMapStore(client, NAMESPACE, NAME + SUFFIX)

    edit(cluster, files(prefer("node-1")))
    async with scheduler(cluster, from_config_map=True, store=store) as app:
        revision = app.policies.rollout.active.bundle.revision
        await eventually(lambda: app.policies.rollout.describe()["last_good"] == revision)
    edit(cluster, files("def score(pod, node:\n"))
    async with scheduler(cluster, from_config_map=True, store=store) as app:
        assert app.policies.rollout.active.bundle.revision == revision
        assert app.policies.rollout.describe()["active"]["origin"] == "last-good"
        await eventually(lambda: rejections(cluster))
        cluster.create(make_pod("one"))
        await eventually(lambda: node_of(cluster, "one") == "node-1")


async def test_a_bad_start_without_last_good_runs_the_builtin_policies_if_that_is_wanted(
    cluster: DevCluster,
) -> None:
    edit(cluster, files("def score(pod, node:\n"))
    async with scheduler(cluster, from_config_map=True, when_no_policies="builtin") as app:
        assert app.policies.rollout.describe()["active"]["origin"] == "builtin"
        cluster.create(make_pod("one"))
        await eventually(lambda: node_of(cluster, "one"))
        await eventually(lambda: rejections(cluster))


@pytest.mark.usefixtures("gates_reported_soon")
@pytest.mark.slow("runs a whole scheduler")
@pytest.mark.parametrize("when_none", ["wait", "builtin"])
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_bad_start_next_to_kube_scheduler_leaves_its_pods_alone(
    cluster: DevCluster, is_there: bool, when_none: str
) -> None:
    """Two schedulers placed the same pods where the first policies were bad, or were missing."""
    if is_there:
        profile = "profiles: [{schedulerName: ours}, {schedulerName: others}]"
        head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        edit(cluster, {"bad.star": "def score(pod, node:\n", "profile.yaml": head + profile})
    words = {"last_resort": "ours", "when_no_policies": when_none}
    async with scheduler(cluster, from_config_map=True, **words) as app:
        if when_none == "wait":
            assert app.policies.rollout.describe()["active"]["origin"] == "waiting"
            cluster.create(make_pod("theirs"), make_pod("ours", scheduler_name="ours"))
            await eventually(lambda: condition(cluster, "ours"))
            assert not condition(cluster, "theirs")
            return
        assert app.policies.rollout.describe()["active"]["origin"] == "builtin"
        cluster.create(make_pod("theirs"))
        names = ["ours", "others"] if is_there else ["ours"]
        for name in names:
            cluster.create(make_pod(name, scheduler_name=name))
        for name in names:
            await eventually(lambda name=name: node_of(cluster, name))  # type: ignore[misc]
        assert node_of(cluster, "theirs") == ""
        # And what is right is in force as soon as it is there.
        edit(cluster, files(prefer("node-2")))
        await eventually(lambda: node_of(cluster, "theirs") == "node-2")


@pytest.mark.parametrize("has_last_good", [True, False])
async def test_a_fault_of_ours_in_examining_policies_does_not_end_the_start(
    cluster: DevCluster, tmp_path: Path, has_last_good: bool
) -> None:
    """A configuration whose text the reader of YAML failed on ended every start, for ever."""
    edit(cluster, files(prefer("node-1")))
    stages = make_stages()

    def build(texts: Mapping[str, str]) -> Bundle:
        if texts:
            raise KeyError("a fault")
        return build_bundle(texts)

    store = DirectoryStore(tmp_path)
    if has_last_good:
        await store.save(LastGood("abc", files(prefer("node-2"))))
    async with scheduler(
        cluster,
        from_config_map=True,
        store=lambda _client: store,
        stages=stages.building(build),
    ) as app:
        assert app.policies.rollout.describe()["active"]["origin"] == "waiting"
        await eventually(lambda: rejections(cluster))
        assert rejections(cluster)[0] == "internal error: KeyError: 'a fault'"


async def test_a_start_that_fails_its_trial_goes_back_to_the_last_good(
    cluster: DevCluster, tmp_path: Path
) -> None:
    def store(_client: ApiClient) -> Store:
        return DirectoryStore(tmp_path)

    edit(cluster, files(prefer("node-1")))
    async with scheduler(cluster, from_config_map=True, store=store) as app:
        good = app.policies.rollout.active.bundle.revision
        await eventually(lambda: app.policies.rollout.describe()["last_good"] == good)
    edit(cluster, files(_FILTER + "return 7\n"))
    async with scheduler(cluster, from_config_map=True, store=store) as app:
        await eventually(lambda: app.policies.rollout.active.bundle.revision == good)
        await eventually(lambda: rejections(cluster))


# Fails only for pods that the trial does not see: a label that comes later.
_TRAP = (
    prefer("node-1")
    + "\n"
    + _FILTER
    + 'if pod.labels.get("trap"):\n        fail("caught")\n    return None\n'
)
_RUNTIME = (
    "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n"
    "fallback:\n  errorRate: 0.1\n  minDecisions: 5\n  window: 1m\n"
)


@pytest.mark.slow("runs a whole scheduler")
async def test_a_revision_that_fails_in_force_is_rolled_back_and_not_tried_again(
    cluster: DevCluster, tmp_path: Path
) -> None:
    def store(_client: ApiClient) -> Store:
        return DirectoryStore(tmp_path)

    edit(cluster, files(prefer("node-2"), runtime__yaml=_RUNTIME))
    trap = files(_TRAP, runtime__yaml=_RUNTIME)
    async with scheduler(cluster, from_config_map=True, store=store) as app:
        good = app.policies.rollout.active.bundle.revision
        edit(cluster, trap)
        await eventually(lambda: app.policies.rollout.active.bundle.revision != good)
        bad = app.policies.rollout.active.bundle.revision
        cluster.create(*(make_pod(f"t{i}", labels={"trap": "1"}) for i in range(6)))
        await eventually(lambda: app.policies.rollout.active.bundle.revision == good)
        await eventually(lambda: events(cluster, "PolicyRolledBack"))
        (event,) = events(cluster, "PolicyRolledBack")
        assert f"revision {bad} was rolled back" in event["note"]
        await eventually(lambda: len(placements(cluster)) == 6)
        assert set(placements(cluster).values()) == {"node-2"}
        assert metric(app, "starsched_policy_reloads_total", result="rolled_back") == 1
    # Not after a restart either.
    async with scheduler(cluster, from_config_map=True, store=store) as app:
        assert app.policies.rollout.active.bundle.revision == good
        await eventually(lambda: app.policies.rollout.describe()["last_rejected"])
        assert app.policies.rollout.describe()["last_rejected"]["stage"] == "rolled_back"


@pytest.mark.slow("runs a whole scheduler")
async def test_a_roll_back_counts_nothing_again(cluster: DevCluster) -> None:
    """Restarts of sandboxes of the revision that came back were added a second time, and an alert
    fired; verdicts were those at its end, and so fewer than before.
    """
    edit(cluster, files(prefer("node-2"), runtime__yaml=_RUNTIME))
    async with scheduler(cluster, from_config_map=True, stages=make_stages()) as app:
        await eventually(
            lambda: app.policies.rollout.describe()["last_good"], what="the trial to end"
        )
        good = app.policies.rollout.active
        assert isinstance(good.evaluator, SandboxEvaluator)
        assert good.evaluator.pid is not None
        os.kill(good.evaluator.pid, signal.SIGKILL)
        cluster.create(make_pod("before"))
        await eventually(lambda: node_of(cluster, "before"))
        assert metric(app, "starsched_sandbox_restarts_total") == 1
        verdicts = _verdicts(app)
        edit(cluster, files(_TRAP, runtime__yaml=_RUNTIME))
        await eventually(lambda: app.policies.rollout.active is not good)
        assert metric(app, "starsched_sandbox_restarts_total") == 1
        assert _verdicts(app) >= verdicts
        cluster.create(*(make_pod(f"t{i}", labels={"trap": "1"}) for i in range(6)))
        bad = app.policies.rollout.active
        await eventually(lambda: bad.scheduler.memo.asked > 0)
        verdicts = _verdicts(app)
        await eventually(lambda: app.policies.rollout.active is good)
        assert _verdicts(app) >= verdicts
        assert metric(app, "starsched_sandbox_restarts_total") == 1


def _verdicts(app: App) -> float:
    sources = ("evaluated", "reused")
    return sum(metric(app, "starsched_verdicts_total", source=source) for source in sources)


@pytest.mark.parametrize(
    "hook",
    [
        pytest.param("def pre_enqueue(pod):\n    return None if {ok} else fail('x')\n", id="gate"),
        pytest.param("def queue_key(pod):\n    return 1 if {ok} else fail('x')\n", id="order"),
        pytest.param(
            "def permit(pod, group):\n    return None if {ok} else fail('x')\n", id="leave"
        ),
    ],
)
async def test_what_is_evaluated_outside_of_a_decision_counts_as_one_when_it_fails(
    cluster: DevCluster, hook: str
) -> None:
    """Pods that a gate failed for were never tried, so nothing was counted against the edit.

    Those that a leave failed for were: their decisions had gone well.
    """
    edit(cluster, files(prefer("node-2"), runtime__yaml=_RUNTIME))
    queues = hook.format(ok='pod.labels.get("trap") == None')
    trap = files(f"{prefer('node-1')}\n{queues}", runtime__yaml=_RUNTIME)
    async with scheduler(cluster, from_config_map=True) as app:
        good = app.policies.rollout.active.bundle.revision
        edit(cluster, trap)
        await eventually(lambda: app.policies.rollout.active.bundle.revision != good)
        cluster.create(*(make_pod(f"t{i}", labels={"trap": "1"}) for i in range(6)))
        await eventually(lambda: app.policies.rollout.active.bundle.revision == good)
        await eventually(lambda: events(cluster, "PolicyRolledBack"))
        await eventually(lambda: len(placements(cluster)) == 6)


async def test_preemption_that_fails_counts_as_a_decision_that_failed(cluster: DevCluster) -> None:
    """The pod fitted nowhere, as was said, and whom to evict for it could not be."""
    edit(cluster, files(prefer("node-2"), runtime__yaml=_RUNTIME))
    cluster.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 100,
        }
    )
    order = "def victim_key(pod):\n    return 1 if pod.labels.get('trap') == None else fail('x')\n"
    async with scheduler(cluster, from_config_map=True) as app:
        good = app.policies.rollout.active.bundle.revision
        edit(cluster, files(f"{prefer('node-1')}\n{order}", runtime__yaml=_RUNTIME))
        await eventually(lambda: app.policies.rollout.active.bundle.revision != good)
        cluster.create(*(make_pod(f"v{i}", cpu="5", labels={"trap": "1"}) for i in range(2)))
        await eventually(lambda: len(placements(cluster)) == 2)
        cluster.create(*(make_pod(f"u{i}", cpu="5", priorityClassName="high") for i in range(6)))
        await eventually(lambda: app.policies.rollout.active.bundle.revision == good)
        await eventually(lambda: events(cluster, "PolicyRolledBack"))
        await eventually(lambda: events(cluster, "Preempted"))


async def test_a_failing_policy_costs_its_pods_an_attempt_and_is_named(
    cluster: DevCluster,
) -> None:
    edit(cluster, files(_TRAP))
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(make_pod("caught", labels={"trap": "1"}), make_pod("free"))
        await eventually(lambda: node_of(cluster, "free"))
        await eventually(lambda: condition(cluster, "caught").get("reason") == "SchedulerError")
        assert "mine.star:" in condition(cluster, "caught")["message"]
        assert "caught" in condition(cluster, "caught")["message"]
        labels = {"policy": "mine", "hook": "filter", "kind": "error"}
        assert metric(app, "starsched_policy_failures_total", **labels) >= 1


async def answer(cluster: DevCluster, name: str, want: str) -> None:
    await eventually(lambda: condition(cluster, name).get("message") == want)


@pytest.mark.usefixtures("gates_reported_soon")
async def test_a_pod_gated_by_a_policy_says_so(cluster: DevCluster) -> None:
    """The API server tells of its own gates only; a silent wait would look like a lost pod."""
    gate = (
        'def pre_enqueue(pod):\n    return None if pod.labels.get("team") else "no team is named"\n'
    )
    edit(cluster, files(gate))
    cluster.create(make_pod("early"))
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(make_pod("late"), make_pod("fine", labels={"team": "a"}))
        await eventually(lambda: node_of(cluster, "fine"))
        want = "gated by policy `mine`: no team is named"
        for name in ("early", "late"):
            await answer(cluster, name, want)
            assert condition(cluster, name)["reason"] == "SchedulingGated"
        await eventually(lambda: len(events(cluster, "FailedScheduling")) == 2)
        assert metric(app, "scheduler_pending_pods", queue="gated") == 2
        pod = cluster.get("pods", "late")
        assert pod is not None
        metadata = pod["metadata"] | {"labels": {"team": "b"}}
        cluster.update("pods", {**pod, "metadata": metadata})
        await eventually(lambda: node_of(cluster, "late"))


async def test_a_gate_that_opens_at_once_is_not_reported(cluster: DevCluster) -> None:
    """The pods of a group wait for each other for a moment: so many requests say nothing."""
    gate = 'def pre_enqueue(pod):\n    return None if pod.labels.get("team") else "no team"\n'
    edit(cluster, files(gate))
    async with scheduler(cluster, from_config_map=True) as app:
        pod, _ = cluster.create(make_pod("let-in"), make_pod("kept-out"))
        await eventually(lambda: metric(app, "scheduler_pending_pods", queue="gated") == 2)
        cluster.update("pods", {**pod, "metadata": pod["metadata"] | {"labels": {"team": "b"}}})
        await eventually(lambda: node_of(cluster, "let-in"))
        await eventually(lambda: events(cluster, "FailedScheduling"))
        (reported,) = events(cluster, "FailedScheduling")
        assert reported["regarding"]["name"] == "kept-out"


async def test_new_profiles_take_over_pods_that_wait_for_them(cluster: DevCluster) -> None:
    edit(cluster, {})
    async with scheduler(cluster, from_config_map=True):
        cluster.create(make_pod("packed", scheduler_name="packer"))
        await idle()
        assert node_of(cluster, "packed") == ""
        edit(
            cluster,
            {
                "profile.yaml": "apiVersion: kubescheduler.config.k8s.io/v1\n"
                "kind: KubeSchedulerConfiguration\n"
                "profiles:\n- schedulerName: packer\n"
            },
        )
        await eventually(lambda: node_of(cluster, "packed"))


async def in_force_after(app: App, revision: str) -> None:
    await eventually(lambda: app.policies.rollout.active.bundle.revision != revision)


@pytest.mark.slow("reloads under load")
async def test_reloads_under_load_lose_no_pod_and_bind_none_twice(cluster: DevCluster) -> None:
    """Decisions go on while candidates are built, tested, tried and switched to."""
    pods = reloads = 0
    cluster.create(*(make_node(f"more-{i}", cpu="64", pods=500) for i in range(4)))
    edit(cluster, files(prefer("more-0")))
    async with scheduler(cluster, from_config_map=True, stages=make_stages()) as app:

        async def create() -> None:
            nonlocal pods
            while reloads < 5:
                names = [f"web-{pods + i}" for i in range(3)]
                pods += len(names)
                cluster.create(*(make_pod(name, cpu="10m", memory="1Mi") for name in names))
                await eventually(partial(node_of, cluster, names[0]))

        def in_force_is_not(revision: str) -> bool:
            return app.policies.rollout.active.bundle.revision != revision

        creating = asyncio.ensure_future(create())
        while not creating.done():
            revision = app.policies.rollout.active.bundle.revision
            reloads += 1
            edit(cluster, files(prefer(f"more-{reloads % 4}") + f"# {reloads}\n"))
            await eventually(partial(in_force_is_not, revision))
        await creating
        await eventually(lambda: len(placements(cluster)) == pods)
        assert cluster.requests["create", "pods/binding"] == pods
        await eventually(lambda: len(events(cluster, "Scheduled")) == pods)


@pytest.mark.slow("runs two whole schedulers")
async def test_a_standby_follows_what_the_leader_rolled_back(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """It judged the candidate for itself, without load; the leader knew better."""

    def store(client: ApiClient) -> Store:
        return ConfigMapStore(client, NAMESPACE, NAME + SUFFIX)

    lease = LeaseSettings(lease_duration=30.0, renew_deadline=20.0, retry_period=0.1)
    edit(cluster, files(prefer("node-2"), runtime__yaml=_RUNTIME))
    common: dict[str, Any] = {"from_config_map": True, "store": store, "lease": lease}
    async with (
        scheduler(cluster, **common) as leader,
        scheduler(cluster, **common, wait=False) as standby,
    ):
        await eventually(standby.watching.synced.is_set)
        good = leader.policies.rollout.active.bundle.revision
        edit(cluster, files(_TRAP, runtime__yaml=_RUNTIME))
        await eventually(lambda: leader.policies.rollout.active.bundle.revision != good)
        await eventually(lambda: standby.policies.rollout.active.bundle.revision != good)
        bad = standby.policies.rollout.active.bundle.revision
        cluster.create(*(make_pod(f"t{i}", labels={"trap": "1"}) for i in range(6)))
        await eventually(lambda: leader.policies.rollout.active.bundle.revision == good)
        await eventually(lambda: len(placements(cluster)) == 6)
        assert standby.policies.rollout.active.bundle.revision == bad
        leader.request_stop()
        await eventually(standby.leadership.leading.is_set)
        assert standby.policies.rollout.active.bundle.revision == good
        assert bad in standby.policies.rollout.describe()["rolled_back"]


async def test_a_new_leader_reports_what_it_rejected_as_a_standby(cluster: DevCluster) -> None:
    lease = LeaseSettings(lease_duration=30.0, renew_deadline=20.0, retry_period=0.1)
    edit(cluster, files("def score(pod, node:\n"))
    common: dict[str, Any] = {"from_config_map": True, "lease": lease}
    async with (
        scheduler(cluster, **common) as leader,
        scheduler(cluster, **common, wait=False) as standby,
    ):
        await eventually(standby.watching.synced.is_set)
        await eventually(lambda: rejections(cluster))
        for event in events(cluster, "PolicyRejected"):
            cluster.delete("events", event["metadata"]["name"], NAMESPACE)
        leader.request_stop()
        await eventually(standby.leadership.leading.is_set)
        await eventually(lambda: rejections(cluster))


async def test_a_pod_that_old_policies_rejected_is_tried_under_the_new_ones(
    cluster: DevCluster,
) -> None:
    edit(cluster, files(_FILTER + 'return "no" if pod.labels.get("app") == "web" else None\n'))
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(make_pod("web", labels={"app": "web"}))
        message = "0/2 nodes are available: 2 no."
        await eventually(lambda: condition(cluster, "web").get("message", "").startswith(message))
        assert app.kernel.queue.describe("default/web")["rejectors"] == ["mine"]
        edit(cluster, files(_FILTER + "return None\n"))
        await eventually(lambda: node_of(cluster, "web"))


_WANTS_LABEL = 'return None if node.labels.get("ready") == "yes" else "not ready"\n'


@pytest.mark.parametrize("name", ["mine.star", "node_resources_fit.star"])
async def test_a_pod_is_tried_again_when_what_a_policy_reads_changes(
    cluster: DevCluster, name: str
) -> None:
    """Also where the policy has the name of a built-in one, which reads other things."""
    edit(cluster, {name: _FILTER + _WANTS_LABEL})
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(make_pod("web"))
        await eventually(lambda: app.kernel.queue.counts()["unschedulable"] == 1)
        # A taint is not what it reads.
        cluster.update("nodes", make_node("node-2", taints=[{"key": "x", "effect": "NoExecute"}]))
        cluster.update("nodes", make_node("node-1", labels={"ready": "yes"}))
        await eventually(lambda: node_of(cluster, "web") == "node-1")
        rejected = {"result": "unschedulable", "profile": "default-scheduler"}
        assert metric(app, "scheduler_schedule_attempts_total", **rejected) == 1
