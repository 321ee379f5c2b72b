"""Writing how edits are rolled out, with the caller's credentials.

Owns the requests, and what is said if they are refused; which keys there are is
`engine.rollout.control`'s.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import click
import msgspec

from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from engine.io.kube.resources import CONFIG_MAPS
from engine.rollout.control import ABORT, MODE, PROMOTE, Mode

OPERATOR: Final = "starsched-rollout-operator"

Data: TypeAlias = Mapping[str, str]
Change: TypeAlias = Callable[[Data], Mapping[str, str | None]]
"""(what it holds) -> the keys that are to be different; None removes one."""

_MANAGER: Final = {"fieldManager": "starsched"}
# Others may write at the same time.
_TRIES: Final = 5


def set_mode(mode: Mode) -> Change:
    """Have edits rolled out as *mode* says."""
    return lambda _: {MODE: mode}


def promote(revision: str) -> Change:
    """Have *revision* skip its remaining stages."""
    return lambda data: {PROMOTE: revision, **_without(data, ABORT, revision)}


def abort(revision: str) -> Change:
    """Have *revision* given up."""
    return lambda data: {ABORT: revision, **_without(data, PROMOTE, revision)}


def _without(data: Data, key: str, revision: str) -> Mapping[str, str | None]:
    """The opposite wish of the same revision is withdrawn."""
    return {key: None} if data.get(key, "").strip() == revision else {}


async def write_control(client: ApiClient, config_map: str, change: Change) -> Data:
    """Make *change* to the ConfigMap `namespace/name`, and return what it held before.

    It is created if there is none; what others write meanwhile is kept. Raises
    `click.ClickException`.
    """
    namespace, _, name = config_map.partition("/")
    try:
        for _ in range(_TRIES):
            found = await _read(client, namespace, name)
            before: Data = {} if found is None else found.get("data") or {}
            changed = change(before)
            try:
                if found is None:
                    await _create(client, namespace, name, changed)
                elif any(before.get(key) != value for key, value in changed.items()):
                    await _patch(client, namespace, name, found, changed)
            except (Conflict, AlreadyExists):
                continue
            return before
    except Forbidden as error:
        raise click.ClickException(_forbidden(error, config_map)) from error
    except ApiError as error:
        raise click.ClickException(f"ConfigMap `{config_map}`: {error}") from error
    text = f"ConfigMap `{config_map}`: others change it all the time; gave up after {_TRIES} tries"
    raise click.ClickException(text)


def _forbidden(error: Forbidden, config_map: str) -> str:
    namespace = config_map.partition("/")[0]
    hint = (
        f"the Role `{OPERATOR}` in namespace `{namespace}` allows it (deploy/base/rollout.yaml, "
        "which also makes the ConfigMap: it does not allow to create one)"
    )
    return f"ConfigMap `{config_map}`: {error}\nhint: {hint}"


async def _read(client: ApiClient, namespace: str, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = msgspec.json.decode(await client.get(CONFIG_MAPS, name, namespace))
    except NotFound:
        return None
    return found


async def _create(
    client: ApiClient, namespace: str, name: str, changed: Mapping[str, str | None]
) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "starsched"},
        },
        "data": {key: value for key, value in changed.items() if value is not None},
    }
    body = msgspec.json.encode(manifest)
    await client.create(CONFIG_MAPS, body, namespace, params=_MANAGER)


async def _patch(
    client: ApiClient,
    namespace: str,
    name: str,
    found: dict[str, Any],
    changed: Mapping[str, str | None],
) -> None:
    version = found["metadata"]["resourceVersion"]
    body = msgspec.json.encode({"metadata": {"resourceVersion": version}, "data": changed})
    await client.patch(
        CONFIG_MAPS, name, body, namespace, content_type=MERGE_PATCH, params=_MANAGER
    )
