"""Runs many simulations: every combination of arguments, each with every seed.

Owns the grid, the inputs of a point, and the key that identifies its result.
Which processes compute the points is the caller's choice of an executor.
"""

import functools
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from engine import __version__
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.config import API_VERSION, KIND, decode_configuration
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.evaluator import InProcessEvaluator
from engine.policy.file_names import DOCUMENT_SUFFIXES
from engine.policy.profiles import DEFAULT_PLUGINS
from engine.policy.shipped import snake_case
from workbench.simulation.simulation import Simulation
from workbench.simulation.simulation_report import Recorder, Report, report
from workbench.simulation.workload import Workload, read_workload

#: Measures are sums of floats, in an order that differs: those that are nearer, relative to both,
#: are the same. It is above the rounding of thousands of terms, and below any digit that is shown.
SAME_WITHIN: Final = 1e-12

_OPTION: Final = "--set"
# Where an argument is in a configuration, and what is to be said of it.
_ARGUMENT: Final = re.compile(r"profiles\[(\d+)\]\.pluginConfig\[(\d+)\]\.args([^:\s]*): ")


class SweepError(ValueError):
    """A grid that makes no sense; the message says why."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One argument, `Plugin.path.of.the.argument`, and the values that it takes."""

    path: str
    values: tuple[Any, ...]

    @classmethod
    def parse(cls, text: str) -> "Axis":
        """The axis of `Plugin.path=value,value`; values are YAML, each counts once.

        Raises `SweepError`.
        """
        path, equals, said = text.partition("=")
        parts = path.split(".")
        if not equals or len(parts) < 2 or not all(parts) or not said:
            raise SweepError(f"{_OPTION}: want `Plugin.argument=value,value`, got `{text}`")
        try:
            values = tuple(yaml.safe_load(f"[{said}]"))
        except yaml.YAMLError as error:
            what = getattr(error, "problem", None) or "no YAML"
            raise SweepError(
                f"{_OPTION} {path}: want values of YAML, got `{said}`: {what}"
            ) from error
        if not values:
            raise SweepError(f"{_OPTION} {path}: want values, got none")
        return cls(path, tuple({repr(value): value for value in values}.values()))


class Point(msgspec.Struct, frozen=True):
    """One simulation. `key` names its inputs: the same key, the same result."""

    key: str
    arguments: dict[str, Any]
    seed: int
    files: dict[str, str]
    config: str
    workload: tuple[str, ...]
    profile: str


class Measured(msgspec.Struct, frozen=True):
    """The result of a point."""

    key: str
    arguments: dict[str, Any]
    seed: int
    revision: str
    metrics: dict[str, float]


def make_points(
    files: Mapping[str, str],
    config: str | None,
    axes: Sequence[Axis],
    seeds: Sequence[int],
    workload: Sequence[Path],
    profile: str = "",
) -> list[Point]:
    """Every point of the grid, in order. Raises `SweepError`, `PolicyErrors`, `OSError`."""
    for plain, count in Counter(_plain(axis.path) for axis in axes).items():
        if count > 1:
            path = next(axis.path for axis in axes if _plain(axis.path) == plain)
            raise SweepError(
                f"{_OPTION} {path}: want it once, got it {count} times\n"
                "hint: commas separate the values of one argument"
            )
    inputs = [hashlib.sha256(path.read_bytes()).hexdigest() for path in _files(workload)]
    points = []
    for values in itertools.product(*(axis.values for axis in axes)):
        arguments = {axis.path: value for axis, value in zip(axes, values, strict=True)}
        texts, changed = with_arguments(files, config, arguments)
        # Here, so that what is wrong with the grid is said before anything runs.
        try:
            revision = _bundle(texts, changed).revision
        except PolicyErrors as error:
            raise PolicyErrors(_of_options(error.problems, changed)) from error
        for seed in seeds:
            named = msgspec.json.encode([__version__, revision, changed, inputs, seed, profile])
            points.append(
                Point(
                    key=hashlib.sha256(named).hexdigest()[:24],
                    arguments=arguments,
                    seed=seed,
                    files=texts,
                    config=changed,
                    workload=tuple(str(path) for path in workload),
                    profile=profile,
                )
            )
    return points


def _of_options(problems: Sequence[Problem], config: str) -> list[Problem]:
    """*problems* with the options that they are about in place of lines of *config*.

    It was without a problem before arguments were set in it, and its text was never shown.
    """
    profiles = _document(config)["profiles"]
    reported = []
    for problem in problems:
        found = _ARGUMENT.match(problem.message)
        if problem.file != _OPTION:
            reported.append(problem)
        elif found is None:
            reported.append(replace(problem, line=0, column=0))
        else:
            profile, entry, path = int(found[1]), int(found[2]), found[3]
            option = f"{_OPTION} {profiles[profile]['pluginConfig'][entry]['name']}{path}"
            message = problem.message[found.end() :]
            reported.append(replace(problem, file=option, line=0, column=0, message=message))
    return reported


