"""What a step answers about a pod or a node: codes and reasons.

Owns the codes of kube-scheduler's framework and nothing that acts on them.
"""

import enum
from dataclasses import dataclass

from engine.lib.printable import LONGEST_TEXT, short


class Code(enum.Enum):
    """The outcome of one step. Values are kube-scheduler's spelling."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    PENDING = "Pending"

    # Members are single objects; Enum's own hash is a call of Python.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Status:
    """An outcome with its reasons and the plugin that gave it.

    `UNSCHEDULABLE` means that removing pods could help; `UNRESOLVABLE` that it could not. `token`
    is the reason token that a policy gives; "" if it gives none (see `reasons`). Of an error it is
    the token of the failure, and `subject` the object at fault. Reasons quote what others wrote:
    they are printable, and of bounded length, from here on.
    """

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    token: str = ""
    subject: str = ""

    def __post_init__(self) -> None:
        for reason in self.reasons:
            if len(reason) > LONGEST_TEXT or not reason.isprintable():
                object.__setattr__(self, "reasons", tuple(map(short, self.reasons)))
                break

    @property
    def is_rejection(self) -> bool:
        """True if the pod may not go here, for a reason that is not an error."""
        return self.code in (Code.UNSCHEDULABLE, Code.UNRESOLVABLE)

    @property
    def message(self) -> str:
        """The reasons, joined as kube-scheduler joins them."""
        return ", ".join(self.reasons)


SUCCESS = Status(Code.SUCCESS)
