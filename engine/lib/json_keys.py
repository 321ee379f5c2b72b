"""Finds keys that occur twice in an object of a JSON text.

JSON does not define what such an object means, and decoders silently take the last value: an entry
of a list of nodes, or of facts, would be lost.
"""

import json
from typing import Any


class _Repeated(Exception):
    pass


def repeated_key(text: bytes | str) -> str | None:
    """A key that an object in *text* has twice; None if there is none, or *text* is not JSON."""
    try:
        json.loads(text, object_pairs_hook=_once)
    except _Repeated as found:
        return str(found)
    except (ValueError, RecursionError):
        return None
    return None


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) == len(dict(pairs)):
        return
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _Repeated(key)
        seen.add(key)
