"""Throttles policies that waste time, so that other pods are decided meanwhile.

Owns which pods are throttled, for how long, and which are tried first afterwards; and when a hook
that failed is evaluated again. It neither moves pods nor evaluates policies: its caller does, and
reports how long that took and what failed.

Large pods whose decisions take long are throttled in the same way.

Decisions are made one at a time, and so are the questions of the queue, so a hook that runs into
its deadline keeps the pods of every other profile waiting. The cause may be the policy, or pods
that were crafted to slow it down; therefore a namespace is throttled before its whole profile is.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, TypeAlias

from engine.core.model.pod import Pod
from engine.lib.clock import Clock
from engine.policy.evaluator import PolicyFailure

#: What gates the pods that are throttled. No event opens this gate.
THROTTLE: Final = "Throttle"

#: A hook that hit a limit, and took at least so long to do so, has lost time. So has an attempt at
#: a large pod, whatever came of it.
SLOW_SECONDS: Final = 0.1
#: Bytes of a pod that is large: ordinary ones have some thousand. Those are never throttled for
#: what they cost: the first one on a large cluster takes long, too. Spread constraints are the
#: dearest by the byte: as many as are in this take a tenth of a second on 5,000 nodes.
LARGE_POD_BYTES: Final = 16 << 10

# Losses that are older are forgotten.
_MEMORY_SECONDS: Final = 300.0
# A pause is so many times what was lost, for each other pod (of a profile: each other namespace)
# that lost time lately. Others thus have about two thirds of the time from the second loss on.
_PAUSE_FACTOR: Final = 2
_SHORTEST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 30.0
# Between two tries of hooks that fail; doubled by each failure.
_FIRST_RETRY: Final = 1.0
_LONGEST_RETRY: Final = 60.0
# Hooks are evaluated again between two decisions, for at most this long.
_SLICE_SECONDS: Final = 0.1


class Work(enum.Enum):
    """The kinds of evaluations about a pod. Each is throttled separately."""

    #: A scheduling cycle, with `permit`; the queue tries the pod again.
    ATTEMPT = "attempt"
    #: `pre_enqueue`. This and the next two run on events, so they are retried here.
    GATE = "gate"
    #: `queue_key`.
    SORT_KEY = "sort_key"
    #: `group_of`. A cycle evaluates it too, so a loss counts for attempts as well.
    GROUP = "group"


Failures: TypeAlias = Sequence[PolicyFailure]

OnHookFailed: TypeAlias = Callable[[Pod, Failures, Failures, float], None]
"""(pod, failures, those of them that lost time, seconds): a hook outside of a cycle failed."""

TryAgain: TypeAlias = Callable[[Work, str], bool]
"""(work, uid): do that work about a pod again. False if that does not lead to an attempt at it."""


@dataclass(slots=True)
class _Scope:
    """What is known of the work of one kind for a namespace of a profile, or for the profile.

    Attributes:
        why: What lost time last, as users see it.
        paused_until: Nothing is tried before (monotonic seconds).
        has_succeeded: Something was done since the pause, and no time was lost.
        losses: By member (of a namespace: a pod's uid; of a profile: a namespace), when it lost
            time last, and over which pod; the latest at the end.
        throttled: The uids of pods that wait, in order of arrival, with the member that each is.
    """

    why: str = ""
    paused_until: float = 0.0
    has_succeeded: bool = False
    losses: dict[str, tuple[float, str]] = field(default_factory=dict)
    throttled: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Retries:
    """Pods for which a hook failed, by uid, in the order of their last evaluation."""

    pods: dict[str, Pod] = field(default_factory=dict)
    wait: float = _FIRST_RETRY
    next_at: float = 0.0


class Throttle:
    """Decides which work waits because policies wasted time, and when it is tried again.

    For each kind of work, the pods of one namespace of a profile are throttled, and in the same way
    those of the whole profile. One namespace whose policies run into deadlines costs the others
    next to nothing; the more namespaces do, the likelier it is the policy::

        open --loss--> paused --time--> probing --success--> open
                          ^-------loss-----'

    A single pod whose attempts run into a deadline hardly throttles others: its own backoff keeps
    it from coming too often. While probing, pods are tried one by one: first those that have lost
    no time, the newest of them first, since a pod that arrives after many bad ones must not wait
    for all of them. When one of them succeeds, all of these are tried; when one that had lost time
    does, all are.

    An attempt at a large pod that took long counts as a loss for its namespace alone: the creator
    of a pod decides how large it is.

    A hook outside of cycles that fails, slowly or not, is evaluated again: for the pod that waits
    longest, until it fails again; then after twice the time, up to a minute.

    Args:
        clock: Time.
        on_hook_failed: Called for each failure of a hook outside of a scheduling cycle.
        profile_of: Names whose policies a pod is decided by; by default its profile's.
    """

    def __init__(
        self,
        clock: Clock,
        on_hook_failed: OnHookFailed | None = None,
        profile_of: Callable[[Pod], str] = attrgetter("scheduler_name"),
    ) -> None:
        self._clock = clock
        self._on_hook_failed = on_hook_failed
        self._profile_of = profile_of
        # By kind of work, profile and namespace; the profile as a whole has the namespace "".
        self._scopes: dict[tuple[Work, str, str], _Scope] = {}
        self._retries: dict[Work, _Retries] = {}

    def __bool__(self) -> bool:
        """False as long as nothing has failed lately: then there is nothing to ask or report."""
        return bool(self._scopes or self._retries)

    def why_throttled(self, work: Work, pod: Pod) -> str | None:
        """Why *work* must not be done about *pod* now; None if it may be.

        `retry` comes back to a pod that is throttled.
        """
        if not self._scopes:
            return None
        now = self._clock.monotonic()
        for key, member in self._scopes_of(work, pod):
            scope = self._scopes.get(key)
            if scope is not None and now < scope.paused_until:
                scope.throttled[pod.uid] = member
                if (retries := self._retries.get(work)) is not None:
                    retries.pods.pop(pod.uid, None)
                return scope.why
        return None

    def charge(self, work: Work, pod: Pod, failures: Failures, seconds: float) -> Failures:
        """Record that *work* about *pod* took *seconds* in all and ended with *failures*.

        Returns:
            Those of them that lost time. A failure that comes at once delays no other pod.
        """
        lost = [one for one in failures if one.is_timeout] if seconds >= SLOW_SECONDS else []
        if lost:
            why = f"{lost[0].hook}() of policy `{lost[0].policy}` took too long for other pods"
            for each in (work, Work.ATTEMPT) if work is Work.GROUP else (work,):
                self._pause(self._scopes_of(each, pod), pod, why, seconds)
        if failures and work is not Work.ATTEMPT:
            pods = self._retries.setdefault(work, _Retries()).pods
            pods.pop(pod.uid, None)
            pods[pod.uid] = pod
        return lost

    def charge_large(self, pod: Pod, seconds: float) -> bool:
        """Record that an attempt at *pod* took *seconds*; True if it was throttled for its size."""
        if seconds < SLOW_SECONDS or len(pod.raw or b"") <= LARGE_POD_BYTES:
            return False
        own, _ = self._scopes_of(Work.ATTEMPT, pod)
        why = "decisions about large pods of this namespace took too long for other pods"
        self._pause([own], pod, why, seconds)
        return True

    def hook_failed(self, work: Work, pod: Pod, failures: Failures, seconds: float) -> Failures:
        """As `charge`, for a hook that is no part of a scheduling cycle: it is also reported."""
        lost = self.charge(work, pod, failures, seconds)
        if self._on_hook_failed is not None:
            self._on_hook_failed(pod, failures, lost, seconds)
        return lost

    def succeeded(self, work: Work, pod: Pod) -> None:
        """Record that *work* about *pod* was done, and no time was lost."""
        if not self:
            return
        if (retries := self._retries.get(work)) is not None:
            retries.pods.pop(pod.uid, None)
        now = self._clock.monotonic()
        for key, member in self._scopes_of(work, pod):
            scope = self._scopes.get(key)
            if scope is None:
                continue
            scope.throttled.pop(pod.uid, None)
            if now >= scope.paused_until:
                scope.has_succeeded = True
                if member in scope.losses and scope.losses[member][1] == pod.uid:
                    scope.losses.clear()

    def retry(self, try_again: TryAgain) -> None:
        """Try what may be tried by now. To be called every second or so.

        *try_again* reports the outcome by `charge`, `succeeded` or `why_throttled` before it
        returns, but for attempts: it only makes those possible.
        """
        ends_at = self._clock.monotonic() + _SLICE_SECONDS
        for key, scope in list(self._scopes.items()):
            self._release(key[0], scope, try_again, ends_at)
            _forget_old(scope, self._clock.monotonic())
            if not (scope.losses or scope.throttled) and self._scopes.get(key) is scope:
                del self._scopes[key]
        for work, retries in list(self._retries.items()):
            self._ask_again(work, retries, try_again, ends_at)
            if not retries.pods and self._retries.get(work) is retries:
                del self._retries[work]

    def clear(self) -> None:
        """Forget everything: other policies decide from now on, and are evaluated for every pod."""
        self._scopes.clear()
        self._retries.clear()

    def forgive(self) -> None:
        """Other policies decide some of the pods: what was lost counts no more.

        What is throttled, or has failed, is tried at the next `retry`.
        """
        for scope in self._scopes.values():
            scope.losses.clear()
            scope.paused_until, scope.has_succeeded = 0.0, True
        for retries in self._retries.values():
            retries.next_at, retries.wait = 0.0, _FIRST_RETRY

    def _pause(
        self,
        scopes: Iterable[tuple[tuple[Work, str, str], str]],
        pod: Pod,
        why: str,
        seconds: float,
    ) -> None:
        now = self._clock.monotonic()
        for key, member in scopes:
            scope = self._scopes.setdefault(key, _Scope())
            scope.losses.pop(member, None)
            _forget_old(scope, now)
            pause = _PAUSE_FACTOR * seconds * len(scope.losses)
            scope.losses[member] = now, pod.uid
            scope.paused_until = now + min(max(pause, _SHORTEST_PAUSE), _LONGEST_PAUSE)
            scope.has_succeeded = False
            scope.why = why

    def _release(self, work: Work, scope: _Scope, try_again: TryAgain, ends_at: float) -> None:
        """Try pods that were throttled: one while probing, else as many as there is time for."""
        fresh = [uid for uid, member in scope.throttled.items() if member not in scope.losses]
        is_probing = not scope.has_succeeded
        if is_probing:
            fresh.reverse()
        for uid in fresh or list(scope.throttled):
            # A hook that loses time again ends this.
            if not scope.paused_until <= self._clock.monotonic() <= ends_at:
                return
            del scope.throttled[uid]
            # False if the pod is gone, or waits for something else.
            if try_again(work, uid) and (is_probing or not fresh):
                return

    def _ask_again(
        self, work: Work, retries: _Retries, try_again: TryAgain, ends_at: float
    ) -> None:
        """Ask about pods whose hook failed, until it fails again."""
        if self._clock.monotonic() < retries.next_at:
            return
        due = [uid for uid, pod in retries.pods.items() if not self._is_paused(work, pod)]
        for uid in due:
            if self._clock.monotonic() > ends_at:
                return
            del retries.pods[uid]
            try_again(work, uid)
            if uid in retries.pods:
                retries.next_at = self._clock.monotonic() + retries.wait
                retries.wait = min(retries.wait * 2, _LONGEST_RETRY)
                return
        # A pause does not count as a success: a pod that is not due because of one failed last.
        if due:
            retries.wait = _FIRST_RETRY

    def _scopes_of(self, work: Work, pod: Pod) -> tuple[tuple[tuple[Work, str, str], str], ...]:
        """The scopes of a pod, and the member that it is of each: its uid, or its namespace."""
        profile, namespace = self._profile_of(pod), pod.namespace
        return ((work, profile, namespace), pod.uid), ((work, profile, ""), namespace)

    def _is_paused(self, work: Work, pod: Pod) -> bool:
        now = self._clock.monotonic()
        found = (self._scopes.get(key) for key, _ in self._scopes_of(work, pod))
        return any(scope is not None and now < scope.paused_until for scope in found)


def _forget_old(scope: _Scope, now: float) -> None:
    for member, (at, _) in list(scope.losses.items()):
        if now - at < _MEMORY_SECONDS:
            return
        del scope.losses[member]
