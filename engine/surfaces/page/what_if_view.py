"""What the screen *What if* shows: what would start, grouped by what it is because of."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from engine.surfaces.live.what_if.answers import WhatIfAnswer, WouldStart, WouldWait

_MOST_ROWS: Final = 200


@dataclass(frozen=True)
class WhatIfView:
    """The screen.

    Attributes:
        start: Those that would start because of the changes, first those that lose their nodes.
        wait: Those that would have no node, in the same order.
        reasons: How many of them for each reason, the most frequent first.
        more_start, more_wait: How many rows are not shown.
    """

    start: tuple[WouldStart, ...]
    wait: tuple[WouldWait, ...]
    reasons: tuple[tuple[str, int], ...]
    more_start: int
    more_wait: int


def what_if_view(answer: WhatIfAnswer) -> WhatIfView:
    """What the template shows for *answer*."""
    start = sorted(
        (one for one in answer.start if not one.anyway), key=lambda one: one.origin == "waiting"
    )
    wait = sorted(answer.wait, key=lambda one: one.origin == "waiting")
    return WhatIfView(
        tuple(start[:_MOST_ROWS]),
        tuple(wait[:_MOST_ROWS]),
        tuple(Counter(one.token for one in wait).most_common()),
        max(0, len(start) - _MOST_ROWS),
        max(0, len(wait) - _MOST_ROWS),
    )
