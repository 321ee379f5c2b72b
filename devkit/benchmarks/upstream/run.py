"""One measurement: one scheduler, one workload, a control plane of its own.

Owns the processes: the servers with the workload's features, the controllers that it needs, and
the scheduler, which runs from the beginning, as it does in Kubernetes' own benchmark.
"""

import contextlib
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from devkit.benchmarks.measure import count_events
from devkit.benchmarks.objects import Manifest
from devkit.benchmarks.placement_check import over_capacity
from devkit.benchmarks.subjects import Ceiling, KubeScheduler, Starsched, Subject, SubjectError
from devkit.benchmarks.upstream.collecting import Collected
from devkit.benchmarks.upstream.definitions import Workload
from devkit.benchmarks.upstream.operations import Cluster, GivenUpError, Patience
from devkit.benchmarks.upstream.pods import BoundPods
from devkit.benchmarks.upstream.templates import TemplateError, Templates
from devkit.benchmarks.wire import Wire, WireError
from tests.controlplane import ControlPlane, controllers, spawn

_DEVICES, _GROUPS = "DynamicResourceAllocation", "GenericWorkload"
#: What the API server has to serve for a feature.
_SERVED: Final = {
    _DEVICES: [f"resource.k8s.io/{v}" for v in ("v1", "v1beta2", "v1beta1", "v1alpha3")],
    _GROUPS: ["scheduling.k8s.io/v1beta1"],
}
_CREATING_CONNECTIONS: Final = 30  # as many as Kubernetes' own benchmark
_STOP_SECONDS: Final = 10.0


@dataclass(slots=True)
class Outcome:
    """What became of one run.

    Attributes:
        collected: The measurements, in their order; empty if it was given up before.
        problems: What is wrong: it was given up, a node holds too much, a device has two claims.
        events: That were written in all.
        peak_mib: Of the scheduler, its children included.
        seconds: In all.
    """

    collected: Sequence[Collected] = ()
    problems: list[str] = field(default_factory=list)
    events: int = 0
    peak_mib: float = 0.0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"collected": [one.as_dict() for one in self.collected]}


def subject_of(name: str, workload: Workload) -> Subject:
    """The scheduler *name* with the features and the configuration of *workload*."""
    if name == KubeScheduler.name:
        return KubeScheduler(_gates_flag(workload), config=workload.config)
    if name == Ceiling.name:
        return Ceiling()
    own = () if workload.config is None else (f"--config={workload.config}",)
    return Starsched(arguments=(*own, *_gates_flag(workload)))


async def measure(
    subject: Subject,
    workload: Workload,
    templates: Templates,
    patience: Patience,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Outcome:
    """Run *workload* against *subject*, which is not running. Raises nothing that is expected."""
    outcome = Outcome()
    started = time.monotonic()
    with (
        ControlPlane(apiserver_args=_server_arguments(workload)) as plane,
        tempfile.TemporaryDirectory(prefix="starsched-bench-") as scratch,
        _controllers(plane, workload, Path(scratch)),
    ):
        endpoint = plane.endpoint()
        async with (
            Wire(endpoint, in_flight=_CREATING_CONNECTIONS) as wire,
            Wire(endpoint, in_flight=_CREATING_CONNECTIONS) as side,
            BoundPods(side) as bound,
        ):
            try:
                await subject.start(plane, Path(scratch))
                cluster = Cluster(
                    workload, wire, side, templates, bound, subject, patience, progress
                )
                try:
                    await cluster.run()
                except* (GivenUpError, WireError, TemplateError, SubjectError) as group:
                    outcome.problems += [str(error) for error in _leaves(group)]
                outcome.collected = cluster.collected
                outcome.peak_mib = subject.usage().peak_mib
            except SubjectError as error:
                outcome.problems.append(str(error))
            finally:
                subject.stop()
            outcome.events = await count_events(side)
            if not isinstance(subject, Ceiling):  # which keeps no rules
                outcome.problems += await _broken_rules(side, workload)
    outcome.seconds = time.monotonic() - started
    return outcome


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _broken_rules(wire: Wire, workload: Workload) -> list[str]:
    nodes, pods = await wire.list_all("/api/v1/nodes"), await wire.list_all("/api/v1/pods")
    if not workload.gates.get(_DEVICES):
        return over_capacity(nodes, pods)
    classes = await wire.list_all("/apis/resource.k8s.io/v1/deviceclasses")
    claims = await wire.list_all("/apis/resource.k8s.io/v1/resourceclaims")
    return over_capacity(nodes, pods, _served_by_devices(classes)) + given_twice(claims)


def _served_by_devices(classes: Iterable[Manifest]) -> set[str]:
    """Resources that pods can ask for and get devices of *classes*."""
    found = set()
    for one in classes:
        found.add(f"deviceclass.resource.kubernetes.io/{one['metadata']['name']}")
        if name := one["spec"].get("extendedResourceName"):
            found.add(name)
    return found


def given_twice(claims: Iterable[Manifest]) -> list[str]:
    """Devices that more than one of *claims* has to itself."""
    owners: Counter[tuple[str, str, str]] = Counter()
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if not result.get("adminAccess") and not result.get("shareID"):
                owners[result["driver"], result["pool"], result["device"]] += 1
    return [f"device {'/'.join(one)} has {n} claims" for one, n in owners.items() if n > 1]


def _gates(workload: Workload) -> str:
    return ",".join(f"{gate}={str(on).lower()}" for gate, on in workload.gates.items())


def _gates_flag(workload: Workload) -> list[str]:
    return [f"--feature-gates={_gates(workload)}"] if workload.gates else []


def _server_arguments(workload: Workload) -> list[str]:
    served = [
        f"{version}=true"
        for gate, versions in _SERVED.items()
        if workload.gates.get(gate)
        for version in versions
    ]
    return [
        # Templates set priorities themselves.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority",
        *_gates_flag(workload),
        *([f"--runtime-config={','.join(served)}"] if served else []),
    ]


@contextlib.contextmanager
def _controllers(plane: ControlPlane, workload: Workload, scratch: Path) -> Iterator[None]:
    """Make and delete the claims of pods, if *workload* has any."""
    if not workload.gates.get(_DEVICES):
        yield
        return
    kubeconfig = plane.kubeconfig(scratch / "controllers.kubeconfig")
    command = [str(controllers()), str(kubeconfig), _gates(workload)]
    with (scratch / "controllers.log").open("wb") as log:
        process = spawn(command, log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def reason_not_to_run(workload: Workload) -> str:
    """Why *workload* cannot be run; "" if it can."""
    if workload.problem:
        return workload.problem
    if not any(one["opcode"] in ("createPods", "createPodSets") for one in workload.operations):
        return "it measures how slices are read, no pod is scheduled"
    return ""
