"""Workloads of simulations: nodes and pods that are added and deleted at given times.

Owns reading workloads: clusters (every pending pod arrives at the start), timed events as JSON
lines, decision logs, and the tables of the openb trace. Running them is `simulation`'s.
"""

import codecs
import contextlib
import csv
import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.files.admission import is_of_cluster
from engine.files.cluster_file import Cluster, last_of_each, read_cluster, unpacked
from engine.files.given_objects import given_problems
from engine.files.templates import planned_objects
from engine.files.text_places import FileError, TextError, decoded
from engine.files.world import Manifest, ManifestError, node_of, pod_of
from engine.lib.json_keys import repeated_key
from engine.policy.documents import did_you_mean
from workbench.comparing.population import Population
from workbench.replay.decision_log import Damage, LogError, is_log, read_log
from workbench.simulation.recorded_workload import RecordedWorkload, recorded_workload

GPU_PREFIX: Final = "alibabacloud.com/gpu-"
#: A GPU in thousandths, for policies that count amounts and know nothing of single GPUs.
GPU_MILLI: Final = f"{GPU_PREFIX}milli"
_GPU_MODEL: Final = f"{GPU_PREFIX}card-model"
_WHOLE: Final = 1000
_PODS_PER_NODE: Final = "110"
_NODE_COLUMNS: Final = frozenset({"sn", "cpu_milli", "memory_mib", "gpu", "model"})
_POD_COLUMNS: Final = frozenset({"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"})
# From when it arrives, and from when it has a node.
_LENGTHS: Final = ("for", "runs")
_EVENT: Final = frozenset({"at", "add", *_LENGTHS, "delete"})
_CLASS: Final = "PriorityClass"
# Labels that name one node.
_OWN_LABELS: Final = ("kubernetes.io/hostname",)
# Fields of a node's status that are the same for all nodes of a shape.
_OF_KIND: Final = ("allocatable", "capacity", "conditions", "declaredFeatures")


class _Added(msgspec.Struct):
    """The object that an event adds; its other members are skipped."""

    add: Any = None


