"""Calls the configured extenders for scheduling cycles and bindings.

Owns which extender is called with what, in which order, and how its failures are handled, as in
kube-scheduler: filters in sequence, each with the nodes that the previous one accepted; priorities
in parallel. Merging is `scheduling.extender_merging`'s, the bodies `scheduling.extender_messages`'.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Final, TypeVar

import structlog

from engine.core.framework.extender import Extender, ExtenderError
from engine.core.kernel.events import Reply
from engine.core.kernel.instructions import Instruction
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.scheduling import extender_messages as messages
from engine.core.scheduling.extender_merging import (
    FilterMerge,
    chosen_victims,
    failure,
    is_interested,
    sum_of,
    weighed,
)
from engine.core.scheduling.extenders import (
    Answer,
    ExtenderFilter,
    ExtenderPreempt,
    ExtenderPrioritize,
    FilterAnswer,
    PreemptAnswer,
    PrioritizeAnswer,
    Question,
    with_victims,
)
from engine.io.binding.binder import Binder, BindingRefused
from engine.io.kube.extender_client import ExtenderClient, most_bytes
from engine.lib.clock import Clock
from engine.telemetry.metrics import Metrics
from engine.telemetry.spans import step

log = structlog.get_logger(component="extenders")

T = TypeVar("T")

_SKIPPED: Final = "Skipping extender as it returned error and has ignorable flag set"


class _Broken:
    """Replaces the client of an extender with unusable settings: every request fails with them."""

    def __init__(self, error: ExtenderError) -> None:
        self._error = error

    async def send(
        self,
        verb: str,
        body: bytes,
        read: Callable[[bytes], T],
        *,
        repeatable: bool = True,
        most: int = 0,
    ) -> T:
        raise self._error

    def retire(self) -> None:
        pass

    async def close(self) -> None:
        pass


def _is_nobodys(_pod: Pod) -> bool:
    return False


class ExtenderCalls:
    """Calls the extenders of the policies in force, or for some pods those of a candidate.

    Args:
        metrics, clock: Record the duration and the result of each call.
        on_answer: Is called after each request of a decision, with the extender's name, the verb,
            the seconds, and the error if there was one.
        logs_attempts: Each failure of an ignorable extender has a line in the log. Else one that is
            for the same reason as the last has none.
    """

    def __init__(
        self,
        *,
        metrics: Metrics,
        clock: Clock,
        on_answer: Callable[[str, str, float, str], None] | None = None,
        logs_attempts: bool = False,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._extenders: tuple[Extender, ...] = ()
        self._candidates: tuple[Extender, ...] = ()
        self._is_candidates: Callable[[Pod], bool] = _is_nobodys
        self._clients: dict[Extender, ExtenderClient | _Broken] = {}
        self._texts = messages.NodeTexts()
        self._on_answer = on_answer
        self._logs_attempts = logs_attempts
        # Why each one was skipped last, by its name and the verb; not those that answered since.
        self._skipped: dict[tuple[str, str], str] = {}

    def use(
        self,
        extenders: Sequence[Extender],
        candidates: Sequence[Extender] = (),
        is_candidates: Callable[[Pod], bool] = _is_nobodys,
    ) -> None:
        """Call *extenders*, in this order, from the next request on.

        For a pod that *is_candidates* says, *candidates* instead.

        A client with unchanged settings is kept, with its connections; others are closed when their
        requests are answered.
        """
        before, self._clients = self._clients, {}
        for extender in dict.fromkeys((*extenders, *candidates)):
            known = before.pop(extender, None)
            self._clients[extender] = known if known is not None else _make_client(extender)
        self._extenders, self._candidates = tuple(extenders), tuple(candidates)
        self._is_candidates = is_candidates
        self._skipped.clear()
        for client in before.values():
            client.retire()

    async def close(self) -> None:
        """Close every connection."""
        clients, self._clients = self._clients, {}
        self._extenders = self._candidates = ()
        for client in clients.values():
            await client.close()

    # --- scheduling cycle ---------------------------------------------------------------------

    async def answer(self, question: Question) -> Answer:
        """The merged answer of all extenders. Failures of extenders are part of it, not raised."""
        if isinstance(question, ExtenderFilter):
            return await self.filter(question)
        if isinstance(question, ExtenderPrioritize):
            return await self.prioritize(question)
        return await self.preempt(question)

    async def filter(self, question: ExtenderFilter) -> FilterAnswer:
        """Call the extenders in sequence, until no node is left."""
        merge = FilterMerge(question.infos)
        for extender in self._interested(question.pod, lambda e: e.filter_verb):
            if not merge.left:
                break
            try:
                infos = list(merge.left.values())
                body = self._about_nodes(extender, question.pod, infos)
                result = await self._ask(
                    extender,
                    extender.filter_verb,
                    "filter",
                    body,
                    messages.filter_result,
                    most=most_bytes(len(infos), b"" if extender.node_cache_capable else body),
                )
                merge.take(extender, result)
            except ExtenderError as error:
                if not extender.ignorable:
                    return FilterAnswer((), failure=failure("filter", error))
                self._skip(extender, "filter", question.pod, error)
            else:
                self._skipped.pop((extender.name, "filter"), None)
        return merge.answer()

    async def prioritize(self, question: ExtenderPrioritize) -> PrioritizeAnswer:
        """Call the extenders in parallel; one that fails contributes no scores."""
        interested = self._interested(question.pod, lambda e: e.prioritize_verb)
        answers = await asyncio.gather(*(self._prioritize(e, question) for e in interested))
        by_extender: dict[str, tuple[int, ...]] = {}
        for extender, totals in zip(interested, answers, strict=True):
            if totals is not None:
                name = extender.name
                before = by_extender.get(name, (0,) * len(totals))
                by_extender[name] = tuple(a + b for a, b in zip(before, totals, strict=True))
        return sum_of(by_extender, len(question.infos))

    async def _prioritize(
        self, extender: Extender, question: ExtenderPrioritize
    ) -> tuple[int, ...] | None:
        try:
            body = self._about_nodes(extender, question.pod, question.infos)
            scores = await self._ask(
                extender,
                extender.prioritize_verb,
                "prioritize",
                body,
                messages.priorities,
                most=most_bytes(len(question.infos)),
            )
        except ExtenderError as error:
            log.debug(
                "Failed to run extender's priority function. No score given by this extender.",
                extender=extender.name,
                pod=question.pod.key,
                reason=str(error),
            )
            return None
        return weighed(extender, scores, question.infos)

    async def preempt(self, question: ExtenderPreempt) -> PreemptAnswer:
        """Call the extenders in sequence, until no candidate is left."""
        victims = question.victims
        for extender in self._interested(question.pod, lambda e: e.preempt_verb):
            if not victims:
                break
            try:
                body = messages.victims_request(
                    question.pod, victims, meta=extender.node_cache_capable
                )
                result = await self._ask(
                    extender,
                    extender.preempt_verb,
                    "preempt",
                    body,
                    messages.preemption_result,
                    most=most_bytes(len(victims), body),
                )
                victims = chosen_victims(extender, result, question.snapshot, victims)
            except ExtenderError as error:
                if not extender.ignorable:
                    return PreemptAnswer({}, failure("preempt", error))
                self._skip(extender, "preempt", question.pod, error)
            else:
                self._skipped.pop((extender.name, "preempt"), None)
        return PreemptAnswer(with_victims(victims))

    # --- binding ------------------------------------------------------------------------------

    async def bind(self, pod: Pod, node_name: str) -> bool:
        """Have the extender that binds *pod* bind it. False if the caller is to bind it.

        That is the case if no extender binds it, or if the one that does failed and is ignorable.
        Raises `ExtenderError` if another one failed: the pod may be bound or not.
        """
        for extender in self._interested(pod, lambda e: e.bind_verb):
            try:
                body = messages.bind_request(pod, node_name)
                with step("extender bind"):
                    error = await self._ask(
                        extender,
                        extender.bind_verb,
                        "bind",
                        body,
                        messages.binding_result,
                        repeatable=False,
                    )
                    if error:
                        raise ExtenderError(error)
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                self._skip(extender, "bind", pod, error)
                continue
            self._skipped.pop((extender.name, "bind"), None)
            return True
        return False

    def binds(self, pod: Pod) -> bool:
        """Whether an extender binds *pod*."""
        has_any = bool(self._extenders or self._candidates)
        return has_any and bool(self._interested(pod, lambda e: e.bind_verb))

    def _skip(self, extender: Extender, what: str, pod: Pod, error: ExtenderError) -> None:
        """Log that *extender* failed and is left out, unless it did so before."""
        key, reason = (extender.name, what), str(error)
        if self._logs_attempts or self._skipped.get(key) != reason:
            log.info(_SKIPPED, extender=extender.name, verb=what, pod=pod.key, reason=reason)
        self._skipped[key] = reason

    # --- requests -----------------------------------------------------------------------------

    def _interested(self, pod: Pod, verb: Callable[[Extender], str]) -> list[Extender]:
        extenders = self._candidates if self._is_candidates(pod) else self._extenders
        return [e for e in extenders if verb(e) and is_interested(e, pod)]

    def _about_nodes(self, extender: Extender, pod: Pod, infos: Sequence[NodeInfo]) -> bytes:
        if extender.node_cache_capable:
            return messages.nodes_request(pod, None, [info.name for info in infos])
        return messages.nodes_request(pod, self._texts.of(infos), None)

    async def _ask(
        self,
        extender: Extender,
        verb: str,
        what: str,
        body: bytes,
        read: Callable[[bytes], T],
        *,
        repeatable: bool = True,
        most: int = most_bytes(0),
    ) -> T:
        """Send *body* and decode the answer of *most* bytes with *read*. Raises `ExtenderError`."""
        started = self._clock.monotonic()
        result, failure = "error", ""
        client = self._clients.get(extender)
        if client is None:  # its policies were replaced during this attempt
            client = _make_client(extender)
            client.retire()
        elif isinstance(client, _Broken):
            with contextlib.suppress(ExtenderError):  # its files may exist by now
                client = self._clients[extender] = ExtenderClient(extender)
        try:
            answer = await client.send(verb, body, read, repeatable=repeatable, most=most)
            result = "success"
            return answer
        except ExtenderError as error:
            failure = str(error)
            raise
        finally:
            seconds = self._clock.monotonic() - started
            self._metrics.extender_seconds.labels(extender.name, what, result).observe(seconds)
            if self._on_answer is not None and what != "bind":
                self._on_answer(extender.name, what, seconds, failure)


def _make_client(extender: Extender) -> ExtenderClient | _Broken:
    try:
        return ExtenderClient(extender)
    except ExtenderError as error:
        log.error("Extender cannot be used", extender=extender.name, reason=str(error))
        return _Broken(error)


class ExtenderBinder:
    """Binds a pod through the extender that is configured for it, else through the API server.

    Args:
        calls: Calls the extenders.
        binder: Binds the other pods, and reads where a pod is bound.
    """

    def __init__(self, calls: ExtenderCalls, binder: Binder) -> None:
        self._calls = calls
        self._binder = binder

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Bind *pod* to *node_name*. Raises `BindingError` like `Binder.bind`."""
        self._binder.check_may_act()
        try:
            is_bound = await self._calls.bind(pod, node_name)
        except ExtenderError as error:
            # It may have bound the pod before its answer was lost.
            if await self._binder.is_bound(pod, node_name):
                return
            raise BindingRefused(str(error)) from error
        if not is_bound:
            await self._binder.bind(pod, node_name)

    def send(self, pod: Pod, node_name: str) -> "asyncio.Future[bytes] | None":
        """As `Binder.send`; None for a pod that an extender binds."""
        return None if self._calls.binds(pod) else self._binder.send(pod, node_name)

    async def finish(self, pod: Pod, node_name: str, sent: "asyncio.Future[bytes] | None") -> None:
        """As `Binder.finish`."""
        await self._binder.finish(pod, node_name, sent)


async def decided_asking(
    decision: Generator[Question, Reply, list[Instruction]],
    ask: Callable[[Question], Awaitable[Answer]],
    monotonic: Callable[[], float],
) -> list[Instruction]:
    """Run a decision of the kernel, awaiting *ask* for each of its questions."""
    try:
        question = next(decision)
        while True:
            try:
                answer = await ask(question)
            except Exception as error:
                question = decision.throw(error)  # the attempt of its pod fails
            else:
                question = decision.send(Reply(answer, monotonic()))
    except StopIteration as end:
        instructions: list[Instruction] = end.value
        return instructions
    finally:
        decision.close()
