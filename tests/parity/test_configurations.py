"""Which configurations are refused: those that kube-scheduler refuses, and a few more."""

import json
from typing import Any

import pytest

from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors
from tests.parity.oracle import Oracle

Plain = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _configuration(*, profile: Plain | None = None, **words: Any) -> Plain:
    head = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    return {**head, **({"profiles": [profile]} if profile is not None else {}), **words}


def _args(plugin: str, **args: Any) -> Plain:
    return _configuration(profile={"pluginConfig": [{"name": plugin, "args": args}]})


def _strategy(**strategy: Any) -> Plain:
    return _args("NodeResourcesFit", scoringStrategy=strategy)


def _spread(*constraints: Plain, kind: str = "List") -> Plain:
    return _args("PodTopologySpread", defaultingType=kind, defaultConstraints=list(constraints))


def _over(key: str = "zone", action: str = "DoNotSchedule", **words: Any) -> Plain:
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, **words}


def _added(kind: str = "matchExpressions", **requirement: Any) -> Plain:
    terms = [{kind: [{"key": "a", **requirement}]}]
    return _args("NodeAffinity", addedAffinity={_REQUIRED: {"nodeSelectorTerms": terms}})


def _preferred(**requirement: Any) -> Plain:
    preference = {"matchExpressions": [{"key": "a", **requirement}]}
    added = {_PREFERRED: [{"weight": 1, "preference": preference}]}
    return _args("NodeAffinity", addedAffinity=added)


def _theirs(oracle: Oracle, config: Plain) -> str:
    (answered,) = oracle.ask([{"id": "x", "config": config, "nodes": [], "incoming": []}])
    return str(answered.get("error", ""))


def _ours(config: Plain) -> str:
    try:
        build_bundle({"config.yaml": json.dumps(config)}, None)
    except PolicyErrors as error:
        return str(error)
    return ""


_SHAPE = {"shape": [{"utilization": 0, "score": 0}]}


