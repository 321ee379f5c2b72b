"""Checks properties of every sound policy, and searches for the smallest counterexample.

Owns the changes to a cluster (its nodes in another order, a node with more capacity, labels that no
policy knows) and the search for the smallest case. *decide* decides for a cluster, and returns a
`FullDecision` as plain data.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from engine.core.model.quantity import NANO, QuantityError, nano_value

Decide = Callable[[Mapping[str, Any]], dict[str, Any]]
Counterexample = dict[str, Any]

# All orders of up to this many nodes are tried; of more, as many orders as runs say.
_FEW_NODES: Final = 4
# A label and an annotation that no policy can know.
_UNKNOWN: Final = {"tests.starsched.dev/unknown": "anything"}


def order_matters(
    request: Mapping[str, Any], decide: Decide, rng: random.Random, runs: int
) -> Counterexample | None:
    """Two orders of the nodes for which the decision differs; None if none was found."""
    base = dict(request)
    for order in _orders(len(base["nodes"]), rng, runs):
        if _parting(base, order, decide) is None:
            continue
        # Fewer nodes say more: drop those that the difference does not need.
        nodes = list(base["nodes"])
        kept = list(range(len(nodes)))
        for index in range(len(nodes)):
            fewer = [i for i in kept if i != index]
            if len(fewer) > 1 and _parting(_only(base, fewer), _among(order, fewer), decide):
                kept = fewer
        small = _only(base, kept)
        found = _parting(small, _among(order, kept), decide)
        assert found is not None
        return found
    return None


def _orders(count: int, rng: random.Random, runs: int) -> Iterator[list[int]]:
    given = list(range(count))
    if count <= _FEW_NODES:
        yield from (list(order) for order in itertools.permutations(given) if list(order) != given)
        return
    yield given[::-1]
    for _ in range(runs - 1):
        yield rng.sample(given, count)


def _among(order: Sequence[int], kept: Sequence[int]) -> list[int]:
    """*order* of the *kept* alone, as places among them."""
    place = {index: i for i, index in enumerate(kept)}
    return [place[index] for index in order if index in place]


def _only(request: Mapping[str, Any], kept: Sequence[int]) -> dict[str, Any]:
    nodes = [request["nodes"][index] for index in kept]
    names = {node["metadata"]["name"] for node in nodes}
    pods = [pod for pod in request["pods"] if pod["spec"].get("nodeName") in names]
    return {**request, "nodes": nodes, "pods": pods}


def _parting(
    request: Mapping[str, Any], order: Sequence[int], decide: Decide
) -> Counterexample | None:
    nodes = request["nodes"]
    moved = [nodes[index] for index in order]
    place = {node["metadata"]["name"]: index for index, node in enumerate(moved)}
    # Pods come as their nodes do: what is on a node must not depend on that either.
    pods = sorted(request["pods"], key=lambda p: place.get(p["spec"].get("nodeName"), -1))
    want = decide(request)
    got = decide({**request, "nodes": moved, "pods": pods})
    return _difference(got, want, _names(moved), _names(nodes))


def _difference(
    got: dict[str, Any], want: dict[str, Any], got_nodes: list[str], want_nodes: list[str]
) -> Counterexample | None:
    left, right = got.get("pre_filter_nodes"), want.get("pre_filter_nodes")
    got = {**got, "pre_filter_nodes": left and sorted(left)}
    want = {**want, "pre_filter_nodes": right and sorted(right)}
    keys = [key for key in want if got.get(key) != want[key]]
    if not keys:
        return None
    return {
        "got": {"nodes": got_nodes, **{key: got.get(key) for key in keys}},
        "want": {"nodes": want_nodes, **{key: want[key] for key in keys}},
    }


def _names(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(node["metadata"]["name"]) for node in nodes]


# --- more capacity ---------------------------------------------------------------------------


def worse_with_more_capacity(
    request: Mapping[str, Any], decide: Decide, *, is_scored: bool
) -> Counterexample | None:
    """A node that rejects the pod, or scores lower, once it offers more; None if there is none.

    Each node by itself gets more of each resource by itself, and more of all.
    """
    before = decide(request)
    for index, node in enumerate(request["nodes"]):
        name = node["metadata"]["name"]
        if name not in before["total"]:
            continue
        for given, larger in _larger(node):
            nodes = [*request["nodes"][:index], larger, *request["nodes"][index + 1 :]]
            after = decide({**request, "nodes": nodes})
            outcome = _outcome(after, name)
            want = before["total"][name]
            if outcome is None and (not is_scored or after["total"][name] >= want):
                continue
            got = outcome if outcome is not None else after["total"][name]
            held = f"a score of at least {want}" if is_scored else "a node that fits"
            return {"got": {"node": name, "with": given, "is": got}, "want": held}
    return None


def _larger(node: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """What of the node is more, and the node with it."""
    status = node.get("status") or {}
    offered: dict[str, Any] = status.get("allocatable") or {}
    nanos = {}
    for name, quantity in offered.items():
        try:
            nanos[name] = nano_value(quantity)
        except QuantityError:
            continue  # the engine reports what is wrong with it
    for more in (_little_more, lambda _, n: 2 * n, lambda _, n: 10 * n):
        sets = [[name] for name in nanos] + ([list(nanos)] if len(nanos) > 1 else [])
        for names in sets:
            given = {name: _text(name, more(name, nanos[name])) for name in names}
            if all(given[name] == _text(name, nanos[name]) for name in names):
                continue
            grown = {**offered, **given}
            capacity = {**(status.get("capacity") or {}), **given}
            more_status = {**status, "allocatable": grown, "capacity": capacity}
            yield given, {**node, "status": more_status}


def _little_more(name: str, nanos: int) -> int:
    return nanos + (NANO // 1000 if name == "cpu" else NANO)


def _text(name: str, nanos: int) -> str:
    return f"{-(-nanos * 1000 // NANO)}m" if name == "cpu" else str(-(-nanos // NANO))


def _outcome(decision: Mapping[str, Any], name: str) -> str | None:
    """Why the pod does not fit; None if it does."""
    if name in decision["total"]:
        return None
    rejection = decision["pre_filter"] or decision["rejected"].get(name)
    return "left out" if rejection is None else ", ".join(rejection["reasons"])


# --- labels ----------------------------------------------------------------------------------


def unknown_labels_matter(request: Mapping[str, Any], decide: Decide) -> Counterexample | None:
    """The decisions without and with labels and annotations unknown to policies, if they differ."""
    want = decide(request)
    names = _names(request["nodes"])
    for labelled in (
        {**request, "pod": _labelled(request["pod"])},
        {**request, "nodes": [_labelled(node) for node in request["nodes"]]},
    ):
        found = _difference(decide(labelled), want, names, names)
        if found is not None:
            return found
    return None


def _labelled(manifest: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(manifest.get("metadata") or {})
    for key in ("labels", "annotations"):
        metadata[key] = {**(metadata.get(key) or {}), **_UNKNOWN}
    return {**manifest, "metadata": metadata}
