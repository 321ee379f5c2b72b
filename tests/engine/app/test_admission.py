"""What is said of an edit of the policies before it is written."""

import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.app import App
from engine.core.model.objects import ConfigMap, from_plain
from engine.policy.errors import Problem, SandboxDied
from engine.rollout.admission import NOTHING, Change, Opinion
from engine.rollout.control import SUFFIX
from engine.rollout.sources import FILES_ANNOTATION, MEANT_ANNOTATION
from engine.rollout.trial import CandidateStages
from tests.engine.app import harness
from tests.engine.app.harness import NAME, NAMESPACE, config_map, edit, namespace, scheduler
from tests.waiting import eventually
from tests.workloads import SPOT_SHARE

pytestmark = [pytest.mark.slow("runs a whole scheduler"), pytest.mark.usefixtures("no_sandboxes")]

GOOD: Final = {"mine.star": '"""Says nothing."""\n'}
BROKEN: Final = {"mine.star": "def filter(pod, node:\n"}
REFUSES: Final = {
    "mine.star": '"""Refuses all."""\n\ndef filter(pod, node):\n    return "not today"\n'
}
OTHER_PROFILE: Final = {
    "profile.yaml": "apiVersion: kubescheduler.config.k8s.io/v1\n"
    "kind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: another}]\n"
}
STAGES: Final = {
    "stages.yaml": "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n"
    "rollout: {shadow: {duration: 10m}, canary: {steps: [{share: 0.1, duration: 5m}]}}\n"
}


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("node-1"), config_map(GOOD))
        yield cluster


