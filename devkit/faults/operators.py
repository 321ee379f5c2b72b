"""What operators do with the policies of a calm cluster, and what must come of each step.

Owns a script of edits, good and bad, of modes, and of leaders that die in between; it is the same
in every world. Their texts are `policies`'.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from devkit.faults import policies
from devkit.faults.invariants import Violation
from devkit.faults.invariants.facts import condition_of, key_of
from devkit.faults.life import LATE_LABEL
from devkit.faults.names import LAST_GOOD, NAMESPACE
from devkit.faults.world import Replica, World
from engine.rollout.last_good import ROLLED_BACK_ANNOTATION

#: After which an edit has come to its end, stages aside.
_SOON_SECONDS: Final = 15
#: After which enough pods have failed, with their backoff, for an edit to be rolled back.
_ROLL_BACK_SECONDS: Final = 30
#: For which the store does not answer: longer than a new leader waits for it.
_SILENCE_SECONDS: Final = 15
#: After which it has asked again, and has taken over what is saved.
_ASK_AGAIN_SECONDS: Final = 30
#: Two of each: the policies in force, those before them during probation, and an edit.
_MOST_SANDBOXES: Final = 6


def misplaced_policies(world: World) -> Iterator[Violation]:
    """Policies that are in force or saved instead of the good ones that were written last.

    A standby need not go on with stages that only a leader can pass.
    """
    want = policies.built(world.good_files).revision
    saved = world.cluster.get("configmaps", LAST_GOOD, NAMESPACE) or {}
    for leader in world.leaders:
        rollout = leader.app.policies.rollout
        revision = rollout.active.bundle.revision
        if revision != want:
            text = f"revision {revision} instead of {want}: {rollout.status}"
            yield Violation("the last good policies are in force", leader.name, text)
        if saved.get("data") != dict(world.good_files):
            text = f"those saved are {sorted(saved.get('data') or ())}"
            yield Violation("the policies in force are saved", leader.name, text)


class Operators:
    """Those of *world*."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._given_up = ""  # the revision that was rolled back

    def work(self) -> None:
        """Do everything; ends at the first violation."""
        for step in (
            self._add_a_file,
            self._remove_it,
            self._write_what_fails,
            self._write_what_fails_later,
            self._repair_it,
            self._lose_the_leader,
            self._stage_an_edit,
            self._lose_all_between_stages,
        ):
            step()
            self._check(step.__name__)
            if self._world.outcome.violations:
                return

    # --- the steps ----------------------------------------------------------------------------

    def _add_a_file(self) -> None:
        self._world.edit_well("one more policy")
        self._world.go_on(_SOON_SECONDS)

    def _remove_it(self) -> None:
        """And have pods decided with the rest, so that it is what a roll-back goes back to."""
        self._world.edit_well("back")
        self._world.go_on(_SOON_SECONDS)
        self._make_pods(late="no")
        self._world.go_on(_SOON_SECONDS)
        self._world.server.call(self._world.life.remove_added)

    def _write_what_fails(self) -> None:
        """Something that its trial shows: it must not decide for a moment."""
        bad = self._write("bad: fails for every pod")
        for _ in range(_SOON_SECONDS):
            self._world.go_on(1.0)
            if bad in self._in_force():
                self._violate("candidates are tried", "what fails for every pod is in force")

    def _write_what_fails_later(self) -> None:
        """Something that only pods show that are not there yet: it is rolled back."""
        world = self._world
        self._given_up = self._write("fails for late comers")
        world.go_on(_SOON_SECONDS)
        if self._in_force() != [self._given_up]:
            self._violate("edits come into force", f"revision {self._given_up} does not")
        self._make_pods(late="yes")
        world.go_on(_ROLL_BACK_SECONDS)
        for pod in world.objects().pending():
            condition = condition_of(pod, "PodScheduled") or {}
            if condition.get("reason") == "SchedulerError":
                self._violate("what was rolled back decides nothing", key_of(pod))

    def _repair_it(self) -> None:
        self._world.edit_well("other points")
        self._world.go_on(_SOON_SECONDS)

    def _lose_the_leader(self) -> None:
        """The next one cannot read what is saved, and must not write over it."""
        world = self._world
        silence = world.cluster.faults.hang(
            verb="get", resource="configmaps", namespace=NAMESPACE, name=LAST_GOOD, times=None
        )
        self._kill(world.leaders)
        world.go_on(_SILENCE_SECONDS)
        world.cluster.faults.remove(silence)
        world.go_on(_ASK_AGAIN_SECONDS)
        # A process that began in the silence has looked at the lease only since.
        self._until_one_leads()

    def _stage_an_edit(self) -> None:
        """Under a leader that is not the first. The stages are those of the policies in force.

        No decision is compared that an extender takes part in, or that chooses no node: operators
        have no patience with such a stage.
        """
        world = self._world
        world.set_mode("staged")
        world.edit_well("shadow alone")
        world.go_on(_SOON_SECONDS)
        world.edit_well("long stages")
        world.go_on(1.0)
        self._make_pods(late="yes")  # to be compared
        world.go_on(_ROLL_BACK_SECONDS)
        if world.has("extender") or self._is_inconclusive():
            world.set_mode("at-once")
            world.go_on(_SOON_SECONDS)
            world.set_mode("staged")
            world.go_on(1.0)

    def _is_inconclusive(self) -> bool:
        """True if a stage waits for decisions to compare: of pods that find a node, say."""
        verdicts = [one.app.policies.rollout.status.verdict for one in self._world.leaders]
        return any(one is not None and one.outcome == "inconclusive" for one in verdicts)

    def _lose_all_between_stages(self) -> None:
        """The next leader goes on with the edit, until operators have no more patience.

        A process that begins has the edit in force until it leads, and learns what is saved.
        """
        world = self._world
        world.server.call(world.life.remove_added)
        world.edit_well("other tier")
        world.go_on(_SOON_SECONDS)
        self._kill(world.replicas)
        world.go_on(_SOON_SECONDS)
        if policies.built(world.good_files).revision in self._in_force():
            self._violate("stages are passed one by one", "an edit is in force before its time")
        world.set_mode("at-once")
        world.go_on(_SOON_SECONDS)

    # --- what they do -------------------------------------------------------------------------

    def _write(self, edit: str) -> str:
        """Write the texts of *edit*, which are not to be in force in the end; their revision."""
        world = self._world
        files = policies.files_of(edit, world.next_number(), world.plan.features)
        world.edit(files)
        return policies.built(files).revision

    def _make_pods(self, late: str) -> None:
        self._world.server.call(partial(self._world.life.add_small_pods, {LATE_LABEL: late}))

    def _kill(self, replicas: "list[Replica]") -> None:
        """And wait until one leads."""
        world = self._world
        for place, replica in enumerate(replicas, 1):
            replica.kill()
            # Of two that begin in the same moment, one may be refused the lease for its version.
            world.restart_later(replica, float(place))
        self._until_one_leads()

    def _until_one_leads(self) -> None:
        world = self._world
        for _ in range(int(world.plan.lease[0]) + _SOON_SECONDS):
            if world.leaders:
                return
            world.go_on(1.0)

    # --- what must come of it -----------------------------------------------------------------

    def _in_force(self) -> list[str]:
        return [one.app.policies.rollout.active.bundle.revision for one in self._world.leaders]

    def _check(self, step: str) -> None:
        world = self._world
        found = [f"{one.rule}: {one.text}" for one in misplaced_policies(world)]
        if len(world.leaders) != 1:
            found.append(f"{len(world.leaders)} replicas lead")
        saved = world.cluster.get("configmaps", LAST_GOOD, NAMESPACE) or {"metadata": {}}
        notes = saved["metadata"].get("annotations") or {}
        if self._given_up not in notes.get(ROLLED_BACK_ANNOTATION, ""):
            found.append(f"it is not saved that {self._given_up} was rolled back")
        found += [
            f"{one.name} has {one.pool.alive} sandboxes"
            for one in world.replicas
            if one.pool.alive > _MOST_SANDBOXES
        ]
        for text in found:
            self._violate("edits end as they should", f"after `{step}`: {text}")

    def _violate(self, rule: str, text: str) -> None:
        self._world.violate(rule, "policies", text)
