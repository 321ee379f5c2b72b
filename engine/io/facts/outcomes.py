"""Learns from the outcomes of pods: rewards per node, per type of pod, and per pair of both.

Owns which moments of a pod's life count and for how much, and the averages. Pure: pods go in as
they were seen, readings come out. Each moment counts once, also over restarts: what is not newer
than the newest moment that was kept has been counted before.

    placed --runs without a fault--> 1          container ends, starts again --> `forgiven`, or 0
    fails --> 0 (once)                          ends well --> 1 (once)

The end of a deleted pod does not count: its deletion was requested.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from engine.core.model.fact import number_of, pod_type
from engine.core.model.times import epoch_seconds
from engine.io.facts.readings import Reading, Readings, Subject
from engine.policy.fact_config import PodOutcomes

# More averages than this are not kept; those that have not changed for longest go first.
MOST_AVERAGES: Final = 20_000
# The API server takes a ConfigMap of 1 MiB; what is learned of the demand is in it too.
_MOST_KEPT_BYTES: Final = 900_000
# Reasons of `DisruptionTarget`: the pod is deleted because its node is lost or in trouble.
_NODES_FAULT: Final = ("DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet")


class _Meta(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str | None = None


class _Running(msgspec.Struct, rename="camel", frozen=True):
    started_at: str | None = None


class _Terminated(msgspec.Struct, rename="camel", frozen=True):
    finished_at: str | None = None


class _State(msgspec.Struct, frozen=True):
    running: _Running | None = None
    terminated: _Terminated | None = None


class _Container(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    state: _State | None = None
    last_state: _State | None = None


class _Condition(msgspec.Struct, rename="camel", frozen=True):
    type: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct, rename="camel", frozen=True):
    phase: str = ""
    start_time: str | None = None
    conditions: list[_Condition] | None = None
    container_statuses: list[_Container] | None = None


class WatchedPod(msgspec.Struct, frozen=True):
    """The part of a pod that shows its outcome."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


decode_watched_pod = msgspec.json.Decoder(WatchedPod).decode


@dataclass(slots=True)
class _Seen:
    """What of a pod has been counted already."""

    ran: bool = False
    is_over: bool = False
    ended: dict[str, float] = field(default_factory=dict)  # container to its last end


