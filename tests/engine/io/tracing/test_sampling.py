"""Which pods are traced: a pure choice, of values that any creator of a pod can write."""

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from engine.core.model.pod import Pod
from engine.io.tracing.sampling import (
    ANNOTATION,
    ASKED_PER_SECOND,
    MOST_ASKED_AT_ONCE,
    Context,
    Sampler,
    context_of,
    trace_id_of,
)
from tests.builders import make_pod

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
NOT_SAMPLED = f"00-{TRACE}-{SPAN}-00"


def pod(uid: str = "u", context: str | None = None) -> Pod:
    return make_pod("p", uid=uid, annotations={} if context is None else {ANNOTATION: context})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(SAMPLED, Context(int(TRACE, 16), int(SPAN, 16), True), id="sampled"),
        pytest.param(NOT_SAMPLED, Context(int(TRACE, 16), int(SPAN, 16), False), id="not sampled"),
        pytest.param(
            f"cc-{TRACE}-{SPAN}-03-more", Context(int(TRACE, 16), int(SPAN, 16), True), id="later"
        ),
        pytest.param(f" {SAMPLED}\t", Context(int(TRACE, 16), int(SPAN, 16), True), id="spaces"),
        pytest.param("", None, id="empty"),
        pytest.param(SAMPLED.upper(), None, id="upper case"),
        pytest.param(f"{SAMPLED}-more", None, id="more in version 0"),
        pytest.param(f"ff-{TRACE}-{SPAN}-01", None, id="no version"),
        pytest.param(f"00-{'0' * 32}-{SPAN}-01", None, id="no trace"),
        pytest.param(f"00-{TRACE}-{'0' * 16}-01", None, id="no span"),
        pytest.param(f"00-{TRACE}-{SPAN}-0", None, id="short"),
        pytest.param(f"{SAMPLED}\n", None, id="line break"),
        pytest.param(f"{SAMPLED}\r\nX: y", None, id="a header of its own"),
        pytest.param("00-" + "٣" * 32 + f"-{SPAN}-01", None, id="digits of another script"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01-" + "x" * 1_000, None, id="long"),
    ],
)
def test_a_context_is_what_the_specification_says(text: str, want: Context | None) -> None:
    assert context_of(text) == want


_HEX = st.text("0123456789abcdef", min_size=1, max_size=33)


@given(
    st.one_of(
        st.builds("{}-{}-{}-{}{}".format, _HEX, _HEX, _HEX, _HEX, st.sampled_from(["", "-", "-a"])),
        st.builds(
            "{}-{}-{}-{}{}".format,
            st.sampled_from(["00", "01", "fe", "ff"]),
            st.sampled_from([TRACE, "0" * 32]),
            st.sampled_from([SPAN, "0" * 16]),
            st.sampled_from(["00", "01", "02", "03", "ff"]),
            st.sampled_from(["", "-", "-a", " "]),
        ),
        st.text(max_size=60),
    ).filter(lambda text: "\n" not in text)
)
def test_a_context_is_what_opentelemetry_reads(text: str) -> None:
    read = TraceContextTextMapPropagator().extract({"traceparent": text})
    span = get_current_span(read).get_span_context()
    want = Context(span.trace_id, span.span_id, span.trace_flags.sampled) if span.is_valid else None
    assert context_of(text) == want


def test_about_the_rate_of_the_pods_is_traced_and_always_the_same_ones() -> None:
    rng = random.Random(1)
    pods = [pod(str(uuid.UUID(int=rng.getrandbits(128)))) for _ in range(8_000)]
    one, other = Sampler(10_000), Sampler(10_000)
    chosen = [p.uid for p in pods if one.choose(p, lambda: 0.0)]
    assert 50 < len(chosen) < 110
    assert chosen == [p.uid for p in reversed(pods) if other.choose(p, lambda: 5.0)][::-1]


@pytest.mark.parametrize(("rate", "want"), [(0, 0), (1_000_000, 500)])
def test_none_and_all_are_rates(rate: int, want: int) -> None:
    sampler = Sampler(rate)
    assert sum(sampler.choose(pod(f"pod-{i}"), lambda: 0.0) is not None for i in range(500)) == want


def test_a_trace_of_its_own_has_the_id_that_follows_from_the_uid() -> None:
    assert Sampler(1_000_000).choose(pod("a"), lambda: 0.0) == Context(trace_id_of("a"), 0, True)
    assert trace_id_of("a") != trace_id_of("b")
    assert trace_id_of("\ud800")  # half a character: JSON can hold it


def test_the_trace_that_a_pod_was_created_in_decides() -> None:
    """As for kube-apiserver and the kubelet: the rate is for what has no parent."""
    assert Sampler(0).choose(pod(context=SAMPLED), lambda: 0.0) == context_of(SAMPLED)
    assert Sampler(1_000_000).choose(pod(context=NOT_SAMPLED), lambda: 0.0) is None


def test_an_invalid_context_counts_as_none() -> None:
    sampler = Sampler(1_000_000)
    assert sampler.choose(pod("a", "nonsense"), lambda: 0.0) == Context(trace_id_of("a"), 0, True)
    assert sampler.ignored == {"limited": 0, "invalid": 1}
    assert Sampler(0).choose(pod("a", "nonsense"), lambda: 0.0) is None


def test_pods_that_ask_for_their_trace_are_limited() -> None:
    sampler = Sampler(0)
    asked = [sampler.choose(pod(f"pod-{i}", SAMPLED), lambda: 7.0) for i in range(1_000)]
    assert sum(context is not None for context in asked) == MOST_ASKED_AT_ONCE
    assert sampler.ignored["limited"] == 1_000 - MOST_ASKED_AT_ONCE
    later = [sampler.choose(pod(f"pod-{i}", SAMPLED), lambda: 8.0) for i in range(1_000)]
    assert sum(context is not None for context in later) == ASKED_PER_SECOND


def test_pods_beyond_the_limit_are_sampled_by_their_own_id() -> None:
    """Not by the id in the annotation: its writer could choose one that is sampled."""
    sampler = Sampler(10_000)
    chosen = [
        sampler.choose(pod(f"pod-{i}", f"00-{1:032x}-{SPAN}-01"), lambda: 0.0) for i in range(5_000)
    ]
    own = [context for context in chosen[200:] if context is not None]
    assert len(own) < 100
    assert all(context.trace_id != 1 for context in own)
