"""Pods whose gate, or whose place in the order, could not be judged, to be asked about again.

Owns when. What a policy answered changes with what it reads; a hook that failed, because the
sandbox was killed over it, may answer the next time whatever has happened meanwhile.
"""

from collections.abc import Callable
from typing import Final

from engine.lib.clock import Clock
from engine.queueing.setbacks import SLOW_SECONDS

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
#: Pods that are asked about in one turn, so that a crowd of them does not hold up decisions.
_MOST_AT_ONCE: Final = 100
#: A failure that has lost time is followed by a rest, so many times as long.
_REST_TIMES: Final = 4


class FailedHooks:
    """Asks again, the longest waiting first, until one fails anew; then it waits, longer each time.

    So a hook that fails for good, and takes its time to do so, is asked once a minute in the end,
    however many pods wait for its answer. After such a failure the pods of the same profile that
    come are put off for a while, and asked about once when that is over: the hook is asked between
    two decisions, and a crowd of pods would keep all others, and the lease, waiting.

    Args:
        clock: Time.
        ask_again: Asks the hook about the pod of a uid; it calls `note` if that fails again.
    """

    def __init__(self, clock: Clock, ask_again: Callable[[str], object]) -> None:
        self._clock = clock
        self._ask_again = ask_again
        self._profiles: dict[str, str] = {}  # of the pods that it failed about, by uid
        self._put_off: dict[str, str] = {}  # likewise, of those that it was not asked about
        self._rests: dict[str, tuple[float, str]] = {}  # profile -> until when, and which policy
        self._wait = _FIRST_WAIT
        self._next_at = 0.0

    def __len__(self) -> int:
        return len(self._profiles) + len(self._put_off)

    def note(self, uid: str, profile: str, policy: str, seconds: float) -> None:
        """The hook of *policy* has failed about a pod of *profile*, and took so many *seconds*."""
        self.forget(uid)
        self._profiles[uid] = profile
        if seconds >= SLOW_SECONDS:
            self._rests[profile] = (self._clock.monotonic() + _REST_TIMES * seconds, policy)

    def puts_off(self, uid: str, profile: str) -> str | None:
        """The policy that is not to be asked about a pod now; None: ask."""
        if not self._is_resting(profile):
            return None
        self.forget(uid)
        self._put_off[uid] = profile
        return self._rests[profile][1]

    def forget(self, uid: str) -> None:
        """The hook has answered about a pod."""
        self._profiles.pop(uid, None)
        self._put_off.pop(uid, None)

    def retry(self) -> None:
        """Ask again if it is time. To be called every second or so."""
        self._ask_put_off()
        if self._clock.monotonic() < self._next_at:
            return
        due = self._due(self._profiles)
        for uid in due:
            self.forget(uid)
            self._ask_again(uid)
            if uid in self._profiles:
                self._next_at = self._clock.monotonic() + self._wait
                self._wait = min(self._wait * 2, _LONGEST_WAIT)
                return
        # A rest is no answer: who is not due because of one has failed last.
        if due or not self._profiles:
            self._wait = _FIRST_WAIT

    def _ask_put_off(self) -> None:
        for uid in self._due(self._put_off):
            # The one before it may have begun another rest.
            if not self._is_resting(self._put_off[uid]):
                self.forget(uid)
                self._ask_again(uid)

    def _due(self, profiles: dict[str, str]) -> list[str]:
        due = [uid for uid, profile in profiles.items() if not self._is_resting(profile)]
        return due[:_MOST_AT_ONCE]

    def _is_resting(self, profile: str) -> bool:
        until, _ = self._rests.get(profile, (0.0, ""))
        return self._clock.monotonic() < until
