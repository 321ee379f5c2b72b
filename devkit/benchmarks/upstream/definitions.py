"""The test cases of scheduler_perf: what each does to a cluster, with the numbers of a workload.

Owns reading them and putting parameters in their places.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

#: Below the sources of Kubernetes.
FOLDER: Final = "test/integration/scheduler_perf"
#: The label of the workloads that Kubernetes measures.
_PERFORMANCE: Final = "performance"

Operation = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload of a test case, with nothing left to fill in.

    Attributes:
        case: Name of the test case.
        name: Of the workload.
        folder: Templates are named relative to it.
        operations: In their order, fields as in the definitions; no `...Param` is left.
        pod_template: Of pods without one of their own; None: plain pods.
        config: The KubeSchedulerConfiguration, or None for the default.
        gates: Feature gates that are set.
        labels: As defined, such as `performance`.
        threshold: Pods per second that Kubernetes wants of its own machines; None: none.
        problem: Why it cannot be run; "": it can.
    """

    case: str
    name: str
    folder: Path
    operations: Sequence[Operation]
    pod_template: Path | None
    config: Path | None
    gates: Mapping[str, bool]
    labels: frozenset[str]
    threshold: float | None
    problem: str = ""

    @property
    def title(self) -> str:
        """`case/workload`."""
        return f"{self.case}/{self.name}"

    @property
    def size(self) -> int:
        """How many objects it creates."""
        return sum(_count(one) for one in self.operations)


def _count(operation: Operation) -> int:
    each = operation.get("createPodsOp")
    count = int(operation.get("count", 1))
    return count * _count(each) if each is not None else count


def read(sources: Path, scale: float = 1.0) -> list[Workload]:
    """Every workload of every test case, in the order of the folders.

    Args:
        sources: Of Kubernetes.
        scale: Multiplies counts of nodes, pods and other objects; 1 stays 1.
    """
    found = []
    for path in sorted((sources / FOLDER).glob("**/performance-config.yaml")):
        for case in yaml.load(path.read_bytes(), yaml.CSafeLoader):
            found += [_workload(path.parent, case, one, scale) for one in case["workloads"]]
    return found


def largest(workloads: Sequence[Workload]) -> list[Workload]:
    """Of each test case, the workload that creates most.

    Of those that Kubernetes measures, if it measures any; of equals, the last one that turns no
    feature off.
    """

    def rank(workload: Workload) -> tuple[object, ...]:
        is_measured = _PERFORMANCE in workload.labels
        return not workload.problem, is_measured, workload.size, all(workload.gates.values())

    by_case: dict[str, list[Workload]] = {}
    for one in workloads:
        by_case.setdefault(one.case, []).append(one)
    return [max(reversed(those), key=rank) for those in by_case.values()]


def matching(workloads: Sequence[Workload], pattern: str) -> list[Workload]:
    """Those whose `case/workload` has a match of the regular expression *pattern*."""
    wanted = re.compile(pattern)
    return [one for one in workloads if wanted.search(one.title)]


def _workload(
    folder: Path, case: Mapping[str, Any], workload: Mapping[str, Any], scale: float
) -> Workload:
    params = dict(workload.get("params") or {})
    operations, problem = [], ""
    try:
        operations = [_filled(one, params, scale) for one in case["workloadTemplate"]]
    except KeyError as error:
        problem = f"its definition has no parameter {error}"
    default, config = case.get("defaultPodTemplatePath"), case.get("schedulerConfigPath")
    return Workload(
        case["name"],
        workload["name"],
        folder,
        operations,
        folder / default if default else None,
        folder / config if config else None,
        {**(case.get("featureGates") or {}), **(workload.get("featureGates") or {})},
        frozenset(workload.get("labels") or ()),
        _threshold(workload.get("threshold")),
        problem,
    )


def _threshold(given: Any) -> float | None:
    if isinstance(given, Mapping):  # by the folder that it is for
        return max(map(float, given.values()), default=None)
    return None if given is None else float(given)


def _filled(operation: Operation, params: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """*operation* with the values of *params* in place of their names."""
    filled = {key: value for key, value in operation.items() if not key.endswith("Param")}
    for key in operation:
        if key.endswith("Param"):
            filled[key.removesuffix("Param")] = params[operation[key].removeprefix("$")]
    multiplier = filled.pop("countMultiplier", 1)
    if "count" in filled:
        scaled = max(1, math.ceil(filled["count"] * scale)) if filled["count"] else 0
        filled["count"] = scaled * multiplier
    if "templateParams" in filled:
        filled["templateParams"] = dict(_values(filled["templateParams"], params))
    if "createPodsOp" in filled:
        filled["createPodsOp"] = _filled(filled["createPodsOp"], params, scale)
    return filled


def _values(given: Mapping[str, Any], params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in given.items():
        if not (isinstance(value, str) and value.startswith("$")):
            yield key, value
            continue
        name, has_default, default = value[1:].partition("|")
        if name in params:
            yield key, params[name]
        elif has_default:
            yield key, yaml.safe_load(default)
        else:
            raise KeyError(name)
