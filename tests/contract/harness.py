"""The means of the contract tests: one API server of either kind, and a client that hides nothing.

Owns requests, watches and object makers. Answers are compared as the server sent them: status
code, headers and plain JSON.
"""

import asyncio
import contextlib
import io
import json
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.waiting import eventually

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

# How long an answer may take that is sure to come.
PATIENCE = 20.0
# How long to look for what must not come.
QUIET = 0.3


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def reason(self) -> str:
        """The reason of a `Status`."""
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """The message of a `Status`."""
        return str(self.body.get("message", ""))


class Watch:
    """The events of one open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._lines = response.content

    async def next(self, seconds: float = PATIENCE) -> Json:
        """The next event. Raises `TimeoutError` if none comes, `EOFError` at the end."""
        line = await asyncio.wait_for(self._lines.readline(), seconds)
        if not line:
            raise EOFError("the watch has ended")
        event: Json = json.loads(line)
        return event

    async def take(self, count: int) -> list[Json]:
        """The next *count* events."""
        return [await self.next() for _ in range(count)]

    async def rest(self, seconds: float = PATIENCE) -> list[Json]:
        """The events until the server ends the watch."""
        found = []
        with contextlib.suppress(EOFError):
            while True:
                found.append(await self.next(seconds))
        return found

    async def is_quiet(self) -> bool:
        """True if nothing comes for a while."""
        try:
            await self.next(QUIET)
        except TimeoutError:
            return True
        return False


def seen(event: Json) -> tuple[str, str]:
    """The type and the object's name of a watch event."""
    return event["type"], event["object"]["metadata"].get("name", "")


@dataclass
class Api:
    """One API server, and a namespace in it that belongs to the test."""

    url: str
    namespace: str
    is_embedded: bool
    session: aiohttp.ClientSession
    tls: ssl.SSLContext | bool = True
    headers: dict[str, str] = field(default_factory=dict)
    _litter: list[str] = field(default_factory=list)

    # --- requests --------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **params: Any,
    ) -> Answer:
        """One request. *body* is sent as it is if it is bytes, as JSON otherwise."""
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        data = None if sent is None else io.BytesIO(sent)
        headers = {**self.headers, "Content-Type": content_type, "Accept": accept}
        async with self.session.request(
            method,
            self.url + path,
            data=data,
            headers=headers,
            params={key: str(value) for key, value in params.items()},
            ssl=self.tls,
        ) as response:
            text = await response.text()
            try:
                decoded = json.loads(text)
            except ValueError:
                decoded = text
            return Answer(response.status, decoded, dict(response.headers))

    async def get(self, path: str, **params: Any) -> Answer:
        return await self.call("GET", path, **params)

    async def post(self, path: str, body: Any, **params: Any) -> Answer:
        return await self.call("POST", path, body, **params)

    async def put(self, path: str, body: Any, **params: Any) -> Answer:
        return await self.call("PUT", path, body, **params)

    async def patch(
        self, path: str, body: Any, content_type: str = STRATEGIC, **params: Any
    ) -> Answer:
        return await self.call("PATCH", path, body, content_type=content_type, **params)

    async def delete(self, path: str, body: Any = None, **params: Any) -> Answer:
        return await self.call("DELETE", path, body, **params)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **params: Any) -> AsyncIterator[Watch]:
        """Watch a collection. The server has begun the watch when the block is entered."""
        query = {"watch": "1", "timeoutSeconds": "60"}
        query |= {key: str(value) for key, value in params.items()}
        async with self.session.get(
            self.url + path, params=query, headers=self.headers, ssl=self.tls
        ) as response:
            assert response.status == 200, await response.text()
            try:
                yield Watch(response)
            finally:
                # A TLS connection that is closed waits for the server's farewell, which may come
                # after the test's event loop has ended.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()

    async def eventually(
        self, ask: Callable[[], Awaitable[Answer]], is_so: Callable[[Answer], bool]
    ) -> Answer:
        """Ask again until the answer is so: parts of the real server look at caches."""
        answers: list[Answer] = []

        async def is_right() -> bool:
            answers[:] = [await ask()]
            return is_so(answers[0])

        await eventually(is_right, what="the right answer")
        return answers[0]

    # --- paths -----------------------------------------------------------------------------

    def path(self, plural: str, name: str = "", sub: str = "", *, group: str = "v1") -> str:
        """The path of a namespaced resource; *group* is its apiVersion."""
        base = "/api/v1" if group == "v1" else f"/apis/{group}"
        parts = [base, "namespaces", self.namespace, plural, name, sub]
        return "/".join(part for part in parts if part)

    def pods(self, name: str = "", sub: str = "") -> str:
        return self.path("pods", name, sub)

    def nodes(self, name: str = "", sub: str = "") -> str:
        return "/".join(part for part in ("/api/v1/nodes", name, sub) if part)

    def unique(self, stem: str) -> str:
        """A name that no other test uses, for cluster-scoped objects."""
        return f"{stem}-{secrets.token_hex(4)}"

    # --- objects ---------------------------------------------------------------------------

    async def make(self, path: str, manifest: Json) -> Json:
        """Create an object that must be accepted; cluster-scoped ones go after the test."""
        answer = await self.post(path, manifest)
        assert answer.status == 201, answer
        if f"/namespaces/{self.namespace}/" not in path:
            self._litter.append(f"{path}/{answer.body['metadata']['name']}")
        body: Json = answer.body
        return body

    async def make_pod(self, name: str, **fields: Any) -> Json:
        return await self.make(self.pods(), pod(name, **fields))

    async def make_node(self, name: str, **fields: Any) -> Json:
        return await self.make(self.nodes(), {"metadata": {"name": name, **fields}})

    async def bind(self, name: str, node: str, **metadata: Any) -> Answer:
        """POST the binding of a pod."""
        return await self.post(self.pods(name, "binding"), binding(name, node, **metadata))

    async def revision(self, path: str = "") -> str:
        """The resourceVersion of the collection now."""
        answer = await self.get(path or self.pods(), limit=1)
        return str(answer.body["metadata"]["resourceVersion"])

    async def clean(self) -> None:
        """Remove what the test has made outside its namespace, and its pods."""
        for path in reversed(self._litter):
            await self.delete(path)
        await self.delete(self.pods(), gracePeriodSeconds=0)


@dataclass
class Breakable:
    """A server to restart and to compact, which other tests may have done before."""

    api: Api
    compact: Callable[[], Awaitable[None]]
    restart: Callable[[], Awaitable[None]]


def pod(name: str, *, spec: Json | None = None, **metadata: Any) -> Json:
    """The smallest pod that is accepted, with *spec* over it."""
    containers = [{"name": "main", "image": "example/app:1"}]
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"containers": containers, **(spec or {})},
    }


def requesting(**resources: Any) -> Json:
    """A pod specification of one container with these `resources`."""
    return {"containers": [{"name": "main", "image": "example/app:1", "resources": resources}]}


def binding(name: str, node: str, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": node},
    }


def condition(manifest: Json, kind: str) -> Json:
    """The condition of that type in an object's status."""
    found: Json = next(
        item for item in manifest["status"].get("conditions", []) if item["type"] == kind
    )
    return found


def names(answer: Answer) -> list[str]:
    """The names in a list, in its order."""
    assert answer.status == 200, answer
    return [item["metadata"]["name"] for item in answer.body["items"]]
