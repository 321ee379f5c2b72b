"""The checks of a cluster: server, clock, versions, rights, namespaces, lease, stores.

Owns the requests and what their answers mean; all of them only read. What could not be asked is
`unknown`, never fine. Files and policies are the command's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError, NotFound
from engine.io.kube.resources import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    OLDER_VERSIONS,
    Resource,
)
from engine.lib.deep_json import UNREADABLE
from engine.surfaces.preflight.findings import Finding, State
from engine.surfaces.preflight.rights import (
    Objects,
    Right,
    kept_names,
    needed_rights,
    watched_resources,
)

#: Seconds that the clocks may differ. Leases compare none, but tokens and certificates have dates,
#: and `kubectl` shows the ages of what this process writes.
MOST_SKEW: Final = 5.0
_SECONDS: Final = 10.0
_AT_ONCE: Final = 8
_ACCESS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#: Groups that some versions of Kubernetes lack, or serve only with a feature gate.
_OPTIONAL_GROUPS: Final = frozenset({"resource.k8s.io", "scheduling.k8s.io"})


class _Answer(msgspec.Struct, frozen=True):
    """A review with its status, or a list of resources, as far as they are read."""

    status: dict[str, Any] = {}
    resources: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    spec: dict[str, Any] = {}


class ClusterChecks:
    """Asks an API server what a scheduler with *objects* needs to know before it starts.

    Attributes:
        user: Who the API server says that this is; "" if it is not known.
    """

    def __init__(self, client: ApiClient, objects: Objects) -> None:
        self._client = client
        self._objects = objects
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self.user = ""

    async def run(self) -> list[Finding]:
        """All findings, in the order in which they are shown."""
        server = await self._server()
        if server.state is not State.OK:
            skipped = ("clock", "version", "right", "namespace", "lease", "store")
            why = "the API server was not reached"
            return [server, *(Finding(one, "not asked", State.UNKNOWN, why) for one in skipped)]
        await self._who_am_i()
        versions, absent = await self._versions()
        rights = [right for right in needed_rights(self._objects) if right.resource not in absent]
        reviewed = await self.reviewed(rights)
        found = [server, await self._clock(), *versions, *reviewed]
        found += [await self._namespace(one) for one in self._objects.namespaces()]
        if self._objects.lease is not None:
            found.append(await self._lease(*self._objects.lease))
        if self._objects.policies is not None:
            found += [one async for one in self._stores(*self._objects.policies)]
        return found

    async def reviewed(self, rights: Iterable[Right]) -> list[Finding]:
        """Whether this account has *rights*."""
        return await asyncio.gather(*map(self._right, rights))

    # --- requests ------------------------------------------------------------------------------

    async def _ask(self, method: str, path: str, **more: Any) -> _Answer:
        """The answer. Raises `ApiError`, also for one that is no JSON of this kind."""
        async with self._limit:
            body = await self._client.request(method, path, timeout=_SECONDS, **more)
        try:
            return msgspec.json.decode(body, type=_Answer)
        except UNREADABLE as error:
            raise ApiError(f"not an answer of an API server: {error}") from error

    async def _may(self, right: Right) -> tuple[bool, str]:
        """Whether this account has *right*, and what the server says of it. Raises `ApiError`."""
        body = msgspec.json.encode(right.review())
        status = (await self._ask("POST", _ACCESS, body=body)).status
        allowed = status.get("allowed") is True and status.get("denied") is not True
        said = (status.get("reason"), status.get("evaluationError"))
        return allowed, "; ".join(str(one) for one in said if one)

    async def _or_unknown(
        self, check: str, subject: str, asking: Callable[[], Awaitable[Finding]]
    ) -> Finding:
        try:
            return await asking()
        except ApiError as error:
            return Finding(check, subject, State.UNKNOWN, str(error))

    # --- checks --------------------------------------------------------------------------------

    async def _server(self) -> Finding:
        async def ask() -> Finding:
            version = await self._client.server_version(timeout=_SECONDS)
            return Finding("API server", self._client.server, State.OK, f"Kubernetes {version}")

        return await self._or_unknown("API server", self._client.server, ask)

    async def _who_am_i(self) -> None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            status = (await self._ask("POST", _WHO, body=msgspec.json.encode(review))).status
        except ApiError:
            return  # only the rules need it
        info = status.get("userInfo")
        self.user = str(info.get("username", "")) if isinstance(info, dict) else ""

    async def _clock(self) -> Finding:
        subject = "this machine's clock and the API server's"

        async def ask() -> Finding:
            before = self._client.clock.now()
            theirs = await self._client.server_time(timeout=_SECONDS)
            if theirs is None:
                return Finding("clock", subject, State.UNKNOWN, "its answer has no date")
            # A date has whole seconds: the server's clock was up to one ahead of it.
            after = self._client.clock.now()
            ahead = max(before - theirs - 1.0, theirs - after, 0.0)
            text = f"{ahead:.0f} s apart" if ahead else "less than 1 s apart"
            if ahead <= MOST_SKEW:
                return Finding("clock", subject, State.OK, text)
            remedy = "set the clocks by NTP: tokens and certificates are good between two dates"
            return Finding("clock", subject, State.MISSING, text, remedy)

        return await self._or_unknown("clock", subject, ask)

    async def _versions(self) -> tuple[list[Finding], set[Resource]]:
        """Findings about what is served, and the resources that are in no version."""
        resources = [*watched_resources(), CONFIG_MAPS, LEASES, EVENTS]
        served = {
            resource: await self._served(resource, OLDER_VERSIONS.get(resource, ()))
            for resource in resources
        }
        findings, absent = [], set()
        for resource, answer in served.items():
            if isinstance(answer, ApiError):
                findings.append(Finding("version", str(resource), State.UNKNOWN, str(answer)))
            elif answer is not None:
                findings.append(Finding("version", f"{resource}: {answer.version}", State.OK))
            else:
                absent.add(resource)
                is_optional = resource.group in _OPTIONAL_GROUPS
                state = State.NOTE if is_optional else State.MISSING
                detail = f"`{resource.api_version}` is not served"
                why = "counts as empty, and no right to it is needed" if is_optional else ""
                findings.append(Finding("version", str(resource), state, detail, why))
        return findings, absent

    async def _served(
        self, resource: Resource, older: Iterable[Resource]
    ) -> Resource | ApiError | None:
        """The version of *resource* that is served; None if it is in none of them."""
        for one in (resource, *older):
            path = f"/apis/{one.group}/{one.version}" if one.group else f"/api/{one.version}"
            try:
                listed = (await self._ask("GET", path)).resources
            except NotFound:
                continue
            except ApiError as error:
                return error
            if any(entry.get("name") == one.plural for entry in listed):
                return one
        return None

    async def _right(self, right: Right) -> Finding:
        async def ask() -> Finding:
            allowed, said = await self._may(right)
            if allowed:
                return Finding("right", str(right), State.OK, right=right)
            detail = right.purpose + (f"; the API server says: {said}" if said else "")
            return Finding("right", str(right), State.MISSING, detail, right=right)

        found = await self._or_unknown("right", str(right), ask)
        if found.right is None:  # nothing but its state is known
            return Finding("right", str(right), found.state, found.detail, right=right)
        return found

    async def _namespace(self, name: str) -> Finding:
        async def ask() -> Finding:
            params = {"fieldSelector": f"metadata.name={name}"}
            found = await self._ask("GET", NAMESPACES.path(), params=params)
            if any(one.get("metadata", {}).get("name") == name for one in found.items):
                return Finding("namespace", name, State.OK)
            return Finding("namespace", name, State.MISSING, "", f"kubectl create namespace {name}")

        return await self._or_unknown("namespace", name, ask)

    async def _lease(self, namespace: str, name: str) -> Finding:
        subject = f"{namespace}/{name}"

        async def ask() -> Finding:
            try:
                spec = (await self._ask("GET", LEASES.path(namespace, name))).spec
            except NotFound:
                return Finding("lease", subject, State.OK, "not there: the first leader makes it")
            holder = spec.get("holderIdentity")
            if not holder:
                return Finding("lease", subject, State.OK, "not held")
            renewed = spec.get("renewTime") or "at an unknown time"
            detail = f"held by {holder}, renewed {renewed}"
            return Finding("lease", subject, State.OK, detail)

        return await self._or_unknown("lease", subject, ask)

    async def _stores(self, namespace: str, policies: str) -> Any:
        """Findings about the ConfigMaps that the scheduler writes: it need not create them."""
        for name in kept_names(policies):
            subject = f"ConfigMap {namespace}/{name}"

            async def ask(name: str = name, subject: str = subject) -> Finding:
                try:
                    await self._ask("GET", CONFIG_MAPS.path(namespace, name))
                except NotFound:
                    may_create, _ = await self._may(Right(CONFIG_MAPS, "", "create", "", namespace))
                    remedy = f"kubectl -n {namespace} create configmap {name}"
                    if may_create:
                        return Finding("store", subject, State.OK, "not there: it is made")
                    detail = "not there, and this account may not create ConfigMaps"
                    return Finding("store", subject, State.MISSING, detail, remedy)
                return Finding("store", subject, State.OK)

            yield await self._or_unknown("store", subject, ask)
