"""The screen of the nodes: the steps of the map, and what of the free capacity is stranded."""

import msgspec
import pytest

from engine.surfaces.live.answers import NodesPage, ResourceUse
from engine.surfaces.page.nodes_view import nodes_view, step
from engine.surfaces.page.words import in_order
from tests.engine.surfaces.page import answers


@pytest.mark.parametrize(
    ("share", "want"), [(-0.1, 0), (0, 0), (0.2, 1), (0.5999, 2), (0.95, 5), (3, 5)]
)
def test_steps_of_the_map(share: float, want: int) -> None:
    assert step(share) == want


def test_resources_are_shown_in_the_usual_order() -> None:
    names = ["nvidia.com/gpu", "pods", "memory", "a.example/x", "cpu"]
    assert in_order(names) == ["cpu", "memory", "pods", "a.example/x", "nvidia.com/gpu"]


def _page(*rows: object) -> NodesPage:
    return msgspec.structs.replace(answers.nodes(3), rows=tuple(rows))


def test_free_memory_beside_full_cpu_is_stranded() -> None:
    full, idle = answers.node(1, 1.0), answers.node(2, 0.0)
    totals = {one.resource: one for one in nodes_view(_page(full, idle)).totals}
    assert totals["memory"].stranded == pytest.approx(8 / 24)
    assert totals["cpu"].stranded == 0


def test_what_is_free_on_a_cordoned_node_is_stranded() -> None:
    closed = answers.node(1, 0.5, is_unschedulable=True)
    view = nodes_view(_page(closed, answers.node(2, 0.5)))
    assert [one.stranded for one in view.totals] == [0.5, 0.5, 0.5]
    assert view.closed == 1


def test_a_node_with_more_requested_than_it_has_counts_as_nothing_free() -> None:
    over = answers.node(1, 1.5, resources={"cpu": ResourceUse(4000, 6000, 1.5)})
    (cpu, *_) = nodes_view(_page(over)).totals
    assert cpu.stranded == 0


def test_the_fullest_are_listed_first_and_the_rest_counted() -> None:
    view = nodes_view(answers.nodes(250))
    shares = [row.fullest_share for row in view.listed]
    assert shares == sorted(shares, reverse=True)
    assert len(view.listed) + view.not_listed == 250
    assert sum(view.by_step) == 250
