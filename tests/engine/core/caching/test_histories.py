"""After any history, each part of the cache is as if only what is there now had ever come."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.core.caching.attachments import VolumeUsers, other_attached_volumes, volumes_in_use
from engine.core.caching.cache import AlreadyAssumed, Cache
from engine.core.caching.counter_answers import Members
from engine.core.caching.counters import Counters
from engine.core.caching.kind_index import TermIndex, TermKeys, term_keys
from engine.core.caching.objects import ObjectStore
from engine.core.caching.pod_kinds import PodKinds
from engine.core.model.csi_migration import Attachment
from engine.core.model.fact import NO_FACTS, Fact, NodeFacts
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.model.objects import ConfigMap, ManagedMeta, from_plain
from engine.core.model.pod import Pod
from engine.core.model.pod_volumes import ClaimUse, Disk
from engine.files.world import OBJECT_KINDS
from tests.builders import make_node, make_pod
from tests.engine.core.caching.test_kind_index import drawn_pod
from tests.storage_builders import DRIVER, claim, uses, volume

_NODES = ("a", "b", "c")
_HISTORIES = range(12)


def _pod(rng: random.Random, name: str, node: str) -> Pod:
    volumes = uses(*rng.sample(["data", "logs", "own"], rng.randint(0, 2)))
    volumes += [
        {"name": disk, "awsElasticBlockStore": {"volumeID": disk}}
        for disk in rng.sample(["vol-1", "vol-2"], rng.randint(0, 2))
    ]
    labels = {"app": rng.choice("xy")}
    uid = f"{name}-{rng.randint(0, 1)}"
    ports = rng.sample([80, 443], rng.randint(0, 2))
    return make_pod(
        name, uid=uid, cpu=1, volumes=volumes, labels=labels, node=node or None, ports=ports
    )


class History:
    """A cache, and what is in it as the test knows it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cache = Cache()
        self.nodes: dict[str, Node] = {}
        self.placed: dict[str, Pod] = {}  # by name, as the API server has them
        self.assumed: dict[str, Pod] = {}
        self.facts: dict[str, NodeFacts] = {}

    def step(self) -> None:
        rng, cache = self.rng, self.cache
        name, node = rng.choice("pqrst"), rng.choice(_NODES)
        match rng.randrange(10):
            case 0:
                images = dict.fromkeys(rng.sample("xyz", rng.randint(0, 2)), 1)
                labels = {"v": rng.choice("12")}
                self.nodes[node] = make_node(node, labels=labels, images=images)
                cache.add_node(self.nodes[node])
            case 1:
                self.nodes.pop(node, None)
                cache.remove_node(node)
            case 2 | 3:
                pod = _pod(rng, name, node)
                self.assumed.pop(name, None)
                self.placed[name] = pod
                cache.add_pod(pod)
            case 4:
                known = self.placed.pop(name, None)
                if known is not None:
                    cache.remove_pod(known)
                    cache.remove_pod(known)  # events may come twice
            case 5:
                pod = _pod(rng, name, "")
                try:
                    assumed = cache.assume(pod, node)
                except AlreadyAssumed:
                    return
                self.placed.pop(name, None)  # its namesake is gone
                self.assumed[name] = assumed
            case 6:
                known = self.assumed.pop(name, None)
                if known is not None:
                    assert cache.forget(known.uid)
                    assert not cache.forget(known.uid)
            case 7:
                cache.snapshot()
                with cache.trial():
                    for uid in [pod.uid for pod in self.assumed.values()]:
                        cache.forget(uid)
                    for pod in self.placed.values():
                        cache.remove_pod(pod)
                    if rng.random() < 0.5:
                        cache.snapshot()
                    cache.add_pod(_pod(rng, "trial", node))
            case 8:
                pod = make_pod(name, node=node, uid=f"{name}-0", phase="Succeeded")
                for pods in (self.placed, self.assumed):
                    if name in pods and pods[name].uid == pod.uid:
                        del pods[name]
                cache.add_pod(pod)
            case 9:
                facts = NodeFacts({"load": Fact(rng.randint(0, 1), "")}, {})
                self.facts[node] = rng.choice([facts, NO_FACTS])
                cache.set_node_facts(node, self.facts[node])

    def users(self) -> VolumeUsers:
        """The volume users of what is there, counted from nothing."""
        found = VolumeUsers()
        for node in self.nodes.values():
            pods = [*self.placed.values(), *self.assumed.values()]
            mine = [pod for pod in pods if pod.node_name == node.name]
            found.move(None, NodeInfo(node.name, node, mine))
        return found


