"""The programs answer with what the originals were seen to do; see `tests/data/fair-share`."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.fairness.originals import Original

Named = Callable[[str], Original]


def _quota(uses: int = 0, head: int = 0, priority: int = 0, **attributes: Any) -> dict[str, Any]:
    """A queue of cpu alone."""
    found: dict[str, Any] = {"attributes": attributes}
    if uses:
        found["pods"] = [{"name": f"{n}", "resources": {"cpu": 1}} for n in range(uses)]
    if head:
        found["head"] = {"name": "head", "resources": {"cpu": head}, "priority": priority}
    return found


def _ask(original: Original, queues: Mapping[str, Any], total: int = 100, **args: Any) -> Any:
    (found,) = original.answers([{"args": args, "total": {"cpu": total}, "queues": queues}])
    return found


def test_kueue_takes_from_the_one_that_borrows(original: Named) -> None:
    queues = {
        "all": {},
        "all/a": _quota(3, nominal={"cpu": 3}),
        "all/b": _quota(5, nominal={"cpu": 3}),
        "all/c": _quota(1, head=1, nominal={"cpu": 3}),
    }
    for path, queue in queues.items():
        for pod in queue.get("pods", ()):
            pod["name"] = f"{path[-1]}{pod['name']}"
            pod["created_at"] = int(pod["name"][1:])
    found = _ask(original("kueue"), queues, victims=True)["queues"]
    assert found["all/b"]["share"] == pytest.approx(2000 / 9)
    assert found["all/c"]["available"] == {"cpu": 0}
    assert found["all/c"]["mode"] == "Preempt"
    assert found["all/c"]["victims"] == [{"name": "b4", "reason": "InCohortReclamation"}]


def _running(name: str, *sizes: int, **attributes: Any) -> dict[str, Any]:
    pods = [
        {"name": f"{name}{n}", "resources": {"cpu": size}, "created_at": n}
        for n, size in enumerate(sizes)
    ]
    return {"attributes": attributes, "pods": pods}


#: Of each recorded row: who has what, who asks for how much, by which strategy, and who goes.
VICTIMS: Mapping[str, tuple[dict[str, dict[str, Any]], str, int, str, list[str]]] = {
    "2": (
        {
            "a": _running("a", nominal={"cpu": 10}, lending_limit={"cpu": 4}),
            "b": _running("b", *[1] * 6, nominal={"cpu": 2}),
        },
        "a",
        9,
        "",
        ["b3", "b4", "b5"],
    ),
    "4": (
        {
            "a": _running("a", *[1] * 6, nominal={"cpu": 6}),
            "b": _running("b", 1, nominal={"cpu": 0}, weight=0),
            "c": _running("c", *[1] * 3, nominal={"cpu": 4}),
        },
        "a",
        1,
        "",
        ["b0"],
    ),
    "6": (
        {"a": _running("a", 6, nominal={"cpu": 0}), "b": _running("b", 2, nominal={"cpu": 0})},
        "b",
        1,
        "LessThanOrEqualToFinalShare",
        [],
    ),
    "6b": (
        {"a": _running("a", 6, nominal={"cpu": 0}), "b": _running("b", 2, nominal={"cpu": 0})},
        "b",
        1,
        "LessThanInitialShare",
        ["a0"],
    ),
    "7": (
        {
            "a": _running("a", *[1] * 5, nominal={"cpu": 0}),
            "b": _running("b", *[1] * 3, nominal={"cpu": 0}),
        },
        "b",
        1,
        "LessThanOrEqualToFinalShare",
        ["a4"],
    ),
    "9": (
        {
            "a": _running("a", *[1] * 4, nominal={"cpu": 0}, weight=3000),
            "b": _running("b", *[1] * 4, nominal={"cpu": 0}),
        },
        "a",
        1,
        "",
        ["b3"],
    ),
}


@pytest.mark.parametrize("row", VICTIMS)
def test_kueue_preempts_who_was_recorded(original: Named, row: str) -> None:
    queues, taker, size, strategy, victims = VICTIMS[row]
    head = {"name": "head", "resources": {"cpu": size}, "created_at": 100}
    below = {f"all/{name}": queue for name, queue in queues.items()}
    below[f"all/{taker}"] = {**below[f"all/{taker}"], "head": head}
    if all(not queue["attributes"]["nominal"]["cpu"] for queue in queues.values()):
        below["all/pool"] = {"attributes": {"nominal": {"cpu": 8}}}
    args: dict[str, Any] = {"victims": True}
    if strategy:
        args["strategies"] = [strategy]
    found = _ask(original("kueue"), {"all": {}, **below}, **args)["queues"][f"all/{taker}"]
    assert [one["name"] for one in found.get("victims", [])] == victims


def test_kueue_takes_first_who_borrows_nothing_that_it_asks_for(original: Named) -> None:
    queues = {
        "all": {"attributes": {"nominal": {"cpu": 8}}},
        "all/a": _quota(1, head=1, nominal={"cpu": 0}),
        "all/b": _quota(2, head=1, nominal={"cpu": 0}, weight=9000),
        "all/c": _quota(2, head=1, nominal={"cpu": 3}),
    }
    assert _ask(original("kueue"), queues)["order"] == ["all/c", "all/b", "all/a"]


@pytest.mark.parametrize(("total", "runtime"), [(10, 3), (11, 4)])
def test_koordinator_rounds_to_the_nearest(original: Named, total: int, runtime: int) -> None:
    quota = _quota(head=10, max={"cpu": 100}, shared_weight={"cpu": 1})
    found = _ask(original("koordinator"), dict.fromkeys("abc", quota), total)
    assert found["runtime"] == {name: {"cpu": runtime} for name in "abc"}


def test_koordinator_scales_a_min_when_its_quota_is_asked_about(original: Named) -> None:
    queues = {
        name: _quota(head=100, min={"cpu": least}, max={"cpu": 100}, shared_weight={"cpu": 1})
        for name, least in (("a", 80), ("b", 40))
    }
    found = _ask(original("koordinator"), queues, scale_min=True)
    assert found["first"] == {"a": {"cpu": 66}, "b": {"cpu": 34}}
    assert found["runtime"] == {"a": {"cpu": 67}, "b": {"cpu": 34}}


def test_yunikorn_puts_a_queue_at_its_guarantee_behind_one_without(original: Named) -> None:
    queues = {"a": _quota(50, head=1, guaranteed={"cpu": 50}), "b": _quota(60, head=1)}
    found = _ask(original("yunikorn"), queues, priority_first=True)
    assert found["pairs"] == {"a b": {"first": 1, "by": "share"}}


def test_yunikorn_breaks_ties_by_what_is_pending(original: Named) -> None:
    queues = {"a": _quota(5, head=1), "b": _quota(5, head=2)}
    found = _ask(original("yunikorn"), queues, priority_first=True)
    assert found["pairs"] == {"a b": {"first": 1, "by": "pending"}}


def test_capacity_scheduling_compares_memory_that_a_max_does_not_name(original: Named) -> None:
    queue = _quota(3, max={"cpu": 50}, min={"cpu": 50, "memory": 50})
    queue["head"] = {"name": "head", "resources": {"cpu": 1, "memory": 1}}
    found = _ask(original("capacity"), {"a": queue})
    assert not found["a"]["admitted"]
    assert (found["a"]["over_max"], found["a"]["over_sum"]) == (True, False)
    assert "ElasticQuota a is more than Max" in found["a"]["reason"]


def test_what_cannot_be_answered_is_an_error(original: Named) -> None:
    queues = {"a": _quota(weight_of_nobody=1)}
    with pytest.raises(ValueError, match="weight_of_nobody"):
        _ask(original("capacity"), queues)
    assert _ask(original("capacity"), {"a": _quota(head=1)})
