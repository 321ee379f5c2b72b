"""The embedded cluster: an API server in this process, on a loopback port, in milliseconds.

Owns starting and stopping, outages, and direct access for code in the same process. It is a
verified fake: one suite of contract tests runs against it and against the real API server.

Different from the real server on purpose: plain HTTP; no authorization, quotas or limit ranges; no
protobuf; no `managedFields` (server-side apply remembers owners, see `patch`); fields that no
scheduler reads are stored as sent, neither defaulted nor validated.
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from devkit.cluster.access import Access
from devkit.cluster.api import Api
from devkit.cluster.companion import Companion
from devkit.cluster.controllers import Controllers
from devkit.cluster.faults import Faults
from devkit.cluster.fleet import Kubelets
from devkit.cluster.front_end import FrontEnd
from devkit.cluster.kinds import BY_MANIFEST, KINDS
from devkit.cluster.store import Backup, Store
from devkit.cluster.watches import Watch
from engine.core.manifests.errors import expired
from engine.core.manifests.kinds import Kind
from engine.lib.clock import Clock, SystemClock

Json = dict[str, Any]

_BY_NAME = {name: kind for kind in reversed(KINDS) for name in (kind.plural, kind.resource)}


class DevCluster:
    """An API server on loopback.

        async with DevCluster() as cluster:
            cluster.create(make_node("n1"), make_pod("p1"))
            ... ApiClient(server=cluster.url) ...

    stopped --start--> serving --stop--> stopped; serving --crash--> down --recover--> serving.
    The objects survive all of it.

    Args:
        port: 0 takes a free one; it is kept over `crash` and `recover`.
        token: The bearer token that requests must carry; None accepts every request.
        clock: Gives the timestamps in objects. Time-outs always run on the event loop's clock.
        seed: Makes uids and generated names repeat.
        history: Changes kept per resource for watches that resume and lists that page.
        bookmark_interval: Seconds between watch bookmarks.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        token: str | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        history: int = 20_000,
        bookmark_interval: float = 60.0,
    ) -> None:
        self.faults = Faults()
        self.access = Access()
        if token is not None:
            self.access.add_user(token, "admin", "system:masters")
        self.store = Store(history=history)
        self.api = Api(self.store, clock or SystemClock(), seed=seed)
        self.token = token
        self._options: Any = {"token": token, "bookmark_interval": bookmark_interval}
        self._first = FrontEnd(self.api, self.faults, self.access, port=port, **self._options)
        self.front_ends = [self._first]
        self._companions: list[Companion] = []

    # --- life cycle ------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Does nothing if it listens already."""
        await self._first.start()

    async def stop(self) -> None:
        """End everything: companions, watches, connections. The objects stay."""
        for companion in self._companions:
            await companion.stop()
        self._companions.clear()
        self.faults.clear()
        for front_end in self.front_ends:
            await front_end.stop()

    async def crash(self) -> None:
        """Go down at once: every connection breaks, new ones are refused."""
        await self._first.crash()

    async def recover(self) -> None:
        """Come back on the same port after `crash`, with the same objects."""
        await self.start()

    def add_front_end(self, port: int = 0) -> FrontEnd:
        """Another API server of the same store: started, stopped and crashed on its own."""
        added = FrontEnd(self.api, self.faults, self.access, port=port, **self._options)
        self.front_ends.append(added)
        return added

    async def __aenter__(self) -> "DevCluster":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- where -----------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The server's address, once it has been started."""
        if not self._first.port:
            raise RuntimeError("the cluster has no address before start()")
        return f"http://127.0.0.1:{self._first.port}"

    @property
    def caller(self) -> asyncio.BaseTransport | None:
        """Over which the request came that is being carried out; None if none is."""
        callers = (front_end.caller for front_end in self.front_ends)
        return next((caller for caller in callers if caller is not None), None)

    def kubeconfig(self) -> Json:
        """A kubeconfig for this server, as plain data."""
        user = {"token": self.token} if self.token else {}
        name = "devcluster"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the kubeconfig to *path* and return it."""
        path.write_text(yaml.safe_dump(self.kubeconfig()), encoding="utf-8")
        return path

    # --- companions ------------------------------------------------------------------------

    def start_kubelets(self, **options: Any) -> Kubelets:
        """Play the kubelets of all nodes until `stop`; see `Kubelets` for the options."""
        kubelets = Kubelets(self.api, **options)
        kubelets.start()
        self._companions.append(kubelets)
        return kubelets

    def start_controllers(self) -> Controllers:
        """Play kube-controller-manager until `stop`; see `Controllers` for what it does of it."""
        controllers = Controllers(self.api)
        controllers.start()
        self._companions.append(controllers)
        return controllers

    # --- faults ----------------------------------------------------------------------------

    @property
    def requests(self) -> Counter[tuple[str, str]]:
        """Requests so far, by verb and resource: `requests["create", "pods/binding"]`."""
        return self._first.server.requests

    def watches(self, resource: str = "") -> list[Watch]:
        """The watches that are open, of one resource or of all."""
        return [
            watch
            for front_end in self.front_ends
            for watch in front_end.server.watches
            if not resource or watch.kind.resource == resource
        ]

    def close_watches(self, resource: str = "", *, abort: bool = False) -> int:
        """End the open watches, orderly or by breaking the connection. Returns how many."""
        found = self.watches(resource)
        for watch in found:
            if abort:
                watch.abort()
            else:
                watch.close()
        return len(found)

    def expire_watches(self, resource: str = "") -> int:
        """End the open watches with the ERROR event 410 Expired. Returns how many."""
        found = self.watches(resource)
        for watch in found:
            revision = self.store.revision
            watch.fail(expired(f"too old resource version: 1 ({revision})"))
        return len(found)

    def stall_watches(self, resource: str = "") -> None:
        """Let open and future watches hang: connected, but nothing arrives."""
        for kind in KINDS:
            if not resource or kind.resource == resource:
                for front_end in self.front_ends:
                    front_end.server.stalled_kinds.add(kind.resource)
        for watch in self.watches(resource):
            watch.stalled = True

    def resume_watches(self) -> None:
        """Let stalled watches go on, with everything they missed."""
        for front_end in self.front_ends:
            front_end.server.stalled_kinds.clear()
        for watch in self.watches():
            watch.resume()

    def send_bookmarks(self, resource: str = "") -> None:
        """Send a bookmark on the open watches now."""
        for front_end in self.front_ends:
            for watch in tuple(front_end.server.watches):
                if not resource or watch.kind.resource == resource:
                    watch.send_bookmark(front_end.cache.revision)

    def compact(self, revision: int | None = None) -> int:
        """Forget history up to *revision* (default: all). Returns the revision.

        Watches that are open go on; one that starts before it gets 410, as does a list that
        continues from before it.
        """
        return self.store.compact(revision)

    def restore(self, backup: Backup, *, bump: int = 1_000_000_000) -> None:
        """Go back to what `store.backup` has saved; the API servers must be down.

        *bump* is what etcd recommends; clients that know later versions cannot notice without it.
        """
        self.store.restore(backup, bump=bump)
        for companion in self._companions:
            companion.look_again()

    # --- direct access ---------------------------------------------------------------------

    def create(self, *manifests: Json) -> list[Json]:
        """Create objects without HTTP, by `apiVersion` and `kind`. Returns them as stored."""
        return [self._create(manifest) for manifest in manifests]

    def _create(self, manifest: Json) -> Json:
        kind = BY_MANIFEST.get((manifest.get("apiVersion", ""), manifest.get("kind", "")))
        if kind is None:
            raise ValueError(
                f"want an apiVersion and kind that the cluster serves, got "
                f"`{manifest.get('apiVersion')}` `{manifest.get('kind')}`"
            )
        namespace = ""
        if kind.namespaced:
            namespace = (manifest.get("metadata") or {}).get("namespace") or "default"
        return self.api.create(kind, namespace, manifest).manifest

    def get(self, resource: str, name: str, namespace: str = "") -> Json | None:
        """An object as stored (not to be changed), None if there is none.

        *resource* is a plural name, with or without its group: `leases.coordination.k8s.io`.
        A namespaced object is looked for in `default` unless *namespace* says otherwise.
        """
        kind = self._kind(resource)
        return self.api.find(kind, name, (namespace or "default") if kind.namespaced else "")

    def list(self, resource: str, namespace: str = "") -> list[Json]:
        """Every object of a resource, in key order; of one namespace if *namespace* is set."""
        kind = self._kind(resource)
        table = self.store.table(kind.storage)
        prefix = f"{namespace}/" if namespace and kind.namespaced else ""
        return [version.manifest for version in table.at(self.store.revision).scan(prefix)]

    def update(self, resource: str, manifest: Json, *, subresource: str = "") -> Json:
        """Replace an object (or its status) without HTTP. Returns it as stored."""
        kind = self._kind(resource)
        metadata = manifest["metadata"]
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        version, _ = self.api.update(
            kind, namespace, metadata["name"], manifest, subresource=subresource
        )
        return version.manifest

    def store_as_is(self, resource: str, manifest: Json) -> None:
        """Store an object unchecked, as an API server with other types may have left it."""
        kind = self._kind(resource)
        metadata = manifest["metadata"]
        namespace = f"{metadata.get('namespace') or 'default'}/" if kind.namespaced else ""
        stored = {**manifest, "metadata": {**metadata}}
        self.store.write(kind.storage, f"{namespace}{metadata['name']}", stored)

    def delete(
        self, resource: str, name: str, namespace: str = "", *, grace: int | None = None
    ) -> None:
        """Delete an object without HTTP, with *grace* seconds for a pod that runs."""
        kind = self._kind(resource)
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        where = (namespace or "default") if kind.namespaced else ""
        self.api.delete(kind, where, name, options)

    def bind(self, name: str, node: str, namespace: str = "default") -> Json:
        """Assign a pod to a node without HTTP. Returns it as stored."""
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        return self.api.bind(namespace, name, binding).manifest

    def _kind(self, resource: str) -> Kind:
        kind = _BY_NAME.get(resource)
        if kind is None:
            raise ValueError(f"want a resource that the cluster serves, got `{resource}`")
        return kind
