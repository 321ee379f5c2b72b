"""What is wrong with a configuration file whatever the policies say: a start cannot go on with it.

Owns the question which problems no edit of the policies could end. The file of the command line is
read once, and the policies are watched: a name that neither kube-scheduler nor this program knows
may be a policy file that comes later, with hooks and arguments that are not known yet.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.language.hooks import HOOKS
from engine.policy.arguments import UNKNOWN
from engine.policy.bundle import policy_name, shipped_policies
from engine.policy.config import KubeSchedulerConfiguration, decode_documents
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.file_names import STARLARK_SUFFIX, TEST_SUFFIX
from engine.policy.profiles import (
    DEFAULT_PLUGINS,
    OPTIONAL_PLUGINS,
    RUNTIME_PLUGINS,
    PolicyFile,
    build_profiles,
)
from engine.policy.rollout_config import profile_problems

_ORDER: Final = "queue_key"
# With its hook for the queue's order, a file may be the one too many, and without, the one missing.
_HOOKS: Final = tuple(frozenset(HOOKS) - without for without in ({_ORDER}, frozenset[str]()))


class UnusableConfiguration(PolicyErrors):
    """The file of `--config` cannot work, whatever the policies say."""


def require_usable(
    config: KubeSchedulerConfiguration | None, files: Mapping[str, str] | None
) -> None:
    """Raise `UnusableConfiguration` with what no edit of the policies could mend in *config*.

    *files* are the policies that were read; None if they are not known yet: then a file of theirs
    may also replace any of the shipped policies. {} without a source of policies: none will come.
    """
    if config is not None and (found := lasting_problems(config, files)):
        raise UnusableConfiguration(found)


def lasting_problems(
    config: KubeSchedulerConfiguration, files: Mapping[str, str] | None
) -> list[Problem]:
    """The errors of *config* that `require_usable` raises."""
    shipped = shipped_policies()
    found = [set(_problems(config, world)) for world in _worlds(config, shipped, files)]
    return sorted(set.intersection(*found))


def _worlds(
    config: KubeSchedulerConfiguration,
    shipped: Mapping[str, PolicyFile],
    files: Mapping[str, str] | None,
) -> Iterator[Mapping[str, PolicyFile]]:
    """What the policies may be: a problem that lasts is one in all of these."""
    if files == {}:
        yield shipped
        return
    names = _names_in(config) - {*shipped, *DEFAULT_PLUGINS, *OPTIONAL_PLUGINS}
    names |= {
        policy_name(file)
        for file in files or {}
        if file.endswith(STARLARK_SUFFIX) and not file.endswith(TEST_SUFFIX)
    }
    sets = [names]
    if files is None:
        sets.append(names | (set(shipped) - RUNTIME_PLUGINS))
    for unknown in sets:
        for hooks in _HOOKS:
            yield {**shipped, **{name: _AnyPolicy(name, hooks) for name in sorted(unknown)}}


def _problems(
    config: KubeSchedulerConfiguration, policies: Mapping[str, PolicyFile]
) -> Iterator[Problem]:
    resolved = build_profiles(config, policies)
    runtime = decode_documents({config.file: config.text}).runtime
    names = (profile.scheduler_name for profile in resolved.profiles)
    for problem in (*resolved.problems, *profile_problems(runtime.rollout, names)):
        if problem.severity == "error" and problem.file == config.file:
            yield problem


def _names_in(config: KubeSchedulerConfiguration) -> set[str]:
    """The plugins and policies that the profiles name."""
    sets = [plugins for profile in config.profiles for plugins in profile.plugins.values()]
    enabled = {ref.name for plugins in sets for ref in plugins.enabled}
    return enabled.union(*(profile.plugin_config for profile in config.profiles))


class _AnyArguments(Mapping[str, Any]):
    """Arguments of any name and type."""

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> Any:
        return UNKNOWN

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class _AnyPolicy:
    """A policy file that nothing is known of."""

    name: str
    hook_names: Iterable[str]

    @property
    def module(self) -> str:
        return f"{self.name}{STARLARK_SUFFIX}"

    @property
    def hooks(self) -> Mapping[str, Any]:
        return dict.fromkeys(self.hook_names)

    @property
    def parameters(self) -> Mapping[str, tuple[str, ...]]:
        return dict.fromkeys(self.hook_names, ())

    @property
    def defaults(self) -> Mapping[str, Any]:
        return _AnyArguments()

    @property
    def is_builtin(self) -> bool:
        return False
