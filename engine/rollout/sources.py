"""The sources of policy texts while the scheduler runs: a ConfigMap, a directory, or none.

Owns noticing that the texts changed. What becomes of them is `rollout`'s. The directory's watching
itself is `engine.policy.source`'s, which knows no API server.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import structlog

from engine.core.model.objects import ConfigMap, ObjectMeta, decode
from engine.io.binding.event_recorder import Reference
from engine.io.kube.client import ApiClient
from engine.io.kube.resources import CONFIG_MAPS
from engine.io.watching.informer import Decoding, Handlers, Informer
from engine.io.watching.readable import why_unread
from engine.io.watching.reflector import WatchOptions
from engine.policy.errors import Problem
from engine.policy.file_names import SUFFIXES
from engine.policy.source import DirectorySource, Reading, no_text

log = structlog.get_logger(component="rollout")


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
        Decoding(lambda raw: decode(ConfigMap, raw)),
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


#: The kill switch: with `stop` on the policies' ConfigMap, every stage stops.
STOP_ANNOTATION: Final = "starsched.dev/rollout"
STOP: Final = "stop"
#: What a source without files means.
NO_FILES: Final = "there are no policies in it: the built-in ones decide, if any"
#: Names the revision that may take away what it takes away.
MEANT_ANNOTATION: Final = "starsched.dev/accept-losses"
#: Names the files that a chart has written: others were added beside it.
FILES_ANNOTATION: Final = "starsched.dev/files"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a source holds at a moment.

    Attributes:
        files: Texts by name; None if the source itself is gone. Empty means: built-ins alone.
        version: The source's own name for this state, for people.
        reference: The object that events about it are written for, if there is one.
        problems: What could not be read as text; then the offer is refused as it stands.
        written_by: The field manager that wrote the texts last; "" if that is not known.
        is_stopped: The kill switch is set: no edit goes through stages, what is in force stays.
        means: Revisions that may take away what they take away: who wrote them has said so.
        added: The files that are not of the chart which wrote the others.
    """

    files: Mapping[str, str] | None
    version: str = ""
    reference: Reference | None = None
    problems: tuple[Problem, ...] = ()
    written_by: str = ""
    is_stopped: bool = False
    means: frozenset[str] = frozenset()
    added: tuple[str, ...] = ()


def offer_of(config_map: ConfigMap, namespace: str, name: str) -> Offer:
    """What the policies' ConfigMap *namespace*/*name* offers."""
    meta = config_map.metadata
    problems = tuple(
        Problem(key, 0, 0, no_text(raw))
        for key, raw in sorted(config_map.binary_data.items())
        if key.endswith(SUFFIXES)
    )
    written = meta.annotations.get(FILES_ANNOTATION)
    own = config_map.data if written is None else written.split()
    return Offer(
        config_map.data,
        meta.resource_version,
        config_map_reference(namespace, name, meta),
        problems,
        config_map.written_by,
        # Any value: a switch for emergencies must not depend on how it is written.
        meta.annotations.get(STOP_ANNOTATION, "") != "",
        frozenset(meta.annotations.get(MEANT_ANNOTATION, "").replace(",", " ").split()),
        tuple(sorted(key for key in config_map.data if key.endswith(SUFFIXES) and key not in own)),
    )


OnOffer = Callable[[Offer], None]


class PolicySource(Protocol):
    """Reports the policy texts, at first and whenever they change."""

    @property
    def name(self) -> str:
        """How the operator wrote it."""
        ...

    def trouble(self) -> str:
        """Why it cannot be read at the moment; "" if nothing is known against it."""
        ...

    async def run(self, on_offer: OnOffer) -> None:
        """Call *on_offer* with the state now and after each change, until cancelled.

        The first call comes as soon as the state is known, be it that there is nothing.
        """
        ...


class BuiltinSource:
    """The built-in policies alone, which never change."""

    name = "builtin"

    def trouble(self) -> str:
        """Nothing."""
        return ""

    async def run(self, on_offer: OnOffer) -> None:
        """Offer no files, once."""
        on_offer(Offer({}))
        await asyncio.Event().wait()


class DirectoryPolicies:
    """A directory of policy files, watched: a mounted ConfigMap, or any local folder."""

    def __init__(self, directory: Path) -> None:
        self._source = DirectorySource(directory)

    @property
    def name(self) -> str:
        """The directory's path."""
        return str(self._source.directory)

    def trouble(self) -> str:
        """Nothing: what cannot be read of a directory is a problem of its offer."""
        return ""

    async def run(self, on_offer: OnOffer) -> None:
        """Offer the directory's files now and whenever they differ, until cancelled."""

        def offer(reading: Reading) -> None:
            on_offer(Offer(reading.files, reading.version, problems=reading.problems))

        await self._source.run(offer)


class ConfigMapSource:
    """A ConfigMap, read and watched through the API server.

    A deleted ConfigMap is gone; one without data is empty. A policy among the binary data, where
    kubectl puts files that are not UTF-8, is a problem: ignoring it would change decisions as much
    as using it. Other binary data is not read.
    """

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.map_name = name
        self._client = client
        self._on_offer: OnOffer | None = None
        self._offered = False
        self._informer: Informer[ConfigMap] | None = None

    @property
    def name(self) -> str:
        """`configmap:namespace/name`."""
        return f"configmap:{self.key}"

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.map_name}"

    def trouble(self) -> str:
        """What the API server says instead, with the right to add if one is missing."""
        return trouble(self._informer)

    @property
    def reference(self) -> Reference:
        """The ConfigMap, for events, when its uid is not known."""
        return config_map_reference(self.namespace, self.map_name)

    async def run(self, on_offer: OnOffer) -> None:
        """Watch the ConfigMap until cancelled."""
        self._on_offer = on_offer
        self._informer = config_map_informer(
            self._client,
            self.namespace,
            self.map_name,
            on_change=self._has,
            on_delete=self._gone,
            on_synced=self._synced,
        )
        await self._informer.run()

    def _has(self, config_map: ConfigMap) -> None:
        said = config_map.metadata.annotations.get(STOP_ANNOTATION, "")
        if said not in ("", STOP):
            log.warning(
                "Unknown value of an annotation stops roll-outs as well",
                annotation=STOP_ANNOTATION,
                config_map=self.key,
                value=said[:60],
                wanted=STOP,
            )
        self._offer(offer_of(config_map, self.namespace, self.map_name))

    def _gone(self) -> None:
        self._offer(Offer(None, "", self.reference))

    def _synced(self) -> None:
        if not self._offered:
            self._gone()  # there was none to begin with

    def _offer(self, offer: Offer) -> None:
        self._offered = True
        assert self._on_offer is not None
        self._on_offer(offer)