_USES = [ClaimUse(f"default/{name}") for name in ("data", "logs", "own", "never")]


def _seen(users: VolumeUsers, objects: ObjectStore) -> list[object]:
    disks = [
        volume.use
        for name in ("vol-1", "vol-2", "vol-3")
        for volume in make_pod(
            volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": name}}]
        ).volumes
    ]
    found: list[object] = [users.all_nodes()]
    for use in (*_USES, *disks):
        found.append(users.nodes_of(use))
        attachment = use.attachment if isinstance(use, Disk) else Attachment("d", "handle")
        assert attachment is not None
        found.append(users.may_share(_USES[-1], attachment, objects))
        found.append(users.may_share(use, Attachment("d", "handle"), objects))
    return found


@pytest.mark.parametrize("seed", _HISTORIES)
def test_users_of_volumes_are_those_of_what_is_there(seed: int) -> None:
    history = History(seed)
    copies: list[tuple[VolumeUsers, list[object]]] = []
    for step in range(150):
        history.step()
        if step % 3 == 0:
            users = history.cache.snapshot().volume_users
            history.cache.check_invariants()
            want = _seen(history.users(), history.cache.objects)
            assert _seen(users, history.cache.objects) == want
            copies.append((users.copy(), want))
    for copy, want in copies:  # a copy goes its own way
        assert _seen(copy, history.cache.objects) == want


@pytest.mark.parametrize("seed", _HISTORIES)
def test_the_snapshot_shows_what_is_there_and_names_what_has_changed(seed: int) -> None:
    history = History(seed)
    cache = history.cache
    mirror: list[NodeInfo | None] = []
    seen = nodes = images_seen = counted_seen = 0
    images: dict[str, int] = {}
    counted: dict[str, Pod] = {}
    for step in range(200):
        history.step()
        pods = {pod.uid: pod for pod in (*history.placed.values(), *history.assumed.values())}
        if pods != counted:
            assert cache.pods_generation > counted_seen
        counted, counted_seen = pods, cache.pods_generation
        assert cache.node_count == len(history.nodes)
        if step % 2:
            continue
        snapshot = cache.snapshot()
        cache.check_invariants()
        assert snapshot.slot_of.keys() == history.nodes.keys()
        for name, node in history.nodes.items():
            info = snapshot.info(name)
            assert info is not None
            assert info.node is node
            assert info.pods == {uid: pod for uid, pod in pods.items() if pod.node_name == name}
            assert info.facts == cache.facts_of_node(name) == history.facts.get(name, NO_FACTS)
        assert cache.node_facts() == {k: v for k, v in history.facts.items() if v != NO_FACTS}
        found = dict(snapshot.image_nodes)
        if (found, snapshot.node_count) != (images, nodes):
            assert snapshot.image_generation > images_seen
        images, nodes, images_seen = found, snapshot.node_count, snapshot.image_generation
        mirror += [None] * (len(snapshot.infos) - len(mirror))
        for slot in snapshot.changed_since(seen) or ():
            mirror[slot] = snapshot.infos[slot]
        seen = snapshot.generation
        assert all(one is other for one, other in zip(mirror, snapshot.infos, strict=True))


@pytest.mark.parametrize("seed", _HISTORIES)
def test_assumed_pods_are_those_that_the_api_server_has_not_shown(seed: int) -> None:
    history = History(seed)
    for _ in range(150):
        history.step()
        cache = history.cache
        assert cache.assumed_count == len(history.assumed)
        assert cache.pod_count == len(history.assumed) + len(history.placed)
        for name, pod in (*history.assumed.items(), *history.placed.items()):
            is_assumed = name in history.assumed
            assert cache.is_assumed(pod.uid) is is_assumed
            assert cache.get_pod(pod.uid) is pod
            assert cache.uid_of(pod.key) == pod.uid


