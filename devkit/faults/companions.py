"""Servers that schedulers talk to in addition to API servers: an extender, a Prometheus server.

Owns their HTTP, and how they fail: late, never, with an error, in the middle, with garbage, with an
answer to another question, or not there at all. What they answer when they work is small and true.
"""

import asyncio
import random
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, Final

import msgspec
from aiohttp import web

from devkit.cluster import DevCluster
from devkit.cluster.server import make_request
from devkit.faults.hosts import Host
from devkit.faults.network import End
from engine.core.manifests.errors import ApiStatus

Json = dict[str, Any]

EXTENDER: Final = "extender"
EXTENDER_PORT: Final = 8888
PROMETHEUS: Final = "prometheus"
PROMETHEUS_PORT: Final = 9090
#: What may happen to a request.
FAULTS: Final = (
    "is late",
    "hangs",
    "refuses",
    "breaks off",
    "sends garbage",
    "sends nonsense",
)
_STATUSES: Final = (400, 404, 429, 500, 503)
_HANGING_SECONDS: Final = 600.0
_PATH: Final = "/api/v1/query"
#: Values as a Prometheus server writes them, and as none does.
_SAMPLES: Final = ("NaN", "+Inf", "-1e308", "0x10", "", "many", None, 7, True, [1], {"a": 1})


class Companion:
    """A server on a host of its own.

    `down --start--> serving --crash--> down`.

    Attributes:
        due: Names of `FAULTS`, each for one request.
    """

    def __init__(
        self,
        name: str,
        port: int,
        host: Host,
        rng: random.Random,
        on_fault: Callable[[str], None],
    ) -> None:
        self.name = name
        self.host = host
        self.due: list[str] = []
        self._port = port
        self._rng = rng
        self._on_fault = on_fault
        self._http: web.Server | None = None
        self._listener: Any = None

    async def start(self) -> None:
        """Serve; does nothing if it does."""
        if self._listener is None:
            self._http = web.Server(self._handle, request_factory=make_request, access_log=None)
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(self._http, "127.0.0.1", self._port)

    def be_gone(self, seconds: float) -> None:
        """Go down for so many seconds."""
        self.host.start(self.crash())
        self.host.later(seconds, self._come_back)

    def _come_back(self) -> None:
        self.host.start(self.start())

    async def crash(self) -> None:
        """Go down: connections break, new ones are refused."""
        if self._listener is not None and self._http is not None:
            self._listener.close()
            self._listener = None
            for connection in self._http.connections:
                if connection.transport is not None:
                    connection.transport.abort()
            await self._http.shutdown(0.0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        fault = self.due.pop(0) if self.due else ""
        if fault:
            self._on_fault(f"{self.name} {fault}")
        answer = self.answer(request, body, fault)
        status = 200
        match fault:
            case "is late":
                await asyncio.sleep(self._rng.uniform(0.1, 20.0))
            case "hangs":
                await asyncio.sleep(_HANGING_SECONDS)
            case "refuses":
                status, answer = self._rng.choice(_STATUSES), b"no"
            case "sends garbage":
                cut = self._rng.randrange(len(answer))
                answer = answer[:cut] + self._rng.randbytes(self._rng.randint(0, 20))
            case "breaks off":
                transport = request.transport
                if transport is not None:
                    transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + answer)
                    transport.abort()
        date = formatdate(self.host.clock.now(), usegmt=True)
        return web.Response(body=answer, status=status, headers={"Date": date, "Server": self.name})

    def answer(self, request: web.BaseRequest, body: bytes, fault: str) -> bytes:
        """The body of the answer to a request that meets *fault*, or "" for none."""
        raise NotImplementedError


