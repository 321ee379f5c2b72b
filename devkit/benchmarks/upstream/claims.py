"""Devices for claims that no pod uses yet: part of a cluster is in use before anything is measured.

Owns which devices those claims get: nodes are tried in an order of chance, always the same, and the
search on a node is ours, which is as exact as kube-scheduler's.
"""

import random
from typing import Any, Final

import msgspec

from devkit.benchmarks.objects import Manifest
from devkit.benchmarks.wire import Wire
from engine.core.caching.cache import Cache
from engine.core.model import objects as api
from engine.core.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.plugins.dynamic_resources import DynamicResources

_ROOT: Final = "/apis/resource.k8s.io/v1"
_SEED: Final = 1


async def allocations(wire: Wire, namespace: str) -> list[Manifest]:
    """The claims of *namespace* (all, if it is empty) that are not allocated, with devices.

    Raises `ValueError` for one that no node has devices for.
    """
    where = f"/namespaces/{namespace}" if namespace else ""
    claims = await wire.list_all(f"{_ROOT}{where}/resourceclaims")
    cache = Cache()
    for node in await wire.list_all("/api/v1/nodes"):
        cache.add_node(Node.from_raw(msgspec.json.encode(node)))
    for one in await wire.list_all(f"{_ROOT}/resourceslices"):
        cache.objects.put("resourceslices", api.from_plain(ResourceSlice, one))
    for one in await wire.list_all(f"{_ROOT}/deviceclasses"):
        cache.objects.put("deviceclasses", api.from_plain(DeviceClass, one))
    for claim in await wire.list_all(f"{_ROOT}/resourceclaims"):
        cache.objects.put("resourceclaims", api.from_plain(ResourceClaim, claim))
    plugin = DynamicResources(cache.objects)
    rng = random.Random(_SEED)
    return [_allocated(claim, cache, plugin, rng) for claim in claims if not _has_devices(claim)]


def _has_devices(claim: Manifest) -> bool:
    return "allocation" in (claim.get("status") or {})


def _allocated(
    claim: Manifest, cache: Cache, plugin: DynamicResources, rng: random.Random
) -> Manifest:
    metadata = claim["metadata"]
    pod = _pod_with(metadata["namespace"], metadata["name"])
    snapshot = cache.snapshot()
    state: Any = plugin.pre_filter(pod, snapshot, {})
    infos = [info for info in snapshot.infos if info is not None]
    for info in rng.sample(infos, len(infos)):
        if plugin.filter(state, info) is None:
            plugin.reserve(state, pod, info.name)
            (allocation,) = state.answers[info.name].allocations.values()
            plain = msgspec.json.decode(msgspec.json.encode(allocation))
            # Objects of a list do not say what they are.
            kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
            return {**kind, **claim, "status": {"allocation": plain}}
    raise ValueError(
        f"no node has devices for the claim {metadata['namespace']}/{metadata['name']}"
    )


def _pod_with(namespace: str, claim: str) -> Pod:
    manifest = {
        "metadata": {"name": claim, "namespace": namespace, "uid": f"for-{namespace}-{claim}"},
        "spec": {"resourceClaims": [{"name": "devices", "resourceClaimName": claim}]},
    }
    return Pod.from_raw(msgspec.json.encode(manifest))
