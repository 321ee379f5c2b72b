"""Which events are worth another attempt at a rejected pod, policy by policy.

Owns kube-scheduler's queueing hints: for each policy the events that may help (`INTERESTS`), and
for some a look at the object that changed (`nodes`, `volumes`, ...). Policies of users get theirs
from the fields that they read (`derived`). Moving pods is the queue's. Begin with
`hints`, then `interest`.
"""

from engine.core.queueing.hints.either import EitherHints
from engine.core.queueing.hints.hints import INTERESTS, Hints
from engine.core.queueing.hints.own_labels import (
    Label,
    Labels,
    is_by_label,
    label_waited_for,
    labels_looked_at,
)

__all__ = [
    "INTERESTS",
    "EitherHints",
    "Hints",
    "Label",
    "Labels",
    "is_by_label",
    "label_waited_for",
    "labels_looked_at",
]
