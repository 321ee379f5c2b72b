"""The changes that can be asked about, and how a query names them.

Owns their records and their words. What they mean for a cluster is `imagined_cluster`'s.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.core.model.objects import Taint
from engine.core.model.quantity import QuantityError, resource_amount

#: Nodes that may be added in one question.
MOST_NODES: Final = 100
#: Effects of taints.
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT: Final = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^=:]*))?:(?P<effect>\w+)")
_RESOURCE: Final = re.compile(r"[\w./-]+")
_MOST_DRAINED: Final = 20

#: What a query may have.
KEYS: Final = ("add", "like", "drain", "taint", "node", "queue", "quota")


class WrongQuestion(ValueError):
    """A question that makes no sense; the text says what was wanted."""


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Add *count* nodes like a node, or of a machine type."""

    count: int
    like: str

    def __str__(self) -> str:
        return f"add {self.count} {'node' if self.count == 1 else 'nodes'} like `{self.like}`"


@dataclass(frozen=True, slots=True)
class Drain:
    """Drain a node."""

    node: str

    def __str__(self) -> str:
        return f"drain `{self.node}`"


@dataclass(frozen=True, slots=True)
class RemoveTaint:
    """Remove a taint from a node, or from all that have it (`node` is "")."""

    taint: Taint
    node: str = ""

    def __str__(self) -> str:
        value = f"={self.taint.value}" if self.taint.value else ""
        where = f"`{self.node}`" if self.node else "all nodes"
        return f"remove the taint `{self.taint.key}{value}:{self.taint.effect}` of {where}"


@dataclass(frozen=True, slots=True)
class RaiseQuota:
    """Raise an attribute of a queue to an amount of a resource.

    `attribute` is "" where the policy declares one that has amounts. `amount` is in millicores for
    cpu, else in whole units; `written` is how it was asked.
    """

    queue: str
    attribute: str
    resource: str
    amount: int
    written: str

    def __str__(self) -> str:
        of = f"`{self.attribute}` of " if self.attribute else ""
        return f"raise {of}queue `{self.queue}` to {self.resource}={self.written}"


Change: TypeAlias = AddNodes | Drain | RemoveTaint | RaiseQuota


def changes_of(query: Mapping[str, str]) -> tuple[Change, ...]:
    """The changes that *query* asks about, in the order in which they are made.

    Raises `WrongQuestion`. What is empty counts as not given, as a form sends it.
    """
    given: dict[str, str] = {}
    for name, value in query.items():
        if not value.strip():
            continue
        # A query may have a name several times, unlike other mappings.
        if name in given:
            also = "; nodes are separated by commas" if name == "drain" else ""
            raise WrongQuestion(f"{name}: want it once{also}, got it again as `{value[:80]}`")
        given[name] = value.strip()
        if name not in KEYS:
            known = ", ".join(f"`{key}`" for key in KEYS)
            raise WrongQuestion(f"{name[:40]}: want one of {known}")
    _together(given, "like", "add")
    _together(given, "node", "taint")
    _together(given, "quota", "queue")
    found: list[Change] = []
    if "taint" in given:
        found.append(RemoveTaint(taint_of(given["taint"]), given.get("node", "")))
    if "like" in given:
        found.append(AddNodes(_count(given.get("add", "1")), given["like"]))
    elif "add" in given:
        raise WrongQuestion("like: want the name of a node or of a machine type, got none")
    if "quota" in given:
        found.append(quota_of(given["queue"], given["quota"]))
    elif "queue" in given:
        raise WrongQuestion("quota: want RESOURCE=AMOUNT, such as `cpu=10`, got none")
    nodes = list(dict.fromkeys(filter(None, map(str.strip, given.get("drain", "").split(",")))))
    if len(nodes) > _MOST_DRAINED:
        raise WrongQuestion(f"drain: want at most {_MOST_DRAINED} nodes, got {len(nodes)}")
    found += map(Drain, nodes)
    return tuple(found)


def _together(given: Mapping[str, str], name: str, other: str) -> None:
    # `add` and `queue` alone are reported with what is wanted for them.
    if name in given and other not in given and name != "like":
        raise WrongQuestion(f"{name}: is for `{other}`, which is not given")


def taint_of(text: str) -> Taint:
    """The taint that *text* writes as kubectl does. Raises `WrongQuestion`."""
    match = _TAINT.fullmatch(text)
    if match is None or match["effect"] not in EFFECTS:
        want = f"want KEY[=VALUE]:EFFECT with an effect of {', '.join(EFFECTS)}"
        raise WrongQuestion(f"taint: {want}, got `{text[:80]}`")
    return Taint(key=match["key"], value=match["value"] or "", effect=match["effect"])


def quota_of(queue: str, text: str) -> RaiseQuota:
    """The quota that *text* writes: `cpu=10`, or `limit:cpu=10`. Raises `WrongQuestion`."""
    name, equals, written = text.rpartition("=")
    attribute, _, resource = name.rpartition(":")
    if not (equals and _RESOURCE.fullmatch(resource) and written):
        want = "want [ATTRIBUTE:]RESOURCE=AMOUNT, such as `cpu=10` or `limit:memory=4Gi`"
        raise WrongQuestion(f"quota: {want}, got `{text[:80]}`")
    try:
        amount = resource_amount(resource, written)
    except QuantityError as error:
        raise WrongQuestion(f"quota: {resource}: {error}") from error
    return RaiseQuota(queue, attribute, resource, amount, written)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MOST_NODES):
        raise WrongQuestion(f"add: want a number of nodes in 1..{MOST_NODES}, got `{text[:40]}`")
    return int(text)
