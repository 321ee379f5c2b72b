"""What is assumed of objects until the API server has another version of them."""

import random

import pytest

from engine.core.caching.assumed_objects import AssumedObjects
from engine.core.caching.objects import ObjectStore
from engine.core.model.objects import ObjectMeta
from engine.core.model.storage import PersistentVolumeClaim

KIND = "persistentvolumeclaims"


def claim(version: str, name: str = "data") -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="default", resource_version=version)
    )


def test_an_assumption_ends_with_the_next_version() -> None:
    store = ObjectStore()
    assumed = AssumedObjects(store, KIND)
    store.listen(KIND, assumed.changed)
    store.put(KIND, claim("1"))
    ours = claim("1")
    assumed.assume(ours)
    assert assumed.get("default/data") is ours
    theirs = claim("2")
    store.put(KIND, theirs)
    assert assumed.get("default/data") is theirs


def test_nothing_is_kept_of_an_object_that_is_gone() -> None:
    """A scheduler that placed pods with volumes kept two objects of each claim for ever."""
    store = ObjectStore()
    assumed = AssumedObjects(store, KIND)
    store.listen(KIND, assumed.changed)
    store.put(KIND, claim("1"))
    assumed.assume(claim("1"))
    store.delete(KIND, "default/data")
    assert not assumed._assumed


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_assumed_shows_until_the_watch_or_a_restore_ends_it(
    seed: int, listens: bool
) -> None:
    """Whatever comes next: an assumption that has ended does not come back with an old version."""
    rng = random.Random(seed)
    store = ObjectStore()
    assumed = AssumedObjects(store, KIND)
    if listens:
        store.listen(KIND, assumed.changed)
    versions = {(name, v): claim(v, name) for name in "ab" for v in "12"}
    stored: dict[str, PersistentVolumeClaim] = {}
    ours: dict[str, PersistentVolumeClaim] = {}
    for _ in range(80):
        name = rng.choice("ab")
        key = f"default/{name}"
        match rng.randrange(5):
            case 0 | 1:
                obj = versions[name, rng.choice("12")]
                if stored.get(key) is not obj:
                    ours.pop(key, None)
                stored[key] = obj
                store.put(KIND, obj)
            case 2:
                stored.pop(key, None)
                ours.pop(key, None)
                store.delete(KIND, key)
            case 3 if key in stored:
                ours[key] = claim("assumed", name)
                assumed.assume(ours[key])
            case 4:
                ours.pop(key, None)
                assumed.restore(key)
        for other in ("default/a", "default/b"):
            assert assumed.is_assumed(other) is (other in ours)
            assert assumed.get(other) is ours.get(other, stored.get(other))
        for namespace in (None, "default"):
            assert assumed.list(namespace) == [ours.get(key, one) for key, one in stored.items()]
        assert assumed.list("elsewhere") == []
