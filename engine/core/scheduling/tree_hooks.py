"""Asks the policy that governs the queues: in which queue a pod is, what is passed up, the shares.

Owns what a hook is given of a queue: the fields that its text mentions, and no others. Questions
of one kind are asked together, in one round trip. What becomes of the answers is the kernel's.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy
from engine.core.model.pod import Pod
from engine.core.scheduling.pod_classifier import PodClassifier
from engine.core.sharing.amounts import Amounts, add
from engine.core.sharing.ratios import TurnKey, turn_sort_key
from engine.core.sharing.sums import NONPREEMPTIBLE, VECTORS, Sums
from engine.core.sharing.tree import ROOT, Queue
from engine.language import tree_hooks
from engine.language.tree_hooks import QUEUE_FIELDS, USAGE
from engine.policy.evaluator import Call, PolicyFailure
from engine.policy.queue_tree import QueueTreePolicy
from engine.policy.verdicts import VerdictMemo
from engine.policy.view_events import fields_of, resources_behind

# Sums come in the order in which pods came, which no policy may go by.
_encode: Final = msgspec.json.Encoder(order="deterministic").encode

# Pods whose queues are asked for in one round trip.
_CHUNK: Final = 256

Vectors: TypeAlias = Mapping[str, Amounts]
"""Vectors of resources by name."""

_VECTOR_NAMES: Final = (*VECTORS, NONPREEMPTIBLE)


@dataclass(slots=True)  # not frozen: a hundred of them are made for a pod, and that takes longer
class QueueView:
    """What hooks may see of a queue.

    Attributes:
        queue: The queue, with its attributes.
        sums: Of its pods.
        up: What the queues right below it pass up, by name.
        share: What it may have.
        claimed: What counts as allocated though it is not yet: others are evicted for it.
        usage: What it used in the past, as read last.
    """

    queue: Queue
    sums: Sums
    up: Vectors
    share: Amounts
    claimed: Amounts = field(default_factory=dict)
    usage: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """What a pod asks for, or a group of pods that start together; see `REQUEST_FIELDS`."""

    resources: Amounts
    least: Amounts
    pods: int
    priority: int
    preemptible: bool
    created_at: int
    group: str

    @classmethod
    def of_pod(
        cls, amounts: Amounts, priority: int = 0, preemptible: bool = True, created_at: int = 0
    ) -> "Request":
        """What one pod asks for that requests *amounts*, in no group."""
        resources = {**amounts, "pods": 1}
        return cls(resources, resources, 1, priority, preemptible, created_at, "")


@dataclass(frozen=True, slots=True)
class Giver:
    """What hooks see of a pod on a node, or of a group that goes as one; see `VICTIM_FIELDS`."""

    resources: tuple[tuple[str, int], ...]
    priority: int
    preemptible: bool
    running_seconds: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a request may not be tried.

    Attributes:
        reason, token: For people; the token may be empty.
        at: The path of the queue that has too little of something; "" is the root.
        short: Of which resource, and by how much; None: the policy does not say.
        whole_queue: Those behind it in its queue wait, too.
    """

    reason: str
    token: str = ""
    at: str = ROOT
    short: tuple[str, int] | None = None
    whole_queue: bool = False


@dataclass(frozen=True, slots=True)
class _Shown:
    """What one hook is given: of requests these fields, and of queues, whose vectors are apart."""

    names: frozenset[str]
    of_request: tuple[str, ...]
    of_queue: tuple[str, ...]
    vectors: tuple[str, ...]
    attributes: Mapping[str, Any]

    @classmethod
    def by(cls, names: frozenset[str], attributes: Mapping[str, Any]) -> "_Shown":
        """What a hook is given whose text mentions *names*."""
        return cls(
            names,
            of_request=tuple(one.name for one in dataclasses.fields(Request) if one.name in names),
            of_queue=tuple(name for name in QUEUE_FIELDS if name in names),
            vectors=tuple(name for name in _VECTOR_NAMES if name in names),
            attributes={name: value for name, value in attributes.items() if name in names},
        )


