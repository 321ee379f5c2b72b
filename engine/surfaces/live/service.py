"""The live answers: what is asked for by name and query, and answered by a record.

Owns which questions a process can answer, what a caller may see of them, and what is said instead.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import structlog

from engine.core.kernel.kernel import Kernel
from engine.core.sharing.tree import ROOT
from engine.lib.clock import Clock
from engine.policy.errors import PolicyErrors
from engine.rollout.control import RolloutControl
from engine.rollout.rollout import Rollout
from engine.surfaces.live import nodes_page, pods_page, queue_page, shares_page
from engine.surfaces.live.answers import Leader, PodAnswer, Refusal, Victim
from engine.surfaces.live.decision_record import DecisionRecord
from engine.surfaces.live.explainer import Busy, Explainer, LimitReached
from engine.surfaces.live.held_rows import named_namespaces
from engine.surfaces.live.moments import Moments, at_text
from engine.surfaces.live.nodes_page import nodes_page as make_nodes_page
from engine.surfaces.live.pod_page import KnownPod, known_pod, pod_answer
from engine.surfaces.live.pods_page import PodFilter, matches
from engine.surfaces.live.pods_page import pods_page as make_pods_page
from engine.surfaces.live.policies_page import PoliciesAnswers
from engine.surfaces.live.queue_page import QueueFilter, QueueRows
from engine.surfaces.live.rollout_page import EditSource, namespaces_of, rollout_page
from engine.surfaces.live.rules import Rules
from engine.surfaces.live.shares_page import ShareFilter, share_answer
from engine.surfaces.live.shares_page import shares_page as make_shares_page
from engine.surfaces.live.slices import in_slices
from engine.surfaces.live.what_if.asking import WhatIf, namespaces_in, shapes_shown, shown
from engine.surfaces.live.what_if.best_shape import offers_of
from engine.surfaces.live.what_if.changes import WrongQuestion, changes_of
from engine.surfaces.live.what_if.shapes import Shape

log = structlog.get_logger(component="live")

Query: TypeAlias = Mapping[str, str]
Answered: TypeAlias = tuple[int, msgspec.Struct]
"""The HTTP status, and the record."""

OK, WRONG, FORBIDDEN, UNKNOWN, BUSY, FAULT, NOT_HERE = 200, 400, 403, 404, 429, 500, 503
_HIDDEN: Final = "(a pod of another namespace)"
# A name of Kubernetes, of whatever kind.
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_MOST_ASKED: Final = 10


class Viewer(Protocol):
    """Who asks, and what may be shown."""

    @property
    def is_local(self) -> bool:
        """True if everything may be shown."""
        ...

    async def may_read(self, namespace: str) -> bool:
        """True if the pods of *namespace* may be shown."""
        ...

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Those of *namespaces* whose pods may be shown."""
        ...


class _BadQuery(Exception):
    """A query that makes no sense; the text says what was wanted."""


@dataclass(frozen=True)
class Replica:
    """What one process says of itself beside its decisions.

    Attributes:
        leader: Who leads, as far as this process knows.
        is_leading: This process decides.
        pod_groups: What is known of the API for groups.
        kubernetes: Which version is answered like.
        decision_log: Where decisions are recorded; None if they are not.
    """

    leader: Callable[[], Leader]
    is_leading: Callable[[], bool]
    pod_groups: Callable[[], Mapping[str, Any]]
    kubernetes: Callable[[], Mapping[str, Any]]
    decision_log: Path | None


