"""Plugins of the runtime: parts of a decision, next to the policies, that hold or write objects.

Owns what such a plugin may take part in and what passes between its steps. A plugin decides like a
policy does (pure, on the snapshot), but it also remembers what it has reserved for pods that are
not bound yet, and writes that before the binding.
"""

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.core.caching.snapshot import Snapshot
from engine.core.framework import reasons
from engine.core.framework.owner import Owner
from engine.core.framework.profile import Profile
from engine.core.framework.reason_kinds import INTERNAL_ERROR, SEARCH_TOO_LONG
from engine.core.framework.status import Status
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.policy.evaluator import PolicyFailure

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What a plugin says about a pod that fits nowhere.

    `message` is shown after the reasons. `action`, if any, is carried out while the next decisions
    are made. `is_final`: no later plugin is asked.
    """

    message: str
    action: Callable[[], Awaitable[None]] | None = None
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class PluginFailure(PolicyFailure):
    """A plugin of the runtime that could not answer; the attempt is lost.

    The fault is that of the object that it could not work with, if there is one: that pod alone
    waits, and no policy is judged by it.
    """

    token: str = INTERNAL_ERROR
    subject: str = ""

    @property
    def owner(self) -> Owner:
        """Whose fault it is, by its token."""
        return reasons.owner_of(self.token)

    def about(self, subject: str) -> "PluginFailure":
        """The same failure: it is in kube-scheduler's words, which name what they need to."""
        return self

    def __str__(self) -> str:
        return self.message


def pre_filter_failure(status: Status) -> PluginFailure:
    """The failure that an error status of `pre_filter` is, in kube-scheduler's words."""
    text = f'running PreFilter plugin "{status.plugin}": {status.message}'
    return _failure(status, "pre_filter", text)


def filter_failure(status: Status) -> PluginFailure:
    """The failure that an error status of `filter` is, in kube-scheduler's words."""
    text = f'running "{status.plugin}" filter plugin: {status.message}'
    return _failure(status, "filter", text)


def reserve_failure(status: Status) -> PluginFailure:
    """The failure that an error status of `reserve` is, in kube-scheduler's words."""
    text = f'running Reserve plugin "{status.plugin}": {status.message}'
    return _failure(status, "reserve", text)


def _failure(status: Status, hook: str, text: str) -> PluginFailure:
    token = status.token or INTERNAL_ERROR
    kind = "steps" if token == SEARCH_TOO_LONG else "error"
    return PluginFailure(
        status.plugin, hook, "", 0, 0, text, kind, token=token, subject=status.subject
    )


class RuntimePlugin:
    """A plugin of the runtime; a method that it does not override has no effect.

    One object lives as long as the process, over all revisions of the policies; a profile's
    arguments are given with each question. `state` is whatever `pre_filter` returned for this
    pod in this cycle; it must not be changed by `filter` and `score`.

        pre_filter -> filter per node -> score -> reserve -> (permit) -> pre_bind -> bind
                                                     \\-- any failure after it --> unreserve
    """

    name: ClassVar[str]
    """kube-scheduler's name of the plugin."""

    also_reads: ClassVar[frozenset[str]] = frozenset()
    """Kinds that it reads, in addition to those that its queueing hints name."""

    needs_filter: ClassVar[bool] = False
    """Whether it has nothing to reserve in a profile that has its filter off."""

    def pre_enqueue(self, pod: Pod, snapshot: Snapshot) -> str | None:
        """None, or why the pod must not be tried yet."""

    def pre_filter(self, pod: Pod, snapshot: Snapshot, arguments: Arguments) -> Any:
        """None: nothing to say about this pod. A rejecting `Status`, or a state for the rest.

        A status with code ERROR costs the pod its attempt. Its token says whose fault that is, its
        subject names the object; without a token it is the runtime's.
        """

    def filter(self, state: Any, info: NodeInfo) -> Status | None:
        """None if the pod may go to the node of *info*, else a rejecting status or an error.

        *info* may be hypothetical: some pods taken away or added.
        """

    def only_nodes(self, state: Any) -> tuple[Collection[str], Status] | None:
        """Names of nodes, and what `filter` says of every other one; None: that is not known."""

    def leave_out(self, state: Any, names: Iterator[str]) -> None:
        """Called with the nodes that it is not asked about, because `only_nodes` says so."""

    def kind_of(self, state: Any) -> Hashable | None:
        """What pods share for which `filter` says the same of each node; None: nothing is known.

        It says the same as long as the node is the same and `changed_since` does not name it,
        whichever pods the node has. It is then not asked again, so `reserve` may be called for a
        node that it was not asked about.
        """

    def equivalence_key(self, state: Any, info: NodeInfo) -> Hashable | None:
        """What nodes share of which `filter` says the same to pods of a kind; None: nothing.

        It says so for good: whatever it looks at is in it.
        """
        return None

    def position(self, state: Any) -> Any:
        """Where `changed_since` goes on from."""
        return None

    def changed_since(self, state: Any, position: Any) -> Collection[str] | None:
        """The nodes of which something else may be said than at *position*; None: of any."""
        return ()

    def has_scores(self, state: Any) -> bool:
        """False if `score` would be the same for all nodes: it is asked where scores are shown."""
        return True

    def score(self, state: Any, infos: Sequence[NodeInfo]) -> Sequence[int] | None:
        """Raw scores of the feasible nodes; None if the plugin has no opinion on this pod.

        *state* is None if `pre_filter` had nothing to say: asked only where scores are shown.
        """

    def normalize(self, scores: Sequence[int]) -> Sequence[int]:
        """Raw scores as 0..100."""
        return scores

    def post_filter(
        self, state: Any, pod: Pod, rejected: Mapping[str, Status], snapshot: Snapshot
    ) -> PostFilterResult | None:
        """What to say and do when the pod fits nowhere; *rejected* is by node name.

        *state* is None if `pre_filter` had nothing to say, and then *rejected* is empty.
        """

    def reserve(self, state: Any, pod: Pod, node_name: str) -> Status | None:
        """Reserve for the pod what it needs on its node; None, or why it cannot be had.

        Called between two decisions, after the pod was assumed: from its return on, the next
        decision must see what is taken.
        """

    def unreserve(self, state: Any, pod: Pod, node_name: str) -> None:
        """Release what was reserved. Called also if `reserve` refused or failed; must not raise."""

    async def pre_bind(self, state: Any, pod: Pod, node_name: str) -> None:
        """Write what was reserved; returns when the pod may be bound.

        Raises `placement.PreBindError` with the reason if that is impossible.
        """


def plugins_at(
    plugins: Mapping[str, RuntimePlugin], profile: Profile | None, point: str
) -> Iterator[RuntimePlugin]:
    """Those of *plugins* that are enabled at *point*, in order."""
    if profile is not None and plugins:
        for name in profile.order.get(point, ()):
            plugin = plugins.get(name)
            if plugin is not None:
                yield plugin
