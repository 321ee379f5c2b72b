"""Counters beside a plain recount over all pods, while the cluster changes at random."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.core.caching.cache import Cache
from engine.core.caching.counter_answers import OUTSIDE
from engine.core.caching.counters import Counters
from engine.core.model.objects import Namespace, ObjectMeta
from engine.core.model.pod import Pod
from engine.core.model.selectors import matches_label_selector
from engine.core.scheduling.node_groups import Groups
from tests.builders import ZONE, make_node, make_pod
from tests.searching import examples

pytestmark = pytest.mark.slow("searches for long")

NODES = [f"n{i}" for i in range(5)]
APPS = ["web", "db"]
CPUS = [None, "500m", "2"]
NAMESPACES = ["red", "blue"]

WEB: dict[str, Any] = {"labels": {"app": "web"}, "expressions": []}


def _part(**changes: Any) -> dict[str, Any]:
    part: dict[str, Any] = {
        "kind": "pods",
        "topology": ZONE,
        "terms": [{"selector": WEB, "namespaces": ["red"], "namespace_selector": None}],
        "among": None,
        "keys": [],
        "weight": 1,
        "terminating": False,
    }
    return part | changes


PARTS = {
    "pods of a selector": _part(),
    "per node": _part(topology=None),
    "with a key that nodes may lack": _part(keys=["rack"]),
    "per node with a key that nodes may lack": _part(topology=None, keys=["rack"]),
    "terminating too": _part(terminating=True),
    "by namespace labels": _part(
        terms=[
            {
                "selector": WEB,
                "namespaces": [],
                "namespace_selector": {"labels": {"team": "a"}, "expressions": []},
            }
        ]
    ),
    "no more than one": _part(up_to=1),
    "what pods request": _part(resource="cpu"),
    "what pods request by node, weighed": _part(resource="cpu", topology=None, weight=-3),
    "what pods request, up to an amount": _part(resource="cpu", up_to=1500),
    "terms of placed pods": {
        "kind": "terms",
        "of": "required_anti_affinity",
        "weight": 1,
        "keys": [],
        "among": None,
        "pod": {"namespace": "red", "labels": {"app": "web"}},
    },
    "terms of placed pods, no more than one": {
        "kind": "terms",
        "of": "required_anti_affinity",
        "weight": 1,
        "up_to": 1,
        "keys": [],
        "among": None,
        "pod": {"namespace": "red", "labels": {"app": "web"}},
    },
    "preferences of placed pods": {
        "kind": "terms",
        "of": "preferred_affinity",
        "weight": -2,
        "keys": [],
        "among": None,
        "pod": {"namespace": "red", "labels": {"app": "web"}},
    },
}


def _answer(here: int, fewest: int | None) -> int:
    """What a hook might make of a count: fits as long as there are no more than elsewhere."""
    return 0 if here == OUTSIDE or here <= (fewest or 0) else 2 + here % 5


_TERM = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}
_RACK_TERM = _TERM | {"topologyKey": "rack"}
AFFINITIES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "away from web": {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]}
    },
    "away from web in the rack, too": {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM, _RACK_TERM]}
    },
    "near web": {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 3, "podAffinityTerm": _TERM}
            ]
        }
    },
}


class CountersBesideARecount(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.counters = Counters()
        self.groups: dict[bytes, Groups] = {}
        self.pods: dict[str, Pod] = {}
        self.next_uid = 0
        self.eligible_from = 0
        self._set_team("red", "a")
        self._set_team("blue", "b")

    def _set_team(self, namespace: str, team: str) -> None:
        meta = ObjectMeta(name=namespace, labels={"team": team})
        self.cache.objects.put("namespaces", Namespace(meta))

    @rule(name=st.sampled_from(NODES), zone=st.sampled_from(["a", "b", None]), rack=st.booleans())
    def put_node(self, name: str, zone: str | None, rack: bool) -> None:
        self.cache.add_node(make_node(name, zone=zone, labels={"rack": "r"} if rack else {}))

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        self.cache.remove_node(name)

    @rule(
        node=st.sampled_from(NODES),
        app=st.sampled_from(APPS),
        namespace=st.sampled_from(NAMESPACES),
        affinity=st.sampled_from(sorted(AFFINITIES)),
        cpus=st.lists(st.sampled_from(CPUS), min_size=1, max_size=2),
    )
    def place(
        self, node: str, app: str, namespace: str, affinity: str, cpus: list[str | None]
    ) -> None:
        """Pods that are alike but for what they request."""
        for cpu in cpus:
            uid = f"u{self.next_uid}"
            self.next_uid += 1
            words = {"labels": {"app": app}, "affinity": AFFINITIES[affinity], "cpu": cpu}
            pod = make_pod(uid, namespace, uid=uid, node=node, **words)
            self.pods[uid] = pod
            self.cache.add_pod(pod)

    @rule(
        data=st.data(),
        app=st.sampled_from(APPS),
        terminating=st.booleans(),
        cpu=st.sampled_from(CPUS),
    )
    def change_pod(self, data: st.DataObject, app: str, terminating: bool, cpu: str | None) -> None:
        if not self.pods:
            return
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        old = self.pods[uid]
        pod = make_pod(
            uid,
            old.namespace,
            uid=uid,
            node=old.node_name,
            labels={"app": app},
            terminating=terminating,
            cpu=cpu,
        )
        self.pods[uid] = pod
        self.cache.add_pod(pod)

    @rule(data=st.data())
    def remove_pod(self, data: st.DataObject) -> None:
        if self.pods:
            uid = data.draw(st.sampled_from(sorted(self.pods)))
            self.cache.remove_pod(self.pods.pop(uid))

    @rule(namespace=st.sampled_from(NAMESPACES), team=st.sampled_from(["a", "b"]))
    def relabel_namespace(self, namespace: str, team: str) -> None:
        self._set_team(namespace, team)

    @rule(first=st.integers(0, 3))
    def change_what_counts(self, first: int) -> None:
        self.eligible_from = first

    # --- the recount ---------------------------------------------------------------------------

    def _weight(self, part: dict[str, Any], pod: Pod) -> list[tuple[str | None, int]]:
        namespaces = {name: self.cache.objects.get("namespaces", name) for name in NAMESPACES}
        teams = {name: n.metadata.labels["team"] for name, n in namespaces.items() if n}
        if part["kind"] == "pods":
            (term,) = part["terms"]
            wanted = term["namespace_selector"]
            is_there = pod.namespace in term["namespaces"] or (
                wanted is not None and teams[pod.namespace] == wanted["labels"]["team"]
            )
            fits = is_there and pod.labels.get("app") == "web"
            fits = fits and (part["terminating"] or not pod.is_terminating)
            amount = pod.requests.get(part["resource"], 0) if "resource" in part else 1
            return [(part["topology"], part["weight"] * amount)] if fits and amount else []
        affinity = pod.manifest.spec.affinity
        if affinity is None or pod.namespace != part["pod"]["namespace"]:
            return []
        found: list[tuple[str | None, int]] = []
        if part["of"] == "required_anti_affinity" and affinity.pod_anti_affinity:
            for term in affinity.pod_anti_affinity.required:
                assert matches_label_selector(term.label_selector, part["pod"]["labels"])
                found.append((term.topology_key, part["weight"]))
        if part["of"] == "preferred_affinity" and affinity.pod_affinity:
            found += [(ZONE, part["weight"] * w.weight) for w in affinity.pod_affinity.preferred]
        return found

    @invariant()
    def counters_are_a_recount(self) -> None:
        snapshot = self.cache.snapshot()
        self.counters.refresh(snapshot)
        slots = len(snapshot.infos)
        present = np.array([info is not None for info in snapshot.infos], np.bool_)
        masks = {"all": None, "some": np.arange(slots) >= self.eligible_from}
        for name, part in PARTS.items():
            for which, mask in masks.items():
                key = f"{name} {which}".encode()
                got = self.counters.column(key, [part], present, mask)
                self._answers = self._grouped_answers(key, got, present)
                self._compare(part, mask, got, snapshot)

    def _grouped_answers(self, key: bytes, got: Any, present: Any) -> list[int]:
        """What a hook that follows the counter's changes is told of each slot, as its answer."""
        groups = self.groups.setdefault(key, Groups())
        groups.follow((0, got.layout), len(present), np.where(present, 0, -1), [got])
        groups.share([{"min": got.min}])
        for group in sorted(groups.unknown):
            groups.learn(group, _answer(got.shown(groups.keys[group][1]), got.min))
        sizes = np.bincount(groups.of_slot, minlength=groups.count)
        assert groups.sizes[: groups.count].tolist() == sizes.tolist()
        codes = np.zeros(len(present), np.int32)
        groups.reject(codes, present)
        found: list[int] = codes.tolist()
        return found

    def _compare(self, part: dict[str, Any], mask: Any, got: Any, snapshot: Any) -> None:
        def domain(slot: int, topology: str | None) -> str | None:
            info = snapshot.infos[slot]
            name: str | None
            name = info.name if topology is None else info.node.labels.get(topology)
            return name

        sums: Counter[tuple[str | None, str]] = Counter()
        registered: set[str] = set()
        for slot, info in enumerate(snapshot.infos):
            if info is None or (mask is not None and not mask[slot]):
                continue
            if any(key not in info.node.labels for key in part["keys"]):
                continue
            if part["kind"] == "pods" and domain(slot, part["topology"]) is not None:
                registered.add(str(domain(slot, part["topology"])))
            for pod in info.pods.values():
                for topology, weight in self._weight(part, pod):
                    if domain(slot, topology) is not None:
                        sums[topology, str(domain(slot, topology))] += weight
        if part["kind"] == "pods" and "up_to" in part:
            sums = Counter({place: min(n, part["up_to"]) for place, n in sums.items()})
        for slot, info in enumerate(snapshot.infos):
            if info is None:
                continue
            if part["kind"] == "pods":
                here = domain(slot, part["topology"])
                lacks = part["topology"] is None and any(
                    key not in info.node.labels for key in part["keys"]
                )
                want = OUTSIDE if here is None or lacks else sums[part["topology"], here]
            else:
                want = sum(sums[key, str(domain(slot, key))] for key in (ZONE, "rack"))
                want = min(want, part.get("up_to", want))
            assert int(got.here[slot]) == want, (part, slot)
            assert self._answers[slot] == _answer(want, got.min), (part, slot)
        assert got.total == sum(sums.values())
        if part["kind"] == "pods":
            counts = [sums[part["topology"], d] for d in registered]
            assert got.domains == len(registered)
            assert got.min == (min(counts) if counts else None)
            assert got.max == (max(counts) if counts else None)


TestCountersBesideARecount = CountersBesideARecount.TestCase
TestCountersBesideARecount.settings = settings(max_examples=examples(60), stateful_step_count=30)
