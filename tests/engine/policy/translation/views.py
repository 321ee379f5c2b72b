"""Random values of the views' types: what hooks are given, and a little of what they never are."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from engine.policy.analysis import analyse
from engine.policy.evaluator import Call, Files
from engine.policy.view_fields import RECORDS
from engine.policy.views import VIEWS

_ORDERED = msgspec.json.Encoder(order="deterministic").encode

WORDS = (
    "", "cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu", "a", "b", "zone", "é", "A ",
    "alibabacloud.com/gpu-count", "alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-index",
    "alibabacloud.com/gpu-card-model", "alibabacloud.com/gpu-", "T4", "T4|P100", "0-2", "1", "500",
    "1000", "-3", "12.5", "1e3", "0x10", "metadata.name", "kubernetes.io/hostname", "n1", "a:b/c",
    "topology.kubernetes.io/zone", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal",
    "NoSchedule", "NoExecute", "PreferNoSchedule", "DoNotSchedule", "ScheduleAnyway", "Honor",
    "Ignore", "True", "TCP", "0.0.0.0", "Guaranteed", "Burstable", "BestEffort", "reward",
    "cpu_utilization", "img:v1", "img", "2024-02-29T12:30:00Z", "2024-13-01T00:00:00+02:00",
    "rbd", "iscsi", "\u3000", "x" * 70,
)  # fmt: skip
INTS = (0, 0, 0, 1, 2, 3, 7, 10, 50, 99, 100, 500, 1000, 1001, 4000, -1, -7, 110, 65536)
LARGE = (2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64 + 5, 3 * 2**40)
FLOATS = (0.0, -0.0, 0.5, 1.0, 1.5, 37.25, 99.9, 100.0, 1e-9, 1e18, 1e308, -2.5)


class Values:
    """Values of type texts, drawn from *chance*."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        # Most cases are plain: else nothing but the odd value would ever be tested.
        self.is_odd = chance.random() < 0.25

    def of(self, text: str, depth: int = 0) -> Any:
        """A value of type *text*."""
        chance = self.chance
        if text.endswith("?"):
            return None if chance.random() < 0.3 else self.of(text[:-1], depth)
        if text in RECORDS:
            return {name: self.of(field[0], depth + 1) for name, field in RECORDS[text].items()}
        if text.startswith("list["):
            return [self.of(text[5:-1], depth + 1) for _ in range(self._size(depth))]
        if text.startswith("dict["):
            return {
                chance.choice(WORDS): self.of(text[text.index(",") + 1 : -1].strip(), depth + 1)
                for _ in range(2 * self._size(depth))
            }
        if text == "int":
            return self.number()
        if text == "float":
            return chance.choice(FLOATS) if chance.random() < 0.6 else self.number()
        if text == "bool":
            return chance.random() < 0.5
        return chance.choice(WORDS)

    def number(self) -> int:
        """An int, now and then a very large one."""
        if self.is_odd and self.chance.random() < 0.3:
            return self.chance.choice(LARGE)
        if self.chance.random() < 0.3:
            return self.chance.randrange(0, 100_000)
        return self.chance.choice(INTS)

    def _size(self, depth: int) -> int:
        return self.chance.choice((0, 1, 1, 2, 3) if depth < 3 else (0, 1))

    def view(self, view: str, paths: Sequence[str]) -> dict[str, Any]:
        """The fields of a view that *paths* name, and entries that they ask for."""
        chance = self.chance
        found: dict[str, Any] = {}
        for path in paths:
            name, _, key = path.partition("[")
            field = VIEWS[view].get(name)
            if field is None or name == "manifest":
                continue
            if name not in found:
                found[name] = self.of(field.type)
            if key and (chance.random() < 0.8 or field.fills) and not self.is_odd:
                inner = field.type[field.type.index(",") + 1 : -1].strip()
                found[name][key[:-1]] = self.of(inner)
        for name in ("allocatable", "requested", "requests", "nonzero_requested"):
            if name in found and chance.random() < 0.7:
                found[name] |= {each: self.number() for each in ("cpu", "memory", "pods")}
        if self.is_odd and chance.random() < 0.2 and found:
            del found[chance.choice(sorted(found))]
        return found

    def counts(self) -> list[Any] | None:
        """What hooks are told of their counters."""
        chance = self.chance
        if chance.random() < 0.03:
            return None
        found: list[Any] = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            count = {
                "here": None if chance.random() < 0.2 else self.number(),
                "is_empty": chance.random() < 0.3,
            }
            names = ("min", "max", "total", "domains", "feasible_domains", "feasible_nodes")
            count |= {name: self.number() for name in (*names, "feasible_outside")}
            found.append(count)
        return found


def declarations_in(
    files: Files, module: str, hook: str, params: Sequence[str], chance: random.Random, count: int
) -> list[Call]:
    """*count* calls of a hook, each with a few entries."""
    reads = analyse(files, module)[hook]
    paths = {
        view: [p for p in sorted(reads.of(view)) if p in VIEWS[view] or "[" in p]
        for view in ("pod", "node", "cluster", "group")
    }
    calls = []
    for _ in range(count):
        values = Values(chance)
        extra: dict[str, Any] = {}
        if "cluster" in params:
            extra["cluster"] = values.view("cluster", paths["cluster"])
        if "group" in params:
            group = values.view("group", paths["group"])
            extra["group"] = None if chance.random() < 0.3 else group
        if "over" in params:
            low = values.number()
            extra["over"] = {"min": low, "max": low + abs(values.number())}
        entries: list[Any] | None = []
        for _ in range(chance.choice((1, 1, 2, 5))):
            entry: Any = (
                values.number() if hook == "normalize" else values.view("node", paths["node"])
            )
            if hook == "filter" and chance.random() < 0.1:
                entry["name"] = chance.choice(WORDS)
            if "counts" in params and hook in ("filter", "score"):
                entry = {"node": entry, "counts": values.counts()}
            assert entries is not None
            entries.append(_encoded(chance, entry))
        if hook in ("queue_key", "victim_key"):
            entries = None
        pod = _ORDERED(values.view("pod", paths["pod"]))
        calls.append(Call(0, hook, pod, entries, _ORDERED(extra)))
    return calls


def _encoded(chance: random.Random, value: Any) -> bytes:
    # In any order of keys: nothing may depend on it.
    return _ORDERED(value) if chance.random() < 0.7 else msgspec.json.encode(value)
