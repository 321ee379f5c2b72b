"""Which policy runs where: kube-scheduler's rules for plugin sets, and the policies of the user."""

from typing import Any

import pytest
import yaml

from engine.core.framework.profile import Profile
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import InProcessEvaluator, Instance
from engine.policy.profiles import DEFAULT_PLUGINS

FILTER_AND_SCORE = (
    'args = plugin_args(threshold = 90, zone = "a", share = 0.5, names = [], on = False)\n'
    "def filter(pod, node): return None\n"
    "def score(pod, node): return 1\n"
)
SORT = "def queue_key(pod): return pod.priority\n"


def _config(*profiles: dict[str, Any]) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": list(profiles),
        }
    )


def _bundle(*profiles: dict[str, Any], **files: str) -> Bundle:
    stars = {f"{stem}.star": text for stem, text in files.items()}
    return build_bundle({**stars, "c.yaml": _config(*profiles)})


def _profile(plugins: dict[str, Any] | None = None, config: Any = None, **files: str) -> Profile:
    profile: dict[str, Any] = {"schedulerName": "s", "plugins": plugins or {}}
    if config is not None:
        profile["pluginConfig"] = [{"name": n, "args": a} for n, a in config.items()]
    return _bundle(profile, **files).profiles[0]


def _errors(*profiles: dict[str, Any], **files: str) -> list[str]:
    with pytest.raises(PolicyErrors) as caught:
        _bundle(*profiles, **files)
    return [
        f"{problem.message} [{problem.hint}]" if problem.hint else problem.message
        for problem in caught.value.problems
    ]


def _order(profile: Profile, hook: str) -> list[str]:
    return [enabled.policy for enabled in profile.at(hook)]


def _weights(profile: Profile) -> dict[str, int]:
    return {enabled.policy: enabled.weight for enabled in profile.at("score")}


