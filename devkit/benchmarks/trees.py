"""Trees of queues in three levels, the rules by which they are governed, and the pods in them.

Deterministic: the same number gives the same queue, on every machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from devkit.benchmarks import objects
from devkit.benchmarks.objects import Manifest

#: The label of a pod that names its queue, with dots between the levels.
LABEL: Final = "team"
#: The annotation that does, for `proportion`.
_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
# Neighbours in time are in queues far from each other: a prime above the most queues there are.
_STRIDE: Final = 20_011

_BY_CPU: Final = f'''"""The queue that has the least cpu goes next, whatever waits in it.

Hooks: queue_of, turn_key. Reads: pod.labels["{LABEL}"]; of queues: allocated.
"""

def queue_of(pod):
    name = pod.labels.get("{LABEL}")
    return name.replace(".", "/") if name else None

def turn_key(queue):
    return queue.allocated.get("cpu", 0)
'''
_QUOTA: Final = f'''"""Each queue has a quota, which it does not lend; the least cpu goes next.

Hooks: queue_of, turn_key, admit. Reads: pod.labels["{LABEL}"]; of queues: allocated, most; the
resources of a request.
"""

load("@std/amounts.star", "over", "plus")

tree = queue_attributes(most = {{}})

def queue_of(pod):
    name = pod.labels.get("{LABEL}")
    return name.replace(".", "/") if name else None

def turn_key(queue):
    return queue.allocated.get("cpu", 0)

def admit(request, path):
    for q in path[:-1]:
        short = over(plus(q.allocated, request.resources), q.most, of = q.most)
        if short:
            return hold("has its quota", token = "QuotaReached", at = q.path, short = short)
    return None
'''


@dataclass(frozen=True, slots=True)
class Rules:
    """Who goes next, and what is held.

    Attributes:
        title: In the table.
        policy: Governs the tree; "" for no tree.
        files: The policy, if it does not ship.
        inner: Attributes of the queues of the second level, which have some ten under them.
        pods_end: Each pod ends as soon as it is bound, so that what is held has its turn.
    """

    title: str
    policy: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    inner: Mapping[str, Any] = field(default_factory=dict)
    pods_end: bool = False


#: By name. All of them see the same pods; those with `pods_end` are compared with each other.
RULES: Final[Mapping[str, Rules]] = {
    "none": Rules("no tree"),
    "by_cpu": Rules(
        "turns by what a queue has (by_cpu)",
        "by_cpu",
        {"by_cpu.star": _BY_CPU},
    ),
    "drf": Rules("by the next pod, too (drf)", "drf"),
    "proportion": Rules("by shares (proportion)", "proportion"),
    "none_ending": Rules("no tree, pods end", pods_end=True),
    "quota": Rules(
        "quotas, pods end",
        "quota",
        {"quota.star": _QUOTA},
        {"most": {"cpu": "200m"}},
        pods_end=True,
    ),
}


def width_of(queues: int) -> int:
    """Under how many each queue above others has, so that there are at least *queues* leaves."""
    width = 2
    while width**3 < queues:
        width += 1
    return width


def leaf(number: int, queues: int) -> str:
    """The path of the leaf with *number* (0 to *queues* - 1)."""
    width = width_of(queues)
    return f"t{number // width**2}/m{number // width % width}/l{number % width}"


def put_in_queue(pod: Manifest, number: int, queues: int) -> Manifest:
    """*pod*, which is the one with *number* of those that go round over all of the *queues*."""
    path, metadata = leaf(number * _STRIDE % queues, queues), pod["metadata"]
    metadata["labels"] = {**metadata["labels"], LABEL: path.replace("/", ".")}
    metadata["annotations"] = {**metadata.get("annotations", {}), _ANNOTATION: path}
    return pod


def pod(number: int, queues: int) -> Manifest:
    """The pod with *number*."""
    return put_in_queue(objects.pod(f"pod-{number:06d}"), number, queues)


def files_of(rules: Rules, queues: int) -> dict[str, str]:
    """The policies and the tree of so many leaves, by file name; nothing without a tree."""
    if not rules.policy:
        return {}
    leaves = [leaf(number, queues) for number in range(queues)]
    inner = dict.fromkeys(path.rpartition("/")[0] for path in leaves)
    tree = {
        "apiVersion": "starsched.dev/v1",
        "kind": "QueueTree",
        "policy": rules.policy,
        "queues": {path: dict(rules.inner) for path in inner} | {path: {} for path in leaves},
    }
    return {"tree.yaml": yaml.safe_dump(tree, default_flow_style=None), **rules.files}


def write(rules: Rules, queues: int, directory: Path) -> str | None:
    """Put them into *directory*, for `--policies`; None without a tree, for what ships."""
    files = files_of(rules, queues)
    if not files:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return str(directory)
