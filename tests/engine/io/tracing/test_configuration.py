"""The file of `--tracing-config-file`, which kube-apiserver takes too."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.io.tracing.configuration import TracingConfiguration, decode_tracing_configuration
from engine.policy.errors import PolicyErrors
from tests.searching import examples

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(HEAD, TracingConfiguration("localhost:4317", 0), id="the least"),
        pytest.param(
            f"{HEAD}endpoint: otel.observability:4317\nsamplingRatePerMillion: 10000\n",
            TracingConfiguration("otel.observability:4317", 10_000),
            id="both",
        ),
        pytest.param(
            f"{HEAD}samplingRatePerMillion: 1000000\n".replace("/v1\n", "/v1beta1\n"),
            TracingConfiguration("localhost:4317", 1_000_000),
            id="beta",
        ),
        pytest.param(f"{HEAD}endpoint: ''\n", TracingConfiguration(), id="empty endpoint"),
        pytest.param(f"{HEAD}endpoint: null\n", TracingConfiguration(), id="null"),
        pytest.param(
            f"{HEAD}endpoint: dns:///otel:4317\n", TracingConfiguration("otel:4317"), id="dns"
        ),
        pytest.param(
            f'{HEAD}endpoint: "[::1]:4317"\n', TracingConfiguration("[::1]:4317"), id="IPv6"
        ),
        pytest.param(
            f"{HEAD}endpoint: unix:///run/otel.sock\n",
            TracingConfiguration("unix:///run/otel.sock"),
            id="socket",
        ),
        pytest.param(
            '{"kind": "TracingConfiguration", "apiVersion": "apiserver.config.k8s.io/v1alpha1"}',
            TracingConfiguration(),
            id="JSON, alpha",
        ),
    ],
)
def test_what_kube_apiserver_takes_is_taken(text: str, want: TracingConfiguration) -> None:
    assert decode_tracing_configuration(text, "t.yaml") == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", "t.yaml: want a `TracingConfiguration`, found none", id="empty"),
        pytest.param("[]", "t.yaml:1:1: want an object, got a list", id="list"),
        pytest.param("kind: [", "t.yaml:1:8: not YAML", id="not YAML"),
        pytest.param(
            HEAD.replace("Tracing", "Trace"),
            't.yaml:2:7: kind: want `TracingConfiguration`, got "TraceConfiguration"\n'
            "hint: did you mean `TracingConfiguration`?",
            id="kind",
        ),
        pytest.param(
            HEAD.replace("/v1", "/v2"),
            "t.yaml:1:13: apiVersion: want `apiserver.config.k8s.io/v1` or",
            id="version",
        ),
        pytest.param(
            "kind: TracingConfiguration\n", "apiVersion: want `apiserver.config.k8s.io/v1`", id="no"
        ),
        pytest.param(
            f"{HEAD}samplingRatePerMilion: 5\n",
            "t.yaml:3:24: samplingRatePerMilion: unknown field\n"
            "hint: did you mean `samplingRatePerMillion`?",
            id="misspelt",
        ),
        pytest.param(
            f"{HEAD}samplingRatePerMillion: 1000001\n",
            "t.yaml:3:25: samplingRatePerMillion: want an int in 0..1000000, got 1000001",
            id="too many",
        ),
        pytest.param(
            f"{HEAD}samplingRatePerMillion: -1\n", "want an int in 0..1000000, got -1", id="below 0"
        ),
        pytest.param(
            f"{HEAD}samplingRatePerMillion: 0.01\n", "in 0..1000000, got 0.01", id="a share"
        ),
        pytest.param(f"{HEAD}samplingRatePerMillion: '5'\n", 'got "5"', id="text"),
        pytest.param(
            f"{HEAD}endpoint: http://otel:4318/v1/traces\n",
            "t.yaml:3:11: endpoint: want `HOST:PORT`, `dns:///HOST:PORT` or `unix:///PATH`, "
            'got "http://otel:4318/v1/traces"\n'
            "hint: spans are sent by OTLP over gRPC, without TLS; a collector listens for it on "
            "4317",
            id="HTTP",
        ),
        pytest.param(f"{HEAD}endpoint: unix://otel.sock\n", "got ", id="relative socket"),
        pytest.param(f"{HEAD}endpoint: otel\n", 'got "otel"', id="no port"),
        pytest.param(f"{HEAD}endpoint: otel:70000\n", 'got "otel:70000"', id="port"),
        pytest.param(f"{HEAD}endpoint: otel:0\n", 'got "otel:0"', id="port 0"),
        pytest.param(f"{HEAD}endpoint: dns://8.8.8.8/otel:4317\n", "got ", id="a server of names"),
        pytest.param(f"{HEAD}endpoint: 4317\n", "endpoint: want a string, got 4317", id="int"),
        pytest.param(f"{HEAD}endpoint: [a]\n", "endpoint: want a string, got a list", id="list in"),
        pytest.param(f"{HEAD}---\n{HEAD}", "t.yaml:4:1: want one `TracingConfiguration`", id="two"),
        pytest.param(f"{HEAD}kind: Other\n", "t.yaml:3:1: kind: duplicate field", id="twice"),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_value(text: str, want: str) -> None:
    with pytest.raises(PolicyErrors) as caught:
        decode_tracing_configuration(text, "t.yaml")
    assert want in str(caught.value)


def test_mistakes_are_reported_together() -> None:
    with pytest.raises(PolicyErrors) as caught:
        decode_tracing_configuration("endpoint: x\nsamplingRatePerMillion: y\nz: 1\n", "t.yaml")
    assert len(caught.value.problems) == 5


@settings(max_examples=examples(30))
@given(st.text(max_size=80))
def test_any_text_is_a_configuration_or_a_reported_mistake(text: str) -> None:
    for whole in (text, f"{HEAD}endpoint: {text}", f"{HEAD}samplingRatePerMillion: {text}"):
        with contextlib.suppress(PolicyErrors):
            found = decode_tracing_configuration(whole, "t.yaml")
            assert 0 <= found.sampling_rate_per_million <= 1_000_000
            assert "4317" in found.endpoint or whole is not text
