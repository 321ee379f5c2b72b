"""The story of riya: the queue by the priority of groups, and groups held until they are large
enough, as in the exercise that the pack `riya` is about.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from devkit.cluster import make_node, make_pod
from devkit.cluster.store import Change
from devkit.demo.stage import Scenario, Stage, StoryFailed
from engine.app import Settings

_PROFILE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: riya
    plugins:
      queueSort:
        disabled:
          - name: "*"
        enabled:
          - name: riya
      preEnqueue:
        enabled:
          - name: riya
"""
_AMOUNTS: Final = {"cpu": "1101m", "memory": "262144k"}
_LESS: Final = {"cpu": "500m", "memory": "10000k"}
#: By quality of service, in the order in which equal priorities are tried.
_RESOURCES: Final[dict[str, dict[str, Any]]] = {
    "Guaranteed": {"requests": _AMOUNTS, "limits": _AMOUNTS},
    "Burstable": {"requests": _LESS, "limits": _AMOUNTS},
    "BestEffort": {},
}
_QUALITIES: Final = tuple(_RESOURCES)


class _Pods(NamedTuple):
    """Equal pods of a group."""

    name: str
    group: str
    priority: int
    least: int
    quality: str
    size: int


#: In the order in which they are created: not that in which they should be tried.
_WORKLOADS: Final = (
    _Pods("black-pusheen", "pusheen", 100, 2, "BestEffort", 5),
    _Pods("gray-pusheen", "pusheen", 100, 2, "Burstable", 5),
    _Pods("white-pusheen", "pusheen", 100, 2, "Guaranteed", 5),
    _Pods("green", "green", 100, 2, "Guaranteed", 10),
    _Pods("yellow", "yellow", 500, 2, "Guaranteed", 10),
    _Pods("red", "red", 1000, 2, "Guaranteed", 10),
)
_HELD: Final = _Pods("nginx", "nginx", 0, 3, "Guaranteed", 2)
_LEFT: Final = _Pods("too-few", "too-few", 0, 3, "Guaranteed", 2)


def _names(pods: _Pods) -> list[str]:
    return [f"{pods.name}-{i + 1:02}" for i in range(pods.size)]


def _manifests(pods: _Pods) -> list[dict[str, Any]]:
    labels = {
        "podGroup": pods.group,
        "groupPriority": str(pods.priority),
        "minAvailable": str(pods.least),
    }
    made = [make_pod(name, labels=labels, scheduler_name="riya") for name in _names(pods)]
    for pod in made:
        pod["spec"]["containers"][0]["resources"] = _RESOURCES[pods.quality]
    return made


def _objects() -> list[dict[str, Any]]:
    nodes = [make_node(f"node-{i + 1}", cpu="16") for i in range(4)]
    return [*nodes, *(pod for pods in (*_WORKLOADS, _HELD) for pod in _manifests(pods))]


class _Bindings:
    """The pods of *names* in the order of their bindings."""

    def __init__(self, stage: Stage, names: Iterable[str]) -> None:
        self.order: list[str] = []
        self._left = set(names)
        pods = stage.cluster.store.table("pods")
        for change in pods.since(0):
            self.offer(change)
        pods.subscribers.append(self)

    def offer(self, change: Change) -> None:
        """Take note of *change*."""
        pod = change.last.manifest
        name = pod["metadata"]["name"]
        if pod["spec"].get("nodeName") and name in self._left:
            self._left.remove(name)
            self.order.append(name)


async def run(stage: Stage) -> dict[str, Any]:
    """Watch in what order groups are tried, and a group that is too small."""
    total = sum(pods.size for pods in _WORKLOADS)
    stage.say(
        f"{total} pods of {len({pods.group for pods in _WORKLOADS})} groups were there before the "
        "scheduler, the least important first. The profile orders the queue by the policy `riya`:"
    )
    stage.show_text("profile.yaml", _PROFILE, "yaml")
    # 1. The order.
    order = _Bindings(stage, (name for pods in _WORKLOADS for name in _names(pods))).order
    await stage.until(lambda: len(order) == total, f"{total} pods to be placed")
    stage.show(
        "In the order in which they were tried",
        ("tried as", "pods", "group", "groupPriority", "minAvailable", "quality of service"),
        [
            (_places(order, pods), pods.name, pods.group, pods.priority, pods.least, pods.quality)
            for pods in sorted(_WORKLOADS, key=lambda pods: _first(order, pods))
        ],
    )
    _check(order)
    # 2. A group that is too small.
    held = _names(_HELD)
    why = await stage.until_answer(
        f"explain/default/{held[0]}", lambda answer: answer["outcome"] == "gated", "a held group"
    )
    if stage.placed(held):
        raise StoryFailed(f"want no pod of `{_HELD.group}` placed while it is too small")
    stage.say(f"\nThe group `{_HELD.group}` has {_HELD.size} pods and wants {_HELD.least}:")
    stage.show_text(why["reason"], why["message"])
    # 3. It grows.
    grown = _HELD._replace(size=_HELD.least)
    stage.cluster.create(_manifests(grown)[-1])
    on = await stage.until_placed(_names(grown))
    stage.say(f"One more is created, and all {len(on)} are placed.")
    return {
        "order": order,
        "tried": {pods.name: _places(order, pods) for pods in _WORKLOADS},
        "held": {"group": _HELD.group, "reason": why["reason"], "message": why["message"]},
        "placements": stage.placed([*order, *on]),
    }


def _of(order: Iterable[str], pods: _Pods) -> list[int]:
    """The places of *pods* in *order*; the first is 1."""
    names = set(_names(pods))
    return [place for place, name in enumerate(order, 1) if name in names]


def _first(order: Iterable[str], pods: _Pods) -> int:
    return min(_of(order, pods))


def _places(order: Iterable[str], pods: _Pods) -> str:
    places = _of(order, pods)
    is_run = places[-1] - places[0] + 1 == len(places)
    return f"{places[0]}-{places[-1]}" if is_run else ", ".join(map(str, places))


def _check(order: list[str]) -> None:
    kinds = {name: pods for pods in _WORKLOADS for name in _names(pods)}
    keys = [(-kinds[pod].priority, _QUALITIES.index(kinds[pod].quality)) for pod in order]
    if keys != sorted(keys):
        raise StoryFailed(f"want pods tried by priority and quality of service, got {order}")


def _leave(stage: Stage) -> None:
    """Let a group be held."""
    stage.cluster.create(*_manifests(_LEFT))


SCENARIO: Final = Scenario(
    name="riya",
    summary="the queue by the priority of groups; a group that is too small is held",
    policies={"profile.yaml": _PROFILE},
    objects=_objects,
    run=run,
    page="queue",
    shows="a group that is too small",
    leave=_leave,
    # One binding at a time shows the order.
    settings=Settings(local_port=0, bindings=1),
)
