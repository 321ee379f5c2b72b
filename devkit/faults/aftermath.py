"""What follows when the faults of a world have ceased, and what must have become of everything.

Owns the phases and their checks: a long rest, changes without faults, edits of the policies, single
faults, and single changes of a full cluster. What must hold is in `invariants`, `agreement` and
here, what operators do with policies in `operators`, which faults come alone in `disturbances`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from devkit.faults.agreement import disagreements, other_decisions, stranded, under_way
from devkit.faults.disturbances import disturb
from devkit.faults.invariants import (
    AT_REST,
    OVER_HISTORY,
    Binding,
    Group,
    History,
    Objects,
    Violation,
    late,
    late_groups,
    outdated_conditions,
    unreported_bindings,
    untrue_conditions,
)
from devkit.faults.invariants.facts import is_over, key_of
from devkit.faults.life import GROUP_LABEL, LOOSE_LABEL
from devkit.faults.names import LEASE
from devkit.faults.operators import Operators, misplaced_policies
from devkit.faults.world import Replica, World
from engine.policy.errors import PolicyErrors
from engine.recording.log_writer import log_files
from workbench.replay.decision_log import LogError, read_log
from workbench.replay.replay import Replayer

#: How long users go on after the rest, and after how many seconds everything has to be done then.
CALM_SECONDS: Final = 60.0
SOON_SECONDS: Final = 60.0
_CALM_PACE: Final = 3.0
#: A pod that an event may help is tried after its backoff, of ten whole seconds at most.
_WAKE_SECONDS: Final = 13.0
_NOTICE_SECONDS: Final = 2.0
#: What loose jobs have just given back is taken by others within so many seconds.
_TAKEN_SECONDS: Final = 5.0
_SETTLE_SECONDS: Final = 10
#: In half of `SOON_SECONDS` at rest.
_ATTEMPTS_AT_REST: Final = 10
_ATTEMPTS_OF_POD: Final = 2
_ATTEMPTS_OF_LOOSE: Final = 10
#: Of a leader at rest: those of the policies in force.
_MOST_SANDBOXES: Final = 2
#: The bindings of a group may take so long, with requests that are lost or answered late.
_BINDING_SECONDS: Final = 120.0


class Aftermath:
    """The phases of *world* after its faults. They end at the first violation."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before_calm = 0

    @property
    def phases(self) -> tuple[Callable[[], None], ...]:
        """In their order."""
        return self._rest, self._calm, self._edit, self._disturb, self._probe

    def _rest(self) -> None:
        """Neither faults nor changes: everything that was left undone is done."""
        world = self._world
        world.heal()
        world.go_on(world.plan.rest)
        self._settle()
        self._check_at_rest(is_long=True)

    def _calm(self) -> None:
        """Changes without faults: now everything is done soon, and nothing waits for a time-out."""
        world = self._world
        world.is_calm = True
        self._before_calm = len(world.bindings)
        losses = world.counts["lease lost"], world.counts["leader changes"]
        world.edit_well("other tier")
        world.life.wake(min(world.plan.pace, _CALM_PACE))
        world.go_on(CALM_SECONDS)
        world.life.rest()
        world.go_on(SOON_SECONDS / 2)
        attempts = world.attempts()
        world.go_on(SOON_SECONDS / 2)
        self._settle()
        if losses != (world.counts["lease lost"], world.counts["leader changes"]):
            world.violate("one replica leads", LEASE, "the leader changes without a fault")
        self._check_attempts(attempts)
        self._check_at_rest(is_long=False)

    def _edit(self) -> None:
        """Edits of the policies, by operators who look at what becomes of each."""
        Operators(self._world).work()
        self._settle()

    def _disturb(self) -> None:
        """Single faults: what goes wrong once is made good soon."""
        world = self._world
        world.is_calm = False
        disturb(world, self._check_disturbed)
        self._settle()
        world.is_calm = True

    def _check_disturbed(self, after: str) -> None:
        self._check_late(after)
        world = self._world
        untrue = untrue_conditions(self._pods_of_ours(world.objects()))
        for found in (*untrue, *self._over_history([])):
            world.violate(found.rule, found.about, f"after `{after}`: {found.text}")
        if len(world.leaders) != 1:
            world.violate("one replica leads", LEASE, f"after `{after}`: {len(world.leaders)} do")
        for replica in world.replicas:
            for found in disagreements(
                replica.app, world.cluster, world.gone, world.simulator.now - _TAKEN_SECONDS
            ):
                text = f"after `{after}`: {replica.name}: {found.text}"
                world.violate(found.rule, found.about, text)

    def _check_late(self, after: str) -> None:
        """Report pods that fit and stay pending for some seconds: room may have come just now."""
        world = self._world
        if late_then := {found.about for found in self._late(world.objects())}:
            world.go_on(_TAKEN_SECONDS)
            for found in self._late(world.objects()):
                if found.about in late_then:
                    world.violate(found.rule, found.about, f"after `{after}`: {found.text}")

    def _pods_of_ours(self, objects: Objects) -> Objects:
        """*objects* without pods that users bound: a condition may have been on its way then."""
        by_hand = self._world.life.bound_by_hand
        pods = [pod for pod in objects.pods if pod["metadata"]["uid"] not in by_hand]
        return replace(objects, pods=pods)

    def _probe(self) -> None:
        """Single changes of a full cluster: nothing else wakes the pods that one of them helps."""
        world = self._world
        world.server.call(world.life.fill)
        world.go_on(SOON_SECONDS / 2)
        for change in world.life.single_changes():
            world.server.call(change)
            world.go_on(_NOTICE_SECONDS)
            self._check_waiting()
            world.go_on(_WAKE_SECONDS - _NOTICE_SECONDS)
            self._check_late(change.__name__)
            if world.outcome.violations:
                return
        self._settle()
        for replica in world.replicas:
            self._check_replica(replica)
            self._check_log(replica)

    def _check_waiting(self) -> None:
        world = self._world
        for replica in world.replicas:
            for found in stranded(replica.app, world.cluster):
                world.violate(found.rule, found.about, f"{replica.name}: {found.text}")

    def _settle(self) -> None:
        """Wait until nothing is under way; what ends on its own now and then may be."""
        world = self._world
        doing = {}
        for _ in range(_SETTLE_SECONDS):
            doing = {one.name: under_way(one.app) for one in world.replicas if one.is_running}
            if not any(doing.values()):
                return
            world.go_on(1.0)
        for name, what in doing.items():
            if what:
                world.violate("nothing is under way at rest", name, what)

    def _check_attempts(self, before: Mapping[str, float]) -> None:
        """While nothing happens there is no reason to try pods over and over."""
        world = self._world
        objects = world.objects()
        world.note_gone(objects)
        pods = list(objects.pending())
        # Loose jobs take nodes, give them back, and try again.
        loose = sum(LOOSE_LABEL in (pod["metadata"].get("labels") or {}) for pod in pods)
        pending = len(pods) + (_ATTEMPTS_OF_LOOSE * len(pods) if loose else 0)
        # Each pod of a job that ends frees a place, and every pod that waits for one is tried.
        since = world.simulator.now - SOON_SECONDS / 2
        went = sum(at >= since for name, at in world.gone.items() if "/" not in name)
        went += sum(is_over(pod) for pod in objects.pods)
        most = _ATTEMPTS_AT_REST + (_ATTEMPTS_OF_POD + went) * pending
        for name, count in world.attempts().items():
            if count - before.get(name, count) > most:
                text = f"{count - before[name]:g} attempts at {len(pods)} pods, want at most {most}"
                world.violate("nothing is tried without a reason", name, text)

    def _check_at_rest(self, *, is_long: bool) -> None:
        world = self._world
        self._check_late("a rest")
        objects = world.objects()
        for rest_rule in AT_REST.values():
            if rest_rule is late:
                continue
            about = self._pods_of_ours(objects) if rest_rule is untrue_conditions else objects
            for found in rest_rule(about):
                world.violate(*found)
        if is_long:
            for found in outdated_conditions(objects):
                world.violate(*found)
            if world.simulator.now - world.evicted_at < world.plan.rest / 3:
                world.violate("nothing is under way at rest", "evictions", "they go on and on")
        for found in unreported_bindings(self._calm_bindings(), objects):
            world.violate(*found)
        groups = [
            Group(name, least, frozenset(uids))
            for name, (least, uids) in sorted(world.life.groups.items())
            if name not in world.torn and not self._was_withdrawn(uids)
            if not self._was_held_up(uids)
        ]
        for found in self._over_history(groups):
            world.violate(*found)
        bound = {binding.pod_uid for binding in world.bindings}
        strict = [
            group
            for group in groups
            if group.name not in world.life.loose and not group.pods & bound
        ]
        for found in late_groups(strict, objects):
            world.violate(*found)
        for found in misplaced_policies(world):
            world.violate(*found)
        leading = len(world.leaders)
        if leading != 1:
            world.violate("one replica leads", LEASE, f"{leading} do")
        for replica in world.replicas:
            self._check_replica(replica)
            # A standby keeps the candidate that it must not let through.
            is_leading = replica.app.leadership.leading.is_set()
            if is_long and is_leading and replica.pool.alive > _MOST_SANDBOXES:
                text = f"{replica.pool.alive} sandboxes are alive"
                world.violate("nothing is left behind", replica.name, text)

    def _over_history(self, groups: Sequence[Group]) -> Iterator[Violation]:
        history = History(self._world.bindings, self._world.tenures_so_far(), groups)
        for rule in OVER_HISTORY.values():
            yield from rule(history)

    def _was_withdrawn(self, uids: Sequence[str]) -> bool:
        """True if one of a group's pods was deleted while the bindings of it were under way."""
        world = self._world
        began = min((one.at for one in world.bindings if one.pod_uid in uids), default=math.inf)
        gone = (world.life.withdrawn[uid] for uid in uids if uid in world.life.withdrawn)
        return any(0 <= at - began < _BINDING_SECONDS for at in gone)

    def _was_held_up(self, uids: Sequence[str]) -> bool:
        """True if faults kept some pods of a group from being bound until another had ended.

        A leader that dies between two bindings, or a binding that is refused for long.
        """
        world = self._world
        until = self._before_calm or len(world.bindings)
        among_faults = {one.pod_uid for one in world.bindings[:until]}
        return any(uid in world.ended and uid in among_faults for uid in uids)

    def _check_log(self, replica: Replica) -> None:
        """Whether the log of decisions so far can be read, and its state is what they saw."""
        world = self._world
        recorder = replica.recorder
        if recorder is None or not recorder.writer.counts.checkpoints:
            return
        recorder.close()
        replayer = Replayer()
        try:
            newest = log_files(recorder.directory)[-1]
            for outcome in replayer.outcomes(read_log(newest)):
                if outcome.notes:
                    text = f"entry {outcome.number} of {outcome.pod}: {'; '.join(outcome.notes)}"
                    world.violate("a log has what decisions saw", replica.name, text)
                    break
        except (LogError, PolicyErrors) as error:
            world.violate("a log can be read", replica.name, str(error))
        finally:
            replayer.close()

    def _late(self, objects: Objects) -> Iterator[Violation]:
        """The rule, without jobs: one that does not fit as a whole waits, whatever fits of it.

        A pod in permit holds its place, which the API server does not know.
        """
        held = {
            queued.uid: placed.node_name
            for leader in self._world.leaders
            for queued, _ in leader.app.kernel.permits.waiting()
            if (placed := leader.app.cache.get_pod(queued.uid)) is not None
        }
        pods = [
            {**pod, "spec": {**pod["spec"], "nodeName": held[uid]}}
            if (uid := pod["metadata"]["uid"]) in held
            else pod
            for pod in objects.pods
        ]
        in_groups = {
            key_of(pod)
            for pod in objects.pods
            if GROUP_LABEL in (pod["metadata"].get("labels") or {})
        }
        return (
            found for found in late(replace(objects, pods=pods)) if found.about not in in_groups
        )

    def _calm_bindings(self) -> list[Binding]:
        """Those since there are no faults any more."""
        world = self._world
        return world.bindings[self._before_calm :] if world.is_calm else []

    def _check_replica(self, replica: Replica) -> None:
        world = self._world
        app = replica.app
        since = world.simulator.now - SOON_SECONDS / 2
        for found in disagreements(app, world.cluster, world.gone, since):
            world.violate(found.rule, found.about, f"{replica.name}: {found.text}")
        for found in other_decisions(app):
            world.violate(found.rule, found.about, f"{replica.name}: {found.text}")
