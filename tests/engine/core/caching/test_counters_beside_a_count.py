"""Counters beside a plain count over all pods, after any history of the cluster.

As `tests/properties/test_counters_beside_a_recount.py`, and quick: fewer histories, more kinds of
counters, and what else is asked of them: dry runs, changes since, copies.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.core.caching.cache import Cache
from engine.core.caching.counter_answers import OUTSIDE, CounterColumn, CounterRow
from engine.core.caching.counters import Counters, PodChanges
from engine.core.caching.kind_index import term_keys
from engine.core.caching.own_terms import own_terms
from engine.core.caching.snapshot import Snapshot
from engine.core.model.node_info import NodeInfo
from engine.core.model.objects import Namespace, ObjectMeta, PodAffinityTerm
from engine.core.model.pod import Pod
from engine.core.model.selectors import matches_label_selector
from tests.builders import ZONE, make_node, make_pod

_NODES = [f"n{i}" for i in range(5)]
_TEAMS = {"red": "a", "blue": "b"}
_SELECTORS: list[dict[str, Any]] = [
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "db", "tier": "x"}},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
]
_GPU = "example.com/gpu"
_UNREADABLE = {"labels": {}, "expressions": [{"key": "app", "operator": "Like", "values": []}]}


# --- what is drawn ---------------------------------------------------------------------------


def _term(rng: random.Random) -> dict[str, Any]:
    term: dict[str, Any] = {
        "topologyKey": rng.choice([ZONE, ZONE, "rack"]),
        "labelSelector": rng.choice([*_SELECTORS, None]),
    }
    where = rng.randrange(4)
    if where == 0:
        term["namespaces"] = ["blue"]
    if where == 1:
        term["namespaceSelector"] = {"matchLabels": {"team": "a"}}
    return term


def _pod(rng: random.Random, name: str, node: str = "") -> Pod:
    affinity: dict[str, Any] = {}
    for rules in ("podAffinity", "podAntiAffinity"):
        if rng.random() < 0.3:
            terms = [_term(rng) for _ in range(rng.randrange(1, 4))]
            affinity[rules] = {
                "requiredDuringSchedulingIgnoredDuringExecution": terms[:2],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 3, "podAffinityTerm": term} for term in terms[1:]
                ],
            }
    labels = {"app": rng.choice(["web", "db"])} | ({"tier": "x"} if rng.random() < 0.4 else {})
    return make_pod(
        name,
        rng.choice(list(_TEAMS)),
        uid=name,
        node=node or None,
        labels=labels,
        terminating=rng.random() < 0.15,
        affinity=affinity or None,
        cpu=rng.choice([None, "500m", "2"]),
    )


def _part(rng: random.Random) -> dict[str, Any]:
    part: dict[str, Any] = {
        "kind": rng.choice(["pods", "pods", "terms", "matches", "nodes"]),
        "keys": rng.choice([[], [], ["rack"], ["rack", ZONE]]),
        "weight": rng.choice([1, 1, -2]),
        "among": None,
    }
    if part["kind"] == "nodes":
        part["topology"] = rng.choice([ZONE, "rack", None])
        of_rack = {"labels": {"rack": "r"}, "expressions": []}
        part["selector"] = rng.choice([None, of_rack, of_rack, _UNREADABLE])
        left = [{}, {"cpu": 3000}, {"pods": 109}, {"cpu": 500, "pods": 108}, {_GPU: 1}]
        part["free"] = rng.choice(left)
        return part
    if part["kind"] == "pods":
        if rng.random() < 0.3:
            part["resource"] = "cpu"
        part["terminating"] = rng.random() < 0.5
        part["topology"] = rng.choice([ZONE, ZONE, "rack", None])
        part["terms"] = [
            {
                "selector": {
                    "labels": selector.get("matchLabels", {}),
                    "expressions": selector.get("matchExpressions", []),
                },
                "namespaces": rng.choice([["red"], ["red", "blue"], []]),
                "namespace_selector": rng.choice([None, {"labels": {"team": "a"}}]),
            }
            for selector in rng.sample(_SELECTORS, rng.choice([1, 1, 2]))
        ]
        if rng.random() < 0.1:
            part["terms"][0][rng.choice(["selector", "namespace_selector"])] = _UNREADABLE
        return part
    sorts = ["required_affinity", "required_anti_affinity", "preferred_affinity"]
    part["of"] = rng.choice([*sorts, "preferred_anti_affinity"])
    incoming = _pod(rng, "incoming")
    while part["kind"] == "matches" and not _terms(incoming.manifest.spec.affinity, part["of"]):
        incoming = _pod(rng, "incoming")
    if part["kind"] == "terms":
        part["pod"] = {"namespace": incoming.namespace, "labels": dict(incoming.labels)}
    else:
        part["topology"] = rng.choice([None, ZONE])
        part["own"] = own_terms(incoming)
    return part


def _parts(rng: random.Random) -> list[dict[str, Any]]:
    parts = [_part(rng) for _ in range(rng.choice([1, 1, 1, 2]))]
    if rng.random() < 0.3:
        parts[0]["up_to"] = rng.choice([1, 2])
    return parts


# --- the plain count -------------------------------------------------------------------------


def _matches(
    term: PodAffinityTerm,
    owner: str,
    namespace: str,
    labels: Mapping[str, str],
    teams: Mapping[str, str],
) -> bool:
    if not term.namespaces and term.namespace_selector is None:
        is_there = namespace == owner
    else:
        is_there = namespace in term.namespaces or (
            term.namespace_selector is not None
            and matches_label_selector(term.namespace_selector, {"team": teams[namespace]})
        )
    return is_there and matches_label_selector(term.label_selector, labels)


def _terms(affinity: Any, of: str) -> list[tuple[PodAffinityTerm, int]]:
    rules = affinity and (affinity.pod_anti_affinity if "anti" in of else affinity.pod_affinity)
    if not rules:
        return []
    if "required" in of:
        return [(term, 1) for term in rules.required]
    return [(one.pod_affinity_term, one.weight) for one in rules.preferred]


def _counted(
    part: dict[str, Any], pod: Pod, teams: Mapping[str, str]
) -> list[tuple[str | None, int]]:
    """In which topologies *part* counts *pod*, and how much."""
    if part["kind"] == "pods":
        if pod.is_terminating and not part["terminating"]:
            return []
        for term in part["terms"]:
            wanted = term["namespace_selector"]
            if pod.namespace not in term["namespaces"] and (
                wanted in (None, _UNREADABLE) or wanted["labels"]["team"] != teams[pod.namespace]
            ):
                return []
            if term["selector"] is _UNREADABLE:
                return []
            labels, expressions = term["selector"]["labels"], term["selector"]["expressions"]
            if any(pod.labels.get(key) != value for key, value in labels.items()):
                return []
            if any(one["key"] not in pod.labels for one in expressions):
                return []
        amount = pod.requests.get("cpu", 0) if "resource" in part else 1
        return [(part["topology"], part["weight"] * amount)] if amount else []
    weights: Counter[str | None] = Counter()
    if part["kind"] == "terms":
        about = part["pod"]["namespace"], part["pod"]["labels"]
        for term, weight in _terms(pod.manifest.spec.affinity, part["of"]):
            if _matches(term, pod.namespace, *about, teams):
                weights[term.topology_key] += weight
    else:
        own = _terms(part["own"].affinity, part["of"])
        found = [
            (term, weight)
            for term, weight in own
            if _matches(term, part["own"].namespace, pod.namespace, pod.labels, teams)
        ]
        is_joint = part["of"] == "required_affinity"
        if is_joint and len(found) < len(own):
            return []
        for term, weight in found:
            weights[term.topology_key] += weight
        if is_joint:
            weights = Counter(dict.fromkeys(weights, 1))
        if part["topology"] is not None and weights:
            weights = Counter({part["topology"]: 1 if is_joint else sum(weights.values())})
    return [(key, part["weight"] * weight) for key, weight in weights.items()]


def _counts(part: dict[str, Any], info: NodeInfo, pods: Sequence[Pod]) -> bool:
    """Whether *part* counts the node with these pods."""
    assert info.node is not None
    selector, free = part["selector"], part["free"]
    if selector is _UNREADABLE or (selector and info.node.labels.get("rack") != "r"):
        return False
    cpu = sum(pod.requests.get("cpu", 0) for pod in pods)
    gpus = info.node.allocatable.get(_GPU, 0)
    left = {"cpu": 4000 - cpu, "pods": 110 - len(pods), _GPU: gpus}
    return all(left[resource] >= least for resource, least in free.items())


def _where(part: dict[str, Any], pod: Pod, teams: Mapping[str, str]) -> list[str | None]:
    """The topologies in which *part* may count something else with *pod* than without it."""
    if part["kind"] != "nodes":
        return [key for key, _ in _counted(part, pod, teams)]
    free = part["free"]
    return [part["topology"]] if "pods" in free or ("cpu" in free and pod.requests) else []


@dataclass
class Count:
    """What a counter is to answer; `here` by slot."""

    here: list[int]
    min: int | None
    max: int | None
    total: int
    domains: int
    is_empty: bool

    @staticmethod
    def of(
        parts: Sequence[dict[str, Any]],
        infos: Sequence[NodeInfo | None],
        pods_on: Mapping[str, Sequence[Pod]],
        eligible: NDArray[np.bool_] | None,
        teams: Mapping[str, str],
    ) -> "Count":
        first = parts[0]
        keys = {key for part in parts for key in part["keys"]}
        is_single = len(parts) == 1 and (
            first["kind"] in ("pods", "nodes") or (first["kind"] == "matches" and first["topology"])
        )
        up_to = first.get("up_to")

        def cut(count: int) -> int:
            return count if up_to is None else min(count, up_to)

        def domain(info: NodeInfo, key: str | None) -> str | None:
            assert info.node is not None
            return info.name if key is None else info.node.labels.get(key)

        def is_inside(info: NodeInfo) -> bool:
            assert info.node is not None
            return keys <= info.node.labels.keys()

        sums: Counter[tuple[str | None, str]] = Counter()
        registered: set[str] = set()
        found = 0
        for slot, info in enumerate(infos):
            if info is None:
                continue
            counts = is_inside(info) and (eligible is None or bool(eligible[slot]))
            if is_single and counts and (name := domain(info, first["topology"])) is not None:
                registered.add(name)
            pods = pods_on.get(info.name, ())
            weighed: list[tuple[str | None, int]] = []
            for part in parts:
                if part["kind"] != "nodes":
                    weighed += (one for pod in pods for one in _counted(part, pod, teams))
                elif _counts(part, info, pods):
                    weighed.append((part["topology"], part["weight"]))
            for key, weight in weighed:
                name = domain(info, key)
                if name is not None:
                    found += 1
                    if counts:
                        sums[key, name] += weight
        here = []
        for info in infos:
            if info is None:
                here.append(OUTSIDE)
            elif is_single:
                name = domain(info, first["topology"])
                if name is None or (first["topology"] is None and not is_inside(info)):
                    here.append(OUTSIDE)
                else:
                    here.append(cut(sums[first["topology"], name]))
            elif is_inside(info):
                known = {key for key, _ in sums}
                here.append(cut(sum(sums[key, str(domain(info, key))] for key in known)))
            else:
                here.append(OUTSIDE)
        if is_single:
            counted = [cut(sums[first["topology"], name]) for name in registered]
            total = sum(counted)
        else:
            counted = [count for count in here if count != OUTSIDE]
            total = sum(sums.values())
        return Count(
            here,
            min(counted, default=None),
            max(counted, default=None),
            total,
            len(registered),
            found == 0,
        )

    def check(self, got: CounterColumn | CounterRow) -> None:
        assert (got.min, got.max, got.total) == (self.min, self.max, self.total)
        assert (got.domains, got.is_empty) == (self.domains, self.is_empty)


# --- histories -------------------------------------------------------------------------------


class History:
    """A cluster that changes, and counters that follow it."""

    def __init__(self, seed: int, counters: Counters) -> None:
        self.rng = random.Random(seed)
        self.cache = Cache()
        self.teams = dict(_TEAMS)
        for namespace in _TEAMS:
            self._label(namespace)
        self.pods: dict[str, Pod] = {}
        self.counters = [counters]
        self.asked = {f"{i}".encode(): _parts(self.rng) for i in range(12)}
        self.masks: dict[bytes, NDArray[np.bool_] | None] = {}
        self.seen: dict[bytes, tuple[CounterColumn, Any, NDArray[np.int64]]] = {}
        self.sums: dict[bytes, list[NDArray[np.int64]]] = {}
        self.moves = 0
        self.is_calm = False
        for node in _NODES[:4]:
            self._add_node(node)

    def _label(self, namespace: str) -> None:
        meta = ObjectMeta(name=namespace, labels={"team": self.teams[namespace]})
        self.cache.objects.put("namespaces", Namespace(meta))

    def _add_node(self, name: str) -> None:
        labels = {"rack": self.rng.choice("rs")} if self.rng.random() < 0.6 else {}
        zone = self.rng.choice(["a", "b", None])
        gpus = {_GPU: 1} if self.rng.random() < 0.5 else {}
        self.cache.add_node(make_node(name, zone=zone, labels=labels, allocatable=gpus))

    def step(self, *, is_calm: bool = False) -> None:
        """Change something; if it *is_calm*, a pod."""
        rng, self.is_calm = self.rng, is_calm
        name, node = f"p{rng.randrange(9)}", rng.choice(_NODES)
        what = rng.randrange(4, 12) if is_calm else rng.randrange(16)
        if what < 3:
            self._add_node(node)
        elif what == 3:
            self.cache.remove_node(node)
        elif what < 10:
            self.pods[name] = _pod(rng, name, node)
            self.cache.add_pod(self.pods[name])
        elif what < 12:
            if name in self.pods:
                self.cache.remove_pod(self.pods.pop(name))
        elif what == 12:
            namespace = rng.choice(list(_TEAMS))
            self.teams[namespace] = rng.choice("ab")
            self._label(namespace)
        elif what == 13:
            self._start_over()
        elif what == 14:
            copy = Counters()
            copy.reuse_from(self.counters[0], rng.choice([2, 64]))
            self.counters[1:] = [copy]

    def _start_over(self) -> None:
        """Another cache, which knows the same of fewer nodes: the counters go on with that one."""
        nodes = [info.node for info in self.cache.infos() if info.node is not None]
        self.cache = Cache()
        for namespace in _TEAMS:
            self._label(namespace)
        for node in self.rng.sample(nodes, max(0, len(nodes) - self.rng.randrange(2))):
            self.cache.add_node(node)
        for pod in self.pods.values():
            self.cache.add_pod(pod)

    def pods_on(self) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = {}
        for pod in self.pods.values():
            found.setdefault(pod.node_name, []).append(pod)
        return found

    def mask(self, key: bytes, slots: int) -> NDArray[np.bool_] | None:
        """The same for a while, or an equal one, or another one."""
        known = self.masks.get(key)
        if self.is_calm and key in self.masks and (known is None or len(known) == slots):
            return known
        if key not in self.masks or self.rng.random() < 0.3:
            known = (
                None if self.rng.random() < 0.5 else np.arange(slots) % 3 != self.rng.randrange(3)
            )
        elif known is not None and (len(known) != slots or self.rng.random() < 0.2):
            known = known.copy() if len(known) == slots else None
        self.masks[key] = known
        return known

    def ask(self, snapshot: Snapshot) -> Iterator[tuple[bytes, list[CounterColumn]]]:
        """Some of the counters, after each has been compared with a plain count.

        Of the first that follow the cluster, and of their copy.
        """
        present = np.array([info is not None for info in snapshot.infos], np.bool_)
        for key in self.rng.sample(sorted(self.asked), 6):
            parts, mask = self.asked[key], self.mask(key, len(present))
            want = Count.of(parts, snapshot.infos, self.pods_on(), mask, self.teams)
            columns = []
            for counters in self.counters:
                assert counters.is_empty(key, parts) is want.is_empty
                got = counters.column(key, parts, present, mask)
                columns.append(got)
                want.check(got)
                assert got.here.tolist() == want.here
                slots = np.flatnonzero(got.inside)
                assert not any(want.here[slot] == OUTSIDE for slot in slots)
            yield key, columns

    def refresh(self) -> Snapshot:
        snapshot = self.cache.snapshot()
        named = self.rng.choice([frozenset[str](), frozenset({"app"}), frozenset({"pod"})])
        own = {"app": "web", "tier": "x", "pod": "p"}
        pod = make_pod("p", labels=own)
        affinities = (other.manifest.spec.affinity for other in self.pods_shown())
        asked = named.union(*(term_keys(one) for one in affinities if one is not None))
        for counters in self.counters:
            counters.refresh(snapshot, named)
            found = counters.term_labels(pod)
            assert {key: own[key] for key in asked & own.keys()}.items() <= found.items()
            assert found.items() <= own.items()
            assert "pod" in named or "pod" not in found
        return snapshot

    def pods_shown(self) -> list[Pod]:
        """Those of nodes that are there."""
        return [
            pod
            for pod in self.pods.values()
            if (info := self.cache.node_info(pod.node_name)) and info.node
        ]

    def follow(self, key: bytes, column: CounterColumn) -> None:
        """What is said to have moved, and no more, leads from the counts before to those of now."""
        counts = column.counts_by_slot
        if key in self.seen:
            before, positions, want = self.seen[key]
            moved = column.moved_since(positions)
            if moved is not None and column.shown(100) == 100:
                # By domain, whichever nodes are in it by now.
                sums = {place: one.copy() for place, one in enumerate(self.sums[key])}
                for topology, domain, amount in moved:
                    sums[topology][domain] += amount
                now = enumerate(column._sums)
                assert {place: one.tolist() for place, one in now} == {
                    place: one.tolist() for place, one in sums.items()
                }
            if column.layout is before.layout:
                assert moved is not None
                inside = want != OUTSIDE
                for topology, domain, amount in moved:
                    assert amount
                    members = column.layout.members(topology).of(domain)
                    want[members[inside[members]]] += amount
                    self.moves += 1
                assert counts.tolist() == want.tolist()
        self.seen[key] = column, column.positions, counts.copy()
        self.sums[key] = [one.copy() for one in column._sums]


@pytest.mark.parametrize("bounds", [{}, {"capacity": 4, "most_held": 3}], ids=["all", "few"])
@pytest.mark.parametrize("seed", range(6))
def test_counters_say_what_a_plain_count_says(seed: int, bounds: dict[str, int]) -> None:
    """Also those that were let go meanwhile, and their topologies."""
    history = History(seed, Counters(**bounds))
    for step in range(60):
        history.step(is_calm=step % 20 > 10)
        snapshot = history.refresh()
        for key, columns in history.ask(snapshot):
            history.follow(key, columns[0])
    assert history.moves or bounds


@pytest.mark.parametrize("seed", range(8))
def test_a_dry_run_counts_as_if_the_pods_had_come_and_gone(seed: int) -> None:
    history = History(seed, Counters())
    rng = history.rng
    for _ in range(30):
        history.step()
        snapshot = history.refresh()
        slots = [slot for slot, info in enumerate(snapshot.infos) if info is not None]
        if not slots:
            continue
        slot = rng.choice(slots)
        info = snapshot.infos[slot]
        assert info is not None
        there = list(info.pods.values())
        removed = rng.sample(there, rng.randint(0, len(there)))
        added = [_pod(rng, f"new-{i}", info.name) for i in range(rng.randrange(3))]
        after = info
        for pod in removed:
            after = after.without_pod(pod.uid)
        for pod in added:
            after = after.with_pod(pod)
        pods_on = history.pods_on()
        pods_on[info.name] = [pod for pod in there if pod not in removed] + added
        for key, columns in history.ask(snapshot):
            parts, mask = history.asked[key], history.masks[key]
            want = Count.of(parts, snapshot.infos, pods_on, mask, history.teams)
            for counters, column in zip(history.counters, columns, strict=True):
                changes = PodChanges(slot, added, removed)
                row = counters.row(key, parts, column, changes, after)
                want.check(row)
                assert row.here == want.here[slot]
                for pod in (*added, *there):
                    where = {k for part in parts for k in _where(part, pod, history.teams)}
                    assert counters.topologies(key, parts, slot, pod) == where
