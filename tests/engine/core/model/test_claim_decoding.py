"""Claims whose parameters nest deep: what they hold counts, and is given to nobody else."""

import json
from typing import Any

import pytest

from engine.core.model import claim_decoding
from engine.core.model.claim_decoding import decode_claim
from engine.core.model.devices import ResourceClaim
from engine.core.model.objects import decode
from tests.engine.core.scheduling.devices.builders import Json, claim, request


def deep(levels: int) -> str:
    return '{"a":' + "[" * levels + "]" * levels + "}"


def text(levels: int, *, is_allocated: bool) -> bytes:
    """A claim with parameters of so many levels, and what it got where *is_allocated*."""
    config = {"opaque": {"driver": "gpu.example.com", "parameters": "HERE"}}
    made: Json = claim("c", request("r"), config=[config])
    if is_allocated:
        result = {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "g0"}
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
        made["status"] = {
            "allocation": {
                "devices": {"results": [result], "config": [{**config, "source": "FromClaim"}]},
                "nodeSelector": {"nodeSelectorTerms": terms},
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
            "devices": [{"driver": "gpu.example.com", "pool": "n", "device": "g0", "data": "HERE"}],
        }
    return json.dumps(made).replace('"HERE"', deep(levels)).encode()


@pytest.mark.parametrize("levels", [1000, 5000])
def test_a_claim_that_holds_devices_is_known_without_its_parameters(levels: int) -> None:
    """It was passed over, and its devices seemed to be free."""
    got, like = decode_claim(text(levels, is_allocated=True)), text(1, is_allocated=True)
    want = decode(ResourceClaim, like)
    assert got.allocation is not None
    assert want.allocation is not None
    assert got.allocation.devices.results == want.allocation.devices.results
    assert got.allocation.node_selector == want.allocation.node_selector
    assert (got.metadata, got.status.reserved_for) == (want.metadata, want.status.reserved_for)
    assert got.spec.devices.requests == want.spec.devices.requests


def test_parameters_that_cannot_be_built_are_left_out_of_a_claim_that_needs_them_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What can be built differs between interpreters."""

    def refuse(kind: type[Any], raw: bytes) -> Any:
        if kind is ResourceClaim:
            raise RecursionError
        return decode(kind, raw)

    monkeypatch.setattr(claim_decoding, "decode", refuse)
    got = decode_claim(text(1, is_allocated=True))
    assert got.allocation is not None
    assert (got.spec.devices.config, got.allocation.devices.config) == ((), ())
    assert not got.is_too_deep
    # The other would get its devices without them.
    other = decode_claim(text(1, is_allocated=False))
    assert (other.is_too_deep, other.spec.devices.config) == (True, ())


@pytest.mark.parametrize("is_allocated", [False, True])
def test_usual_ones_are_what_they_are(is_allocated: bool) -> None:
    raw = text(100, is_allocated=is_allocated)
    assert decode_claim(raw) == decode(ResourceClaim, raw)
