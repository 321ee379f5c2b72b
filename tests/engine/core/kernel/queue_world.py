"""A small world with a tree of queues, governed by a policy of the test."""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from engine.core.kernel.events import QueueObjectChanged, TimePassed
from tests.engine.core.kernel.small_world import World
from tests.profiles import only

#: What there is of each resource goes by weight to those that want it; sums of weights go up.
FAIR: Final = '''"""Divides by weight.

Hooks: queues, queue_of, passes_up, shares.
"""

load("@std/amounts.star", "entry", "plus")

tree = queue_attributes(weight = 1, limit = {}, tier = "")

def queues(object):
    spec = object["spec"]
    return [
        queue(object["metadata"]["name"], parent = spec.get("parent", ""), **spec.get("has", {})),
        alias("also-" + object["metadata"]["name"], of = object["metadata"]["name"]),
    ]

def queue_of(pod):
    name = pod.labels.get("queue")
    return member(name, preemptible = False) if "keep" in pod.labels else name

def passes_up(queue):
    return {"weights": plus({"n": queue.weight}, queue.up.get("weights", {}))}

def shares(parent, children):
    share = {q.name: {} for q in children}
    for r, total in parent.share.items():
        entries = [entry(q.name, most = q.requested.get(r, 0), weight = q.weight) for q in children]
        for name, amount in divide(total, entries).items():
            share[name][r] = amount
    return share
'''


def tree_files(policy: str = FAIR, **document: Any) -> dict[str, str]:
    """The files of a bundle with a QueueTree of these fields, governed by *policy*."""
    head = {"apiVersion": "starsched.dev/v1", "kind": "QueueTree", "policy": "fair"}
    shares = {"shares": {"refresh": "0s"}}
    return {
        "config.yaml": only("NodeResourcesFit"),
        "fair.star": policy,
        "tree.yaml": yaml.safe_dump({**head, **shares, **document}),
    }


class QueueWorld(World):
    """A world with a tree of queues."""

    def __init__(self, policy: str = FAIR, **document: Any) -> None:
        super().__init__(tree_files(policy, **document))

    def put_queue(self, name: str, spec: Mapping[str, Any] | None, kind: str = "Queue") -> None:
        """Have an object that adds a queue; None: it is gone."""
        made = None if spec is None else {"metadata": {"name": name}, "spec": dict(spec)}
        self.report(QueueObjectChanged(kind, name, made))

    def settle(self) -> None:
        """Let shares be computed."""
        self.report(TimePassed())
        self.kernel.check_invariants()

    def sums(self, path: str, name: str = "allocated") -> dict[str, int]:
        """The sum *name* of the queue *path*, without the count of pods."""
        self.kernel.check_invariants()
        (found,) = (one for one in self.kernel.shares.states() if one.queue.path == path)
        return {r: amount for r, amount in found.sums.of(name).items() if r != "pods"}

    def shares(self) -> dict[str, dict[str, int] | None]:
        """The share of each queue, by its path."""
        self.settle()
        return {
            one.queue.path: None if one.standing.share is None else dict(one.standing.share)
            for one in self.kernel.shares.states()
        }
