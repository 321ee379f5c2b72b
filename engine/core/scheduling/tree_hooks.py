"""Asks the policy that governs the queues: in which queue a pod is, what is passed up, the shares.

Owns what a hook is given of a queue: the fields that its text mentions, and no others. Questions
of one kind are asked together, in one round trip. What becomes of the answers is the kernel's.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy
from engine.core.model.pod import Pod
from engine.core.scheduling.pod_classifier import PodClassifier
from engine.core.sharing.amounts import Amounts
from engine.core.sharing.sums import NONPREEMPTIBLE, VECTORS, Sums
from engine.core.sharing.tree import ROOT, Queue
from engine.language.tree_hooks import QUEUE_FIELDS
from engine.policy.evaluator import Call, PolicyFailure
from engine.policy.queue_tree import QueueTreePolicy
from engine.policy.verdicts import VerdictMemo
from engine.policy.view_events import fields_of, resources_behind

# Sums come in the order in which pods came, which no policy may go by.
_encode: Final = msgspec.json.Encoder(order="deterministic").encode

Vectors: TypeAlias = Mapping[str, Amounts]
"""Vectors of resources by name."""

_VECTOR_NAMES: Final = (*VECTORS, NONPREEMPTIBLE)


@dataclass(frozen=True, slots=True)
class QueueView:
    """What hooks may see of a queue.

    Attributes:
        queue: The queue, with its attributes.
        sums: Of its pods.
        up: What the queues right below it pass up, by name.
        share: What it may have.
    """

    queue: Queue
    sums: Sums
    up: Vectors
    share: Amounts


class TreeHooks:
    """The hooks of the policy that governs a bundle's tree of queues.

    Args:
        tree: The policy.
        reads: What its hook `queue_of` reads of a pod.
        memo: Where questions go.
        classifier: Answers what is asked about a pod alone.

    Attributes:
        kinds_read: The kinds of objects whose changes can put pods into other queues.
    """

    def __init__(
        self,
        tree: QueueTreePolicy,
        reads: Collection[str],
        memo: VerdictMemo,
        classifier: PodClassifier,
    ) -> None:
        self.tree: Final = tree
        self.kinds_read: Final = resources_behind("pod", fields_of("pod", reads))
        self._memo = memo
        self._classifier = classifier
        self._enabled = EnabledPolicy(tree.policy, tree.instance)
        self._fields = [name for name in QUEUE_FIELDS if name in tree.mentioned]
        self._vectors = [name for name in _VECTOR_NAMES if name in tree.mentioned]

    def has(self, hook: str) -> bool:
        """True if the policy has the hook."""
        return hook in self.tree.hooks

    def queue_of(self, pod: Pod, facts: Snapshot) -> tuple[str, bool] | PolicyFailure | None:
        """The name of the queue that *pod* is in, and if it is preemptible; None: in none."""
        answer = self._classifier.ask(self._enabled, "queue_of", pod, facts)
        if isinstance(answer, str):
            return answer, True
        return answer if answer is None or isinstance(answer, PolicyFailure) else tuple(answer)

    def queues(self, objects: Sequence[Any]) -> list[list[list[Any]] | PolicyFailure]:
        """What each of *objects*, plain data, adds to the tree: see the form of the verdict."""
        return self._asked("queues", [b'{"object":' + _encode(one) + b"}" for one in objects])

    def passes_up(self, queues: Sequence[QueueView]) -> list[Vectors | PolicyFailure]:
        """What each of *queues* passes up, by name."""
        found = self._asked("passes_up", [b'{"queue":' + self._shown(one) + b"}" for one in queues])
        return [one if isinstance(one, PolicyFailure) else dict(one) for one in found]

    def shares(self, questions: Sequence[bytes]) -> list[Vectors | PolicyFailure]:
        """The answers to *questions*, by the children's names: see `shares_question`."""
        found = self._asked("shares", questions)
        return [one if isinstance(one, PolicyFailure) else dict(one) for one in found]

    def shares_question(self, parent: QueueView, children: Sequence[QueueView]) -> bytes:
        """What `shares` is given; equal texts have equal answers."""
        params = self.tree.hooks["shares"]
        parts = []
        if "parent" in params:
            parts.append(b'"parent":' + self._shown(parent))
        if "children" in params:
            shown = b",".join(map(self._shown, children))
            parts.append(b'"children":[' + shown + b"]")
        return b"{" + b",".join(parts) + b"}"

    def _asked(self, hook: str, questions: Sequence[bytes]) -> list[Any]:
        # Past the memo: whoever asks knows that something has changed.
        calls = [Call(self.tree.instance, hook, b"null", None, one) for one in questions]
        return [answers[0] for answers in self._memo.evaluate(calls)] if calls else []

    def _shown(self, view: QueueView) -> bytes:
        """A queue as hooks see it: a struct of those of its fields that are mentioned."""
        queue, sums = view.queue, view.sums
        shown: dict[str, Any] = {
            name: queue.attributes.get(name, default)
            for name, default in self.tree.attributes.items()
            if name in self.tree.mentioned
        }
        # The name always: what `shares` returns is by it.
        shown["name"] = queue.name
        for name in self._fields:
            if name in _OF_QUEUE:
                shown[name] = _OF_QUEUE[name](queue)
        for name in self._vectors:
            shown[name] = sums.of(name)
        if "pods" in self._fields:
            shown["pods"] = sums.pod_count
        if "up" in self._fields:
            shown["up"] = view.up
        if "share" in self._fields:
            shown["share"] = view.share
        return _encode({"$struct": shown})


_OF_QUEUE: Final[Mapping[str, Callable[[Queue], Any]]] = {
    "path": lambda queue: queue.path,
    "is_leaf": lambda queue: queue.is_leaf,
    "is_root": lambda queue: queue.path == ROOT,
}