class WorkloadError(FileError):
    """A workload that cannot be read; the message starts with its place."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that arrives at *at* and ends at *until* (seconds from the start), if ever.

    One that *runs* for so many seconds ends that long after it got a node, and begins again if it
    is evicted.
    """

    at: float
    pod: Pod
    until: float | None = None
    runs: float | None = None


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that is added, changed or deleted."""

    at: float
    name: str
    node: Node | None


@dataclass(frozen=True, slots=True)
class QueueObjectChange:
    """An object that adds queues to a tree: it came or changed, or else it is gone."""

    at: float
    manifest: Manifest
    is_there: bool


@dataclass
class Workload:
    """A cluster at the start, and its changes over time.

    Attributes:
        cluster: Nodes, placed pods and other objects at the start.
        arrivals: Pods that arrive, in the order of the files.
        changes: Nodes that are added, changed or deleted.
        departures: Deletions of pods, also of those placed at the start: the time, and the key.
        queue_changes: Objects that add queues to a tree, and are added, changed or deleted.
        damage: What is missing in decision logs among the files.
    """

    cluster: Cluster = field(default_factory=Cluster)
    arrivals: list[Arrival] = field(default_factory=list)
    changes: list[NodeChange] = field(default_factory=list)
    departures: list[tuple[float, str]] = field(default_factory=list)
    queue_changes: list[QueueObjectChange] = field(default_factory=list)
    damage: Damage = field(default_factory=Damage)

    def decided_as(self, scheduler_name: str) -> "Workload":
        """The same with every pod naming this scheduler: those of the start may be recreated."""

        def named(pod: Pod) -> Pod:
            spec = msgspec.structs.replace(pod.manifest.spec, scheduler_name=scheduler_name)
            return Pod(msgspec.structs.replace(pod.manifest, spec=spec))

        arrivals = [replace(one, pod=named(one.pod)) for one in self.arrivals]
        there = [
            {**one, "spec": {**(one.get("spec") or {}), "schedulerName": scheduler_name}}
            for one in self.cluster.pods
        ]
        return replace(self, arrivals=arrivals, cluster=replace(self.cluster, pods=there))

    def shuffled(self, seed: int) -> "Workload":
        """The same with another order of simultaneous arrivals, and other tie-breaking."""
        chance = random.Random(seed)
        mixed = [replace(one, pod=one.pod.renamed(f"{seed}/{one.pod.uid}"))
                 for one in self.arrivals]  # fmt: skip
        chance.shuffle(mixed)
        mixed.sort(key=lambda one: one.at)  # stable: the order within a moment stays random
        return replace(self, arrivals=mixed)

    def all_nodes(self) -> list[dict[str, Any]]:
        """The manifests of the nodes of the start, and of those that are added later."""
        nodes = [*self.cluster.nodes]
        names = {node_of(one).name for one in nodes}
        for change in self.changes:
            if change.node is not None and change.name not in names:
                names.add(change.name)
                nodes.append(msgspec.to_builtins(change.node.manifest))
        return nodes

    def population(self) -> Population:
        """Its nodes, later ones too, and its pods, placed and arriving ones.

        Raises `ManifestError`.
        """
        cluster = replace(self.cluster, nodes=self.all_nodes())
        placed = (cluster.pod_of(one) for one in cluster.placed_pods())
        arriving = (
            one.pod.unplaced() if one.pod.nominated_node_name else one.pod for one in self.arrivals
        )
        pods = {pod.key: pod for pod in (*arriving, *placed)}
        return Population(cluster, tuple(pods[key] for key in sorted(pods)))

    def with_nodes(self, count: int) -> "Workload":
        """The same with *count* more nodes of the most common shape at the start.

        Nodes that are added later count for what is common. Raises `WorkloadError` if there is
        none.
        """
        if not count:
            return self
        nodes = self.all_nodes()
        if not nodes:
            raise WorkloadError("want a node to make more of, found no node among the objects")
        shapes = Counter(map(_shape, nodes))
        common = max(shapes, key=lambda shape: (shapes[shape], shape))
        model = next(one for one in nodes if _shape(one) == common)
        taken = {node_of(one).name for one in nodes} | {change.name for change in self.changes}
        free = (name for n in itertools.count(1) if (name := f"extra-{n}") not in taken)
        more = [_copy_of(model, name) for name in itertools.islice(free, count)]
        cluster = replace(self.cluster, nodes=[*self.cluster.nodes, *more])
        return replace(self, cluster=cluster)


def _shape(node: Manifest) -> bytes:
    """The key by which nodes count as alike."""
    labels = dict((node.get("metadata") or {}).get("labels") or {})
    for name in _OWN_LABELS:
        labels.pop(name, None)
    status, spec = node.get("status") or {}, node.get("spec") or {}
    allocatable = status.get("allocatable")
    return msgspec.json.encode([allocatable, labels, spec.get("taints") or []], order="sorted")


def _copy_of(node: Manifest, name: str) -> dict[str, Any]:
    metadata = node.get("metadata") or {}
    labels = {**(metadata.get("labels") or {})}
    for own in _OWN_LABELS:
        if own in labels:
            labels[own] = name
    spec = {k: v for k, v in (node.get("spec") or {}).items() if k == "taints"}
    status = node.get("status") or {}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {member: value for member, value in status.items() if member in _OF_KIND},
    }


# --- reading ---------------------------------------------------------------------------------


def read_workload(*paths: Path, minor: int | None = None) -> Workload:
    """The workload of *paths*, each in whatever form it is.

    Answered like Kubernetes 1.*minor*; None: like what the paths say.

    Raises `WorkloadError`, `ClusterFileError` or `ManifestError` for what cannot be read, and
    `WorkloadError` if there is neither a node nor a pod.
    """
    workload = Workload()
    workload.cluster.minor = minor
    logs = {path for path in paths if is_log(path)}
    # Manifests are one cluster: a pod of one file may name the priority class of another.
    manifests = [p for p in paths if p not in logs and _form(p) not in (".csv", ".jsonl")]
    # Once: a pipe cannot be read again.
    events = {p: _lines(p) for p in paths if p not in logs and _form(p) == ".jsonl"}
    for path, lines in events.items():
        _read_classes(path, lines, workload.cluster)
    if manifests:
        cluster = read_cluster(*manifests, known=workload.cluster.known, minor=minor)
        _merge(workload.cluster, cluster)
    came = False
    rows: _Rows = {}
    deletes: list[_Delete] = []
    for path in paths:
        if path in logs:
            _read_recorded(path, workload)
        elif _form(path) == ".csv":
            _read_table(path, workload, rows)
        elif path in events:
            deletes += _read_events(path, events[path], workload)
        elif not came:
            came = True
            _come_at_start(cluster, workload)
    there = workload.cluster
    there.nodes = last_of_each("Node", there.nodes, there.repeated)
    if deletes:
        # Of a cluster, including pods that have ended, which the workload leaves out.
        pods = [*there.pods, *(cluster.pods if manifests else ())]
        coming = {pod_of(one).key for one in (cluster.pending_pods() if manifests else ())}
        at_start = {pod_of(one).key for one in pods} - coming
        _carry_out_in_order(deletes, workload, at_start)
    nodes, pods = there.nodes or workload.changes, there.pods
    if paths and not (nodes or pods or workload.arrivals):
        named = ", ".join(map(str, paths))
        counts = workload.cluster.skipped.most_common(3)
        got = ", ".join(f"{number} {kind}" for kind, number in counts) or "none"
        raise WorkloadError(f"{named}: want nodes and pods, got {got}")
    return workload


def _form(path: Path) -> str:
    """The suffix that determines the format of a file, compressed or not."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _merge(into: Cluster, more: Cluster) -> None:
    into.nodes += more.nodes
    into.pods += more.placed_pods()
    into.objects += more.objects
    into.known.update(more.known)
    into.is_written |= more.is_written
    into.missing.update(more.missing)
    into.facts += more.facts
    into.skipped.update(more.skipped)
    into.others += more.others
    into.repeated += more.repeated
    into.taken_at = into.taken_at or more.taken_at
    into.minor = into.minor or more.minor
    into.gates |= more.gates


