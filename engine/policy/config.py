"""The configuration documents: KubeSchedulerConfiguration, and PolicyRuntime for the rest.

Owns their fields, defaults and validation rules, which for KubeSchedulerConfiguration are
kube-scheduler's: a file that works there works here. Reading is strict, and all problems are
reported together. What a profile means (which policy runs where) is `profiles`; plugin arguments
`arguments`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from engine.core.framework.extender import Extender
from engine.core.model.quantity import INT32_MAX
from engine.core.model.resources import (
    WANT_NAMESPACE,
    WANT_SUBDOMAIN,
    is_namespace_name,
    is_qualified_name,
    is_subdomain,
)
from engine.language.hooks import PLUGIN_SETS
from engine.policy.documents import (
    Entry,
    Field,
    Object,
    Reader,
    Table,
    camel_case,
    checked,
    choice,
    did_you_mean,
    entry,
    integer,
    listed,
    read_documents,
    record,
    table_of,
    unless_empty,
)
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.extenders import read_extenders
from engine.policy.fact_config import FactsConfig, check_facts
from engine.policy.queue_tree_config import QueueTreeConfig, check_queue_tree
from engine.policy.rollout_config import RolloutConfig, check_error_rate, check_rollout
from engine.policy.sandbox.protocol import MIB, Limits

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
RUNTIME_API_VERSION: Final = "starsched.dev/v1"
RUNTIME_KIND: Final = "PolicyRuntime"
QUEUE_TREE_KIND: Final = "QueueTree"
#: The kinds of documents that may be among the policies.
KINDS: Final = (KIND, RUNTIME_KIND, QUEUE_TREE_KIND)

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

MULTI_POINT: Final = "multiPoint"
_WANT_INT32: Final = "want an int that fits in 32 bits"
# Kubernetes holds `qps` in a float of 32 bits.
_MOST_FLOAT32: Final = 3.4028234663852886e38
_NO_POLICY: Final = (
    "other files lie elsewhere; what tests read may have a name that ends in `_test.yaml`"
)
_NO_CONFIG_MAP: Final = (
    "its keys are policy files: check those, as files of a directory; "
    "`kubectl create configmap NAME --from-file=DIRECTORY` makes a ConfigMap of them"
)
#: Fields of `plugins` for groups of pods: accepted, and without hooks here.
PLACEMENT_SETS: Final = ("placementGenerate", "placementScore")

REMOVED_PLUGINS: Final = frozenset(
    {"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"}
    | {"NodeLabel", "NodePreferAvoidPods", "NodeResourcesLeastAllocated", "SelectorSpread"}
    | {"NodeResourcesMostAllocated", "RequestedToCapacityRatio", "ServiceAffinity"}
)


# kube-scheduler takes any name, and the API server none of the events about that profile's pods.
_WANT_SCHEDULER_NAME: Final = (
    "want `[prefix/]name`, as the API server does of the reportingController of an event: a name "
    "of at most 63 letters, digits, `-`, `_` and `.`, the first and the last of them a letter or "
    "digit"
)
# A wait for the next try is up to this many times the period.
_RETRY_JITTER: Final = 1.2


def _int32(least: int, wrong: str) -> Reader:
    """Reads an int from *least* on, else *wrong*, as far as 32 bits go."""
    at_least = checked(integer(), lambda number: number >= least, wrong=wrong)
    return checked(at_least, lambda number: number <= INT32_MAX, want=_WANT_INT32)


def _removed(name: str) -> str:
    of = f'version "{API_VERSION}"'
    return f'"{name}" was invalid in {of} ({KIND} is {of})'


# --- KubeSchedulerConfiguration --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PluginRef:
    """One entry of a plugin set's `enabled`. Weight 0 means that none is given."""

    name: str
    weight: int
    place: Field