def _names(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


# --- the default profile ---------------------------------------------------------------------


def test_without_configuration_all_built_ins_run_in_the_reference_order() -> None:
    bundle = build_bundle({})
    (profile,) = bundle.profiles
    assert profile.scheduler_name == "default-scheduler"
    order = _order(profile, "filter")
    assert order == [name for name in DEFAULT_PLUGINS if name in order]
    assert order[:4] == ["NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity"]
    assert _order(profile, "queue_key") == ["PrioritySort"]
    weights = _weights(profile)
    assert (weights["TaintToleration"], weights["NodeAffinity"]) == (3, 2)
    assert (weights["NodeResourcesFit"], weights["ImageLocality"]) == (1, 1)
    assert "DefaultBinder" in profile.runtime_plugins
    assert not bundle.warnings


def test_without_configuration_the_users_policies_run_last_with_weight_1() -> None:
    bundle = build_bundle({"zz.star": FILTER_AND_SCORE, "aa.star": FILTER_AND_SCORE})
    (profile,) = bundle.profiles
    assert _order(profile, "filter")[-2:] == ["aa", "zz"]
    assert _weights(profile)["aa"] == 1


def test_a_configuration_without_profiles_is_the_default_profile() -> None:
    bundle = build_bundle({"aa.star": FILTER_AND_SCORE, "c.yaml": _config()})
    assert _order(bundle.profiles[0], "filter")[-1] == "aa"


def test_the_users_queue_order_takes_the_place_of_the_built_in_one() -> None:
    (profile,) = build_bundle({"mine.star": SORT}).profiles
    assert _order(profile, "queue_key") == ["mine"]


def test_two_queue_orders_without_configuration_are_refused() -> None:
    with pytest.raises(PolicyErrors, match="only one policy can define queue_key, and `a`, `b` do"):
        build_bundle({"a.star": SORT, "b.star": SORT})


def test_a_file_with_a_built_ins_name_replaces_it() -> None:
    bundle = build_bundle({"node_name.star": "def filter(pod, node): return None\n"})
    policy = bundle.policies["NodeName"]
    assert (policy.module, policy.is_builtin) == ("node_name.star", False)
    assert _order(bundle.profiles[0], "filter").count("NodeName") == 1
    assert "NodeName" not in _order(bundle.profiles[0], "pre_filter"), "it has no such hook now"


# --- plugin sets -----------------------------------------------------------------------------


def test_a_disabled_plugin_is_gone_from_its_point_only() -> None:
    profile = _profile({"score": {"disabled": _names("TaintToleration")}})
    assert "TaintToleration" not in _order(profile, "score")
    assert "TaintToleration" not in _order(profile, "normalize")
    assert "TaintToleration" in _order(profile, "filter")


def test_a_plugin_that_is_disabled_at_multi_point_is_gone_everywhere() -> None:
    profile = _profile({"multiPoint": {"disabled": _names("TaintToleration")}})
    assert "TaintToleration" not in _order(profile, "filter") + _order(profile, "score")


def test_a_star_disables_all_defaults_of_a_point() -> None:
    profile = _profile({"score": {"disabled": _names("*"), "enabled": _names("ImageLocality")}})
    assert _order(profile, "score") == ["ImageLocality"]
    assert len(_order(profile, "filter")) > 5


def test_a_star_at_multi_point_leaves_what_is_named() -> None:
    names = _names("PrioritySort", "DefaultBinder", "NodeName")
    profile = _profile({"multiPoint": {"disabled": _names("*"), "enabled": names}})
    assert _order(profile, "filter") == ["NodeName"]
    assert _order(profile, "score") == []


def test_a_default_that_is_enabled_again_stays_in_its_place() -> None:
    profile = _profile({"multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 9}]}})
    (default,) = build_bundle({}).profiles
    assert _order(profile, "filter") == _order(default, "filter")
    assert _weights(profile)["NodeAffinity"] == 9


def test_the_users_plugins_come_after_the_defaults() -> None:
    profile = _profile(
        {"multiPoint": {"enabled": _names("b", "a")}}, a=FILTER_AND_SCORE, b=FILTER_AND_SCORE
    )
    assert _order(profile, "filter")[-2:] == ["b", "a"]


def test_what_is_named_at_a_point_and_by_multi_point_comes_first_there() -> None:
    """Named and implied first, then the implied, then what is only named."""
    enabled = _names("a", "NodeAffinity", "NodeName")
    profile = _profile({"filter": {"enabled": enabled}}, a=FILTER_AND_SCORE)
    order = _order(profile, "filter")
    assert order[:2] == ["NodeAffinity", "NodeName"]
    assert order[-1] == "a"


def test_the_weight_at_score_wins_over_the_one_at_multi_point() -> None:
    plugins = {
        "multiPoint": {"enabled": [{"name": "a", "weight": 5}]},
        "score": {"enabled": [{"name": "a", "weight": 7}]},
    }
    assert _weights(_profile(plugins, a=FILTER_AND_SCORE))["a"] == 7
    del plugins["score"]
    assert _weights(_profile(plugins, a=FILTER_AND_SCORE))["a"] == 5


def test_no_weight_is_weight_1() -> None:
    profile = _profile({"score": {"enabled": _names("TaintToleration")}})
    assert _weights(profile)["TaintToleration"] == 1, "also for a default that weighs 3"


def test_a_policy_at_a_point_that_it_lacks_is_reported_with_those_that_it_has() -> None:
    profile = {"schedulerName": "s", "plugins": {"filter": {"enabled": _names("mine")}}}
    assert _errors(profile, mine="def score(pod, node):\n    return 1\n") == [
        'profiles[0].plugins.filter.enabled[0].name: plugin "mine" does not extend FilterPlugin '
        "plugin [`mine.star` has `score`; `multiPoint` enables all that a policy has]"
    ]


def test_a_built_in_can_be_named_wherever_kube_schedulers_plugin_takes_part() -> None:
    """NodeResourcesFit has no pre-filter here: configurations that name it there were refused."""
    fit = {"enabled": _names("NodeResourcesFit")}
    profile = _profile({"preFilter": fit, "preScore": {"enabled": _names("TaintToleration")}})
    assert profile == _profile()
    twice = {"enabled": _names("NodeResourcesFit", "NodeResourcesFit")}
    (error,) = _errors({"schedulerName": "s", "plugins": {"preFilter": twice}})
    assert 'already registered as "PreFilterPlugin"' in error


@pytest.mark.parametrize(
    ("plugins", "want"),
    [
        (
            {"filter": {"enabled": _names("NodeNam")}},
            "profiles[0].plugins.filter.enabled[0].name: no plugin or policy file `NodeNam` "
            "[did you mean `NodeName`?]",
        ),
        (
            {"score": {"enabled": _names("NodeName")}},
            'profiles[0].plugins.score.enabled[0].name: plugin "NodeName" does not extend '
            "ScorePlugin plugin",
        ),
        (
            {"filter": {"enabled": _names("NodeName", "NodeName")}},
            'profiles[0].plugins.filter.enabled[1].name: plugin "NodeName" already registered as '
            '"FilterPlugin"',
        ),
        (
            {"queueSort": {"disabled": _names("*")}},
            "profiles[0]: no queue sort plugin is enabled, want one such as `PrioritySort`",
        ),
        (
            {"queueSort": {"enabled": _names("mine")}},
            "profiles[0]: only one queue sort plugin can be enabled, got `PrioritySort`, `mine`",
        ),
        (
            {"bind": {"disabled": _names("*")}},
            "profiles[0]: at least one bind plugin is needed, want `DefaultBinder`",
        ),
    ],
)
def test_profiles_that_cannot_be(plugins: dict[str, Any], want: str) -> None:
    assert want in _errors({"schedulerName": "s", "plugins": plugins}, mine=SORT)


def test_weights_that_overflow_together_are_refused() -> None:
    enabled = [{"name": f"p{n}", "weight": (1 << 31) - 1} for n in range(3)]
    files = {f"p{n}": FILTER_AND_SCORE for n in range(3)}
    profile = {"schedulerName": "s", "plugins": {"score": {"enabled": enabled}}}
    assert _bundle(profile, **files).profiles, "2**31 * 100 * 3 is far from 2**63"


def test_profiles_share_one_queue_order() -> None:
    other = {"disabled": _names("*"), "enabled": _names("mine")}
    second = {"schedulerName": "b", "plugins": {"queueSort": other}}
    assert _errors({"schedulerName": "a"}, second, mine=SORT) == [
        "profiles[1]: queueSort: must be the same for all profiles"
    ]


def test_several_profiles_share_instances_with_equal_arguments() -> None:
    config = [{"name": "a", "args": {"threshold": 5}}]
    plugins = {"multiPoint": {"enabled": _names("a")}}
    bundle = _bundle(
        {"schedulerName": "x", "plugins": plugins, "pluginConfig": config},
        {"schedulerName": "y", "plugins": plugins, "pluginConfig": config},
        {"schedulerName": "z", "plugins": plugins},
        a=FILTER_AND_SCORE,
    )
    of_a = [instance for instance in bundle.program.instances if instance.policy == "a"]
    assert of_a == [Instance("a", "a.star", {"threshold": 5}), Instance("a", "a.star")]


# --- names that are not there ------------------------------------------------------------------


def test_a_kube_scheduler_plugin_that_is_not_there_is_accepted_with_a_warning() -> None:
    plugins = {"multiPoint": {"enabled": _names("TopologyPlacementGenerator")}}
    bundle = _bundle({"schedulerName": "s", "plugins": plugins})
    warnings = [str(warning) for warning in bundle.warnings]
    assert any("`TopologyPlacementGenerator` is not there yet" in warning for warning in warnings)


def test_a_file_of_that_name_is_all_it_takes() -> None:
    plugins = {"filter": {"enabled": _names("TopologyPlacementGenerator")}}
    text = "def filter(pod, node): return None\n"
    profile = _profile(plugins, topology_placement_generator=text)
    assert "TopologyPlacementGenerator" in _order(profile, "filter")


@pytest.mark.parametrize(
    ("point", "names", "want"),
    [
        ("placementGenerate", ["NodeName"], 'plugin "NodeName" does not extend PlacementGenerate'),
        ("placementScore", ["ImageLocality"], "does not extend PlacementScorePlugin plugin"),
        ("placementGenerate", ["mine"], 'plugin "mine" does not extend PlacementGeneratePlugin'),
        ("podGroupPostFilter", ["mine"], 'plugin "mine" does not extend PodGroupPostFilterPlugin'),
        (
            "placementScore",
            ["NodeResourcesFit", "NodeResourcesFit"],
            'plugin "NodeResourcesFit" already registered as "PlacementScorePlugin"',
        ),
    ],
)
def test_placements_are_made_and_scored_by_those_that_do_so(
    point: str, names: list[str], want: str
) -> None:
    """Any name was accepted, where kube-scheduler does not start."""
    (error,) = _errors(
        {"schedulerName": "s", "plugins": {point: {"enabled": _names(*names)}}},
        mine=FILTER_AND_SCORE,
    )
    assert want in error


@pytest.mark.parametrize(
    ("point", "name"),
    [
        ("placementGenerate", "TopologyPlacementGenerator"),
        ("placementScore", "PodGroupPodsCount"),
        ("placementScore", "NodeResourcesFit"),
    ],
)
def test_who_makes_or_scores_placements_is_accepted_with_a_warning(point: str, name: str) -> None:
    plugins = {point: {"enabled": _names(name)}}
    warnings = [str(one) for one in _bundle({"schedulerName": "s", "plugins": plugins}).warnings]
    assert [one for one in warnings if f"`{name}`" in one and "without effect" in one], warnings


def test_those_that_help_groups_are_accepted() -> None:
    enabled = {"podGroupPostFilter": {"enabled": _names("DynamicResources", "DefaultPreemption")}}
    (profile,) = _bundle({"schedulerName": "s", "plugins": enabled}).profiles
    assert profile.order["podGroupPostFilter"] == ("DynamicResources", "DefaultPreemption")


def test_one_that_helps_groups_can_be_switched_off_for_them_alone() -> None:
    off = {"podGroupPostFilter": {"disabled": _names("DefaultPreemption")}}
    (profile,) = _bundle({"schedulerName": "s", "plugins": off}).profiles
    assert profile.order["podGroupPostFilter"] == ("DynamicResources",)
    assert "DefaultPreemption" in profile.order["postFilter"]


def test_a_disabled_name_that_is_unknown_is_a_warning() -> None:
    plugins = {"filter": {"disabled": _names("NodeNam")}}
    warnings = _bundle({"schedulerName": "s", "plugins": plugins}).warnings
    assert any("no plugin or policy file `NodeNam` to disable" in str(w) for w in warnings)


def test_a_policy_that_no_profile_enables_is_loaded_and_warned_of() -> None:
    bundle = _bundle({"schedulerName": "s"}, forgotten=FILTER_AND_SCORE)
    assert "forgotten" not in _order(bundle.profiles[0], "filter")
    assert "forgotten" in [instance.policy for instance in bundle.program.instances]
    assert any("policy `forgotten` is not enabled" in str(w) for w in bundle.warnings)


# --- arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "want"),
    [
        ({"threshold": 5}, {"threshold": 5}),
        ({"share": 1}, {"share": 1}),
        ({"names": ["x"]}, {"names": ["x"]}),
        ({"zone": None}, {}),
    ],
)
def test_arguments_of_a_users_policy(args: dict[str, Any], want: dict[str, Any]) -> None:
    plugins = {"multiPoint": {"enabled": _names("a")}}
    bundle = _bundle(
        {"schedulerName": "s", "plugins": plugins, "pluginConfig": [{"name": "a", "args": args}]},
        a=FILTER_AND_SCORE,
    )
    (instance,) = [i for i in bundle.program.instances if i.policy == "a"]
    assert instance.args == want
    assert bundle.profiles[0].arguments["a"]["on"] is False


@pytest.mark.parametrize(
    ("args", "want"),
    [
        ({"threshhold": 5}, "args.threshhold: unknown argument [did you mean `threshold`?]"),
        ({"threshold": "5"}, 'args.threshold: want an int, got "5"'),
        ({"threshold": True}, "args.threshold: want an int, got true"),
        ({"threshold": 5.5}, "args.threshold: want an int, got 5.5"),
        ({"zone": 5}, "args.zone: want a string, got 5"),
        ({"share": "x"}, 'args.share: want a number, got "x"'),
        ({"names": "x"}, 'args.names: want a list, got "x"'),
        ({"on": 1}, "args.on: want true or false, got 1"),
    ],
)
def test_wrong_arguments_name_their_path(args: dict[str, Any], want: str) -> None:
    profile = {"schedulerName": "s", "pluginConfig": [{"name": "a", "args": args}]}
    assert f"profiles[0].pluginConfig[0].{want}" in _errors(profile, a=FILTER_AND_SCORE)


WITH_LONG_NAMES = '''
"""Keeps pods off nodes; reads nothing."""

args = plugin_args(risk_limit = 1, top_5_share = 2, zone = "a")

def filter(pod, node):
    return str(args.risk_limit + args.top_5_share) + args.zone
'''


def test_an_argument_in_both_spellings_is_there_twice() -> None:
    """The last one counted, in silence."""
    profile = {
        "schedulerName": "s",
        "pluginConfig": [{"name": "a", "args": {"riskLimit": 2, "risk_limit": 3}}],
    }
    want = "args.risk_limit: the argument is there already, as `riskLimit`"
    assert f"profiles[0].pluginConfig[0].{want}" in _errors(profile, a=WITH_LONG_NAMES)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("riskLimt", "did you mean `riskLimit`?", id="as examples write it"),
        pytest.param("risk_limt", "did you mean `risk_limit`?", id="as the file writes it"),
        pytest.param("x", "want one of `riskLimit`, `top_5_share`, `zone`", id="no such word"),
        pytest.param("x_x", "want one of `risk_limit`, `top_5_share`, `zone`", id="two words"),
    ],
)
def test_an_unknown_argument_is_reported_with_the_known_ones_as_it_is_written(
    name: str, hint: str
) -> None:
    """A configuration in camelCase was told names in snake_case."""
    profile = {"schedulerName": "s", "pluginConfig": [{"name": "a", "args": {name: 1}}]}
    want = f"profiles[0].pluginConfig[0].args.{name}: unknown argument [{hint}]"
    assert want in _errors(profile, a=WITH_LONG_NAMES)


