"""The mode of a roll-out: whether edits go through their stages, skip them, or stand still.

Owns the ConfigMap that holds it, apart from the policies', so that RBAC can give "may edit
policies" and "may skip stages" to different people. What follows from a mode is `staging`'s.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final, Literal, Protocol, TypeAlias, get_args

import structlog

from engine.core.model.objects import ConfigMap
from engine.io.binding.event_recorder import Reference
from engine.io.kube.client import ApiClient
from engine.io.watching.informer import Informer
from engine.policy.errors import Problem
from engine.policy.source import no_text
from engine.rollout.sources import config_map_informer, config_map_reference, trouble

log = structlog.get_logger(component="rollout")

Mode: TypeAlias = Literal["staged", "at-once", "paused"]

MODE, PROMOTE, ABORT = "mode", "promote", "abort"
STAGED: Final[Mode] = "staged"
AT_ONCE: Final[Mode] = "at-once"
PAUSED: Final[Mode] = "paused"
#: Added to the name of the policies' ConfigMap.
SUFFIX: Final = "-rollout"

_KEYS: Final = (MODE, PROMOTE, ABORT)
_REVISION: Final = re.compile(r"[0-9a-f]{12}")
_RESTART_SECONDS: Final = 5.0
_LONGEST_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Control:
    """What is wanted by those who may skip stages.

    Attributes:
        mode: `staged`: edits go through the stages of the policies in force; `at-once`: they skip
            them; `paused`: they stay in the stage that they are in.
        promote, abort: The revision that skips its remaining stages, or is given up; "" for none.
        written_by: The field manager that wrote it last; "" if that is not known.
        version: The ConfigMap's resourceVersion; "" if there is none.
        problems: What makes no sense. While there are some, nothing is promoted.
    """

    mode: Mode = STAGED
    promote: str = ""
    abort: str = ""
    written_by: str = ""
    version: str = ""
    problems: tuple[Problem, ...] = ()

    def promotes(self, revision: str) -> bool:
        """True if *revision* is to skip its remaining stages."""
        return self.promote == revision != "" and not self.problems

    def aborts(self, revision: str) -> bool:
        """True if *revision* is to be given up: also if something else makes no sense."""
        return self.abort == revision != ""


OnProblems = Callable[[], None]
"""Called when `current` has come to have problems, or other ones."""


class RolloutControl(Protocol):
    """Where the mode comes from.

    Attributes:
        changed: Set when `current` has changed, and when it is known for the first time; the
            component that waits for it clears it.
    """

    changed: asyncio.Event

    @property
    def name(self) -> str:
        """The ConfigMap as `namespace/name`; "" if there is none to write."""
        ...

    @property
    def reference(self) -> Reference | None:
        """The object that events about it are written for, if there is one."""
        ...

    @property
    def current(self) -> Control:
        """What is wanted now; the default until it is known."""
        ...

    @property
    def is_known(self) -> bool:
        """True once it was read."""
        ...

    def trouble(self) -> str:
        """Why it cannot be read at the moment; "" if nothing is known against it."""
        ...

    async def run(self, on_problems: OnProblems) -> None:
        """Follow it until cancelled."""
        ...


class NoControl:
    """The default for ever: for policies that come from no ConfigMap."""

    name = ""
    reference: Reference | None = None
    current = Control()
    is_known = True

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    def trouble(self) -> str:
        """Nothing."""
        return ""

    async def run(self, on_problems: OnProblems) -> None:
        """Do nothing until cancelled."""
        await asyncio.Event().wait()


class ConfigMapControl:
    """A ConfigMap, watched through the API server; without it the default counts."""

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self.changed = asyncio.Event()
        self._client = client
        self._namespace = namespace
        self._map_name = name
        self._current = Control()
        self._is_known = False
        self._reference: Reference | None = None
        self._on_problems: OnProblems | None = None
        self._informer: Informer[ConfigMap] | None = None

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return f"{self._namespace}/{self._map_name}"

    @property
    def reference(self) -> Reference | None:
        """The ConfigMap, if there is one."""
        return self._reference

    @property
    def current(self) -> Control:
        """What it says, or the default."""
        return self._current

    @property
    def is_known(self) -> bool:
        """True once the API server has said what it holds, or that there is none."""
        return self._is_known

    def trouble(self) -> str:
        """What the API server says instead, with the right to add if one is missing."""
        return trouble(self._informer)

    async def run(self, on_problems: OnProblems) -> None:
        """Watch it until cancelled; an exception only begins again."""
        self._on_problems = on_problems
        while True:
            try:
                self._informer = config_map_informer(
                    self._client,
                    self._namespace,
                    self._map_name,
                    on_change=self._has,
                    on_delete=self._gone,
                    on_synced=self._synced,
                )
                await self._informer.run()
            except Exception:
                log.exception("Unexpected exception while following the mode of roll-outs")
            await asyncio.sleep(_RESTART_SECONDS)

    def _has(self, config_map: ConfigMap) -> None:
        meta, before = config_map.metadata, self._current
        self._reference = config_map_reference(self._namespace, self._map_name, meta)
        control = read_control(config_map, self.name, before.mode)
        self._set(control)
        if not control.problems or control.problems == before.problems:
            return
        for problem in control.problems:
            log.error("The mode of roll-outs makes no sense", reason=str(problem))
        if self._on_problems is not None:
            self._on_problems()

    def _gone(self) -> None:
        self._reference = None
        self._set(Control())

    def _synced(self) -> None:
        self._is_known = True
        self.changed.set()

    def _set(self, control: Control) -> None:
        before, self._current = self._current, control
        if replace(before, version="") != replace(control, version=""):
            log.info(
                "Mode of roll-outs",
                mode=control.mode,
                promote=control.promote,
                abort=control.abort,
                written_by=control.written_by,
            )
        if before != control:
            self.changed.set()


def read_control(config_map: ConfigMap, name: str, before: Mode) -> Control:
    """What *config_map* says; *name* is how problems name it, *before* the mode until now.

    With a mode that makes no sense, what was paused stays paused, and everything else goes through
    its stages: a typing error must not skip them.
    """
    data = config_map.data
    problems = [_unknown(_place(name, key), key) for key in data if key not in _KEYS]
    problems += [
        Problem(_place(name, key), 0, 0, no_text(raw))
        for key, raw in sorted(config_map.binary_data.items())
    ]
    mode: Mode = STAGED
    said = data.get(MODE, "").strip() or STAGED
    known = {one: one for one in get_args(Mode)}
    if said in known:
        mode = known[said]
    else:
        mode = PAUSED if before == PAUSED else STAGED
        problems.append(_wrong(_place(name, MODE), f"one of {', '.join(known)}", said, known))
    revisions = {}
    for key in (PROMOTE, ABORT):
        revision = data.get(key, "").strip()
        if revision and not _REVISION.fullmatch(revision):
            wanted = "a revision of 12 hexadecimal digits, as `starsched rollout status` shows it"
            problems.append(_wrong(_place(name, key), wanted, revision))
            revision = ""
        revisions[key] = revision
    promote, abort = revisions[PROMOTE], revisions[ABORT]
    if promote and promote == abort:
        text = f"`{promote}` is to be promoted and aborted: it is aborted"
        problems.append(Problem(_place(name, PROMOTE), 0, 0, text))
    return Control(
        mode,
        promote,
        abort,
        config_map.written_by,
        config_map.metadata.resource_version,
        tuple(problems),
    )


def _place(name: str, key: str) -> str:
    return f"ConfigMap `{name}`, key `{key}`"


def _unknown(place: str, key: str) -> Problem:
    return _wrong(place, f"only the keys {', '.join(_KEYS)}", key, _KEYS)


def _wrong(
    place: str, wanted: str, got: str, known: Mapping[str, object] | tuple[str, ...] = ()
) -> Problem:
    close = get_close_matches(got.lower(), known, 1)
    hint = f"did you mean `{close[0]}`?" if close else ""
    return Problem(place, 0, 0, f"want {wanted}, got `{got[:_LONGEST_SHOWN]}`", hint)
