"""The stage of a story: a cluster in memory, a scheduler that leads, and what a story does there.

Owns the description of a story (`Scenario`), starting and stopping what it runs on, and the steps
that stories share: edit the policies, create pods, wait, ask the scheduler, print.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from devkit.cluster import DevCluster
from engine.app import App, PolicyParts, Settings
from engine.io.binding.event_recorder import REVISION_ANNOTATION
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import ApiError
from engine.rollout.assembly import make_stages
from engine.rollout.control import SUFFIX as CONTROL_SUFFIX
from engine.rollout.control import ConfigMapControl
from engine.rollout.last_good import SUFFIX, ConfigMapStore
from engine.rollout.sources import ConfigMapSource
from engine.surfaces.cli.console import escape
from engine.surfaces.cli.program import version
from workbench.cli.table import print_table

Json = dict[str, Any]
_Found = TypeVar("_Found")

NAMESPACE: Final = "starsched"
CONFIG_MAP: Final = "starsched-policies"
STEP_SECONDS: Final = 60.0
#: Of the embedded cluster: uids, and with them ties, are the same each time.
_SEED: Final = 29


class StoryFailed(Exception):
    """A step of a story did not happen as expected."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A story.

    Attributes:
        name: Of `--scenario`.
        summary: What it shows, in one line.
        policies: The files of the policies' ConfigMap at the beginning.
        objects: Makes what the cluster has before the scheduler starts: nodes, and perhaps pods.
        run: Lets it happen and prints it; returns its facts for programs. Raises `StoryFailed`.
        page: What to open of the page at the end, without the leading slash.
        shows: What is to be seen there, as the end of "the page shows ...".
        leave: Adds to the cluster what a page that is kept shows.
        settings: Of the scheduler.
    """

    name: str
    summary: str
    policies: Mapping[str, str]
    objects: Callable[[], Sequence[Json]]
    run: Callable[["Stage"], Awaitable[Json]]
    page: str
    shows: str
    leave: Callable[["Stage"], None] = lambda _: None
    settings: Settings = field(default_factory=lambda: Settings(local_port=0))


@dataclass(frozen=True)
class Stage:
    """What a story has at hand.

    Attributes:
        cluster: The cluster, without HTTP.
        app: The scheduler.
        console: Where the story is printed.
        asking: Asks the scheduler's endpoints.
    """

    cluster: DevCluster
    app: App
    console: Console
    asking: ApiClient

    # --- what people do --------------------------------------------------------------------------

    def edit(self, files: Mapping[str, str]) -> None:
        """Change the policies' ConfigMap as `kubectl edit` would."""
        found = self.cluster.get("configmaps", CONFIG_MAP, NAMESPACE)
        if found is None:
            raise StoryFailed("the ConfigMap is gone")
        self.cluster.update("configmaps", {**found, "data": dict(files)})

    async def edit_and_wait(self, files: Mapping[str, str]) -> str:
        """Change the policies' ConfigMap, and wait until the edit is in force. Its revision."""
        before, edited = self.revision, time.monotonic()
        self.edit(files)
        await self.until(lambda: self.revision != before, "the new policies")
        took = time.monotonic() - edited
        self.say(
            f"In force after {took:.1f} s, checked, tested and tried out: "
            f"revision {before} -> {self.revision}.\n"
        )
        return self.revision

    async def place(self, pods: Sequence[Json]) -> dict[str, str]:
        """Create *pods* and wait until each has a node. Their nodes, by name."""
        self.cluster.create(*pods)
        names = [pod["metadata"]["name"] for pod in pods]
        return await self.until_placed(names)

    async def until_placed(self, names: Sequence[str]) -> dict[str, str]:
        """Wait until each of the pods *names* has a node. Their nodes, by name."""
        what = f"{len(names)} pods to be placed"
        await self.until(lambda: len(self.placed(names)) == len(names), what)
        return self.placed(names)

    async def clear(self) -> None:
        """Delete all pods, and wait until the scheduler counts none on any node."""
        for pod in self.cluster.list("pods"):
            self.cluster.delete("pods", pod["metadata"]["name"], grace=0)
        await self.until_answer(
            "nodes", lambda page: not any(row["pods"] for row in page["rows"]), "empty nodes"
        )

    def finish(self, names: Iterable[str]) -> None:
        """Let pods end as if their containers had exited with 0."""
        for name in names:
            pod = self.cluster.get("pods", name)
            if pod is None:
                raise StoryFailed(f"the pod {name} is gone")
            ended = {**pod, "status": {**pod["status"], "phase": "Succeeded"}}
            self.cluster.update("pods", ended, subresource="status")

    # --- what there is to see --------------------------------------------------------------------

    @property
    def revision(self) -> str:
        """The policies in force."""
        return self.app.policies.rollout.active.bundle.revision

    def placed(self, names: Iterable[str]) -> dict[str, str]:
        """The nodes of those of the pods *names* that have one."""
        found = {name: self.cluster.get("pods", name) for name in names}
        return {
            name: pod["spec"]["nodeName"]
            for name, pod in found.items()
            if pod is not None and pod["spec"].get("nodeName")
        }

    def schedulers(self) -> dict[str, str]:
        """The revision that decided each pod, by the events of the bindings so far."""
        return {
            event["involvedObject"]["name"]: event["metadata"]["annotations"][REVISION_ANNOTATION]
            for event in self.cluster.list("events")
            if event["reason"] == "Scheduled"
        }

    def message(self, reason: str) -> str | None:
        """The message of an event about the policies with this *reason*, if there is one."""
        for event in self.cluster.list("events", NAMESPACE):
            if event["reason"] == reason:
                return str(event["message"])
        return None

    async def ask(self, path: str) -> Json:
        """What the scheduler answers, as JSON: at this address its page has it for people."""
        answer: Json = json.loads(await self.asking.request("GET", f"/{path}"))
        return answer

    # --- waiting ---------------------------------------------------------------------------------

    async def until(self, found: Callable[[], _Found | None], what: str) -> _Found:
        """Wait until *found* returns something true, and return it. Raises `StoryFailed`."""

        async def asked() -> _Found | None:
            return found()

        return await _until(asked, what)

    async def until_answer(self, path: str, found: Callable[[Json], Any], what: str) -> Json:
        """Ask until *found* is true of the answer, and return that. Raises `StoryFailed`."""

        async def asked() -> Json | None:
            try:
                answer = await self.ask(path)
            except ApiError:
                return None  # not known yet, or too busy to answer
            return answer if found(answer) else None

        return await _until(asked, what)

    # --- what is printed -------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Print a paragraph."""
        self.console.print(text, markup=False)

    def show(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table."""
        cells = (tuple(escape(str(cell)) for cell in row) for row in rows)
        print_table(self.console, columns, cells, title=title)

    def show_text(self, title: str, text: str, language: str = "") -> None:
        """Print a text in a box, highlighted if there are colours."""
        # Starlark looks well as Python.
        is_plain = not (language and self.console.is_terminal)
        body = Text(text.rstrip()) if is_plain else Syntax(text.rstrip(), language, word_wrap=True)
        self.console.print(Panel(body, title=title, title_align="left", expand=False))


@contextlib.asynccontextmanager
async def stage_of(scenario: Scenario, console: Console) -> AsyncIterator[Stage]:
    """What *scenario* runs on: its cluster and policies, and a scheduler that leads."""
    async with DevCluster(seed=_SEED) as cluster:
        cluster.create(_namespace(), *scenario.objects(), _config_map(scenario.policies))
        cluster.start_kubelets()
        cluster.start_controllers()
        async with ApiClient(Endpoint(server=cluster.url)) as client:
            app = App(
                client,
                policies=PolicyParts(
                    source=ConfigMapSource(client, NAMESPACE, CONFIG_MAP),
                    stages=make_stages(),
                    store=ConfigMapStore(client, NAMESPACE, CONFIG_MAP + SUFFIX),
                    control=ConfigMapControl(client, NAMESPACE, CONFIG_MAP + CONTROL_SUFFIX),
                ),
                settings=replace(scenario.settings, version=version(), logs_attempts=True),
            )
            async with _running(app), ApiClient(Endpoint(server=page_of(app))) as asking:
                yield Stage(cluster, app, console, asking)


def page_of(app: App) -> str:
    """The address of the scheduler's page, without a slash at the end."""
    return f"http://127.0.0.1:{app.surfaces.endpoints.local_port}"


@contextlib.asynccontextmanager
async def _running(app: App) -> AsyncIterator[None]:
    running = asyncio.ensure_future(app.run())
    leading = asyncio.ensure_future(app.leadership.leading.wait())
    try:
        await asyncio.wait(
            {running, leading}, timeout=STEP_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if running.done():
            running.result()
        if not app.leadership.leading.is_set():
            raise StoryFailed(f"the scheduler did not start in {STEP_SECONDS:g} s")
        yield
    finally:
        leading.cancel()
        app.request_stop()
        await asyncio.gather(running, return_exceptions=True)


async def _until(found: Callable[[], Awaitable[_Found | None]], what: str) -> _Found:
    try:
        async with asyncio.timeout(STEP_SECONDS):
            while not (value := await found()):  # noqa: ASYNC110  # others change it
                await asyncio.sleep(0.02)
            return value
    except TimeoutError as error:
        raise StoryFailed(f"waited {STEP_SECONDS:g} s for {what}") from error


def _namespace() -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def _config_map(files: Mapping[str, str]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
        "data": dict(files),
    }