def _plugin_ref(refused: frozenset[str]) -> Callable[[Field], PluginRef | None]:
    """Reads the name and the weight of a plugin; None after a report about the name."""

    def read(found: Field) -> PluginRef | None:
        members = found.object()
        values = members.values(_PLUGIN_REF)
        name, place = values.get("name", ""), members.place("name")
        if not name:
            place.wrong("name: want the name of a plugin")
        elif name in refused:
            place.wrong(_removed(name))
        else:
            return PluginRef(name, values.get("weight", 0), place)
        return None

    return read


_WEIGHT: Final = checked(integer(1), lambda weight: weight <= INT32_MAX, want=_WANT_INT32)
_PLUGIN_REF: Final[Table] = {
    "name": Entry(Field.text),
    # Zero counts as not given, as it does for kube-scheduler.
    "weight": Entry(lambda found: 0 if found.shown() == "0" else _WEIGHT(found)),
}


@dataclass(frozen=True, slots=True)
class PluginSet:
    """The plugins that a profile switches on and off at one extension point."""

    enabled: tuple[PluginRef, ...] = entry(listed(_plugin_ref(REMOVED_PLUGINS)), ())
    # Disabling a plugin that no longer exists is not a mistake.
    disabled: tuple[PluginRef, ...] = entry(listed(_plugin_ref(frozenset())), ())


def _plugin_config(found: Field) -> dict[str, Field]:
    configs: dict[str, Field] = {}
    seen: set[str] = set()
    for item in found.items():
        members = item.object()
        # Kept as a field: what its arguments may be depends on the plugin.
        values = members.values(_PLUGIN_CONFIG)
        name, place = values.get("name", ""), members.place("name")
        if not name:
            place.wrong("name: want the name of a plugin")
        elif name in seen:
            place.wrong(f"repeated config for plugin {name}")
        elif name in REMOVED_PLUGINS:
            place.wrong(_removed(name))
        elif "args" in values:
            configs[name] = values["args"]
        seen.add(name)
    return configs


_PLUGIN_CONFIG: Final[Table] = {"name": Entry(Field.text), "args": Entry(lambda found: found)}
_PERCENTAGE: Final = checked(
    integer(), lambda share: 0 <= share <= 100, wrong="not in valid range [0-100]"
)
_PLUGIN_SETS: Final[Table] = {
    point: Entry(record(PluginSet)) for point in (*PLUGIN_SETS, MULTI_POINT, *PLACEMENT_SETS)
}


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """One entry of `profiles`, decoded and not yet merged with the defaults."""

    scheduler_name: str = entry(Field.text, "")
    place: Field | None = None
    percentage_of_nodes_to_score: int | None = entry(_PERCENTAGE, None)
    plugins: Mapping[str, PluginSet] = entry(record(dict, _PLUGIN_SETS), factory=dict)
    plugin_config: Mapping[str, Field] = entry(_plugin_config, factory=dict)


def _profiles(found: Field) -> tuple[ProfileConfig, ...]:
    profiles: list[ProfileConfig] = []
    seen: dict[str, str] = {}
    items = found.items()
    for item in items:
        if item.is_null:
            item.wrong("want an object, got null")
        members = item.object()
        profile = ProfileConfig(place=item, **members.values(table_of(ProfileConfig)))
        name, given = profile.scheduler_name, members.get("schedulerName")
        if not name and len(items) == 1 and given is None:
            profile = replace(profile, scheduler_name=DEFAULT_SCHEDULER_NAME)
        elif not name:
            item.wrong("schedulerName: required value")
        elif given is not None and not is_qualified_name(name):
            given.refuse(_WANT_SCHEDULER_NAME)
        if name and name in seen and given is not None:
            given.wrong(f'duplicate value "{name}", given before at {seen[name]}')
        seen.setdefault(name, f"{item.path}.schedulerName")
        profiles.append(profile)
    return tuple(profiles)