def test_arguments_can_be_written_in_camel_case() -> None:
    text = "args = plugin_args(max_pods = 3)\ndef filter(pod, node): return None\n"
    profile = _profile({"filter": {"enabled": _names("a")}}, {"a": {"maxPods": 7}}, a=text)
    assert profile.arguments["a"] == {"max_pods": 7}


def test_a_declared_default_may_be_a_constant_of_the_file() -> None:
    text = "_N = -3\nargs = plugin_args(n = _N, computed = len([1]))\n"
    text += "def filter(pod, node): return None\n"
    profile = _profile({"filter": {"enabled": _names("a")}}, {"a": {"computed": "any"}}, a=text)
    assert profile.arguments["a"]["n"] == -3
    assert profile.arguments["a"]["computed"] == "any"


@pytest.mark.parametrize(
    ("plugin", "args", "want"),
    [
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "Least"}},
            "args.scoringStrategy.type: want one of `LeastAllocated`",
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"resources": [{"name": "cpu", "weight": 101}]}},
            "weight: resource weight of cpu not in valid range [1-100]",
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
            "requestedToCapacityRatio: required value",
        ),
        (
            "NodeResourcesFit",
            {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {
                        "shape": [{"utilization": 5, "score": 1}, {"utilization": 5, "score": 2}]
                    },
                }
            },
            "shape[1]: utilization values must be sorted in increasing order",
        ),
        ("NodeResourcesFit", {"ignoredResourceGroups": ["a/b"]}, "can't contain '/'"),
        (
            "NodeResourcesFit",
            {"ignoredResorces": []},
            "unknown argument [did you mean `ignoredResources`?]",
        ),
        ("NodeResourcesFit", {"kind": "FitArgs"}, "args.kind: want `NodeResourcesFitArgs`"),
        (
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu", "weight": 2}]},
            "resource weight of cpu not in valid range [1-1]",
        ),
        (
            "NodeAffinity",
            {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
            "must have at least one node selector term",
        ),
        (
            "NodeAffinity",
            {"addedAffinity": {"required": {}}},
            "addedAffinity.required: unknown field",
        ),
        (
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 101},
            "want an int in 0..100, got 101",
        ),
        ("InterPodAffinity", {"hardPodAffinityWeight": -1}, "want an int in 0..100, got -1"),
        ("VolumeBinding", {"bindTimeoutSeconds": "x"}, 'want an int of at least 0, got "x"'),
        (
            "VolumeBinding",
            {"shape": [{"utilization": 9, "score": 1}, {"utilization": 9, "score": 1}]},
            "shape[1]: utilization values must be sorted in increasing order",
        ),
        (
            "VolumeBinding",
            {"shape": [{"utilization": 101}]},
            "shape[0].utilization: want an int in 0..100, got 101",
        ),
        (
            "VolumeBinding",
            {"shape": [{"score": 11}]},
            "shape[0].score: want an int in 0..10, got 11",
        ),
        ("VolumeBinding", {"shape": {}}, "shape: want a list, got"),
        (
            "PodTopologySpread",
            {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "No"}]},
            "whenUnsatisfiable: want one of",
        ),
        ("NodeName", {"x": 1}, "args.x: unknown argument: the policy takes none"),
        ("NodeNam", {}, "no plugin or policy file `NodeNam` [did you mean `NodeName`?]"),
        ("NodeNam", [1], "no plugin or policy file `NodeNam` [did you mean `NodeName`?]"),
        ("NodeNam", 5, "no plugin or policy file `NodeNam` [did you mean `NodeName`?]"),
        ("NodeName", [1], "args: want an object, got a list"),
    ],
)
def test_arguments_of_kube_schedulers_plugins_are_held_to_its_rules(
    plugin: str, args: Any, want: str
) -> None:
    profile = {"schedulerName": "s", "pluginConfig": [{"name": plugin, "args": args}]}
    errors = _errors(profile)
    assert any(want in error for error in errors), errors


