"""What is assumed of objects until the API server has another version of them."""

from engine.caching.assumed_objects import AssumedObjects
from engine.caching.objects import ObjectStore
from engine.model.objects import ObjectMeta
from engine.model.storage import PersistentVolumeClaim

KIND = "persistentvolumeclaims"


def claim(version: str) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name="data", namespace="default", resource_version=version)
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
