"""Resolves a configuration to profiles: which policy runs where, in which order and weight.

Owns kube-scheduler's rules for plugin sets (in-place replacement, `*`, `multiPoint`) and the names
that a configuration may use. A plugin is a policy file, a part of the runtime, or, for names that
kube-scheduler has and we do not, nothing yet: then its name is accepted with a warning. A user's
policy file of that name replaces it.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from engine.core.framework.profile import EnabledPolicy, Profile
from engine.core.model.quantity import INT64_MAX
from engine.language.hooks import PLUGIN_SETS
from engine.policy.arguments import Arguments, read_arguments, runtime_arguments
from engine.policy.config import (
    DEFAULT_SCHEDULER_NAME,
    MULTI_POINT,
    PLACEMENT_SETS,
    KubeSchedulerConfiguration,
    PluginRef,
    PluginSet,
    ProfileConfig,
)
from engine.policy.documents import Field, Report, did_you_mean, nowhere
from engine.policy.errors import Problem
from engine.policy.evaluator import Instance
from engine.policy.written import written_arguments, written_profile

# kube-scheduler's plugins in their order, with their default weights and where they take part.
DEFAULT_PLUGINS: Final[Mapping[str, tuple[int, tuple[str, ...]]]] = {
    "SchedulingGates": (0, ("preEnqueue",)),
    "PrioritySort": (0, ("queueSort",)),
    "NodeName": (0, ("preFilter", "filter")),
    "NodeUnschedulable": (0, ("preFilter", "filter")),
    "TaintToleration": (3, ("preFilter", "filter", "preScore", "score")),
    "NodeAffinity": (2, ("preFilter", "filter", "preScore", "score")),
    "NodePorts": (0, ("preFilter", "filter")),
    "NodeResourcesFit": (1, ("preFilter", "filter", "preScore", "score", "placementScore")),
    "VolumeRestrictions": (0, ("preFilter", "filter")),
    "NodeVolumeLimits": (0, ("preFilter", "filter")),
    "VolumeBinding": (0, ("preFilter", "filter", "preScore", "score", "reserve", "preBind")),
    "VolumeZone": (0, ("preFilter", "filter")),
    "PodTopologySpread": (2, ("preFilter", "filter", "preScore", "score")),
    "InterPodAffinity": (2, ("preFilter", "filter", "preScore", "score")),
    "DynamicResources": (
        2,
        (
            "preEnqueue",
            "preFilter",
            "filter",
            "postFilter",
            "podGroupPostFilter",
            "score",
            "reserve",
            "preBind",
        ),
    ),
    "DefaultPreemption": (0, ("preEnqueue", "postFilter", "podGroupPostFilter")),
    "NodeResourcesBalancedAllocation": (1, ("preScore", "score")),
    "ImageLocality": (1, ("score",)),
    "DefaultBinder": (0, ("bind",)),
    "NodeDeclaredFeatures": (0, ("preFilter", "filter")),
    # In kube-scheduler with its gate GenericWorkload.
    "GangScheduling": (0, ("preEnqueue", "permit")),
}
# Known to kube-scheduler, off by default.
OPTIONAL_PLUGINS: Final[Mapping[str, tuple[str, ...]]] = {
    "TopologyPlacementGenerator": ("placementGenerate",),
    "PodGroupPodsCount": ("placementScore",),
}
#: Built-in policies whose `group_of` says what holds without it as long as this argument is empty:
#: pods of profiles that have them by default cost nothing.
GROUPS_BY_ARGUMENT: Final[Mapping[str, str]] = {"GangScheduling": "group_label"}
# Parts of the runtime that go by a plugin's name.
RUNTIME_PLUGINS: Final = frozenset(
    {"DefaultBinder", "DefaultPreemption", "DynamicResources", "VolumeBinding"}
)

# Shipped policies that fail without an argument: its name, and how configurations write it.
_NEEDED: Final = {"NodeMetadata": ("metadata_key", "metadataKey")}

_BINDER: Final = "bind"


class PolicyFile(Protocol):
    """The parts of a policy that profiles are resolved with."""

    @property
    def name(self) -> str:
        """The name that a configuration uses."""
        ...

    @property
    def module(self) -> str:
        """Its file."""
        ...

    @property
    def hooks(self) -> Mapping[str, Any]:
        """Its hooks by name."""
        ...

    @property
    def parameters(self) -> Mapping[str, tuple[str, ...]]:
        """The parameters of its hooks."""
        ...

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The arguments that it declares."""
        ...

    @property
    def is_builtin(self) -> bool:
        """True if it ships with the runtime."""
        ...


