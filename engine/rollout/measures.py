"""What is counted while a candidate is compared with the policies in force.

Owns the records. Who counts is `shadow` and `canary_counts`; what follows from the numbers is
`judge`'s.
"""

import msgspec

from engine.comparing.difference import Difference
from engine.policy.errors import Problem

WITHOUT_PROFILE, FIT_NOWHERE = "without_profile", "fit_nowhere"
NODES, ORDER, PENDING = "nodes", "order", "pending"
#: The kinds of what an edit takes away: its trial finds all but the last, its probation that one.
LOSS_KINDS = (WITHOUT_PROFILE, FIT_NOWHERE, NODES, ORDER, PENDING)


class ShadowMeasures(msgspec.Struct):
    """What a shadow has compared since its stage began.

    Attributes:
        decided: Decisions of the policies in force.
        compared: Those that the candidate decided, too.
        skipped: Why others were not compared, and how many.
        counts: Differences by kind.
        victims: How many more pods the candidate would have evicted.
        seconds, seconds_before: What the compared decisions took: the candidate's, and those of
            the policies in force, measured alike.
        squares, squares_before: Sums of the squares of these times, which say how much they vary.
        timed: How many decisions these are of.
        unsure: Decisions that differed and were not compared, as the policies in force, asked
            again, decided otherwise, too: where much drifts, it is differences that are left out.
        placed: Compared decisions that choose a node on both sides: only these can be moved.
        placed_by_class, moved_by_class: The same, and those that are moved, by classes of pods;
            a pod is in several.
        by_policy, by_namespace, by_class: Differences, by whose rule makes them, as far as the two
            decisions show it, and by whom they concern.
        examples: The clearest.
    """

    decided: int = 0
    compared: int = 0
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    victims: int = 0
    seconds: float = 0.0
    seconds_before: float = 0.0
    squares: float = 0.0
    squares_before: float = 0.0
    timed: int = 0
    unsure: int = 0
    placed: int = 0
    placed_by_class: dict[str, int] = msgspec.field(default_factory=dict)
    moved_by_class: dict[str, int] = msgspec.field(default_factory=dict)
    by_policy: dict[str, int] = msgspec.field(default_factory=dict)
    by_namespace: dict[str, int] = msgspec.field(default_factory=dict)
    by_class: dict[str, int] = msgspec.field(default_factory=dict)
    examples: list[Difference[str]] = msgspec.field(default_factory=list)

    def count_time(self, seconds: float, before: float) -> None:
        """Count what one decision took: the candidate, and the policies in force."""
        self.timed += 1
        self.seconds += seconds
        self.seconds_before += before
        self.squares += seconds * seconds
        self.squares_before += before * before


class ArmMeasures(msgspec.Struct):
    """What became of the pods of a canary, or of its control sample.

    Owners are counted in addition to decisions, because they are what is assigned by chance: the
    pods of one often fare alike, and a pod that does not fit is decided again and again.

    Attributes:
        decisions: About them.
        held: Times that a gate kept one out or that a hook failed outside of a decision, which
            count as attempts like decisions.
        failed: Attempts that a policy's failure cost.
        pending: Attempts that left the pod pending: at a gate, without a node, or waiting for leave
            to be bound.
        victims: Pods evicted for them.
        seconds, squares: What the decisions took: sums of the times and of their squares.
        bound: Pods that were bound.
        bind_seconds, bind_squares: The same of the time from when each was first seen to its
            binding.
        owners: Controlling owners (or groups, or pods without either) that were decided about.
        failed_owners, pending_owners, evicting_owners: Those with any such decision.
        bound_owners: Those of the bound pods.
    """

    decisions: int = 0
    failed: int = 0
    pending: int = 0
    victims: int = 0
    seconds: float = 0.0
    squares: float = 0.0
    bound: int = 0
    bind_seconds: float = 0.0
    bind_squares: float = 0.0
    owners: int = 0
    failed_owners: int = 0
    pending_owners: int = 0
    evicting_owners: int = 0
    bound_owners: int = 0
    held: int = 0

    @property
    def attempts(self) -> int:
        """What failures and pods that stay pending are counted of."""
        return self.decisions + self.held


class Loss(msgspec.Struct, frozen=True):
    """One thing that an edit takes away.

    Attributes:
        kind: One of `LOSS_KINDS`.
        count, of: So many of so many pods, nodes, or pairs of pods.
        text: In words, with the policy and an example.
        profile, policy: Whose; "" if that makes no sense.
        file, line: Where the policy says so; "" and 0 if that is not known.
    """

    kind: str
    count: int
    of: int
    text: str
    profile: str = ""
    policy: str = ""
    file: str = ""
    line: int = 0


class Losses(msgspec.Struct, frozen=True):
    """What an edit would take away, and what was looked at to know it.

    Attributes:
        found: The largest of each kind first.
        pods, nodes: How many were looked at.
        of_pods: How many pods there are.
        classes, of_classes: Classes of those pods that were asked about, and all of them.
        failed: Why nothing can be said; "" if something can.
    """

    found: tuple[Loss, ...] = ()
    pods: int = 0
    of_pods: int = 0
    nodes: int = 0
    classes: int = 0
    of_classes: int = 0
    failed: str = ""

    def count(self, kind: str) -> int:
        """How many of a kind are lost."""
        return sum(one.count for one in self.found if one.kind == kind)

    def of(self, kind: str) -> int:
        """Of how many those of a kind are; 0 if none are lost."""
        return max((one.of for one in self.found if one.kind == kind), default=0)

    @property
    def looked_at(self) -> str:
        """What was looked at, in words."""
        return (
            f"looked at {self.pods} of {self.of_pods} pods in {self.classes} of "
            f"{self.of_classes} classes, {self.nodes} nodes"
        )

    def has(self, kind: str) -> bool:
        """True if something of a kind is lost."""
        return any(one.kind == kind for one in self.found)

    def with_pending(self, pending: Loss | None) -> "Losses":
        """These, with what probation finds: pods that wait, in the place of those found before."""
        others = (one for one in self.found if one.kind != PENDING)
        found = (*others,) if pending is None else (pending, *others)
        return msgspec.structs.replace(self, found=found)

    def problems(self) -> list[Problem]:
        """The losses as warnings."""
        hints = {PENDING: ""}  # found later, and by another look
        found = [
            Problem(one.file, one.line, 0, one.text, hints.get(one.kind, self.looked_at), "warning")
            for one in self.found
        ]
        if self.failed:
            text = f"what the edit takes away is not known: {self.failed}"
            found.append(Problem("", 0, 0, text, "", "warning"))
        return found


NO_LOSSES = Losses()
