"""What is learned from how pods fare, and that each moment counts once."""

from typing import Any

import msgspec
import pytest

from engine.io.facts.demand import DemandLearner, PlacedPod, decode_placed_pod
from engine.io.facts.outcomes import MOST_AVERAGES, OutcomeLearner, WatchedPod, decode_watched_pod
from engine.io.facts.readings import CLUSTER
from engine.policy.fact_config import PodDemand, PodOutcomes
from tests.builders import make_pod

LABELS = ("podtype", "app")
NODE, TYPE, PAIR = ("node", "a"), ("type", "web"), ("pair", "web", "a")


def _time(seconds: int) -> str:
    return f"1970-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def _pod(
    phase: str = "Running",
    *,
    uid: str = "u",
    node: str = "a",
    labels: dict[str, str] | None = None,
    ended: int | None = None,
    started: int = 10,
) -> WatchedPod:
    container: dict[str, Any] = {"name": "app"}
    if ended is not None:
        container["lastState"] = {"terminated": {"finishedAt": _time(ended), "exitCode": 1}}
    return decode_watched_pod(
        msgspec.json.encode(
            {
                "metadata": {"name": "p", "uid": uid, "labels": labels or {"podtype": "web"}},
                "spec": {"nodeName": node},
                "status": {
                    "phase": phase,
                    "startTime": _time(started),
                    "containerStatuses": [container],
                },
            }
        )
    )


def _learner(**words: Any) -> OutcomeLearner:
    return OutcomeLearner(PodOutcomes(weight=0.5, **words), LABELS)


def _average(learner: OutcomeLearner, subject: tuple[str, ...] = PAIR) -> float | None:
    value = learner.readings()[subject]["reward"].value
    return None if value is None else round(value, 6)


def test_a_pod_that_runs_counts_for_its_node_its_type_and_both() -> None:
    learner = _learner(start=0.0)
    assert learner.observe(_pod(), 20.0)
    assert {subject: _average(learner, subject) for subject in (NODE, TYPE, PAIR)} == {
        NODE: 0.5,
        TYPE: 0.5,
        PAIR: 0.5,
    }


def test_what_was_seen_does_not_count_again() -> None:
    learner = _learner(start=0.0)
    for _ in range(3):
        learner.observe(_pod(), 20.0)
    assert _average(learner) == 0.5


def test_a_pod_that_fails_counts_nothing_once() -> None:
    learner = _learner()
    for _ in range(2):
        learner.observe(_pod("Failed", ended=30), 40.0)
    assert _average(learner) == 0.5


def test_a_pod_that_ends_well_counts_fully() -> None:
    learner = _learner(start=0.0)
    learner.observe(_pod("Succeeded", ended=30), 40.0)
    assert _average(learner) == 0.5


def test_the_first_end_in_a_while_is_forgiven_by_half_and_the_next_is_not() -> None:
    learner = _learner()
    learner.observe(_pod(ended=100), 100.0)
    assert _average(learner) == 0.75  # half way from 1 to 0.5
    learner.observe(_pod(ended=700), 700.0)
    assert _average(learner) == 0.375  # half way to 0: it is only ten minutes
    learner.observe(_pod(ended=1301), 1301.0)
    assert _average(learner) == 0.4375  # half way to 0.5 again


def test_a_pod_without_a_node_or_before_it_runs_counts_nothing() -> None:
    learner = _learner()
    assert not learner.observe(_pod("Pending"), 20.0)
    assert not learner.observe(_pod(node=""), 20.0)
    assert learner.readings() == {}


def test_a_pod_of_no_type_goes_by_its_name() -> None:
    learner = _learner()
    learner.observe(_pod(labels={"other": "x"}), 20.0)
    assert ("pair", "p", "a") in learner.readings()


def test_a_restart_goes_on_and_counts_nothing_twice() -> None:
    before = _learner(start=0.0)
    before.observe(_pod(uid="one", started=10), 20.0)
    before.observe(_pod(uid="two", started=50), 60.0)
    after = _learner(start=0.0)
    after.restore(msgspec.json.decode(msgspec.json.encode(before.to_plain())), 1e6)
    for pod in (_pod(uid="one", started=10), _pod(uid="two", started=50)):
        assert not after.observe(pod, 100.0)
    assert after.readings() == before.readings()
    assert after.observe(_pod(uid="three", started=51), 100.0)


