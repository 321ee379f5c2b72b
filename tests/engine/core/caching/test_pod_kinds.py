"""How many kinds of pods are kept; what they are good for is in `tests/properties`."""

from engine.core.caching.cache import Cache
from engine.core.caching.pod_kinds import PodKinds
from engine.core.model.pod import Pod
from tests.builders import make_node, make_pod


def _churn(cache: Cache, kinds: PodKinds, rounds: int, each: int) -> list[int]:
    """Pods of *each* new kinds come, and those before them go; how many kinds are known."""
    known = []
    before: list[Pod] = []
    for turn in range(rounds):
        names = [f"{turn}-{number}" for number in range(each)]
        pods = [make_pod(name, node="node", labels={"app": name}) for name in names]
        for pod in pods:
            cache.add_pod(pod)
        for pod in before:
            cache.remove_pod(pod)
        before = pods
        position = kinds.position
        kinds.refresh(cache.snapshot())
        known.append(len(kinds.kinds))
        changes = kinds.changes_since(position)
        assert changes is None or {kind for kind, _, _ in changes} <= kinds.kinds.keys()
    return known


def test_kinds_without_pods_are_forgotten_however_many_come_at_a_time() -> None:
    """They were when their number happened to be a multiple of 1,024 just then, which is rare."""
    cache = Cache()
    cache.add_node(make_node("node"))
    known = _churn(cache, PodKinds(), rounds=30, each=331)
    assert max(known) < 6_000


def test_those_that_have_pods_stay() -> None:
    cache, kinds = Cache(), PodKinds()
    cache.add_node(make_node("node"))
    for number in range(5_000):
        cache.add_pod(make_pod(f"p{number}", node="node", labels={"app": str(number)}))
    kinds.refresh(cache.snapshot())
    _churn(cache, kinds, rounds=4, each=500)
    assert sum(map(bool, kinds.slots_of.values())) == 5_500


def _counted(kinds: PodKinds) -> dict[str, int]:
    """Pods by their label `app`."""
    return {
        kinds.kinds[kind].labels["app"]: sum(slots.values())
        for kind, slots in kinds.slots_of.items()
        if slots
    }


def test_a_copy_goes_its_own_way() -> None:
    cache, kinds = Cache(), PodKinds()
    cache.add_node(make_node("node"))
    pods = [make_pod(f"p{n}", node="node", labels={"app": "a"}) for n in range(3)]
    for pod in pods:
        cache.add_pod(pod)
    kinds.refresh(cache.snapshot())
    copy = kinds.copy()
    cache.remove_pod(pods[0])
    kinds.refresh(cache.snapshot())
    assert (_counted(kinds), _counted(copy)) == ({"a": 2}, {"a": 3})
    cache.add_pod(make_pod("q", node="node", labels={"app": "b"}))
    copy.refresh(cache.snapshot())
    assert (_counted(kinds), _counted(copy)) == ({"a": 2}, {"a": 2, "b": 1})
    again = copy.copy()
    cache.remove_pod(pods[1])
    again.refresh(cache.snapshot())
    kinds.refresh(cache.snapshot())
    assert _counted(again) == _counted(kinds) == {"a": 1, "b": 1}
    assert _counted(copy) == {"a": 2, "b": 1}
