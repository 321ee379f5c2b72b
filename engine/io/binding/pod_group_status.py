"""The condition of PodGroups that says whether the pods of a group were placed.

Owns what is written and that it is written only when it changes. Once the condition is true it
stays so, whatever happens to the pods. The newest outcome of a group replaces one that still waits
to be sent; a write that fails is repeated while the group is there, because the group may not be
tried again.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from engine.core.caching.objects import ObjectStore
from engine.core.kernel.instructions import ReportPodGroup
from engine.core.model.pod_group import POD_GROUPS, PodGroup
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError, Conflict
from engine.io.kube.resources import Resource
from engine.lib import printable
from engine.lib.clock import Clock
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="pod_group_status")

INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
#: What `v1alpha2` calls it.
SCHEDULED: Final = "PodGroupScheduled"

REQUEST_TIMEOUT: Final = 10.0
#: The pause before a failed write is repeated, at first and at most.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0


@dataclass(slots=True)
class _Outcome:
    """What is to be written about a group, and since when writing it has failed."""

    report: ReportPodGroup
    pause: float = 0.0
    due: float = 0.0


class PodGroupStatusUpdater:
    """Keeps the condition of PodGroups up to date, with the capacity that bindings leave.

    Args:
        client: The API server.
        writer: Sends when bindings leave capacity.
        objects: The PodGroups, as the informer last showed them.
        served: The version of PodGroup that the API server has now, or None.
        clock: Dates transitions.
        metrics: Counts patches by result.
    """

    def __init__(
        self,
        client: ApiClient,
        writer: DeferredWriter,
        *,
        objects: ObjectStore,
        served: Callable[[], Resource | None],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._writer = writer
        self._objects = objects
        self._served = served
        self._clock = clock
        self._metrics = metrics
        self._waiting: dict[str, _Outcome] = {}  # by key: queued, or in flight
        self._failed: dict[str, _Outcome] = {}
        # By uid, what this process has written, so that a group that is tried again before the
        # informer shows our patch is not patched again.
        self._written: dict[str, dict[str, Any]] = {}
        objects.listen(POD_GROUPS, self._changed)

    def report(self, report: ReportPodGroup) -> None:
        """Write the outcome of an attempt into the group's status, unless it is there already."""
        earlier = self._waiting.get(report.group) or self._failed.get(report.group)
        if earlier is not None and earlier.report.is_scheduled and not report.is_scheduled:
            return  # a success that is still to be written stays, too
        failed = self._failed.pop(report.group, None)
        outcome = _Outcome(report, failed.pause if failed is not None else 0.0)
        if report.group in self._waiting:
            self._waiting[report.group] = outcome
        elif self._condition(report) is not None:
            self._submit(outcome)

    def retry(self) -> None:
        """Write what is due for another attempt; to be called about once a second."""
        now = self._clock.monotonic()
        for key, outcome in [*self._failed.items()]:
            if outcome.due <= now:
                del self._failed[key]
                self._submit(outcome)

    def _submit(self, outcome: _Outcome) -> None:
        key = outcome.report.group
        if self._writer.submit(functools.partial(self._write, key)):
            self._waiting[key] = outcome
        else:
            self._retry_later(outcome)

    def _retry_later(self, outcome: _Outcome) -> None:
        outcome.pause = min(LONGEST_PAUSE, 2 * outcome.pause or FIRST_PAUSE)
        outcome.due = self._clock.monotonic() + outcome.pause
        self._failed[outcome.report.group] = outcome

    def _condition(self, report: ReportPodGroup) -> dict[str, Any] | None:
        """The condition to write, or None if there is nothing to change, or no such group."""
        group, served = self._group(report.group), self._served()
        if group is None or served is None:
            return None
        condition: dict[str, Any] = {
            "type": condition_type(served),
            "status": "True" if report.is_scheduled else "False",
            "reason": report.reason,
            "message": printable.message(report.message),
        }
        if group.metadata.generation:
            condition["observedGeneration"] = group.metadata.generation
        known = self._written.get(group.metadata.uid) or _known(group, condition["type"])
        if known.get("status") == "True" and not report.is_scheduled:
            return None
        if all(known.get(name) == value for name, value in condition.items()):
            return None
        since = known.get("lastTransitionTime")
        if since is None or known.get("status") != condition["status"]:
            now = datetime.fromtimestamp(self._clock.now(), UTC)
            since = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {**condition, "lastTransitionTime": since}

    def _group(self, key: str) -> PodGroup | None:
        group: PodGroup | None = self._objects.get(POD_GROUPS, key)
        return group

    async def _write(self, key: str) -> None:
        outcome = self._waiting[key]
        try:
            await self._send(outcome.report)
        except ApiError as error:
            may_pass = isinstance(error, Conflict) or error.may_pass
            self._metrics.status_patches.labels("failed").inc()
            # An unavailable server fails all of them repeatedly: one warning is enough.
            write = log.debug if may_pass and outcome.pause else log.warning
            write("Cannot report on a pod group", group=key, reason=str(error), again=may_pass)
            newest = self._waiting.pop(key)
            newest.pause = outcome.pause
            if may_pass:
                self._retry_later(newest)
            return
        newest = self._waiting.pop(key)
        if newest is not outcome and self._condition(newest.report) is not None:
            self._submit(newest)

    async def _send(self, report: ReportPodGroup) -> None:
        condition, group, served = (
            self._condition(report),
            self._group(report.group),
            self._served(),
        )
        if condition is None or group is None or served is None:
            return  # written, or gone meanwhile
        uid = group.metadata.uid
        # A strategic merge patch: conditions merge by type, the uid is a precondition.
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        await self._client.patch(
            served,
            group.metadata.name,
            msgspec.json.encode(patch),
            group.metadata.namespace,
            subresource="status",
            timeout=REQUEST_TIMEOUT,
        )
        self._metrics.status_patches.labels("written").inc()
        if self._group(report.group) is not None:
            self._written[uid] = condition

    def _changed(self, before: PodGroup | None, after: PodGroup | None) -> None:
        """Forget a group that is gone, and what others have overwritten."""
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._written.pop(before.metadata.uid, None)
            self._failed.pop(before.key, None)
            return
        written = None if after is None else self._written.get(after.metadata.uid)
        if written is None or before is None or after is None:
            return
        showed = _known(before, written["type"]).items() >= written.items()
        if showed and not _known(after, written["type"]).items() >= written.items():
            del self._written[after.metadata.uid]


def condition_type(served: Resource) -> str:
    """The type of the condition in the version of PodGroup that is *served*."""
    return SCHEDULED if served.version == "v1alpha2" else INITIALLY_SCHEDULED


def _known(group: PodGroup, type_: str) -> dict[str, Any]:
    """The condition *type_* in the status of *group*; empty if there is none."""
    conditions = group.status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("type") == type_:
            return condition
    return {}
