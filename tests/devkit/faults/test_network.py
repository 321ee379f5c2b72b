"""Connections of simulated hosts: order, cuts, silence, and senders that have to wait."""

import asyncio
import random
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from devkit.faults.hosts import Host, Simulator
from devkit.faults.network import Connection, Network, Weather


class Heard(asyncio.Protocol):
    """What arrived at one end."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: list[Exception | None] = []
        self.paused = 0
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.paused -= 1


class Line:
    """A connection between two hosts."""

    def __init__(self) -> None:
        self.simulator = Simulator(random.Random(1))
        self.network = Network(self.simulator, random.Random(2))
        self.here = Host(self.simulator, self.network, "here")
        self.there = Host(self.simulator, self.network, "there")
        self.near, self.far = Heard(), Heard()
        self.error: Exception | None = None
        self.there.start(self.there.loop.create_server(lambda: self.far, "there", 80))
        self.connect()

    def connect(self) -> None:
        self.here.start(self._connect())
        self.go_on(1.0)

    async def _connect(self) -> None:
        loop, sock = asyncio.get_running_loop(), socket.socket()
        try:
            await loop.sock_connect(sock, ("there", 80))
            await loop.create_connection(lambda: self.near, sock=sock)
        except OSError as error:
            sock.close()
            self.error = error

    @property
    def connection(self) -> Connection:
        (connection,) = self.network.connections
        return connection

    def go_on(self, seconds: float) -> None:
        self.simulator.run(self.simulator.now + seconds)


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.simulator.close()


def test_bytes_arrive_in_order_in_whatever_pieces(line: Line) -> None:
    line.network.weather = Weather(latency=0.1, pieces=3)
    for part in (b"one ", b"two ", b"three"):
        line.near.transport.write(part)
    line.go_on(20.0)
    assert line.far.data == b"one two three"


def test_a_cut_connection_ends_for_both_after_so_many_bytes(line: Line) -> None:
    line.connection.far.cut_after = 3
    line.near.transport.write(b"abcdef")
    line.go_on(1.0)
    assert line.far.data == b"abc"
    for end in (line.near, line.far):
        assert [type(error) for error in end.lost] == [ConnectionResetError]


def test_on_a_silent_connection_nothing_arrives_and_both_find_out(line: Line) -> None:
    line.connection.fall_silent(60.0)
    line.near.transport.write(b"lost")
    line.go_on(59.0)
    assert line.far.data == b""
    assert line.near.lost == []
    line.go_on(2.0)
    assert [type(error) for error in line.near.lost + line.far.lost] == [TimeoutError] * 2


def test_a_host_that_dies_resets_its_connections(line: Line) -> None:
    line.there.kill()
    line.go_on(1.0)
    assert [type(error) for error in line.near.lost] == [ConnectionResetError]


def test_a_close_arrives_after_what_was_sent(line: Line) -> None:
    line.near.transport.write(b"the end")
    line.near.transport.close()
    line.go_on(1.0)
    assert line.far.data == b"the end"
    assert line.far.lost == [None]


def test_a_sender_waits_for_a_reader_that_does_not_read(line: Line) -> None:
    line.far.transport.pause_reading()
    line.near.transport.write(b"x" * 200_000)
    line.go_on(1.0)
    assert line.near.paused == 1
    assert line.far.data == b""
    line.far.transport.resume_reading()
    line.go_on(1.0)
    assert line.near.paused == 0
    assert len(line.far.data) == 200_000


@pytest.mark.parametrize("error", [ConnectionRefusedError("no"), OSError("no route")])
def test_a_connection_can_be_refused(line: Line, error: OSError) -> None:
    line.network.connect_errors["here"] = deque([error])
    line.connect()
    assert line.error is error
