"""A configuration is written with all that is in use, and what is written is read as the same."""

import base64
import functools
import string
from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.core.framework.profile import Profile
from engine.policy.bundle import Policy, build_bundle
from engine.policy.config import (
    KubeSchedulerConfiguration,
    PolicyRuntime,
    decode_configuration,
    decode_documents,
)
from engine.policy.documents import write_documents
from engine.policy.errors import PolicyErrors
from engine.policy.profiles import DEFAULT_PLUGINS, OPTIONAL_PLUGINS, build_profiles
from engine.policy.written import (
    REDACTED,
    has_secrets,
    runtime_document,
    with_decisions,
    written_configuration,
)

#: Policies of a user: hooks at several points, arguments of every type, and one in the place of a
#: plugin with an argument that kube-scheduler's schema does not take.
FILES: Final = {
    "mine.star": (
        'args = plugin_args(limit = 3, zone = "1e5", share = 0.5, names = ["a"], on = False, '
        'none = None, table = {"a": [1]}, computed = len("abc"))\n'
        "def filter(pod, node): return None\ndef score(pod, node): return 1\n"
    ),
    "image_locality.star": ('args = plugin_args(scoring = "x")\ndef score(pod, node): return 1\n'),
    "node_resources_fit.star": (
        'args = plugin_args(scoring_strategy = "odd")\ndef filter(pod, node): return None\n'
    ),
}


def _document(config: KubeSchedulerConfiguration, profiles: list[Profile]) -> str:
    leader = {"leaderElect": False}
    written = with_decisions(
        written_configuration(config, leader),
        [profile.written for profile in profiles],
        config.extenders,
        with_secrets=True,
    )
    return write_documents([written])


def _meaning(profiles: list[Profile], config: KubeSchedulerConfiguration) -> Any:
    """All that decides, without the text and the places that it was read from."""
    decided = [
        (
            profile.scheduler_name,
            {
                hook: [(one.policy, one.weight) for one in enabled]
                for hook, enabled in profile.points.items()
            },
            dict(profile.order),
            dict(profile.weights),
            {name: dict(values) for name, values in profile.arguments.items()},
            profile.percentage_of_nodes_to_score,
            profile.runtime_plugins,
        )
        for profile in profiles
    ]
    scalars = (
        config.parallelism,
        config.client_connection,
        config.enable_profiling,
        config.percentage_of_nodes_to_score,
        config.pod_initial_backoff_seconds,
        config.pod_max_backoff_seconds,
        config.delay_cache_until_active,
    )
    return decided, scalars, config.extenders


NAMES: Final = sorted(
    {*DEFAULT_PLUGINS, *OPTIONAL_PLUGINS, "mine", "Coscheduling", "TargetLoadPacking"}
)
POINTS: Final = (
    *("multiPoint", "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore"),
    *("score", "reserve", "permit", "preBind", "bind", "placementScore", "placementGenerate"),
)
_words = st.text(string.ascii_letters + string.digits + " :#'\"\\\n\té\x85-.e", max_size=8)
_refs = st.fixed_dictionaries(
    {"name": st.sampled_from(NAMES)}, optional={"weight": st.integers(0, 50)}
)
_off = st.fixed_dictionaries({"name": st.sampled_from([*NAMES, "*", "Unknown"])})
_strategies = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["LeastAllocated", "MostAllocated"]),
            "resources": st.lists(
                st.fixed_dictionaries(
                    {"name": st.sampled_from(["cpu", "memory", "x.io/gpu"])},
                    optional={"weight": st.integers(0, 100)},
                ),
                max_size=3,
            ),
        }
    ),
    st.just(
        {
            "type": "RequestedToCapacityRatio",
            "requestedToCapacityRatio": {
                "shape": [{"utilization": 0, "score": 0}, {"utilization": 70, "score": 9}]
            },
        }
    ),
)
_plugin_configs: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "NodeResourcesFit": st.fixed_dictionaries(
        {}, optional={"scoringStrategy": _strategies, "ignoredResources": st.just(["a.io/b"])}
    ),
    "DynamicResources": st.fixed_dictionaries(
        {}, optional={"filterTimeout": st.sampled_from(["0s", "1ms", "1h2m3.5s", "250us"])}
    ),
    "NodeAffinity": st.just(
        {
            "addedAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1e5"]}]}
                    ]
                }
            }
        }
    ),
    "PodTopologySpread": st.just(
        {
            "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
            ],
            "defaultingType": "List",
        }
    ),
    "InterPodAffinity": st.fixed_dictionaries({"hardPodAffinityWeight": st.integers(0, 100)}),
    "VolumeBinding": st.fixed_dictionaries({"bindTimeoutSeconds": st.integers(0, 900)}),
    "mine": st.fixed_dictionaries(
        {},
        optional={
            "limit": st.integers(-(1 << 63), (1 << 63) - 1),
            "zone": _words,
            "share": st.floats(allow_nan=False, allow_infinity=False),
            "names": st.lists(_words, max_size=2),
            "on": st.booleans(),
            "none": st.one_of(_words, st.none(), st.dates().map(str), st.booleans()),
            "table": st.dictionaries(_words, st.one_of(_words, st.integers(-5, 5)), max_size=2),
            "computed": st.integers(0, 9),
        },
    ),
}


