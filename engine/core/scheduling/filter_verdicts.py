"""The records of what filters say of every node, and of what they were given to say it.

Owns records only; `Scheduler.verdicts` makes them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.core.framework.status import SUCCESS, Status
from engine.policy.evaluator import PolicyFailure


class HookInputs(NamedTuple):
    """What a hook was given of each node: by slot a number, which stands for a JSON text.

    The numbers of slots without a node mean nothing. Valid until the next decision.
    """

    ids: NDArray[np.signedinteger]
    text_of: Callable[[int], bytes]


def _no_rejections(code: int) -> Status:
    return SUCCESS


@dataclass(frozen=True, slots=True)
class FilterVerdicts:
    """What filters say of every node.

    Attributes:
        pre_filter: A pre-filter rejects the pod, whatever the node; the rest is empty then.
        codes: By slot FITS, the code of the rejection, FAILED, or ABSENT where there is no node or
            a pre-filter left it out.
        statuses: The rejection that a code stands for.
        narrowed_by: The policies whose pre-filters left nodes out.
        failures: What failed, for the pod or for a node.
        inputs: What the filter was given, if it is a single one and a policy's.
    """

    pre_filter: Status | None = None
    codes: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    statuses: Callable[[int], Status] = _no_rejections
    narrowed_by: tuple[str, ...] = ()
    failures: tuple[PolicyFailure, ...] = ()
    inputs: HookInputs | None = None
