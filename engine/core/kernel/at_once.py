"""Carries out what a kernel asks for at once, where there is no API server: a shell in memory.

Owns the order: what is to be done after each decision, until no pod can be tried. What a binding or
an eviction comes to is said by the classes made of it: a simulation, a copy of a live cluster.
"""

from collections.abc import Awaitable, Sequence

from engine.core.kernel.events import Event, PreemptionEnd, PreemptionEnded, TurnBegan
from engine.core.kernel.instructions import Bind, Evict, Instruction, RunAction
from engine.core.kernel.kernel import Kernel, decided
from engine.core.model.pod import Pod
from engine.core.scheduling.placement import Placement
from engine.lib.clock import Clock


class AtOnce:
    """A shell around `kernel`, in the time of `clock`; both are set by the class made of it."""

    kernel: Kernel
    clock: Clock

    def __init__(self) -> None:
        self._to_bind: list[Placement] = []
        self._to_evict: list[Evict] = []
        self._to_run: list[RunAction] = []

    def _bind(self, placement: Placement) -> None:
        """Bind the pod of *placement*, and report it."""
        raise NotImplementedError

    def _evict(self, pod: Pod) -> PreemptionEnd:
        """Evict *pod*; returns how the preemption ends if it is the last victim."""
        raise NotImplementedError

    def _note(self, instruction: Instruction) -> None:
        """Note an instruction that is only a report."""

    def _report(self, event: Event) -> None:
        self._carry_out(self.kernel.handle(event, self.clock.monotonic()))

    def _settle(self) -> None:
        """Decide until no pod can be tried."""
        kernel = self.kernel
        while True:
            self._report(TurnBegan())
            self._see()
            if kernel.queue.has_poppable:
                self._carry_out(decided(kernel.decide(self.clock.monotonic())))
                self._see()
            elif not kernel.has_work:
                return

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Bind(placement=placement):
                    self._to_bind.append(placement)
                case Evict():
                    self._to_evict.append(instruction)
                case RunAction():
                    self._to_run.append(instruction)
                case _:
                    self._note(instruction)

    def _see(self) -> None:
        """Report what the watch would show: bound pods on their nodes, evicted pods gone.

        And claims without the devices that a pod which fits nowhere had taken back from them.
        """
        while self._to_bind or self._to_evict or self._to_run:
            actions, self._to_run = self._to_run, []
            for one in actions:
                _run(one.action())
            placements, self._to_bind = self._to_bind, []
            for placement in placements:
                self._bind(placement)
            evictions, self._to_evict = self._to_evict, []
            for evict in evictions:
                self._carry_out_eviction(evict)

    def _carry_out_eviction(self, evict: Evict) -> None:
        end = PreemptionEnd.DONE
        for victim in evict.victims:
            end = self._evict(victim)
        self._report(PreemptionEnded(evict.preemptor, evict.preemption.node, end))


def _run(action: Awaitable[None]) -> None:
    """Carry out what waits for nothing here."""
    for _ in action.__await__():
        raise RuntimeError("an action of a plugin waits for something that is not there")