def held(files: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> ConfigMap:
    manifest = config_map(files)
    manifest["metadata"]["annotations"] = dict(annotations or {})
    return from_plain(ConfigMap, manifest)


async def judged(
    app: App,
    after: Mapping[str, str] | None,
    before: Mapping[str, str] | None = GOOD,
    *,
    name: str = NAME,
    seconds: float = 30.0,
    annotations: Mapping[str, str] | None = None,
) -> Opinion:
    """What is said of the change."""
    change = Change(
        NAMESPACE,
        name,
        None if before is None else held(before),
        None if after is None else held(after, annotations),
    )
    return await app.policies.rollout.admission.judge(change, seconds)


def texts(opinion: Opinion) -> str:
    return "\n".join(map(str, opinion.warnings))


async def test_a_text_that_is_rejected_is_denied_for_all_its_problems(cluster: DevCluster) -> None:
    async with scheduler(cluster, from_config_map=True) as app:
        revision = app.policies.rollout.active.bundle.revision
        opinion = await judged(app, BROKEN)
        assert opinion.stage == "check"
        assert [(one.file, one.line) for one in opinion.problems] == [("mine.star", 1)]
        assert app.policies.rollout.active.bundle.revision == revision


async def test_what_a_good_edit_takes_away_is_a_warning(cluster: DevCluster) -> None:
    cluster.create(*(make_pod(f"pod-{n}") for n in range(3)))
    async with scheduler(cluster, from_config_map=True) as app:
        await eventually(lambda: len(harness.placements(cluster)) == 3)
        opinion = await judged(app, REFUSES)
        assert opinion.problems == ()
        assert "`mine` accepts 0 of 3 pods that fitted before" in texts(opinion)
        opinion = await judged(app, OTHER_PROFILE)
        assert "no profile has the schedulerName `default-scheduler` any more" in texts(opinion)


_BY_NAME: Final = '''"""A queue is what a pod says."""

def queue_of(pod):
    return pod.labels["queue"].replace(".", "/")
'''


def in_queues(document: str) -> dict[str, str]:
    """The files of a tree with *document* in it."""
    head = "apiVersion: starsched.dev/v1\nkind: QueueTree\npolicy: by_name\n"
    return {"by_name.star": _BY_NAME, "tree.yaml": f"{head}{document}\n"}


async def test_queues_that_vanish_with_pods_in_them_are_a_warning(cluster: DevCluster) -> None:
    before = in_queues("queues: {a/x: {}, b: {}, c: {}}")
    edit(cluster, before)
    queues = ("a.x", "a.x", "b")
    cluster.create(*(make_pod(f"p{n}", labels={"queue": q}) for n, q in enumerate(queues)))
    async with scheduler(cluster, from_config_map=True) as app:
        await eventually(lambda: sum(app.kernel.shares.pods_by_queue().values()) == 3)
        for document, want in (
            (
                "queues: {c: {}}",
                "3 queues vanish: `a`, `a/x`, `b`; 3 pods are in what vanishes, most in `a/x` (2)"
                "\nhint: those that wait are held then",
            ),
            (
                "unknown: count\nqueues: {a/x: {}, c: {}}",
                "1 queue vanishes: `b`; 1 pod is in what vanishes, most in `b` (1)"
                "\nhint: they are in no queue then, and count in the root",
            ),
            ("queues: {a/x: {}, b: {}}", ""),  # nothing is in `c`
        ):
            said = texts(await judged(app, in_queues(document), before))
            assert want in said
            assert bool(want) == ("vanish" in said)
        # The reload says so, too.
        edit(cluster, in_queues("queues: {a/x: {}, c: {}}"))
        await eventually(
            lambda: "1 queue vanishes: `b`" in str(app.policies.rollout.active.vanishing)
        )


async def test_a_file_beside_those_of_the_chart_is_a_warning(cluster: DevCluster) -> None:
    """`helm rollback` leaves it, so that the revision is not the one of then (Helm 4)."""
    mine = {**GOOD, "note.star": '"""Was added by hand."""\n', "README": "no policy"}
    async with scheduler(cluster, from_config_map=True) as app:
        of_chart = {FILES_ANNOTATION: "mine.star"}
        assert _added((await judged(app, mine, annotations=of_chart)).warnings) == ["note.star"]
        assert _added((await judged(app, mine)).warnings) == []  # who wrote it is not known
        # The reload says so too, for as long as it is there.
        found = cluster.get("configmaps", NAME, NAMESPACE)
        assert found is not None
        metadata = {**found["metadata"], "annotations": of_chart}
        cluster.update("configmaps", {**found, "metadata": metadata, "data": mine})
        active = app.policies.rollout
        await eventually(lambda: _added(active.active.bundle.warnings) == ["note.star"])


def _added(warnings: Iterable[Problem]) -> list[str]:
    return [one.file for one in warnings if "added beside the files of the chart" in one.message]


async def test_stages_are_said_with_their_time_or_the_gate_that_refuses(
    cluster: DevCluster,
) -> None:
    edit(cluster, {**GOOD, **STAGES})
    cluster.create(make_pod("pod-1"))
    async with scheduler(cluster, from_config_map=True) as app:
        await eventually(lambda: len(harness.placements(cluster)) == 1)
        opinion = await judged(app, {**STAGES, "mine.star": '"""Says something else."""\n'})
        want = "it is rolled out in stages: shadow for 10m0s, canary 10% for 5m0s: 15m0s at least"
        assert want in texts(opinion)
        opinion = await judged(app, {**STAGES, **REFUSES})
        assert "a gate refuses it before its stages" in texts(opinion)
        assert f"annotate the ConfigMap: {MEANT_ANNOTATION}=" in texts(opinion)


async def test_what_was_rolled_back_is_denied_by_the_leader_unless_it_is_meant(
    cluster: DevCluster,
) -> None:
    async with scheduler(cluster, from_config_map=True) as app:
        rollout = app.policies.rollout
        revision = rollout._stages.make_bundle(REFUSES).revision
        rollout._saved.remember_rolled_back(revision, rollout.active)
        opinion = await judged(app, REFUSES)
        assert opinion.stage == "rolled_back"
        opinion = await judged(app, REFUSES, annotations={MEANT_ANNOTATION: revision})
        assert opinion.problems == ()
        assert revision in rollout._saved.rolled_back, "it is forgiven when it is written"
        # A standby knows what was rolled back until it began, and not what was forgiven since.
        rollout.is_active = False
        opinion = await judged(app, REFUSES)
        assert opinion.problems == ()
        assert "checked by a replica that stands by" in texts(opinion)


async def test_annotations_can_be_changed_whatever_the_texts(cluster: DevCluster) -> None:
    async with scheduler(cluster, from_config_map=True) as app:
        stop = {"starsched.dev/rollout": "stop"}
        assert await judged(app, BROKEN, BROKEN, annotations=stop) == NOTHING
        assert (await judged(app, BROKEN, None)).problems != ()


async def test_only_what_the_scheduler_reads_is_judged(cluster: DevCluster) -> None:
    async with scheduler(cluster, from_config_map=True) as app:
        assert await judged(app, BROKEN, name="another") == NOTHING
        assert await judged(app, BROKEN, name=f"{NAME}-last-good") == NOTHING
        assert "last good policies stay in force" in texts(await judged(app, None))
        mode = await judged(app, {"mode": "pausd"}, None, name=NAME + SUFFIX)
        assert "did you mean `paused`?" in str(mode.problems[0])
        assert await judged(app, {"mode": "paused"}, None, name=NAME + SUFFIX) == NOTHING
        assert await judged(app, None, {"mode": "paused"}, name=NAME + SUFFIX) == NOTHING


async def test_what_reads_a_kind_that_is_not_watched_is_not_tried(cluster: DevCluster) -> None:
    async with scheduler(cluster, from_config_map=True) as app:
        watched = list(app.watching.informers)
        opinion = await judged(app, {"share.star": SPOT_SHARE})
        assert opinion.problems == ()
        assert "not tried on the cluster: Deployment" in texts(opinion)
        assert app.watching.informers == watched, "nothing is watched for what is not there"


class Slow:
    """The stages of which the checks take until they are let go."""

    def __init__(self, usual: CandidateStages) -> None:
        self.is_held = False
        self.go = threading.Event()
        self._usual = usual

    def build(self, files: Any) -> Any:
        if self.is_held:
            assert self.go.wait(30)
        return self._usual.make_bundle(files)


async def test_what_is_not_checked_in_time_is_allowed_and_says_so(cluster: DevCluster) -> None:
    usual = harness.stages_in_process()
    slow = Slow(usual)
    async with scheduler(cluster, from_config_map=True, stages=usual.building(slow.build)) as app:
        slow.is_held = True
        opinion = await judged(app, BROKEN, seconds=0.05)
        assert opinion.problems == ()
        assert "not checked in time (its static checks)" in texts(opinion)
        # Its thread goes on, so the next one waits for its turn.
        opinion = await judged(app, BROKEN, seconds=0.05)
        assert "not checked in time (other edits)" in texts(opinion)
        slow.go.set()
        assert (await judged(app, BROKEN)).problems != ()


async def test_a_sandbox_that_dies_denies_nothing(cluster: DevCluster) -> None:
    usual = harness.stages_in_process()
    is_short_of_memory = False

    def make_evaluator(bundle: Any) -> Any:
        if is_short_of_memory:
            raise SandboxDied([Problem("mine.star", 0, 0, "loading was ended by SIGKILL")])
        return usual.make_evaluator(bundle)

    async def sleep(_seconds: float) -> None:
        pass

    stages = CandidateStages(
        build=usual.make_bundle,
        make_evaluator=make_evaluator,
        run_tests=lambda _: [],
        on_close=usual.close,
        sleep=sleep,
    )
    async with scheduler(cluster, from_config_map=True, stages=stages) as app:
        is_short_of_memory = True
        opinion = await judged(app, REFUSES)
        assert opinion.problems == ()
        assert "not checked to the end" in texts(opinion)
        is_short_of_memory = False
