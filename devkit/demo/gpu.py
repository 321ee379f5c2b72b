"""The story of fragments: spread by the default policies, small pods leave no node with 8 free GPUs
for a large one; packed by those of the pack `gpu`, the same pods do.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from devkit.cluster import make_node, make_pod
from devkit.demo.stage import Scenario, Stage, StoryFailed

#: In the words of the device plugin that the pack knows: what nodes offer, and pods ask for.
_GPUS: Final = "alibabacloud.com/gpu-count"
_NODES: Final = 6
_GPUS_OF_NODE: Final = 8
_CPU_OF_GPU: Final = 8
#: How many GPUs each pod wants, in the order in which they arrive.
_LOAD: Final = (1, 2, 1, 4, 1, 2, 1, 1, 4, 2, 1, 1, 2, 1, 4, 2, 1, 1, 2)
_LARGE: Final = "train-8"
#: Of the answer why it waits.
_WHY: Final = ("headline", "message", "next_step")

_PROFILE: Final = """\
# The policies of the pack `gpu`. The typical pods are those of this cluster.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint:
        enabled:
          - name: FGDScore
            weight: 100
          - name: GpuShare
      score:
        # Plugins that spread pods work against packing.
        disabled:
          - name: NodeResourcesFit
          - name: NodeResourcesBalancedAllocation
    pluginConfig:
      - name: FGDScore
        args:
          typicalPods:
"""


def _profile() -> str:
    """The profile, with the kinds of pods that there are and how frequent each is."""
    kinds = Counter((*_LOAD, _GPUS_OF_NODE))
    lines = [
        f"            - {{cpu: {count * _CPU_OF_GPU * 1000}, count: {count}, milli: 1000, "
        f'models: "", share: {often / kinds.total():.3f}}}\n'
        for count, often in sorted(kinds.items())
    ]
    return _PROFILE + "".join(lines)


def _nodes() -> list[dict[str, Any]]:
    offers = {_GPUS: str(_GPUS_OF_NODE)}
    return [
        make_node(f"gpu-{i + 1}", cpu="96", memory="768Gi", resources=offers) for i in range(_NODES)
    ]


def _pod(name: str, gpus: int) -> dict[str, Any]:
    """A pod whose request counts for the default policies, and its annotation for the pack's."""
    wants = {_GPUS: str(gpus)}
    pod = make_pod(name, cpu=str(gpus * _CPU_OF_GPU), memory=f"{gpus * 32}Gi", resources=wants)
    pod["metadata"]["annotations"] = wants
    return pod


def _load() -> list[dict[str, Any]]:
    return [_pod(f"pod-{i + 1}-of-{gpus}", gpus) for i, gpus in enumerate(_LOAD)]


class _State(msgspec.Struct, frozen=True):
    """The GPUs of the cluster, as the scheduler counts them.

    Attributes:
        placements: The nodes of the pods.
        free: Free GPUs by node.
        free_in_all: Their sum.
        largest_free: The most on one node.
    """

    placements: dict[str, str]
    free: dict[str, int]
    free_in_all: int
    largest_free: int


async def _state(stage: Stage, placements: dict[str, str]) -> _State:
    page = await stage.until_answer(
        "nodes",
        lambda page: page["totals"][_GPUS]["requested"] == sum(_LOAD),
        f"{sum(_LOAD)} GPUs to be requested",
    )
    uses = {row["name"]: row["resources"][_GPUS] for row in page["rows"]}
    free = {name: use["allocatable"] - use["requested"] for name, use in uses.items()}
    total = page["totals"][_GPUS]
    return _State(placements, free, total["free"], total["largest_free"])


async def run(stage: Stage) -> dict[str, Any]:
    """Place a load by the default policies and by the pack's, and a large pod after it."""
    # 1. Spread.
    stage.say(
        f"Each node has {_GPUS_OF_NODE} GPUs. {len(_LOAD)} pods arrive that want 1, 2 or 4, "
        f"{sum(_LOAD)} in all, and are placed by the default policies."
    )
    first = stage.revision
    before = await _state(stage, await stage.place(_load()))
    # 2. The large pod waits.
    stage.cluster.create(_pod(_LARGE, _GPUS_OF_NODE))
    why = await stage.until_answer(
        f"explain/default/{_LARGE}",
        lambda answer: answer["outcome"] == "unschedulable" and answer["message"],
        f"{_LARGE} to be decided",
    )
    stage.say(
        f"{before.free_in_all} GPUs are free, but not more than {before.largest_free} on one "
        f"node. {_LARGE}, which wants {_GPUS_OF_NODE}, waits, and `starsched explain` says why:"
    )
    stage.show_text(why["reason"], "\n".join(why[key] for key in _WHY))
    # 3. The pack comes into force.
    stage.say("Now one edit enables the policies of the pack `gpu`:")
    stage.show_text("profile.yaml", _profile(), "yaml")
    await stage.edit_and_wait({"profile.yaml": _profile()})
    # 4. The same again.
    stage.say("The same pods again, on empty nodes, and then the large one.")
    await stage.clear()
    after = await _state(stage, await stage.place(_load()))
    large = (await stage.place([_pod(_LARGE, _GPUS_OF_NODE)]))[_LARGE]
    _show(stage, before, after)
    _check(before, after)
    stage.say(f"{_LARGE} is on {large}.")
    return {
        "load": list(_LOAD),
        "before": msgspec.to_builtins(before),
        "waits": {"pod": _LARGE, "reason": why["reason"], **{key: why[key] for key in _WHY}},
        "after": msgspec.to_builtins(after),
        "placed": {_LARGE: large},
        "revisions": {"before": first, "after": stage.revision},
    }


def _show(stage: Stage, before: _State, after: _State) -> None:
    rows = [
        (node, *(_gpus(state, node) for state in (before, after))) for node in sorted(before.free)
    ]
    stage.show(f"GPUs before {_LARGE}", ("node", "default policies", "pack gpu"), rows)
    stage.show(
        "Fragments",
        ("", "default policies", "pack gpu"),
        [
            ("free GPUs", before.free_in_all, after.free_in_all),
            ("most on one node", before.largest_free, after.largest_free),
            ("nodes with some free", *(_partly_free(state) for state in (before, after))),
        ],
    )


def _gpus(state: _State, node: str) -> str:
    """Which are used, and by how many pods."""
    free = state.free[node]
    pods = sum(place == node for place in state.placements.values())
    return f"{'■' * (_GPUS_OF_NODE - free)}{'□' * free}  {free} free, {pods} pods"


def _partly_free(state: _State) -> int:
    return sum(free > 0 for free in state.free.values())


def _check(before: _State, after: _State) -> None:
    if before.free_in_all < _GPUS_OF_NODE or before.largest_free >= _GPUS_OF_NODE:
        raise StoryFailed(
            f"want {_GPUS_OF_NODE} free GPUs, but not on one node, by the default policies; "
            f"got {before.free_in_all}, and {before.largest_free} on one node"
        )
    if after.largest_free < _GPUS_OF_NODE:
        raise StoryFailed(
            f"want a node with {_GPUS_OF_NODE} free GPUs by the pack, got {after.largest_free}"
        )


def _leave(stage: Stage) -> None:
    """Let one more wait."""
    stage.cluster.create(_pod("train-8-again", _GPUS_OF_NODE))


SCENARIO: Final = Scenario(
    name="gpu",
    summary="fragmented GPUs: a pod with 8 fits nowhere, and fits with the pack `gpu`",
    policies={},
    objects=_nodes,
    run=run,
    page="nodes",
    shows="the GPUs of each node, and the largest free piece",
    leave=_leave,
)
