"""Which objects' changes can change what a hook reads, besides those of the pod or node itself.

Owns the step from paths of reads to kinds of objects; which kinds change a field is
`ViewField.changed_by`.
"""

from collections.abc import Iterable
from typing import Final

from engine.policy.views import VIEWS

ANYTHING: Final = "*"
"""In place of the resource of an event: any."""


def resources_behind(view: str, fields: frozenset[str]) -> frozenset[str]:
    """The resources whose events can change one of *fields*, besides the object itself."""
    known = VIEWS[view]
    return frozenset(
        kind
        for field in fields
        for kind in (known[field].changed_by if field in known else (ANYTHING,))
    )


def fields_of(view: str, paths: Iterable[str]) -> frozenset[str]:
    """The fields that *paths* (those of `analysis.Reads`) reach."""
    fields = set()
    for path in paths:
        if path == ANYTHING:
            fields |= VIEWS[view].keys() - {"manifest"}
        else:
            fields.add(path.partition("[")[0].partition(".")[0])
    return frozenset(fields)
