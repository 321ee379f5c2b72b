"""The domains of nodes, as labels and nodes come and go."""

import random

import pytest

from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.caching.topology_column import TopologyColumn
from tests.builders import ZONE, make_node


def _domains(snapshot: Snapshot, key: str | None) -> list[object]:
    return [
        None
        if info is None or info.node is None
        else info.name
        if key is None
        else info.node.labels.get(key)
        for info in snapshot.infos
    ]


@pytest.mark.parametrize("key", [ZONE, None])
@pytest.mark.parametrize("seed", range(6))
def test_nodes_have_the_same_number_if_they_are_in_one_domain(seed: int, key: str | None) -> None:
    """Its version is another one if a node is in another domain."""
    rng = random.Random(seed)
    cache, column = Cache(), TopologyColumn(key)
    copies: list[tuple[TopologyColumn, list[int], int]] = []
    for _ in range(60):
        name = f"n{rng.randrange(5)}"
        if rng.random() < 0.7:
            cache.add_node(make_node(name, zone=rng.choice(["a", "b", "c", None])))
        else:
            cache.remove_node(name)
        snapshot = cache.snapshot()
        if rng.random() < 0.3:
            continue  # several changes at a time
        before, version = column.ids.tolist(), column.version
        column.refresh(snapshot)
        ids, domains = column.ids.tolist(), _domains(snapshot, key)
        assert column.version != version or ids == before
        assert [number < 0 for number in ids] == [domain is None for domain in domains]
        pairs = {(number, domain) for number, domain in zip(ids, domains, strict=True)}
        assert len({number for number, _ in pairs}) == len(pairs) == len(set(domains))
        assert all(number < column.size for number in ids)
        if rng.random() < 0.2:
            copies.append((column.copy(), ids, column.size))
    for copy, ids, size in copies:
        assert (copy.ids.tolist(), copy.size) == (ids, size)
        copy.refresh(cache.snapshot())
        column.refresh(cache.snapshot())
        assert [number < 0 for number in copy.ids] == [number < 0 for number in column.ids]


def test_numbers_of_labels_that_are_gone_are_given_again() -> None:
    """Each value that ever was took memory of every counter."""
    cache, column = Cache(), TopologyColumn(ZONE)
    cache.add_node(make_node("stays", zone="here"))
    cache.add_node(make_node("stays-too", zone="here"))
    for number in range(2_100):
        cache.add_node(make_node("changes", zone=f"{number}"))
        version = column.version
        column.refresh(cache.snapshot())
        first, second, third = column.ids.tolist()
        assert first == second != third
        assert column.version > version
        assert max(first, third) < column.size <= 1_100
