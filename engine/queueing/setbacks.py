"""Profiles that step back because their decisions lose time, and their pods that are put off.

Owns how long, and who is tried first afterwards. One decision is made at a time, so a hook that
runs into its deadline keeps the pods of every other profile waiting too. What loses time may be the
policy or the pods that somebody made for it, so a namespace steps back before its profile does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from engine.lib.clock import Clock
from engine.model.pod import Pod
from engine.policy.evaluator import PolicyFailure

#: Who gates the pods that are put off; no event opens that gate.
SETBACK: Final = "Setback"

#: A hook that hit a limit, and took so long to do so, has lost time.
SLOW_SECONDS: Final = 0.1

OnFailed: TypeAlias = Callable[[Pod, Sequence[PolicyFailure], float], None]
"""Is told of a pod's policies that gave no answer, and how many seconds they took."""

# Losses that are older are forgotten.
_MEMORY_SECONDS: Final = 300.0
# A rest takes so many times what was lost, for each other pod (of a profile: each other namespace)
# that lost time lately.
_REST_TIMES: Final = 2
_SHORTEST_REST: Final = 0.25
_LONGEST_REST: Final = 30.0


@dataclass(slots=True)
class _Setback:
    """What is known of a namespace of a profile, or of the profile, that lost time.

    `losses` says of pods (of a profile: of namespaces) when they lost it last and over which pod,
    the latest at the end; `put_off` are the pods that are not tried, in the order in which that was
    found, with who they would be there. `has_decided`: without a loss, since.
    """

    why: str = ""
    until: float = 0.0
    has_decided: bool = False
    losses: dict[str, tuple[float, str]] = field(default_factory=dict)
    put_off: dict[str, str] = field(default_factory=dict)


class Setbacks:
    """Puts off the pods of profiles that lose time, longer the more of their pods do.

    That holds for the pods of one namespace, and then in the same way for its profile: one
    namespace whose decisions run into deadlines costs the others next to nothing, and the more
    different ones there are, the likelier it is the policy.

    One pod whose decision runs into a deadline costs the others next to nothing: its own backoff
    keeps it from coming too often. When the rest is over, pods are tried one by one, those first
    that have lost no time, the newest at the head: who came after a crowd must not wait for all of
    it. Once one of them is decided in good time, they are all let in; once one that has lost time
    is, all are.

        in order --loss--> resting --time--> one by one --decided in good time--> in order
                              ^---------loss------'

    Args:
        clock: Time.
        let_in: Asks the gate of the pod of a uid anew; True if it may be tried now.
    """

    def __init__(self, clock: Clock, let_in: Callable[[str], bool]) -> None:
        self._clock = clock
        self._let_in = let_in
        # By profile and namespace; of the profile as a whole under the namespace "".
        self._profiles: dict[tuple[str, str], _Setback] = {}

    def __bool__(self) -> bool:
        """False as long as no profile has lost time lately: then there is nothing to ask."""
        return bool(self._profiles)

    def lose(
        self, uid: str, profile: str, namespace: str, loss: PolicyFailure, seconds: float
    ) -> None:
        """What was asked about the pod of *uid* lost *seconds*."""
        now = self._clock.monotonic()
        for key, who in _levels(uid, profile, namespace):
            setback = self._profiles.setdefault(key, _Setback())
            setback.losses.pop(who, None)
            _forget_old(setback, now)
            rest = _REST_TIMES * seconds * len(setback.losses)
            setback.losses[who] = now, uid
            setback.until = now + min(max(rest, _SHORTEST_REST), _LONGEST_REST)
            setback.has_decided = False
            setback.why = f"{loss.hook}() of policy `{loss.policy}` took too long for other pods"

    def decided(self, uid: str, profile: str, namespace: str) -> None:
        """Everything about the pod of *uid* was decided, and no time was lost."""
        for key, who in _levels(uid, profile, namespace):
            setback = self._profiles.get(key)
            if setback is not None and self._clock.monotonic() >= setback.until:
                setback.has_decided = True
                if who in setback.losses and setback.losses[who][1] == uid:
                    setback.losses.clear()

    def puts_off(self, uid: str, profile: str, namespace: str) -> str | None:
        """Why the pod of *uid* must not be tried now; None: it may be.

        A pod that is put off is let in again by `retry`.
        """
        for key, who in _levels(uid, profile, namespace):
            setback = self._profiles.get(key)
            if setback is not None and self._clock.monotonic() < setback.until:
                setback.put_off[uid] = who
                return setback.why
        return None

    def retry(self) -> None:
        """Let in who may be tried by now. To be called every second or so."""
        now = self._clock.monotonic()
        for key, setback in list(self._profiles.items()):
            if now >= setback.until:
                self._let_in_some(setback)
                _forget_old(setback, now)
                if not (setback.losses or setback.put_off):
                    del self._profiles[key]

    def forget(self) -> None:
        """Other policies decide from now on: everybody who was put off is to be asked about."""
        self._profiles.clear()

    def _let_in_some(self, setback: _Setback) -> None:
        fresh = [uid for uid, who in setback.put_off.items() if who not in setback.losses]
        is_first = not setback.has_decided
        if is_first:
            fresh.reverse()
        for uid in fresh or list(setback.put_off):
            del setback.put_off[uid]
            # False if it is gone, or has another gate.
            if self._let_in(uid) and (is_first or not fresh):
                return


def uncounted(pod: Pod, failures: Sequence[PolicyFailure], seconds: float) -> None:
    """An `OnFailed` for whom nobody wants to know."""


def losses(failures: Sequence[PolicyFailure], seconds: float) -> list[PolicyFailure]:
    """Those of *failures* that lost time, if they took *seconds* together.

    One that is over at once costs nobody else anything: it is a matter of its pod alone.
    """
    return [one for one in failures if one.takes_time] if seconds >= SLOW_SECONDS else []


def _levels(uid: str, profile: str, namespace: str) -> tuple[tuple[tuple[str, str], str], ...]:
    """Who may step back for a pod, and what loses time there: a pod, or its namespace."""
    return ((profile, namespace), uid), ((profile, ""), namespace)


def _forget_old(setback: _Setback, now: float) -> None:
    for who, (at, _) in list(setback.losses.items()):
        if now - at < _MEMORY_SECONDS:
            return
        del setback.losses[who]
