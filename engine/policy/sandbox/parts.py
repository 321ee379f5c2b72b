"""Splits large batches into parts, and joins the answers to the parts.

Owns both, so that an answer is the same however a batch is cut. A part ends where
the entries themselves say so: an entry that comes or goes changes the part that it is in, and the
others are found again as they were (`node_views` keeps them). Parts also keep the interpreter's
heap small: with 5,000 entries in one batch, its growth costs more than the policies do.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from engine.policy.sandbox.protocol import Call, PolicyFailure, RawAnswer, unpacked

# Entries of a part: at least, at most, and how rarely one ends in between. About 380 on average.
_LEAST: Final = 128
_MOST: Final = 1024
_ENDS: Final = 0xFF

#: Entries of one call that may run out of steps before those after them are not tried any more.
MAX_EXHAUSTED: Final = 3
NOT_TRIED: Final = f"not tried after {MAX_EXHAUSTED} others that ran out of steps"


def split(entries: Sequence[bytes]) -> list[Sequence[bytes]]:
    """*entries* in parts; each part alone would be one part."""
    if len(entries) <= _LEAST:
        return [entries]
    parts: list[Sequence[bytes]] = []
    start, count = 0, len(entries)
    while count - start > _LEAST:
        last = min(start + _MOST, count)
        end = next((i + 1 for i in range(start + _LEAST, last) if _ends(entries[i])), last)
        parts.append(entries[start:end])
        start = end
    if start < count:
        parts.append(entries[start:])
    return parts


def _ends(entry: bytes) -> bool:
    return not crc32(entry) & _ENDS


def can_split(call: Call) -> bool:
    """True if each entry of *call* gets an answer of its own."""
    return call.nodes is not None and call.hook != "score_all"


def entry_count(call: Call) -> int:
    """How many verdicts the answer to *call* has."""
    return len(call.nodes) if call.nodes is not None and can_split(call) else 1


def join(
    answers: Sequence[RawAnswer],
    counts: Sequence[int],
    failure: Callable[[str, str, str], PolicyFailure],
    most: int,
) -> RawAnswer:
    """The answer to a call from those to its parts, which have *counts* entries.

    What holds for a call as a whole is decided here: reasons that are not constants, and entries
    that are not tried because too many before them ran out of steps. *failure* makes one of the
    call's hook from its kind, message and hint; *most* is `most_reasons` of the call.
    """
    answers = [unpacked(answer) for answer in answers]
    inner = [answer.verdicts[1:-1] for answer in answers]
    verdicts = b"[" + b",".join(inner) + b"]"
    failures: list[tuple[int, PolicyFailure]] = []
    start = 0
    for answer, count in zip(answers, counts, strict=True):
        failures += [(start + index, failed) for index, failed in answer.failures]
        start += count
    reasons = list(dict.fromkeys(reason for answer in answers for reason in answer.reasons))
    if len(reasons) > most:
        verdicts, failures = _without_variable_reasons(verdicts, failures, failure, most)
    exhausted = [index for index, failed in failures if failed.kind == "steps"]
    if len(exhausted) >= MAX_EXHAUSTED:
        first = exhausted[MAX_EXHAUSTED - 1] + 1
        tried: list[Any] = msgspec.json.decode(verdicts)[:first]
        verdicts = msgspec.json.encode(tried + [None] * (start - first))
        failures = [(index, failed) for index, failed in failures if index < first]
        skipped = failure("deadline", NOT_TRIED, "")
        failures += [(index, skipped) for index in range(first, start)]
    return RawAnswer(verdicts, failures, reasons[: most + 1])


def _without_variable_reasons(
    verdicts: bytes,
    failures: list[tuple[int, PolicyFailure]],
    failure: Callable[[str, str, str], PolicyFailure],
    most: int,
) -> tuple[bytes, list[tuple[int, PolicyFailure]]]:
    """Once there are too many reasons, every entry with one fails, as within one part."""
    decoded: list[Any] = msgspec.json.decode(verdicts)
    failed = dict(failures)
    seen: set[str] = set()
    for index, verdict in enumerate(decoded):
        if verdict is not None:
            seen.update(verdict[1])
            if len(seen) > most:
                failed[index] = failure("type", *variable_reasons(verdict[1][-1], most))
                decoded[index] = None
    return msgspec.json.encode(decoded), sorted(failed.items())


def variable_reasons(reason: str, most: int) -> tuple[str, str]:
    """The message and the hint for a filter with more than *most* reasons, *reason* the last."""
    shown = json.dumps(reason, ensure_ascii=False)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return (
        f"filter() returned more than {most} different reasons, the last {shown}, "
        "want reasons that are constants",
        "reasons are counted over nodes: leave out names, numbers and keys",
    )
