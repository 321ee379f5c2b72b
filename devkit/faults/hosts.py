"""Hosts in virtual time: each has an event loop and a clock of its own, and one thread runs all.

Owns time, and whose turn it is. A host that is paused or killed is simply not run any more, as a
process that was stopped by its machine; what a host does without giving way (`spend`) keeps only
that host busy. Time advances when no host has anything to do, to the moment when one has again.
"""

import asyncio
import contextlib
import gc
import heapq
import itertools
import math
import random
import socket
import sys
import warnings
from asyncio import events as running
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

#: Where the epoch of a simulated world begins: any moment will do.
EPOCH: Final = 1_700_000_000.0
#: A timer is due so many seconds early at most, so that no rounding keeps it from being reached.
TICK: Final = 1e-6
#: What an iteration of an event loop takes.
STEP_SECONDS: Final = 1e-5
#: More iterations than this in one second: a host goes in circles.
_MOST_STEPS: Final = 20_000


class Stuck(Exception):
    """A host goes on and on without waiting for anything."""


class Simulator:
    """Runs hosts and what was arranged for a moment, in the order of virtual time.

    Args:
        rng: Chooses between hosts that could be next.
    """

    def __init__(self, rng: random.Random) -> None:
        self.now = 0.0
        self.hosts: list[Host] = []
        #: The dead, too: garbage must not be collected before the end.
        self.ever: list[Host] = []
        self.steps = 0
        self.running: Host | None = None
        self._rng = rng
        self._numbers = itertools.count()
        self._arranged: list[tuple[float, int, Callable[[], None]]] = []
        self._steps_before = 0

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """Have *act* called at *moment*, or now if that has passed."""
        heapq.heappush(self._arranged, (max(moment, self.now), next(self._numbers), act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Have *act* called so many seconds from now."""
        self.at(self.now + seconds, act)

    def close(self) -> None:
        """End the world: what is left of its processes ends, whatever it says to that.

        It ends here and not where garbage happens to be collected, in the middle of something.
        """
        before, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about what has not been run to its end
                for host in self.ever:
                    host.loop.abandon()
                for gone in (self.ever, self.hosts, self._arranged):
                    gone.clear()
                gc.collect()
        finally:
            sys.unraisablehook = before

    def run(self, until: float, *, end: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen until the moment *until*, or until *end* is true."""
        while not end():
            if self.steps - self._steps_before > _MOST_STEPS * max(1, len(self.hosts)):
                raise Stuck(f"{self.steps - self._steps_before} iterations within a second")
            moments = [host.next_moment for host in self.hosts]
            moment = min(moments, default=math.inf)
            if moment <= self.now:
                ready = [h for h, at in zip(self.hosts, moments, strict=True) if at <= self.now]
                self.running = ready[0] if len(ready) == 1 else self._rng.choice(ready)
                self.running.step()
                self.steps += 1
                continue
            if self._arranged:
                moment = min(moment, self._arranged[0][0])
            if moment > until:
                self.now = max(self.now, until)
                return
            if int(moment) > int(self.now):
                self._steps_before = self.steps
            self.now = max(self.now, moment)
            while self._arranged and self._arranged[0][0] <= self.now:
                heapq.heappop(self._arranged)[2]()


class HostNetwork(Protocol):
    """What a host needs of the network that it is in."""

    def addresses(self, host: str, port: int, /) -> list[Any]:
        """What a loop's `getaddrinfo` says."""
        ...

    async def connect(self, host: "Host", sock: socket.socket, address: tuple[str, int], /) -> None:
        """Connect *host*; *sock* is nothing but a name for the connection."""
        ...

    def transport_of(self, host: "Host", sock: socket.socket, protocol: Any, /) -> tuple[Any, Any]:
        """The transport of what `connect` has connected, and *protocol*."""
        ...

    def listen(self, host: "Host", factory: Callable[[], Any], name: str, port: int, /) -> Any:
        """Accept connections to *port* of *host*."""
        ...

    def host_died(self, host: "Host", /) -> None:
        """Break the connections of *host*."""
        ...


class HostClock:
    """The clock of a host: it may run fast or slow, and what it says of the date may jump.

    Attributes:
        rate: Its seconds per second.
        error: Seconds that its date is wrong by.
    """

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._base = self._base_here = simulator.now
        self.rate = 1.0
        self.error = 0.0
        self.busy_until = simulator.now  # in the simulator's time

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self.here(max(self._simulator.now, self.busy_until))

    def now(self) -> float:
        """Seconds since the epoch, as this host has them."""
        return EPOCH + self.monotonic() + self.error

    def spend(self, seconds: float) -> None:
        """Pass so many of this host's seconds without giving way."""
        self.busy_until = max(self._simulator.now, self.busy_until) + seconds / self.rate

    def drift(self, rate: float) -> None:
        """Run at *rate* from now on."""
        here = self.monotonic()
        self._base, self._base_here, self.rate = self._simulator.now, here, rate

    def here(self, moment: float) -> float:
        """What the clock shows at *moment* of the simulator's time."""
        return self._base_here + (moment - self._base) * self.rate

    def moment(self, here: float) -> float:
        """When, in the simulator's time, it shows *here*."""
        return self._base + (here - self._base_here) / self.rate


class Host:
    """A machine with one process.

    `running --pause--> paused --resume--> running`; `--kill--> dead`.

    Attributes:
        loop: The event loop of its process.
        clock: Its time.
    """

    def __init__(self, simulator: Simulator, network: HostNetwork, name: str) -> None:
        self.name = name
        self.simulator = simulator
        self.network = network
        self.clock = HostClock(simulator)
        self.loop = HostLoop(self)
        self.is_paused = False
        self.is_dead = False
        simulator.hosts.append(self)
        simulator.ever.append(self)

    def start(self, main: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begin *main* on this host."""
        task: asyncio.Task[T] = self.loop.create_task(main)
        return task

    def call(self, act: Callable[[], None]) -> None:
        """Have *act* called on this host, once it is running."""
        if not self.is_dead:
            self.loop.call_soon(act)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Have *act* called on this host so many of the world's seconds from now."""
        self.simulator.after(seconds, lambda: self.call(act))

    def pause(self) -> None:
        """Stop it where it is."""
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on."""
        self.is_paused = False

    def kill(self) -> None:
        """End it at once: nothing of it runs any more, and its connections break."""
        self.is_dead = True
        self.simulator.hosts.remove(self)
        self.network.host_died(self)

    @property
    def next_moment(self) -> float:
        """When something of it can run, in the simulator's time; not later than now: at once."""
        if self.is_paused:
            return math.inf
        clock = self.clock
        if self.loop.has_ready:
            return clock.busy_until
        timer = self.loop.next_timer
        return (
            math.inf if timer == math.inf else max(clock.moment(timer) - TICK / 2, clock.busy_until)
        )

    def step(self) -> None:
        """One iteration of its event loop."""
        self.loop.step()
        self.clock.spend(STEP_SECONDS)


class _NoSelector:
    """There are no files to wait for."""

    def select(self, _: float | None = None) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class HostLoop(asyncio.BaseEventLoop):
    """The event loop of a host. Work for threads is done at once, in this one."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tasks: dict[asyncio.Task[Any], None] = {}
        super().__init__()
        self._selector = _NoSelector()
        self._clock_resolution = TICK

    def time(self) -> float:
        """What the host's clock shows."""
        return self._host.clock.monotonic()

    @property
    def has_ready(self) -> bool:
        """True if a callback waits for its turn."""
        return bool(self._ready)  # type: ignore[attr-defined]  # asyncio's own, as the next ones

    @property
    def next_timer(self) -> float:
        """When the next timer is due by the host's clock; infinite if there is none."""
        timers = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:  # as asyncio drops them, only earlier
            heapq.heappop(timers)._scheduled = False
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
        return float(timers[0]._when) if timers else math.inf

    def step(self) -> None:
        """One iteration."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(
            firstiter=self._asyncgen_firstiter_hook,  # type: ignore[attr-defined]
            finalizer=self._asyncgen_finalizer_hook,  # type: ignore[attr-defined]
        )
        running._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            running._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _process_events(self, _: list[Any]) -> None:
        """Nothing comes from a selector."""

    def _write_to_self(self) -> None:
        """No other thread waits."""

    def run_in_executor(  # type: ignore[override]  # typeshed's is generic in a way of its own
        self, _: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """The outcome of *func*, as if a thread had taken no time for it."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def create_task(self, coro: Any, **options: Any) -> Any:
        """A task that is kept until it is done, also when nothing but garbage waits for it."""
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def abandon(self) -> None:
        """Forget everything: nothing of it is run any more, and no error of that is reported."""
        self.set_exception_handler(lambda *_: None)
        # Some were made without `create_task`: aiohttp's server does, on Python 3.12 and newer.
        for task in (*self._tasks, *asyncio.all_tasks(self)):
            with contextlib.suppress(BaseException):
                task.get_coro().close()
        self._tasks.clear()
        self._closed = True  # not by `close`, which ends things in order
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]

    # --- the network --------------------------------------------------------------------------

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """*host* as it is: names are ports here."""
        return self._host.network.addresses(host, port)

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Connect; *sock* is nothing but a name for the connection."""
        await self._host.network.connect(self._host, sock, address)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], *_: Any, sock: Any, **__: Any
    ) -> Any:
        """The transport of what `sock_connect` has connected."""
        return self._host.network.transport_of(self._host, sock, protocol_factory())

    async def create_server(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = 0, **_: Any
    ) -> Any:
        """Listen."""
        return self._host.network.listen(self._host, protocol_factory, host, port)
