"""The interface of a component that records decisions.

Owns the calls that it receives. What is kept, and where, is `engine.recording`'s.
"""

from collections.abc import Sequence
from typing import Protocol

from engine.model.pod import Pod
from engine.queueing.nominator import Nominator
from engine.scheduling.decision import Decision
from engine.scheduling.extenders import Answer


class Journal(Protocol):
    """Notified before and after each decision. Must not raise, and must not take long.

    `deciding --> decided | lost`, in every turn that reaches a decision.
    """

    def deciding(self, nominator: Nominator) -> None:
        """A decision begins on the cluster as it is now."""
        ...

    def decided(self, pod: Pod, decision: Decision, answers: Sequence[Answer] = ()) -> None:
        """It has ended; *answers* are those of extenders, in order. Nothing of it is done yet."""
        ...

    def lost(self, pod: Pod, error: Exception) -> None:
        """A turn ended with an exception, perhaps before a decision began."""
        ...
