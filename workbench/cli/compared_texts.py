"""Deciding the pods of a cluster, one by one, by two texts: for `plan`, and `diff --placed`.

Owns which pods are decided, and the deciders. Comparing is `rollout.plan`'s.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.files.cluster_file import Cluster
from engine.files.policy_files import PolicyFiles
from engine.policy.bundle import Bundle
from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import InProcessEvaluator
from engine.surfaces.cli.policy_paths import build
from engine.surfaces.cli.progress_bar import tracked
from workbench.plan.edited_objects import EditedObjects
from workbench.plan.plan import Comparison, EditedFiles, Planner, sample
from workbench.plan.what_if import Decider, Scene


@dataclass(frozen=True, slots=True)
class Side:
    """One of both texts: what decides, and the files that it is made of."""

    bundle: Bundle
    files: PolicyFiles


def compare_texts(
    cluster: Cluster,
    before: Side,
    after: Side,
    config: Path | None,
    *,
    objects: EditedObjects | None = None,
    most_waiting: int | None = None,
    most_running: int | None = None,
    note_unknown: Callable[[Scene], None] = lambda _: None,
) -> Comparison:
    """How pods of *cluster* differ: at most so many that wait, and that run, each as if it waited.

    Places are paths that can be opened. *config* is the scheduler's own, *objects* are those of the
    cluster, of which *after* sees the edited ones, and *note_unknown* gets the cluster as *after*
    sees it. Raises `KeyError`, `ManifestError`.
    """
    bundles = (before.bundle, after.bundle)
    names = {one.scheduler_name for bundle in bundles for one in bundle.profiles}
    running = [
        one
        for one in cluster.placed_pods()
        if _is_of(one, names) and not (one.get("metadata") or {}).get("deletionTimestamp")
    ]
    waiting = [one for one in cluster.pending_pods() if _is_of(one, names)]
    waiting_pods, running_pods = (
        [cluster.pod_of(one, unplaced=False) for one in sample(found, most)]
        for found, most in ((waiting, most_waiting), (running, most_running))
    )
    edited = EditedObjects(cluster.others) if objects is None else objects
    with contextlib.ExitStack() as stack:
        scene = Scene.of(cluster, after.bundle, running_pods)
        note_unknown(scene)
        base_scene = scene
        if before.bundle.runtime.facts != after.bundle.runtime.facts:
            base_scene = Scene.of(cluster, before.bundle, running_pods)

        def make(texts: Mapping[str, str], known: Decider) -> Decider | None:
            files = edited.without(texts)
            bundle, _ = build(PolicyFiles(Path(), files, frozenset(files)), config)
            seen = scene.with_objects(edited.among(texts)) if edited.after else scene
            try:
                return None if bundle is None else decider_of(bundle, seen, stack, known)
            except PolicyErrors:
                return None

        decider = decider_of(before.bundle, base_scene, stack)
        files = EditedFiles(
            {**before.files.texts, **edited.before}, {**after.files.texts, **edited.after}
        )
        planner = Planner(decider, files, make)
        compared = planner.compare(
            waiting_pods,
            running_pods,
            waiting_count=len(waiting),
            running_count=len(running),
            track=tracked,
        )
    return _with_paths(compared, after.files, edited)


def decider_of(
    bundle: Bundle, scene: Scene, stack: contextlib.ExitStack, known: Decider | None = None
) -> Decider:
    """A decider in *scene*, which *stack* ends; it begins with what *known* knows."""
    evaluator = InProcessEvaluator(bundle.program)
    stack.callback(evaluator.close)
    return Decider(bundle, evaluator, scene, known)


def _is_of(manifest: Mapping[str, Any], names: set[str]) -> bool:
    spec = manifest.get("spec") or {}
    return spec.get("schedulerName", "default-scheduler") in names


def _with_paths(compared: Comparison, files: PolicyFiles, objects: EditedObjects) -> Comparison:
    """*compared*, with the candidate's files and objects as paths that can be opened."""

    def shown(place: str) -> str:
        module, colon, line = place.rpartition(":")
        if (of_object := objects.shown(module)) is not None:
            return of_object
        return files.shown(module) + colon + line if colon else place

    replace = msgspec.structs.replace
    found = tuple(replace(one, place=shown(one.place)) for one in compared.differences)
    queues = compared.queues
    if queues is not None and queues.place:
        queues = replace(queues, place=shown(queues.place))
    return replace(compared, differences=found, queues=queues)
