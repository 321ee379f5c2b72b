"""Why a candidate decides a pod differently: by which of its files, and where that is written.

Owns the search in a shadow: a few sandboxes with one edited file each, and what was found for the
pods of a class. Runs in the thread of the shadow.
"""

import functools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from engine.explaining.reason_source import reason_source
from engine.policy.errors import PolicyErrors
from engine.policy.memo_reuse import unchanged_instances
from engine.rollout.attribution import cause_of, changed_files, changed_place
from engine.rollout.differences import kind_of
from engine.rollout.measures import NEWLY_PENDING, NEWLY_PLACED
from engine.rollout.shadow.comparer import Difference
from engine.rollout.shadow.outcomes import Outcome
from engine.rollout.shadow.side import Side
from engine.rollout.shadow.tally import class_of
from engine.rollout.trial import BuildBundle, LoadedRevision, MakeEvaluator, Revision

#: Searches, one for each kind of difference of a class of pods.
MOST_SEARCHES: Final = 12
#: With more edited files nothing is searched.
MOST_FILES: Final = 8
#: Sandboxes that are kept for the next search.
MOST_SIDES: Final = 4


class Causes:
    """What causes the differences between two revisions.

    Args:
        candidate, base: The revisions.
        side: Decides with the policies of *candidate*, in the thread.
        build, make: Make bundles and sandboxes of files.
    """

    def __init__(
        self,
        candidate: Revision,
        base: LoadedRevision,
        side: Side,
        build: BuildBundle,
        make: MakeEvaluator,
    ) -> None:
        self._candidate, self._base = candidate, base
        self._side = side
        self._build = build
        self._make = make
        self._changed = changed_files(base.files, candidate.files)
        self._sides: OrderedDict[frozenset[tuple[str, str]], Side] = OrderedDict()
        self._searches = 0
        self._names = {
            policy.module: policy.name
            for bundle in (base.bundle, candidate.bundle)
            for policy in bundle.policies.values()
        }
        self._found: dict[tuple[str, str], tuple[str, ...]] = {}

    def policies(self, difference: Difference) -> str:
        """The policies, or other files, that cause *difference*; "" if that is not known."""
        return ", ".join(self._names.get(file, file) for file in self._cause(difference))

    def place(self, difference: Difference) -> str:
        """`file:line`: what has changed nearest to the rule; "" if the cause is not known."""
        cause = self._cause(difference)
        if not cause:
            return ""
        rule = self._rule(difference, cause)
        return changed_place(self._base.files, self._candidate.files, cause, rule)

    def _cause(self, difference: Difference) -> tuple[str, ...]:
        key = difference.kind, class_of(difference.pod)
        cause = self._found.get(key)
        if cause is None:
            cause = self._search(difference)
            if cause:
                self._found[key] = cause
        return cause

    def _search(self, difference: Difference) -> tuple[str, ...]:
        """The files that make the difference; none if that is not known."""
        if len(self._changed) > 1:
            if self._searches >= MOST_SEARCHES or len(self._changed) > MOST_FILES:
                return ()
            self._searches += 1
        differs = functools.partial(self._differs, difference)
        likely = [file for files in self._found.values() for file in files]
        return cause_of(self._base.files, self._candidate.files, differs, likely)

    def close(self) -> None:
        """End the sandboxes."""
        while self._sides:
            self._sides.popitem()[1].close()

    def _differs(self, difference: Difference, files: Mapping[str, str]) -> bool:
        """True if the same difference is there under *files*, if they are policies at all."""
        try:
            outcome = difference.again(self._side_of(files))
        except PolicyErrors:
            return False
        return kind_of(difference.before, outcome) == difference.kind

    def _side_of(self, files: Mapping[str, str]) -> Side:
        key = frozenset(files.items())
        side = self._sides.get(key)
        if side is None:
            bundle, known = self._build(files), self._side
            unchanged = unchanged_instances(known.bundle.program, bundle.program)
            side = self._sides[key] = Side(bundle, self._make, known.scheduler, unchanged)
            if len(self._sides) > MOST_SIDES:
                self._sides.popitem(last=False)[1].close()
        self._sides.move_to_end(key)
        return side

    def _rule(self, difference: Difference, cause: tuple[str, ...]) -> str:
        """Where it failed, or what rejects or rejected the pod; "" if it is about scores."""
        after = difference.after
        for failure in after.decision.policy_failures if after.has_failed else ():
            return f"{failure.file}:{failure.line}"
        if after.refusal and after.has_refusal_failed:
            return after.refusal.partition(": ")[0]
        policies = [self._names[file] for file in cause if file in self._names]
        if difference.kind == NEWLY_PENDING:
            return _rule(self._candidate, policies, after)
        if difference.kind == NEWLY_PLACED:
            return _rule(self._base, policies, difference.before)
        return ""


def _rule(loaded: Revision, policies: Sequence[str], outcome: Outcome) -> str:
    """`file:line` of what one of *policies* rejects with in *outcome*; "" if none does."""
    if outcome.refusal:
        rejections = [(outcome.refused_by, outcome.refusal)]
    else:
        diagnosis = outcome.decision.diagnosis
        most = sorted(diagnosis.rejections.items(), key=lambda one: -one[1])
        statuses = [diagnosis.pre_filter] if diagnosis.pre_filter else [one for one, _ in most]
        rejections = [(status.plugin, text) for status in statuses for text in status.reasons]
    for policy, text in rejections:
        if policy in policies:
            return reason_source(loaded.bundle, policy, text)
    return ""