class LiveAnswers:
    """Answers about a running scheduler.

    Args:
        kernel: The state; nothing of it is changed.
        explainer: Explains pods.
        record: The last decisions.
        rollout: The policies.
        control: How edits are rolled out.
        replica: What this process says of itself.
        clock: Time.
        machine_types: Of which nodes can be asked for, by name.
    """

    def __init__(
        self,
        *,
        kernel: Kernel,
        explainer: Explainer,
        record: DecisionRecord,
        rollout: Rollout,
        control: RolloutControl,
        replica: Replica,
        clock: Clock,
        machine_types: Mapping[str, Shape] = MappingProxyType({}),
    ) -> None:
        self._kernel = kernel
        self._explainer = explainer
        self._what_if = WhatIf(kernel, explainer, machine_types)
        self._record = record
        self._rollout = rollout
        self._control = control
        self._replica = replica
        self._leader = replica.leader
        self._clock = clock
        self._rows = QueueRows(kernel, self._rules, clock)
        self._policies = PoliciesAnswers(rollout, clock)
        self._of_rules: tuple[object, Rules] | None = None

    @property
    def revision(self) -> str:
        """The policies in force; empty before there are some."""
        try:
            return self._rollout.active.bundle.revision
        except LookupError:
            return ""

    async def queue(self, viewer: Viewer, query: Query) -> Answered:
        """`/queue`."""
        return await self._answered(lambda: self._queue(viewer, query), leaders_only=True)

    async def pods(self, viewer: Viewer, query: Query) -> Answered:
        """`/pods`."""
        return await self._answered(lambda: self._pods(viewer, query), leaders_only=True)

    async def explain(self, viewer: Viewer, query: Query, namespace: str, pod: str) -> Answered:
        """`/explain/NAMESPACE/POD`; the nodes of `node`, by commas, are reported one by one."""
        return await self._answered(
            lambda: self._explain(viewer, query, namespace, pod), leaders_only=True
        )

    async def nodes(self, viewer: Viewer, query: Query) -> Answered:
        """`/nodes`."""
        return await self._answered(lambda: self._nodes(viewer, query))

    async def shares(self, viewer: Viewer, query: Query) -> Answered:
        """`/queues`."""
        return await self._answered(lambda: self._shares(viewer, query), leaders_only=True)

    async def share(self, viewer: Viewer, query: Query, path: str) -> Answered:
        """`/queues/PATH`."""
        return await self._answered(lambda: self._share(viewer, query, path), leaders_only=True)

    async def policies(self, _viewer: Viewer, query: Query) -> Answered:
        """`/policies`, with the texts of the revisions `texts`, by commas."""
        wanted = {one for one in query.get("texts", "").split(",") if one}
        page = await self._policies.page(self._leader(), self._replica.pod_groups(), wanted)
        return OK, msgspec.structs.replace(page, kubernetes=self._replica.kubernetes())

    async def rollout(self, viewer: Viewer, _query: Query) -> Answered:
        """`/rollout`."""
        return await self._answered(lambda: self._rollout_page(viewer), leaders_only=True)

    async def what_if(self, viewer: Viewer, query: Query) -> Answered:
        """`/whatif`."""
        return await self._answered(lambda: self._imagined(viewer, query), leaders_only=True)

    async def best_shape(self, viewer: Viewer, body: bytes) -> Answered:
        """`/whatif/best-shape`."""
        return await self._answered(lambda: self._best_shape(viewer, body), leaders_only=True)

    async def close(self) -> None:
        """End what explains."""
        await self._explainer.close()

    async def _answered(
        self, answer: Callable[[], Awaitable[Answered]], *, leaders_only: bool = False
    ) -> Answered:
        """What *answer* gives; what keeps it from that, as a refusal."""
        if leaders_only and not self._replica.is_leading():
            return self._not_leading()
        try:
            return await answer()
        except (_BadQuery, WrongQuestion) as error:
            return WRONG, Refusal(error=str(error))
        except Busy:
            return BUSY, Refusal(error="too many explanations are under way", hint="ask again soon")
        except LimitReached:
            return NOT_HERE, Refusal(
                error="the explanation ran into its time limit; decisions are not affected",
                hint="policies take long for these pods: see `starsched bench`",
            )
        except PolicyErrors as errors:
            return FAULT, Refusal(error=f"no sandbox to explain in: {errors}")
        except LookupError:
            return NOT_HERE, Refusal(error="no policies are in force yet", hint="ask again soon")

    def _not_leading(self) -> Answered:
        leader = self._leader()
        if leader.is_us or not leader.identity:
            return NOT_HERE, Refusal(
                error="this process does not decide yet: nothing leads",
                hint="ask again when a process leads",
                leader=leader,
            )
        return NOT_HERE, Refusal(
            error=f"this process is a standby: `{leader.identity}` decides",
            hint=f"ask the pod `{leader.identity.partition('_')[0]}`",
            leader=leader,
        )

    # --- the queue, and the nodes ------------------------------------------------------------

    async def _queue(self, viewer: Viewer, query: Query) -> Answered:
        wanted = QueueFilter(
            pod=query.get("pod", ""),
            owner=query.get("owner", ""),
            by=_one_of(query, "by", queue_page.GROUPS) or queue_page.CLASS,
            sort=_one_of(query, "sort", queue_page.SORTS) or "next",
            namespace=query.get("namespace", ""),
            profile=query.get("profile", ""),
            reason=query.get("reason", ""),
            policy=query.get("policy", ""),
            place=_one_of(query, "place", queue_page.PLACES),
            readable=await self._readable(viewer),
            limit=_number(query, "limit", queue_page.ROWS, 1, queue_page.MOST_ROWS),
            offset=_number(query, "continue", 0, 0),
        )
        return OK, await in_slices(self._rows.page(wanted, self._leader()), self._clock)

    async def _pods(self, viewer: Viewer, query: Query) -> Answered:
        names = ("text", "namespace", "node", "owner")
        wanted = PodFilter(**{name: query.get(name, "") for name in names})
        found = await in_slices(matches(self._kernel, wanted), self._clock)
        steps = make_pods_page(
            self._kernel,
            found,
            revision=self.revision,
            leader=self._leader(),
            clock=self._clock,
            readable=await self._readable(viewer, lambda: {one.pod.namespace for one in found}),
            limit=_number(query, "limit", pods_page.ROWS, 1, pods_page.MOST_ROWS),
            offset=_number(query, "continue", 0, 0),
        )
        return OK, await in_slices(steps, self._clock)

    async def _nodes(self, viewer: Viewer, query: Query) -> Answered:
        steps = make_nodes_page(
            self._kernel.cache.snapshot(),
            self._kernel.queue.nominator,
            revision=self._rollout.active.bundle.revision,
            leader=self._leader(),
            clock=self._clock,
            readable=await self._readable(viewer),
            limit=_number(query, "limit", nodes_page.ROWS, 1, nodes_page.MOST_ROWS),
            offset=_number(query, "continue", 0, 0),
        )
        return OK, await in_slices(steps, self._clock)

    async def _readable(
        self, viewer: Viewer, namespaces: Callable[[], Iterable[str]] | None = None
    ) -> Collection[str] | None:
        """Those of *namespaces*, by default of the pods that wait, to be shown; None: all."""
        if viewer.is_local or await viewer.may_read(""):
            return None
        return await viewer.readable((namespaces or self._rows.namespaces)())

    # --- the queues of the tree --------------------------------------------------------------

    async def _shares(self, viewer: Viewer, query: Query) -> Answered:
        shares = self._kernel.shares
        wanted = ShareFilter(
            queue=query.get("queue", ""),
            resource=query.get("resource", ""),
            state=_one_of(query, "state", shares_page.STATES),
            readable=await self._readable(
                viewer, lambda: shares.problem_namespaces() | self._named(ROOT)
            ),
            limit=_number(query, "limit", shares_page.ROWS, 1, shares_page.MOST_ROWS),
            offset=_number(query, "continue", 0, 0),
        )
        steps = make_shares_page(
            self._kernel, wanted, revision=self.revision, leader=self._leader(), clock=self._clock
        )
        return OK, await in_slices(steps, self._clock)

    async def _share(self, viewer: Viewer, query: Query, path: str) -> Answered:
        shares = self._kernel.shares
        if not shares.is_on:
            hint = shares_page.HOW_TO_HAVE_ONE
            return UNKNOWN, Refusal(error=shares_page.NO_TREE, hint=hint)
        found = shares.tree.find(path)
        if found is None:
            return UNKNOWN, Refusal(
                error=f"no queue `{path[:80]}` is known here",
                hint="`/queues` lists them, and what keeps others out of the tree",
            )
        steps = share_answer(
            self._kernel,
            found.path,
            revision=self.revision,
            leader=self._leader(),
            clock=self._clock,
            readable=await self._readable(
                viewer,
                lambda: (
                    {pod.namespace for pod, _ in shares.pods_of(found.path)}
                    | self._named(found.path)
                ),
            ),
            limit=_number(query, "limit", shares_page.PODS, 1, shares_page.MOST_PODS),
            offset=_number(query, "continue", 0, 0),
        )
        try:
            return OK, await in_slices(steps, self._clock)
        except KeyError:  # the tree was made again meanwhile
            return UNKNOWN, Refusal(error=f"no queue `{path[:80]}` is known any more")

    def _named(self, path: str) -> set[str]:
        """The namespaces of pods of this queue that stand still, are next, or took or gave."""
        return named_namespaces(self._kernel.turns, self._kernel.reclaims.latest, path)

    # --- one pod -----------------------------------------------------------------------------

    async def _explain(self, viewer: Viewer, query: Query, namespace: str, name: str) -> Answered:
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
            return UNKNOWN, Refusal(error="want `/explain/NAMESPACE/POD`, with names of Kubernetes")
        if not await viewer.may_read(namespace):
            return FORBIDDEN, Refusal(error=f"the pods of namespace `{namespace}` are not yours")
        known = self._known(f"{namespace}/{name}")
        if known is None:
            return UNKNOWN, Refusal(
                error=f"no pod `{namespace}/{name}` is known here",
                hint="finished pods are not; a new one is as soon as the watch reports it",
            )
        if self._kernel.scheduler is None or self._kernel.scheduler.profile_of(known.pod) is None:
            profiles = [one.scheduler_name for one in self._rollout.active.bundle.profiles]
            return UNKNOWN, Refusal(
                error=f"pod `{known.pod.key}` names the scheduler `{known.pod.scheduler_name}`",
                hint=f"this one decides for {', '.join(f'`{one}`' for one in profiles)}",
            )
        asked = tuple(filter(None, query.get("node", "").split(",")))[:_MOST_ASKED]
        for node in asked:
            if node not in self._kernel.cache.snapshot().slot_of:
                return UNKNOWN, Refusal(error=f"no node `{node[:80]}` is known here")
        answer = await self._explained(known, asked)
        return OK, await self._for(viewer, answer)

    def _known(self, key: str) -> KnownPod | None:
        return known_pod(self._kernel, self._rows, self._record, key)

    async def _explained(self, known: KnownPod, asked: tuple[str, ...]) -> PodAnswer:
        """The answer about a pod."""
        explained = await self._explainer.explain(known.question(asked))
        notes = list(explained.notes)
        later = self._known(known.pod.key)
        if later is None or later.pod.uid != known.pod.uid:
            notes.append("the pod was deleted meanwhile")
        in_force = self._rollout.active.bundle.revision
        if in_force != explained.revision:
            notes.append(f"the policies were replaced meanwhile: revision {in_force} decides now")
        explained = msgspec.structs.replace(explained, notes=tuple(notes))
        return pod_answer(known, explained, Moments(self._clock), self._rules())

    async def _for(self, viewer: Viewer, answer: PodAnswer) -> PodAnswer:
        """*answer* without what the viewer may not see."""
        if viewer.is_local or await viewer.may_read(""):
            return answer
        replace = msgspec.structs.replace
        preemption = answer.preemption
        if preemption is not None and preemption.victims:
            spaces = {one.pod.partition("/")[0] for one in preemption.victims}
            readable = await viewer.readable(spaces)
            victims = tuple(
                one
                if one.pod.partition("/")[0] in readable
                else Victim(_HIDDEN, one.priority, one.why)
                for one in preemption.victims
            )
            preemption = replace(preemption, victims=victims)
        turn = answer.turn
        if turn is not None and turn.behind:
            space = turn.behind.partition("/")[0]
            if not await viewer.readable([space]):
                headline = answer.headline.replace(turn.behind, _HIDDEN)
                answer = replace(answer, headline=headline)
                turn = replace(turn, behind=_HIDDEN)
        # What policies read of a node may name its pods.
        policies = tuple(
            replace(policy, groups=tuple(replace(group, read={}) for group in policy.groups))
            for policy in answer.policies
        )
        return replace(answer, preemption=preemption, policies=policies, turn=turn)

    # --- what if -----------------------------------------------------------------------------

    async def _imagined(self, viewer: Viewer, query: Query) -> Answered:
        changes = changes_of(query)
        answer = await self._what_if.answer(changes, at_text(self._clock.now()), self._leader())
        readable = await self._readable(viewer, lambda: namespaces_in(answer))
        return OK, shown(answer, readable)

    async def _best_shape(self, viewer: Viewer, body: bytes) -> Answered:
        offers = offers_of(body)
        at = at_text(self._clock.now())
        answer = await self._what_if.best_shape(offers, at, self._leader())
        readable = await self._readable(viewer, lambda: namespaces_in(answer))
        return OK, shapes_shown(answer, readable)

    # --- policies ----------------------------------------------------------------------------

    async def _rollout_page(self, viewer: Viewer) -> Answered:
        rollout, control = self._rollout, self._control
        status = rollout.status
        readable = None
        if not (viewer.is_local or await viewer.may_read("")):
            readable = await viewer.readable(namespaces_of(status))
        return OK, rollout_page(
            status,
            control.current,
            EditSource(rollout.source_name, control.name, rollout.inbox.is_stopped),
            revision=self.revision,
            leader=self._leader(),
            now=self._clock.now(),
            readable=readable,
            decision_log=self._replica.decision_log,
        )

    def _rules(self) -> Rules:
        """The rules of the policies in force."""
        loaded = self._rollout.active
        if self._of_rules is None or self._of_rules[0] is not loaded:
            self._of_rules = loaded, Rules(loaded.bundle, self._kernel.queue.hints)
        return self._of_rules[1]


def _number(query: Query, name: str, default: int, least: int, most: int = 10**9) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise _BadQuery(f"{name}: want a number in {least}..{most}, got `{text[:40]}`")
    return int(text)


def _one_of(query: Query, name: str, choices: Collection[str]) -> str:
    text = query.get(name, "")
    if text and text not in choices:
        raise _BadQuery(f"{name}: want one of {', '.join(choices)}, got `{text[:40]}`")
    return text