_PERIOD: Final = unless_empty(Field.duration)
_TEXT: Final = unless_empty(Field.text)


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """How replicas agree on which one schedules."""

    leader_elect: bool = entry(Field.boolean, True)
    lease_duration: timedelta = entry(_PERIOD, timedelta(seconds=15))
    renew_deadline: timedelta = entry(_PERIOD, timedelta(seconds=10))
    retry_period: timedelta = entry(_PERIOD, timedelta(seconds=2))
    resource_lock: str = entry(_TEXT, "leases")
    resource_name: str = entry(_TEXT, "kube-scheduler")
    resource_namespace: str = entry(_TEXT, "kube-system")


def _check_leader_election(made: LeaderElection, members: Object) -> None:
    if not made.leader_elect:
        return
    if not is_subdomain(made.resource_name):
        members.place("resourceName").refuse(WANT_SUBDOMAIN)
    if not is_namespace_name(made.resource_namespace):
        members.place("resourceNamespace").refuse(WANT_NAMESPACE)
    for name in ("lease_duration", "renew_deadline", "retry_period"):
        if getattr(made, name) <= timedelta(0):
            members.place(camel_case(name)).wrong("must be greater than zero")
    if made.lease_duration <= made.renew_deadline:
        message = "LeaseDuration must be greater than RenewDeadline"
        members.place("leaseDuration").wrong(message)
    if made.renew_deadline <= made.retry_period:
        members.place("renewDeadline").wrong("RenewDeadline must be greater than RetryPeriod")
    elif made.renew_deadline <= _RETRY_JITTER * made.retry_period:
        (members.get("retryPeriod") or members.place("renewDeadline")).wrong(
            f"RenewDeadline ({made.renew_deadline.total_seconds():g}s) must be greater than "
            f"{_RETRY_JITTER} times RetryPeriod, got {made.retry_period.total_seconds():g}s"
        )
    if made.resource_lock != "leases":
        members["resourceLock"].wrong('resourceLock value must be "leases"')


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """How requests are sent to the API server. `qps` and `burst` bound the requests per second."""

    kubeconfig: str = entry(Field.text, "")
    accept_content_types: str = entry(Field.text, "")
    content_type: str = entry(Field.text, "application/vnd.kubernetes.protobuf")
    qps: float = entry(
        checked(
            Field.number,
            lambda rate: abs(rate) <= _MOST_FLOAT32,
            want=f"want a number of at most {_MOST_FLOAT32:.6g}",
        ),
        50.0,
    )
    burst: int = entry(_int32(0, "must be non-negative"), 100)


@dataclass(frozen=True, slots=True)
class KubeSchedulerConfiguration:
    """A decoded configuration. `file` and `text` are where it was read."""

    file: str = ""
    text: str = ""
    parallelism: int = entry(_int32(1, "should be an integer value greater than zero"), 16)
    leader_election: LeaderElection = entry(
        record(LeaderElection, check=_check_leader_election), factory=LeaderElection
    )
    client_connection: ClientConnection = entry(record(ClientConnection), factory=ClientConnection)
    enable_profiling: bool = entry(Field.boolean, True)
    enable_contention_profiling: bool = entry(Field.boolean, True)
    percentage_of_nodes_to_score: int = entry(_PERCENTAGE, 0)
    pod_initial_backoff_seconds: int = entry(integer(), 1)
    pod_max_backoff_seconds: int = entry(integer(), 10)
    delay_cache_until_active: bool = entry(Field.boolean, False)
    profiles: tuple[ProfileConfig, ...] = entry(_profiles, ())
    extenders: tuple[Extender, ...] = entry(read_extenders, ())


def _check_configuration(made: KubeSchedulerConfiguration, members: Object) -> None:
    initial, longest = made.pod_initial_backoff_seconds, made.pod_max_backoff_seconds
    if initial <= 0:
        members["podInitialBackoffSeconds"].wrong("must be greater than 0")
    if longest >= initial:
        return
    if given := members.get("podMaxBackoffSeconds"):
        given.wrong("must be greater than or equal to PodInitialBackoffSeconds")
    else:
        want = f"want at most podMaxBackoffSeconds, which is {longest} unless it is given"
        members["podInitialBackoffSeconds"].refuse(want)


