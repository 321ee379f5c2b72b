"""The benchmark of large pods measures what it says."""

import json

from devkit.benchmarks.costly import _measure
from devkit.benchmarks.costly_pods import COSTLY


def test_large_pods_are_decided_and_measured() -> None:
    large = _measure("labels", 2)
    assert (large.pods, large.bound) == (2, 2)
    assert large.bytes > 100_000
    assert large.cpu_ms > 0
    assert large.peak_mib > 0
    assert large.gone_mib > 0


def test_no_shape_is_more_than_an_api_server_takes() -> None:
    for shape in COSTLY.values():
        first, second = json.dumps(shape.pod(1)), json.dumps(shape.pod(2))
        assert 30_000 < len(first) < 3 << 19
        assert first != second