def _sizes(part: object, path: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    if id(part) in seen:
        return
    seen.add(id(part))
    for name in (*getattr(part, "__dict__", ()), *getattr(part, "__slots__", ())):
        value = getattr(part, name, None)
        if isinstance(value, dict | set | list):
            yield f"{path}.{name}", len(value)
            inner = value.values() if isinstance(value, dict) else ()
            yield f"{path}.{name} inside", sum(len(one) for one in inner if isinstance(one, dict))
        elif type(value).__module__.startswith("engine.core.caching"):
            yield from _sizes(value, f"{path}.{name}", seen)


def test_what_is_gone_is_kept_in_no_part_of_the_cache() -> None:
    """Nodes, pods, claims and disks of every name that ever was would stay for ever."""
    cache, counters = Cache(), Counters()
    found = []
    for run in range(3):
        for index in range(5):
            cache.add_node(make_node(f"n-{run}-{index}", images={f"image-{run}": 1}))
            disk = {"name": "d", "awsElasticBlockStore": {"volumeID": f"d-{run}"}}
            volumes = [*uses(f"c-{run}"), disk]
            name = f"p-{run}-{index}"
            # Many, so that nothing is kept in case that another pod of that kind comes.
            labels = {f"l-{run}-{number}": "x" for number in range(70)} | {"run": f"{run}"}
            term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "zone"}
            rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            words: dict[str, Any] = {"labels": labels, "affinity": {"podAffinity": rules}}
            pod = make_pod(name, cpu=1, node=f"n-{run}-{index}", volumes=volumes, **words)
            cache.add_pod(pod)
            cache.assume(make_pod(f"a-{run}-{index}", volumes=volumes), f"n-{run}-{index}")
        for group in ("x", f"x-{run}", "x"):
            cache.objects.put("configmaps", _text(f"o-{run}", group, f"team-{run}"))
            cache.objects.indexed("configmaps", _group, "x")
        counters.refresh(cache.snapshot())
        counters._kinds.having(("run", f"{run}"))
        for uid in [uid for info in list(cache.infos()) for uid in info.pods]:
            if not cache.forget(uid):
                known = cache.get_pod(uid)
                assert known is not None
                cache.remove_pod(known)
        for name in [info.name for info in cache.infos()]:
            cache.remove_node(name)
        cache.objects.delete("configmaps", f"team-{run}/o-{run}")
        counters.refresh(cache.snapshot())
        cache.check_invariants()
        kinds = _sizes(counters._kinds, "kinds", set())
        found.append({**dict(_sizes(cache, "cache", set())), **dict(kinds)})
    assert found[1] == found[2]
    assert found[2]["cache._pods"] == found[2]["cache._infos"] == 0


# --- the store -----------------------------------------------------------------------------


def _text(name: str, group: str | None, namespace: str, *unread: str) -> ConfigMap:
    meta = ManagedMeta(name=name, namespace=namespace, unread=unread)
    return ConfigMap(meta, {} if group is None else {"group": group})


def _group(obj: ConfigMap) -> str | None:
    return obj.data.get("group")


def _shown(store: ObjectStore) -> list[Any]:
    found: list[Any] = [dict(store.unknown), dict(store.unread)]
    for kind in ("configmaps", "secrets"):
        found += [store.list(kind), store.count(kind), store.generation(kind)]
        found += [store.list(kind, namespace) for namespace in ("one", "two", "none")]
        found += [store.indexed(kind, _group, value) for value in "xyz"]
    return found


