"""Whose fault a failure is.

Owns the word. A failure says it of itself, as the table of reason tokens does (`reason_kinds`);
whatever judges policies counts those of the owner `POLICY` alone.
"""

import enum


class Owner(enum.Enum):
    """What has to be repaired so that a failure does not happen again.

    Values are labels of the metric `starsched_failures_total`.
    """

    #: The text of a policy: it raised an error, ran into a limit or gave no verdict.
    POLICY = "policy"
    #: An object of the cluster, such as a claim, a class or a volume.
    OBJECT = "object"
    #: The scheduler itself.
    RUNTIME = "runtime"
    #: The API server, or the way to it.
    NETWORK = "network"
    #: Another program that was asked.
    EXTENDER = "extender"

    # Members are single objects; Enum's own hash is a call of Python.
    __hash__ = object.__hash__
