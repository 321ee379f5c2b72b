"""Sources that learn from pods, and save what they learned for the next start.

Owns the watch and the places to save to (a file, or a ConfigMap next to that of the policies). What
is learned is `outcomes`' and `demand`'s. Every replica learns, so that a new leader knows as much;
only the leader saves. What was not saved before a crash is learned again from the pods that are
still there.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from engine.core.model.objects import ConfigMap, decode
from engine.io.facts.readings import Readings, Subject
from engine.io.facts.source import ProblemLog, Report
from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.errors import ApiError, Forbidden, NotFound, Unauthorized
from engine.io.kube.resources import CONFIG_MAPS, PODS
from engine.io.watching.informer import Decoding, Handlers, Informer
from engine.io.watching.reflector import WatchCounts, WatchOptions
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.lib.deep_json import UNREADABLE
from engine.lib.files import FILES, Files
from engine.lib.saved_state import SavedState, SavedStates, Unread

log = structlog.get_logger(component="facts")

#: What is appended to the name of the policies' ConfigMap.
SUFFIX: Final = "-facts"

_FILE: Final = "learned-facts-{}.json"
_REPORT_SECONDS: Final = 1.0
_SAVE_SECONDS: Final = 10.0
_LOAD_AGAIN_SECONDS: Final = 5.0

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)


class LearnedStoreError(Unread):
    """Saved learning cannot be read or written."""


class LearnedStore(Protocol):
    """Where learners save their state, by name."""

    async def load(self, name: str) -> bytes | None:
        """What was saved last, or None. Raises `LearnedStoreError`."""
        ...

    async def save(self, name: str, text: bytes) -> None:
        """Keep *text* in place of what was there. Raises `LearnedStoreError`."""
        ...


class NoLearnedStore:
    """Saves nothing: learning begins again after a restart."""

    async def load(self, name: str) -> bytes | None:
        """None."""

    async def save(self, name: str, text: bytes) -> None:
        """Do nothing."""


class LearnedFiles:
    """A file per learner in *directory*, replaced as a whole."""

    def __init__(self, directory: Path, files: Files = FILES) -> None:
        self._directory = directory
        self._files = files

    async def load(self, name: str) -> bytes | None:
        """What was saved last, or None. Raises `LearnedStoreError`."""
        path = self._directory / _FILE.format(name)
        try:
            return await asyncio.to_thread(self._files.read, path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LearnedStoreError(f"{path}: {error}") from error

    async def save(self, name: str, text: bytes) -> None:
        """Replace the file: after a crash at any moment it is the old or the new one."""
        await asyncio.to_thread(self._write, self._directory / _FILE.format(name), text)

    def _write(self, path: Path, text: bytes) -> None:
        try:
            self._files.replace(path, text)
        except OSError as error:
            raise LearnedStoreError(f"{path}: {error}") from error


class LearnedConfigMap:
    """A key per learner in a ConfigMap, which is made if it is not there."""

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def load(self, name: str) -> bytes | None:
        """What was saved last, or None. Raises `LearnedStoreError`."""
        try:
            raw = await self._client.get(CONFIG_MAPS, self._name, self._namespace)
            text = decode(ConfigMap, raw).data.get(f"{name}.json")
        except NotFound as error:
            if self._is_not_there(error):
                return None
            raise self._error(error) from error
        except (ApiError, *UNREADABLE) as error:
            raise self._error(error) from error
        return None if text is None else text.encode()

    async def save(self, name: str, text: bytes) -> None:
        """Change the ConfigMap's key, and no other. Raises `LearnedStoreError`."""
        data = {f"{name}.json": text.decode()}
        try:
            try:
                await self._client.patch(
                    CONFIG_MAPS,
                    self._name,
                    msgspec.json.encode({"data": data}),
                    self._namespace,
                    content_type=MERGE_PATCH,
                )
            except NotFound as error:
                if not self._is_not_there(error):
                    raise
                manifest = {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": self._name, "namespace": self._namespace},
                    "data": data,
                }
                body = msgspec.json.encode(manifest)
                await self._client.create(CONFIG_MAPS, body, self._namespace)
        except ApiError as error:
            raise self._error(error) from error

    def _is_not_there(self, error: NotFound) -> bool:
        """True if it is the ConfigMap that is missing: another 404 says nothing about it."""
        return error.what == (CONFIG_MAPS.plural, self._name)

    def _error(self, error: Exception) -> LearnedStoreError:
        text = f"ConfigMap `{self._namespace}/{self._name}`: {error}"
        return LearnedStoreError(text, is_refused=isinstance(error, Forbidden | Unauthorized))


