"""The policies that were last in force, kept where a restart finds them.

Owns the form in which they are kept: in a directory of the machine, or in a ConfigMap next to the
one they came from, so that they outlive the scheduler's pod and its node. What is good is decided
elsewhere.
"""

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog

from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.errors import ApiError, Forbidden, NotFound, Unauthorized
from engine.io.kube.resources import CONFIG_MAPS
from engine.lib.deep_json import UNREADABLE
from engine.lib.files import FILES, Files
from engine.lib.saved_state import Unread

log = structlog.get_logger(component="last_good")

REVISION_ANNOTATION: Final = "starsched.dev/revision"
ROLLED_BACK_ANNOTATION: Final = "starsched.dev/rolled-back"
PROGRESS_ANNOTATION: Final = "starsched.dev/progress"
KNOWN_ANNOTATION: Final = "starsched.dev/was-in-force"
REFUSED_ANNOTATION: Final = "starsched.dev/refused"
SUFFIX: Final = "-last-good"

_FILE: Final = "last-good.json"
#: The most rolled back revisions that are kept so as not to be tried again; the newest are enough.
_MOST_ROLLED_BACK: Final = 16
#: The most revisions that are known to go back to.
_MOST_KNOWN: Final = 64


_OURS: Final = (
    REVISION_ANNOTATION,
    ROLLED_BACK_ANNOTATION,
    KNOWN_ANNOTATION,
    REFUSED_ANNOTATION,
)
_NAMES: Final = re.compile(r"[0-9A-Za-z]*([,/][0-9A-Za-z]+)*")
_DAMAGED_SUFFIX: Final = ".damaged"


