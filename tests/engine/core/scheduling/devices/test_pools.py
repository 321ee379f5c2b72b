"""The index of slices: one that goes on from an earlier one has what a new one would have."""

import random
from typing import Any

from engine.core.framework.behaviors import RELEASED, behaviors_of
from engine.core.model.devices import DeviceTaintRule, ResourceSlice
from engine.core.model.objects import from_plain
from engine.core.scheduling.devices.pools import Pool, SliceIndex
from tests.builders import make_node
from tests.engine.core.scheduling.devices.builders import resource_slice, taint_rule

BEHAVES = behaviors_of(RELEASED)
NODES = [make_node(f"n{i}", labels={"zone": f"z{i % 2}"}) for i in range(4)]
IN_ZONE = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z0"]}]}
    ]
}


def published(rng: random.Random, name: str) -> ResourceSlice:
    """A slice of one of a few pools, now and then of one for several nodes."""
    node = rng.choice(NODES).name
    spec: dict[str, Any] = {
        "pool": {
            "name": rng.choice((node, "common")),
            "generation": rng.choice((1, 1, 2)),
            "resourceSliceCount": rng.choice((1, 2)),
        }
    }
    if rng.random() < 0.15:
        spec |= {"nodeName": None} | rng.choice(({"allNodes": True}, {"nodeSelector": IN_ZONE}))
    devices = [f"{name}-{i}" for i in range(rng.randrange(3))]
    return from_plain(ResourceSlice, resource_slice(node, *devices, name=name, **spec))


def seen(pools: tuple[Pool, ...]) -> list[Any]:
    """What a search sees of pools."""
    return [
        (
            pool.id,
            pool.is_incomplete,
            pool.problem,
            pool.counter_sets,
            [
                [(one.name, [d.record for d in one.devices]) for one in slices]
                for slices in (pool.slices, sorted(pool.others, key=lambda each: each.name))
            ],
        )
        for pool in pools
    ]


def test_an_index_that_goes_on_is_as_a_new_one_and_names_what_changed() -> None:
    rng = random.Random(7)
    kept = 0
    for _ in range(60):
        slices: dict[str, ResourceSlice] = {}
        rules: list[DeviceTaintRule] = []
        index = SliceIndex([], behaves=BEHAVES)
        for _ in range(30):
            name = f"s{rng.randrange(8)}"
            if rng.random() < 0.3:
                slices.pop(name, None)
            else:
                slices[name] = published(rng, name)
            if rng.random() < 0.1:
                rule = taint_rule(
                    "r", {"pool": rng.choice(NODES).name}, key="bad", effect="NoExecute"
                )
                rules = [] if rules else [from_plain(DeviceTaintRule, rule)]
            before, position = index, index.position
            had = {node.name: before.pools(node) for node in NODES}
            index = SliceIndex(slices.values(), rules, before, behaves=BEHAVES)
            fresh = SliceIndex(slices.values(), rules, behaves=BEHAVES)
            changed = index.changes.since(position)
            for node in NODES:
                pools = index.pools(node)
                assert seen(pools) == seen(fresh.pools(node))
                if changed is not None and node.name not in changed:
                    assert pools is had[node.name]
                    kept += 1
            # A decision may go on with the earlier one.
            assert all(before.pools(node) is had[node.name] for node in NODES)
    assert kept > 1000


def test_nodes_without_devices_have_the_same_pools_after_a_change() -> None:
    """So that what was searched for one of them serves for the others."""
    first = SliceIndex([from_plain(ResourceSlice, resource_slice("n0", "a"))], behaves=BEHAVES)
    assert first.pools(NODES[1]) is first.pools(NODES[2])
    changed = from_plain(ResourceSlice, resource_slice("n0", "a", "b"))
    second = SliceIndex([changed], earlier=first, behaves=BEHAVES)
    assert second.pools(NODES[1]) is second.pools(NODES[2])
    assert second.changes.since(first.position) == ["n0"]
