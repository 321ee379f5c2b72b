"""Whether this process may act: it has the lease, or there is none to compete for.

Owns the answers for all parts that write. The protocol of the lease is `engine.io.leader_election`.
"""

import asyncio
from collections.abc import Callable

from engine.app.environment import Environment
from engine.io.binding.event_recorder import NORMAL, EventRecorder, Occurrence, Reference
from engine.io.leader_election import HolderPage, LeaderElector
from engine.surfaces.live.answers import Leader


class Leadership:
    """The lease of a process, and what it may do with and without it.

    Args:
        env: See there.
        events: Takes events about the lease.
        page: The page of this process, for the lease.

    Attributes:
        elector: Competes for the lease; None without one.
        leading: Set once this process schedules.
    """

    def __init__(
        self, env: Environment, events: EventRecorder, page: Callable[[], HolderPage]
    ) -> None:
        self._events = events
        self._has_given_back = False
        self.leading = asyncio.Event()
        self.elector: LeaderElector | None = None
        if env.settings.lease is not None:
            self.elector = LeaderElector(
                env.client,
                env.settings.lease,
                identity=env.settings.identity,
                clock=env.clock,
                on_transition=self._report_transition,
                page=page,
            )
            # A standby has to be seen: an alert fires when there are standbys and no leader.
            env.metrics.leader.labels(env.settings.lease.name).set(0)

    def may_act(self) -> bool:
        """False as soon as another process may lead, by the clock."""
        return self.elector is None or self.elector.may_act

    def may_report(self) -> bool:
        """As `may_act`, and on the way out: the lease is given back first, for the next leader."""
        return self.may_act() or self._has_given_back

    def may_save(self) -> bool:
        """True while this process, and no other, schedules."""
        return self.leading.is_set() and self.may_act()

    def gives_back(self) -> None:
        """Note that the lease is given back by this process, and was not lost."""
        self._has_given_back = True

    def leader(self) -> Leader:
        """Who leads, as far as this process knows."""
        elector = self.elector
        if elector is None:
            return Leader(is_us=True)
        is_us = self.leading.is_set() and elector.is_leading
        if is_us:
            return Leader(elector.identity)
        # A lease that has run out makes no leader, whatever held it last; nor does our own before
        # the first decision.
        leader = "" if elector.leader == elector.identity else elector.leader
        return Leader(leader, is_us=False, address=elector.holder_page if leader else "")

    def _report_transition(self, about: Reference, note: str) -> None:
        self._events.record(
            about, Occurrence(NORMAL, "LeaderElection", "LeaderElection", note), repeats=False
        )
