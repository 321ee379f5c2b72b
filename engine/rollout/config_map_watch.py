"""Follows one ConfigMap of the API server.

Owns how it is watched. What its content means is the caller's.
"""

from collections.abc import Callable

from engine.core.model.objects import ConfigMap, ObjectMeta, decode
from engine.io.binding.event_recorder import Reference
from engine.io.kube.client import ApiClient
from engine.io.kube.resources import CONFIG_MAPS
from engine.io.watching.informer import Handlers, Informer
from engine.io.watching.readable import why_unread
from engine.io.watching.reflector import WatchOptions


def config_map_informer(
    client: ApiClient,
    namespace: str,
    name: str,
    *,
    on_change: Callable[[ConfigMap], None],
    on_delete: Callable[[], None],
    on_synced: Callable[[], None],
) -> Informer[ConfigMap]:
    """Reports the ConfigMap *namespace*/*name* and each change of it; not yet running."""
    return Informer[ConfigMap](
        client,
        CONFIG_MAPS,
        lambda raw: decode(ConfigMap, raw),
        Handlers(
            on_add=on_change,
            on_update=lambda _old, new: on_change(new),
            on_delete=lambda _old: on_delete(),
        ),
        on_synced=on_synced,
        options=WatchOptions(namespace=namespace, field_selector=f"metadata.name={name}"),
    )


def trouble(informer: Informer[ConfigMap] | None) -> str:
    """Why the ConfigMap cannot be read, with the right to add if one is missing; else ""."""
    if informer is None or not informer.currency.failure:
        return ""
    return why_unread(informer)


def config_map_reference(namespace: str, name: str, meta: ObjectMeta | None = None) -> Reference:
    """The ConfigMap, for events; *meta* is its metadata if it was read."""
    if meta is None:
        return Reference("v1", "ConfigMap", namespace, name)
    return Reference("v1", "ConfigMap", namespace, name, meta.uid, meta.resource_version)
