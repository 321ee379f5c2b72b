"""Which fields of the views a hook can reach, found from the source without running it.

The result is sound by over-approximation. Nothing depends on its being exact: a hook is given only
what is listed here, so a read that was missed shows as a missing attribute. Only a dict that is
narrowed to some keys could answer wrongly in silence, and so a key narrows only if all its possible
values are known strings.

Reports no problems: what is wrong with a policy is found by `check`, which uses the notes
(unknown fields, changed parameters) that the walk leaves.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from engine.core.model.clock_facts import CLOCK_FACTS
from engine.language.effects import AGES, ALL, Note
from engine.language.infer import Inference
from engine.language.modules import World
from engine.language.values import may_be_none
from engine.policy.hook_signatures import hook_signatures
from engine.policy.sandbox.protocol import Files
from engine.policy.views import SCHEMA, VIEWS


@dataclass(frozen=True, slots=True)
class Reads:
    """What a hook reads of each view, its counters and the range of scores; and its parameters.

    A path is a field (`taints`), one key of a dict field (`labels[disk]`), `*`: every field
    but `manifest`, or `views.AGES`: facts are read with their age. `counts` and `over` are names of
    fields, or `*` for all. `counters` are the builtins by which it may make counters, or `*`.
    `keeps_pods`: this is a `victim_key` that may say None.
    """

    pod: frozenset[str] = frozenset()
    node: frozenset[str] = frozenset()
    cluster: frozenset[str] = frozenset()
    group: frozenset[str] = frozenset()
    params: tuple[str, ...] = ()
    counts: frozenset[str] = frozenset()
    over: frozenset[str] = frozenset()
    counters: frozenset[str] = frozenset()
    keeps_pods: bool = False

    def of(self, view: str) -> frozenset[str]:
        """The paths read of *view* (pod, node, cluster or group)."""
        paths: frozenset[str] = getattr(self, view)
        return paths


class _HasHooks(Protocol):
    @property
    def hooks(self) -> Mapping[str, Reads]: ...


@dataclass(frozen=True, slots=True)
class TimeReads:
    """What hooks read that changes as time passes: the ages of facts, and facts of the clock."""

    ages: bool = False
    clock: frozenset[str] = frozenset()

    def __or__(self, other: "TimeReads") -> "TimeReads":
        return TimeReads(self.ages or other.ages, self.clock | other.clock)


def time_reads(policies: Iterable[_HasHooks]) -> TimeReads:
    """What the hooks of *policies* read that changes as time passes."""
    hooks = [reads for policy in policies for reads in policy.hooks.values()]
    return TimeReads(
        any(AGES in reads.of(view) for reads in hooks for view in VIEWS),
        frozenset(
            name for name in CLOCK_FACTS if any(reads_clock(reads.cluster, name) for reads in hooks)
        ),
    )


def reads_clock(paths: Collection[str], name: str) -> bool:
    """True if the fact *name* of the clock is among the *paths* that are read of the cluster."""
    return f"facts[{name}]" in paths


@dataclass(frozen=True, slots=True)
class Analysis:
    """Reads by hook, and the notes of all hooks together."""

    reads: Mapping[str, Reads]
    notes: tuple[Note, ...]


def analyse(files: Files, module: str) -> dict[str, Reads]:
    """What each hook of *module* reads, helpers and loads included. Never raises."""
    return dict(examine(World(files, SCHEMA), module).reads)


class Analyses:
    """The analysis of each file of a bundle, made once, when it is first asked for."""

    def __init__(self, files: Files) -> None:
        self._world = World(files, SCHEMA)
        self._made: dict[str, Analysis] = {}

    def of(self, module: str) -> Analysis:
        """The reads and the notes of the hooks of *module*."""
        found = self._made.get(module)
        if found is None:
            found = self._made[module] = examine(self._world, module)
        return found

    def close(self) -> None:
        """Drop the syntax trees, to be called when nothing more is asked for."""
        self._world.close()


def examine(world: World, module: str) -> Analysis:
    """The reads and the notes of the hooks of *module* of *world*. Never raises."""
    signatures = hook_signatures(world.files.get(module, ""))
    effects, may_keep = {}, False
    for hook, signature in signatures.items():
        inference = Inference(world)
        inference.enter_hook(module, hook, signature.params)
        effects[hook] = inference.effects
        if hook == _KEEPS:
            may_keep = inference.is_too_much or may_be_none(inference.result)
    for hook in _MAKE_STATE & effects.keys():
        # The hooks that are given a state read what is in it.
        effects[hook].pass_on([e for h, e in effects.items() if "state" in signatures[h].params])
    reads = {
        hook: _as_reads(found.found(), found.summaries, signatures[hook].params)
        for hook, found in effects.items()
    }
    if may_keep:
        reads[_KEEPS] = replace(reads[_KEEPS], keeps_pods=True)
    notes = {note for found in effects.values() for note in found.notes}
    return Analysis(reads, tuple(sorted(notes)))


_MAKE_STATE: Final = {"pre_filter", "pre_score"}
# Its None is an answer that has to be known before anything is tried.
_KEEPS: Final = "victim_key"

_GIVES: Final = {
    "pod": "pod",
    "node": "node",
    "cluster": "cluster",
    "group": "group",
    "victims": "pod",
    "nodes": "node",
}


def _as_reads(
    found: Mapping[str, set[str]], summaries: Mapping[str, set[str]], params: tuple[str, ...]
) -> Reads:
    given = {_GIVES[p] for p in params if p in _GIVES}
    paths = {view: frozenset(_tidy(found[view])) for view in VIEWS if view in given}
    return Reads(
        paths.get("pod", frozenset()),
        paths.get("node", frozenset()),
        paths.get("cluster", frozenset()),
        paths.get("group", frozenset()),
        params,
        frozenset(summaries["counts"]),
        frozenset(summaries["over"]),
        frozenset(summaries["counters"]),
    )


def _tidy(paths: Iterable[str]) -> set[str]:
    """*paths* without those that others include."""
    kept = set(paths)
    named = {p for p in kept if _must_be_named(p)}
    if ALL in kept:
        return {ALL} | (kept & {"manifest", AGES}) | named
    return {p for p in kept if "[" not in p or p.partition("[")[0] not in kept} | named


def _must_be_named(path: str) -> bool:
    """True for a key whose entry is there because it is named, also when the whole field is."""
    name, bracket, _ = path.partition("[")
    found = [fields[name] for fields in VIEWS.values() if name in fields]
    return bool(bracket) and any(field.fills or field.is_asked for field in found)
