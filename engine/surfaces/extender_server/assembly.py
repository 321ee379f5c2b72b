"""Builds the bundle of an extender: which policies run, and which of their hooks.

Owns the default profile of policies without a configuration. kube-scheduler runs its own plugins,
so the built-in policies, which do the same, are disabled unless requested.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from engine.core.framework.profile import Profile
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.config import (
    API_VERSION,
    DEFAULT_SCHEDULER_NAME,
    KIND,
    KubeSchedulerConfiguration,
    decode_configuration,
    decode_documents,
)
from engine.policy.file_names import DOCUMENT_SUFFIXES
from engine.rollout.assembly import make_stages
from engine.rollout.trial import CandidateStages

# Required in every profile, though an extender orders no queue and does not bind with them.
_ENDS = ("PrioritySort", "DefaultBinder")
_QUEUE_HOOK = "queue_key"
# kube-scheduler's plugins that read claims, volumes, devices and pods on nodes. Without a watch on
# these, every pod that uses them would be rejected for good.
_BEYOND_THE_REQUEST = frozenset(
    {
        "DynamicResources",
        "InterPodAffinity",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }
)


def make_extender_stages(
    config_text: str | None = None,
    file: str = "--config",
    *,
    with_builtins: bool = False,
    watches: bool = True,
) -> CandidateStages:
    """The stages of a candidate for an extender.

    Their profiles come from *config_text* or from a configuration among the files. Without either,
    all policies of the user run, and with *with_builtins* the built-in ones, too. Unless it
    *watches* the cluster, built-in policies that need more than the request contains are disabled.
    Raises `PolicyErrors` if *config_text*, which *file* names in problems, is not a
    KubeSchedulerConfiguration.
    """
    config = decode_configuration(config_text, file) if config_text is not None else None
    usual = make_stages(config_text, file)

    def build(files: Mapping[str, str]) -> Bundle:
        return as_extender(files, config, with_builtins=with_builtins, watches=watches)

    return usual.building(build)


def as_extender(
    files: Mapping[str, str],
    config: KubeSchedulerConfiguration | None = None,
    *,
    with_builtins: bool = False,
    watches: bool = True,
) -> Bundle:
    """The bundle of *files* as an extender runs it. Raises `PolicyErrors`."""
    bundle = build_bundle(files, config)
    if config is None and not with_builtins and not _has_configuration(files):
        bundle = build_bundle(files, _users_alone(bundle))
    # kube-scheduler runs preemption; the extender only filters its candidates.
    profiles = [
        replace(p, order={point: n for point, n in p.order.items() if point != "postFilter"})
        for p in bundle.profiles
    ]
    if not watches:
        users = {p.name for p in bundle.policies.values() if not p.is_builtin}
        profiles = [_without(profile, _BEYOND_THE_REQUEST - users) for profile in profiles]
    return replace(bundle, profiles=tuple(profiles), extenders=())


def _without(profile: Profile, names: frozenset[str]) -> Profile:
    """*profile* with nothing of the plugins and policies *names*."""
    return replace(
        profile,
        points={
            hook: tuple(one for one in enabled if one.policy not in names)
            for hook, enabled in profile.points.items()
        },
        order={
            point: tuple(name for name in enabled if name not in names)
            for point, enabled in profile.order.items()
        },
        runtime_plugins=profile.runtime_plugins - names,
    )


def _has_configuration(files: Mapping[str, str]) -> bool:
    documents = {f: text for f, text in files.items() if f.endswith(DOCUMENT_SUFFIXES)}
    return decode_documents(documents).configuration is not None


def _users_alone(bundle: Bundle) -> KubeSchedulerConfiguration:
    """A configuration whose only profile runs the policies of the user."""
    users = [p for p in bundle.policies.values() if p.hooks and not p.is_builtin]
    sorts = any(_QUEUE_HOOK in policy.hooks for policy in users)
    names = [policy.name for policy in users]
    names += [name for name in (_ENDS[1:] if sorts else _ENDS) if name not in names]
    multi_point = {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}
    profile = {"schedulerName": DEFAULT_SCHEDULER_NAME, "plugins": {"multiPoint": multi_point}}
    document = {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}
    return decode_configuration(json.dumps(document), "the extender's profile")