@pytest.mark.parametrize("seed", _HISTORIES)
def test_a_frozen_store_stays_as_it_was_and_shares_what_is_equal(seed: int) -> None:
    """The next one is made from it, also when it is two or more changes behind."""
    rng = random.Random(seed)
    store = ObjectStore()
    known: dict[tuple[str, str], ConfigMap] = {}
    frozen: list[tuple[ObjectStore, list[Any]]] = []
    for _ in range(120):
        kind = rng.choice(("configmaps", "secrets"))
        name, namespace = rng.choice("abc"), rng.choice(("one", "two"))
        key = f"{namespace}/{name}"
        match rng.randrange(5):
            case 0 | 1:
                unread = rng.choice(((), (), ("data: want an object",)))
                obj = _text(name, rng.choice(("x", "y", None)), namespace, *unread)
                known[kind, key] = obj
                store.put(kind, obj)
            case 2:
                known.pop((kind, key), None)
                store.delete(kind, key)
                store.delete(kind, key)
            case 3:
                store.unknown = rng.choice(({}, {"secrets": "forbidden"}))
            case 4:
                before = frozen[-1][0] if frozen and rng.random() < 0.8 else None
                copy = store.frozen(before)
                assert store.frozen(copy) is copy
                if before is not None and before.generation(kind) == copy.generation(kind):
                    assert copy.list(kind) == before.list(kind)
                frozen.append((copy, _shown(store)))
                if rng.random() < 0.5:  # else its indexes are made later, or never
                    assert _shown(copy) == _shown(store)
        assert store.unread == {key: o for key, o in known.items() if o.metadata.unread}
        with store.noting() as noted:
            with store.noting() as inside:
                assert store.get(kind, key) is known.get((kind, key))
            assert inside == {of: o for of, o in store.unread.items() if of == (kind, key)}
            assert not noted
            store.get(kind, key)
            assert noted == inside
        for kind in ("configmaps", "secrets"):
            mine = {key: obj for (of, key), obj in known.items() if of == kind}
            assert {
                f"{o.metadata.namespace}/{o.metadata.name}": o for o in store.list(kind)
            } == mine
            for value in "xyz":
                want = {key for key, obj in mine.items() if _group(obj) == value}
                found = store.indexed(kind, _group, value)
                assert {f"{o.metadata.namespace}/{o.metadata.name}" for o in found} == want
    for copy, shown in frozen:
        assert _shown(copy) == shown


# --- indexes -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", _HISTORIES)
def test_the_keys_that_terms_name_are_those_of_what_is_there(seed: int) -> None:
    rng = random.Random(seed)
    keys, known = TermKeys[str](), dict[str, Pod]()
    copies: list[tuple[TermKeys[str], set[str]]] = []
    for _ in range(200):
        name = rng.choice("pqrst")
        if name in known or rng.random() < 0.2:
            keys.remove(name)
            keys.remove(name)
            known.pop(name, None)
        else:
            pod = drawn_pod(rng, name)
            affinity = pod.manifest.spec.affinity
            if affinity is not None:
                keys.add(name, affinity)
                known[name] = pod
        affinities = (pod.manifest.spec.affinity for pod in known.values())
        want = set().union(*(term_keys(one) for one in affinities if one is not None))
        assert keys.named == want
        if rng.random() < 0.2:
            copies.append((keys.copy(), want))
    for copy, named in copies:
        assert copy.named == named


@pytest.mark.parametrize("seed", _HISTORIES)
def test_the_members_of_a_domain_are_the_places_that_hold_its_number(seed: int) -> None:
    rng = random.Random(seed)
    numbers = [rng.randrange(6) for _ in range(rng.randrange(12))]
    members = Members(np.array(numbers, np.int32))
    for number in range(9):
        places = [place for place, one in enumerate(numbers) if one == number]
        assert members.of(number).tolist() == places
        assert members.only(number) == (places[0] if len(places) == 1 else -1)


def test_a_copy_of_the_kinds_of_pods_has_a_log_of_its_own() -> None:
    cache, kinds = Cache(), PodKinds()
    cache.add_node(make_node("node"))
    for name in ("a", "b"):
        cache.add_pod(make_pod(name, labels={"app": name}, node="node"))
    kinds.refresh(cache.snapshot())
    copy = kinds.copy()
    position = kinds.position
    assert copy.position == position
    assert copy.changes_since(0) == kinds.changes_since(0) != []
    cache.add_pod(make_pod("c", labels={"app": "a"}, node="node"))
    copy.refresh(cache.snapshot())
    assert len(copy.changes_since(position) or ()) == 1
    assert kinds.changes_since(position) == []