class Learner(Protocol[P_contra]):
    """Learns from pods; pure."""

    @property
    def name(self) -> str:
        """The key that its state is saved under."""
        ...

    def observe(self, pod: P_contra, /, now: float) -> bool:
        """Take *pod* as it is now. True if something was learned."""
        ...

    def forget(self, pod: P_contra, /) -> bool:
        """Take in that the pod is gone. True if something was learned."""
        ...

    def readings(self) -> Mapping[Subject, Readings]:
        """What was learned."""
        ...

    def to_plain(self) -> dict[str, Any]:
        """The state to save, as plain data."""
        ...

    def restore(self, plain: Any, now: float) -> None:
        """Continue from saved state; times in it that are after *now* count as *now*."""
        ...


class LearnedSource(Generic[P]):
    """A learner with its watch and its store.

    Args:
        learner: What learns.
        decode_pod: Makes what the learner observes of a pod's JSON.
        client: The API server.
        store: Where what was learned is kept.
        may_save: False while another replica is to save.
        clock: Time.
        namespaces: The namespaces whose pods are watched; empty: all.
        states: Reads *store* until that succeeds; None: decisions do not wait for it.
    """

    #: What was learned is reported at once.
    is_reading: Final = False

    def __init__(
        self,
        learner: Learner[P],
        decode_pod: Callable[[bytes], P],
        *,
        client: ApiClient,
        store: LearnedStore,
        may_save: Callable[[], bool],
        clock: Clock,
        namespaces: tuple[str, ...] = (),
        states: SavedStates | None = None,
    ) -> None:
        self._learner = learner
        self._decode = decode_pod
        self._client = client
        self._store = store
        self._may_save = may_save
        self._clock = clock
        self._namespaces = namespaces
        self._states = states or SavedStates(
            clock, sleep=lambda _: asyncio.sleep(_LOAD_AGAIN_SECONDS)
        )
        self._kept: SavedState[Mapping[str, Any] | None] | None = None
        self._is_restored = False
        self._is_new = False
        self._is_unsaved = False
        self._problems = ProblemLog(self.name)
        self._watched: list[WatchCounts] = []

    @property
    def name(self) -> str:
        """`learned:name`."""
        return f"learned:{self._learner.name}"

    @property
    def failures(self) -> int:
        """How often pods could not be watched, or what was learned not be read or kept."""
        restoring = 0 if self._kept is None else self._kept.failures
        return self._problems.count + restoring + sum(counts.failures for counts in self._watched)

    async def run(self, report: Report) -> None:
        """Learn, report and save, until cancelled."""
        if not self._is_restored:
            await self._restore()
            self._is_restored = True
        report(self._learner.readings())
        informers = self._informers()
        self._watched += [informer.counts for informer in informers]
        tasks = [asyncio.ensure_future(informer.run()) for informer in informers]
        tasks += [asyncio.ensure_future(self._report(report)), asyncio.ensure_future(self._save())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await cancelled(tasks)

    async def _restore(self) -> None:
        state = self._kept = self._states.add(
            self.name, self._read_kept, "Cannot read what was learned"
        )
        try:
            while not state.is_known:
                # Going on without it would in the end overwrite it. Decisions may be made without.
                with contextlib.suppress(Unread):
                    kept = await state.read()
        except asyncio.CancelledError:
            self._states.discard(state)
            raise
        if kept is not None:
            self._learner.restore(kept, self._clock.now())

    async def _read_kept(self) -> Mapping[str, Any] | None:
        """The state that was saved, as plain data; None if none was. Raises `Unread`."""
        try:
            kept = await self._store.load(self._learner.name)
            return None if kept is None else msgspec.json.decode(kept, type=dict[str, Any])
        except UNREADABLE as error:
            text = f"what was saved as `{self._learner.name}` is damaged: {error}"
            raise Unread(text) from error

    def _informers(self) -> list[Informer[P]]:
        handlers = Handlers[P](
            on_add=self._observe,
            on_update=lambda _, new: self._observe(new),
            on_delete=self._forget,
        )
        return [
            Informer(
                self._client,
                PODS,
                Decoding(self._decode),
                handlers,
                options=WatchOptions(namespace=namespace),
            )
            for namespace in (self._namespaces or (None,))
        ]

    def _observe(self, pod: P) -> None:
        self._note(self._learner.observe(pod, self._clock.now()))

    def _forget(self, pod: P) -> None:
        self._note(self._learner.forget(pod))

    def _note(self, learned: bool) -> None:
        if learned:
            self._is_new = self._is_unsaved = True

    async def _report(self, report: Report) -> None:
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            if self._is_new:
                self._is_new = False
                report(self._learner.readings())

    async def _save(self) -> None:
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            if not self._is_unsaved or not self._may_save():
                continue
            self._is_unsaved = False
            try:
                text = msgspec.json.encode(self._learner.to_plain())
                await self._store.save(self._learner.name, text)
                self._problems.clear()
            except LearnedStoreError as error:
                self._is_unsaved = True
                self._problems.report("Cannot keep what was learned", str(error))
            except asyncio.CancelledError:
                self._is_unsaved = True
                raise
