"""The configuration documents: what is accepted, what is refused, and with which words."""

import json
from datetime import timedelta
from typing import Any

import pytest
import yaml

from engine.language.hooks import PLUGIN_SETS
from engine.policy.config import (
    PLACEMENT_SETS,
    KubeSchedulerConfiguration,
    PolicyRuntime,
    decode_configuration,
    decode_documents,
)
from engine.policy.errors import PolicyErrors

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
RUNTIME = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n"


def _problems(text: str) -> list[str]:
    """Messages without the file's name."""
    documents = decode_documents({"c.yaml": text})
    return [str(problem).removeprefix("c.yaml:") for problem in documents.problems]


def _runtime(text: str) -> PolicyRuntime:
    documents = decode_documents({"r.yaml": RUNTIME + text})
    assert not documents.problems, documents.problems
    return documents.runtime


def test_the_defaults_are_kube_schedulers() -> None:
    config = decode_configuration(HEAD)
    assert (config.parallelism, config.percentage_of_nodes_to_score) == (16, 0)
    assert (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds) == (1, 10)
    assert config.leader_election == KubeSchedulerConfiguration().leader_election
    assert config.leader_election.lease_duration == timedelta(seconds=15)
    assert (config.client_connection.qps, config.client_connection.burst) == (50.0, 100)
    assert config.profiles == ()


