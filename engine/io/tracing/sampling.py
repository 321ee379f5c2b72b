"""Which pods are traced, and under which trace id.

Owns the choice, which is pure: of a pod's uid, of the trace that it was created in, and of time.
Any process makes the same choice about the same pod, so a trace goes on after a change of leaders,
and a simulation repeats.
"""

import hashlib
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.core.model.pod import Pod
from engine.io.tracing.configuration import MILLION

#: The trace that a pod was created in, as the W3C writes it: the key of KEP-5915.
ANNOTATION: Final = "tracing.k8s.io/traceparent"

_TRACEPARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?",
    re.DOTALL,
)
#: Longer values are no context: anything may stand in an annotation.
_MOST_CHARACTERS: Final = 512
_SAMPLED: Final = 1

#: Every creator of a pod can ask for its trace. So many a second, and so many at once, are granted:
#: a workload that asks for each of its thousand pods must not cost the decisions about others.
ASKED_PER_SECOND: Final = 10.0
MOST_ASKED_AT_ONCE: Final = 100.0

# Why a parent was not followed, as metrics name it.
LIMITED: Final = "limited"
INVALID: Final = "invalid"


@dataclass(frozen=True, slots=True)
class Context:
    """A place in a trace: the trace, the span in it, and whether its spans are kept."""

    trace_id: int
    span_id: int
    is_sampled: bool


def context_of(value: str) -> Context | None:
    """The context that a `traceparent` says; None if it is none."""
    if len(value) > _MOST_CHARACTERS:
        return None
    found = _TRACEPARENT.fullmatch(value.strip(" \t"))
    if found is None or found["version"] == "ff":
        return None
    if found["version"] == "00" and found["rest"] is not None:
        return None
    trace_id, span_id = int(found["trace"], 16), int(found["span"], 16)
    if not trace_id or not span_id:
        return None
    return Context(trace_id, span_id, bool(int(found["flags"], 16) & _SAMPLED))


def trace_id_of(uid: str) -> int:
    """The id of the trace of the pod with *uid*, if it was not created in a trace."""
    raw = hashlib.blake2b(uid.encode(errors="surrogatepass"), digest_size=16).digest()
    return int.from_bytes(raw) or 1


class Sampler:
    """Chooses the pods that are traced.

    Args:
        per_million: How many of a million.

    Attributes:
        ignored: How often a pod's parent was not followed because too many ask (`limited`) or
            because it is `invalid`.
    """

    def __init__(self, per_million: int) -> None:
        self._bound = (per_million << 32) // MILLION
        self._tokens = MOST_ASKED_AT_ONCE
        self._refilled_at: float | None = None
        self.ignored = {LIMITED: 0, INVALID: 0}

    def choose(self, pod: Pod, monotonic: Callable[[], float]) -> Context | None:
        """Where the trace of *pod* belongs; None: it is not traced.

        The span id is 0 if it is a trace of its own. *monotonic* gives seconds.
        """
        said = pod.annotations.get(ANNOTATION)
        if said is not None:
            parent = context_of(said)
            if parent is None:
                self.ignored[INVALID] += 1
            elif not parent.is_sampled:
                return None
            elif self._is_granted(monotonic()):
                return parent
            else:
                self.ignored[LIMITED] += 1
        # Most pods get here and no further: a checksum of a random uid is as good as a hash of it.
        if zlib.crc32(pod.uid.encode(errors="surrogatepass")) >= self._bound:
            return None
        return Context(trace_id_of(pod.uid), 0, True)

    def _is_granted(self, now: float) -> bool:
        if self._refilled_at is not None:
            grown = self._tokens + (now - self._refilled_at) * ASKED_PER_SECOND
            self._tokens = min(MOST_ASKED_AT_ONCE, grown)
        self._refilled_at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
