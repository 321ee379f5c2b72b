"""Decodes JSON that may be anything, and JSON that nests deeper than Python's recursion limit.

Owns what a decoder raises, and raising the limit for one. The API server stores values that are
nested thousands of levels deep, such as the opaque parameters of a ResourceClaim. A user who may
create such an object must not be able to end a process that only steps over them.
"""

import sys
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

#: What a decoder raises for bytes that are not JSON (or msgpack), for text in them that is not
#: UTF-8, and for values that nest too deep to be built.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

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