def test_every_field_of_kube_scheduler_is_known() -> None:
    document: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "parallelism": 4,
        "leaderElection": {
            "leaderElect": False,
            "leaseDuration": "1m30s",
            "renewDeadline": "500ms",
            "retryPeriod": "100ms",
            "resourceLock": "leases",
            "resourceName": "n",
            "resourceNamespace": "ns",
        },
        "clientConnection": {
            "kubeconfig": "/k",
            "acceptContentTypes": "",
            "contentType": "application/json",
            "qps": 5000,
            "burst": 5000,
        },
        "enableProfiling": False,
        "enableContentionProfiling": False,
        "percentageOfNodesToScore": 50,
        "podInitialBackoffSeconds": 2,
        "podMaxBackoffSeconds": 20,
        "delayCacheUntilActive": True,
        "extenders": [
            {
                "urlPrefix": "http://x",
                "filterVerb": "filter",
                "prioritizeVerb": "score",
                "weight": 2,
                "httpTimeout": "2s",
                "managedResources": [{"name": "x/y", "ignoredByScheduler": True}],
            }
        ],
        "profiles": [
            {
                "schedulerName": "a",
                "percentageOfNodesToScore": 10,
                "plugins": {
                    point: {"enabled": [{"name": "X", "weight": 1}], "disabled": [{"name": "*"}]}
                    for point in (*PLUGIN_SETS, "multiPoint", *PLACEMENT_SETS)
                },
                "pluginConfig": [{"name": "X", "args": {"a": 1}}],
            }
        ],
    }
    documents = decode_documents({"c.yaml": yaml.safe_dump(document)})
    assert not documents.problems
    config = documents.configuration
    assert config is not None
    assert config.leader_election.lease_duration == timedelta(seconds=90)
    assert config.client_connection.qps == 5000.0
    assert config.profiles[0].percentage_of_nodes_to_score == 10
    assert config.delay_cache_until_active


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("parallelism: 0", "3:14: parallelism: should be an integer value greater than zero"),
        ("parallelism: many", '3:14: parallelism: want an int, got "many"'),
        ("parallelism: true", "3:14: parallelism: want an int, got true"),
        ("parallelism: 1.5", "3:14: parallelism: want an int, got 1.5"),
        (
            "percentageOfNodesToScore: 101",
            "3:27: percentageOfNodesToScore: not in valid range [0-100]",
        ),
        ("podInitialBackoffSeconds: 0", "3:27: podInitialBackoffSeconds: must be greater than 0"),
        (
            "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4",
            "4:23: podMaxBackoffSeconds: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        (
            "podInitialBackoffSeconds: 11",
            "3:27: podInitialBackoffSeconds: want at most podMaxBackoffSeconds, which is 10 "
            "unless it is given, got 11",
        ),
        (
            "leaderElection: {resourceLock: endpoints}",
            '3:32: leaderElection.resourceLock: resourceLock value must be "leases"',
        ),
        (
            "leaderElection: {resourceName: A B}",
            "3:32: leaderElection.resourceName: want a name of at most 253 lower-case letters, "
            "digits, `-` and `.`, the first and the last of them a letter or digit, "
            'got "A B"',
        ),
        (
            "leaderElection: {resourceNamespace: a.b}",
            "3:37: leaderElection.resourceNamespace: want a name of at most 63 lower-case letters, "
            "digits and `-`, the first and the last of them a letter or digit, "
            'got "a.b"',
        ),
        ("profiles: [null]", "3:12: profiles[0]: want an object, got null"),
        (
            "leaderElection: {leaseDuration: 5s}",
            "3:33: leaderElection.leaseDuration: LeaseDuration must be greater than RenewDeadline",
        ),
        (  # kube-scheduler says so once it is to wait for the lease
            "leaderElection: {retryPeriod: 9s}",
            "3:31: leaderElection.retryPeriod: RenewDeadline (10s) must be greater than "
            "1.2 times RetryPeriod, got 9s",
        ),
        (
            "leaderElection: {renewDeadline: 2400ms}",
            "3:33: leaderElection.renewDeadline: RenewDeadline (2.4s) must be greater than "
            "1.2 times RetryPeriod, got 2s",
        ),
        (
            "leaderElection: {leaseDuration: soon}",
            '3:33: leaderElection.leaseDuration: want a duration such as `15s`, got "soon"',
        ),
        ("leaderElection: 3", "3:17: leaderElection: want an object, got 3"),
        ("profiles: {}", "3:11: profiles: want a list, got an object"),
        ("paralelism: 3", "3:13: paralelism: unknown field\nhint: did you mean `parallelism`?"),
        (r'"a\e[31m": 3', r"3:12: a\x1b[31m: unknown field"),
        ("Parallelism: 3", "3:14: Parallelism: unknown field\nhint: did you mean `parallelism`?"),
        ("parallelism: 3\nparallelism: 4", "4:1: parallelism: duplicate field"),
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]",
            '3:48: profiles[1].schedulerName: duplicate value "a", given before at '
            "profiles[0].schedulerName",
        ),
        ("profiles: [{schedulerName: a}, {}]", "3:32: profiles[1]: schedulerName: required value"),
        (
            "profiles: [{percentageOfNodesToScore: -1}]",
            "3:39: profiles[0].percentageOfNodesToScore: not in valid range [0-100]",
        ),
        (
            'profiles: [{plugins: {score: {enabled: [{name: a}, {name: b, weight: "high"}]}}}]',
            "3:70: profiles[0].plugins.score.enabled[1].weight: want an int of at least 1, "
            'got "high"',
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: a, weight: -2}]}}}]",
            "3:59: profiles[0].plugins.score.enabled[0].weight: want an int of at least 1, got -2",
        ),
        (
            "profiles: [{plugins: {scores: {}}}]",
            "3:31: profiles[0].plugins.scores: unknown field\nhint: did you mean `score`?",
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}]}}}]",
            '3:49: profiles[0].plugins.filter.enabled[0].name: "EBSLimits" was invalid in version '
            '"kubescheduler.config.k8s.io/v1" (KubeSchedulerConfiguration is version '
            '"kubescheduler.config.k8s.io/v1")',
        ),
        (
            "profiles: [{pluginConfig: [{name: a}, {name: a, args: {}}, {name: a, args: {}}]}]",
            "3:67: profiles[0].pluginConfig[2].name: repeated config for plugin a",
        ),
        # A tag that the text gives itself says what its constructor would take for granted.
        ('parallelism: !!int ""', "3:14: parallelism: want an int, got null"),
        (
            "enableProfiling: !!bool no!",
            "3:18: enableProfiling: want true or false, got no!",
        ),
        (
            "clientConnection: {qps: !!timestamp now}",
            "3:25: clientConnection.qps: want a number, got now",
        ),
        (
            f"clientConnection: {{qps: 0x{'f' * 300}}}",
            f"3:25: clientConnection.qps: want a number, got 0x{'f' * 95}...",
        ),
        (
            f"clientConnection: {{qps: 1{':59' * 20_000}.5}}",
            f"3:25: clientConnection.qps: want a number, got 1{':59' * 32}...",
        ),
        (
            "extenders: [{filterVerb: f}]",
            "3:13: extenders[0]: urlPrefix: required value",
        ),
    ],
)
def test_what_is_wrong_is_reported_with_its_path_and_place(text: str, want: str) -> None:
    assert want in _problems(HEAD + text)


