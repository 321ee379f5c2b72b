"""Leader election over a Lease, with the semantics of kube components.

Owns the lease: acquiring, renewing, releasing, and knowing whether this process may act. What a
leader does, and that a process which lost the lease exits, is the application's business.
"""

import asyncio
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from engine.core.model.quantity import INT32_MAX
from engine.core.model.resources import (
    WANT_NAMESPACE,
    WANT_SUBDOMAIN,
    is_namespace_name,
    is_subdomain,
)
from engine.io.binding.event_recorder import Reference, micro_time
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerError
from engine.io.kube.resources import LEASES
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.lib.deep_json import UNREADABLE

log = structlog.get_logger(component="leader_election")

_JITTER: Final = 1.2
#: A leader that has not renewed for this long beyond the lease is stuck: `/healthz` says so.
_WATCHDOG_SECONDS: Final = 20.0
#: How long a process that must stop waits for the answer to a request that may have taken the
#: lease.
_PATIENCE_SECONDS: Final = 2.0
#: Where the holder's page is, for the pages of the standbys and for `kubectl starsched`.
PAGE_ANNOTATION: Final = "starsched.dev/page"
#: The certificate (PEM) that is served there, by which `kubectl starsched` knows the holder.
CERTIFICATE_ANNOTATION: Final = "starsched.dev/page-certificate"

Sleep = Callable[[float], Awaitable[None]]


class LeadershipLost(Exception):
    """The lease could not be renewed in time, or another replica holds it."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Which lease, and the times that govern it; defaults are kube-scheduler's, in seconds.

    Raises `ValueError` for names that no lease can have, and times that make no sense together.
    """

    name: str = "starsched"
    namespace: str = "kube-system"
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        for option, value, is_right, want in (
            ("name", self.name, is_subdomain, WANT_SUBDOMAIN),
            ("namespace", self.namespace, is_namespace_name, WANT_NAMESPACE),
        ):
            if not is_right(value):
                raise ValueError(f"leader-elect-resource-{option}: {want}, got `{value}`")
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(
                "leader-elect-lease-duration: want more than leader-elect-renew-deadline "
                f"({self.renew_deadline:g}s), got {self.lease_duration:g}s"
            )
        if self.renew_deadline <= _JITTER * self.retry_period:
            raise ValueError(
                f"leader-elect-renew-deadline: want more than {_JITTER} times "
                f"leader-elect-retry-period ({self.retry_period:g}s), got {self.renew_deadline:g}s"
            )
        if self.retry_period <= 0:
            raise ValueError(
                f"leader-elect-retry-period: want more than 0s, got {self.retry_period:g}s"
            )


