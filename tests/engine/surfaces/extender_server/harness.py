"""An extender in this process, and requests to it as kube-scheduler sends them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from engine.io.kube.client import ApiClient
from engine.rollout.sources import DirectoryPolicies
from engine.surfaces.extender_server.app import ExtenderApp, ExtenderSettings
from engine.surfaces.extender_server.assembly import make_extender_stages
from tests.engine.app.harness import in_process


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Make *files* the content of *folder*."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        # In one step: the watcher must not see half of a file.
        (folder / f".{name}").write_text(text, encoding="utf-8")
        (folder / f".{name}").rename(folder / name)
    for found in folder.iterdir():
        if found.name not in files:
            found.unlink()
    return folder


@contextlib.asynccontextmanager
async def extender(
    folder: Path,
    *,
    client: ApiClient | None = None,
    watches: bool = False,
    with_builtins: bool = False,
    has_sandbox: bool = False,
    **settings: Any,
) -> AsyncIterator["Running"]:
    """An extender with the policies of *folder*, until the block ends."""
    stages = make_extender_stages(with_builtins=with_builtins, watches=watches)
    app = ExtenderApp(
        client,
        source=DirectoryPolicies(folder),
        stages=stages if has_sandbox else in_process(stages),
        settings=ExtenderSettings(watches=watches, local_port=0, **settings),
    )
    running = asyncio.ensure_future(app.run())
    serving = asyncio.ensure_future(app.ports.serving.wait())
    try:
        await asyncio.wait({running, serving}, timeout=60, return_when="FIRST_COMPLETED")
        serving.cancel()
        if running.done():
            running.result()
        assert app.ports.serving.is_set(), "the extender did not start"
        async with aiohttp.ClientSession() as session:
            yield Running(app, session)
    finally:
        app.request_stop()
        await asyncio.gather(running, return_exceptions=True)


class Running:
    """An extender that answers."""

    def __init__(self, app: ExtenderApp, session: aiohttp.ClientSession) -> None:
        self.app = app
        self.session = session
        self.url = f"http://127.0.0.1:{app.ports.protocol}"

    async def post(self, verb: str, body: Any) -> tuple[int, Any]:
        """Status and answer: decoded if it is JSON, else its text."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(f"{self.url}/{verb}", data=raw) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text) if is_json else text

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of the other endpoints."""
        url = f"http://127.0.0.1:{self.app.endpoints.local_port}{path}"
        async with self.session.get(url) as answer:
            return answer.status, await answer.text()

    def metric(self, name: str, **labels: str) -> float:
        return self.app.registry.get_sample_value(name, labels) or 0.0


def with_nodes(pod: Mapping[str, Any], *nodes: Mapping[str, Any]) -> dict[str, Any]:
    """`ExtenderArgs` with whole nodes, as kube-scheduler writes them."""
    return {"Pod": pod, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}


def with_names(pod: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """`ExtenderArgs` with names alone."""
    return {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
