"""Turns codes by slot into what users read: failures, reasons by node, the diagnosis.

Owns the way back from the arrays that a decision works on. Plain functions.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.reasons import left_out_token
from engine.core.framework.status import Code, Status
from engine.core.scheduling.diagnosis import Diagnosis
from engine.core.scheduling.pod_class import PodClass
from engine.policy.evaluator import PolicyFailure
from engine.policy.verdicts import FAILED, VerdictMemo


def node_name(slot: int, snapshot: Snapshot) -> str:
    """The name of the node in *slot*, which must hold one."""
    info = snapshot.infos[slot]
    assert info is not None, f"slot {slot} was feasible and holds no node"
    return info.name


def filter_failures(
    pod_class: PodClass,
    codes: NDArray[np.int32],
    per_pod: Mapping[int, PolicyFailure],
    snapshot: Snapshot,
) -> tuple[PolicyFailure, ...]:
    """The failures that count: of nodes that no earlier filter rejected.

    *per_pod* are those that the class does not know, by slot.
    """
    if not pod_class.filter_failures and not per_pod:
        return ()
    found = {
        slot: per_pod.get(slot) or pod_class.filter_failures[slot]
        for slot in np.flatnonzero(codes == FAILED).tolist()
    }
    return report(pod_class, found, snapshot) if found else ()


def report(
    pod_class: PodClass, failures: Mapping[int, PolicyFailure], snapshot: Snapshot
) -> tuple[PolicyFailure, ...]:
    """One failure per (policy, hook), that of the first node by name, so that runs repeat.

    The class looks at every node again next time: a failure may not recur.
    """
    pod_class.forget()
    chosen: dict[tuple[str, str], PolicyFailure] = {}
    for slot in sorted(failures, key=lambda slot: node_name(slot, snapshot)):
        failure = failures[slot]
        about = failure.about(f"node `{node_name(slot, snapshot)}`")
        chosen.setdefault((failure.policy, failure.hook), about)
    return tuple(chosen.values())


def diagnose(
    codes: NDArray[np.int32], snapshot: Snapshot, pod_class: PodClass, memo: VerdictMemo
) -> Diagnosis:
    """How many nodes each reason kept the pod from."""
    counted = np.bincount(codes[codes > 0], minlength=1)
    rejections = {
        memo.reasons.status(code): int(counted[code]) for code in np.flatnonzero(counted).tolist()
    }
    outside = snapshot.node_count - int(counted.sum())
    if pod_class.pre.subset is not None and outside:
        names = pod_class.pre.narrowed_by
        rejections[left_out_by(names)] = outside
        return Diagnosis(snapshot.node_count, rejections=rejections, narrowed_by=names)
    return Diagnosis(snapshot.node_count, rejections=rejections)


def left_out_by(policies: tuple[str, ...]) -> Status:
    """What is said of the nodes that *policies* left out before any node was asked about."""
    text = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(policies))}]"
    return Status(Code.UNRESOLVABLE, (text,), policies[0], left_out_token(policies[0]))