def test_a_pod_that_starts_late_counts_after_a_restart() -> None:
    """Its image was still pulled when something else was counted, and the restart came."""
    before = _learner(start=0.0)
    before.observe(_pod(uid="one", started=50), 60.0)
    late = {
        "metadata": {"name": "p", "uid": "two", "labels": {"podtype": "web"}},
        "spec": {"nodeName": "a"},
        "status": {
            "phase": "Running",
            "startTime": _time(40),
            "containerStatuses": [
                {"name": name, "state": {"running": {"startedAt": _time(at)}}}
                for name, at in (("app", 90), ("sidecar", 80))
            ],
        },
    }
    pod = decode_watched_pod(msgspec.json.encode(late))
    after = _learner(start=0.0)
    after.restore(before.to_plain(), 70.0)
    assert after.observe(pod, 100.0)
    assert _average(after) == 0.75
    again = _learner(start=0.0)
    again.restore(after.to_plain(), 110.0)
    assert not again.observe(pod, 120.0)


@pytest.mark.parametrize(
    ("reason", "phase", "counts"),
    [
        pytest.param("", "Failed", False, id="deleted"),
        pytest.param("", "Running", False, id="about to end"),
        pytest.param("EvictionByEvictionAPI", "Failed", False, id="drained"),
        pytest.param("PreemptionByScheduler", "Failed", False, id="preempted"),
        pytest.param("DeletionByTaintManager", "Failed", True, id="its node is not ready"),
        pytest.param("DeletionByPodGC", "Failed", True, id="its node is gone"),
        pytest.param("", "Unknown", True, id="its node says nothing"),
    ],
)
def test_a_pod_that_is_deleted_counts_nothing(reason: str, phase: str, counts: bool) -> None:
    """Whatever exits with 143 when a roll-out ends it failed, for its kubelet: on every node."""
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
    terminated = {"finishedAt": _time(60), "exitCode": 143}
    plain = {
        "metadata": {
            "name": "p",
            "uid": "u",
            "labels": {"podtype": "web"},
            "deletionTimestamp": _time(55),
        },
        "spec": {"nodeName": "a"},
        "status": {
            "phase": phase,
            "conditions": conditions if reason else [],
            "containerStatuses": [{"name": "app", "state": {"terminated": terminated}}],
        },
    }
    learner = _learner()
    learner.observe(_pod(), 20.0)
    got = learner.observe(decode_watched_pod(msgspec.json.encode(plain)), 70.0)
    assert got is counts
    assert _average(learner) == (0.5 if counts else 1.0)


def _refused(conditions: list[dict[str, str]], containers: list[dict[str, Any]]) -> WatchedPod:
    """A pod that failed without an end of all its containers that somebody knows."""
    status = {
        "phase": "Failed",
        "startTime": _time(40),
        "conditions": conditions,
        "containerStatuses": containers,
    }
    metadata = {"name": "p", "uid": "u", "labels": {"podtype": "web"}}
    plain = {"metadata": metadata, "spec": {"nodeName": "a"}, "status": status}
    return decode_watched_pod(msgspec.json.encode(plain))


@pytest.mark.parametrize(
    ("conditions", "containers", "at"),
    [
        pytest.param([], [], 40, id="a kubelet that refused it"),
        pytest.param(
            [
                {"type": "PodScheduled", "lastTransitionTime": _time(30)},
                {"type": "DisruptionTarget", "lastTransitionTime": _time(60)},
            ],
            [
                {"name": "one", "state": {"terminated": {"finishedAt": _time(50)}}},
                {"name": "two", "state": {"terminated": {"finishedAt": None, "exitCode": 137}}},
            ],
            60,
            id="an eviction that lost a container",
        ),
    ],
)
def test_a_pod_that_failed_without_an_end_counts_once_over_restarts(
    conditions: list[dict[str, str]], containers: list[dict[str, Any]], at: int
) -> None:
    """Such pods stay for days, and counted anew, as failing now, with each start."""
    pod = _refused(conditions, containers)
    before = _learner()
    assert before.observe(pod, 100.0)
    assert before.to_plain()["until"] == at
    after = _learner()
    after.restore(before.to_plain(), 200.0)
    assert not after.observe(pod, 300.0)


@pytest.mark.parametrize(
    "plain",
    [
        None,
        [],
        {},
        {"averages": 3},
        {"until": "x", "averages": [["pair", "a", 1], [], [1]]},
        {"until": True, "averages": [["node", "a", 10**400], ["node", "a", False]]},
        {"until": 10**400},
    ],
)
def test_what_was_kept_and_makes_no_sense_is_left_out(plain: Any) -> None:
    learner = _learner()
    learner.restore(plain, 1e6)
    assert learner.readings() == {}
    assert learner.observe(_pod(), 20.0)


@pytest.mark.parametrize("until", [4e9, 1e300])
def test_a_clock_that_was_ahead_does_not_end_the_learning(until: float) -> None:
    """One node's clock was ahead; after a restart, nothing was learned until that moment came."""
    before = _learner()
    before.observe(_pod("Failed", ended=80_000), 100.0)
    assert before.to_plain()["until"] == 100.0
    after = _learner()
    after.restore({"until": until, "averages": []}, 100.0)
    assert after.observe(_pod("Failed", ended=101), 110.0)


