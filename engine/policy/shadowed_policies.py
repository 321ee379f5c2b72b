"""Policies whose verdicts are counted and not obeyed: a bundle as it decides without them.

Owns what that changes in a bundle: the profiles, and the revision, so that to obey a policy again
is an edit like others. Texts and instances stay as they are.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from engine.core.framework.profile import EnabledPolicy
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem

#: Hooks that are nothing without another one.
_PARTS: Final[Mapping[str, str]] = {"pre_score": "score", "normalize": "score"}
#: Profiles have one of these, and pods an order.
_OBEYED: Final = frozenset({"queue_key"})


def without_shadowed(bundle: Bundle, shadowed: Sequence[str], where: str) -> Bundle:
    """*bundle* without the policies `NAME`, and without the hooks `NAME/HOOK`, of *shadowed*.

    `queue_key` is obeyed all the same. What no profile enables is a warning that names *where* it
    is written.
    """
    if not shadowed:
        return bundle
    entries = {entry: tuple(entry.split("/", 1)) for entry in shadowed}
    found: set[str] = set()

    def is_left_out(enabled: EnabledPolicy, hook: str) -> bool:
        wanted = (enabled.policy, _PARTS.get(hook, hook))
        names = [entry for entry, named in entries.items() if named == wanted[: len(named)]]
        if hook in _OBEYED:
            return False
        found.update(names)
        return bool(names)

    profiles = tuple(
        replace(
            profile,
            points={
                hook: tuple(one for one in enabled if not is_left_out(one, hook))
                for hook, enabled in profile.points.items()
            },
        )
        for profile in bundle.profiles
    )
    warnings = tuple(
        Problem(where, 0, 0, f"`{entry}`: no profile has such a policy or hook", severity="warning")
        for entry in shadowed
        if entry not in found
    )
    warnings = (*bundle.warnings, *warnings)
    if not found:
        return replace(bundle, warnings=warnings)
    key = "\0".join((bundle.revision, *sorted(found)))
    revision = hashlib.sha256(key.encode()).hexdigest()[: len(bundle.revision)]
    return replace(bundle, revision=revision, profiles=profiles, warnings=warnings)