@pytest.mark.parametrize("name", ["my scheduler", "a\x1b[31m", "n" * 300, "a/b/c", "-"])
def test_a_scheduler_name_that_no_event_can_have_is_refused(name: str) -> None:
    """The events about the pods of that profile were refused by the API server, all of them."""
    (problem,) = _problems(f"{HEAD}profiles: [{{schedulerName: {json.dumps(name)}}}]")
    assert problem.startswith(
        "3:28: profiles[0].schedulerName: want `[prefix/]name`, as the API server does of the "
        "reportingController of an event: a name of at most 63 letters"
    )


def test_zero_weight_counts_as_none() -> None:
    config = decode_configuration(
        HEAD + "profiles: [{plugins: {score: {enabled: [{name: a, weight: 0}]}}}]"
    )
    assert config.profiles[0].plugins["score"].enabled[0].weight == 0


def test_all_problems_come_at_once() -> None:
    text = HEAD + "a: 1\nb: 2\nparallelism: 0\nleaderElection: {c: 3}\n"
    assert len(_problems(text)) == 4
    with pytest.raises(PolicyErrors) as caught:
        decode_configuration(text, "c.yaml")
    assert len(caught.value.problems) == 4


@pytest.mark.slow("computes for long")
@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [", "not YAML", id="cut off"),
        pytest.param(
            "a:\n\t- b",
            "not YAML: found character '\\t' that cannot start any token\n"
            "hint: indent with spaces: YAML takes no tabs",
            id="tabs",
        ),
        pytest.param("a: &x [*x]", "not YAML: nested too deep", id="a list in itself"),
        pytest.param("a: " + "[" * 5000 + "]" * 5000, "not YAML", id="too deep"),
        pytest.param("3", "want an object, got 3", id="a number"),
        pytest.param(
            "a: 1",
            "want kind `KubeSchedulerConfiguration`, `PolicyRuntime` or `QueueTree`, got none",
            id="no kind",
        ),
        pytest.param(
            "kind: KubeSchedulerConfig", "did you mean `KubeSchedulerConfiguration`?", id="nearly"
        ),
        pytest.param(
            "kind: Node",
            'got "Node"\nhint: other files lie elsewhere; what tests read may have a name that '
            "ends in `_test.yaml`",
            id="a manifest beside the policies",
        ),
        pytest.param(
            "kind: ConfigMap",
            'got "ConfigMap"\nhint: its keys are policy files: check those, as files of a',
            id="policies in a ConfigMap",
        ),
        pytest.param("? [1]\n: 2", "want a name, got a list or an object", id="a list as key"),
        pytest.param(
            'parallelism: "\\ud800"',
            "not YAML: half a character (a lone surrogate)",
            id="half a character",
        ),
        pytest.param("x" * 300_000, "want at most 262,144 characters", id="too long"),
        pytest.param(
            "\n".join(
                ["a: &a [x, x, x, x, x, x, x, x, x]"]
                + [
                    f"{n}: &{n} [{', '.join([f'*{p}'] * 9)}]"
                    for p, n in zip("abcdef", "bcdefg", strict=True)
                ]
            ),
            "its aliases repeat too much",
            id="a bomb of aliases",
        ),
    ],
)
def test_text_that_is_no_document(text: str, want: str) -> None:
    assert any(want in problem for problem in _problems(text))