class OutcomeLearner:
    """Exponential averages of rewards.

    Args:
        config: Rewards and weights.
        type_labels: The labels that say of which type a pod is.
    """

    name = "pod-outcomes"

    def __init__(self, config: PodOutcomes, type_labels: tuple[str, ...]) -> None:
        self._config = config
        self._type_labels = type_labels
        self._averages: dict[Subject, float] = {}
        self._seen: dict[str, _Seen] = {}
        self._until = 0.0  # the newest moment that was counted
        self._counted_before = 0.0  # as of the state that was restored

    # --- pods ------------------------------------------------------------------------------

    def observe(self, pod: WatchedPod, now: float) -> bool:
        """Count what is new about *pod*. True if an average has changed."""
        node = pod.spec.node_name
        if not node:
            return False
        seen = self._seen.setdefault(pod.metadata.uid, _Seen())
        outcomes = self._outcomes(pod, seen, now)
        rewards = [reward for at, reward in outcomes if self._is_new(at, now)]
        for reward in rewards:
            self._count(pod, node, reward)
        return bool(rewards)

    def forget(self, pod: WatchedPod) -> bool:
        """Drop a deleted pod; what was learned from it stays. False: no average has changed."""
        self._seen.pop(pod.metadata.uid, None)
        return False

    def _outcomes(self, pod: WatchedPod, seen: _Seen, now: float) -> list[tuple[float, float]]:
        """Moments with their rewards that have not been seen of this pod, the oldest first."""
        phase, containers = pod.status.phase, pod.status.container_statuses or []
        if _is_sent_away(pod):
            return []
        if phase in ("Failed", "Unknown", "Succeeded"):
            if seen.is_over:
                return []
            seen.is_over = True
            return [(_over_at(pod.status) or now, 1.0 if phase == "Succeeded" else 0.0)]
        if phase != "Running":
            return []
        seen.is_over = False
        found = []
        for container in containers:
            end = _end_of(container)
            before = seen.ended.get(container.name)
            if end is None or (before is not None and end <= before):
                continue
            seen.ended[container.name] = end
            is_soon = before is not None and end - before <= self._config.grace.total_seconds()
            found.append((end, 0.0 if is_soon else self._config.forgiven))
        if not seen.ended and not seen.ran:
            found.append((_runs_since(pod.status) or now, 1.0))
        seen.ran = True
        return sorted(found)

    def _is_new(self, at: float, now: float) -> bool:
        if at <= self._counted_before:
            return False
        # A node's clock may be years ahead; until then nothing else would be new after a restart.
        self._until = max(self._until, min(at, now))
        return True

    def _count(self, pod: WatchedPod, node: str, reward: float) -> None:
        kind = pod_type(pod.metadata.labels or {}, pod.metadata.name, self._type_labels)
        for subject in (("node", node), ("type", kind), ("pair", kind, node)):
            average = self._averages.pop(subject, self._config.start)
            self._averages[subject] = average + self._config.weight * (reward - average)
        while len(self._averages) > MOST_AVERAGES:
            del self._averages[next(iter(self._averages))]

    # --- what was learned ------------------------------------------------------------------

    def readings(self) -> dict[Subject, Readings]:
        """The averages; they have no age, because they do not go out of date."""
        return {
            subject: {self._config.fact: Reading(average, f"{average:.6g}")}
            for subject, average in self._averages.items()
        }

    def to_plain(self) -> dict[str, Any]:
        """What a restart needs, as plain data: the newest averages, as many as can be kept."""
        averages: list[list[str | float]] = []
        left = _MOST_KEPT_BYTES
        for subject, value in reversed(self._averages.items()):
            row: list[str | float] = [*subject, round(value, 6)]
            left -= len(msgspec.json.encode(row)) + 1
            if left < 0:
                break
            averages.append(row)
        averages.reverse()
        return {"until": self._until, "averages": averages}

    def restore(self, plain: Any, now: float) -> None:
        """Go on from `to_plain`'s data; what is not understood is left out."""
        if not isinstance(plain, Mapping):
            return
        until = number_of(plain.get("until"))
        if until is not None:
            self._until = self._counted_before = min(float(until), now)
        rows = plain.get("averages")
        for row in rows if isinstance(rows, list) else ():
            if (
                isinstance(row, list)
                and len(row) == {"node": 3, "type": 3, "pair": 4}.get(str(row[0]) if row else "")
                and all(isinstance(part, str) for part in row[:-1])
                and (average := number_of(row[-1])) is not None
            ):
                self._averages[tuple(row[:-1])] = float(average)


def _is_sent_away(pod: WatchedPod) -> bool:
    """True if the pod ends because it is deleted, drained or preempted.

    Its kubelet calls it failed if a container does not exit with 0 on SIGTERM.
    """
    if pod.metadata.deletion_timestamp is None or pod.status.phase == "Unknown":
        return False
    conditions = pod.status.conditions or ()
    return not any(c.type == "DisruptionTarget" and c.reason in _NODES_FAULT for c in conditions)


def _runs_since(status: _Status) -> float | None:
    """Since when all containers of a pod run; None if *status* does not show it.

    Not since its node took it: images are pulled for minutes, and a restart that comes in between
    would take the pod for one that was counted before.
    """
    states = [c.state.running for c in status.container_statuses or () if c.state is not None]
    starts = [running.started_at for running in states if running is not None]
    moments = [at for text in starts if (at := epoch_seconds(text)) is not None]
    return max(moments, default=None) or epoch_seconds(status.start_time)


def _over_at(status: _Status) -> float | None:
    """When a pod that is over was; None if *status* does not show it. The same at any time."""
    ends = [_end_of(container) for container in status.container_statuses or ()]
    moments = [end for end in ends if end is not None]
    if not ends or None in ends:
        # Refused by its node, evicted, or lost with it: what else happened to it last?
        others = [status.start_time, *(c.last_transition_time for c in status.conditions or ())]
        moments += [at for text in others if (at := epoch_seconds(text)) is not None]
    return max(moments, default=None)


def _end_of(container: _Container) -> float | None:
    """When the container ended last; None if it has not ended, or the time is not known."""
    for state in (container.state, container.last_state):
        if state is not None and state.terminated is not None:
            return epoch_seconds(state.terminated.finished_at)
    return None