def _come_at_start(cluster: Cluster, workload: Workload) -> None:
    pod = workload.cluster.pod_of  # which knows the classes of every file
    # A pod keeps its nomination, as in the cluster: others do not use that capacity. Its victims
    # end, or it would wait forever.
    for one in cluster.pending_pods():
        workload.arrivals.append(Arrival(0.0, pod(one, unplaced=False)))
    workload.departures += [(0.0, pod_of(one).key) for one in cluster.leaving_pods()]


class RecordedPart(NamedTuple):
    """A part of a decision log as a workload, and from when to when it is (since the epoch)."""

    workload: Workload
    began: float
    ended: float


def read_last(path: Path, seconds: float) -> RecordedPart:
    """The last *seconds* of the decision log *path*, or all of it if it is shorter.

    Raises `LogError`.
    """
    # Read twice: when the last part begins is known at the end, and the log may not fit in memory.
    since = max((line.at for line in read_log(path)), default=0.0) - seconds
    workload = Workload()
    found = recorded_workload(read_log(path, workload.damage), since)
    _take_recorded(path, found, workload)
    return RecordedPart(workload, found.began, found.ended)


def _read_recorded(path: Path, workload: Workload) -> None:
    """The cluster and the pods of a decision log."""
    try:
        found = recorded_workload(read_log(path, workload.damage))
    except LogError as error:
        raise WorkloadError(str(error)) from error
    _take_recorded(path, found, workload)


def _take_recorded(path: Path, found: RecordedWorkload, workload: Workload) -> None:
    _merge(workload.cluster, found.cluster)
    workload.arrivals += [Arrival(stay.at, stay.pod, stay.until) for stay in found.stays]
    workload.changes += [NodeChange(at, name, node) for at, name, node in found.nodes]
    workload.queue_changes += [QueueObjectChange(*one) for one in found.queues]
    workload.departures += found.departures
    ignored = f"{found.ignored} changes of other objects, or of pods placed by other schedulers"
    gaps = (
        f"what happened in {found.gaps} gaps of the log, except for nodes, objects of queues, and "
        "pods that went"
    )
    if parts := [ignored] * (found.ignored > 0) + [gaps] * (found.gaps > 0):
        workload.cluster.missing[str(path)] = "; ".join(parts)


@dataclass(frozen=True, slots=True)
class _Delete:
    """A delete event: its place in the file, its time, `node` or `pod`, and the name."""

    place: str
    at: float
    kind: str
    name: str


_Lines = list[tuple[int, bytes]]


def _lines(path: Path) -> _Lines:
    """The non-empty lines of a file, with their numbers."""
    text = unpacked(path).removeprefix(codecs.BOM_UTF8)
    return [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]


def _read_classes(path: Path, lines: _Lines, cluster: Cluster) -> None:
    """Add the priority classes among the events: pods of any line may name them."""
    for number, line in lines:
        # Other errors of a line are reported when it is read as an event.
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            added = msgspec.json.decode(line, type=_Added).add if _CLASS.encode() in line else None
            if isinstance(added, dict) and added.get("kind") == _CLASS:
                try:
                    cluster.add(added)
                except ManifestError as error:
                    raise WorkloadError(f"{path}:{number}: {error}") from error


