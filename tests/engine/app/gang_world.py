"""A cluster for tests of pod groups: the embedded API server or a real one, seen through HTTP."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from engine.app import App, PolicyParts, Settings
from engine.io.kube import resources
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import NotFound
from engine.rollout.sources import Offer, OnOffer
from tests import builders
from tests.engine.app import harness
from tests.waiting import eventually

Json = dict[str, Any]

_AT_ONCE = b'{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}'

GANGS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint: {enabled: [{name: GangScheduling}]}
    pluginConfig:
      - name: GangScheduling
        args: {groupLabel: example.com/group, minCountLabel: example.com/min}
"""

# Waits for as long as its argument says, whatever the group is like.
PATIENT = '''
"""Gives no leave."""

args = plugin_args(seconds = 600)

def group_of(pod):
    name = pod.labels.get("example.com/group")
    return gang(name) if name else None

def permit(pod, group):
    return wait(args.seconds) if group != None else None
'''


def patient(seconds: int) -> dict[str, str]:
    """Files with the policy above."""
    return {"patient.star": PATIENT.replace("600", str(seconds))}


class Shelf:
    """Policies that a test changes by hand."""

    name = "shelf"

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = dict(files)
        self._on_offer: OnOffer | None = None

    def trouble(self) -> str:
        return ""

    async def run(self, on_offer: OnOffer) -> None:
        self._on_offer = on_offer
        on_offer(Offer(self._files))
        await asyncio.Event().wait()

    def change(self, files: Mapping[str, str]) -> None:
        assert self._on_offer is not None
        self._on_offer(Offer(dict(files)))


@dataclasses.dataclass
class World:
    """Objects of one namespace, and nodes that belong to the test."""

    endpoint: Endpoint
    client: ApiClient
    namespace: str
    _nodes: list[str] = dataclasses.field(default_factory=list)

    # --- making ----------------------------------------------------------------------------

    async def node(self, name: str, cpu: int) -> None:
        self._nodes.append(f"{self.namespace}-{name}")
        await self._create(resources.NODES, builders.node_manifest(self._nodes[-1], cpu=str(cpu)))

    async def group(self, name: str, min_count: int) -> None:
        await self.pod_group(name, {"schedulingPolicy": {"gang": {"minCount": min_count}}})

    async def pod_group(self, name: str, spec: Json) -> None:
        """A PodGroup in the newest version that the API server has."""
        newest = resources.POD_GROUPS
        for resource in (newest, *resources.OLDER_VERSIONS[newest]):
            manifest = {
                "apiVersion": resource.api_version,
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": spec,
            }
            with contextlib.suppress(NotFound):
                await self._create(resource, manifest)
                return
        raise AssertionError("the API server has no PodGroups")

    async def set_min_count(self, name: str, min_count: int) -> None:
        """Change how many pods of a group belong together."""
        spec = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
        await self.client.patch(
            resources.POD_GROUPS,
            name,
            msgspec.json.encode({"spec": spec}),
            self.namespace,
        )

    async def pods(
        self, group: str, *numbers: int, cpu: str = "1", labels: Mapping[str, str] | None = None
    ) -> None:
        """Pods `<group>-<number>`: in the PodGroup, or with *labels* in none."""
        named = {"schedulingGroup": {"podGroupName": group}} if labels is None else {}
        for number in numbers:
            manifest = builders.pod_manifest(
                f"{group}-{number}", self.namespace, uid="", cpu=cpu, labels=labels, spec=named
            )
            manifest["spec"]["containers"][0] |= {"name": "app", "image": "app"}
            await self._create(resources.PODS, manifest)

    async def _create(self, resource: resources.Resource, manifest: Json) -> None:
        namespace = self.namespace if resource.namespaced else None
        manifest["metadata"].pop("uid", None)
        await self.client.create(resource, msgspec.json.encode(manifest), namespace=namespace)

    async def delete(self, *pods: str) -> None:
        for name in pods:
            with contextlib.suppress(NotFound):
                await self.client.delete(resources.PODS, name, self.namespace, body=_AT_ONCE)

    async def clean(self) -> None:
        """Delete what others could stumble over."""
        await self.delete(*(pod["metadata"]["name"] for pod in await self.all_pods()))
        for name in self._nodes:
            await self.client.delete(resources.NODES, name)

    # --- seeing ----------------------------------------------------------------------------

    async def pod(self, name: str) -> Json:
        raw = await self.client.get(resources.PODS, name, namespace=self.namespace)
        found: Json = msgspec.json.decode(raw)
        return found

    async def all_pods(self) -> list[Json]:
        found: list[Json] = []
        async for page in self.client.list_pages(resources.PODS, namespace=self.namespace):
            found += [msgspec.json.decode(raw) for raw in page.items]
        return found

    async def placed(self) -> set[str]:
        """The names of the pods that have a node."""
        return {p["metadata"]["name"] for p in await self.all_pods() if p["spec"].get("nodeName")}

    async def message(self, name: str) -> str:
        """What the PodScheduled condition of a pod says; "" if there is none."""
        conditions = (await self.pod(name)).get("status", {}).get("conditions") or []
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    async def eventually(
        self, condition: Callable[[], Awaitable[Any] | Any], *, seconds: float = 30.0
    ) -> None:
        """Return when *condition* holds; fail when it does not in time."""
        try:
            await eventually(condition, seconds=seconds)
        except AssertionError:
            states = {
                p["metadata"]["name"]: p["spec"].get("nodeName") for p in await self.all_pods()
            }
            raise AssertionError(f"not in {seconds:g} s; pods: {states}") from None

    async def places(self, *names: str) -> None:
        """Return when exactly these pods have a node."""

        async def are_placed() -> bool:
            return await self.placed() == set(names)

        await self.eventually(are_placed)

    async def says(self, name: str, text: str) -> None:
        """Return when the condition of a pod contains *text*."""

        async def is_said() -> bool:
            return text in await self.message(name)

        await self.eventually(is_said)


def members(group: str, count: int) -> set[str]:
    """The names of a group's pods."""
    return {f"{group}-{number}" for number in range(count)}


@contextlib.asynccontextmanager
async def scheduling(
    world: World, files: Mapping[str, str] | Shelf, **settings: Any
) -> AsyncIterator[App]:
    """A scheduler with these policies until the block ends."""
    shelf = files if isinstance(files, Shelf) else Shelf(files)
    async with ApiClient(world.endpoint) as client:
        app = App(
            client,
            policies=PolicyParts(
                source=shelf,
                stages=harness.make_stages(),
            ),
            settings=dataclasses.replace(Settings(), **settings),
        )
        running = asyncio.ensure_future(app.run())
        try:
            leading = asyncio.ensure_future(app.leadership.leading.wait())
            await asyncio.wait({running, leading}, timeout=30, return_when="FIRST_COMPLETED")
            leading.cancel()
            if running.done():
                running.result()
            assert app.leadership.leading.is_set(), "the scheduler did not start"
            yield app
            app.kernel.permits.check_invariants()
        finally:
            app.request_stop()
            await asyncio.gather(running, return_exceptions=True)
            app.cache.check_invariants()
            app.kernel.queue.check_invariants()
