"""The `facts` of a PolicyRuntime: what is understood, and what is refused with its place."""

from datetime import timedelta

import pytest

from engine.policy.bundle import build_bundle
from engine.policy.config import decode_configuration, decode_documents
from engine.policy.errors import PolicyErrors
from engine.policy.fact_config import (
    AnnotationFacts,
    ConfigMapFacts,
    FactQuery,
    FactsConfig,
    FileFacts,
    PodDemand,
    PodOutcomes,
    PrometheusFacts,
)
from tests.policies.doc_tables import DOCS

HEAD = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nfacts:\n"
SECOND = timedelta(seconds=1)


def _read(text: str) -> tuple[FactsConfig, list[str]]:
    lines = "".join(f"  {line}\n" for line in text.strip("\n").split("\n"))
    documents = decode_documents({"x.yaml": HEAD + lines})
    return documents.runtime.facts, [p.message for p in documents.problems]


def test_without_facts_there_are_none() -> None:
    assert decode_documents({}).runtime.facts == FactsConfig()


def test_every_source_is_read_in_order() -> None:
    facts, problems = _read(
        """
ageStep: 10s
maxAge: 1m
podTypeLabels: [kind]
sources:
  - annotations: {of: pods, keys: {load: cpu-load}, prefix: x/}
  - file: {path: /a.json}
  - configMap: {namespace: n, name: m, key: k.json}
  - prometheus:
      url: http://p:9090/
      interval: 15s
      timeout: 5s
      queries:
        - {fact: load, query: up, about: pair, nodeLabel: i, typeLabel: t, stripPort: true,
           scale: 2}
  - podOutcomes: {fact: r, weight: 0.5, start: 0, grace: 1m, forgiven: 0.25, namespaces: [a]}
  - podDemand: {fact: d, resources: [cpu], window: 10}
"""
    )
    assert problems == []
    query = FactQuery(
        "load", "up", "pair", node_label="i", type_label="t", strip_port=True, scale=2.0
    )
    assert facts == FactsConfig(
        sources=(
            AnnotationFacts("pods", {"load": "cpu-load"}, "x/"),
            FileFacts("/a.json"),
            ConfigMapFacts("n", "m", "k.json"),
            PrometheusFacts("http://p:9090", 15 * SECOND, 5 * SECOND, (query,)),
            PodOutcomes("r", 0.5, 0.0, 60 * SECOND, 0.25, ("a",)),
            PodDemand("d", ("cpu",), 10),
        ),
        age_step=10 * SECOND,
        pod_type_labels=("kind",),
        max_age=60 * SECOND,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "ageStep: 500ms", "facts.ageStep: want a duration of whole seconds", id="step"
        ),
        pytest.param(
            "maxAge: 1s", "facts.maxAge: want a duration of at least `ageStep`", id="max age"
        ),
        pytest.param(
            "sources: [{redis: {}}]",
            "facts.sources[0]: want an object with one of `annotations`",
            id="unknown source",
        ),
        pytest.param(
            "sources: [{file: {path: /a}, podDemand: {}}]",
            "facts.sources[0]: want an object with one of",
            id="two in one",
        ),
        pytest.param(
            "sources: [{annotations: {}}]",
            "facts.sources[0].annotations: want `keys` or `prefix`",
            id="no annotation",
        ),
        pytest.param(
            'sources: [{annotations: {keys: {"a b": x}}}]',
            "facts.sources[0].annotations.keys.a b: want a name of letters",
            id="a fact's name",
        ),
        pytest.param(
            "sources: [{file: {path: a.json}}]",
            'facts.sources[0].file.path: want an absolute path, got "a.json"',
            id="relative path",
        ),
        pytest.param(
            "sources: [{configMap: {name: m}}]",
            "facts.sources[0].configMap: namespace: required value",
            id="no namespace",
        ),
        pytest.param(
            "sources: [{podOutcomes: {}}, {podOutcomes: {fact: x}}]",
            "facts.sources: want at most one `podOutcomes`",
            id="two reducers",
        ),
        pytest.param(
            "sources: [{podOutcomes: {weight: 2}}]",
            "facts.sources[0].podOutcomes.weight: want a number above 0 and at most 1, got 2",
            id="weight",
        ),
        pytest.param(
            "sources: [{file: {path: /a, token: x}}]",
            "facts.sources[0].file.token: unknown field",
            id="unknown field",
        ),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(text: str, problem: str) -> None:
    _, problems = _read(text)
    assert any(found.startswith(problem) for found in problems), problems


def test_an_unknown_time_zone_is_reported_with_the_nearest_name() -> None:
    text = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nfacts:\n  timeZone: europe/berln\n"
    (problem,) = decode_documents({"runtime.yaml": text}).problems
    assert str(problem) == (
        "runtime.yaml:4:13: facts.timeZone: want the name of a time zone, such as `Europe/Berlin`, "
        'got "europe/berln"\nhint: did you mean `Europe/Berlin`?'
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [("1e-6", 1e-6), ("1E3", 1000.0), ("+2.e+3", 2000.0), ("-.5e1", -5.0), ("1.5e-2", 0.015)],
)
def test_numbers_are_read_as_kubernetes_reads_them(text: str, want: float) -> None:
    """To YAML 1.1 most of these are text: a scale of `1e-6` was refused as one."""
    queries = f"{{fact: f, query: q, scale: {text}}}"
    config, problems = _read(
        f"sources: [{{prometheus: {{url: 'http://p', queries: [{queries}]}}}}]"
    )
    assert problems == []
    (source,) = config.sources
    assert isinstance(source, PrometheusFacts)
    assert source.queries[0].scale == want


