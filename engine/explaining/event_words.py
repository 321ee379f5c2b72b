"""Explains kube-scheduler's messages about pending pods.

Owns the explanations. The messages of events and conditions stay as they are: people search for
them, and programs compare them.
"""

from typing import Final

_PHRASES: Final = (
    (
        "deallocation of ResourceClaim completed",
        "a device claim of the pod was allocated on a node where it cannot run; that is undone, "
        "and the pod is tried again",
    ),
    (
        "found a potential placement for pod",
        "pods of lower priority are being evicted for it; it is tried again when they are gone",
    ),
    (
        "No preemption victims found for incoming pod",
        "no pods there have a lower priority than this one, so none is evicted for it",
    ),
    (
        "node(s) would fit only without pods that are never evicted",
        "the pod would fit without pods of lower priority, but a policy's `victim_key` returns "
        "None for them: they are never evicted",
    ),
    (
        "Preemption is not helpful for scheduling",
        "evicting pods there would not remove the reason for the rejection",
    ),
    (
        "not eligible due to preemptionPolicy=Never",
        "by the pod or its PriorityClass, nothing is evicted for it",
    ),
    (
        "not eligible due to a terminating pod on the nominated node",
        "pods were evicted for it already, and it waits until they are gone",
    ),
    (
        "no candidate node for preemption",
        "an extender removed all nodes where evicting pods would help, or named pods that are "
        "never evicted",
    ),
)


def in_words(*messages: str) -> tuple[str, ...]:
    """Explanations of the obscure phrases in *messages*, each once: ``phrase: what it means``."""
    text = "\n".join(messages)
    return tuple(f"`{phrase}`: {means}" for phrase, means in _PHRASES if phrase in text)
