"""How values are written on the page: ages, amounts, shares, addresses.

Owns the filters of the templates. Each returns plain text, which the template escapes.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from engine.core.model.quantity import bytes_text
from engine.lib.printable import counted

#: Resources in the order in which people look at them; others follow by name.
_FIRST: Final = ("cpu", "memory", "pods", "ephemeral-storage")
#: Words for what the answers name by a token.
_WORDS: Final = {
    "permit": "in permit",
    "in_permit": "in permit",
    "in_flight": "in flight",
    "in_force": "in force",
    "rolled_back": "rolled back",
    "source_gone": "source gone",
    "decided_again": "decided again on today's cluster",
    "decided": "as it was decided",
    "queue": "from the queue alone",
    "would_evict": "would evict",
    "would_evict_later": "would evict later",
    "cannot_help": "cannot help",
    "not_needed": "not needed",
    "not_asked": "not asked",
    "unknown": "gone",
}
#: Which of the page's four tones a word of status has: good, busy, idle or bad.
_TONES: Final = {
    "good": "open placed bound fits in_force accepted active in_permit permit in_flight binding "
    "allocated passed tested tried checked offered loaded pass promoted newly_placed",
    "busy": "on_probation backoff waiting probation would_evict would_evict_later evicting "
    "unchanged inconclusive held paused running moved other_victims borrowing claimed leaving",
    "bad": "closed unschedulable failed rejects rejected rolled_back source_gone cannot_help "
    "fail aborted newly_pending starved reversal",
}
_TONE_OF: Final = {word: tone for tone, words in _TONES.items() for word in words.split()}


def parsed(text: str) -> datetime:
    """A time of an answer. Raises `ValueError` if it is none."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def seconds_between(earlier: str, later: str) -> float:
    """How long after *earlier* *later* is; 0 if one of them is not known."""
    try:
        return (parsed(later) - parsed(earlier)).total_seconds()
    except ValueError:
        return 0.0


def age(seconds: float) -> str:
    """A duration to the two largest units that matter, such as `3 h 12 min`."""
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def took(seconds: float) -> str:
    """How long something took, such as `38 ms`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s"


def amount(value: float, resource: str) -> str:
    """An amount of a resource as people write it; cpu is in millicores, memory in bytes."""
    if resource == "cpu":
        return f"{value / 1000:,.1f}".removesuffix(".0")
    if _is_bytes(resource):
        return bytes_text(round(value))
    return f"{value:,.0f}"


def _is_bytes(resource: str) -> bool:
    return resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-")


def amounts(values: Mapping[str, float]) -> str:
    """Amounts of several resources: `4 cpu, 32 GiB, 8 nvidia.com/gpu`."""
    return ", ".join(named_amount(name, values[name]) for name in in_order(values))


def named_amount(resource: str, value: float) -> str:
    """An amount with the name of the resource; a unit of bytes says enough of memory."""
    text = amount(value, resource)
    return text if resource == "memory" else f"{text} {resource}"


def in_order(resources: Iterable[str]) -> list[str]:
    """Resources, those that people look at first before the others."""
    ranks = {name: rank for rank, name in enumerate(_FIRST)}
    return sorted(resources, key=lambda name: (ranks.get(name, len(_FIRST)), name))


def percent(share: float) -> str:
    """A share in 0..1 as a percentage; what is not everything, or nothing, does not read so."""
    if 0 < share < 0.01:
        return f"{share:.1%}" if share >= 0.001 else "<0.1%"
    if 0.995 <= share < 1:
        return "99%"
    return f"{share:.0%}"


def word(token: str) -> str:
    """What people read for a token of an answer."""
    return _WORDS.get(token, token.replace("_", " "))


def tone(token: str) -> str:
    """The tone of a word of status; words without one are `idle`."""
    return _TONE_OF.get(token, "idle")


def key(text: str) -> str:
    """An id of an element that stands for *text*, whatever characters that has."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def path(text: str) -> str:
    """*text* as part of an address; slashes stay."""
    return quote(text, safe="/")


def pods(count: int) -> str:
    """A count of pods."""
    return counted(count, "pod")


def clock(text: str) -> str:
    """The time of day of a time, in UTC."""
    try:
        return parsed(text).astimezone(UTC).strftime("%H:%M:%S")
    except ValueError:
        return text


def value(thing: Any) -> str:
    """A value that a policy read, shortened."""
    if isinstance(thing, str):
        text = f'"{thing}"'
    elif isinstance(thing, dict):
        text = ", ".join(f"{name}={_inner(name, of)}" for name, of in thing.items()) or "{}"
    elif isinstance(thing, (list, tuple)):
        text = f"[{', '.join(map(value, thing))}]"
    else:
        text = str(thing)
    return text if len(text) <= 120 else text[:119] + "…"


def _inner(name: str, thing: Any) -> str:
    """A value of a mapping; amounts of resources as people write them."""
    is_amount = type(thing) is int and (name == "cpu" or _is_bytes(name))
    return amount(thing, name) if is_amount else str(thing)


def query(parameters: Mapping[str, str]) -> str:
    """Parameters as the query of an address; empty ones are left out."""
    return "?" + urlencode({name: value for name, value in parameters.items() if value})


def is_web(address: str) -> bool:
    """True for an address that a link may lead to: others wrote it, and it must not be a script."""
    return address.startswith(("http://", "https://"))


FILTERS: Final = {
    "age": age,
    "amount": amount,
    "amounts": amounts,
    "clock": clock,
    "is_web": is_web,
    "key": key,
    "path": path,
    "percent": percent,
    "pods": pods,
    "tone": tone,
    "took": took,
    "value": value,
    "word": word,
}