def _read_events(path: Path, lines: _Lines, workload: Workload) -> list[_Delete]:
    """One event a line: `at` with `add` (a manifest) or `delete` (a name).

    Pods may be added `for` so many seconds, or with how long each `runs` once it has a node.

    Returns the delete events.
    """
    deletes = []
    for number, line in lines:
        try:
            event = msgspec.json.decode(line)
            if (key := repeated_key(line)) is not None:
                raise WorkloadError(f"want each key once in an object, got `{key}` twice")
            if gone := _event(event, workload):
                deletes.append(_Delete(f"{path}:{number}", *gone))
        except (msgspec.DecodeError, RecursionError) as error:
            raise WorkloadError(f"{path}:{number}: want a JSON object: {error}") from error
        except (UnicodeDecodeError, ManifestError, WorkloadError) as error:
            raise WorkloadError(f"{path}:{number}: {error}") from error
    if not lines:
        raise WorkloadError(f"{path}: want events, one a line, found none")
    return deletes


def _carry_out_in_order(
    deletes: Sequence[_Delete], workload: Workload, at_start: Collection[str]
) -> None:
    """Order arrivals before the deletions of the same pods at the same time.

    *at_start* are the keys of the pods that are placed at the start. Raises `WorkloadError` for the
    first deletion of an object that no file has, or that is added only later.
    """
    first: dict[str, dict[str, float]] = {
        "node": {node_of(one).name: -inf for one in workload.cluster.nodes},
        "pod": dict.fromkeys(at_start, -inf),
    }
    came = [("node", one.name, one.at) for one in workload.changes if one.node is not None]
    came += [("pod", one.pod.key, one.at) for one in workload.arrivals]
    for kind, name, at in came:
        first[kind][name] = min(at, first[kind].get(name, at))
    at_once = set()
    for one in deletes:
        begin = first[one.kind].get(one.name)
        if begin is None:
            hint = did_you_mean(one.name, set(first[one.kind]))
            more = f"\nhint: {hint}" if hint else ""
            wanted = f"want the name of a {one.kind}, got `{one.name}`"
            raise WorkloadError(f"{one.place}: {wanted}{more}")
        if one.at < begin:
            wanted = f"want a {one.kind} that is there at {one.at:g} s"
            raise WorkloadError(f"{one.place}: {wanted}, `{one.name}` comes at {begin:g} s")
        if one.at == begin and one.kind == "pod":
            at_once.add((one.name, one.at))
    if at_once:
        workload.arrivals = [
            replace(one, until=one.at) if (one.pod.key, one.at) in at_once else one
            for one in workload.arrivals
        ]


def _event(event: Any, workload: Workload) -> tuple[float, str, str] | None:
    """Add *event*; for a deletion, returns the time, `node` or `pod`, and the name."""
    at = event.get("at", 0) if isinstance(event, dict) else None
    if not isinstance(at, int | float) or isinstance(at, bool) or at < 0:
        raise WorkloadError("want an object with `at`, seconds from the start")
    if odd := sorted(set(event) - _EVENT):
        raise WorkloadError(f"want `at`, `add`, `for`, `runs` or `delete`, got `{odd[0]}`")
    if "add" in event and "delete" in event:
        raise WorkloadError("want `add` or `delete`, got both")
    for name in _LENGTHS:
        if name in event and not _is_pod(event.get("add")):
            raise WorkloadError(f"want `{name}` together with an `add` of a pod")
    if isinstance(added := event.get("add"), dict):
        _check_types(added)
        if added.get("kind") == "Node":
            node = node_of(workload.cluster.admitted(added))
            if not node.name:
                raise WorkloadError("want `metadata.name` in a node, got none")
            workload.changes.append(NodeChange(at, node.name, node))
        elif _is_pod(added):
            stays, runs = (_length(event, name) for name in _LENGTHS)
            meta = added.get("metadata")
            if isinstance(meta, dict) and not meta.get("name") and meta.get("generateName"):
                name = f"{meta['generateName']}{len(workload.arrivals)}"
                added = {**added, "metadata": {**meta, "name": name}}
            pod = workload.cluster.pod_of(_restarted(added))
            if not pod.name:
                raise WorkloadError("want `metadata.name` or `generateName` in a pod, got neither")
            until = None if stays is None else at + stays
            workload.arrivals.append(Arrival(at, pod, until, runs))
        elif planned_objects(added):
            kind = added["kind"]
            raise WorkloadError(
                f"want a pod, a node or what they need in an event, got a {kind}\n"
                "hint: in a separate file of manifests it stands for its pods"
            )
        elif at == 0:
            if added.get("kind") != _CLASS:  # known already
                workload.cluster.add(workload.cluster.admitted(added))
        else:
            raise WorkloadError(f"a {added.get('kind')} can only be added at 0")
    elif isinstance(gone := event.get("delete"), str):
        kind, slash, name = gone.partition("/")
        if kind not in ("node", "pod") or not slash:
            raise WorkloadError(f"want `node/NAME` or `pod/NAMESPACE/NAME`, got `{gone}`")
        if kind == "node":
            workload.changes.append(NodeChange(at, name, None))
        else:
            name = name if "/" in name else f"default/{name}"
            workload.departures.append((at, name))
        return at, kind, name
    else:
        raise WorkloadError("want `add` with a manifest or `delete` with a name")
    return None


