"""Instructions as plain data, to be compared: all that they say but how long something took."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from engine.core.kernel.instructions import Instruction
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.placement import Placement, Preemption, Rejection
from engine.policy.evaluator import PolicyFailure
from engine.recording.entries import verdict

_TIMES: Final = frozenset({"started_at", "seconds", "own_seconds"})


def plain(instructions: Iterable[Instruction]) -> list[Any]:
    """Each instruction as its name and its members."""
    return [
        (
            type(one).__name__,
            {
                name: _plain(getattr(one, name))
                for name in one.__struct_fields__
                if name not in _TIMES
            },
        )
        for one in instructions
    ]


def _plain(value: Any) -> Any:
    match value:
        case Pod():
            return [value.key, value.uid, value.node_name]
        case Decision():
            return [verdict(value), value.revision]
        case Placement():
            return [_plain(value.pod), value.node, value.profile, value.revision]
        case Preemption():
            return [value.node, _plain(value.victims)]
        case Rejection():
            return [value.message, value.is_error, sorted(value.rejectors), value.nominated_node]
        case PolicyFailure() | Exception():
            return str(value)
        case list() | tuple():
            return [_plain(one) for one in value]
        case msgspec.Struct():
            return [_plain(getattr(value, name)) for name in value.__struct_fields__]
        case _ if callable(value):
            return "..."
        case _:
            return value
