"""An extender and a Prometheus server in virtual time, asked by the scheduler's own clients."""

import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from devkit.cluster import DevCluster, make_node
from devkit.faults.companions import (
    EXTENDER_PORT,
    FAULTS,
    PROMETHEUS_PORT,
    Companion,
    ExtenderServer,
    PrometheusServer,
)
from devkit.faults.hosts import Host, Simulator
from devkit.faults.network import Network
from engine.core.framework.extender import Extender, ExtenderError
from engine.core.manifests.errors import bad_request
from engine.core.scheduling import extender_messages as messages
from engine.io.facts.prometheus import PrometheusSource
from engine.io.kube.extender_client import ExtenderClient
from engine.policy.fact_config import FactQuery, PrometheusFacts
from tests.builders import make_pod

BINDING = {"metadata": {"name": "p", "uid": "u"}, "target": {"kind": "Node", "name": "n"}}


class Asking:
    """A host that asks, and what happened to its requests."""

    def __init__(self) -> None:
        self.simulator = Simulator(random.Random(1))
        self.network = Network(self.simulator, random.Random(2))
        self.host = Host(self.simulator, self.network, "replica")
        self.faults: list[str] = []
        self.bound: list[tuple[str, Any]] = []
        self.refuses = False

    def extender(self) -> ExtenderServer:
        found = ExtenderServer(self._other(), *self._rest(), self._bind)
        self._start(found)
        return found

    def prometheus(self, cluster: DevCluster) -> PrometheusServer:
        found = PrometheusServer(self._other(), *self._rest(), cluster)
        self._start(found)
        return found

    def _other(self) -> Host:
        return Host(self.simulator, self.network, "other")

    def _rest(self) -> tuple[random.Random, Callable[[str], None]]:
        return random.Random(3), self.faults.append

    def _start(self, companion: Companion) -> None:
        companion.host.start(companion.start())
        self.simulator.run(0.1)

    def _bind(self, by: str, _namespace: str, _name: str, binding: Any) -> None:
        if self.refuses:
            raise bad_request("it is bound")
        self.bound.append((by, binding))

    def result(self, work: Coroutine[Any, Any, Any], seconds: float = 30.0) -> Any:
        """What *work* returns on the host that asks."""
        task = self.host.start(work)
        self.simulator.run(self.simulator.now + seconds)
        return task.result()


@pytest.fixture
def asking() -> Iterator[Asking]:
    asking = Asking()
    yield asking
    asking.simulator.close()


def filter_body(*names: str) -> bytes:
    return messages.nodes_request(make_pod("p"), None, names)


async def send(verb: str, body: bytes) -> bytes:
    client = ExtenderClient(Extender(url_prefix=f"http://127.0.0.1:{EXTENDER_PORT}/x"))
    try:
        return await client.send(verb, body, bytes, repeatable=verb != "bind")
    finally:
        await client.close()


def test_an_extender_accepts_every_node(asking: Asking) -> None:
    asking.extender()
    answer = asking.result(send("filter", filter_body("a", "b")))
    assert messages.filter_result(answer).node_names == ("a", "b")
    scores = dict(messages.priorities(asking.result(send("prioritize", filter_body("a", "b")))))
    assert scores.keys() == {"a", "b"}
    assert all(0 <= score <= 10 for score in scores.values())


def test_an_extender_binds_for_who_asks(asking: Asking) -> None:
    asking.extender()
    body = messages.bind_request(make_pod("p", uid="u"), "n")
    assert messages.binding_result(asking.result(send("bind", body))) == ""
    assert asking.bound == [("replica", BINDING)]
    asking.refuses = True
    assert messages.binding_result(asking.result(send("bind", body))) == "it is bound"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_an_extender_is_its_answer_or_an_error(asking: Asking, fault: str) -> None:
    extender = asking.extender()
    extender.due.append(fault)
    with contextlib.suppress(ExtenderError):
        messages.filter_result(asking.result(send("filter", filter_body("a", "b"))))
    assert asking.faults == [f"extender {fault}"]
    answer = asking.result(send("filter", filter_body("a", "b")))
    assert messages.filter_result(answer).node_names == ("a", "b")


def readings_of(asking: Asking, seconds: float) -> list[dict[Any, Any]]:
    config = PrometheusFacts(
        f"http://127.0.0.1:{PROMETHEUS_PORT}", queries=(FactQuery("load", "node_load"),)
    )
    source, seen = PrometheusSource(config), []
    running = asking.host.start(source.run(lambda readings: seen.append(dict(readings))))
    asking.simulator.run(asking.simulator.now + seconds)
    assert not running.done()
    return seen


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_prometheus_server_passes(asking: Asking, fault: str) -> None:
    cluster = DevCluster(seed=1)
    cluster.create(make_node("node-1"))
    prometheus = asking.prometheus(cluster)
    prometheus.due.append(fault)
    seen = readings_of(asking, 60.0)
    assert asking.faults == [f"prometheus {fault}"]
    (reading,) = seen[-1].values()
    assert 0 <= reading["load"].value < 100


def test_one_that_is_gone_comes_back(asking: Asking) -> None:
    asking.extender().be_gone(5.0)
    with pytest.raises(ExtenderError, match="connection refused"):
        asking.result(send("filter", filter_body("a")), seconds=2.0)
    asking.simulator.run(asking.simulator.now + 5.0)
    assert asking.result(send("filter", filter_body("a")))
