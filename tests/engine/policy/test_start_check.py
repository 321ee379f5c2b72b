"""A configuration file that cannot work ends a start; one that policies may complete does not."""

from typing import Any, Final

import pytest
import yaml

from engine.policy.config import decode_configuration
from engine.policy.start_check import UnusableConfiguration, lasting_problems, require_usable

POLICY: Final = "args = plugin_args(limit = 3)\ndef filter(pod, node): return None\n"
SPREAD: Final = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]

#: What is known of the policies, by what the tests call it.
NO_POLICIES: Final[dict[str, str]] = {}
OTHERS: Final = {"other.star": POLICY}


def _problems(profile: dict[str, Any], files: dict[str, str] | None) -> list[str]:
    text = yaml.safe_dump(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "s", **profile}],
        }
    )
    return [str(problem) for problem in lasting_problems(decode_configuration(text, "c"), files)]


def _enabled(point: str, *names: str) -> dict[str, Any]:
    return {"plugins": {point: {"enabled": [{"name": name} for name in names]}}}


def _disabled(point: str, *names: str) -> dict[str, Any]:
    return {"plugins": {point: {"disabled": [{"name": name} for name in names]}}}


def _arguments(plugin: str, **arguments: Any) -> dict[str, Any]:
    return {"pluginConfig": [{"name": plugin, "args": arguments}]}


@pytest.mark.parametrize(
    ("profile", "want"),
    [
        pytest.param(
            _arguments("NodeResourcesFit", scoringStrategy={"type": "Foo"}),
            "want one of `LeastAllocated`",
            id="a bad value",
        ),
        pytest.param(
            _arguments("InterPodAffinity", hardPodAffinityWeight=101),
            "want an int in 0..100",
            id="a value out of range",
        ),
        pytest.param(
            _arguments("NodeResourcesFit", scoringStrategy={"type": "RequestedToCapacityRatio"}),
            "requestedToCapacityRatio: required value",
            id="no ratio",
        ),
        pytest.param(
            _arguments("PodTopologySpread", defaultConstraints=SPREAD, defaultingType="System"),
            "without effect if defaultingType is `System`",
            id="constraints beside System",
        ),
        pytest.param(_disabled("bind", "*"), "at least one bind plugin is needed", id="no binder"),
        pytest.param(
            _disabled("multiPoint", "*"), "at least one bind plugin is needed", id="nothing at all"
        ),
        pytest.param(_disabled("queueSort", "*"), "no queue sort plugin", id="no order"),
        pytest.param(
            _enabled("score", "NodeAffinity", "NodeAffinity"), "already registered", id="twice"
        ),
        pytest.param(
            _enabled("score", "DefaultBinder"), "does not extend ScorePlugin", id="wrong point"
        ),
        pytest.param(
            _arguments("DefaultPreemption", minCandidateNodesAbsolut=3),
            "unknown field",
            id="an unknown argument",
        ),
    ],
)
@pytest.mark.parametrize(
    "files",
    [
        pytest.param(NO_POLICIES, id="without policies"),
        pytest.param(OTHERS, id="with policies"),
        pytest.param(None, id="before they are known"),
    ],
)
def test_what_no_policy_could_mend_ends_a_start(
    profile: dict[str, Any], want: str, files: dict[str, str] | None
) -> None:
    """Such a replica stayed up, alive and never ready, and could not heal: the file is read once.

    kube-scheduler ends at once with each of them.
    """
    found = _problems(profile, files)
    assert any(want in problem and problem.startswith("c:") for problem in found), found


@pytest.mark.parametrize(
    ("profile", "want"),
    [
        pytest.param(_enabled("score", "NodeName"), "does not extend", id="wrong point"),
        pytest.param(_arguments("NodeResourcesFit", foo=1), "unknown argument", id="argument"),
        pytest.param(
            _arguments("PodTopologySpread", defaultConstraints=SPREAD),
            "without effect if defaultingType is `System`",
            id="constraints with the default",
        ),
        pytest.param(_enabled("queueSort", "QOSSort"), "only one queue sort", id="two orders"),
    ],
)
def test_a_shipped_policy_counts_unless_a_file_may_replace_it(
    profile: dict[str, Any], want: str
) -> None:
    """A file `node_name.star` takes the plugin's place, with hooks and arguments of its own."""
    for files in (NO_POLICIES, OTHERS):
        assert any(want in problem for problem in _problems(profile, files))
    replacing = {f"{name}.star": POLICY for name in ("node_name", "node_resources_fit", "QOSSort")}
    replacing |= {"pod_topology_spread.star": POLICY}
    assert not _problems(profile, replacing)
    assert not _problems(profile, None)


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(_enabled("score", "mine"), id="at a point"),
        pytest.param(_enabled("multiPoint", "mine"), id="everywhere"),
        pytest.param(_arguments("mine", limit=5), id="arguments"),
        pytest.param(
            {
                "plugins": {
                    "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "mine"}]}
                }
            },
            id="the order of the queue",
        ),
    ],
)
def test_a_name_may_be_a_policy_that_comes_later_unless_none_can_come(
    profile: dict[str, Any],
) -> None:
    """The last good policies may have it, or the next edit; ending would be an outage."""
    assert not _problems(profile, OTHERS)
    assert not _problems(profile, None)
    assert not _problems(profile, {"mine.star": "def filter(:\n"})
    assert _problems(profile, NO_POLICIES)


def test_a_policy_that_comes_later_cannot_be_enabled_twice() -> None:
    twice = _enabled("score", "mine", "mine")
    for files in (OTHERS, None):
        (problem,) = _problems(twice, files)
        assert 'plugin "mine" already registered' in problem


def test_a_good_configuration_is_usable_with_any_policies() -> None:
    for files in (NO_POLICIES, OTHERS, None):
        assert not _problems({}, files)
        assert not _problems(_enabled("multiPoint", "TargetLoadPacking"), files)
    require_usable(None, {})


def test_a_canary_needs_a_profile_that_is_there() -> None:
    text = (
        "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nrollout: {"
        "canary: {profile: nope}}\n---\n"
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: s}]\n"
    )
    config = decode_configuration(text, "c")
    with pytest.raises(UnusableConfiguration, match=r"c:3:.*schedulerName of a profile"):
        require_usable(config, None)
