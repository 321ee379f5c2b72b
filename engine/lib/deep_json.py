"""Decodes JSON that nests deeper than Python's recursion limit.

Owns raising the limit for a decoder. The API server stores values that are nested thousands of
levels deep, such as the opaque parameters of a ResourceClaim. A user who may create such an object
must not be able to end a process that only steps over them.
"""

import sys
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

# The API server refuses JSON of more than 10,000 levels; the rest is for the callers' frames. A
# level that is stepped over takes some 100 bytes of the stack, of which there are megabytes.
_LEVELS: Final = 12_000


def decoded_deeply(decode: Callable[[bytes], T], text: bytes) -> T:
    """What *decode* makes of *text*, however deep the text nests.

    For decoders that step over what is deep, not for those that build it. Text of usual depth pays
    nothing. Raises what *decode* raises; `RecursionError` beyond what the API server stores.
    """
    try:
        return decode(text)
    except RecursionError:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(max(usual, _LEVELS))
        try:
            return decode(text)
        finally:
            sys.setrecursionlimit(usual)
