"""A scan of every endpoint of a whole scheduler: what callers get who may not have it."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import yaml

from devkit.cluster import DevCluster, make_node, make_pod
from engine.app import App
from engine.io.endpoints.server import SecureSettings
from tests.engine.app.harness import config_map, events, namespace, scheduler
from tests.engine.io.endpoints.harness import unverified
from tests.waiting import eventually

pytestmark = [pytest.mark.slow("runs a whole scheduler"), pytest.mark.usefixtures("no_sandboxes")]

#: Only the pod of another team is called so.
SECRET: Final = "of-the-green-team"
OPEN: Final = frozenset({"/healthz", "/livez", "/readyz"})
FORMS: Final = ("application/json", "text/html", "text/event-stream", "")
READERS: Final = Path(__file__).parents[3] / "deploy/base/readers.yaml"


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        yield cluster


def paths_of(app: App) -> list[str]:
    """Every path that is served, about the pod and the namespace of the other team."""
    words = {"namespace": "green", "pod": SECRET, "node": "node-1", "digest": "0", "name": "x"}
    words["path"] = "shared"
    # `{path:.+}` is a part with slashes.
    paths = (re.sub(r":[^}]+", "", route.path) for route in app.surfaces.endpoints.routes)
    return sorted({path.format(**words) for path in paths} - OPEN)


#: Pods of all teams are in one queue; about one of them the policy fails, and large ones are held.
QUEUES: Final = '''"""One queue for all."""

def queue_of(pod):
    return pod.labels["queue"]

def admit(request, path):
    return hold("too large") if request.resources["cpu"] > 2000 else None
'''
TREE: Final = """\
apiVersion: starsched.dev/v1
kind: QueueTree
policy: one
queues: {shared: {}}
"""


class Caller:
    """A caller with a token, or none."""

    def __init__(self, app: App, session: aiohttp.ClientSession, token: str | None) -> None:
        self._base = f"https://127.0.0.1:{app.surfaces.endpoints.secure_port}"
        self._session = session
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def get(self, path: str, form: str) -> tuple[int, str]:
        """Status and text; of what goes on and on, what comes at once."""
        headers = {**self._headers, "Accept": form}
        text = bytearray()
        async with self._session.get(
            self._base + path, headers=headers, allow_redirects=False
        ) as answer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5 if answer.content_type.endswith("stream") else 30):
                    async for piece in answer.content.iter_any():
                        text += piece
            return answer.status, text.decode()


@contextlib.asynccontextmanager
async def scanned(cluster: DevCluster) -> AsyncIterator[tuple[App, aiohttp.ClientSession]]:
    """A scheduler with a pod of each team that fits nowhere, and a session."""
    for team in ("red", "green"):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
    in_queue = {"queue": "shared"}
    cluster.create(
        namespace(),
        config_map({"one.star": QUEUES, "tree.yaml": TREE}),
        make_node("node-1", cpu="1"),
        make_pod(SECRET, namespace="green", cpu="2", labels=in_queue),
        make_pod(f"{SECRET}-too", namespace="green", cpu="2"),
        make_pod(f"{SECRET}-held", namespace="green", cpu="3", labels=in_queue),
        make_pod(f"{SECRET}-lost", namespace="green", cpu="1", labels={"queue": "gone"}),
        make_pod("of-the-red-team", namespace="red", cpu="2", labels=in_queue),
    )
    secure = SecureSettings("127.0.0.1")
    async with scheduler(cluster, secure=secure, from_config_map=True) as app:
        await eventually(lambda: len(events(cluster, "FailedScheduling")) >= 5)
        connector = aiohttp.TCPConnector(ssl=unverified())
        async with aiohttp.ClientSession(connector=connector) as session:
            yield app, session


async def test_wrong_missing_and_foreign_credentials_get_nothing(cluster: DevCluster) -> None:
    cluster.access.add_user("of-nobody", "nobody-special")
    async with scanned(cluster) as (app, session):
        paths = paths_of(app)
        assert {"/queue", "/policies", "/metrics", "/", f"/explain/green/{SECRET}"} <= set(paths)
        for token, want in ((None, 403), ("stolen", 401), ("of-nobody", 403)):
            caller = Caller(app, session, token)
            for path in paths:
                for form in FORMS:
                    status, text = await caller.get(path, form)
                    assert status == want, (token, path, form)
                    # A refusal says which path it is about, and nothing else.
                    assert SECRET not in text.replace(f'path \\"/explain/green/{SECRET}', "")


async def test_nothing_of_a_namespace_is_shown_that_a_caller_may_not_read(
    cluster: DevCluster,
) -> None:
    access = cluster.access
    for name in ("red", "all"):
        access.add_user(f"of-{name}", name)
    access.allow_namespace("red", "red")
    access.allow_namespace("all", "")
    async with scanned(cluster) as (app, session):
        paths = paths_of(app)
        about = f"/explain/green/{SECRET}"
        access.allow_path("red", *paths)
        access.allow_path("all", *paths)
        red, everything = (Caller(app, session, f"of-{name}") for name in ("red", "all"))
        shown = 0
        for path in paths:
            for form in FORMS:
                status, text = await red.get(path, form)
                assert status not in (401, 403, 500) or path == about, (path, form, text)
                if path == about:
                    # The address is the caller's own words.
                    assert "Insufficient" not in text
                    assert "cpu" not in text
                else:
                    assert SECRET not in text, (path, form)
                    shown += "of-the-red-team" in text
        assert shown >= 3
        for path in ("/queues", "/queues/shared"):
            assert SECRET in (await everything.get(path, "application/json"))[1]
            assert "too large" in (await everything.get(path, "application/json"))[1]
            assert "too large" not in (await red.get(path, "application/json"))[1]
        for form in ("application/json", "text/html"):
            assert SECRET in (await everything.get("/queue", form))[1]
            assert "Insufficient cpu" in (await everything.get(about, form))[1]


async def test_the_role_for_viewers_has_every_path(cluster: DevCluster) -> None:
    documents = yaml.safe_load_all(READERS.read_text(encoding="utf-8"))
    (role,) = (one for one in documents if one["metadata"]["name"] == "starsched-viewer")
    urls = [url for rule in role["rules"] for url in rule["nonResourceURLs"]]
    async with scheduler(cluster, secure=SecureSettings("127.0.0.1")) as app:
        paths = [path for path in paths_of(app) if f"/{path.split('/')[1]}" not in OPEN]
    prefixes = tuple(url[:-1] for url in urls if url.endswith("*"))
    assert [path for path in paths if path not in urls and not path.startswith(prefixes)] == []
