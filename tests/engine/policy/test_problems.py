"""Every problem that the readers of configuration report, word for word, with its place.

Each document below is right and has every field of its kind. One value after the other is
replaced by those of `BAD`, left out, or given a neighbour that is not known; then all at once, so
that problems come together. `GOLDEN=write` writes the files again.
"""

import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from engine.io.tracing.configuration import decode_tracing_configuration
from engine.policy.bundle import shipped_policies
from engine.policy.config import API_VERSION, KIND, RUNTIME_API_VERSION, decode_documents
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.profiles import PolicyFile, build_profiles
from engine.policy.rollout_config import profile_problems

GOLDEN: Final = Path(__file__).parent / "golden"
#: By how a file shows them.
BAD: Final[dict[str, Any]] = {
    "null": None,
    '"x"': "x",
    "-1": -1,
    "1.5": 1.5,
    "huge": 10**19,
    "[]": [],
    "{}": {},
}
_LEFT_OUT: Final = object()

Path_ = tuple[str | int, ...]


@dataclass
class Mine:
    """A policy of a user, as far as profiles are resolved with it."""

    name: str = "mine"
    module: str = "mine.star"
    hooks: dict[str, Any] = field(default_factory=lambda: {"filter": None, "score": None})
    parameters: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {"filter": ("pod", "node"), "score": ("pod", "node")}
    )
    defaults: dict[str, Any] = field(
        default_factory=lambda: {
            "limit": 3,
            "zone_name": "a",
            "share": 0.5,
            "names": [],
            "on": False,
            "table": {},
            "any": None,
        }
    )
    is_builtin: bool = False