class StoreError(Unread):
    """The last good policies cannot be read or written.

    Attributes:
        otherwise: What another store holds, which may be older; None if there is none, or nothing.
    """

    otherwise: "LastGood | None" = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an edit had come, for a process that goes on with it.

    Attributes:
        candidate: Its revision.
        base: The revision in force.
        stage: The index of the stage that was begun; those before it have passed.
    """

    candidate: str
    base: str
    stage: int

    @classmethod
    def read(cls, text: str) -> "Progress | None":
        """The progress that `str` wrote; None if *text* is none."""
        candidate, _, rest = text.partition("/")
        base, _, stage = rest.partition("/")
        if not (candidate and base and stage.isascii() and stage.isdigit() and len(stage) < 4):
            return None
        return cls(candidate, base, int(stage))

    def __str__(self) -> str:
        return f"{self.candidate}/{self.base}/{self.stage}"


@dataclass(frozen=True, slots=True)
class LastGood:
    """Policy files that were in force.

    Attributes:
        revision: Their bundle's revision when they were accepted; "" if none ever were.
        files: Texts by name, as the source gave them; empty for the built-in policies alone.
        rolled_back: Revisions that were given up: rolled back for their own failures, or aborted.
        progress: The edit that is on its way; None if there is none.
        known: Revisions that were in force before it and were not given up: one may go back to
            them.
        refused: `candidate/base`: a gate refused the candidate next to that base, which may itself
            be what was wrong; next to another one it is tried again.
    """

    revision: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    rolled_back: tuple[str, ...] = ()
    progress: Progress | None = None
    known: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def without(self, revision: str) -> tuple[str, ...]:
        """The rolled back revisions, with *revision* as the newest."""
        return _newest(self.rolled_back, revision, _MOST_ROLLED_BACK)

    def known_before(self, revision: str, rolled_back: tuple[str, ...]) -> tuple[str, ...]:
        """The known revisions once *revision* is in force, and *rolled_back* are given up."""
        known = _newest(self.known, self.revision, _MOST_KNOWN)
        return tuple(one for one in known if one and one not in (revision, *rolled_back))

    def refusing(self, revision: str, base: str) -> tuple[str, ...]:
        """What gates refused, with *revision* next to *base* as the newest."""
        return _newest(self.refused, f"{revision}/{base}", _MOST_ROLLED_BACK)


def _newest(kept: tuple[str, ...], one: str, most: int) -> tuple[str, ...]:
    return (*(other for other in kept if other != one), one)[-most:]


class Store(Protocol):
    """Where the last good policies are kept."""

    async def load(self) -> LastGood | None:
        """What was saved last, or None. Raises `StoreError`."""
        ...

    async def save(self, last_good: LastGood) -> bool:
        """Keep *last_good* instead of what was there. Raises `StoreError`.

        False if it should be tried again: one of several stores has refused it.
        """
        ...

    async def is_lost(self) -> bool:
        """True if what was saved is not there any more. Raises `StoreError` if it is unknown."""
        ...


class NoStore:
    """Keeps nothing: after a restart only the source counts."""

    async def load(self) -> LastGood | None:
        """None."""
        return None

    async def save(self, last_good: LastGood) -> bool:
        """Do nothing."""
        return True

    async def is_lost(self) -> bool:
        """False: nothing was there."""
        return False


class DirectoryStore:
    """Keeps the policies in one file of *directory*, replaced as a whole."""

    def __init__(self, directory: Path, files: Files = FILES) -> None:
        self._path = directory / _FILE
        self._files = files

    async def load(self) -> LastGood | None:
        """What was saved last, or None if nothing was. Raises `StoreError`."""
        return await asyncio.to_thread(self._read)

    async def save(self, last_good: LastGood) -> bool:
        """Replace the file: after a crash at any moment it is the old or the new one."""
        await asyncio.to_thread(self._write, last_good)
        return True

    async def is_lost(self) -> bool:
        """True if there is no such file. Raises `StoreError` if it cannot be read."""
        return await self.load() is None

    def _read(self) -> LastGood | None:
        try:
            return msgspec.json.decode(self._files.read(self._path), type=LastGood)
        except FileNotFoundError:
            return None
        except (OSError, *UNREADABLE) as error:
            raise StoreError(f"{self._path}: {error}") from error

    def _write(self, last_good: LastGood) -> None:
        try:
            self._set_damaged_aside()
            self._files.replace(self._path, msgspec.json.encode(last_good))
        except OSError as error:
            raise StoreError(f"{self._path}: {error}") from error

    def _set_damaged_aside(self) -> None:
        """Keep a file that cannot be understood under another name, for people."""
        try:
            there = self._files.read(self._path)
            msgspec.json.decode(there, type=LastGood)
        except FileNotFoundError:
            pass
        except UNREADABLE as error:
            aside = self._path.with_name(self._path.name + _DAMAGED_SUFFIX)
            self._files.replace(aside, there)
            log.warning(
                "A damaged file of last good policies is kept aside",
                file=str(aside),
                reason=str(error),
            )


class _Meta(msgspec.Struct, rename="camel", frozen=True):
    annotations: dict[str, str] = {}


class _ConfigMap(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    data: dict[str, str] = {}


_decode = msgspec.json.Decoder(_ConfigMap).decode


def _listed(notes: Mapping[str, str], annotation: str) -> tuple[str, ...]:
    return tuple(one for one in notes.get(annotation, "").split(",") if one)


class ConfigMapStore:
    """Keeps the policies in a ConfigMap: the same keys and texts as the source, readable by people.

    Only the data and our annotations are changed, so the ConfigMap may come from a manifest, which
    spares the scheduler the permission to create ConfigMaps.

    Args:
        client: The API server.
        namespace, name: Of the ConfigMap that is written, not of the source.
    """

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def load(self) -> LastGood | None:
        """What was saved last; None if there is no such ConfigMap, or one never written to."""
        try:
            found = await self._read()
        except ApiError as error:
            raise self._error(error) from error
        if found is None:
            return None
        notes = found.metadata.annotations
        for annotation in _OURS:
            if not _NAMES.fullmatch(text := notes.get(annotation, "")):
                raise self._error(f"annotation `{annotation}`: want revisions, got `{text[:60]}`")
        rolled_back = _listed(notes, ROLLED_BACK_ANNOTATION)
        revision = notes.get(REVISION_ANNOTATION, "")
        if not revision and not rolled_back:
            if found.data:
                wanted = f"it has policies, and no annotation `{REVISION_ANNOTATION}`"
                raise self._error(f"{wanted}\nhint: empty it if nothing of it is to be kept")
            return None
        progress = Progress.read(notes.get(PROGRESS_ANNOTATION, ""))
        known, refused = _listed(notes, KNOWN_ANNOTATION), _listed(notes, REFUSED_ANNOTATION)
        return LastGood(revision, found.data, rolled_back, progress, known, refused)

    async def save(self, last_good: LastGood) -> bool:
        """Change the ConfigMap, creating it if there is none. Raises `StoreError`."""
        annotations = {
            REVISION_ANNOTATION: last_good.revision,
            ROLLED_BACK_ANNOTATION: ",".join(last_good.rolled_back),
            PROGRESS_ANNOTATION: "" if last_good.progress is None else str(last_good.progress),
            KNOWN_ANNOTATION: ",".join(last_good.known),
            REFUSED_ANNOTATION: ",".join(last_good.refused),
        }
        try:
            found = await self._read()
            if found is None:
                await self._create(last_good, annotations)
                return True
            # A merge patch keeps what it does not name: keys that are gone are named with null.
            data: dict[str, str | None] = dict.fromkeys(found.data)
            data.update(last_good.files)
            patch = {"metadata": {"annotations": annotations}, "data": data}
            await self._client.patch(
                CONFIG_MAPS,
                self._name,
                msgspec.json.encode(patch),
                self._namespace,
                content_type=MERGE_PATCH,
            )
            return True
        except ApiError as error:
            raise self._error(error) from error

    async def is_lost(self) -> bool:
        """True if the ConfigMap was deleted, or deleted and created again. Raises `StoreError`."""
        return await self.load() is None

    async def _read(self) -> _ConfigMap | None:
        try:
            raw = await self._client.get(CONFIG_MAPS, self._name, self._namespace)
            return _decode(raw)
        except NotFound as error:
            # A path that is not served, or a namespace that is gone, says nothing about it.
            if error.what == (CONFIG_MAPS.plural, self._name):
                return None
            raise
        except UNREADABLE as error:
            raise self._error(error) from error

    async def _create(self, last_good: LastGood, annotations: dict[str, str]) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {"app.kubernetes.io/managed-by": "starsched"},
                "annotations": annotations,
            },
            "data": dict(last_good.files),
        }
        await self._client.create(CONFIG_MAPS, msgspec.json.encode(manifest), self._namespace)

    def _error(self, error: object) -> StoreError:
        text = f"ConfigMap `{self._namespace}/{self._name}`: {error}"
        return StoreError(text, is_refused=isinstance(error, Forbidden | Unauthorized))


class Stores:
    """Several stores: saved to all, loaded from the first that has something."""

    def __init__(self, *stores: Store) -> None:
        self._stores = stores

    async def load(self) -> LastGood | None:
        """What the first store that has something holds, or None.

        Raises `StoreError` if one before it could not be read: that may know of a roll-back, by
        another leader, of what this one holds.
        """
        failure: StoreError | None = None
        for store in self._stores:
            try:
                found = await store.load()
            except StoreError as error:
                failure = failure or error
                continue
            if found is not None:
                if failure is None:
                    return found
                failure.otherwise = failure.otherwise or found
        if failure is not None:
            raise failure
        return None

    async def save(self, last_good: LastGood) -> bool:
        """Save to every store; False if not all took it. Raises `StoreError` if none did."""
        failures: list[StoreError] = []
        for store in self._stores:
            try:
                await store.save(last_good)
            except StoreError as error:
                log.warning("Cannot save the last good policies here", reason=str(error))
                failures.append(error)
        if failures and len(failures) == len(self._stores):
            raise failures[0]
        return not failures

    async def is_lost(self) -> bool:
        """True if one of them has lost it; those that cannot be read are ignored."""
        for store in self._stores:
            with contextlib.suppress(StoreError):
                if await store.is_lost():
                    return True
        return False