def with_arguments(
    files: Mapping[str, str], config: str | None, arguments: Mapping[str, Any]
) -> tuple[dict[str, str], str]:
    """The policies without their configuration, and the configuration with *arguments* in it.

    Every profile gets them. Raises `SweepError` and `PolicyErrors`.
    """
    texts = dict(files)
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    if config is not None:
        document = _document(config)
    for name in [name for name in texts if name.endswith(DOCUMENT_SUFFIXES)]:
        parts = [part for part in yaml.safe_load_all(texts[name]) if isinstance(part, dict)]
        found = [part for part in parts if part.get("kind") == KIND]
        if found:
            document = found[0]
            rest = [part for part in parts if part.get("kind") != KIND]
            texts[name] = yaml.safe_dump_all(rest)
            if not rest:
                del texts[name]
    profiles = document["profiles"] = document.get("profiles") or [_default_profile(texts)]
    for profile in profiles:
        for path, value in arguments.items():
            _set(profile.setdefault("pluginConfig", []), path.split("."), value)
    return texts, yaml.safe_dump(document, sort_keys=False)


def _default_profile(files: Mapping[str, str]) -> dict[str, Any]:
    """What decides where no profile is configured, as a profile.

    One that names no policy has the built-in ones alone.
    """
    (profile,) = build_bundle(files, None).profiles
    names = {one.policy for enabled in profile.points.values() for one in enabled}
    own = [{"name": name} for name in sorted(names - DEFAULT_PLUGINS.keys())]
    plugins = {"multiPoint": {"enabled": own}}
    if "PrioritySort" not in names:
        plugins["queueSort"] = {"disabled": [{"name": "PrioritySort"}]}
    return {"plugins": plugins}


def _document(config: str) -> dict[str, Any]:
    for document in yaml.safe_load_all(config):
        if isinstance(document, dict) and document.get("kind") == KIND:
            return document
    raise SweepError(f"want a {KIND} as configuration")


def _plain(path: str) -> str:
    """*path* with its argument in one spelling."""
    name, argument, *below = path.split(".")
    return ".".join((name, snake_case(argument), *below))


def _set(plugin_config: list[dict[str, Any]], path: list[str], value: Any) -> None:
    name, argument, *below = path
    entry = next((one for one in plugin_config if one.get("name") == name), None)
    if entry is None:
        entry = {"name": name, "args": {}}
        plugin_config.append(entry)
    place = entry.setdefault("args", {})
    # As it is written there, in snake_case or in camelCase.
    argument = next((one for one in place if snake_case(one) == snake_case(argument)), argument)
    *members, last = argument, *below
    for member in members:
        place = place.setdefault(member, {})
        if not isinstance(place, dict):
            raise SweepError(f"{_OPTION} {'.'.join(path)}: `{member}` holds no members")
    place[last] = value


def _files(paths: Sequence[Path]) -> list[Path]:
    return [
        file
        for path in paths
        for file in (sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path])
    ]


def _bundle(files: Mapping[str, str], config: str) -> Bundle:
    return build_bundle(files, decode_configuration(config, _OPTION))


@functools.lru_cache(maxsize=4)
def _policies(files: tuple[tuple[str, str], ...], config: str) -> tuple[Bundle, InProcessEvaluator]:
    """The policies of points that differ in their seeds only: read and translated once."""
    bundle = _bundle(dict(files), config)
    return bundle, InProcessEvaluator(bundle.program)


@functools.lru_cache(maxsize=2)
def _workload(paths: tuple[str, ...], versions: tuple[tuple[int, int], ...]) -> Workload:
    """What *paths* hold; *versions* identify the content."""
    return read_workload(*map(Path, paths))


def measure(point: Point) -> Measured:
    """Compute *point*; runs in another process, which has nothing but the argument."""
    bundle, evaluator = _policies(tuple(sorted(point.files.items())), point.config)
    stats = [file.stat() for file in _files([Path(path) for path in point.workload])]
    workload = _workload(point.workload, tuple((one.st_mtime_ns, one.st_size) for one in stats))
    if point.profile:
        workload = workload.decided_as(point.profile)
    if point.seed:
        workload = workload.shuffled(point.seed)
    recorder = Recorder()
    simulation = Simulation(bundle, evaluator, workload, on_moment=recorder)
    simulation.run()
    metrics = metrics_of(report(simulation, recorder.steps))
    return Measured(point.key, point.arguments, point.seed, bundle.revision, metrics)


def metrics_of(result: Report) -> dict[str, float]:
    """The measures of a run by name; those of resources are shares, 0..1."""
    found = {
        "placed": float(result.placed),
        "pending": float(result.pending),
        "never got a node": float(result.given_up),
        "evictions": float(result.evictions),
        "empty nodes": float(result.empty_nodes),
        "wait median (s)": result.waits[0],
        "wait p99 (s)": result.waits[1],
        "fairness": result.fairness,
    }
    for name, use in result.resources.items():
        found[f"{name} used at the end"] = use.final
        found[f"{name} used on average"] = use.mean
        found[f"{name} fragmented"] = use.fragmentation
    return found