def test_added_affinity_reaches_the_policy_as_a_record() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    manifest = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    config = [{"name": "NodeAffinity", "args": {"addedAffinity": manifest}}]
    bundle = _bundle({"schedulerName": "s", "pluginConfig": config})
    (instance,) = [i for i in bundle.program.instances if i.policy == "NodeAffinity"]
    assert instance.arg_types == {"added_affinity": "NodeAffinity?"}
    assert instance.args["added_affinity"]["required"][0]["expressions"][0]["key"] == "disk"
    assert bundle.profiles[0].arguments["NodeAffinity"]["added_affinity"] == manifest
    InProcessEvaluator(bundle.program)


def test_arguments_are_held_to_their_rules_however_they_are_spelt() -> None:
    """In snake_case they reached the policy as they were written, and failed each decision."""
    required: dict[str, Any] = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}
    }
    args = {"added_affinity": required}
    errors = _errors(
        {"schedulerName": "s", "pluginConfig": [{"name": "NodeAffinity", "args": args}]}
    )
    assert any("must have at least one node selector term" in error for error in errors), errors


def test_a_scoring_strategy_gets_its_defaults() -> None:
    config = {"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}}}
    assert _profile({}, config).arguments["NodeResourcesFit"]["scoring_strategy"] == {
        "type": "MostAllocated",
        "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
    }
