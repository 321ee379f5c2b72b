"""Writes what was reserved for a pod's claims, and waits until the claims are bound.

Owns the writes of volumes and claims, and the wait for the controllers that finish the work: the
volume controller binds, a provisioner makes volumes. Nothing that was written is taken back: the
controllers have it by then, and a provisioner that fails takes the node off the claim itself.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
import structlog
from prometheus_client import Histogram

from engine.core.caching.attachments import CLAIMS, CSI_NODES, VOLUMES
from engine.core.caching.cache import Cache
from engine.core.caching.objects import object_key
from engine.core.model.csi_migration import MigrationError, reachable_from
from engine.core.model.node import Node
from engine.core.model.objects import decode
from engine.core.model.pod import Pod
from engine.core.model.selectors import matches_node_selector
from engine.core.model.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
)
from engine.core.scheduling.placement import PreBindError
from engine.core.scheduling.plugins.volume_plan import VolumePlan
from engine.io.binding.binder import MOST_TRIES, Backoff
from engine.io.binding.waiting import waiting_for_others, why_in_vain
from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.errors import ApiError, Conflict
from engine.io.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource
from engine.lib.clock import Clock

log = structlog.get_logger(component="volume_binder")

REQUEST_TIMEOUT: Final = 10.0
#: Seconds between two checks of what no event of a volume or a claim reports.
POLL_SECONDS: Final = 1.0

Written = TypeVar("Written", PersistentVolume, PersistentVolumeClaim)


class _Failed(Exception):
    """Waiting longer cannot help; the text is the reason."""


class VolumeBinder:
    """Binds the volumes of pods that have been given a node.

    Args:
        client: The API server.
        cache: What the watches have brought.
        clock: Measures how long a binding has been waited for.
        stopwatch: Observes how long each took, in seconds; None: nothing does.
    """

    def __init__(
        self,
        client: ApiClient,
        cache: Cache,
        *,
        clock: Clock,
        stopwatch: Histogram | None = None,
    ) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._stopwatch = stopwatch
        self._rng = client.rng
        self._waiting: dict[str, set[asyncio.Event]] = {}  # by the key of a claim or volume
        for kind in (VOLUMES, CLAIMS):
            cache.objects.listen(kind, self._changed)

    @property
    def is_waiting(self) -> bool:
        """True while a pod's volumes are waited for."""
        return bool(self._waiting)

    async def bind(self, pod: Pod, node_name: str, plan: VolumePlan, seconds: float) -> None:
        """Write *plan* and wait until every claim in it is bound, for *seconds* at most.

        Raises `PreBindError` with the reason if that is impossible or takes too long.
        """
        began_at = self._clock.monotonic()
        try:
            written = await self._write(plan)
        except ApiError as error:
            raise PreBindError(error.message or str(error)) from error
        try:
            await self._wait(pod, node_name, written, seconds)
        except _Failed as error:
            raise PreBindError(f"binding volumes: {error}") from error
        if self._stopwatch is not None:
            self._stopwatch.observe(self._clock.monotonic() - began_at)

    # --- writing ---------------------------------------------------------------------------

    async def _write(self, plan: VolumePlan) -> VolumePlan:
        """Make the API server's objects those of *plan*; returns them as stored."""
        bindings = []
        for volume, claim in plan.bindings:
            stored = self._cache.objects.get(VOLUMES, volume.metadata.name)
            if stored is not volume:
                change = {
                    "spec": {"claimRef": msgspec.to_builtins(volume.spec.claim_ref)},
                    "metadata": {"annotations": _only(volume, BOUND_BY_CONTROLLER)},
                }
                volume = await self._patch(PERSISTENT_VOLUMES, volume, change, _is_claimed_alike)
            bindings.append((volume, claim))
        provisions = []
        for claim in plan.provisions:
            stored = self._cache.objects.get(CLAIMS, object_key(claim))
            if stored is not claim:
                change = {"metadata": {"annotations": _only(claim, SELECTED_NODE)}}
                claim = await self._patch(
                    PERSISTENT_VOLUME_CLAIMS, claim, change, _is_selected_alike
                )
            provisions.append(claim)
        return VolumePlan(tuple(bindings), tuple(provisions))

    async def _patch(
        self,
        resource: Resource,
        wanted: Written,
        change: dict[str, Any],
        is_done: Callable[[Written, Written], bool],
    ) -> Written:
        """Write *change* to the version of *wanted*; returns the object as stored.

        A write whose answer was lost, and one that another pod of the same claim has made already,
        are found done.
        """
        meta = wanted.metadata
        change["metadata"] = {
            "resourceVersion": meta.resource_version,
            "uid": meta.uid,
            **change["metadata"],
        }
        name, namespace = meta.name, meta.namespace or None
        backoff = Backoff(self._rng)
        for tries in range(1, MOST_TRIES + 1):
            try:
                raw = await self._client.patch(
                    resource,
                    name,
                    msgspec.json.encode(change),
                    namespace,
                    content_type=MERGE_PATCH,
                    timeout=REQUEST_TIMEOUT,
                )
                return decode(type(wanted), raw)
            except Conflict:
                # No reason to try again: the decision was made on less.
                raw = await self._client.get(resource, name, namespace, timeout=REQUEST_TIMEOUT)
                found = decode(type(wanted), raw)
                if found.metadata.uid != meta.uid or not is_done(found, wanted):
                    raise
                return found
            except ApiError as error:
                if not error.may_pass or tries == MOST_TRIES:
                    raise
                log.debug("Writing again", object=object_key(wanted), reason=str(error))
                await asyncio.sleep(backoff.next(error.retry_after))
        raise AssertionError("the last try returns or raises")

    # --- waiting ---------------------------------------------------------------------------

    async def _wait(self, pod: Pod, node_name: str, plan: VolumePlan, seconds: float) -> None:
        keys = [volume.metadata.name for volume, _ in plan.bindings]
        keys += [object_key(claim) for _, claim in plan.bindings]
        keys += [object_key(claim) for claim in plan.provisions]
        deadline = self._clock.monotonic() + seconds
        with self._listening(keys) as changed, waiting_for_others():
            while True:
                changed.clear()
                if self._is_bound(pod, node_name, plan):
                    return
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise _Failed("context deadline exceeded")
                # `wait_for` of Python 3.11 swallows a cancellation that arrives with the event.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, POLL_SECONDS)):
                        await changed.wait()

    @contextlib.contextmanager
    def _listening(self, keys: list[str]) -> Iterator[asyncio.Event]:
        """An event that is set by every change of one of *keys*."""
        event = asyncio.Event()
        for key in keys:
            self._waiting.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            for key in keys:
                events = self._waiting.get(key)
                if events is not None:
                    events.discard(event)
                    if not events:
                        del self._waiting[key]

    def _changed(self, old: Any | None, new: Any | None) -> None:
        obj = new or old
        if obj is not None and self._waiting:
            for event in self._waiting.get(object_key(obj), ()):
                event.set()

    def _is_bound(self, pod: Pod, node_name: str, plan: VolumePlan) -> bool:
        """True once every claim of *plan* is bound. Raises `_Failed` if one never will be.

        Looks at what the watches brought, not at what is assumed: the controllers know only that.
        """
        objects = self._cache.objects
        info = self._cache.node_info(node_name)
        if info is None or info.node is None:
            raise _Failed(f'failed to get node "{node_name}": node "{node_name}" not found')
        if (reason := why_in_vain(self._cache, pod)) is not None:
            raise _Failed(reason)
        for written, asked in plan.bindings:
            name = written.metadata.name
            volume: PersistentVolume | None = objects.get(VOLUMES, name)
            if volume is None:
                raise _Failed(f'failed to check binding: persistentvolumes "{name}" not found')
            claim = self._claim(asked, "failed to check binding")
            if _is_older(volume, written):
                return False
            self._check_reach(volume, info.node)
            if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
                raise _Failed(f'ClaimRef got reset for pv "{name}"')
            if not claim.is_bound:
                return False
        for asked in plan.provisions:
            claim = self._claim(asked, "failed to check provisioning pvc")
            if _is_older(claim, asked):
                return False
            name = claim.metadata.name
            if not claim.metadata.annotations:
                raise _Failed(f'selectedNode annotation reset for PVC "{name}"')
            if claim.metadata.annotations.get(SELECTED_NODE, "") != node_name:
                # How a provisioner says that it failed: choose again.
                raise _Failed(f'provisioning failed for PVC "{name}"')
            if claim.spec.volume_name:
                made: PersistentVolume | None = objects.get(VOLUMES, claim.spec.volume_name)
                if made is None:
                    return False  # not heard of yet
                self._check_reach(made, info.node)
            if not claim.is_bound:
                return False
        return True

    def _claim(self, asked: PersistentVolumeClaim, doing: str) -> PersistentVolumeClaim:
        key = object_key(asked)
        claim: PersistentVolumeClaim | None = self._cache.objects.get(CLAIMS, key)
        if claim is None:
            raise _Failed(f'{doing}: persistentvolumeclaims "{key}" not found')
        return claim

    def _check_reach(self, volume: PersistentVolume, node: Node) -> None:
        csi_node = self._cache.objects.get(CSI_NODES, node.name)
        plugins = frozenset() if csi_node is None else csi_node.migrated_plugins
        try:
            selector = reachable_from(volume, plugins)
        except MigrationError as error:
            raise _Failed(f"failed to translate pv to csi: could not translate pv: {error}") from (
                error
            )
        if not matches_node_selector(selector, node.labels, ""):
            raise _Failed(
                f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{node.name}": '
                "no matching NodeSelectorTerms"
            )


def _only(obj: PersistentVolume | PersistentVolumeClaim, name: str) -> dict[str, str]:
    value = obj.metadata.annotations.get(name)
    return {} if value is None else {name: value}


def _is_claimed_alike(found: PersistentVolume, wanted: PersistentVolume) -> bool:
    mine, ref = wanted.spec.claim_ref, found.spec.claim_ref
    return mine is not None and ref is not None and ref.uid == mine.uid


def _is_selected_alike(found: PersistentVolumeClaim, wanted: PersistentVolumeClaim) -> bool:
    mine = wanted.metadata.annotations.get(SELECTED_NODE)
    return found.metadata.annotations.get(SELECTED_NODE) == mine


def _is_older(one: Written, other: Written) -> bool:
    """True if *one* is a version of the object from before *other*.

    Of one resource, versions are comparable as decimal numbers (KEP-5504). Those that are not
    numbers are taken for as new: then an event that is still on its way shows as a failed wait.
    """
    a, b = one.metadata.resource_version, other.metadata.resource_version
    if not (a.isdecimal() and b.isdecimal()):
        return False
    return int(a) < int(b)