@dataclass(slots=True)
class Profiles:
    """The resolved profiles with the instances that they use, and what was noticed."""

    profiles: list[Profile] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def build_profiles(
    configuration: KubeSchedulerConfiguration | None,
    policies: Mapping[str, PolicyFile],
    used: Collection[str] = (),
) -> Profiles:
    """Resolve the profiles of *configuration*, or the default one that runs every policy.

    Problems are reported, not raised; with problems the profiles are not to be used. Policies that
    are *used* elsewhere are not forgotten where no profile enables them.
    """
    result = Profiles()
    report = Report("" if configuration is None else configuration.file)
    builder = _Builder(policies, result, report)
    if configuration is None or not configuration.profiles:
        builder.default(0 if configuration is None else configuration.percentage_of_nodes_to_score)
    else:
        for profile in configuration.profiles:
            builder.profile(profile, configuration.percentage_of_nodes_to_score)
        builder.check_queue_sort(configuration)
        builder.warn_unused(used)
        result.problems += report.problems
    builder.load_the_rest()
    return result


def merge_plugin_set(default: Sequence[PluginRef], custom: PluginSet) -> list[PluginRef]:
    """kube-scheduler's mergePluginSet: what is enabled once *custom* is applied to *default*."""
    disabled = {ref.name for ref in custom.disabled}
    replacing = {ref.name: ref for ref in custom.enabled}
    enabled: list[PluginRef] = []
    replaced: set[str] = set()
    if "*" not in disabled:
        for ref in default:
            if ref.name in disabled:
                continue
            if ref.name in replacing:
                replaced.add(ref.name)
            enabled.append(replacing.get(ref.name, ref))
    # The last entry of a name is the one that replaced; earlier ones stay as duplicates and are
    # found when the point is expanded.
    return enabled + [
        ref for ref in custom.enabled if ref.name not in replaced or replacing[ref.name] is not ref
    ]