def test_a_number_without_an_end_is_none() -> None:
    query = "{fact: f, query: q, scale: 1e999}"
    _, problems = _read(f"sources: [{{prometheus: {{url: 'http://p', queries: [{query}]}}}}]")
    assert [p.partition(": ")[2] for p in problems] == ["want a number, got 1e999"]


@pytest.mark.parametrize(
    "url",
    [
        "p:9090",
        "ftp://p",
        "http://",
        "http://u:secret@p",
        "http://secret@p",
        "http://:secret@p",
        "http://p:x",
        "http://p/?a=1",
        "file:///a",
    ],
)
def test_an_address_is_plain_http_without_secrets(url: str) -> None:
    queries = "queries: [{fact: x, query: up}]"
    _, problems = _read(f"sources: [{{prometheus: {{url: '{url}', {queries}}}}}]")
    assert [p for p in problems if p.startswith("facts.sources[0].prometheus.url: want")]
    assert "secret" not in str(problems)


def test_the_document_on_facts_shows_a_configuration_that_works() -> None:
    text = (DOCS / "facts.md").read_text()
    (block,) = [b.split("```")[0] for b in text.split("```yaml\n")[1:] if "ageStep" in b]
    documents = decode_documents({"x.yaml": block})
    assert documents.problems == ()
    assert len(documents.runtime.facts.sources) == 6


def test_the_policy_of_the_document_on_facts_works() -> None:
    from engine.policy.bundle import build_bundle
    from engine.testing.runner import describe, discover, run_tests

    text = (DOCS / "facts.md").read_text()
    policy = text.split("```python\n")[1].split("```")[0]
    test = '''"""Tests for load.star."""

load("@std/testing.star", "asserts", "cluster", "make_fact", "make_node", "make_pod")

def _node(name, value, age):
    return make_node(name, facts = {"cpu_load": make_fact(value, age_seconds = age)})

def test_the_loads():
    nodes = cluster(_node("a", 30, 10), _node("b", 30, 121), make_node("c"), _node("d", "x", 1))
    asserts.scores(nodes, make_pod(), {"a": 70, "b": 50, "c": 50, "d": 50})

def test_a_load_without_a_time_of_measurement():
    asserts.scores(cluster(_node("e", 30, None)), make_pod(), {"e": 50})
'''
    bundle = build_bundle({"load.star": policy, "load_test.star": test})
    assert [describe(r) for r in run_tests(bundle, discover(bundle)) if not r.passed] == []


PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint: {enabled: [{name: heat}]}
"""
READER = "def score(pod, node):\n    return 1 if node.facts['heat'] or node.facts['load'] else 0\n"


@pytest.mark.parametrize(
    ("sources", "is_given"),
    [
        pytest.param("[]", False, id="none"),
        pytest.param("[{annotations: {keys: {cold: c}}}]", False, id="other annotations"),
        pytest.param("[{annotations: {keys: {heat: h}}}]", True, id="an annotation"),
        pytest.param("[{annotations: {prefix: x/}}]", True, id="annotations of any name"),
        pytest.param("[{configMap: {namespace: a, name: b}}]", True, id="a document"),
        pytest.param("[{file: {path: /x.json}}]", True, id="a file"),
        pytest.param("[{podOutcomes: {}}]", False, id="what is learned, of another name"),
        pytest.param("[{podOutcomes: {fact: heat}}]", True, id="what is learned"),
        pytest.param("[{podDemand: {fact: heat}}]", False, id="the mean of something"),
        pytest.param(
            "[{prometheus: {url: 'http://p', queries: [{fact: load, query: q}]}}]",
            True,
            id="one of two",
        ),
    ],
)
def test_facts_that_no_source_gives_are_reported(sources: str, is_given: bool) -> None:
    """The policy decided as if nothing were known, and neither `check` nor `explain` said why."""
    runtime = HEAD.replace("facts:\n", f"facts: {{sources: {sources}}}\n")
    files = {"heat.star": READER, "profile.yaml": f"{PROFILE}---\n{runtime}"}
    assert [str(warning) for warning in build_bundle(files).warnings] == (
        []
        if is_given
        else [
            "heat.star: `heat` reads facts that no source gives: `heat`, `load`\n"
            "hint: `facts.sources` of a `PolicyRuntime` says where they come from"
        ]
    )


def test_a_shipped_policy_without_its_facts_is_reported_where_it_is_enabled() -> None:
    files = {"profile.yaml": PROFILE.replace("heat", "Congestion")}
    (warning,) = build_bundle(files).warnings
    assert str(warning).startswith("profile.yaml: `Congestion` reads facts that no source")


def test_a_runtime_next_to_the_configuration_of_the_command_line_counts() -> None:
    """It was read, and forgotten: the facts that it names were None for ever."""
    runtime = HEAD.replace("facts:\n", "facts: {sources: [{annotations: {prefix: x/}}]}\n")
    given = decode_configuration(f"{PROFILE}---\n{runtime}", "given.yaml")
    bundle = build_bundle({"heat.star": READER}, given)
    assert bundle.runtime.facts.sources == (AnnotationFacts(prefix="x/"),)
    assert bundle.warnings == ()
    with pytest.raises(PolicyErrors) as caught:
        build_bundle({"heat.star": READER, "runtime.yaml": runtime}, given)
    assert [str(problem) for problem in caught.value.problems] == [
        "given.yaml:1:1: a `PolicyRuntime` is among the policies too: want one of them"
    ]


def test_policies_without_a_configuration_may_get_their_facts_elsewhere() -> None:
    assert build_bundle({"heat.star": READER}).warnings == ()