# --- PolicyRuntime ---------------------------------------------------------------------------

_DEADLINES: Final = (timedelta(milliseconds=10), timedelta(seconds=60))
_SUFFIXES: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "k": 10**3, "M": 10**6, "G": 10**9}


def _memory(found: Field) -> int | None:
    text = found.shown().strip('"')
    suffix = next((s for s in _SUFFIXES if text.endswith(s)), "")
    digits = text.removesuffix(suffix)
    low, high = 128 * MIB, 64 << 30
    if digits.isascii() and digits.isdigit() and len(digits) < 15:
        amount = int(digits) * _SUFFIXES.get(suffix, 1)
        if low <= amount <= high:
            return amount
    found.wrong(f"want an amount of memory in 128Mi..64Gi, got {found.shown()}")
    return None


def _deadline(found: Field) -> float | None:
    value = found.duration()
    if value is None or _DEADLINES[0] <= value <= _DEADLINES[1]:
        return None if value is None else value.total_seconds()
    found.refuse("want a duration in 10ms..60s")
    return None


_LASTING: Final = checked(
    Field.duration, lambda time: time > timedelta(0), want="want a duration above 0"
)
# The record is the sandbox's, whose processes load no YAML.
_LIMITS: Final[Table] = {
    "steps": Entry(integer(1_000, 10_000_000_000)),
    "call_depth": Entry(integer(8, 256)),
    "deadline": Entry(_deadline),
    "address_space": Entry(_memory, "memory"),
}


@dataclass(frozen=True, slots=True)
class Fallback:
    """When the runtime falls back from a new revision to the last one.

    Attributes:
        error_rate: Share of decisions in the window that failed, above which it is given up.
        latency: 99th percentile of a decision, above which it is given up; None: not watched.
        window: How long a new revision is watched.
        min_decisions: Fewer decisions than this say nothing of the share and of the percentile.
        lost_time: What decisions may lose in sum to hooks that ran into a limit.
        pending: So many pods that wait and that the revision before would place are too many; 0:
            not watched.
    """

    error_rate: float = entry(
        checked(Field.number, lambda s: 0 < s <= 1, want="want a number above 0 and at most 1"), 0.1
    )
    latency: timedelta | None = entry(_LASTING, None)
    window: timedelta = entry(_LASTING, timedelta(minutes=5))
    min_decisions: int = entry(integer(1), 20)
    lost_time: timedelta = entry(_LASTING, timedelta(seconds=5))
    pending: int = entry(integer(0), 5)


@dataclass(frozen=True, slots=True)
class PolicyRuntime:
    """The settings that KubeSchedulerConfiguration has no fields for.

    `score_failure_policy` says what happens when a policy fails to score: `Fail` costs the pod
    its attempt, `Ignore` goes on without the policy. A failing filter always costs the attempt.
    """

    limits: Limits = entry(record(Limits, _LIMITS), factory=Limits)
    score_failure_policy: str = entry(
        lambda found: found.object().values(_FAILURE_POLICY).get("score"),
        "Fail",
        name="failurePolicy",
    )
    fallback: Fallback = entry(record(Fallback), factory=Fallback)
    facts: FactsConfig = entry(record(FactsConfig, check=check_facts), factory=FactsConfig)
    rollout: RolloutConfig = entry(
        record(RolloutConfig, check=check_rollout), factory=RolloutConfig
    )


_FAILURE_POLICY: Final[Table] = {"score": Entry(choice("Fail", "Ignore"))}
_METADATA: Final[Table] = {"name": Entry(Field.text)}


