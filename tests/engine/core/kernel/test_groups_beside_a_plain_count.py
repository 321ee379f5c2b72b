"""Pod groups beside a plain count over all pods, after any history of pods and PodGroups."""

import functools
import random
from collections.abc import Collection, Mapping

import pytest

from engine.core.caching.cache import Cache
from engine.core.kernel.pod_groups import NOT_SERVED, GroupKey, PodGroups
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS, PodGroup
from engine.core.queueing.places import Gate
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.test_group_attempts import pod_group

# Two policies see groups: one by the label `team`, for its `permit`; one by the label `app`.
_FILES = {
    "config.yaml": """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
"""
    + "".join(
        f"""
- schedulerName: {name}
  plugins:
    multiPoint:
      disabled: [{{name: "*"}}]
      enabled: [{{name: PrioritySort}}, {{name: DefaultBinder}}, {{name: apps}}, {{name: teams}}]
"""
        for name in ("one", "two")
    ),
    "apps.star": """
def group_of(pod):
    return gang(pod.labels["app"], min_count = 0) if "app" in pod.labels else None
""",
    "teams.star": """
def group_of(pod):
    if "team" not in pod.labels:
        return None
    wanted, priority = pod.labels.get("min"), pod.labels.get("priority")
    return gang(
        pod.labels["team"],
        min_count = None if wanted == None else int(wanted),
        priority = None if priority == None else int(priority),
    )

def permit(pod, group):
    return None
""",
}
_POLICIES = ("apps", "teams")


@functools.cache
def _bundle() -> Bundle:
    return build_bundle(_FILES)