def _plugin_config(name: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"name": st.just(name), "args": _plugin_configs[name]})


_configs = st.lists(st.sampled_from(sorted(_plugin_configs)), unique=True, max_size=3).flatmap(
    lambda names: st.tuples(*map(_plugin_config, names)).map(list)
)
_profiles = st.fixed_dictionaries(
    {
        "schedulerName": _words.filter(bool),
        "plugins": st.dictionaries(
            st.sampled_from(POINTS),
            st.fixed_dictionaries(
                {},
                optional={
                    "enabled": st.lists(_refs, max_size=3),
                    "disabled": st.lists(_off, max_size=3),
                },
            ),
            max_size=3,
        ),
        "pluginConfig": _configs,
    },
    optional={"percentageOfNodesToScore": st.integers(0, 100)},
)
_extenders = st.fixed_dictionaries(
    {
        "urlPrefix": st.sampled_from(["http://h:1/a", "https://u:p@h/b"]),
        "weight": st.integers(1, 9),
    },
    optional={
        "filterVerb": _words,
        "prioritizeVerb": _words,
        "enableHTTPS": st.booleans(),
        "httpTimeout": st.sampled_from(["0s", "-1s", "1.5s", "100ms"]),
        "tlsConfig": st.sampled_from([{"insecure": True}, {"caFile": "/ca", "serverName": "h"}]),
        "managedResources": st.sampled_from(
            [[], [{"name": "z.io/a", "ignoredByScheduler": True}, {"name": "a.io/b"}]]
        ),
        "nodeCacheCapable": st.booleans(),
        "ignorable": st.booleans(),
    },
)
_configurations = st.fixed_dictionaries(
    {},
    optional={
        "profiles": st.lists(_profiles, max_size=2),
        "extenders": st.lists(_extenders, max_size=1),
        "parallelism": st.integers(1, 99),
        "percentageOfNodesToScore": st.integers(0, 100),
        "podInitialBackoffSeconds": st.integers(1, 9),
        "clientConnection": st.fixed_dictionaries(
            {}, optional={"qps": st.floats(-1e9, 1e9), "kubeconfig": _words}
        ),
        "delayCacheUntilActive": st.booleans(),
    },
)
_HEAD: Final = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}


@functools.cache
def _policies(with_files: bool) -> Mapping[str, Policy]:
    return build_bundle(FILES if with_files else {}).policies


