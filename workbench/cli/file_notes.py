"""Notes on stderr about clusters, logs and workloads that were read from files."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from engine.core.manifests.schema import VERSION
from engine.files.cluster_file import Cluster
from engine.files.known_facts import unknown_sources
from engine.lib.printable import printable
from engine.policy.bundle import Bundle
from engine.surfaces.cli import terminal
from workbench.queues.still_kernel import queue_objects
from workbench.replay.decision_log import Damage
from workbench.simulation.workload import Workload

_SHOWN: Final = 3


def _note(text: str) -> None:
    """One line, whatever names it quotes."""
    terminal.echo(printable(text), err=True)


def report_repeated(cluster: Cluster) -> None:
    """Report objects that were given more than once."""
    if names := list(dict.fromkeys(cluster.repeated)):
        _note(f"given more than once; the last one is used: {_shown(names)}")


def report_missing(cluster: Cluster) -> None:
    """Report what could not be read of a cluster: decisions that depend on it may differ."""
    for resource, reason in cluster.missing.items():
        _note(f"not read: {resource}: {reason}")


def admission_note(cluster: Cluster) -> str:
    """How manifests that no cluster has seen were read, and what was not done; empty if none."""
    left_out = cluster.not_applied
    if not left_out:
        return ""
    names = f": {', '.join(left_out)}" if terminal.is_wide() else ""
    return (
        f"manifests are read as kube-apiserver {VERSION} would, "
        f"without {len(left_out)} of its plugins{names}"
    )


def report_admission(cluster: Cluster) -> None:
    """Report what an API server does to new objects and is not done here."""
    if note := admission_note(cluster):
        _note(note)


def report_workload(workload: Workload, *bundles: Bundle) -> None:
    """Report oddities of a workload, and the parts of it that a simulation ignores."""
    report_repeated(workload.cluster)
    report_admission(workload.cluster)
    report_damage(workload.damage, *bundles)
    report_missing(workload.cluster)
    if skipped := workload.cluster.skipped - _queues_of(workload.cluster, bundles):
        said = ", ".join(f"{number} {kind}" for kind, number in skipped.most_common())
        _note(f"ignored, because no decision reads their kind: {said}")
    if any(bundle.extenders for bundle in bundles):
        _note("configured extenders are not called here")
    known = workload.cluster.facts
    unknown = [n for one in bundles for n in unknown_sources(one.runtime.facts, known)]
    for name in dict.fromkeys(unknown):
        _note(f"no facts are known from {name}")
    for note in dict.fromkeys(workload.cluster.clock_note(one) for one in bundles):
        if note:
            _note(note)


def _queues_of(cluster: Cluster, bundles: Sequence[Bundle]) -> Counter[str]:
    """How many objects of *cluster* add queues to a tree of *bundles*, by kind."""
    found = Counter[str]()
    for bundle in bundles:
        found |= Counter(one.kind for one in queue_objects(bundle.queue_tree, cluster.others))
    return found


def report_replaced(keys: Sequence[str]) -> None:
    """Report pods that were replaced by a later one of the same name."""
    if keys:
        said = _shown([f"Pod `{key}`" for key in keys])
        _note(f"arrived again while still present; the later one replaces it: {said}")


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def report_damage(damage: Damage, *bundles: Bundle) -> None:
    """Report where decision logs are cut off, and what is missing in them.

    *bundles* are the policies that decide: of some the tree of queues is read from objects.
    """
    for place in damage.cuts:
        _note(f"{place}: it ends in the middle of an entry, which is ignored")
    for gap in damage.missing:
        _note(gap)
    if damage.without_queues and any(one.queue_tree and one.queue_tree.objects for one in bundles):
        _note(
            f"{_shown(damage.without_queues)}: recorded by an older version, without the objects "
            "that add queues to the tree"
        )