def test_the_averages_are_bounded() -> None:
    learner = _learner()
    for number in range(MOST_AVERAGES // 2 + 10):
        learner.observe(_pod(uid=str(number), labels={"podtype": str(number)}), 20.0)
    assert len(learner.readings()) == MOST_AVERAGES
    assert NODE in learner.readings()
    assert ("pair", "0", "a") not in learner.readings()


def test_no_more_is_kept_than_a_config_map_holds() -> None:
    """Of averages with long names nothing was kept: the API server refused them all."""
    learner = _learner()
    for number in range(3000):
        labels = {"podtype": f"{number:063}"}
        learner.observe(_pod(uid=str(number), node=f"{number:0253}", labels=labels), 20.0)
    text = msgspec.json.encode(learner.to_plain())
    assert 800_000 < len(text) < 1_000_000
    after = _learner()
    after.restore(msgspec.json.decode(text), 30.0)
    known = list(learner.readings().items())
    assert list(after.readings().items()) == known[-len(after.readings()) :]


# --- demand ----------------------------------------------------------------------------------


def _placed(cpu: str, uid: str, at: float, node: str = "a") -> PlacedPod:
    return PlacedPod(make_pod("p", uid=uid, cpu=cpu, memory="1Mi", node=node), at)


def _demand(learner: DemandLearner) -> dict[str, Any]:
    return {name: r.value for name, r in learner.readings()[CLUSTER].items()}


def test_demand_is_a_mean_of_amounts_and_products() -> None:
    learner = DemandLearner(PodDemand(resources=("cpu",)))
    assert learner.readings() == {}
    for uid, cpu in enumerate(("1", "3")):
        learner.observe(_placed(cpu, str(uid), 10.0), 20.0)
        learner.observe(_placed(cpu, str(uid), 10.0), 20.0)
    assert _demand(learner) == {
        "demand_count": 2,
        "demand_mean_cpu": 2000.0,
        "demand_moment_cpu_cpu": 5_000_000.0,
    }


def test_demand_forgets_beyond_its_window() -> None:
    learner = DemandLearner(PodDemand(resources=("cpu",), window=2))
    for uid, cpu in enumerate(("1", "1", "3")):
        learner.observe(_placed(cpu, str(uid), 10.0), 20.0)
    assert _demand(learner)["demand_mean_cpu"] == 2000.0


def test_a_pod_that_asks_for_nothing_counts_a_little_and_one_without_a_node_not_at_all() -> None:
    learner = DemandLearner(PodDemand())
    learner.observe(_placed("1", "u", 10.0, node=""), 20.0)
    assert learner.readings() == {}
    learner.observe(PlacedPod(make_pod("p", node="a"), 10.0), 20.0)
    assert _demand(learner)["demand_mean_cpu"] == 10
    assert _demand(learner)["demand_mean_memory"] == 16 << 20


def test_demand_goes_on_after_a_restart() -> None:
    before = DemandLearner(PodDemand())
    before.observe(_placed("1", "one", 10.0), 20.0)
    after = DemandLearner(PodDemand())
    after.restore(msgspec.json.decode(msgspec.json.encode(before.to_plain())), 1e6)
    assert not after.observe(_placed("1", "one", 10.0), 30.0)
    assert after.readings() == before.readings()
    assert after.observe(_placed("1", "two", 11.0), 30.0)
    others = DemandLearner(PodDemand(resources=("cpu",)))
    others.restore(before.to_plain(), 1e6)
    assert others.readings() == {}


@pytest.mark.parametrize(
    "broken",
    [{"count": 10**400}, {"until": 10**400}, {"means": [True]}, {"moments": [10**400]}],
)
def test_demand_that_makes_no_sense_is_left_out(broken: dict[str, Any]) -> None:
    plain = {"until": 1, "resources": ["cpu"], "count": 1, "means": [1], "moments": [1]}
    learner = DemandLearner(PodDemand(resources=("cpu",)))
    learner.restore({**plain, **broken}, 1e6)
    assert learner.readings() == {}


def test_demand_is_learned_after_a_clock_was_ahead() -> None:
    before = DemandLearner(PodDemand())
    before.observe(_placed("1", "one", 1e9), 20.0)
    after = DemandLearner(PodDemand())
    after.restore({**before.to_plain(), "until": 1e9}, 20.0)
    assert after.observe(_placed("1", "two", 21.0), 30.0)


def test_a_pod_was_placed_when_its_condition_says() -> None:
    raw = msgspec.json.encode(
        {
            "metadata": {"name": "p", "creationTimestamp": _time(5)},
            "spec": {"nodeName": "a", "containers": []},
            "status": {
                "conditions": [
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": _time(9)}
                ]
            },
        }
    )
    assert decode_placed_pod(raw).placed_at == 9.0