def make_identity() -> str:
    """An identity no other process has: `<hostname>_<uuid>`."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class HolderPage:
    """Where the page of a process is, and the certificate (PEM) served there; "" for none."""

    address: str = ""
    certificate: str = ""

    def annotations(self) -> dict[str, str]:
        """The annotations of the lease that say so."""
        said = {PAGE_ANNOTATION: self.address, CERTIFICATE_ANNOTATION: self.certificate}
        return {key: value for key, value in said.items() if value}


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    # All of it: an update removes what it leaves out, and labels belong to others.
    metadata: dict[str, Any] = {}
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


_decoder = msgspec.json.Decoder(_Lease)


def _decode(raw: bytes) -> _Lease:
    """The lease of an answer. Raises `ServerError` for anything else, such as a page of a proxy."""
    try:
        return _decoder.decode(raw)
    except UNREADABLE as error:
        raise ServerError(f"want a lease, got something else: {error}") from error


class LeaderElector:
    """Competes for one lease.

    `standby --acquire--> leading --renew fails for renew_deadline--> lost`;
    `leading --release--> standby`.

    Args:
        client: The API server.
        settings: Which lease and its times.
        identity: Names this process in the lease.
        clock: Judges when others' leases expire, by the time since we saw them change: clocks of
            other machines are never compared with ours.
        on_transition: Called with the lease's reference and a text, for an event.
        page: The page of this process, for the lease.
        sleep, rng: Waits and their jitter.
    """

    def __init__(
        self,
        client: ApiClient,
        settings: LeaseSettings,
        *,
        identity: str,
        clock: Clock,
        on_transition: Callable[[Reference, str], None] | None = None,
        page: Callable[[], HolderPage] = HolderPage,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self.settings = settings
        self.identity = identity
        self._clock = clock
        self._on_transition = on_transition
        self._page = page
        self._sleep = sleep
        self._rng = rng or client.rng
        self._seen: _Lease | None = None
        self._seen_at = 0.0
        self._is_leading = False
        self._renewed_at = 0.0
        self._holder: str | None = None
        #: True if the lease was there before this process took it: another one may have led.
        self.follows_another = False
        self._acquiring: asyncio.Future[bool] | None = None  # the last try that was no renewal

    @property
    def is_leading(self) -> bool:
        """True if this process holds the lease."""
        return self._is_leading

    @property
    def may_act(self) -> bool:
        """True while no other replica can hold the lease, by our own clock.

        A process that was stopped or starved finds out here, before it acts, that its lease is
        over.
        """
        return (
            self._is_leading
            and self._clock.monotonic() - self._renewed_at < self.settings.renew_deadline
        )

    @property
    def version(self) -> str:
        """The resourceVersion of the lease, as last seen; only for a process that has seen it."""
        return str(self._known.metadata.get("resourceVersion", ""))

    @property
    def holder(self) -> str | None:
        """The identity that holds the lease, as last seen."""
        return self._holder

    @property
    def leader(self) -> str:
        """The identity that leads; "" if none does, or its lease has run out by our own clock."""
        seen = self._seen
        if seen is None or self._clock.monotonic() >= self._expires_at(seen):
            return ""
        return seen.spec.holder_identity or ""

    @property
    def holder_page(self) -> str:
        """The address of the holder's page, as last seen; "" if it does not say."""
        annotations = self._seen.metadata.get("annotations") if self._seen is not None else None
        page = annotations.get(PAGE_ANNOTATION) if isinstance(annotations, dict) else None
        return page if isinstance(page, str) else ""

    def check(self) -> str | None:
        """The health check: None, or why the election is stuck."""
        if not self._is_leading:
            return None
        since = self._clock.monotonic() - self._renewed_at
        if since > self.settings.lease_duration + _WATCHDOG_SECONDS:
            return f"failed election to renew leadership on lease {self.settings.name}"
        return None

    async def acquire(self) -> None:
        """Return when this process leads."""
        while True:
            # A request that is broken off may have taken the lease, which must be given back.
            self._acquiring = asyncio.ensure_future(self._try())
            if await asyncio.shield(self._acquiring):
                break
            wait = self.settings.retry_period * (1.0 + self._rng.random() * (_JITTER - 1.0))
            await self._sleep(wait)
        log.info("Became leader", lease=self._lease_name, identity=self.identity)
        self._write_event("became leader")

    async def keep(self) -> None:
        """Renew the lease until it is lost.

        Raises `LeadershipLost` when it could not be renewed within the renew deadline, or when
        another replica took it.
        """
        has_failed = False
        while True:
            await self._sleep(max(0.0, min(self.settings.retry_period, self._seconds_left)))
            # A process that overslept has not failed yet, and may find the lease as it was.
            is_over = has_failed and self._seconds_left <= 0
            has_failed = is_over or not await self._try()
            if not has_failed:
                continue
            since = self._clock.monotonic() - self._renewed_at
            stolen = self._holder not in (self.identity, None, "")
            if stolen or since >= self.settings.renew_deadline:
                self._is_leading = False
                why = f"`{self._holder}` holds it" if stolen else f"not renewed for {since:.1f}s"
                raise LeadershipLost(f"lease `{self._lease_name}`: {why}")

    async def release(self) -> None:
        """Give the lease back, so that a standby need not wait for it to expire.

        Waits for the answer to a request that may have taken it, for some seconds.
        """
        if self._acquiring is not None:
            await asyncio.wait({self._acquiring}, timeout=_PATIENCE_SECONDS)
            await cancelled([self._acquiring])
        if not self._is_leading:
            return
        self._is_leading = False
        try:
            await self._give_back(self._known)
        except ApiError as error:
            log.warning("Cannot release the lease", lease=self._lease_name, reason=str(error))
        else:
            log.info("Released the lease", lease=self._lease_name)
        self._write_event("stopped leading")

    async def _give_back(self, lease: _Lease) -> None:
        """Give up *lease*, or its newer version if that is still ours."""
        try:
            await self._let_go(lease)
        except Conflict:
            # A renewal that was broken off by the end of the process may have arrived.
            lease = await self._read()
            if lease.spec.holder_identity == self.identity:
                await self._let_go(lease)

    async def _let_go(self, lease: _Lease) -> None:
        now = micro_time(self._clock.now())
        spec = _LeaseSpec("", 1, now, now, lease.spec.lease_transitions)
        await self._update(spec, lease)

    # --- one try ---------------------------------------------------------------------------

    @property
    def _lease_name(self) -> str:
        return f"{self.settings.namespace}/{self.settings.name}"

    @property
    def _known(self) -> _Lease:
        """The lease as last seen; only for a process that has seen it."""
        assert self._seen is not None, "the lease was not read yet"
        return self._seen

    def _expires_at(self, seen: _Lease) -> float:
        """When *seen*, the lease as last seen, runs out by our own clock."""
        return self._seen_at + (seen.spec.lease_duration_seconds or 0)

    @property
    def _seconds_left(self) -> float:
        """Until the renew deadline; negative after it."""
        return self._renewed_at + self.settings.renew_deadline - self._clock.monotonic()

    @property
    def _request_timeout(self) -> float:
        most = max(1.0, self.settings.renew_deadline / 2)
        # An answer after the deadline comes too late.
        return min(most, max(1.0, self._seconds_left)) if self._is_leading else most

    async def _try(self) -> bool:
        """Acquire or renew once; False if that failed."""
        # What we hold is valid from before the request was sent, not from when it was answered.
        asked_at = self._clock.monotonic()
        try:
            if self._is_leading:
                # The usual case: the lease is unchanged, one request renews it.
                try:
                    await self._renew_seen()
                except ApiError as error:
                    log.debug("Reading the lease again", reason=str(error))
                    await self._read_and_take()
            else:
                await self._read_and_take()
        except _HeldByOther:
            return False
        except ApiError as error:
            log.warning("Cannot get the lease", lease=self._lease_name, reason=str(error))
            return False
        self._is_leading = True
        self._renewed_at = asked_at
        return True

    async def _renew_seen(self) -> None:
        seen = self._known
        spec = self._own_spec(seen.spec.acquire_time, seen.spec.lease_transitions or 0)
        await self._update(spec, seen)

    async def _read_and_take(self) -> None:
        try:
            lease = await self._read()
        except NotFound:
            await self._create()
            return
        held_by = lease.spec.holder_identity or ""
        is_ours = held_by == self.identity
        if held_by and not is_ours and self._clock.monotonic() < self._expires_at(lease):
            raise _HeldByOther
        self.follows_another |= not is_ours
        transitions = lease.spec.lease_transitions or 0
        acquired = lease.spec.acquire_time if is_ours else None
        # The API server accepts no larger count; one that was edited to it must not block every
        # replica.
        spec = self._own_spec(acquired, transitions if is_ours else min(transitions + 1, INT32_MAX))
        await self._update(spec, lease)

    async def _read(self) -> _Lease:
        settings = self.settings
        raw = await self._client.get(
            LEASES, settings.name, settings.namespace, timeout=self._request_timeout
        )
        lease = _decode(raw)
        self._observe(lease)
        return lease

    def _own_spec(self, acquired: str | None, transitions: int) -> _LeaseSpec:
        now = micro_time(self._clock.now())
        seconds = max(1, round(self.settings.lease_duration))
        return _LeaseSpec(self.identity, seconds, acquired or now, now, transitions)

    async def _create(self) -> None:
        body = self._body(self._own_spec(None, 0), {})
        try:
            raw = await self._client.create(
                LEASES, body, self.settings.namespace, timeout=self._request_timeout
            )
        except AlreadyExists as error:
            raise _HeldByOther from error  # a race lost; look again at the next try
        self._observe(_decode(raw))

    async def _update(self, spec: _LeaseSpec, lease: _Lease) -> None:
        raw = await self._client.update(
            LEASES,
            self.settings.name,
            self._body(spec, lease.metadata),
            self.settings.namespace,
            timeout=self._request_timeout,
        )
        self._observe(_decode(raw))

    def _body(self, spec: _LeaseSpec, metadata: dict[str, Any]) -> bytes:
        kept = {key: value for key, value in metadata.items() if key != "managedFields"}
        annotations = {**(kept.get("annotations") or {})}
        for key in (PAGE_ANNOTATION, CERTIFICATE_ANNOTATION):
            annotations.pop(key, None)  # of the holder before
        kept["annotations"] = annotations | self._page().annotations()
        return msgspec.json.encode(
            {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {
                    **kept,
                    "name": self.settings.name,
                    "namespace": self.settings.namespace,
                },
                "spec": spec,
            }
        )

    def _observe(self, lease: _Lease) -> None:
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_at = self._clock.monotonic()
        self._seen = lease
        holder = lease.spec.holder_identity or ""
        if holder != self._holder:
            self._holder = holder
            if holder:
                log.info("New leader", lease=self._lease_name, identity=holder)

    def _write_event(self, what: str) -> None:
        if self._on_transition is None:
            return
        uid = str(self._known.metadata.get("uid", ""))
        reference = Reference(
            LEASES.api_version, LEASES.kind, self.settings.namespace, self.settings.name, uid
        )
        self._on_transition(reference, f"{self.identity} {what}")


class _HeldByOther(Exception):
    """Another replica holds the lease, or was quicker."""