@pytest.mark.slow("resolves some hundred configurations")
@given(document=_configurations, with_policies=st.booleans())
def test_what_is_written_is_read_as_the_same_configuration(
    document: dict[str, Any], with_policies: bool
) -> None:
    """The written file had neither profiles nor extenders: who fed it back lost them in silence."""
    policies = _policies(with_policies)
    try:
        config = decode_configuration(write_documents([{**_HEAD, **document}]), "c")
    except PolicyErrors:
        assume(False)
        raise
    resolved = build_profiles(config, policies)
    assume(all(problem.severity != "error" for problem in resolved.problems))
    text = _document(config, resolved.profiles)
    again = decode_configuration(text, "c")
    rebuilt = build_profiles(again, policies)
    assert all(problem.severity != "error" for problem in rebuilt.problems), rebuilt.problems
    assert _meaning(rebuilt.profiles, again) == _meaning(resolved.profiles, config)
    assert _document(again, rebuilt.profiles) == text
    assert yaml.safe_load(write_documents([yaml.safe_load(text)])) == yaml.safe_load(text)


def test_all_that_is_in_use_is_written_by_default() -> None:
    bundle = build_bundle({})
    (profile,) = bundle.profiles
    written = profile.written
    assert written["schedulerName"] == "default-scheduler"
    plugins = written["plugins"]
    for point, names in profile.order.items():
        assert [one["name"] for one in plugins[point]["enabled"]] == list(names)
    weights = {one["name"]: one["weight"] for one in plugins["score"]["enabled"]}
    assert weights == dict(profile.weights)
    arguments = {one["name"]: one["args"] for one in written["pluginConfig"]}
    assert arguments["NodeResourcesFit"] == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "NodeResourcesFitArgs",
        "ignoredResources": [],
        "ignoredResourceGroups": [],
        "scoringStrategy": {
            "type": "LeastAllocated",
            "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
        },
    }
    assert arguments["DynamicResources"]["bindingTimeout"] == "10m0s"


def test_no_built_in_takes_part_where_a_configuration_cannot_name_it() -> None:
    """Its place among those of the point could not be written then."""
    for profile in build_bundle({}).profiles:
        for point, names in profile.order.items():
            written = [one["name"] for one in profile.written["plugins"][point]["enabled"]]
            assert written == list(names)


SECRET: Final = "-----BEGIN PRIVATE KEY-----"


def test_keys_and_passwords_are_written_to_the_file_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.lib.certificates.key_problem", lambda *_: "")
    monkeypatch.setattr("engine.lib.certificates.are_certificates", lambda _: True)
    key = base64.b64encode(SECRET.encode()).decode()
    extender = {
        "urlPrefix": "https://user:word@host:1/x",
        "filterVerb": "filter",
        "tlsConfig": {"certData": base64.b64encode(b"c").decode(), "keyData": key},
    }
    config = decode_configuration(yaml.safe_dump({**_HEAD, "extenders": [extender]}), "c")
    settings = written_configuration(config, {})
    assert has_secrets(config.extenders)
    shown = with_decisions(settings, [], config.extenders, with_secrets=False)
    assert key not in str(shown)
    assert "word" not in str(shown)
    assert shown["extenders"][0]["urlPrefix"] == "https://host:1/x"
    assert shown["extenders"][0]["tlsConfig"]["keyData"] == REDACTED
    with pytest.raises(PolicyErrors, match="want base64"):
        decode_configuration(yaml.safe_dump(shown), "c")
    written = with_decisions(settings, [], config.extenders, with_secrets=True)
    assert decode_configuration(write_documents([written]), "c").extenders == config.extenders


def test_a_runtime_of_the_same_file_is_written_as_it_was() -> None:
    text = (
        "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nlimits: {steps: 5000, memory: 256Mi}\n"
        "fallback: {latency: 2s}\n---\n" + yaml.safe_dump(_HEAD)
    )
    document = runtime_document(text)
    want = decode_documents({"c": text}).runtime
    assert want != PolicyRuntime()
    assert decode_documents({"c": write_documents([document])}).runtime == want
    assert runtime_document(yaml.safe_dump(_HEAD)) is None