def test_the_api_version_must_be_right() -> None:
    (problem,) = _problems(HEAD.replace("/v1", "/v1beta3"))
    assert problem == (
        "1:13: apiVersion: want apiVersion `kubescheduler.config.k8s.io/v1`, "
        'got "kubescheduler.config.k8s.io/v1beta3"'
    )


def test_a_second_document_of_a_kind_is_refused() -> None:
    documents = decode_documents({"a.yaml": HEAD, "b.yaml": RUNTIME + "---\n" + HEAD})
    (problem,) = documents.problems
    assert str(problem) == "b.yaml:4:1: a second document of this kind; the first is a.yaml:1"


def test_json_and_empty_documents_are_read() -> None:
    documents = decode_documents(
        {
            "c.yaml": '{"apiVersion": "starsched.dev/v1", "kind": "PolicyRuntime"}',
            "e.yaml": "# no\n",
            # As many tools write it: what follows the last mark is a document without anything.
            "f.yaml": f"---\n{HEAD}---\n# no more\n---\n",
        }
    )
    assert not documents.problems
    assert documents.runtime == PolicyRuntime()
    assert documents.configuration is not None


def test_dates_are_text_as_for_kubernetes() -> None:
    text = HEAD + "leaderElection: {resourceName: 2024-01-01}\n"
    config = decode_configuration(text)
    assert config.leader_election.resource_name == "2024-01-01"


# --- PolicyRuntime ---------------------------------------------------------------------------


def test_a_runtime_sets_limits_and_failure_policy() -> None:
    runtime = _runtime(
        "limits: {steps: 10000, callDepth: 20, deadline: 500ms, memory: 256Mi}\n"
        "failurePolicy: {score: Ignore}\n"
        "fallback: {errorRate: 0.5, latency: 20ms, window: 1m, minDecisions: 5, lostTime: 9s,\n"
        "           pending: 7}\n"
    )
    assert runtime.limits.steps == 10_000
    assert runtime.limits.call_depth == 20
    assert runtime.limits.deadline == 0.5
    assert runtime.limits.address_space == 256 << 20
    assert runtime.score_failure_policy == "Ignore"
    assert runtime.fallback.error_rate == 0.5
    assert runtime.fallback.latency == timedelta(milliseconds=20)
    assert runtime.fallback.lost_time == timedelta(seconds=9)
    assert runtime.fallback.pending == 7


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("limits: {steps: 1}", "limits.steps: want an int in 1000..10000000000, got 1"),
        (
            "limits: {memory: 1Mi}",
            'limits.memory: want an amount of memory in 128Mi..64Gi, got "1Mi"',
        ),
        (
            "limits: {memory: lots}",
            'limits.memory: want an amount of memory in 128Mi..64Gi, got "lots"',
        ),
        ("limits: {deadline: 1h}", 'limits.deadline: want a duration in 10ms..60s, got "1h"'),
        ("limits: {depth: 3}", "limits.depth: unknown field"),
        (
            "failurePolicy: {score: ignore}",
            'failurePolicy.score: want one of `Fail`, `Ignore`, got "ignore"\n'
            "hint: did you mean `Ignore`?",
        ),
        (
            "fallback: {errorRate: 2}",
            "fallback.errorRate: want a number above 0 and at most 1, got 2",
        ),
        ("fallback: {errorRate: .nan}", "fallback.errorRate: want a number, got .nan"),
        ("fallback: {window: -1s}", 'fallback.window: want a duration above 0, got "-1s"'),
        ("fallback: {lostTime: 0s}", 'fallback.lostTime: want a duration above 0, got "0s"'),
        ("fallback: {latency: 0ms}", 'fallback.latency: want a duration above 0, got "0ms"'),
        ("failurePolicy: {filter: Ignore}", "failurePolicy.filter: unknown field"),
    ],
)
def test_what_is_wrong_in_a_runtime(text: str, want: str) -> None:
    (problem,) = _problems(RUNTIME + text)
    assert want in problem
