"""The object store: by kind, key and namespace."""

from engine.core.caching.objects import ObjectStore
from engine.core.model.objects import Namespace, ObjectMeta, Service


def service(name: str, namespace: str = "default", version: str = "1") -> Service:
    return Service(ObjectMeta(name=name, namespace=namespace, resource_version=version))


def test_objects_are_found_by_kind_and_key() -> None:
    store = ObjectStore()
    web = service("web")
    store.put("services", web)
    store.put("namespaces", Namespace(ObjectMeta(name="web")))
    assert store.get("services", "default/web") is web
    assert store.get("services", "web") is None
    assert store.get("namespaces", "web") is not None
    assert store.get("pods", "default/web") is None


def test_a_new_version_takes_the_place_of_the_old() -> None:
    store = ObjectStore()
    store.put("services", service("web"))
    newer = service("web", version="2")
    store.put("services", newer)
    assert store.list("services") == [newer]
    assert store.list("services", "default") == [newer]


def test_a_namespace_lists_its_own_objects_only() -> None:
    store = ObjectStore()
    mine, other = service("a", "mine"), service("a", "other")
    store.put("services", mine)
    store.put("services", other)
    assert store.list("services", "mine") == [mine]
    assert store.list("services") == [mine, other]
    store.delete("services", "mine/a")
    assert store.list("services", "mine") == []
    assert store.count("services") == 1


def test_generations_grow_with_changes_of_their_kind_only() -> None:
    store = ObjectStore()
    assert store.generation("services") == 0
    store.put("services", service("a"))
    grown = store.generation("services")
    assert grown > 0
    store.delete("services", "default/unknown")
    store.put("namespaces", Namespace(ObjectMeta(name="x")))
    assert store.generation("services") == grown
    store.delete("services", "default/a")
    assert store.generation("services") > grown
