"""The configuration in use as a document: all that is decided by, with the defaults filled in.

Owns how profiles, arguments and extenders are written so that reading the document gives them
again. What they mean is `profiles`'s, `arguments`' and `extenders`'.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from engine.core.framework.extender import Extender
from engine.lib.durations import go_duration
from engine.policy.arguments import KUBERNETES_ARGUMENTS, UNKNOWN
from engine.policy.config import (
    API_VERSION,
    KIND,
    MULTI_POINT,
    PLACEMENT_SETS,
    RUNTIME_KIND,
    KubeSchedulerConfiguration,
    PluginRef,
    PluginSet,
    ProfileConfig,
)
from engine.policy.documents import Report, is_plain, plain_record, read_documents, table_of
from engine.policy.extenders import EXTENDER_TABLE, TLS_TABLE
from engine.policy.shipped import snake_case

#: Stands for what only the configuration file shows. It is no base64, so that reading a document
#: with it is an error rather than another configuration.
REDACTED: Final = "<redacted>"

_ALL: Final = {"name": "*"}
_SCORE: Final = "score"


def written_configuration(
    config: KubeSchedulerConfiguration,
    leader_election: Mapping[str, Any],
    *,
    kubeconfig: str = "",
) -> dict[str, Any]:
    """The settings of *config* that are no profiles and no extenders, for `with_decisions`.

    *leader_election* and *kubeconfig* are those in use, which flags may have chosen.
    """
    found = plain_record(
        config,
        {n: how for n, how in table_of(config).items() if n not in ("profiles", "extenders")},
    )
    found["leaderElection"] = dict(leader_election)
    found["clientConnection"]["kubeconfig"] = kubeconfig or config.client_connection.kubeconfig
    # kube-scheduler writes it if it is true only.
    if not found["delayCacheUntilActive"]:
        del found["delayCacheUntilActive"]
    return {"apiVersion": API_VERSION, "kind": KIND, **found}


def with_decisions(
    settings: Mapping[str, Any],
    profiles: Iterable[Mapping[str, Any]],
    extenders: Iterable[Extender],
    *,
    with_secrets: bool,
) -> dict[str, Any]:
    """*settings* with the *profiles*, as they are written, and *extenders* that decide.

    Without secrets, keys and the passwords of URLs are left out: then the document cannot be read
    again if it had any.
    """
    document = {**settings, "profiles": [dict(profile) for profile in profiles]}
    asked = [_written_extender(one, with_secrets=with_secrets) for one in extenders]
    return document | ({"extenders": asked} if asked else {})


def has_secrets(extenders: Iterable[Extender]) -> bool:
    """True if the document of *extenders* has something that not everyone may read."""
    return any(one.tls.key_data or one.url_prefix != one.name for one in extenders)


def runtime_document(text: str) -> dict[str, Any] | None:
    """The `PolicyRuntime` of a configuration file's *text* as it is written there, if it has one.

    The file was read without a mistake before.
    """
    documents, _ = read_documents("", text)
    for document in documents:
        members = document.object()
        if members.text("kind") == RUNTIME_KIND:
            plain: dict[str, Any] = document.reporting_to(Report("")).plain()
            return plain
    return None


# --- profiles ----------------------------------------------------------------------------------


def written_profile(
    config: ProfileConfig,
    *,
    multi_point: Sequence[PluginRef],
    order: Mapping[str, Sequence[str]],
    weights: Mapping[str, int],
    arguments: Mapping[str, Mapping[str, Any]],
    is_idle_at: Callable[[str, str], bool],
    is_only_ours_at: Callable[[str, str], bool],
) -> dict[str, Any]:
    """The profile *config* with everything that is enabled named at each extension point.

    `multiPoint` stays: kube-scheduler's plugins take part at points where ours have nothing to do,
    and a point that names all of its plugins overrides it. The other arguments are those of
    `Profile`; *arguments* as `written_arguments` writes them.
    """
    plugins: dict[str, Any] = {
        MULTI_POINT: _written_set([_written_ref(r.name, r.weight) for r in multi_point], [_ALL])
    }
    for point, names in order.items():
        custom = config.plugins.get(point, PluginSet())
        idle = [ref.name for ref in custom.enabled if is_idle_at(ref.name, point)]
        enabled = [
            _written_ref(name, weights[name] if point == _SCORE and name in weights else 0)
            for name in dict.fromkeys((*names, *idle))
            if not is_only_ours_at(name, point)
        ]
        found = _written_set(enabled, [{"name": ref.name} for ref in custom.disabled])
        plugins |= {point: found} if found else {}
    for point in PLACEMENT_SETS:
        custom = config.plugins.get(point, PluginSet())
        enabled = [_written_ref(ref.name, ref.weight) for ref in custom.enabled]
        found = _written_set(enabled, [{"name": ref.name} for ref in custom.disabled])
        plugins |= {point: found} if found else {}
    given = {
        name: field.reporting_to(Report("")).plain()
        for name, field in config.plugin_config.items()
        if name not in arguments
    }
    profile: dict[str, Any] = {"schedulerName": config.scheduler_name}
    if config.percentage_of_nodes_to_score is not None:
        profile["percentageOfNodesToScore"] = config.percentage_of_nodes_to_score
    profile["plugins"] = plugins
    profile["pluginConfig"] = [
        {"name": name, "args": dict(values)}
        for name, values in {**arguments, **given}.items()
        if values and isinstance(values, Mapping)  # a problem of what is given was reported
    ]
    return profile


def written_arguments(
    plugin: str, values: Mapping[str, Any], given: Collection[str], *, is_builtin: bool
) -> dict[str, Any]:
    """The arguments *values* of *plugin* as a configuration has them; *given* are from there.

    Left out is what is computed when the file runs, and what a user's file in a plugin's place has
    as a default of an argument of that plugin: kube-scheduler's schema may refuse it.
    """
    schema = {snake_case(name): name for name in KUBERNETES_ARGUMENTS.get(plugin, {})}
    written: dict[str, Any] = {}
    for name, value in values.items():
        if value is None or value is UNKNOWN or not is_plain(value):
            continue
        if name in schema:
            if is_builtin or name in given:
                is_duration = isinstance(value, float)
                written[schema[name]] = go_duration(value) if is_duration else value
        else:
            written[name] = value
    if not written or not schema:
        return written
    return {"apiVersion": API_VERSION, "kind": f"{plugin}Args", **written}


def _written_ref(name: str, weight: int) -> dict[str, Any]:
    return {"name": name, "weight": weight} if weight else {"name": name}


def _written_set(enabled: list[dict[str, Any]], disabled: list[dict[str, Any]]) -> dict[str, Any]:
    found = {"enabled": enabled, "disabled": disabled}
    return {word: refs for word, refs in found.items() if refs}


# --- extenders ---------------------------------------------------------------------------------


def _written_extender(extender: Extender, *, with_secrets: bool) -> dict[str, Any]:
    managed = dict.fromkeys((*extender.ignored_resources, *sorted(extender.resources)))
    found = plain_record(extender, EXTENDER_TABLE)
    if not with_secrets:
        found["urlPrefix"] = extender.name
    tls = {name: one for name, one in plain_record(extender.tls, TLS_TABLE).items() if one}
    if "keyData" in tls and not with_secrets:
        tls["keyData"] = REDACTED
    found["tlsConfig"] = tls
    found["httpTimeout"] = found["httpTimeout"] or "-1s"
    found["managedResources"] = [
        {"name": name, "ignoredByScheduler": name in extender.ignored_resources} for name in managed
    ]
    return {name: one for name, one in found.items() if name != "tlsConfig" or tls}
