"""Which devices are taken, beside a recount, whatever order the watch and our writes come in."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.caching.objects import ObjectStore
from engine.core.model.devices import AllocationResult, ResourceClaim
from engine.core.model.objects import from_plain
from engine.core.scheduling.devices.claims import CLAIMS, Claims
from tests.searching import examples

DEVICES = tuple(("d", "p", f"g{i}") for i in range(4))
NAMES = ("one", "two")


def allocation(device: int) -> AllocationResult:
    driver, pool, name = DEVICES[device]
    result = {"driver": driver, "pool": pool, "device": name}
    return from_plain(AllocationResult, {"devices": {"results": [result]}})


def claim(name: str, version: int, device: int | None) -> ResourceClaim:
    made = from_plain(
        ResourceClaim,
        {
            "metadata": {
                "name": name,
                "namespace": "n",
                "uid": name,
                "resourceVersion": str(version),
            }
        },
    )
    if device is None:
        return made
    status = msgspec.structs.replace(made.status, allocation=allocation(device))
    return msgspec.structs.replace(made, status=status)


_devices = st.one_of(st.none(), st.integers(0, len(DEVICES) - 1))
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("server"), st.sampled_from(NAMES), _devices),
        st.tuples(st.just("write"), st.sampled_from(NAMES), _devices),
        st.tuples(st.just("watch"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("delete"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("reserve"), st.sampled_from(NAMES), _devices),
        st.tuples(st.just("withdraw"), st.sampled_from(NAMES), st.none()),
    ),
    min_size=10,
    max_size=40,
)


@pytest.mark.slow("computes for long")
@settings(max_examples=examples(300), derandomize=True, deadline=None, database=None)
@given(_steps)
def test_taken_is_what_the_newest_claims_and_the_reservations_hold(
    steps: list[tuple[str, str, Any]],
) -> None:
    """The server has versions; the watch shows them one by one, our writes show theirs at once."""
    objects = ObjectStore()
    claims = Claims(objects, follow=True)
    version = 0
    history: dict[str, list[ResourceClaim | None]] = {name: [] for name in NAMES}
    shown: dict[str, int] = dict.fromkeys(NAMES, 0)
    known: dict[str, int] = dict.fromkeys(NAMES, 0)  # how much of the history we must go by
    reservations: dict[str, int] = {}
    for kind, name, device in steps:
        past = history[name]
        exists = bool(past) and past[-1] is not None
        if kind == "server":
            version += 1
            past.append(claim(name, version, device))
        elif kind == "write" and exists and objects.get(CLAIMS, f"n/{name}") is not None:
            version += 1
            made = claim(name, version, device)
            past.append(made)
            claims.wrote(made)
            known[name] = len(past)
        elif kind == "watch" and shown[name] < len(past):
            newest = past[shown[name]]
            shown[name] += 1
            if newest is None:
                objects.delete(CLAIMS, f"n/{name}")
                known[name] = shown[name]
            else:
                objects.put(CLAIMS, newest)
                known[name] = max(known[name], shown[name])
        elif kind == "delete" and exists:
            past.append(None)
        elif kind == "reserve" and device is not None and name not in reservations:
            claims.reserve(f"reserved-{name}", allocation(device), "pod")
            reservations[name] = device
        elif kind == "withdraw" and name in reservations:
            claims.withdraw(f"reserved-{name}", "pod")
            del reservations[name]

        taken = {DEVICES[d] for d in reservations.values()}
        for each in NAMES:
            newest = history[each][known[each] - 1] if known[each] else None
            if newest is not None and newest.allocation is not None:
                taken.update(
                    (r.driver, r.pool, r.device) for r in newest.allocation.devices.results
                )
        assert {d for d in DEVICES if claims.devices.is_owned(d)} == taken