@pytest.mark.parametrize(
    ("config", "want"),
    [
        pytest.param(
            _configuration(
                profile={
                    "plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": -1}]}}
                }
            ),
            "score.enabled[0].weight: want an int of at least 1, got -1",
            id="a negative weight of a score",
        ),
        pytest.param(
            _configuration(parallelism=1 << 31),
            "parallelism: want an int that fits in 32 bits, got 2147483648",
            id="more workers than 32 bits",
        ),
        pytest.param(
            _configuration(clientConnection={"burst": 1 << 31}),
            "clientConnection.burst: want an int that fits in 32 bits, got 2147483648",
            id="a burst beyond 32 bits",
        ),
        pytest.param(
            _configuration(clientConnection={"qps": 1e40}),
            "clientConnection.qps: want a number of at most 3.40282e+38, got 1e+40",
            id="a rate beyond 32 bits",
        ),
        pytest.param(
            _args("DefaultPreemption", minCandidateNodesAbsolute=1 << 31),
            "minCandidateNodesAbsolute: want an int in 0..2147483647, got 2147483648",
            id="candidates beyond 32 bits",
        ),
        pytest.param(
            _spread(_over(maxSkew=1 << 31)),
            "maxSkew: want an int in 1..2147483647, got 2147483648",
            id="a skew beyond 32 bits",
        ),
        pytest.param(
            _spread(_over(minDomains=1 << 31)),
            "minDomains: want an int in 1..2147483647, got 2147483648",
            id="domains beyond 32 bits",
        ),
        pytest.param(
            _configuration(
                profile={"plugins": {"preFilter": {"enabled": [{"name": "ImageLocality"}]}}}
            ),
            'preFilter.enabled[0].name: plugin "ImageLocality" does not extend PreFilterPlugin'
            " plugin",
            id="a plugin where it takes no part",
        ),
        pytest.param(
            _configuration(podInitialBackoffSeconds=11),
            "podInitialBackoffSeconds: want at most podMaxBackoffSeconds, which is 10",
            id="a first backoff beyond the longest",
        ),
        pytest.param(
            _configuration(profile={"pluginConfig": [{"name": "NodeResourcesFit"}] * 2}),
            "pluginConfig[1].name: repeated config for plugin NodeResourcesFit",
            id="arguments twice, without any",
        ),
        pytest.param(
            _args("NodeResourcesFit", ignoredResources=["a b"]),
            'ignoredResources[0]: want the name of a resource, got "a b"',
            id="a resource that cannot be",
        ),
        pytest.param(
            _args("NodeResourcesFit", ignoredResourceGroups=[""]),
            "ignoredResourceGroups[0]: want what the names of resources have before their `/`",
            id="a group that cannot be",
        ),
        pytest.param(
            _strategy(resources=[{"name": "cpu"}]),
            "scoringStrategy: type: required value",
            id="a strategy without a type",
        ),
        pytest.param(
            _strategy(type=""), "scoringStrategy: type: required value", id="an empty type"
        ),
        pytest.param(
            _strategy(type="LeastAllocated", requestedToCapacityRatio=_SHAPE),
            "is for `RequestedToCapacityRatio` alone, and the type is `LeastAllocated`",
            id="a shape for another strategy",
        ),
        pytest.param(
            _args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu"}] * 2),
            'resources[1]: name: duplicate value "cpu"',
            id="a balanced resource twice",
        ),
        pytest.param(
            _args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0),
            "minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0",
            id="no candidates at all",
        ),
        pytest.param(
            _args("DynamicResources", filterTimeout="-1s"),
            'filterTimeout: want a duration of at least 0s, got "-1s"',
            id="less than no time to filter",
        ),
        pytest.param(
            _args("DynamicResources", bindingTimeout="500ms"),
            'bindingTimeout: want a duration of at least 1s, got "500ms"',
            id="hardly time to bind",
        ),
        pytest.param(
            _added(operator="Gt", values=["x"]),
            "matchExpressions[0]: `a` Gt: want one integer",
            id="more than a word",
        ),
        pytest.param(
            _added(key="a b", operator="Exists"),
            "matchExpressions[0]: key `a b`: want [prefix/]name",
            id="a label that cannot be",
        ),
        pytest.param(
            _added(operator="In", values=["a b"]),
            "matchExpressions[0]: `a` In: `a b` is not a label value",
            id="a value that cannot be",
        ),
        pytest.param(
            _added("matchFields", key="metadata.name", operator="In", values=["a", "b"]),
            "matchFields[0]: `metadata.name` In: want `In` or `NotIn` with one value",
            id="two names in a field",
        ),
        pytest.param(
            _added("matchFields", key="metadata.name", operator="Exists"),
            "matchFields[0]: `metadata.name` Exists: want `In` or `NotIn` with one value",
            id="a field that is there",
        ),
        pytest.param(
            _preferred(operator="Lt", values=["1.5"]),
            "matchExpressions[0]: `a` Lt: want one integer",
            id="rather less than a fraction",
        ),
        pytest.param(
            _spread(_over(), kind="System"),
            "defaultConstraints: without effect if defaultingType is `System`",
            id="constraints beside those of the system",
        ),
        pytest.param(
            _args("PodTopologySpread", defaultConstraints=[_over()]),
            "defaultConstraints: without effect if defaultingType is `System`",
            id="constraints without a type",
        ),
        pytest.param(
            _spread(_over(), _over(maxSkew=2)),
            "defaultConstraints[1]: a second constraint for `zone` with `DoNotSchedule`",
            id="a constraint twice",
        ),
        pytest.param(
            _spread(_over("a b")),
            'defaultConstraints[0].topologyKey: want the key of a label, got "a b"',
            id="a key of domains that cannot be",
        ),
        pytest.param(
            _spread({"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}),
            "defaultConstraints[0]: maxSkew: required value",
            id="a constraint without a skew",
        ),
        pytest.param(
            _spread(_over(maxSkew=None)),
            "defaultConstraints[0]: maxSkew: required value",
            id="a skew of null",
        ),
        pytest.param(
            _spread(_over(), kind=""),
            "defaultConstraints: without effect if defaultingType is `System`",
            id="constraints beside an empty type",
        ),
        pytest.param(
            _spread(_over(action="")),
            "defaultConstraints[0]: whenUnsatisfiable: required value",
            id="a constraint without consequence",
        ),
    ],
)
def test_what_kube_scheduler_refuses_is_refused(oracle: Oracle, config: Plain, want: str) -> None:
    """Each of these was taken, and what it said was passed over or failed later."""
    assert _theirs(oracle, config)
    assert want in _ours(config)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(
            _configuration(leaderElection={"leaseDuration": "0s", "resourceName": ""}),
            id="nothing given of leader election",
        ),
        pytest.param(
            _configuration(profile={"plugins": {"filter": {"disabled": [{"name": "EBSLimits"}]}}}),
            id="a plugin of old that is off",
        ),
        pytest.param(
            _configuration(
                profile={
                    "plugins": {
                        "preFilter": {"enabled": [{"name": "NodeResourcesFit"}]},
                        "preScore": {"enabled": [{"name": "TaintToleration"}]},
                    }
                }
            ),
            id="plugins where they take part",
        ),
        pytest.param(_added(operator="Gt", values=["5"]), id="more than a number"),
        pytest.param(
            _spread(_over(), _over(action="ScheduleAnyway"), _over("host")), id="constraints"
        ),
    ],
)
def test_what_kube_scheduler_takes_is_taken(oracle: Oracle, config: Plain) -> None:
    assert _theirs(oracle, config) == ""
    assert _ours(config) == ""


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(_args("NoSuchPlugin", a=1), id="arguments of nobody"),
        pytest.param(_args("NodeName", a=1), id="arguments of a plugin that takes none"),
        pytest.param(_strategy(type="LeastAllocated", resources=[{}]), id="a resource, no name"),
        pytest.param(_spread(_over(nodeTaintsPolicy="Sometimes")), id="a policy that is none"),
        pytest.param(_spread(_over(minDomains=0)), id="no domains"),
        pytest.param(
            _args("NodeAffinity", addedAffinity={_REQUIRED: {"nodeSelectorTerms": []}}),
            id="an affinity without terms",
        ),
        pytest.param(_configuration(extenders=[{"filterVerb": "f"}]), id="an extender nowhere"),
        pytest.param(
            _configuration(
                profile={
                    "plugins": {
                        "multiPoint": {"enabled": [{"name": "ImageLocality", "weight": -1}]}
                    }
                }
            ),
            id="a negative weight at all points",
        ),
        pytest.param(
            _configuration(
                profile={"plugins": {"filter": {"enabled": [{"name": "NodeName", "weight": -1}]}}}
            ),
            id="a negative weight of a filter",
        ),
        pytest.param(
            _args("NodeAffinity", addedAffinity={_PREFERRED: [{"weight": 0, "preference": {}}]}),
            id="a preference without weight",
        ),
        pytest.param(
            _configuration(profile={"pluginConfig": [{"args": {}}]}), id="arguments without a name"
        ),
        pytest.param(
            _configuration(leaderElection={"retryPeriod": "20s"}), id="retries after the deadline"
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_ours_alone(oracle: Oracle, config: Plain) -> None:
    assert _theirs(oracle, config) == ""
    assert _ours(config)
