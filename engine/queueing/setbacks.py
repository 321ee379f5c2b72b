"""Profiles that step back because their decisions lose time, and their pods that are put off.

Owns how long, and who is tried first afterwards. One decision is made at a time, so a hook that
runs into its deadline keeps the pods of every other profile waiting too.
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
# A rest takes so many times what was lost, for each other pod that lost time lately.
_REST_TIMES: Final = 2
_SHORTEST_REST: Final = 0.25
_LONGEST_REST: Final = 30.0


@dataclass(slots=True)
class _Setback:
    """What is known of a profile that lost time.

    `losses` says of pods when they lost it last, the latest at the end; `put_off` are the pods that
    are not tried, in the order in which that was found. `has_decided`: without a loss, since.
    """

    why: str = ""
    until: float = 0.0
    has_decided: bool = False
    losses: dict[str, float] = field(default_factory=dict)
    put_off: dict[str, None] = field(default_factory=dict)


class Setbacks:
    """Puts off the pods of profiles that lose time, longer the more of their pods do.

    One pod whose decision runs into a deadline costs the others of its profile next to nothing: its
    own backoff keeps it from coming too often. The more different ones there are, the likelier it
    is the policy. When the rest is over, pods are tried one by one, those first that have lost no
    time, the newest at the head: who came after a crowd must not wait for all of it. Once one of
    them is decided in good time, they are all let in; once one that has lost time is, all are.

        in order --loss--> resting --time--> one by one --decided in good time--> in order
                              ^---------loss------'

    Args:
        clock: Time.
        let_in: Asks the gate of the pod of a uid anew; True if it may be tried now.
    """

    def __init__(self, clock: Clock, let_in: Callable[[str], bool]) -> None:
        self._clock = clock
        self._let_in = let_in
        self._profiles: dict[str, _Setback] = {}

    def __bool__(self) -> bool:
        """False as long as no profile has lost time lately: then there is nothing to ask."""
        return bool(self._profiles)

    def lose(self, uid: str, profile: str, loss: PolicyFailure, seconds: float) -> None:
        """What was asked about the pod of *uid* lost *seconds*."""
        now = self._clock.monotonic()
        setback = self._profiles.setdefault(profile, _Setback())
        setback.losses.pop(uid, None)
        _forget_old(setback, now)
        rest = _REST_TIMES * seconds * len(setback.losses)
        setback.losses[uid] = now
        setback.until = now + min(max(rest, _SHORTEST_REST), _LONGEST_REST)
        setback.has_decided = False
        setback.why = f"{loss.hook}() of policy `{loss.policy}` took too long for other pods"

    def decided(self, uid: str, profile: str) -> None:
        """Everything about the pod of *uid* was decided, and no time was lost."""
        setback = self._profiles.get(profile)
        if setback is not None and self._clock.monotonic() >= setback.until:
            setback.has_decided = True
            if uid in setback.losses:
                setback.losses.clear()

    def puts_off(self, uid: str, profile: str) -> str | None:
        """Why the pod of *uid* must not be tried now; None: it may be.

        A pod that is put off is let in again by `retry`.
        """
        setback = self._profiles.get(profile)
        if setback is None or self._clock.monotonic() >= setback.until:
            return None
        setback.put_off[uid] = None
        return setback.why

    def retry(self) -> None:
        """Let in who may be tried by now. To be called every second or so."""
        now = self._clock.monotonic()
        for profile, setback in list(self._profiles.items()):
            if now >= setback.until:
                self._let_in_some(setback)
                _forget_old(setback, now)
                if not (setback.losses or setback.put_off):
                    del self._profiles[profile]

    def forget(self) -> None:
        """Other policies decide from now on: everybody who was put off is to be asked about."""
        self._profiles.clear()

    def _let_in_some(self, setback: _Setback) -> None:
        fresh = [uid for uid in setback.put_off if uid not in setback.losses]
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


def _forget_old(setback: _Setback, now: float) -> None:
    for uid, at in list(setback.losses.items()):
        if now - at < _MEMORY_SECONDS:
            return
        del setback.losses[uid]