@dataclass(frozen=True, slots=True)
class Documents:
    """What the YAML files of a bundle say."""

    configuration: KubeSchedulerConfiguration | None
    runtime: PolicyRuntime
    problems: tuple[Problem, ...]
    queue_tree: QueueTreeConfig | None = None


def decode_configuration(text: str, file: str = "") -> KubeSchedulerConfiguration:
    """The KubeSchedulerConfiguration in *text*. Raises `PolicyErrors` with all that is wrong."""
    documents = decode_documents({file: text})
    problems = [p for p in documents.problems if p.severity == "error"]
    if documents.configuration is None and not problems:
        problems = [Problem(file, 0, 0, f"want a `{KIND}`, found none")]
    if problems or documents.configuration is None:
        raise PolicyErrors(problems)
    return documents.configuration


def decode_documents(files: Mapping[str, str]) -> Documents:
    """Read every YAML file of *files*; at most one document of each kind may be there."""
    problems: list[Problem] = []
    found: dict[str, list[tuple[Field, Any]]] = {kind: [] for kind in KINDS}
    for file in sorted(files):
        documents, unreadable = read_documents(file, files[file])
        problems.extend(p for p in unreadable if not documents)
        for document in documents:
            members = document.object()
            version, kind = members.text("apiVersion"), members.text("kind")
            if kind in _DECODERS:
                want = API_VERSION if kind == KIND else RUNTIME_API_VERSION
                _expect_version(members, version, want)
                found[kind].append((document, _DECODERS[kind](document, members, files[file])))
                continue
            other = _NO_CONFIG_MAP if kind == "ConfigMap" else _NO_POLICY
            hint = did_you_mean(kind, KINDS) or (other if kind else "")
            given = f'"{kind}"' if kind else "none"
            where, path = (members["kind"], "kind") if kind else (document, "")
            wanted = f"{', '.join(f'`{one}`' for one in KINDS[:-1])} or `{KINDS[-1]}`"
            document.report.add(where.node, path, f"want kind {wanted}, got {given}", hint)
        if documents:
            problems.extend(documents[0].report.problems)
    for several in found.values():
        for document, _ in several[1:]:
            first = several[0][0]
            place = f"{first.report.file}:{first.node.start_mark.line + 1}"
            line = document.node.start_mark.line + 1
            message = f"a second document of this kind; the first is {place}"
            problems.append(Problem(document.report.file, line, 1, message))
    first_of = {kind: several[0][1] for kind, several in found.items() if several}
    return Documents(
        first_of.get(KIND),
        first_of.get(RUNTIME_KIND, PolicyRuntime()),
        tuple(problems),
        first_of.get(QUEUE_TREE_KIND),
    )


def _configuration(document: Field, members: Object, text: str) -> KubeSchedulerConfiguration:
    values = members.values(table_of(KubeSchedulerConfiguration))
    made = KubeSchedulerConfiguration(document.report.file, text, **values)
    _check_configuration(made, members)
    return made


def _runtime(document: Field, members: Object, text: str) -> PolicyRuntime:
    members.read("metadata", record(dict, _METADATA))
    runtime = PolicyRuntime(**members.values(table_of(PolicyRuntime)))
    gate = document.at("rollout", "gates", "errorRate")
    check_error_rate(runtime.rollout, gate, runtime.fallback.error_rate)
    return runtime


def _queue_tree(document: Field, members: Object, text: str) -> QueueTreeConfig:
    members.read("metadata", record(dict, _METADATA))
    made = QueueTreeConfig(document, **members.values(table_of(QueueTreeConfig)))
    check_queue_tree(made, members)
    return made


_DECODERS: Final[Mapping[str, Callable[[Field, Object, str], Any]]] = {
    KIND: _configuration,
    RUNTIME_KIND: _runtime,
    QUEUE_TREE_KIND: _queue_tree,
}


def _expect_version(members: Object, version: str, want: str) -> None:
    if version != want:
        members.place("apiVersion").wrong(f'want apiVersion `{want}`, got "{version}"')
