"""Both API servers beside each other: the same generated objects, and where their answers differ.

`python -m tests.contract.compare --count 5000 --seed 1` starts both servers and prints the
differences; it exits with 1 if there are any. Owns the generator: objects are mixed from the
manifests of `rule_cases` and `storage_cases`, and some of their values are spoiled.
"""

import argparse
import asyncio
import copy
import random
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp

from devkit.cluster import DevCluster
from engine.core.manifests import kinds
from engine.core.manifests.kinds import Kind
from tests.contract.conftest import embedded_api, real_api
from tests.contract.harness import Answer, Api
from tests.contract.rule_cases import CASES, shown
from tests.contract.storage_cases import STORAGE_CASES
from tests.controlplane import ControlPlane, serving_groups

Json = dict[str, Any]

#: What is generated, and how often.
KINDS = {
    kinds.PODS: 6,
    kinds.RESOURCE_CLAIMS: 2,
    kinds.RESOURCE_SLICES: 2,
    kinds.POD_DISRUPTION_BUDGETS: 1,
    kinds.PERSISTENT_VOLUMES: 1,
    kinds.PERSISTENT_VOLUME_CLAIMS: 1,
    kinds.STORAGE_CLASSES: 1,
    kinds.CSI_NODES: 1,
    kinds.CSI_DRIVERS: 1,
    kinds.CSI_STORAGE_CAPACITIES: 1,
    kinds.RUNTIME_CLASSES: 1,
}
#: What values are replaced by. Each has the type of what it stands for.
_SPOILED: dict[type, tuple[Any, ...]] = {
    str: ("", "a", "A_b", "a b", "x" * 64, "1", "example.com/x", "Exists", "In", "NoSchedule"),
    int: (0, -1, 1, 2, 65536),
    bool: (True, False),
}
#: Fields that differ and that no scheduler reads, each with its reason.
NOT_COMPARED = {
    "uid": "made by each server",
    "creationTimestamp": "made by each server",
    "resourceVersion": "made by each server",
    "managedFields": "not kept by the embedded server",
    "timeAdded": "of the taints of devices, for who evicts",
    "name": "of cluster-scoped objects, unique to a run",
    "namespace": "unique to a run",
    "imagePullPolicy": "for kubelets; of images that have no valid name it differs",
}

#: Where an empty object is not the same as none.
_MEANS_ALL = {"labelSelector", "namespaceSelector", "selector", "operator"}


def generated(count: int, seed: int) -> Iterator[tuple[Kind, Json]]:
    """*count* objects, the same for the same *seed*."""
    draw = random.Random(seed)  # no secret
    cases = [*CASES, *STORAGE_CASES]
    manifests = {
        kind: [case.manifest for case in cases if case.kind is kind and _is_small(case.manifest)]
        for kind in KINDS
    }
    for _ in range(count):
        kind = draw.choices([*KINDS], [*KINDS.values()])[0]
        mixed: Json = {}
        for manifest in draw.sample(manifests[kind], draw.randint(1, 2)):
            mixed = _mixed(mixed, copy.deepcopy(manifest))
        metadata = mixed.pop("metadata")
        for _ in range(draw.choice((0, 0, 1, 1, 2))):
            _spoil(mixed, draw)
        yield kind, {"metadata": metadata, **mixed}


def _is_small(manifest: Json) -> bool:
    return len(manifest) > 1 and len(str(manifest)) < 2000


def _mixed(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            key: _mixed(one[key], other[key])
            if key in one and key in other
            else {**one, **other}[key]
            for key in {**one, **other}
        }
    return other


def _spoil(content: Json, draw: random.Random) -> None:
    places = list(_leaves(content))
    if not places:
        return
    holder, key = draw.choice(places)
    if draw.random() < 0.3:
        del holder[key]
    else:
        holder[key] = draw.choice(_SPOILED[type(holder[key])])


def _leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from _leaves(item)
        elif type(item) in _SPOILED:
            yield value, key


def _kept(value: Any) -> Any:
    """The content of an answer that is compared."""
    if isinstance(value, dict):
        kept = {key: _kept(item) for key, item in value.items() if key not in NOT_COMPARED}
        # An empty member means as much as an absent one, but in selectors.
        return {
            key: item
            for key, item in kept.items()
            if item not in (None, {}, []) or key in _MEANS_ALL
        }
    if isinstance(value, list):
        return [_kept(item) for item in value]
    return None if value in ("", False) else value


def _answered(answer: Answer) -> Any:
    if answer.status < 400:
        return _kept({**answer.body, "metadata": None, "status": None})
    text = shown(answer)
    # Of a list that is too long, the API server checks some of the entries all the same.
    return "422: a list is too long" if " TooMany" in text else text


async def differences(one: Api, other: Api, count: int, seed: int) -> AsyncIterator[str]:
    """What the two servers make of each object, where it is not the same."""
    for kind, manifest in generated(count, seed):
        whole = {"kind": kind.kind, "apiVersion": kind.api_version, **manifest}
        answers = [
            _answered(
                await api.post(
                    kind.path(api.namespace if kind.namespaced else ""), whole, dryRun="All"
                )
            )
            for api in (one, other)
        ]
        if answers[0] != answers[1]:
            yield f"{kind.kind} {manifest}\n  {answers[0]}\n  {answers[1]}"


async def _compare(count: int, seed: int) -> int:
    found = 0
    with ControlPlane(apiserver_args=serving_groups()) as plane:
        async with aiohttp.ClientSession() as session, DevCluster(token="secret") as cluster:
            embedded, real = await embedded_api(cluster, session), real_api(plane, session)
            async for difference in differences(embedded, real, count, seed):
                found += 1
                print(difference)
    print(f"{found} of {count} objects differ (seed {seed})")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    sys.exit(bool(asyncio.run(_compare(chosen.count, chosen.seed))))
