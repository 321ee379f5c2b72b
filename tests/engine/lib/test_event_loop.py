"""The loop of the commands: names are looked up beside it, and it waits for no answer."""

import asyncio
import socket
import subprocess
import sys
import threading

import pytest

from engine.lib import event_loop

# A name server that does not answer: the lookup is begun, and nobody waits for it any more.
_MUTE = """
import asyncio, socket, time

from engine.lib import event_loop

async def main():
    loop = asyncio.get_running_loop()
    looking = asyncio.ensure_future(loop.getaddrinfo("api.example.com", 443))
    await asyncio.sleep(0.1)
    assert not looking.done()
    looking.cancel()

socket.getaddrinfo = lambda *_, **__: time.sleep(60)
event_loop.run(main())
"""


async def _addresses(host: str) -> list[object]:
    loop = asyncio.get_running_loop()
    return list(await loop.getaddrinfo(host, 443, type=socket.SOCK_STREAM))


def test_a_process_does_not_wait_for_a_mute_name_server_at_its_end() -> None:
    """A scheduler that was told to stop went on for 17 s and longer."""
    ended = subprocess.run([sys.executable, "-c", _MUTE], timeout=20, check=False)
    assert ended.returncode == 0


def test_a_name_leads_to_its_addresses() -> None:
    want = socket.getaddrinfo("localhost", 443, type=socket.SOCK_STREAM)
    assert event_loop.run(_addresses("localhost")) == want


def test_a_name_that_is_none_fails_as_it_does_without_a_loop() -> None:
    with pytest.raises(UnicodeError):
        event_loop.run(_addresses("a" * 64 + ".example.com"))


@pytest.fixture
def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.usefixtures("no_more_threads")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_address_needs_no_lookup(address: str) -> None:
    """Every connection to one began with a thread of its own."""
    want = socket.getaddrinfo(address, 443, type=socket.SOCK_STREAM)
    assert event_loop.run(_addresses(address)) == want


@pytest.mark.usefixtures("no_more_threads")
def test_a_lookup_without_a_thread_fails_like_any_other() -> None:
    """Where a container may have no more threads, connections were tried again without a pause."""
    with pytest.raises(OSError, match="can't start new thread"):
        event_loop.run(_addresses("localhost"))
