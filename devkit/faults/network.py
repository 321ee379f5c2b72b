"""A network of hosts: connections whose bytes take time, get stuck, are cut off, or never arrive.

Owns what happens to bytes between two hosts. Everything above a transport is the real thing.
"""

import asyncio
import random
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from devkit.faults.hosts import Host, Simulator

#: A sender has to wait when so many bytes are under way or not read yet.
_HIGH_WATER: Final = 1 << 16
_CONNECT_SECONDS: Final = 120.0
#: The kernel of either side finds out that the other is silent.
KEEPALIVE_SECONDS: Final = 60.0


@dataclass(slots=True)
class Weather:
    """How a network behaves.

    Attributes:
        latency: Mean seconds that a piece takes, exponential, and at least a tenth of it.
        pieces: Bytes that arrive at a time at most; 0: as they were written.
    """

    latency: float = 0.001
    pieces: int = 0


class Network:
    """All connections.

    Args:
        rng: Latencies, and where what is written is cut into pieces.
    """

    def __init__(self, simulator: Simulator, rng: random.Random) -> None:
        self.simulator = simulator
        self.weather = Weather()
        self.connections: list[Connection] = []
        self._rng = rng
        #: By port; a connection to one of several hosts goes to any of them.
        self._listeners: dict[int, dict[Host, Callable[[], Any]]] = {}
        self._connected: dict[int, Connection] = {}
        #: Called with the end at which a piece arrives, and the piece.
        self.on_piece: Callable[[End, bytes], None] = lambda _end, _data: None
        self._next_port = 20_000
        #: Pairs of host names that do not hear each other.
        self.cut_off: set[tuple[str, str]] = set()
        #: What the next attempts to connect from a host fail with.
        self.connect_errors: dict[str, deque[OSError]] = {}

    # --- the loops' calls ---------------------------------------------------------------------

    def addresses(self, host: str, port: int) -> list[Any]:
        """What a resolver answers."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    def listen(self, host: Host, factory: Callable[[], Any], name: str, port: int) -> "Listener":
        """Accept connections to *port* (0: a free one) on *host*."""
        if not port:
            self._next_port += 1
            port = self._next_port
        listening = self._listeners.setdefault(port, {})
        if host in listening:
            raise OSError(f"port {port} is in use")
        listening[host] = factory
        return Listener(self, host, name, port)

    def stop_listening(self, host: Host, port: int) -> None:
        """Refuse connections to *port* on *host*."""
        self._listeners.get(port, {}).pop(host, None)

    async def connect(self, host: Host, sock: socket.socket, address: tuple[str, int]) -> None:
        """Connect from *host*; raises `OSError`, or goes on for minutes, as the weather is."""
        await asyncio.sleep(self.delay())
        errors = self.connect_errors.get(host.name)
        if errors:
            raise errors.popleft()
        listening = list(self._listeners.get(address[1], {}).items())
        if not listening:
            raise ConnectionRefusedError("nothing listens there")
        there, factory = listening[0] if len(listening) == 1 else self._rng.choice(listening)
        if (host.name, there.name) in self.cut_off:
            await asyncio.sleep(_CONNECT_SECONDS)
            raise TimeoutError("no route")
        await asyncio.sleep(self.delay())
        connection = Connection(self, host, there)
        self.connections.append(connection)
        self._connected[sock.fileno()] = connection
        there.call(partial(self._accept, connection, factory))

    def transport_of(self, host: Host, sock: socket.socket, protocol: Any) -> tuple[Any, Any]:
        """The near end of the connection of *sock*, with its protocol."""
        connection = self._connected.pop(sock.fileno())
        sock.close()
        connection.near.adopt(protocol)
        return connection.near, protocol

    def host_died(self, host: Host) -> None:
        """Break what *host* had open, and refuse what comes."""
        for listening in self._listeners.values():
            listening.pop(host, None)
        for connection in list(self.connections):
            for end in (connection.near, connection.far):
                if end.host is host:
                    end.vanish()

    def join(self, directions: list[tuple[str, str]], keepalive: float) -> None:
        """End a partition: what was sent meanwhile is lost, and so are its connections."""
        self.cut_off.difference_update(directions)
        names = {name for direction in directions for name in direction}
        for connection in list(self.connections):
            if {connection.near.host.name, connection.far.host.name} <= names:
                connection.fall_silent(keepalive)

    def delay(self) -> float:
        """Seconds that a piece takes."""
        mean = self.weather.latency
        return mean * 0.1 + self._rng.expovariate(1.0) * mean * 0.9

    def cut(self, data: bytes) -> list[bytes]:
        """*data* in the pieces in which it arrives."""
        most = self.weather.pieces
        if not most or len(data) <= 1:
            return [data]
        pieces = []
        while data:
            size = self._rng.randint(1, most)
            pieces.append(data[:size])
            data = data[size:]
        return pieces

    def count_from(self, host: Host) -> int:
        """The connections that *host* has made and not lost."""
        near = (connection.near for connection in self.connections)
        return sum(end.host is host and not end.is_lost for end in near)

    def forget(self, connection: "Connection") -> None:
        """Both ends of *connection* are closed."""
        if connection in self.connections:
            self.connections.remove(connection)

    def close(self) -> None:
        """End the world: nothing here refers to its processes any more."""
        self.connections.clear()
        self._connected.clear()
        self._listeners.clear()

    @staticmethod
    def _accept(connection: "Connection", factory: Callable[[], Any]) -> None:
        connection.far.adopt(factory())


class Listener:
    """What `create_server` returns."""

    def __init__(self, network: Network, host: Host, name: str, port: int) -> None:
        self._network = network
        self._host = host
        self._name = (name, port)
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return self._name

    def close(self) -> None:
        """Accept no more connections."""
        self._network.stop_listening(self._host, self._name[1])

    async def wait_closed(self) -> None:
        """It is."""


class Connection:
    """Two ends. *near* is the one that connected.

    Attributes:
        is_silent: Nothing arrives any more, and neither side knows.
        cut_after: Bytes towards each end (near, far) after which it breaks; -1: none.
    """

    def __init__(self, network: Network, near: Host, far: Host) -> None:
        self.network = network
        self.is_silent = False
        self.near = End(self, near)
        self.far = End(self, far)
        self.near.peer, self.far.peer = self.far, self.near

    def reset(self) -> None:
        """Break it for both ends."""
        for end in (self.near, self.far):
            end.arrive(partial(end.lose, ConnectionResetError("the connection was reset")))

    def fall_silent(self, seconds: float) -> None:
        """Let nothing arrive any more; each side finds out after so many seconds."""
        self.is_silent = True
        for end in (self.near, self.far):
            lose = partial(end.lose, TimeoutError("the other side is silent"))
            self.network.simulator.after(seconds, partial(end.host.call, lose))

    @property
    def is_closed(self) -> bool:
        """True if no end is open."""
        return self.near.is_lost and self.far.is_lost


class End(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, connection: Connection, host: Host) -> None:
        super().__init__()
        self.connection = connection
        self.host = host
        self.peer: End = self
        self.protocol: Any = None
        self.cut_after = -1
        self.is_lost = False
        self._early: list[Callable[[], None]] = []  # what came before there was a protocol
        self._unread: deque[bytes] = deque()
        self._has_ended = False  # the peer writes no more
        self._is_closing = False
        self._reads = True
        self._under_way = 0  # bytes to the peer that it has not read
        self._is_full = False
        self._last_arrival = 0.0

    # --- as a transport -----------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The address of the other side; nothing else is known."""
        if name == "peername":
            return ("127.0.0.1", 1)
        return default

    def is_closing(self) -> bool:
        """True once it is closed here."""
        return self._is_closing

    def set_protocol(self, protocol: Any) -> None:
        """Hand over to another protocol."""
        self.protocol = protocol

    def get_protocol(self) -> Any:
        """What it reports to."""
        return self.protocol

    def is_reading(self) -> bool:
        """True if what arrives is handed over."""
        return self._reads and not self._is_closing

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._reads = False

    def resume_reading(self) -> None:
        """Hand over what was kept."""
        if not self._reads:
            self._reads = True
            self.host.call(self._hand_over)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is one limit."""

    def get_write_buffer_size(self) -> int:
        """Bytes that the other side has not read."""
        return self._under_way

    def can_write_eof(self) -> bool:
        """Ends close for both directions."""
        return False

    def write(self, data: Any) -> None:
        """Send *data*, as one piece or several."""
        if self._is_closing or self.is_lost or self.host.is_dead or not data:
            return
        for piece in self.connection.network.cut(bytes(data)):
            self._under_way += len(piece)
            self.peer.arrive(partial(self.peer.receive, piece))
        if self._under_way > _HIGH_WATER and not self._is_full:
            self._is_full = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send all of it."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """End it, after what was sent."""
        if not self._is_closing:
            self._is_closing = True
            self.peer.arrive(self.peer.end)
            self.host.call(partial(self.lose, None))

    def abort(self) -> None:
        """End it at once."""
        self._is_closing = True
        if not self.is_lost:
            reset = ConnectionResetError("the other side reset the connection")
            self.peer.arrive(partial(self.peer.lose, reset))
            self.host.call(partial(self.lose, None))

    # --- the other end's calls ----------------------------------------------------------------

    def arrive(self, act: Callable[[], None]) -> None:
        """Have *act* called here once what was sent before has arrived, and its own time is up."""
        network = self.connection.network
        if self.connection.is_silent or (self.peer.host.name, self.host.name) in network.cut_off:
            return
        moment = max(self._last_arrival, network.simulator.now + network.delay())
        self._last_arrival = moment
        network.simulator.at(moment, partial(self.host.call, partial(self._now, act)))

    def _now(self, act: Callable[[], None]) -> None:
        if self.protocol is None:
            self._early.append(act)
        else:
            act()

    def adopt(self, protocol: Any) -> None:
        """Begin, with *protocol*."""
        self.protocol = protocol
        protocol.connection_made(self)
        early, self._early = self._early, []
        for act in early:
            act()

    def receive(self, data: bytes) -> None:
        """Take in *data*."""
        self.connection.network.on_piece(self, data)
        if self.is_lost or self._is_closing:
            return
        if 0 <= self.cut_after < len(data):
            data = data[: self.cut_after]
            self._unread.append(data)
            self._hand_over()
            self.connection.reset()
            return
        if self.cut_after >= 0:
            self.cut_after -= len(data)
        self._unread.append(data)
        self._hand_over()

    def end(self) -> None:
        """The peer has closed."""
        self._has_ended = True
        self._hand_over()

    def lose(self, error: Exception | None) -> None:
        """It is over."""
        if self.is_lost:
            return
        self.is_lost = self._is_closing = True
        if self.protocol is not None:
            self.protocol.connection_lost(error)
        if self.connection.is_closed:
            self.connection.network.forget(self.connection)

    def vanish(self) -> None:
        """The host of this end is gone: the kernel of its machine resets the connection."""
        if not self.is_lost:
            self.is_lost = self._is_closing = True
            reset = ConnectionResetError("the other side is gone")
            self.peer.arrive(partial(self.peer.lose, reset))

    def _hand_over(self) -> None:
        while self._unread and self._reads and not self._is_closing:
            data = self._unread.popleft()
            self.peer.has_read(len(data))
            if not data:
                continue
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                self._fill(data)
            else:
                self.protocol.data_received(data)
        if self._has_ended and not self._unread and not self._is_closing:
            self._has_ended = False
            if not self.protocol.eof_received():
                self.close()

    def _fill(self, data: bytes) -> None:
        while data and not self._is_closing:
            buffer = self.protocol.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.protocol.buffer_updated(size)

    def has_read(self, size: int) -> None:
        """The peer has read *size* bytes of what was written here."""
        self._under_way -= size
        if self._is_full and self._under_way <= _HIGH_WATER // 2:
            self._is_full = False
            if not self.is_lost and not self._is_closing:
                self.host.call(self.protocol.resume_writing)
