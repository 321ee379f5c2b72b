"""What a large answer of an extender costs: CPU time of the process that asked.

Owns the measurement. The extender is a process of its own, on loopback, and not counted.
"""

import asyncio
import json
import multiprocessing
import time
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from typing import Any, Final

from engine.core.framework.extender import Extender, ExtenderError
from engine.core.scheduling import extender_messages as messages
from engine.io.kube.extender_client import ExtenderClient, most_bytes

#: Nodes that the extender is asked about.
NODES: Final = 5000
_MANY: Final = 46_000_000
#: How large the answers are, the plain one first; 0: as small as it can be.
SIZES: Final = {"plain": 0, "as large as it may be": most_bytes(NODES) - 200, "46 MB": _MANY}


@dataclass(frozen=True, slots=True)
class Result:
    """CPU time of one answer of *bytes* bytes, which was `read` or `refused`."""

    title: str
    bytes: int
    outcome: str
    cpu_ms: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, rounded."""
        return {k: round(v, 2) if isinstance(v, float) else v for k, v in asdict(self).items()}


def measure(title: str, size: int) -> Result:
    """The figures of an answer of *size* bytes that names failed nodes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    extender = context.Process(target=_serve, args=(theirs, size), daemon=True)
    extender.start()
    try:
        port, sent = ours.recv()
        return asyncio.run(_measure(title, f"http://127.0.0.1:{port}/x", sent))
    finally:
        extender.terminate()
        extender.join()


async def _measure(title: str, url: str, sent: int) -> Result:
    client = ExtenderClient(Extender(url, filter_verb="filter", timeout=None))

    async def ask() -> str:
        try:
            await client.send("filter", b"{}", messages.filter_result, most=most_bytes(NODES))
        except ExtenderError:
            return "refused"
        return "read"

    try:
        began = time.process_time()
        outcome = await ask()
        cpu = time.process_time() - began
    finally:
        await client.close()
    return Result(title, sent, outcome, 1000 * cpu)


def answer_of(size: int) -> bytes:
    """A filter's answer of about *size* bytes: failed nodes, each with a reason of 1 kB."""
    failed = {f"node-{number}": "x" * 1000 for number in range(size // 1018)}
    return json.dumps({"NodeNames": [], "FailedNodes": failed, "Error": ""}).encode()


def _serve(to: Connection, size: int) -> None:
    body = answer_of(size)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                return  # the client hung up: the answer was too large

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    to.send((server.server_port, len(body)))
    server.serve_forever()
