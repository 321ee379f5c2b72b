"""Pods whose gate, or whose place in the order, could not be judged, to be asked about again.

Owns when. What a policy answered changes with what it reads; a hook that failed, because the
sandbox was killed over it, may answer the next time whatever has happened meanwhile.
"""

from collections.abc import Callable
from typing import Final

from engine.lib.clock import Clock

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
#: Pods that are asked about in one turn, so that a crowd of them does not hold up decisions.
_MOST_AT_ONCE: Final = 100


class FailedHooks:
    """Asks again, the longest waiting first, until one fails anew; then it waits, longer each time.

    So a hook that fails for good, and takes its time to do so, is asked once a minute in the end,
    however many pods wait for its answer.

    Args:
        clock: Time.
        ask_again: Asks the hook about the pod of a uid; it calls `note` if that fails again.
    """

    def __init__(self, clock: Clock, ask_again: Callable[[str], object]) -> None:
        self._clock = clock
        self._ask_again = ask_again
        self._uids: dict[str, None] = {}
        self._wait = _FIRST_WAIT
        self._next_at = 0.0

    def __len__(self) -> int:
        return len(self._uids)

    def note(self, uid: str) -> None:
        """The hook has failed about a pod."""
        self.forget(uid)
        self._uids[uid] = None

    def forget(self, uid: str) -> None:
        """The hook has answered about a pod."""
        self._uids.pop(uid, None)

    def retry(self) -> None:
        """Ask again if it is time. To be called every second or so."""
        if self._clock.monotonic() < self._next_at:
            return
        for uid in list(self._uids)[:_MOST_AT_ONCE]:
            self.forget(uid)
            self._ask_again(uid)
            if uid in self._uids:
                self._next_at = self._clock.monotonic() + self._wait
                self._wait = min(self._wait * 2, _LONGEST_WAIT)
                return
        self._wait = _FIRST_WAIT
