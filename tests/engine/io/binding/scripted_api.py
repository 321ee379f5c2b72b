"""An API server on loopback that answers from a script: real HTTP, chosen failures.

Holds pods by key so that a read after a lost answer tells the truth.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint


@dataclass
class Request:
    method: str
    path: str
    body: dict[str, Any] | None


@dataclass
class Refuse:
    """Answer with a Status and do nothing."""

    status: int
    reason: str = ""
    message: str = "scripted"
    retry_after: str | None = None
    cause: str = ""


@dataclass
class Lose:
    """Close the connection without an answer, having done it (`after`) or not."""

    after: bool


@dataclass
class Hold:
    """Do it at once, and answer when told to."""

    until: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Linger:
    """Do it, and answer, when told to."""

    until: asyncio.Event = field(default_factory=asyncio.Event)


Step = Refuse | Lose | Hold | Linger


@dataclass
class ScriptedApi:
    """Answers `script[kind]` steps first, then behaves.

    Kinds: bind, read, event, status, delete; `kind name` is for one object alone and goes first. A
    deleted pod terminates if it has a node, and is gone if it has none. `bound` is the answer to a
    binding.
    """

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    script: dict[str, list[Step]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    binds_that_took_effect: int = 0
    bound: bytes = b'{"kind":"Status","code":201}'
    _runner: web.AppRunner | None = None
    url: str = ""

    def add_pod(self, name: str, uid: str, **spec: Any) -> None:
        self.pods[name] = {
            "metadata": {"name": name, "namespace": "default", "uid": uid},
            "spec": spec,
        }

    def count(self, method: str, ending: str) -> int:
        return sum(1 for r in self.requests if r.method == method and r.path.endswith(ending))

    async def __aenter__(self) -> "ScriptedApi":
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def client(self) -> ApiClient:
        return ApiClient(Endpoint(server=self.url))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        self.requests.append(Request(request.method, request.path, body))
        kind, effect = self._effect(request.method, request.path, body)
        name = request.path.removesuffix("/status").removesuffix("/binding").rsplit("/", 1)[-1]
        steps = self.script.get(f"{kind} {name}") or self.script.get(kind, [])
        step = steps.pop(0) if steps else None
        if isinstance(step, Refuse):
            headers = {"Retry-After": step.retry_after} if step.retry_after else {}
            return _status(step.status, step.reason, step.message, headers, step.cause)
        if isinstance(step, Lose):
            if step.after:
                effect()
            assert request.transport is not None
            request.transport.close()
            await asyncio.sleep(0)
            return web.Response()
        if isinstance(step, Hold):
            answer = effect()
            await step.until.wait()
            return answer
        if isinstance(step, Linger):
            await step.until.wait()
        return effect()

    def _effect(self, method: str, path: str, body: Any) -> tuple[str, Callable[[], web.Response]]:
        if path.endswith("/binding"):
            return "bind", lambda: self._bind(path.split("/")[-2], body)
        if path.endswith("/status"):
            return "status", lambda: self._patch_status(path.split("/")[-2], body)
        if "/events" in path:
            return "event", lambda: self._event(method, path.rsplit("/", 1)[-1], body)
        if method == "DELETE":
            return "delete", lambda: self._delete(path.rsplit("/", 1)[-1], body)
        return "read", lambda: self._read(path.rsplit("/", 1)[-1])

    def _bind(self, name: str, body: Any) -> web.Response:
        pod = self.pods.get(name)
        if pod is None:
            return _status(404, "NotFound", f'pods "{name}" not found')
        if pod["metadata"]["uid"] != body["metadata"]["uid"]:
            return _status(409, "Conflict", "the UID in the precondition does not match")
        if pod["spec"].get("nodeName"):
            return _status(409, "Conflict", f"pod {name} is already assigned to node")
        if pod["metadata"].get("deletionTimestamp"):
            return _status(409, "Conflict", f"pod {name} is being deleted")
        pod["spec"]["nodeName"] = body["target"]["name"]
        self.binds_that_took_effect += 1
        return web.Response(status=201, body=self.bound, content_type="application/json")

    def _read(self, name: str) -> web.Response:
        pod = self.pods.get(name)
        if pod is None:
            return _status(404, "NotFound", f'pods "{name}" not found')
        return web.json_response(pod)

    def _patch_status(self, name: str, body: Any) -> web.Response:
        pod = self.pods.get(name)
        if pod is None:
            return _status(404, "NotFound", f'pods "{name}" not found')
        uid = body["metadata"]["uid"]
        if pod["metadata"]["uid"] != uid:
            why = f'metadata.uid: Invalid value: "{uid}": field is immutable'
            return _status(422, "Invalid", f'Pod "{name}" is invalid: {why}')
        status, patch = pod.setdefault("status", {}), dict(body["status"])
        patched = patch.pop("conditions", [])
        conditions = {c["type"]: c for c in status.get("conditions", [])}
        for condition in patched:
            conditions[condition["type"]] = conditions.get(condition["type"], {}) | condition
        status.update(patch)
        status["conditions"] = list(conditions.values())
        return web.json_response(pod)

    def _delete(self, name: str, body: Any) -> web.Response:
        pod = self.pods.get(name)
        if pod is None:
            return _status(404, "NotFound", f'pods "{name}" not found')
        if pod["metadata"]["uid"] != body["preconditions"]["uid"]:
            return _status(409, "Conflict", "the UID in the precondition does not match")
        if pod["spec"].get("nodeName"):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
        else:
            del self.pods[name]
        return web.json_response(pod)

    def _event(self, method: str, name: str, body: Any) -> web.Response:
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.events:
                return _status(409, "AlreadyExists", "it exists")
            self.events[name] = body
        elif name not in self.events:
            return _status(404, "NotFound", "no such event")
        else:
            self.events[name].update(body)
        return web.json_response(self.events[name])


def _status(
    code: int, reason: str, message: str, headers: dict[str, str] | None = None, cause: str = ""
) -> web.Response:
    body: dict[str, Any] = {"kind": "Status", "code": code, "reason": reason, "message": message}
    if cause:
        body["details"] = {"causes": [{"reason": cause}]}
    return web.json_response(body, status=code, headers=headers)
