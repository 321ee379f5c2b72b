"""Explains kube-scheduler's messages about a pending pod in plain words.

Owns the explanations. The messages of events and conditions stay as they are: people search for
them, and programs compare them.
"""

from typing import Final

_PHRASES: Final = (
    (
        "no new claims to deallocate",
        "no device claim holds the pod back, so none is given up for it; it says nothing about "
        "why the pod does not fit",
    ),
    (
        "deallocation of ResourceClaim completed",
        "a device claim of the pod was allocated where it cannot run; that is undone, and the pod "
        "is tried again",
    ),
    (
        "No preemption victims found for incoming pod",
        "no pods there are less urgent than this one (by priority), so none is evicted for it",
    ),
    (
        "node(s) would fit only without pods that are never evicted",
        "the pod would fit if less urgent pods went, of which a policy's `victim_key` says None: "
        "never to be evicted",
    ),
    (
        "Preemption is not helpful for scheduling",
        "evicting pods there would not change what keeps this one out",
    ),
    (
        "not eligible due to preemptionPolicy=Never",
        "the pod, or its PriorityClass, says that nothing is evicted for it",
    ),
    (
        "not eligible due to a terminating pod on the nominated node",
        "pods were evicted for it already, and it waits until they are gone",
    ),
    (
        "no candidate node for preemption",
        "an extender let no node stay where evicting pods would help, or named pods that are never "
        "evicted",
    ),
)


def in_words(*messages: str) -> tuple[str, ...]:
    """Explanations of the obscure phrases in *messages*, each once: ``phrase: what it means``."""
    text = "\n".join(messages)
    return tuple(f"`{phrase}`: {means}" for phrase, means in _PHRASES if phrase in text)