def _length(event: dict[str, Any], name: str) -> float | None:
    """How long a pod is there, by the key *name*; None: for ever."""
    found = event.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or found < 0:
        raise WorkloadError(f"want `{name}` to be seconds, got `{found}`")
    return float(found)


def _check_types(added: dict[str, Any]) -> None:
    """Raise `WorkloadError` for fields that the API has not, unless a cluster has stored it."""
    wrong = [] if is_of_cluster(added) else given_problems(added)
    if wrong:
        raise WorkloadError("\n".join(map(str, wrong)))


def _restarted(pod: dict[str, Any]) -> dict[str, Any]:
    """*pod* without its final phase: pods that have ended would occupy no capacity."""
    fresh = dict(pod)
    for member, end in (("metadata", "deletionTimestamp"), ("status", "phase")):
        if isinstance(values := pod.get(member), dict):
            fresh[member] = {key: value for key, value in values.items() if key != end}
    return fresh


def _is_pod(added: Any) -> bool:
    return isinstance(added, dict) and added.get("kind", "Pod") == "Pod"


# By pod: the file and line of each of its rows, and its start and end.
_Rows = dict[str, list[tuple[Path, int, float, float]]]


def _read_table(path: Path, workload: Workload, rows: _Rows) -> None:
    try:
        text = decoded(str(path), unpacked(path))
    except TextError as error:
        raise WorkloadError(str(error)) from error
    table = _Table(text)
    try:
        columns = frozenset(table.columns)
        if not columns:
            raise WorkloadError(f"{path}: want a table, found no line")
        if twice := [name for name, count in Counter(table.columns).items() if count > 1]:
            raise ValueError(f"want each column once, got `{twice[0]}` twice")
        if columns >= _NODE_COLUMNS:
            workload.cluster.nodes += _nodes(table)
        elif columns >= _POD_COLUMNS:
            workload.arrivals += _arrivals(path, table, rows, workload.cluster)
        else:
            wanted = ", or of pods: ".join(
                ", ".join(f"`{name}`" for name in sorted(them))
                for them in (_NODE_COLUMNS, _POD_COLUMNS)
            )
            got = ", ".join(f"`{name}`" for name in table.columns)
            raise WorkloadError(
                f"{path}:{table.line}: want the columns of nodes: {wanted}; got {got}"
            )
    except csv.Error as error:
        # A row that is cut off.
        raise WorkloadError(f"{path}:{table.line + 1}: {error}") from error
    except (ValueError, TypeError) as error:
        if isinstance(error, WorkloadError):
            raise
        raise WorkloadError(f"{path}:{table.line}: {error}") from error
    if table.is_empty:
        raise WorkloadError(f"{path}:{table.line + 1}: want a row for each node or pod, found none")


class _Table:
    """A CSV table with named rows, each with a cell for every column."""

    def __init__(self, text: str) -> None:
        table = text.lstrip()
        self._reader = csv.DictReader(StringIO(table, newline=""), strict=True)
        self._before = text.count("\n", 0, len(text) - len(table))

    @property
    def line(self) -> int:
        """The number of the line that was read last."""
        return self._before + self._reader.line_num

    @property
    def columns(self) -> list[str]:
        """The cells of the first line."""
        return [*(self._reader.fieldnames or ())]

    @property
    def is_empty(self) -> bool:
        """True as long as nothing below the first line was found."""
        return self._reader.line_num < 2

    def rows(self, name: str) -> Iterator[dict[str, str]]:
        """The rows, *name* the column of their name. Raises `ValueError`."""
        for row in self._reader:
            # The reader keeps cells without a column under None.
            more: Sequence[str] = row.pop(None, ())
            missing = sum(cell is None for cell in row.values())
            if more or missing:
                got = len(self.columns) + len(more) - missing
                raise ValueError(f"want {len(self.columns)} cells, got {got}")
            if not row[name]:
                raise ValueError(f"{name}: want a name, got none")
            yield row


