"""Worlds full of faults whose schedulers trace: the same seed gives the same spans.

Run as a program it writes the world of a seed as JSON.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from devkit.faults import world as worlds
from devkit.faults.story import simulated
from engine.app import App
from engine.io.kube.client import ApiClient
from engine.io.tracing.pod_traces import Tracing
from engine.io.tracing.sampling import Sampler
from engine.telemetry.spans import Span
from tests.devkit.faults.test_world import PLAN, told


class Kept(NamedTuple):
    """A span without what leads to its process, which may be killed."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    began: float
    ended_at: float
    attributes: str


class Sink:
    """The spans of one process."""

    def __init__(self) -> None:
        self.spans: list[Kept] = []

    def emit(self, span: Span) -> None:
        ids = span.trace.trace_id, span.span_id, span.parent_id
        kept = Kept(span.name, *ids, span.began, span.ended_at, str(span.attributes))
        self.spans.append(kept)

    def close(self, seconds: float) -> None:
        pass

    @property
    def outcomes(self) -> Mapping[str, int]:
        return {}


def write(seed: int) -> None:
    """Write the world of *seed*, with half of its pods traced, and the spans of each process."""
    sinks: list[Sink] = []

    def make(client: ApiClient, **words: Any) -> App:
        sinks.append(Sink())
        rng = random.Random(f"{seed}-{len(sinks)}")
        tracing = Tracing(Sampler(500_000), sinks[-1], clock=words["clock"], rng=rng)
        return App(client, tracing=tracing, **words)

    with patch.object(worlds, "App", make):
        outcome = simulated(replace(PLAN, seed=seed, seconds=8.0))
    processes = [sink.spans for sink in sinks]
    print(json.dumps([outcome.digest, told(outcome) * bool(outcome.violations), processes]))


def traced(seed: int, hash_seed: str) -> tuple[str, str, list[list[Kept]]]:
    """Digest, violations and spans by process, of a world in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.devkit.faults.test_traced", str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        timeout=300,
    )
    digest, violations, processes = json.loads(done.stdout.splitlines()[-1])
    return digest, violations, [[Kept(*span) for span in spans] for spans in processes]


@pytest.mark.long("simulates a cluster full of faults, twice")
def test_traces_repeat_and_harm_nothing() -> None:
    """The sandbox's round trips were measured by the machine's clock, and began too early."""
    digest, violations, processes = traced(8, "1")
    assert not violations
    everything = str(processes)
    for result in ("scheduled", "unschedulable", "gone"):
        assert f"'starsched.result': '{result}'" in everything
    # A process that is killed leaves its spans open: the trace goes on in the next one.
    for spans in processes:
        ended = {span.span_id: span for span in spans}
        assert len(ended) == len(spans)
        for span in spans:
            parent = ended.get(span.parent_id)
            if parent is not None:
                assert parent.trace_id == span.trace_id
                assert parent.began <= span.began, (parent.name, span.name)
    assert traced(8, "2") == (digest, "", processes)


if __name__ == "__main__":
    write(int(sys.argv[1]))
