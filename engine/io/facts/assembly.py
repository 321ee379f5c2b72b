"""Builds the source that each entry of the configuration describes.

Owns nothing but the choice.
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.io.facts.demand import DemandLearner, decode_placed_pod
from engine.io.facts.learned import LearnedSource, LearnedStore
from engine.io.facts.outcomes import OutcomeLearner, decode_watched_pod
from engine.io.facts.prometheus import PrometheusSource
from engine.io.facts.source import Source
from engine.io.facts.sources import ConfigMapSource, FileSource
from engine.io.kube.client import ApiClient
from engine.lib.clock import Clock
from engine.lib.saved_state import SavedStates
from engine.policy.fact_config import (
    AnnotationFacts,
    ConfigMapFacts,
    FactsConfig,
    FactSource,
    FileFacts,
    PodOutcomes,
    PrometheusFacts,
)


@dataclass(frozen=True)
class FactSources:
    """Makes sources.

    Attributes:
        client: The API server.
        clock: Time.
        learned_store: Where what is learned is kept.
        may_save: False while another replica is to save it.
        states: Reads what was learned before; None: nothing waits for that.
    """

    client: ApiClient
    clock: Clock
    learned_store: LearnedStore
    may_save: Callable[[], bool]
    states: SavedStates | None = None

    def make(self, config: FactSource, facts: FactsConfig) -> Source:
        """The source that *config*, an entry of *facts*, describes."""
        if isinstance(config, AnnotationFacts):
            raise TypeError("annotations come with their objects, not from a source")
        if isinstance(config, FileFacts):
            return FileSource(config, self.clock)
        if isinstance(config, ConfigMapFacts):
            return ConfigMapSource(config, self.client, self.clock)
        if isinstance(config, PrometheusFacts):
            return PrometheusSource(config)
        if isinstance(config, PodOutcomes):
            return LearnedSource(
                OutcomeLearner(config, facts.pod_type_labels),
                decode_watched_pod,
                client=self.client,
                store=self.learned_store,
                may_save=self.may_save,
                clock=self.clock,
                namespaces=config.namespaces,
                states=self.states,
            )
        return LearnedSource(
            DemandLearner(config),
            decode_placed_pod,
            client=self.client,
            store=self.learned_store,
            may_save=self.may_save,
            clock=self.clock,
            states=self.states,
        )