class History:
    """Groups that follow pods, and the pods as the test knows them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cache = Cache()
        self.cache.add_node(make_node("n"))
        self.groups = PodGroups(self.cache)
        self.pods: dict[str, Pod] = {}
        self.waiting: set[str] = set()
        self.held: set[str] = set()  # counted in the cache before the API server shows it
        self.objects: dict[str, PodGroup] = {}
        self.are_served = True
        self.gates: dict[GroupKey, dict[str, Gate]] = {}  # by uid, those that keep a group out
        self.begin()

    def begin(self) -> None:
        """Policies come into force."""
        self.has_begun = True
        self.gates.clear()
        self.scheduler = Scheduler(_bundle(), InProcessEvaluator(_bundle().program))
        self.groups.use(self.scheduler, lambda: list(self.pods.values()))

    def _pod(self, name: str) -> Pod:
        rng, before = self.rng, self.pods.get(name)
        words = {"app": rng.choice("xy"), "team": rng.choice("gh")}
        labels = {key: value for key, value in words.items() if rng.random() < 0.7}
        for key, values in (("min", "012"), ("priority", "56")):
            if rng.random() < 0.3:
                labels[key] = rng.choice(values)
        is_placed = bool(before and before.node_name) or rng.random() < 0.2
        return make_pod(
            name,
            uid=name,
            labels=labels,
            priority=rng.randrange(3),
            scheduler_name=rng.choice(["one", "two"]) if before is None else before.scheduler_name,
            terminating=rng.random() < 0.2,
            node="n" if is_placed else None,
        )

    def step(self) -> None:
        rng, groups = self.rng, self.groups
        self.has_begun = False
        name = rng.choice("abcdef")
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                pod = self.pods[name] = self._pod(name)
                groups.put(pod)
                self._open_gates(name, [] if pod.node_name else self.keys_of(pod))
                if pod.node_name:
                    self.held.discard(name)
                    self.cache.add_pod(pod)
            case 4 if name in self.pods:
                want = self.keys_of(self.pods.pop(name))
                self._stop_waiting(name)
                if name in self.held:
                    self.held.discard(name)
                    self.cache.forget(name)
                elif self.cache.get_pod(name) is not None:
                    self.cache.remove_pod(make_pod(name, uid=name))
                assert set(groups.remove(name)) == set(want)
                self._open_gates(name)
                assert groups.remove(name) == ()
            case 5 if name in self.pods and self.cache.get_pod(name) is None:
                self.cache.assume(self.pods[name], "n")
                self.held.add(name)
                if rng.random() < 0.6:
                    groups.set_waiting(name, True)
                    self.waiting.add(name)
            case 6 if name in self.held:
                self._stop_waiting(name)
                if rng.random() < 0.5:
                    self.cache.forget(name)
                    self.held.discard(name)
            case 7:
                group = rng.choice("gh")
                if self.objects.pop(group, None) is None or rng.random() < 0.5:
                    more = {"priority": 7} if rng.random() < 0.5 else {}
                    self.objects[group] = pod_group(rng.randrange(1, 4), name=group, **more)
                    self.cache.objects.put(POD_GROUPS, self.objects[group])
                else:
                    self.cache.objects.delete(POD_GROUPS, f"default/{group}")
            case 8:
                self.are_served = rng.random() < 0.5
                groups.set_served(self.are_served)
            case 9 if rng.random() < 0.2:
                self.begin()
            case 10 | 11 if name in self.pods:
                self._ask_gate(self.pods[name])

    def _open_gates(self, name: str, but: Collection[GroupKey] = ()) -> None:
        for key in self.gates.keys() - set(but):
            self.gates[key].pop(name, None)

    def _ask_gate(self, pod: Pod) -> None:
        """A gate of one pod keeps its group out, unless its policy looks at groups itself."""
        own = self.rng.choice([None, Gate("gates", "held", "Held"), Gate("teams", "few", "Few")])
        want = own
        for key in self.keys_of(pod):
            if self.policy_of(key) == "teams":
                gates = self.gates.setdefault(key, {})
                if own is not None and own[0] == "gates" and not pod.is_terminating:
                    gates[pod.uid] = own
                else:
                    gates.pop(pod.uid, None)
                    want = own or next(iter(gates.values()), None)
        assert self.groups.gate_of(pod, own) == want

    def _stop_waiting(self, name: str) -> None:
        if name in self.waiting:
            self.groups.set_waiting(name, False)
            self.waiting.discard(name)

    # --- the plain count ---------------------------------------------------------------------

    def keys_of(self, pod: Pod) -> list[GroupKey]:
        """In the order of the profile's policies."""
        found = []
        for enabled in self.scheduler.hooks.grouping()[pod.scheduler_name]:
            label = {"apps": "app", "teams": "team"}.get(enabled.policy)
            if label is not None and label in pod.labels:
                name = pod.labels[label]
                found.append(GroupKey(enabled.instance, pod.scheduler_name, "default", name))
        return found

    def policy_of(self, key: GroupKey) -> str:
        (found,) = {
            enabled.policy
            for enabled in self.scheduler.hooks.grouping()[key.scheduler_name]
            if enabled.instance == key.instance
        }
        return found

    def counts_as(self, pod: Pod) -> str:
        if pod.uid in self.waiting:
            return "waiting"
        if pod.node_name or pod.uid in self.held:
            return "placed"
        return "terminating" if pod.is_terminating else "pending"

    def members(self) -> dict[GroupKey, dict[str, Pod]]:
        found: dict[GroupKey, dict[str, Pod]] = {}
        for pod in self.pods.values():
            for key in self.keys_of(pod):
                found.setdefault(key, {})[pod.uid] = pod
        return found

    def shown(self) -> dict[GroupKey, tuple[object, ...]]:
        """What a group's pods and its PodGroup say, other than who has a node."""
        return {
            key: (
                sorted((u, p.priority, p.is_terminating) for u, p in pods.items()),
                sorted((u, p.labels.get("min"), p.labels.get("priority")) for u, p in pods.items())
                if self.policy_of(key) == "teams"
                else None,
                id(self.objects.get(key.name)),
                bool(self.gates.get(key)),
                self.are_served,
            )
            for key, pods in self.members().items()
        }

    def check(self) -> None:
        groups, members = self.groups, self.members()
        for pod in self.pods.values():
            keys = self.keys_of(pod)
            permit = [key for key in keys if self.policy_of(key) == "teams"]
            assert set(groups.keys_of(pod.uid)) == set(keys)
            assert groups.permit_keys_of(pod.uid) == permit
            assert groups.tried_in(pod.uid) == next(iter(permit), None)
            is_lost = any(
                "min" not in pod.labels and key.name not in self.objects for key in permit
            )
            assert groups.is_incomplete(pod.uid) is is_lost
            for enabled in self.scheduler.hooks.grouping()[pod.scheduler_name]:
                seen = [key for key in keys if key.instance == enabled.instance]
                want = groups.state(seen[0]) if seen else None
                assert groups.state_of(enabled, pod) == groups.state_for(enabled, pod) == want
        assert groups.waiting == self.waiting
        for key, pods in members.items():
            self._check_group(key, pods)
        gone = GroupKey(0, "one", "default", "gone")
        assert (groups.members_of(gone), groups.state(gone).pod_count) == ([], 0)

    def _check_group(self, key: GroupKey, pods: Mapping[str, Pod]) -> None:
        groups, state = self.groups, self.groups.state(key)
        is_team = self.policy_of(key) == "teams"
        assert {pod.uid: pod for pod in groups.members_of(key)} == pods
        by_state: dict[str, list[str]] = {}
        for uid, pod in pods.items():
            by_state.setdefault(self.counts_as(pod), []).append(uid)
        for name in ("pending", "waiting", "placed"):
            assert getattr(state, name) == len(by_state.get(name, ()))
        assert sorted(groups.pending_in(key)) == sorted(by_state.get("pending", ()))
        assert sorted(groups.waiting_in(key)) == sorted(by_state.get("waiting", ()))
        found = self.objects.get(key.name)
        assert groups.object_of(key) is found
        follows = is_team and any("min" not in pod.labels for pod in pods.values())
        assert groups.follows_object(key) is follows
        said = [int(p.labels["priority"]) for p in pods.values() if "priority" in p.labels]
        said = said if is_team else []
        of_object = found.priority if found is not None else None
        assert groups.has_priority(key) is (bool(said) or of_object is not None)
        if not said and follows and of_object is not None:
            said = [of_object]
        assert state.priority == max(said or [pod.priority for pod in pods.values()])
        assert state.exists is (found is not None or not follows)
        assert (state.problem == NOT_SERVED) is not (state.exists or self.are_served)
        others = [
            other
            for other in self.members()
            if other.name == key.name and other.scheduler_name != key.scheduler_name
        ]
        assert sorted(groups.namesakes(key)) == sorted(others)


