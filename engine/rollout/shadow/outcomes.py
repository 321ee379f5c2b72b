"""What became of a pod, as far as two decisions about it are compared.

Owns the record and its words.
"""

from dataclasses import dataclass

from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision, and what keeps the pod from its node all the same.

    Attributes:
        decision: What was decided.
        refusal: Why the pod would not be tried, or not be bound; "" if it would.
        refused_by: The policy that says so; "" if none does.
        has_refusal_failed: The policy says so because it failed.
    """

    decision: Decision
    refusal: str = ""
    refused_by: str = ""
    has_refusal_failed: bool = False

    @property
    def node(self) -> str | None:
        """The node that the pod gets; None if it gets none."""
        return None if self.refusal else self.decision.node

    @property
    def has_failed(self) -> bool:
        """True if a policy's failure costs the pod this attempt."""
        if self.refusal:
            return self.has_refusal_failed
        decision = self.decision
        return decision.node is None and bool(decision.policy_failures)

    @property
    def victims(self) -> tuple[Pod, ...]:
        """The pods that would be evicted."""
        eviction = None if self.refusal else self.decision.eviction
        return () if eviction is None else eviction.victims

    @property
    def evictions(self) -> tuple[str, frozenset[str]]:
        """The node on which pods would be evicted, and their uids."""
        eviction = None if self.refusal else self.decision.eviction
        if eviction is None:
            return "", frozenset()
        return eviction.node, frozenset(pod.uid for pod in eviction.victims)

    def __str__(self) -> str:
        """In words: the node, or why there is none."""
        if self.refusal:
            return self.refusal
        decision = self.decision
        if decision.node is not None:
            return decision.node
        eviction = decision.eviction
        if eviction is None:
            return decision.message()
        evicted = ", ".join(f"`{pod.key}`" for pod in eviction.victims)
        return f"evicts {evicted} from node `{eviction.node}`"