def test_each_fact_that_is_set_or_taken_back_shows_and_is_a_change() -> None:
    cache = Cache()
    cache.add_node(make_node("n"))
    snapshot = cache.snapshot()
    seen = [snapshot.facts_generation]
    for labels in (("team",), ("app", "team"), ()):
        cache.set_pod_type_labels(labels)
        assert snapshot.pod_type_labels == labels
        seen.append(snapshot.facts_generation)
    for load in (1, 2, 2):
        facts: Any = {"load": load}
        cache.set_other_facts(cluster=facts, types={"team": facts}, pods={"default/p": facts})
        assert (snapshot.cluster_facts, snapshot.pod_facts) == (facts, {"default/p": facts})
        seen.append(snapshot.facts_generation)
    for load in (3, 4):
        news: Any = {"load": load}
        cache.set_pod_facts("default/q", news)
        assert snapshot.pod_facts == {"default/p": facts, "default/q": news}
        seen.append(snapshot.facts_generation)
    for _ in range(2):  # news may come twice
        cache.set_pod_facts("default/q", {})
        assert snapshot.pod_facts == {"default/p": facts}
    seen.append(snapshot.facts_generation)
    assert seen == sorted(set(seen))


def test_a_kind_with_terms_is_found_next_to_others_until_it_is_forgotten() -> None:
    def affinity(number: int) -> Any:
        term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": f"zone-{number}"}
        rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        return make_pod(affinity={"podAffinity": rules}).manifest.spec.affinity

    for gone in itertools.permutations(range(4)):
        index, left = TermIndex(), set(range(4))
        for kind in range(4):
            index.add(kind, affinity(kind))
        for kind in gone:
            assert index.matching({"app": "db"}) == left
            assert index.copy().matching({"app": "db"}) == left
            index.remove(kind)
            index.remove(kind)
            left.remove(kind)
        assert index.matching({"app": "db"}) == set()


# --- a cycle that waits --------------------------------------------------------------------


@pytest.mark.parametrize("changes", [False, True])
def test_a_frozen_view_shows_what_is_assumed_and_forgotten_and_nothing_else(changes: bool) -> None:
    """Whatever another one does meanwhile shows when it is over."""
    cache = Cache()
    cache.add_node(make_node("n"))
    pod, other = make_pod("p", cpu=1), make_pod("other", cpu=1, node="n")
    with cache.frozen() as snapshot:
        if changes:
            cache.add_pod(other)
        cache.assume(pod, "n")
        info = snapshot.info("n")
        assert info is not None
        assert set(info.pods) == {pod.uid}
        assert cache.snapshot() is snapshot
        assert cache.forget(pod.uid)
        info = snapshot.info("n")
        assert info is not None
        assert not info.pods
    info = cache.snapshot().info("n")
    assert info is not None
    assert set(info.pods) == ({other.uid} if changes else set())
    cache.check_invariants()


# --- volumes of a node ---------------------------------------------------------------------


def test_a_volume_of_a_node_counts_once_with_its_driver_used_or_only_attached() -> None:
    """Two claims of pods there, one volume of it attached too; and two that are attached alone."""
    objects = ObjectStore()

    def put(plain: Any) -> None:
        plural, record = OBJECT_KINDS[plain["kind"]]
        obj: Any = from_plain(record, plain)
        objects.put(plural, obj)

    def attached(volume_name: str, node: str) -> None:
        source = {"persistentVolumeName": volume_name}
        spec = {"attacher": DRIVER, "nodeName": node, "source": source}
        name = f"{volume_name}-{node}"
        put({"kind": "VolumeAttachment", "metadata": {"name": name}, "spec": spec})

    for name in ("one", "two", "three", "four"):
        put(volume(name, source={"csi": {"driver": DRIVER, "volumeHandle": f"h-{name}"}}))
        put(claim(name, volume=name))
    pods = [
        make_pod("p", volumes=uses("two", "one", "missing"), node="n"),
        make_pod("q", volumes=uses("two"), node="n"),
    ]
    info = NodeInfo("n", make_node("n"), pods)
    assert volumes_in_use(info, objects) == {DRIVER: ["h-one", "h-two"]}
    assert other_attached_volumes(info, objects) == {}
    for name in ("one", "three", "four"):
        attached(name, "n")
    attached("two", "elsewhere")
    assert other_attached_volumes(info, objects) == {DRIVER: 2}
    assert volumes_in_use(NodeInfo("e", make_node("e"), []), objects) == {}
