"""The story of a world: it begins, faults happen by chance, and then everything has to be in order.

Owns the order of the phases and when which fault happens. The world knows neither the kinds of
faults nor what is looked at after them.
"""

from typing import Final

from devkit.faults.aftermath import Aftermath
from devkit.faults.faults import all_kinds
from devkit.faults.world import Outcome, Plan, World

#: Seconds before the first fault.
_QUIET_SECONDS: Final = 10.0


def simulated(plan: Plan) -> Outcome:
    """What became of the world of *plan*."""
    world = World(plan)
    return world.run(_Trouble(world), *Aftermath(world).phases)


class _Trouble:
    """The phase of faults and changes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kinds = [kind for name, kind in all_kinds().items() if name in world.plan.faults]
        self._chance = world.stream("faults")

    def __call__(self) -> None:
        self._world.server.later(_QUIET_SECONDS, self._fault)
        self._world.go_on(self._world.plan.seconds)

    def _fault(self) -> None:
        world = self._world
        if not world.is_faulty or not self._kinds:
            return
        (kind,) = self._chance.choices(self._kinds, [one.weight for one in self._kinds])
        kind.arrange(world, self._chance)
        world.server.later(self._chance.expovariate(1 / world.plan.every), self._fault)