@pytest.mark.parametrize("seed", range(8))
def test_groups_are_what_their_pods_and_objects_say_now(seed: int) -> None:
    """And each that is otherwise than before is among the changes."""
    history = History(seed)
    before, where, found = history.shown(), dict[str, str](), 0
    for _ in range(120):
        history.step()
        history.check()
        now, places = history.shown(), {u: p.node_name for u, p in history.pods.items()}
        changes = history.groups.take_changes()
        assert not history.groups.has_changes
        if not history.has_begun:
            moved = {uid for uid in where.keys() & places if where[uid] != places[uid]}
            for key in before.keys() | now.keys():
                is_other = before.get(key) != now.get(key)
                if is_other or not moved.isdisjoint(history.members().get(key, ())):
                    assert changes[key] is is_other, "in more than who has a node, or not"
                    found += 1
        before, where = now, places
    assert found > 30
    for name in list(history.pods):
        history.groups.remove(name)
    history.groups.take_changes()
    kept = {
        name for name, value in vars(history.groups).items() if isinstance(value, dict) and value
    }
    assert kept == {"_grouping"}, "something is kept of groups that are gone"


def test_a_group_is_as_old_as_its_oldest_pod_whenever_that_comes() -> None:
    groups, seen = PodGroups(Cache()), list[float]()
    scheduler = Scheduler(_bundle(), InProcessEvaluator(_bundle().program))
    groups.use(scheduler, list)
    for name, hour in (("a", 5), ("b", 6), ("c", 4), ("d", 5)):
        pod = make_pod(
            name, labels={"team": "g"}, scheduler_name="one", created=f"2026-01-01T0{hour}:00:00Z"
        )
        groups.put(pod)
        (key,) = groups.keys_of(pod.uid)
        seen.append(groups.state(key).created_at)
    assert [moment - seen[0] for moment in seen] == [0, 0, -3600, -3600]
    assert groups.state(key).pending == 4
