"""The story of gangs: groups of pods are placed whole or not at all, and hold nothing meanwhile."""

from collections.abc import Sequence
from typing import Any, Final

from devkit.cluster import make_node, make_pod
from devkit.demo.stage import Scenario, Stage, StoryFailed

_NODES: Final = 4
#: A node has 8 cores: one pod of this size fits on each.
_CPU: Final = "6"


def _nodes() -> list[dict[str, Any]]:
    return [make_node(f"node-{i + 1}", cpu="8") for i in range(_NODES)]


def _group(name: str, size: int) -> list[dict[str, Any]]:
    """A PodGroup, and the pods of it that belong together."""
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    }
    member: dict[str, Any] = {"schedulingGroup": {"podGroupName": name}}
    return [group, *(make_pod(pod, cpu=_CPU, **member) for pod in _members(name, size))]


def _members(name: str, size: int) -> list[str]:
    return [f"{name}-{i + 1}" for i in range(size)]


async def run(stage: Stage) -> dict[str, Any]:
    """Place a group; let another one wait for it, take nothing, and be placed whole."""
    first, second = _members("first", _NODES // 2), _members("second", _NODES)
    # 1. One that fits.
    stage.cluster.create(*_group("first", len(first)))
    on_first = await stage.until_placed(first)
    stage.say(
        f"The group `first` ({len(first)} pods of {_CPU} cores) fits, and is placed whole. "
        f"{_NODES - len(first)} of {_NODES} nodes are left."
    )
    # 2. One that does not, though half of it would.
    stage.cluster.create(*_group("second", len(second)))
    why = await stage.until_answer(
        f"explain/default/{second[0]}",
        lambda answer: answer["outcome"] == "unschedulable" and answer["queue"],
        "the group second to be decided",
    )
    free = await _cores(stage)
    fitting = sum(cores >= int(_CPU) for cores in free.values())
    stage.say(f"\nThe group `second` has {len(second)} such pods. {fitting} would fit; it waits:")
    stage.show_text(why["reason"], why["message"])
    await stage.until(lambda: len(_conditions(stage)) == 2, "the conditions of both groups")
    stage.show("PodGroups", ("group", "condition", "reason", "message"), _conditions(stage))
    # 3. It holds nothing.
    errand = await stage.place([make_pod("errand", cpu=_CPU)])
    meanwhile = stage.placed(second)
    stage.say(f"It holds nothing: `errand`, which came later, is on {errand['errand']} at once.")
    _check(fitting, on_first, meanwhile)
    # 4. Capacity comes.
    stage.say("\nNow `first` and `errand` end.")
    stage.finish([*first, *errand])
    on_second = await stage.until_placed(second)
    rows = [
        (
            node,
            _on(node, on_first),
            _on(node, on_first | errand | meanwhile),
            _on(node, on_second),
        )
        for node in free
    ]
    columns = ("node", "first is placed", "second waits", "first has ended")
    stage.show("Placements", columns, rows)
    stage.say(f"All {len(on_second)} pods of `second` are placed.")
    return {
        "placements": {"first": on_first, "second": on_second, "errand": errand["errand"]},
        "waits": {
            "group": "second",
            "pods": len(second),
            "would_fit": fitting,
            "placed": len(meanwhile),
            "reason": why["reason"],
            "message": why["message"],
        },
    }


async def _cores(stage: Stage) -> dict[str, float]:
    """Free cores by node, as the scheduler counts them."""
    page = await stage.ask("nodes")
    uses = {row["name"]: row["resources"]["cpu"] for row in page["rows"]}
    return {name: (use["allocatable"] - use["requested"]) / 1000 for name, use in uses.items()}


def _conditions(stage: Stage) -> list[Sequence[str]]:
    """What the scheduler has written into the status of the groups."""
    return [
        (
            group["metadata"]["name"],
            f"{condition['type']}={condition['status']}",
            condition.get("reason", ""),
            condition.get("message", ""),
        )
        for group in stage.cluster.list("podgroups")
        for condition in (group.get("status") or {}).get("conditions", ())
    ]


def _on(node: str, placements: dict[str, str]) -> str:
    return " ".join(pod for pod, place in placements.items() if place == node)


def _check(fitting: int, on_first: dict[str, str], meanwhile: dict[str, str]) -> None:
    want = _NODES - len(on_first)
    if fitting != want:
        raise StoryFailed(f"want {want} nodes with {_CPU} free cores, got {fitting}")
    if meanwhile:
        raise StoryFailed(f"want no pod of `second` placed, got {', '.join(meanwhile)}")


def _leave(stage: Stage) -> None:
    """Let a third group wait for the second."""
    stage.cluster.create(*_group("third", _NODES))


SCENARIO: Final = Scenario(
    name="gangs",
    summary="groups of pods are placed whole or not at all, and hold nothing meanwhile",
    policies={},
    objects=_nodes,
    run=run,
    page="queue",
    shows="a third group that waits, and why",
    leave=_leave,
)
