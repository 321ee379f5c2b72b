"""Nodes: what they offer, and tolerance of bad quantities."""

import json

from engine.core.model.node import Node
from tests.builders import make_node, node_manifest


def test_allocatable_is_in_millicores_and_whole_units() -> None:
    node = make_node(
        cpu="1500m", memory="1Gi", pods="110", allocatable={"nvidia.com/gpu": 4, "foo": 1}
    )
    assert node.allocatable == {"cpu": 1500, "memory": 2**30, "pods": 110, "nvidia.com/gpu": 4}


def test_images_are_known_by_every_name() -> None:
    node = make_node(images=[{"names": ["a:1", "a@sha256:x"], "sizeBytes": 5}, {"sizeBytes": 7}])
    assert node.images == {"a:1": 5, "a@sha256:x": 5}


def test_conditions_are_status_by_type() -> None:
    assert make_node(conditions={"Ready": "True"}).conditions == {"Ready": "True"}


def test_bad_quantities_count_as_zero_and_are_reported() -> None:
    manifest = node_manifest(cpu="x", memory=None, capacity={}, allocatable={"memory": None})
    for node in (Node.from_plain(manifest), Node.from_raw(json.dumps(manifest).encode())):
        assert node.allocatable == {"cpu": 0, "memory": 0, "pods": 110}
        assert node.problems == (
            'status.allocatable["cpu"]: want a quantity, got `x`',
            'status.allocatable["memory"]: want a quantity, got `null`',
        )


def test_an_empty_node_offers_nothing() -> None:
    node = Node.from_raw(b'{"metadata":{"name":"n"}}')
    assert (node.allocatable, node.images, node.conditions, node.taints) == ({}, {}, {}, ())
    assert (node.unschedulable, node.problems) == (False, ())
