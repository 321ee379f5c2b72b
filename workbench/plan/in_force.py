"""Which policies are in force, as the ConfigMaps of a cluster say.

Owns the choice between the ConfigMap that is edited and the one with the policies that were last in
force. Reading them is the caller's.
"""

from collections.abc import Mapping
from typing import NamedTuple

from engine.core.model.objects import ConfigMap
from engine.rollout.last_good import LastGood
from workbench.plan.plan_index import NONE


class InForce(NamedTuple):
    """The policies in force.

    Attributes:
        revision: As the scheduler names it; "" if that is not known.
        files: Their texts by name; empty for the built-in policies alone.
        resource_version: Of the ConfigMap that is edited; `NONE` if there is none.
        notes: What a reader should know about where this comes from.
    """

    revision: str
    files: Mapping[str, str]
    resource_version: str
    notes: tuple[str, ...] = ()


def in_force(name: str, edited: ConfigMap | None, last_good: LastGood | None) -> InForce:
    """What is in force if *edited* is the ConfigMap *name*, and *last_good* is saved."""
    version = NONE if edited is None else edited.metadata.resource_version
    if last_good is None:
        if edited is None:
            note = f"there is no ConfigMap `{name}`: the built-in policies are taken as in force"
            return InForce("", {}, version, (note,))
        note = (
            f"nothing says which policies were last in force: the text of `{name}` is taken as in "
            "force"
        )
        return InForce("", edited.data, version, (note,))
    notes: tuple[str, ...] = ()
    if edited is None:
        notes = (f"there is no ConfigMap `{name}`: what was last in force stays",)
    elif dict(edited.data) != dict(last_good.files):
        notes = (
            f"the text in `{name}` is not in force: it was rejected or rolled back, or is on its "
            "way (`starsched rollout status`); compared with the policies that are",
        )
    return InForce(last_good.revision, last_good.files, version, notes)
