"""What the process knows of the cluster: informers, facts, and what cannot be read.

Owns which informers report to the kernel, and in which order handlers see a pod.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import structlog

from engine.app.environment import Environment
from engine.app.leadership import Leadership
from engine.core.kernel.events import Event, FactsReported, PodGroupsServed, ReadabilityChanged
from engine.core.kernel.kernel import Kernel
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.io.binding.other_binders import OtherBinders
from engine.io.event_handlers import ObjectReporter, QueueReporter, SampledHandler
from engine.io.facts.assembly import FactSources
from engine.io.facts.board import FactBoard
from engine.io.facts.learned import LearnedStore
from engine.io.facts.live_facts import LiveFacts
from engine.io.informers import OTHER_OBJECTS, PolicyInformers, make_informers
from engine.io.kube import resources
from engine.io.kube.resources import Resource
from engine.io.watching.informer import Handler, Handlers
from engine.io.watching.readable import Readability
from engine.policy.bundle import Bundle

log = structlog.get_logger(component="app")


# Of others the kernel knows no records: those are queues for some policy.
_RECORDED: Final = {resources.NODES, resources.PODS, *(one for one, _ in OTHER_OBJECTS)}


class Watching:
    """The informers of a scheduler, and the facts that its policies read.

    Args:
        env, kernel, leadership: See there.
        learned_store: Where learned facts are saved.
        report: Takes what changed, as an event.
        bundles: The policies whose objects are to be watched.

    Attributes:
        pod_groups: PodGroup in the version that is served; None if it is not.
        synced: Set once every first list is complete.
    """

    def __init__(
        self,
        env: Environment,
        kernel: Kernel,
        leadership: Leadership,
        *,
        learned_store: LearnedStore,
        report: Callable[[Event], None],
        bundles: Callable[[], list[Bundle]],
    ) -> None:
        self._env = env
        self._kernel = kernel
        self._leadership = leadership
        self._report = report
        self.synced = asyncio.Event()
        self.pod_groups: Resource | None = None
        sources = FactSources(env.client, env.clock, learned_store, leadership.may_save, env.saved)
        self.facts = LiveFacts(
            FactBoard(kernel.cache, report),
            clock=env.clock,
            make_source=sources.make,
            on_change=self._facts_changed,
            on_age=self._facts_aged,
            objects=self._known_objects,
        )
        others = OtherBinders(
            is_to_place=self._is_to_place,
            is_counted=lambda uid: kernel.cache.get_pod(uid) is not None,
            counter=env.metrics.pods_bound_by_others,
            clock=env.clock,
        )
        self.informers = make_informers(
            env.client,
            nodes=[self.facts.of_nodes, self._handler_of(resources.NODES)],
            # The last one counts a pod where it is; those before see what was decided.
            pods=[
                self.facts.of_pods,
                Handlers(on_update=others.see),
                self._handler_of(resources.PODS),
            ],
            others=self._handler_of,
            on_served=self._pod_groups_served,
        )
        self.policy_informers = PolicyInformers(
            env.client,
            self.informers,
            others=self._handler_of,
            bundles=bundles,
            on_synced=self.follow_readability,
        )
        self.readability = Readability(self.informers, env.clock, env.settings.most_watch_age)

    def follow(self) -> None:
        """Watch what the policies read now, and report what cannot be read."""
        self.policy_informers.follow()
        self.follow_readability()

    def follow_readability(self) -> None:
        """Report to the kernel what cannot be read any more, and what can be read again."""
        if not self.synced.is_set():
            return  # nothing is decided yet
        changed = self.readability.change(self._kernel.cache.objects.unknown)
        if changed is not None:
            self._report(ReadabilityChanged(changed))

    def served_groups(self) -> dict[str, Any]:
        """The version of PodGroup that is served, for the live answers."""
        served = self.pod_groups
        return {"served": None if served is None else served.api_version}

    def _facts_changed(self) -> None:
        self._report(FactsReported())

    def _facts_aged(self) -> None:
        self._report(FactsReported(is_age=True))

    def _known_objects(self) -> tuple[Iterable[Node], Iterable[Pod]]:
        cluster, infos = self._kernel.cluster, self._kernel.cache.snapshot().infos
        nodes = [info.node for info in infos if info is not None and info.node is not None]
        return nodes, [*cluster.pending_pods(), *cluster.placed_pods()]

    def _is_to_place(self, pod: Pod) -> bool:
        """True if this process leads and has a profile for the pod."""
        scheduler = self._kernel.scheduler
        is_ours = scheduler is not None and scheduler.profile_of(pod) is not None
        return is_ours and self._leadership.leading.is_set()

    def _handler_of(self, resource: Resource) -> Handler[Any]:
        handler: Handler[Any] = (
            ObjectReporter(resource.plural, self._report)
            if resource in _RECORDED
            else QueueReporter(str(resource), self._report)
        )
        seconds = self._env.metrics.event_handling_seconds
        return SampledHandler(handler, resource.kind, seconds, self._env.clock)

    def _pod_groups_served(self, newest: Resource, served: Resource | None) -> None:
        """Note in which version the API server has PodGroups: the only resource with several."""
        self.pod_groups = served
        if served is None:
            log.info("PodGroups are not served", resource=str(newest))
        else:
            log.info("PodGroups are served", resource=str(served), version=served.api_version)
        self._report(PodGroupsServed("" if served is None else served.api_version))