def _nodes(table: _Table) -> Iterator[dict[str, Any]]:
    lines: dict[str, int] = {}
    for row in table.rows("sn"):
        if (before := lines.setdefault(row["sn"], table.line)) != table.line:
            raise ValueError(f"sn: `{row['sn']}` is a node of line {before}")
        yield table_node(row)


def _arrivals(path: Path, table: _Table, rows: _Rows, cluster: Cluster) -> Iterator[Arrival]:
    for row in table.rows("name"):
        gone = row.get("deletion_time")
        at = _seconds(row, "creation_time")
        until = _seconds(row, "deletion_time") if gone else None
        if until is not None and until < at:
            wanted = f"want a time from `creation_time` {at:g} on, got `{gone}`"
            raise ValueError(f"deletion_time: {wanted}")
        # The trace has whole seconds, 0 for a pod that ran for less than one.
        until = at + 1 if until == at else until
        pod = cluster.pod_of(table_pod(row))
        end = inf if until is None else until
        stays = rows.setdefault(pod.key, [])
        for file, line, since, to in stays:
            if since < end and at < to:
                place = f"line {line}" if file == path else f"{file}:{line}"
                raise ValueError(f"name: the pod `{row['name']}` of {place} is still there")
        stays.append((path, table.line, at, end))
        yield Arrival(at, pod, until)


def _amount(row: Mapping[str, str], column: str) -> int:
    """The whole number in a cell, 0 if that is empty. Raises `ValueError`.

    `4.0` is accepted: spreadsheets and pandas write it in columns with empty cells.
    """
    text = (row.get(column) or "0").strip()
    whole, _, fraction = text.partition(".")
    if not whole.isdecimal() or fraction.strip("0"):
        raise ValueError(f"{column}: want a whole number, got `{text}`")
    return int(whole)


def _seconds(row: Mapping[str, str], column: str) -> float:
    """The time in a cell, 0 if that is empty. Raises `ValueError`."""
    text = row.get(column) or "0"
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"{column}: want seconds, got `{text}`")
    return value


def table_node(row: Mapping[str, str]) -> dict[str, Any]:
    """The node of one line of an openb table.

    Its GPUs have the resource names of Alibaba's device plugin, and a sum of thousandths.
    """
    gpus = _amount(row, "gpu")
    allocatable = {
        "cpu": f"{_amount(row, 'cpu_milli')}m",
        "memory": f"{_amount(row, 'memory_mib')}Mi",
        "pods": _PODS_PER_NODE,
    }
    if gpus:
        allocatable |= {f"{GPU_PREFIX}count": str(gpus), GPU_MILLI: str(_WHOLE * gpus)}
    labels = {_GPU_MODEL: row["model"]} if row["model"] else {}
    return {
        "kind": "Node",
        "metadata": {"name": row["sn"], "labels": labels},
        "status": {"allocatable": allocatable},
    }


def table_pod(row: Mapping[str, str]) -> dict[str, Any]:
    """The pod of one line of an openb table."""
    requests = {
        "cpu": f"{_amount(row, 'cpu_milli')}m",
        "memory": f"{_amount(row, 'memory_mib')}Mi",
    }
    count, milli = _amount(row, "num_gpu"), _amount(row, "gpu_milli")
    resources = {"requests": requests}
    annotations = {}
    if count:
        if not milli:
            wanted = "want the share of each GPU, in thousandths"
            raise ValueError(f"gpu_milli: {wanted}, got `{row['gpu_milli']}` for {count} GPUs")
        requests[GPU_MILLI] = str(count * milli)
        resources["limits"] = {GPU_MILLI: requests[GPU_MILLI]}
        annotations = {f"{GPU_PREFIX}count": str(count), GPU_MILLI: str(milli)}
        if models := row.get("gpu_spec"):
            annotations[_GPU_MODEL] = models
    labels = {"qos": row["qos"]} if row.get("qos") else {}
    return {
        "kind": "Pod",
        "metadata": {
            "name": row["name"],
            "namespace": row.get("namespace") or row.get("user") or "openb",
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }
