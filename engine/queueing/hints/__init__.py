"""Which events are worth another attempt at a rejected pod, policy by policy."""

from engine.queueing.hints.hints import INTERESTS, Hints

__all__ = ["INTERESTS", "Hints"]