_MATCH: Final = [{"key": "zone", "operator": "In", "values": ["a"]}]
_PLUGINS: Final = {
    "DefaultPreemption": {
        "minCandidateNodesPercentage": 10,
        "minCandidateNodesAbsolute": 100,
    },
    "InterPodAffinity": {
        "hardPodAffinityWeight": 1,
        "ignorePreferredTermsOfExistingPods": False,
    },
    "NodeAffinity": {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": _MATCH,
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": ["n"]}
                        ],
                    }
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 2, "preference": {"matchExpressions": _MATCH}}
            ],
        },
    },
    "NodeResourcesFit": {
        "ignoredResources": ["example.com/foo"],
        "ignoredResourceGroups": ["example.com"],
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}],
            "requestedToCapacityRatio": {
                "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
            },
        },
    },
    "NodeResourcesBalancedAllocation": {
        "resources": [{"name": "cpu", "weight": 1}, {"name": "memory"}]
    },
    "PodTopologySpread": {
        "defaultConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "minDomains": 1,
                "nodeAffinityPolicy": "Honor",
                "nodeTaintsPolicy": "Ignore",
                "matchLabelKeys": ["a"],
            }
        ],
        "defaultingType": "List",
    },
    "VolumeBinding": {
        "bindTimeoutSeconds": 600,
        "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
    },
    "DynamicResources": {
        "apiVersion": API_VERSION,
        "kind": "DynamicResourcesArgs",
        "filterTimeout": "10s",
        "bindingTimeout": "600s",
    },
    "mine": {
        "limit": 4,
        "zoneName": "b",
        "share": 1.0,
        "names": ["a"],
        "on": True,
        "table": {"a": 1},
        "any": 1,
    },
}
_HEAD: Final = {"apiVersion": API_VERSION, "kind": KIND}
_RUNTIME_HEAD: Final = {"apiVersion": RUNTIME_API_VERSION, "kind": "PolicyRuntime"}
#: By the file that its problems are in.
DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "configuration": {
        **_HEAD,
        "parallelism": 16,
        "leaderElection": {
            "leaderElect": True,
            "leaseDuration": "15s",
            "renewDeadline": "10s",
            "retryPeriod": "2s",
            "resourceLock": "leases",
            "resourceName": "a",
            "resourceNamespace": "b",
        },
        "clientConnection": {
            "kubeconfig": "",
            "acceptContentTypes": "",
            "contentType": "application/json",
            "qps": 50,
            "burst": 100,
        },
        "enableProfiling": True,
        "enableContentionProfiling": True,
        "percentageOfNodesToScore": 0,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 10,
        "delayCacheUntilActive": False,
    },
    "extenders": {
        **_HEAD,
        "extenders": [
            {
                "urlPrefix": "https://127.0.0.1:80/scheduler",
                "filterVerb": "filter",
                "preemptVerb": "preempt",
                "prioritizeVerb": "prioritize",
                "weight": 2,
                "bindVerb": "bind",
                "enableHTTPS": True,
                "tlsConfig": {
                    "insecure": True,
                    "serverName": "a",
                    "certFile": "/a",
                    "keyFile": "/b",
                    "certData": "",
                    "keyData": "",
                    "caData": "",
                },
                "httpTimeout": "5s",
                "nodeCacheCapable": False,
                "managedResources": [{"name": "example.com/foo", "ignoredByScheduler": True}],
                "ignorable": True,
            },
            {"urlPrefix": "http://127.0.0.1:80/other"},
        ],
    },
    "profiles": {
        **_HEAD,
        "profiles": [
            {
                "schedulerName": "s",
                "percentageOfNodesToScore": 5,
                "plugins": {
                    "multiPoint": {"enabled": [{"name": "mine", "weight": 2}]},
                    "score": {
                        "enabled": [{"name": "NodeAffinity", "weight": 3}],
                        "disabled": [{"name": "ImageLocality"}, {"name": "x"}],
                    },
                    "filter": {"enabled": [{"name": "GCEPDLimits"}]},
                    "placementScore": {"enabled": [{"name": "NodeResourcesFit", "weight": 1}]},
                },
                "pluginConfig": [
                    {"name": "mine", "args": {"limit": 1}},
                    {"name": "x"},
                ],
            },
            {"schedulerName": "t", "plugins": {"queueSort": {"disabled": [{"name": "*"}]}}},
        ],
    },
    "runtime": {
        **_RUNTIME_HEAD,
        "metadata": {"name": "n"},
        "limits": {
            "steps": 1_000_000,
            "callDepth": 64,
            "deadline": "1s",
            "memory": "512Mi",
        },
        "failurePolicy": {"score": "Ignore"},
        "fallback": {
            "errorRate": 0.1,
            "latency": "1s",
            "window": "5m",
            "minDecisions": 20,
            "pending": 5,
            "lostTime": "5s",
        },
    },
    "queue_tree": {
        **_RUNTIME_HEAD,
        "kind": "QueueTree",
        "metadata": {"name": "n"},
        "policy": "fair",
        "args": {"limit": 1},
        "queues": {"research": {"weight": 3}, "web": {}},
        "objects": [{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}],
        "namespaces": {"label": "queue", "annotations": "queue/"},
        "unknown": "hold",
        "shares": {"refresh": "100ms"},
        "usage": {"halfLife": "1h", "sampling": "5s"},
        "limits": {"victimsPerMinute": 60, "minRuntime": "5m"},
    },
    "facts": {
        **_RUNTIME_HEAD,
        "facts": {
            "ageStep": "5s",
            "podTypeLabels": ["app"],
            "maxAge": "1m",
            "timeZone": "Europe/Berlin",
            "sources": [
                {"annotations": {"of": "pods", "keys": {"power": "example.com/p"}, "prefix": "a/"}},
                {"file": {"path": "/a"}},
                {"configMap": {"namespace": "a", "name": "b", "key": "c.json"}},
                {
                    "prometheus": {
                        "url": "http://a:9090",
                        "interval": "30s",
                        "timeout": "10s",
                        "queries": [
                            {
                                "fact": "load",
                                "query": "up",
                                "about": "pair",
                                "nodeLabel": "node",
                                "podLabel": "pod",
                                "namespaceLabel": "namespace",
                                "typeLabel": "type",
                                "stripPort": True,
                                "scale": 2,
                            }
                        ],
                    }
                },
                {
                    "podOutcomes": {
                        "fact": "reward",
                        "weight": 0.1,
                        "start": 1.0,
                        "grace": "600s",
                        "forgiven": 0.5,
                        "namespaces": ["a"],
                    }
                },
                {"podDemand": {"fact": "demand", "resources": ["cpu"], "window": 100}},
            ],
        },
    },
    "rollout": {
        **_RUNTIME_HEAD,
        "rollout": {
            "shadow": {"duration": "1m", "compared": 500, "cores": "5%"},
            "canary": {
                "steps": [
                    {"share": "1%", "duration": "2m", "decisions": 50},
                    {"share": 0.05, "duration": "2m", "decisions": 50},
                ],
                "namespaceSelector": {"matchLabels": {"a": "b"}, "matchExpressions": _MATCH},
                "profile": "default-scheduler",
            },
            "gates": {
                "maxMoved": "25%",
                "maxNewlyPending": 0,
                "maxEvictions": 0,
                "errorRate": 0,
                "latency": 2,
                "timeToBind": 2,
                "maxMovedOfClass": 0.25,
                "maxWithoutProfile": 0,
                "maxFitNowhere": 0,
                "maxNodesLost": 0.1,
                "maxReordered": 0.25,
            },
        },
    },
    "tracing": {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "TracingConfiguration",
        "endpoint": "localhost:4317",
        "samplingRatePerMillion": 100,
    },
}
DOCUMENTS.update(
    (
        f"arguments of {plugin}",
        {
            **_HEAD,
            "profiles": [
                {
                    "schedulerName": "s",
                    "plugins": {"multiPoint": {"enabled": [{"name": "mine"}]}},
                    "pluginConfig": [{"name": plugin, "args": arguments}],
                }
            ],
        },
    )
    for plugin, arguments in _PLUGINS.items()
)
#: Texts that are no change of one value.
TEXTS: Final = {
    "nothing": "",
    "two of a kind": "{0}\n---\n{0}".format("{apiVersion: starsched.dev/v1, kind: PolicyRuntime}"),
    "a ConfigMap": "kind: ConfigMap",
    "a close kind": "kind: PolicyRuntimes",
    "a list": "[1]",
    "no YAML": "a: [",
    "a tab": "a:\n\t- b",
    "duplicate fields": (
        "{apiVersion: starsched.dev/v1, kind: PolicyRuntime, limits: {}, limits: {}}"
    ),
    "an odd name": "{apiVersion: starsched.dev/v1, kind: PolicyRuntime, [a]: 1}",
    "one gate without stages": (
        "{apiVersion: starsched.dev/v1, kind: PolicyRuntime, rollout: {gates: {latency: 3}}}"
    ),
    "percentages without signs": (
        "{apiVersion: starsched.dev/v1, kind: PolicyRuntime, rollout: {shadow: {cores: 5},"
        " canary: {steps: [{share: 5%}, {share: 3%}, {share: 70}]}}}"
    ),
    "two reducers of a kind": (
        "{apiVersion: starsched.dev/v1, kind: PolicyRuntime, facts: {sources: ["
        "{podDemand: {}}, {podDemand: {}}, {file: {path: a}}, {fill: {}}]}}"
    ),
    "two binders": (
        f"{{apiVersion: {API_VERSION}, kind: {KIND}, extenders: ["
        "{urlPrefix: 'http://a', bindVerb: a}, {urlPrefix: 'http://b', bindVerb: b,"
        " managedResources: [{name: a/b}, {name: a/b}]}]}"
    ),
    "shares that an extender leaves": (
        f"{{apiVersion: {API_VERSION}, kind: {KIND}, podInitialBackoffSeconds: 20,"
        " leaderElection: {leaseDuration: 5s, renewDeadline: 2.2s, resourceLock: endpoints}}"
    ),
    "arguments that exclude each other": (
        f"{{apiVersion: {API_VERSION}, kind: {KIND}, profiles: [{{pluginConfig: ["
        "{name: PodTopologySpread, args: {defaultConstraints: [{maxSkew: 1, topologyKey: a,"
        " whenUnsatisfiable: ScheduleAnyway, labelSelector: {a: b}}]}},"
        "{name: DefaultPreemption, args: {minCandidateNodesPercentage: 0,"
        " minCandidateNodesAbsolute: 0}},"
        "{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated,"
        " requestedToCapacityRatio: {shape: [{utilization: 10}, {utilization: 5}]}}}},"
        "{name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu, weight: 2},"
        " {name: cpu}]}}, {name: SelectorSpread}, {name: NodeName, args: {a: 1}},"
        "{name: NodeName}]}]}"
    ),
}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _places(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every value in *value*, with its path."""
    if path:
        yield path, value
    inside = value if isinstance(value, dict) else dict(enumerate(_list(value)))
    for key, inner in inside.items():
        yield from _places(inner, (*path, key))


def _changed(document: Any, path: Path_, value: Any) -> Any:
    """A copy of *document* with *value* at *path*."""
    copied = copy.deepcopy(document)
    owner = copied
    for step in path[:-1]:
        owner = owner[step]
    if value is _LEFT_OUT:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    return copied


def _everywhere(document: Any, value: Any) -> Any:
    """*document* with *value* in place of each value that has no parts, but for its kind."""
    if isinstance(document, dict):
        return {
            key: inner if key in ("apiVersion", "kind", "name") else _everywhere(inner, value)
            for key, inner in document.items()
        }
    if isinstance(document, list):
        return [_everywhere(inner, value) for inner in document]
    return value


def _shown(path: Path_) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]


def cases(name: str, document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Documents to read, each with the path of what is changed and the change."""
    below: Path_ = ("profiles", 0, "pluginConfig", 0, "args") if name.startswith("arg") else ()
    for path, value in _places(document):
        # The head is the same in all documents of a kind, and so is what plugins are.
        if path[0] in ("apiVersion", "kind") and name not in ("configuration", "runtime"):
            continue
        if path[: len(below)] != below:
            continue
        for shown, bad in BAD.items():
            yield _shown(path), shown, _changed(document, path, bad)
        yield _shown(path), "left out", _changed(document, path, _LEFT_OUT)
        if isinstance(value, dict):
            first = next(iter(value), "a")
            both = {**value, f"{first}s": 1, "zzz": 1}
            yield _shown(path), "unknown fields", _changed(document, path, both)
    for shown, bad in BAD.items():
        yield "everything", shown, _everywhere(document, bad)


def problems_of(text: str) -> list[Problem]:
    """Those of a file of the kinds that a bundle has, in the order in which they are found."""
    documents = decode_documents({"c.yaml": text})
    problems = list(documents.problems)
    policies: dict[str, PolicyFile] = {**shipped_policies(), "mine": Mine()}
    resolved = build_profiles(documents.configuration, policies)
    names = [profile.scheduler_name for profile in resolved.profiles]
    return [*problems, *resolved.problems, *profile_problems(documents.runtime.rollout, names)]


def tracing_problems_of(text: str) -> list[Problem]:
    """Those of a TracingConfiguration."""
    try:
        decode_tracing_configuration(text)
    except PolicyErrors as errors:
        return errors.problems
    return []


def _lines(problems: list[Problem], path: str = "", value: Any = None) -> str:
    """A line per problem, as reports sort them; `^` stands for *path*, `it` for *value*."""
    lines = []
    for one in sorted(set(problems)):
        is_at = path and one.message.startswith(path)
        text = f"^{one.message.removeprefix(path)}" if is_at else one.message
        text = text.removesuffix(f", got {value}") + ", got it" * text.endswith(f", got {value}")
        hint = f" -- {one.hint}" if one.hint else ""
        lines.append(f"    {one.severity[0]} {one.line}:{one.column} {text}{hint}\n")
    return "".join(lines)


def _golden(name: str, found: str) -> None:
    path = GOLDEN / f"{name.replace(' ', '_')}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(found)
    assert path.read_text() == found


@pytest.mark.slow("reads thousands of documents")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_wrong_value_is_reported_as_before(name: str) -> None:
    document = DOCUMENTS[name]
    reader: Callable[[str], list[Problem]]
    reader = tracing_problems_of if name == "tracing" else problems_of
    always = reader(yaml.safe_dump(document, sort_keys=False))
    usual = {(one.message, one.hint) for one in always}
    by_path: dict[str, dict[str, list[str]]] = {"as it is": {_lines(always): []}}
    shown = {"huge": str(BAD["huge"]), "[]": "a list", "{}": "an object"}
    for path, change, changed in cases(name, document):
        problems = reader(yaml.safe_dump(changed, sort_keys=False))
        others = [one for one in problems if (one.message, one.hint) not in usual]
        if others:
            lines = _lines(others, path, shown.get(change, change))
            by_path.setdefault(path, {}).setdefault(lines, []).append(change)
    found = [
        f"{path}\n" + "".join(f"  {'; '.join(n)}\n{lines}" for lines, n in by_lines.items())
        for path, by_lines in by_path.items()
    ]
    _golden(name, "".join(found))


def test_each_text_is_reported_as_before() -> None:
    _golden("texts", "".join(f"{n}\n{_lines(problems_of(text))}" for n, text in TEXTS.items()))
