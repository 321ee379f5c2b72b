"""Reading a live cluster once: every object that decisions read, page by page.

Owns the list requests, and the options that select the cluster. Secrets and ConfigMaps are not
read.
"""

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from engine.core.framework.behaviors import minor_of
from engine.core.model.claim_decoding import decode_claim, without_parameters
from engine.core.model.objects import ObjectMeta, Record, decode
from engine.files.cluster_file import Cluster, read_cluster, redact, redacted
from engine.io.informers import NOT_TERMINAL, OTHER_OBJECTS
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError, Forbidden, Gone, KubeConfigError, NoKubeConfig, NotFound
from engine.io.kube.resources import NODES, OLDER_VERSIONS, PODS, RESOURCE_CLAIMS, Resource
from engine.lib import event_loop
from engine.lib.deep_json import decoded_deeply
from engine.surfaces.cli.cluster_option import connect
from engine.surfaces.cli.input_error import input_errors
from engine.surfaces.cli.progress_bar import progress_bar

#: How to do without a cluster, where there is no kubeconfig.
INSTEAD_OF_A_CLUSTER: Final = ", or give its objects with --snapshot PATH"
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False
)
_RESOURCES: Final = (NODES, PODS, *(resource for resource, _ in OTHER_OBJECTS), PRIORITY_CLASSES)
_NEEDED: Final = (NODES, PODS)
# A list that outlives the server's snapshot (410 Gone) is started again.
_ATTEMPTS: Final = 3


def read_given(
    snapshot: tuple[Path, ...],
    kubeconfig: Path | None,
    context: str | None,
    minor: int | None = None,
    queues: Sequence[Resource] = (),
) -> Cluster:
    """The cluster of files, or the live one if none are given.

    Answered like Kubernetes 1.*minor*; None: like what the cluster says it is. Of a live one the
    resources *queues* are read, too, of which a tree of queues is made.

    Raises `click.UsageError` for contradictory options, `InputError` for files that cannot be
    read, `click.ClickException` for a cluster that cannot.
    """
    if snapshot and (kubeconfig or context):
        raise click.UsageError("want either --snapshot, or --kubeconfig and --context")
    if not snapshot:
        items, missing, version = read_live(kubeconfig, context, INSTEAD_OF_A_CLUSTER, queues)
        cluster = Cluster(missing=missing, minor=minor or minor_of(version))
        for item in items:
            cluster.add(item)
        return cluster
    with input_errors(snapshot):
        return read_cluster(*snapshot, minor=minor)


def read_live(
    kubeconfig: Path | None,
    context: str | None,
    instead: str = "",
    queues: Sequence[Resource] = (),
) -> tuple[list[dict[str, Any]], dict[str, str], str]:
    """The redacted objects of a cluster, which kinds could not be read and why, and its version.

    *queues* are resources to be read in addition: without one of them queues are missing. The
    version is "" if the API server does not say it. Raises `click.UsageError` for a kubeconfig that
    cannot be used (if there is none, the hint ends with *instead*), `click.ClickException` if the
    cluster does not answer or does not show its nodes and pods.
    """
    try:
        return event_loop.run(_read(kubeconfig, context, queues))
    except NoKubeConfig as error:
        raise click.UsageError(f"{error}{instead}") from error
    except KubeConfigError as error:
        raise click.UsageError(str(error)) from error
    except ApiError as error:
        raise click.ClickException(str(error)) from error


def now_text() -> str:
    """The time, as RFC 3339."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return now.replace("+00:00", "Z")


async def _read(
    kubeconfig: Path | None, context: str | None, queues: Sequence[Resource]
) -> tuple[list[dict[str, Any]], dict[str, str], str]:
    items: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    progress = progress_bar("objects")
    async with await connect(kubeconfig, context) as client:
        with progress:
            bar = progress.add_task("reading", total=None)
            for resource in (*_RESOURCES, *queues):
                progress.update(bar, description=f"reading {resource}")
                try:
                    found, too_deep = await list_newest(
                        client, resource, lambda number: progress.advance(bar, number)
                    )
                except (NotFound, Forbidden) as error:
                    if resource in _NEEDED:
                        raise
                    # A cluster that does not serve a kind has none of it.
                    if isinstance(error, Forbidden):
                        missing[str(resource)] = error.message
                    elif resource in queues:
                        missing[str(resource)] = "it is not served: no queues come from it"
                else:
                    items += found
                    if too_deep:
                        named = ", ".join(f"`{name}`" for name in too_deep)
                        missing[str(resource)] = f"nested too deeply: {named}"
        try:
            version = await client.server_version()
        except ApiError:
            version = ""  # the objects are what matters
    return items, missing, version


async def list_newest(
    client: ApiClient, resource: Resource, advance: Callable[[int], None]
) -> tuple[list[dict[str, Any]], list[str]]:
    """What `list_whole` gives of the newest version that the API server has of *resource*.

    Raises `NotFound` if it has none.
    """
    for version in (resource, *OLDER_VERSIONS.get(resource, ())):
        try:
            return await list_whole(client, version, advance)
        except NotFound as error:
            missing = error
    raise missing


async def list_whole(
    client: ApiClient, resource: Resource, advance: Callable[[int], None]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The redacted objects of one kind, and the names of those that nest too deep to be read.

    A scheduler passes over those too. *advance* is called with the size of each page.
    """
    selector = NOT_TERMINAL if resource is PODS else ""
    for attempt in range(1, _ATTEMPTS + 1):
        found: list[dict[str, Any]] = []
        too_deep: list[str] = []
        try:
            async for page in client.list_pages(resource, field_selector=selector):
                for raw in map(bytes, page.items):
                    try:
                        found.append(_item(resource, raw))
                    except RecursionError:
                        named = decoded_deeply(lambda text: decode(_Named, text), raw)
                        too_deep.append(named.metadata.name)
                advance(len(page.items))
            return found, too_deep
        except Gone:
            advance(-len(found) - len(too_deep))
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


class _Named(Record, frozen=True):
    """An object of which only the name is read."""

    metadata: ObjectMeta = ObjectMeta()


def _item(resource: Resource, raw: bytes) -> dict[str, Any]:
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    try:
        item = {**head, **msgspec.json.decode(raw)}
        if resource not in _NEEDED:
            return redacted(item)
        redact(item)  # most objects are one of these, and it is ten times as fast
        return item
    except RecursionError:
        if resource is not RESOURCE_CLAIMS:
            raise
        # Any author of a claim can nest its parameters this deeply; no decision reads them.
        is_too_deep = decode_claim(raw).is_too_deep  # nested too deeply to be walked
        claim = msgspec.structs.replace(without_parameters(raw), is_too_deep=is_too_deep)
        return redacted({**head, **msgspec.to_builtins(claim)})