class _Builder:
    """Builds profiles one after the other; instances are shared among them.

    What is wrong goes to *report*: a configuration may be resolved with several sets of policies.
    """

    def __init__(
        self, policies: Mapping[str, PolicyFile], result: Profiles, report: Report
    ) -> None:
        self._policies = policies
        self._result = result
        self._report = report
        self._instances: dict[tuple[str, str], int] = {}
        self._used: set[str] = set()
        self._queue_sorts: list[tuple[str, int] | None] = []

    def _at(self, place: Field) -> Field:
        return place.reporting_to(self._report)

    # --- names -----------------------------------------------------------------------------

    def _is_known(self, name: str) -> bool:
        return name in self._policies or name in DEFAULT_PLUGINS or name in OPTIONAL_PLUGINS

    def _is_there(self, name: str) -> bool:
        return name in self._policies or name in RUNTIME_PLUGINS

    def _takes_part(self, name: str, point: str) -> bool:
        policy = self._policies.get(name)
        if policy is not None and any(
            hook in policy.hooks for hook in PLUGIN_SETS.get(point, ()) if hook != "normalize"
        ):
            return True
        if name in DEFAULT_PLUGINS and (policy is None or name in RUNTIME_PLUGINS):
            return point in DEFAULT_PLUGINS[name][1]
        return policy is None and point in OPTIONAL_PLUGINS.get(name, ())

    def _is_idle_at(self, name: str, point: str) -> bool:
        """True if a built-in lacks the hook that kube-scheduler's plugin of its name has."""
        return self._is_default(name) and point in DEFAULT_PLUGINS[name][1]

    def _is_only_ours_at(self, name: str, point: str) -> bool:
        """True if a built-in has a hook that kube-scheduler's plugin of its name lacks.

        It runs with the rest of the plugin; a configuration cannot name it there.
        """
        return self._is_default(name) and point not in DEFAULT_PLUGINS[name][1]

    def _is_default(self, name: str) -> bool:
        """True if *name* is the policy that replaces a default plugin of kube-scheduler."""
        policy = self._policies.get(name)
        return policy is not None and policy.is_builtin and name in DEFAULT_PLUGINS

    def _needs_state(self, name: str) -> bool:
        policy = self._policies[name]
        return policy.is_builtin and "state" in policy.parameters["filter"]

    def _hooks_of_the_users(self, name: str) -> str:
        policy = self._policies.get(name)
        if policy is None or policy.is_builtin:
            return ""
        hooks = ", ".join(f"`{hook}`" for hook in policy.hooks) or "no hook"
        return f"`{policy.module}` has {hooks}; `multiPoint` enables all that a policy has"

    # --- profiles --------------------------------------------------------------------------

    def default(self, percentage: int) -> None:
        """The profile without configuration: the built-ins and every policy of the user.

        A policy of the user that orders the queue takes PrioritySort's place: there is one order.
        """
        added = [
            policy
            for _, policy in sorted(self._policies.items())
            if policy.name not in DEFAULT_PLUGINS and not policy.is_builtin and policy.hooks
        ]
        place = nowhere("profiles[0]", self._report)
        sorters = [policy.name for policy in added if "queue_key" in policy.hooks]
        if len(sorters) > 1:
            names = ", ".join(f"`{name}`" for name in sorters)
            for name in sorters:
                module = self._policies[name].module
                message = f"only one policy can define queue_key, and {names} do"
                hint = "enable one of them in a KubeSchedulerConfiguration"
                self._result.problems.append(Problem(module, 0, 0, message, hint))
        plugins = {
            MULTI_POINT: PluginSet(enabled=tuple(PluginRef(p.name, 1, place) for p in added))
        }
        if sorters:
            plugins["queueSort"] = PluginSet(disabled=(PluginRef("PrioritySort", 0, place),))
        config = ProfileConfig(DEFAULT_SCHEDULER_NAME, plugins=plugins)
        self.profile(config, percentage, quiet=len(sorters) > 1)

    def profile(self, config: ProfileConfig, percentage: int, *, quiet: bool = False) -> None:
        """Resolve one profile. With *quiet* its queue order is not checked."""
        place = self._at(config.place or nowhere("profiles[0]", self._report))
        # 1. Which plugins there are, in which order at each extension point, with which weights.
        self._check_names(config)
        default = [PluginRef(n, w, place) for n, (w, _) in DEFAULT_PLUGINS.items()]
        multi_point = merge_plugin_set(default, config.plugins.get(MULTI_POINT, PluginSet()))
        self._check_removed(config, multi_point, place)
        weights = self._weights(config, multi_point, place)
        order = {
            point: self._expand(point, config.plugins.get(point, PluginSet()), multi_point)
            for point in PLUGIN_SETS
        }
        self._check_placement(config)
        if not quiet:
            self._check_ends(order, place)
        # 2. Their arguments, and an instance for each that is a policy.
        names = list(dict.fromkeys(name for point in order.values() for name in point))
        arguments = self._all_arguments(names, config, place)
        instances = {
            name: self._instance(self._policies[name], found)
            for name, found in arguments.items()
            if name in self._policies
        }
        self._used |= set(instances)
        # 3. Which policies are asked for each hook.
        points = self._points(order, instances, weights)
        sort = points["queue_key"][0] if points["queue_key"] else None
        self._queue_sorts.append(None if sort is None else (sort.policy, sort.instance))
        own_percentage = config.percentage_of_nodes_to_score
        self._result.profiles.append(
            Profile(
                scheduler_name=config.scheduler_name,
                points={hook: enabled for hook, enabled in points.items() if enabled},
                arguments={name: self._shown(name, found) for name, found in arguments.items()},
                percentage_of_nodes_to_score=(
                    percentage if own_percentage is None else own_percentage
                )
                or None,
                runtime_plugins=frozenset(n for n in names if n in RUNTIME_PLUGINS),
                order={point: tuple(enabled) for point, enabled in order.items() if enabled},
                weights=weights,
                written=written_profile(
                    config,
                    multi_point=multi_point,
                    order=order,
                    weights=weights,
                    arguments={name: self._written(name, arguments[name]) for name in arguments},
                    is_idle_at=self._is_idle_at,
                    is_only_ours_at=self._is_only_ours_at,
                ),
            )
        )

    def _all_arguments(
        self, names: Sequence[str], config: ProfileConfig, place: Field
    ) -> dict[str, Arguments]:
        """The arguments of the plugins *names*, by name; those of others are only checked."""
        arguments = {name: self._arguments(name, config) for name in names}
        for name in config.plugin_config:
            if name not in arguments and self._is_known(name):
                self._arguments(name, config)
        self._warn_of_missing_arguments(arguments, place)
        return arguments

    def _points(
        self,
        order: Mapping[str, Sequence[str]],
        instances: Mapping[str, int],
        weights: Mapping[str, int],
    ) -> dict[str, tuple[EnabledPolicy, ...]]:
        """By hook, the policies that define it among those enabled at its extension point."""
        points = {
            hook: tuple(
                EnabledPolicy(name, instances[name], weights.get(name, 1))
                for name in enabled
                if name in self._policies and hook in self._policies[name].hooks
            )
            for point, enabled in order.items()
            for hook in PLUGIN_SETS[point]
        }
        # What a built-in filters by is made by its pre-filter, whether that is enabled or not.
        points["pre_filter"] += tuple(
            enabled
            for enabled in points["filter"]
            if self._needs_state(enabled.policy) and enabled not in points["pre_filter"]
        )
        # Counters are no extension point: they are asked for policies that read counts.
        readers = dict.fromkeys((*points.get("filter", ()), *points.get("score", ())))
        points["counters"] = tuple(
            dict.fromkeys(
                EnabledPolicy(reader.policy, reader.instance)
                for reader in readers
                if "counters" in self._policies[reader.policy].hooks
            )
        )
        return points

    def _check_names(self, config: ProfileConfig) -> None:
        known = [*self._policies, *DEFAULT_PLUGINS, *OPTIONAL_PLUGINS]

        def unknown(name: str) -> tuple[str, str]:
            return f"no plugin or policy file `{name}`", did_you_mean(name, known)

        for plugins in config.plugins.values():
            for ref in plugins.enabled:
                if not self._is_known(ref.name):
                    self._at(ref.place).wrong(*unknown(ref.name))
                elif not self._is_there(ref.name):
                    message = f"`{ref.name}` is not there yet: accepted, and without effect"
                    self._at(ref.place).warn(message)
            for ref in plugins.disabled:
                if ref.name != "*" and not self._is_known(ref.name):
                    message, hint = unknown(ref.name)
                    self._at(ref.place).warn(f"{message} to disable", hint)
        for name, field_ in config.plugin_config.items():
            if not self._is_known(name):
                self._at(field_).wrong(*unknown(name))

    def _check_placement(self, config: ProfileConfig) -> None:
        """Refuse what kube-scheduler would at points where we have nothing to do."""
        for point in PLACEMENT_SETS:
            plugins = config.plugins.get(point, PluginSet())
            self._expand(point, plugins, ())
            for ref in plugins.enabled:
                if self._is_idle_at(ref.name, point):
                    message = f"`{ref.name}` has no part in {point}: accepted, without effect"
                    self._at(ref.place).warn(message)

    def _check_removed(
        self, config: ProfileConfig, multi_point: Sequence[PluginRef], place: Field
    ) -> None:
        """Warn once of the default plugins that are not there, unless the profile names them."""
        named = {ref.name for plugins in config.plugins.values() for ref in plugins.enabled}
        absent = [
            ref.name
            for ref in multi_point
            if ref.name not in named and self._is_known(ref.name) and not self._is_there(ref.name)
        ]
        if absent and config.place is not None:
            names = ", ".join(f"`{name}`" for name in absent)
            place.warn(f"default plugins that are not there yet, without effect: {names}")

    def _weights(
        self, config: ProfileConfig, multi_point: Sequence[PluginRef], place: Field
    ) -> dict[str, int]:
        weights: dict[str, int] = {}
        total = 0
        explicit = config.plugins.get("score", PluginSet()).enabled
        for ref in [*explicit, *multi_point]:
            if ref.name in weights or not self._takes_part(ref.name, "score"):
                continue
            weights[ref.name] = max(ref.weight, 1)
            total += weights[ref.name] * 100
        if total > INT64_MAX:
            place.wrong("total score of Score plugins could overflow")
        return weights

    def _expand(self, point: str, custom: PluginSet, multi_point: Sequence[PluginRef]) -> list[str]:
        """kube-scheduler's expansion of multiPoint at one extension point."""
        kind = f"{point[0].upper()}{point[1:]}Plugin"
        explicit: list[str] = []
        idle: set[str] = set()
        for ref in custom.enabled:
            if not self._is_known(ref.name):
                continue
            place = self._at(ref.place)
            if ref.name in explicit or ref.name in idle:
                place.wrong(f'plugin "{ref.name}" already registered as "{kind}"')
            elif self._takes_part(ref.name, point) and not self._is_only_ours_at(ref.name, point):
                explicit.append(ref.name)
            elif self._is_idle_at(ref.name, point):
                idle.add(ref.name)
            else:
                hint = self._hooks_of_the_users(ref.name)
                place.wrong(f'plugin "{ref.name}" does not extend {kind} plugin', hint)
        disabled = {ref.name for ref in custom.disabled}
        overriding: set[str] = set()
        implied: list[str] = []
        for ref in () if "*" in disabled else multi_point:
            if not self._is_known(ref.name) or not self._takes_part(ref.name, point):
                continue
            if ref.name in disabled:
                continue
            if ref.name in explicit:
                overriding.add(ref.name)
            elif ref.name in implied:
                self._at(ref.place).wrong(f'plugin "{ref.name}" already registered as "{kind}"')
            else:
                implied.append(ref.name)
        first = [name for name in explicit if name in overriding]
        last = [name for name in explicit if name not in overriding]
        return [*first, *implied, *last]

    def _check_ends(self, order: Mapping[str, Sequence[str]], place: Field) -> None:
        """One queue order and something that binds: a profile cannot do without."""
        if len(order["queueSort"]) > 1:
            names = ", ".join(f"`{name}`" for name in order["queueSort"])
            place.wrong(f"only one queue sort plugin can be enabled, got {names}")
        if not order["queueSort"]:
            place.wrong("no queue sort plugin is enabled, want one such as `PrioritySort`")
        if not order[_BINDER]:
            place.wrong("at least one bind plugin is needed, want `DefaultBinder`")

    # --- arguments and instances -----------------------------------------------------------

    def _arguments(self, name: str, config: ProfileConfig) -> Arguments:
        found = config.plugin_config.get(name)
        field_ = None if found is None else self._at(found)
        policy = self._policies.get(name)
        if policy is None or name in RUNTIME_PLUGINS:
            return Arguments({}, {}, runtime_arguments(name, field_))
        return read_arguments(name, field_, policy.defaults)

    def _warn_of_missing_arguments(self, found: Mapping[str, Arguments], place: Field) -> None:
        """Shipped files load without arguments, and some of them can do nothing then."""
        for name, (argument, written) in _NEEDED.items():
            policy = self._policies.get(name)
            is_ours = policy is not None and policy.is_builtin
            if is_ours and name in found and not found[name].given.get(argument):
                hint = f"without it, `{name}` fails for each pod"
                place.warn(f"pluginConfig: {name}: {written}: required value", hint)

    def _shown(self, name: str, found: Arguments) -> dict[str, Any]:
        policy = self._policies.get(name)
        return {**(policy.defaults if policy is not None else {}), **found.shown}

    def _written(self, name: str, found: Arguments) -> dict[str, Any]:
        policy = self._policies.get(name)
        is_builtin = policy is None or policy.is_builtin or name in RUNTIME_PLUGINS
        shown = self._shown(name, found)
        return written_arguments(name, shown, found.shown, is_builtin=is_builtin)

    def _instance(self, policy: PolicyFile, arguments: Arguments) -> int:
        key = (policy.name, json.dumps([arguments.given, arguments.types], sort_keys=True))
        index = self._instances.get(key)
        if index is None:
            index = self._instances[key] = len(self._result.instances)
            self._result.instances.append(
                Instance(policy.name, policy.module, arguments.given, arguments.types)
            )
        return index

    def load_the_rest(self) -> None:
        """Add the user's policies that no profile enables: they are still loaded, so checked."""
        for name, policy in self._policies.items():
            if name not in self._used and not policy.is_builtin:
                self._instance(policy, Arguments({}, {}, {}))

    # --- over all profiles -----------------------------------------------------------------

    def check_queue_sort(self, configuration: KubeSchedulerConfiguration) -> None:
        """All profiles share one queue, so one order with one set of arguments."""
        first = self._queue_sorts[0]
        for profile, sort in zip(configuration.profiles, self._queue_sorts, strict=True):
            if sort != first and profile.place is not None:
                self._at(profile.place).wrong("queueSort: must be the same for all profiles")

    def warn_unused(self, used: Collection[str]) -> None:
        """Policies of the user that no profile enables are probably forgotten."""
        hint = "name it under plugins.multiPoint.enabled"
        for policy in self._policies.values():
            if policy.is_builtin or policy.name in used or policy.name in self._used:
                continue
            if policy.hooks:
                message = f"policy `{policy.name}` is not enabled in any profile"
                self._report.add(None, "profiles", message, hint, "warning")