class ExtenderServer(Companion):
    """An extender that likes every node, some more than others, and binds where it should.

    Args:
        bind: Binds a pod for a replica: by whom, namespace, name, `Binding`.
    """

    def __init__(
        self,
        host: Host,
        rng: random.Random,
        on_fault: Callable[[str], None],
        bind: Callable[[str, str, str, Json], None],
    ) -> None:
        super().__init__(EXTENDER, EXTENDER_PORT, host, rng, on_fault)
        self._bind = bind

    def answer(self, request: web.BaseRequest, body: bytes, fault: str) -> bytes:
        """What `k8s.io/kube-scheduler/extender/v1` wants."""
        asked = msgspec.json.decode(body)
        verb = request.path.rpartition("/")[2]
        is_nonsense = fault == "sends nonsense"
        if verb == "bind":
            return self._bound(request, asked, fault)
        if verb == "preempt":
            found = self._victims(asked)
            return _encode(self._other_victims(found) if is_nonsense else found)
        names = _names(asked)
        if verb == "filter":
            nodes = None if asked["Nodes"] is None else {"items": _nodes(names)}
            if is_nonsense:
                return _encode(self._other_nodes(names))
            return _encode({"Nodes": nodes, "NodeNames": names, "FailedNodes": {}, "Error": ""})
        scores: list[Any] = [{"Host": name, "Score": _score(name)} for name in names]
        return _encode(self._other_scores(scores) if is_nonsense else scores)

    def _bound(self, request: web.BaseRequest, asked: Json, fault: str) -> bytes:
        # At once or not at all: what takes effect after the lease is beyond any scheduler.
        if not fault or self._rng.random() < 0.5:
            end = request.transport
            assert isinstance(end, End)
            metadata = {"name": asked["PodName"], "uid": asked["PodUID"]}
            binding = {"metadata": metadata, "target": {"kind": "Node", "name": asked["Node"]}}
            by = end.peer.host.name
            try:
                self._bind(by, asked["PodNamespace"], asked["PodName"], binding)
            except ApiStatus as error:
                return _encode({"Error": error.message})
        return _encode({"Error": "no" if fault == "sends nonsense" else ""})

    @staticmethod
    def _victims(asked: Json) -> Json:
        full, meta = asked["NodeNameToVictims"], asked["NodeNameToMetaVictims"]
        if full is not None:
            meta = {
                node: {
                    "Pods": [{"UID": pod["metadata"]["uid"]} for pod in found["Pods"]],
                    "NumPDBViolations": found["NumPDBViolations"],
                }
                for node, found in full.items()
            }
        return {"NodeNameToMetaVictims": meta}

    def _other_victims(self, found: Json) -> Any:
        meta = found["NodeNameToMetaVictims"]
        first = sorted(meta)[:1]
        return self._rng.choice(
            [
                {"NodeNameToMetaVictims": {name: meta[name] for name in first}},
                {"NodeNameToMetaVictims": {"no-such-node": {"Pods": [], "NumPDBViolations": 0}}},
                {"NodeNameToMetaVictims": {name: {"Pods": [{"UID": "none"}]} for name in first}},
                {"NodeNameToMetaVictims": dict.fromkeys(first)},
                {"NodeNameToMetaVictims": None},
                [],
            ]
        )

    def _other_nodes(self, names: list[str]) -> Any:
        some = [name for name in names if self._rng.random() < 0.5]
        return self._rng.choice(
            [
                {"NodeNames": some, "FailedNodes": {n: "no" for n in names if n not in some}},
                {"NodeNames": [*names, "no-such-node"]},
                {"NodeNames": names + names, "FailedNodes": dict.fromkeys(names, "both")},
                {"Nodes": {"items": _nodes(some)}, "NodeNames": names},
                {"NodeNames": None, "FailedAndUnresolvableNodes": dict.fromkeys(names, "never")},
                {"NodeNames": names, "Error": "cannot"},
                {"NodeNames": [3]},
                {},
            ]
        )

    def _other_scores(self, scores: list[Any]) -> Any:
        far = self._rng.choice([-5, 1 << 62, -(1 << 62), 1 << 70, "10", 1.5, None])
        return self._rng.choice(
            [
                [{**one, "Score": far} for one in scores],
                [*scores, {"Host": "no-such-node", "Score": 10}],
                scores[:1] * 3,
                [{}],
                [None],
                {},
                None,
            ]
        )


class PrometheusServer(Companion):
    """A Prometheus server that knows one value of each node.

    Args:
        cluster: Whose nodes they are.
    """

    def __init__(
        self,
        host: Host,
        rng: random.Random,
        on_fault: Callable[[str], None],
        cluster: DevCluster,
    ) -> None:
        super().__init__(PROMETHEUS, PROMETHEUS_PORT, host, rng, on_fault)
        self._cluster = cluster

    def answer(self, request: web.BaseRequest, body: bytes, fault: str) -> bytes:
        """A vector with a sample of each node."""
        now = self.host.clock.now()
        result: list[Json] = []
        for node in self._cluster.list("nodes"):
            name = node["metadata"]["name"]
            value = (_score(name) * 7 + int(now / 60)) % 100
            result.append({"metric": {"node": name}, "value": [now, str(value)]})
        found = {"status": "success", "data": {"resultType": "vector", "result": result}}
        return _encode(self._other(found, result) if fault == "sends nonsense" else found)

    def _other(self, found: Json, result: list[Json]) -> Any:
        rng = self._rng
        data = found["data"]
        at = rng.choice([0, -1, 1e18, "soon", None, self.host.clock.now() - 3600])
        values = rng.choice(_SAMPLES)
        return rng.choice(
            [
                {"status": "error", "error": "too many samples"},
                {**found, "data": {**data, "resultType": "matrix"}},
                {**found, "data": {**data, "result": []}},
                {**found, "data": {**data, "result": result + result}},
                {**found, "data": {**data, "result": [{**one, "metric": {}} for one in result]}},
                {**found, "data": {**data, "result": [{**r, "value": [at, "1"]} for r in result]}},
                {
                    **found,
                    "data": {**data, "result": [{**r, "value": [1, values]} for r in result]},
                },
                {**found, "data": {**data, "result": [None, 3, {}]}},
                {**found, "data": None},
                [],
            ]
        )


_encode = msgspec.json.Encoder().encode


def _names(asked: Json) -> list[str]:
    if asked["NodeNames"] is not None:
        return list(asked["NodeNames"])
    return [node["metadata"]["name"] for node in asked["Nodes"]["items"]]


def _nodes(names: list[str]) -> list[Json]:
    return [{"metadata": {"name": name}} for name in names]


def _score(name: str) -> int:
    """From 0 to 10."""
    return sum(name.encode()) % 11
