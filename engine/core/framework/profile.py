"""A profile: the policies, their order, weights and arguments for one `schedulerName`.

Owns the resolved form only. Decoding a `KubeSchedulerConfiguration` and merging plugin sets is
`engine.policy.config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class EnabledPolicy:
    """One policy at one extension point of a profile.

    `instance` indexes `Program.instances`: the policy's file with its arguments applied.
    `weight` counts at scoring points only and is at least 1.
    """

    policy: str
    instance: int
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """What runs, in which order, for pods that name this scheduler.

    `points` maps a hook name to the enabled policies that define it, in execution order.
    `order` maps an extension point (such as `filter`) to the names of all that is enabled there,
    policies and plugins of the runtime, in execution order; `weights` their score weights.
    `arguments` holds each plugin's resolved arguments by plugin name, those of parts of the
    runtime (DefaultPreemption, VolumeBinding) included. `written` is the profile as a
    configuration writes it, with everything that is enabled and all arguments named.
    """

    scheduler_name: str
    points: Mapping[str, tuple[EnabledPolicy, ...]]
    arguments: Mapping[str, Mapping[str, Any]]
    percentage_of_nodes_to_score: int | None = None
    runtime_plugins: frozenset[str] = frozenset()
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def at(self, hook: str) -> tuple[EnabledPolicy, ...]:
        """The policies enabled for *hook*, in order; empty if there are none."""
        return self.points.get(hook, ())
