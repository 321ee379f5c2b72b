"""What is compared of each scheme: what our policy says of a case, and what its original does.

Owns the facts of a case, each by a name that a person can read, and `KNOWN`: the facts that may
differ, with version, file and reason.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fairness.governed import Governed, request
from tests.json_lines import Plain


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that is not the original's.

    Attributes:
        fact: Its name.
        ours, theirs: What each says.
        known: The reason, in `KNOWN`, for which it may differ; empty: it may not.
    """

    fact: str
    ours: Any
    theirs: Any
    known: str = ""

    def __str__(self) -> str:
        return f"{self.fact}: ours {self.ours}, theirs {self.theirs}"


@dataclass(slots=True)
class Compared:
    """What came of comparing a case: how many facts it has, and those that differ."""

    facts: int = 0
    differences: list[Difference] = field(default_factory=list)

    def note(self, fact: str, ours: Any, theirs: Any, known: str = "") -> None:
        """Compare a fact; doubles are compared but for their last digits."""
        self.facts += 1
        if isinstance(theirs, float):
            same = math.isclose(ours, theirs, rel_tol=1e-12)
        else:
            same = ours == theirs
        if not same:
            self.differences.append(Difference(fact, ours, theirs, known))


#: Why a fact may differ, by the name of the reason.
KNOWN: Final[Mapping[str, str]] = {
    "doubles": (
        "Kueue 0.17.0, fair_sharing.go: a share is divided by the weight in doubles, so that two "
        "equal shares can differ by their last digit; ours tie"
    ),
    "pending": (
        "YuniKorn 1.8.0, sorters.go: of two equal shares the one goes first that waits for more of "
        "every resource, which is no order; ours go by their requests"
    ),
    "inner priority": (
        "YuniKorn 1.8.0, queue.go: the priority of a queue above others is the highest that waits "
        "below it; ours is that of the request whose turn it is, another one if shares go first"
    ),
}


def compare(scheme: str, case: Plain, answer: Any) -> Compared:
    """What our policy says of *case* beside what the original *answer*ed."""
    found = Compared()
    _COMPARED[scheme](case, answer, found)
    return found


# --- Kueue -----------------------------------------------------------------------------------


def _kueue(case: Plain, answer: Any, found: Compared) -> None:
    ours = Governed(case, "kueue_fair", case["args"])
    paths = list(case["queues"])
    nothing = request({})
    keys = ours.keys([(path, path, nothing) for path in paths])
    # Theirs by the queue above and our key: those of one key are equal, but for their doubles.
    seen: dict[tuple[str, Any], set[float]] = {}
    for path, key in zip(paths, keys, strict=True):
        theirs = answer["queues"][path]
        found.note(f"share of {path}", _weighted(key), float(theirs["share"]))
        for resource, free in theirs.get("available", {}).items():
            if resource in case["queues"][path]["attributes"]["nominal"]:
                _note_available(ours, path, resource, free, theirs["potential"][resource], found)
    for leaf, head in ours.heads.items():
        theirs = answer["queues"][leaf]
        found.note(
            f"{leaf} admits its head", ours.admit(leaf, head) is None, theirs["mode"] == "Fit"
        )
        above = [queue.path for queue in ours.tree.above(leaf)][:-1]
        keys = ours.keys([(path, leaf, head) for path in above])
        for path, key, then in zip(above, keys, theirs["with_head"], strict=True):
            seen.setdefault((path.rpartition("/")[0], key), set()).add(then["share"])
            found.note(f"share of {path} with the head of {leaf}", _weighted(key), then["share"])
            found.note(
                f"{path} borrows for the head of {leaf}", key[0] == (0, 1 << 254), then["borrows"]
            )
    order = [leaf for root in ours.tree.queues[""].children for leaf in ours.turns(root)]
    known = "doubles" if any(len(shares) > 1 for shares in seen.values()) else ""
    found.note("order", order, answer["order"], known)


def _note_available(
    ours: Governed, path: str, resource: str, free: int, most: int, found: Compared
) -> None:
    fact = f"{resource} available to {path}"
    if free > 0:
        found.note(fact, ours.admit(path, request({resource: free})), None)
    hold = ours.admit(path, request({resource: free + 1}))
    assert hold is not None, f"{fact}: more than {free}"
    if free < most:
        assert hold.short is not None
        by = hold.short[1]
        # Of what is used beyond all quotas, Kueue shows 0.
        found.note(fact, by == 1 or (free == 0 and by > 1), True)
    found.note(f"{resource} that {path} can ever have", hold.short is None, free >= most)


def _weighted(key: Any) -> float:
    """The share of a key of `kueue_fair` as a double; -1 if it is infinite."""
    _, infinite, share = key
    return -1.0 if infinite[1] else share[1] / (1 << 254)


# --- Koordinator -----------------------------------------------------------------------------


def _koordinator(case: Plain, answer: Any, found: Compared) -> None:
    ours = Governed(case, "elastic_quota", case["args"])
    for path, runtime in answer["runtime"].items():
        share = ours.share(path)
        for resource in case["queues"][path]["attributes"]["max"]:
            fact = f"runtime of {path} in {resource}"
            found.note(fact, share.get(resource, 0), runtime.get(resource, 0))


# --- YuniKorn --------------------------------------------------------------------------------


def _yunikorn(case: Plain, answer: Any, found: Compared) -> None:
    ours = Governed(case, "yunikorn_fair", case["args"])
    for leaf, admits in answer["admits"].items():
        hold = ours.admit(leaf, ours.heads[leaf])
        found.note(f"{leaf} admits its head", hold is None, admits)
    for names, theirs in answer["pairs"].items():
        pair = names.split()
        leaves = [ours.first(path) for path in pair]
        asked = [(path, leaf, ours.heads[leaf]) for path, leaf in zip(pair, leaves, strict=True)]
        one, other = ours.keys(asked)
        known = ""
        if theirs["by"] != "share" and not case["args"]["priority_first"]:
            known = "" if all(path in ours.heads for path in pair) else "inner priority"
        if theirs["by"] == "pending":
            known = known or "pending"
        found.note(f"first of {names}", (one > other) - (one < other), theirs["first"], known)


# --- CapacityScheduling ----------------------------------------------------------------------


def _capacity(case: Plain, answer: Any, found: Compared) -> None:
    ours = Governed(case, "capacity_scheduling", case["args"])
    for path, theirs in answer.items():
        hold = ours.admit(path, ours.heads[path])
        said = "" if hold is None else "max" if hold.at == path else "sum"
        reason = "max" if theirs["over_max"] else "sum" if theirs["over_sum"] else ""
        assert (reason == "") == theirs["admitted"], theirs
        found.note(f"{path} is held by", said, reason)


_COMPARED: Final[Mapping[str, Callable[[Plain, Any, Compared], None]]] = {
    "kueue": _kueue,
    "koordinator": _koordinator,
    "yunikorn": _yunikorn,
    "capacity": _capacity,
}
