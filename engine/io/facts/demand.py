"""Learns what pods request: running means of amounts and of their products.

Owns the means. Pure. A pod counts once, when it has a node, also over restarts.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from engine.core.model.fact import number_of
from engine.core.model.pod import Pod
from engine.core.model.times import epoch_seconds
from engine.io.facts.readings import CLUSTER, Reading, Readings, Subject
from engine.policy.fact_config import PodDemand


class _Condition(msgspec.Struct, rename="camel", frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] | None = None


class _Conditions(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_decode_conditions = msgspec.json.Decoder(_Conditions).decode


class PlacedPod(NamedTuple):
    """A pod, and when it got its node (or was made), if that is known."""

    pod: Pod
    placed_at: float | None


# A pod without requests still uses a little.
_LEAST: Final = {"cpu": 10, "memory": 16 << 20}


class DemandLearner:
    """Means over the pods that were placed; the newest one's weight is 1 / min(count, window)."""

    name = "pod-demand"

    def __init__(self, config: PodDemand) -> None:
        self._config = config
        self._count = 0
        self._means = [0.0] * len(config.resources)
        self._moments = [0.0] * len(config.resources) ** 2
        self._seen: set[str] = set()
        self._until = 0.0
        self._counted_before = 0.0

    def observe(self, seen: PlacedPod, now: float) -> bool:
        """Count the pod if it has a node and is new. True if it was."""
        pod = seen.pod
        if not pod.node_name or pod.uid in self._seen:
            return False
        self._seen.add(pod.uid)
        at = seen.placed_at or now
        if at <= self._counted_before:
            return False
        self._until = max(self._until, min(at, now))
        self._take([_amount(pod, resource) for resource in self._config.resources])
        return True

    def forget(self, seen: PlacedPod) -> bool:
        """Drop a deleted pod; it still counts in the means. False: nothing has changed."""
        self._seen.discard(seen.pod.uid)
        return False

    def _take(self, amounts: list[int]) -> None:
        self._count += 1
        weight = 1.0 / min(self._count, self._config.window)
        size = len(amounts)
        for a in range(size):
            self._means[a] += weight * (amounts[a] - self._means[a])
            for b in range(size):
                product = amounts[a] * amounts[b]
                self._moments[a * size + b] += weight * (product - self._moments[a * size + b])

    def readings(self) -> dict[Subject, Readings]:
        """The means; none before the first pod."""
        if not self._count:
            return {}
        fact, names = self._config.fact, self._config.resources
        values: dict[str, float] = {f"{fact}_count": self._count}
        for a, one in enumerate(names):
            values[f"{fact}_mean_{one}"] = self._means[a]
            for b, other in enumerate(names):
                values[f"{fact}_moment_{one}_{other}"] = self._moments[a * len(names) + b]
        return {CLUSTER: {name: Reading(value, f"{value:.6g}") for name, value in values.items()}}

    def to_plain(self) -> dict[str, Any]:
        """What a restart needs, as plain data."""
        return {
            "until": self._until,
            "resources": list(self._config.resources),
            "count": self._count,
            "means": self._means,
            "moments": self._moments,
        }

    def restore(self, plain: Any, now: float) -> None:
        """Go on from `to_plain`'s data, if they are about the same resources."""
        if not isinstance(plain, Mapping):
            return
        means, moments = _numbers(plain.get("means")), _numbers(plain.get("moments"))
        count, until = number_of(plain.get("count")), number_of(plain.get("until"))
        if (
            plain.get("resources") == list(self._config.resources)
            and len(means) == len(self._means)
            and len(moments) == len(self._moments)
            and isinstance(count, int)
            and until is not None
        ):
            self._means, self._moments, self._count = means, moments, max(0, count)
            self._until = self._counted_before = min(float(until), now)


def _amount(pod: Pod, resource: str) -> int:
    if resource == "pods":
        return 1
    return pod.requests.get(resource, 0) or _LEAST.get(resource, 0)


def decode_placed_pod(raw: bytes) -> PlacedPod:
    """A pod of its JSON. Raises `msgspec.DecodeError`."""
    pod = Pod.from_raw(raw)
    placed_at = None
    for condition in _decode_conditions(raw).status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "True":
            placed_at = epoch_seconds(condition.last_transition_time)
    return PlacedPod(pod, placed_at or pod.created_at or None)


def _numbers(given: Any) -> list[float]:
    numbers = [number_of(one) for one in given] if isinstance(given, list) else []
    return [] if None in numbers else [float(one) for one in numbers if one is not None]