@dataclass(slots=True)
class _Queues:
    """The queues that a question is about.

    Attributes:
        texts: Each once, as hooks see it, those above it before it; `above` refers to these.
        places: By path, at which of `texts` it is. Elsewhere in a question that stands for it.
    """

    texts: list[bytes] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def copy(self) -> "_Queues":
        """The same, to which others can be added."""
        return _Queues(self.texts.copy(), self.places.copy())

    def question(self, shown: Mapping[str, Any]) -> bytes:
        """The text of a question about *shown*, by parameter."""
        return _encode({**shown, tree_hooks.ALL_QUEUES: [msgspec.Raw(one) for one in self.texts]})


@dataclass(frozen=True, slots=True)
class Taker:
    """Who takes, as hooks see it, and its queues."""

    queues: _Queues
    shown: Mapping[str, Any]


class TreeHooks:
    """The hooks of the policy that governs a bundle's tree of queues.

    Args:
        tree: The policy.
        reads: What its hook `queue_of` reads of a pod.
        memo: Where questions go.
        classifier: Answers what is asked about a pod alone.

    Attributes:
        kinds_read: The kinds of objects whose changes can put pods into other queues.
        reads_usage: Answers may go by what queues used in the past.
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
        self._shown_to = {
            hook: _Shown.by(names, tree.attributes) for hook, names in tree.mentioned.items()
        }
        of_turns = tree.mentioned.get("turn_key", frozenset())
        #: The turn of a queue may depend on those that it is under.
        self.reads_above: Final = "above" in of_turns
        #: And on those, the root's total, or the queues below it that have the head.
        self.turns_by_path: Final = (
            self.reads_above or "queues" in of_turns or "total" in tree.hooks.get("turn_key", ())
        )
        self.reads_usage: Final = tree.usage is not None and tree.mentions(USAGE)

    def has(self, hook: str) -> bool:
        """True if the policy has the hook."""
        return hook in self.tree.hooks

    def queues_of(
        self, pods: Sequence[Pod], facts: Snapshot
    ) -> list[tuple[str, bool] | PolicyFailure | None]:
        """The name of the queue that each of *pods* is in, and if it is preemptible; None: in none.

        Of many pods in one round trip.
        """
        if not self.has("queue_of"):
            return [None] * len(pods)
        found: list[tuple[str, bool] | PolicyFailure | None] = []
        for first in range(0, len(pods), _CHUNK):
            some = pods[first : first + _CHUNK]
            for answer in self._classifier.ask_each(self._enabled, "queue_of", some, facts):
                if answer is None or isinstance(answer, PolicyFailure):
                    found.append(answer)
                else:
                    found.append((answer, True) if isinstance(answer, str) else tuple(answer))
        return found

    def queues(self, objects: Sequence[Any]) -> list[list[list[Any]] | PolicyFailure]:
        """What each of *objects*, plain data, adds to the tree: see the form of the verdict."""
        return self._asked("queues", [b'{"object":' + _encode(one) + b"}" for one in objects])

    def passes_up(self, questions: Sequence[bytes]) -> list[Vectors | PolicyFailure]:
        """The answers to *questions*, by name: see `passes_up_question`."""
        found = self._answers("passes_up", questions)
        return [one if isinstance(one, PolicyFailure) else dict(one) for one in found]

    def passes_up_question(self, queue: QueueView) -> bytes:
        """What `passes_up` is given; equal texts have equal answers."""
        queues = _Queues()
        (place,) = self._write("passes_up", queues, [queue])
        return queues.question({"queue": place})

    def shares(self, questions: Sequence[bytes]) -> list[Vectors | PolicyFailure]:
        """The answers to *questions*, by the children's names: see `shares_question`."""
        found = self._asked("shares", questions)
        return [one if isinstance(one, PolicyFailure) else dict(one) for one in found]

    def shares_question(self, parent: QueueView, children: Sequence[QueueView]) -> bytes:
        """What `shares` is given; equal texts have equal answers."""
        params, queues, shown = self.tree.hooks["shares"], _Queues(), dict[str, Any]()
        if "parent" in params:
            (shown["parent"],) = self._write("shares", queues, [parent])
        if "children" in params:
            shown["children"] = [self._write("shares", queues, [one])[0] for one in children]
        return queues.question(shown)

    # --- order and quota ---------------------------------------------------------------------

    @property
    def decides(self) -> bool:
        """True if queues have an order of their own, or a request may be held."""
        return self.has("turn_key") or self.has("admit")

    @property
    def reads_head(self) -> bool:
        """True if the turn of a queue may depend on the request that is next in it."""
        return "head" in self.tree.hooks.get("turn_key", ())

    def turn_question(
        self, path: Sequence[QueueView], head: Request | None, below: Sequence[QueueView]
    ) -> bytes:
        """What `turn_key` is given; equal texts have equal answers.

        Args:
            path: The queue and those above it, the root last.
            head: The request that is next in the queue, if that is read.
            below: The queues of that request, from its leaf up to the queue.
        """
        params, queues = self.tree.hooks["turn_key"], _Queues()
        shown: dict[str, Any] = {"queue": self._write("turn_key", queues, path)[0]}
        if head is not None and "head" in params:
            shown["head"] = self._request("turn_key", head)
            if "queues" in self._shown_to["turn_key"].names:
                line = self._write("turn_key", queues, [*below[:-1], *path], len(below))
                shown["head"]["queues"] = line[: len(below)]
        if "total" in params:
            shown["total"] = path[-1].share
        return queues.question(shown)

    def turn_keys(self, questions: Sequence[bytes]) -> list[TurnKey | PolicyFailure]:
        """The answers to *questions*."""
        return self._keys("turn_key", questions)

    def admit_question(self, request: Request, path: Sequence[QueueView]) -> bytes:
        """What `admit` is given of *request*; *path* are its queues, the leaf first."""
        params, queues, shown = self.tree.hooks["admit"], _Queues(), dict[str, Any]()
        if "request" in params:
            shown["request"] = self._request("admit", request)
        if "path" in params:
            shown["path"] = self._write("admit", queues, path, len(path))
        return queues.question(shown)

    def admits(self, questions: Sequence[bytes]) -> list[Hold | PolicyFailure | None]:
        """What keeps each of the requests asked about from being tried."""
        return [self._hold(answer) for answer in self._answers("admit", questions)]

    def admit(self, request: Request, path: Sequence[QueueView]) -> Hold | PolicyFailure | None:
        """The same of one request; see `admit_question`."""
        return self.admits([self.admit_question(request, path)])[0]

    def _hold(self, answer: Any) -> Hold | PolicyFailure | None:
        if answer is None or isinstance(answer, PolicyFailure):
            return answer
        _, reason, token, at, short, whole_queue = answer
        return Hold(reason, token, at, None if short is None else tuple(short), whole_queue)

    # --- reclaim -----------------------------------------------------------------------------

    def taker(
        self, hook: str, request: Request, path: Sequence[QueueView], *, branch: int
    ) -> "Taker":
        """Who takes, as *hook* sees it: *path* are its queues, the first *branch* its own side."""
        queues = _Queues()
        shown = self._side(hook, queues, path, branch)
        return Taker(queues, shown | {"request": self._request(hook, request)})

    def reclaim_question(
        self,
        taker: "Taker",
        giver: Giver,
        path: Sequence[QueueView],
        *,
        branch: int,
        total: Amounts,
    ) -> bytes:
        """What `reclaim` is given; equal texts have equal answers.

        *path* are the queues of who gives, the first *branch* its own side.
        """
        names, queues = self._shown_to["reclaim"].names, taker.queues.copy()
        victim = self._side("reclaim", queues, path, branch)
        for name in ("priority", "preemptible", "running_seconds"):
            if name in names:
                victim[name] = getattr(giver, name)
        victim["resources"] = dict(giver.resources)
        shown = {"taker": taker.shown, "victim": victim}
        if "total" in self.tree.hooks["reclaim"]:
            shown["total"] = dict(total)
        return queues.question(shown)

    def _side(
        self, hook: str, queues: "_Queues", path: Sequence[QueueView], branch: int
    ) -> dict[str, Any]:
        """The queues of who takes, or gives, as far as *hook* may read them."""
        names = self._shown_to[hook].names
        own = branch if names & {"branch", "queues"} else 1
        line = self._write(hook, queues, path, len(path) if names & {"path", "above"} else own)
        of_side = {
            "queue": line[0],
            "branch": line[own - 1],
            "queues": line[:own],
            "path": line,
            "above": line[1:],
        }
        return {name: at for name, at in of_side.items() if name == "queue" or name in names}

    def stages(self, questions: Sequence[bytes]) -> list[int | PolicyFailure | None]:
        """The answers to *questions*: the stage at which a victim may be taken, or None."""
        return self._answers("reclaim", questions)

    def giver_question(self, line: Sequence[QueueView], taker: "Taker", total: Amounts) -> bytes:
        """What `giver_key` is given of the first queue of *line*, which has those above it, too."""
        params = self.tree.hooks["giver_key"]
        queues = taker.queues.copy() if "taker" in params else _Queues()
        shown: dict[str, Any] = {"queue": self._write("giver_key", queues, line)[0]}
        if "taker" in params:
            shown["taker"] = taker.shown
        if "total" in params:
            shown["total"] = dict(total)
        return queues.question(shown)

    def giver_keys(self, questions: Sequence[bytes]) -> list[TurnKey | PolicyFailure]:
        """Of each of the queues asked about, its place among those that give."""
        return self._keys("giver_key", questions)

    def _keys(self, hook: str, questions: Sequence[bytes]) -> list[TurnKey | PolicyFailure]:
        found = self._answers(hook, questions)
        return [one if isinstance(one, PolicyFailure) else turn_sort_key(one) for one in found]

    def _answers(self, hook: str, questions: Sequence[bytes]) -> list[Any]:
        instance = self.tree.instance
        return self._memo.singles([(instance, hook, b"null", one) for one in questions])

    def _request(self, hook: str, request: Request) -> dict[str, Any]:
        return {name: getattr(request, name) for name in self._shown_to[hook].of_request}

    def _asked(self, hook: str, questions: Sequence[bytes]) -> list[Any]:
        # Past the memo: the caller knows that something has changed.
        calls = [Call(self.tree.instance, hook, b"null", None, one) for one in questions]
        return [answers[0] for answers in self._memo.evaluate(calls)] if calls else []

    def _write(
        self, hook: str, queues: "_Queues", path: Sequence[QueueView], least: int = 1
    ) -> list[int]:
        """Write the first *least* queues of *path*, and the others if *hook* reads those above.

        What they are referred to by, in the order of *path*; a queue that is there already is not
        written again.
        """
        if "above" not in self._shown_to[hook].of_queue:
            path = path[:least]
        line: list[int] = []
        for view in reversed(path):
            place = queues.places.get(view.queue.path)
            if place is None:
                place = queues.places[view.queue.path] = len(queues.texts)
                queues.texts.append(self._shown(hook, view, line))
            line = [place, *line]
        return line

    def _shown(self, hook: str, view: QueueView, above: Sequence[int]) -> bytes:
        """A queue as *hook* sees it: those of its fields that are mentioned.

        *above* refers to the queues above it.
        """
        queue, sums, wanted = view.queue, view.sums, self._shown_to[hook]
        shown: dict[str, Any] = {
            name: queue.attributes.get(name, default) for name, default in wanted.attributes.items()
        }
        if hook == "shares":
            shown["name"] = queue.name  # what it returns is by it
        for name in wanted.of_queue:
            if name in _OF_QUEUE:
                shown[name] = _OF_QUEUE[name](queue)
        for name in wanted.vectors:
            shown[name] = sums.of(name)
        if view.claimed and "allocated" in shown:
            add(shown["allocated"], view.claimed, 1)
        if "pods" in wanted.of_queue:
            shown["pods"] = sums.pod_count
        if "up" in wanted.of_queue:
            shown["up"] = view.up
        if "share" in wanted.of_queue:
            shown["share"] = view.share
        if self.reads_usage and USAGE in wanted.of_queue:
            shown[USAGE] = view.usage
        if (above or queue.path == ROOT) and "above" in wanted.of_queue:
            shown["above"] = above
        return _encode(shown)


_OF_QUEUE: Final[Mapping[str, Callable[[Queue], Any]]] = {
    "name": lambda queue: queue.name,
    "path": lambda queue: queue.path,
    "is_leaf": lambda queue: queue.is_leaf,
    "is_root": lambda queue: queue.path == ROOT,
}
