"""The configuration documents: KubeSchedulerConfiguration, and PolicyRuntime for the rest.

Owns their fields, defaults and validation rules, which for KubeSchedulerConfiguration are
kube-scheduler's: a file that works there works here. Reading is strict, and all problems are
reported together. What a profile means (which policy runs where) is `profiles`; plugin arguments
`arguments`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from engine.core.framework.extender import Extender
from engine.core.model.resources import (
    WANT_NAMESPACE,
    WANT_SUBDOMAIN,
    is_namespace_name,
    is_qualified_name,
    is_subdomain,
)
from engine.language.hooks import PLUGIN_SETS
from engine.policy.documents import MOST_INT32, Field, Object, did_you_mean, read_documents
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.extenders import decode_extenders
from engine.policy.fact_config import FactsConfig, read_facts
from engine.policy.rollout_config import RolloutConfig, read_rollout
from engine.policy.sandbox.protocol import MIB, Limits

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
RUNTIME_API_VERSION: Final = "starsched.dev/v1"
RUNTIME_KIND: Final = "PolicyRuntime"

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

MULTI_POINT: Final = "multiPoint"
_WANT_INT32: Final = "want an int that fits in 32 bits"
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


@dataclass(frozen=True, slots=True)
class PluginRef:
    """One entry of a plugin set's `enabled`. Weight 0 means that none is given."""

    name: str
    weight: int
    place: Field


@dataclass(frozen=True, slots=True)
class PluginSet:
    """The plugins that a profile switches on and off at one extension point."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """One entry of `profiles`, decoded and not yet merged with the defaults."""

    scheduler_name: str
    place: Field | None = None
    percentage_of_nodes_to_score: int | None = None
    plugins: Mapping[str, PluginSet] = field(default_factory=dict)
    plugin_config: Mapping[str, Field] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """How replicas agree on which one schedules."""

    leader_elect: bool = True
    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """How requests are sent to the API server. `qps` and `burst` bound the requests per second."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50.0
    burst: int = 100


@dataclass(frozen=True, slots=True)
class KubeSchedulerConfiguration:
    """A decoded configuration. `file` and `text` are where it was read."""

    file: str = ""
    text: str = ""
    parallelism: int = 16
    leader_election: LeaderElection = field(default_factory=LeaderElection)
    client_connection: ClientConnection = field(default_factory=ClientConnection)
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    delay_cache_until_active: bool = False
    profiles: tuple[ProfileConfig, ...] = ()
    extenders: tuple[Extender, ...] = ()


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

    error_rate: float = 0.1
    latency: timedelta | None = None
    window: timedelta = timedelta(minutes=5)
    min_decisions: int = 20
    lost_time: timedelta = timedelta(seconds=5)
    pending: int = 5


@dataclass(frozen=True, slots=True)
class PolicyRuntime:
    """The settings that KubeSchedulerConfiguration has no fields for.

    `score_failure_policy` says what happens when a policy fails to score: `Fail` costs the pod
    its attempt, `Ignore` goes on without the policy. A failing filter always costs the attempt.
    """

    limits: Limits = field(default_factory=Limits)
    score_failure_policy: str = "Fail"
    fallback: Fallback = field(default_factory=Fallback)
    facts: FactsConfig = field(default_factory=FactsConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)


@dataclass(frozen=True, slots=True)
class Documents:
    """What the YAML files of a bundle say."""

    configuration: KubeSchedulerConfiguration | None
    runtime: PolicyRuntime
    problems: tuple[Problem, ...]


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
    configurations: list[tuple[Field, KubeSchedulerConfiguration]] = []
    runtimes: list[tuple[Field, PolicyRuntime]] = []
    for file in sorted(files):
        documents, found = read_documents(file, files[file])
        problems.extend(p for p in found if not documents)
        for document in documents:
            members = document.object()
            version, kind = members.text("apiVersion"), members.text("kind")
            if kind == KIND:
                _expect_version(members, version, API_VERSION)
                configurations.append((document, _configuration(members, file, files[file])))
            elif kind == RUNTIME_KIND:
                _expect_version(members, version, RUNTIME_API_VERSION)
                runtimes.append((document, _runtime(members)))
            else:
                other = _NO_CONFIG_MAP if kind == "ConfigMap" else _NO_POLICY
                hint = did_you_mean(kind, [KIND, RUNTIME_KIND]) or (other if kind else "")
                path = "kind" if kind else ""
                given = f'"{kind}"' if kind else "none"
                where = members["kind"].node if kind else document.node
                document.report.add(
                    where, path, f"want kind `{KIND}` or `{RUNTIME_KIND}`, got {given}", hint
                )
        if documents:
            problems.extend(documents[0].report.problems)
    for several in (configurations, runtimes):
        for document, _ in several[1:]:
            first = several[0][0]
            place = f"{first.report.file}:{first.node.start_mark.line + 1}"
            line = document.node.start_mark.line + 1
            message = f"a second document of this kind; the first is {place}"
            problems.append(Problem(document.report.file, line, 1, message))
    return Documents(
        configurations[0][1] if configurations else None,
        runtimes[0][1] if runtimes else PolicyRuntime(),
        tuple(problems),
    )


def _expect_version(members: Object, version: str, want: str) -> None:
    if version != want:
        found = members.get("apiVersion") or members.owner
        message = f'want apiVersion `{want}`, got "{version}"'
        found.wrong(message)


# --- KubeSchedulerConfiguration --------------------------------------------------------------


def _configuration(members: Object, file: str, text: str) -> KubeSchedulerConfiguration:
    parallelism = members.integer("parallelism", 16)
    if parallelism <= 0:
        members["parallelism"].wrong("should be an integer value greater than zero")
    elif parallelism > MOST_INT32:
        members["parallelism"].refuse(_WANT_INT32)
    percentage = members.integer("percentageOfNodesToScore", 0)
    if not 0 <= percentage <= 100:
        members["percentageOfNodesToScore"].wrong("not in valid range [0-100]")
    initial = members.integer("podInitialBackoffSeconds", 1)
    if initial <= 0:
        members["podInitialBackoffSeconds"].wrong("must be greater than 0")
    longest = members.integer("podMaxBackoffSeconds", 10)
    if longest < initial:
        if found := members.get("podMaxBackoffSeconds"):
            found.wrong("must be greater than or equal to PodInitialBackoffSeconds")
        else:
            members["podInitialBackoffSeconds"].refuse(
                f"want at most podMaxBackoffSeconds, which is {longest} unless it is given"
            )
    configuration = KubeSchedulerConfiguration(
        file=file,
        text=text,
        parallelism=parallelism,
        leader_election=_leader_election(members.object("leaderElection")),
        client_connection=_client_connection(members.object("clientConnection")),
        enable_profiling=members.boolean("enableProfiling", True),
        enable_contention_profiling=members.boolean("enableContentionProfiling", True),
        percentage_of_nodes_to_score=percentage,
        pod_initial_backoff_seconds=initial,
        pod_max_backoff_seconds=longest,
        delay_cache_until_active=members.boolean("delayCacheUntilActive", False),
        profiles=_profiles(members.items("profiles")),
        extenders=decode_extenders(members),
    )
    members.finish()
    return configuration


_NONE: Final = timedelta(0)
# A wait for the next try is up to this many times the period.
_RETRY_JITTER: Final = 1.2


def _leader_election(members: Object) -> LeaderElection:
    # What is zero or empty counts as not given, as it does for kube-scheduler.
    default = LeaderElection()
    found = LeaderElection(
        leader_elect=members.boolean("leaderElect", default.leader_elect),
        lease_duration=members.duration("leaseDuration", _NONE) or default.lease_duration,
        renew_deadline=members.duration("renewDeadline", _NONE) or default.renew_deadline,
        retry_period=members.duration("retryPeriod", _NONE) or default.retry_period,
        resource_lock=members.text("resourceLock") or default.resource_lock,
        resource_name=members.text("resourceName") or default.resource_name,
        resource_namespace=members.text("resourceNamespace") or default.resource_namespace,
    )
    owner = members.owner
    if found.leader_elect:
        if not is_subdomain(found.resource_name):
            (members.get("resourceName") or owner).refuse(WANT_SUBDOMAIN)
        if not is_namespace_name(found.resource_namespace):
            (members.get("resourceNamespace") or owner).refuse(WANT_NAMESPACE)
        for name, value in (
            ("leaseDuration", found.lease_duration),
            ("renewDeadline", found.renew_deadline),
            ("retryPeriod", found.retry_period),
        ):
            if value <= timedelta(0):
                (members.get(name) or owner).wrong("must be greater than zero")
        if found.lease_duration <= found.renew_deadline:
            (members.get("leaseDuration") or owner).wrong(
                "LeaseDuration must be greater than RenewDeadline"
            )
        if found.renew_deadline <= found.retry_period:
            (members.get("renewDeadline") or owner).wrong(
                "RenewDeadline must be greater than RetryPeriod"
            )
        elif found.renew_deadline <= _RETRY_JITTER * found.retry_period:
            (members.get("retryPeriod") or members.get("renewDeadline") or owner).wrong(
                f"RenewDeadline ({found.renew_deadline.total_seconds():g}s) must be greater than "
                f"{_RETRY_JITTER} times RetryPeriod, got {found.retry_period.total_seconds():g}s"
            )
        if found.resource_lock != "leases":
            members["resourceLock"].wrong('resourceLock value must be "leases"')
    members.finish()
    return found


def _client_connection(members: Object) -> ClientConnection:
    default = ClientConnection()
    found = ClientConnection(
        kubeconfig=members.text("kubeconfig"),
        accept_content_types=members.text("acceptContentTypes"),
        content_type=members.text("contentType", default.content_type),
        qps=members.number("qps", default.qps),
        burst=members.integer("burst", default.burst),
    )
    if found.burst < 0:
        members["burst"].wrong("must be non-negative")
    elif found.burst > MOST_INT32:
        members["burst"].refuse(_WANT_INT32)
    if abs(found.qps) > _MOST_FLOAT32:
        members["qps"].refuse(f"want a number of at most {_MOST_FLOAT32:.6g}")
    members.finish()
    return found


# kube-scheduler takes any name, and the API server none of the events about that profile's pods.
_WANT_SCHEDULER_NAME: Final = (
    "want `[prefix/]name`, as the API server does of the reportingController of an event: a name "
    "of at most 63 letters, digits, `-`, `_` and `.`, the first and the last of them a letter or "
    "digit"
)


def _profiles(entries: list[Field]) -> tuple[ProfileConfig, ...]:
    profiles: list[ProfileConfig] = []
    seen: dict[str, str] = {}
    for entry in entries:
        members = entry.object()
        if entry.is_null:
            entry.wrong("want an object, got null")
        name_field = members.get("schedulerName")
        name = name_field.text() if name_field is not None else ""
        if not name and len(entries) == 1 and name_field is None:
            name = DEFAULT_SCHEDULER_NAME
        elif not name:
            entry.wrong("schedulerName: required value")
        elif name_field is not None and not is_qualified_name(name):
            name_field.refuse(_WANT_SCHEDULER_NAME)
        if name and name in seen and name_field is not None:
            name_field.wrong(f'duplicate value "{name}", given before at {seen[name]}')
        seen.setdefault(name, f"{entry.path}.schedulerName")
        percentage = None
        if found := members.get("percentageOfNodesToScore"):
            percentage = found.integer()
            if percentage is not None and not 0 <= percentage <= 100:
                found.wrong("not in valid range [0-100]")
        profiles.append(
            ProfileConfig(
                scheduler_name=name,
                place=entry,
                percentage_of_nodes_to_score=percentage,
                plugins=_plugins(members.object("plugins")),
                plugin_config=_plugin_config(members.items("pluginConfig")),
            )
        )
        members.finish()
    return tuple(profiles)


def _plugins(members: Object) -> dict[str, PluginSet]:
    sets = {}
    for point in (*PLUGIN_SETS, MULTI_POINT, *PLACEMENT_SETS):
        if found := members.get(point):
            inner = found.object()
            sets[point] = PluginSet(
                enabled=tuple(_plugin_refs(inner.items("enabled"), REMOVED_PLUGINS)),
                # Disabling a plugin that no longer exists is not a mistake.
                disabled=tuple(_plugin_refs(inner.items("disabled"), frozenset())),
            )
            inner.finish()
    members.finish()
    return sets


def _plugin_refs(entries: list[Field], refused: frozenset[str]) -> Iterable[PluginRef]:
    for entry in entries:
        members = entry.object()
        name_field = members.get("name")
        name = "" if name_field is None else name_field.text()
        weight = 0
        if found := members.get("weight"):
            # Zero counts as not given, as it does for kube-scheduler.
            weight = 0 if _is_zero(found) else found.integer(1) or 0
            if weight > MOST_INT32:
                found.refuse(_WANT_INT32)
        members.finish()
        if name_field is None or not name:
            (name_field or entry).wrong("name: want the name of a plugin")
            continue
        if name in refused:
            (name_field or entry).wrong(
                f'"{name}" was invalid in version "{API_VERSION}" '
                f'({KIND} is version "{API_VERSION}")'
            )
            continue
        yield PluginRef(name, weight, name_field or entry)


def _is_zero(found: Field) -> bool:
    return found.shown() == "0"


def _plugin_config(entries: list[Field]) -> dict[str, Field]:
    configs: dict[str, Field] = {}
    seen: set[str] = set()
    for entry in entries:
        members = entry.object()
        name_field = members.get("name")
        name = "" if name_field is None else name_field.text()
        args = members.get("args")
        members.finish()
        if not name:
            (name_field or entry).wrong("name: want the name of a plugin")
        elif name in seen and name_field is not None:
            name_field.wrong(f"repeated config for plugin {name}")
        elif name in REMOVED_PLUGINS and name_field is not None:
            name_field.wrong(
                f'"{name}" was invalid in version "{API_VERSION}" '
                f'({KIND} is version "{API_VERSION}")'
            )
        elif args is not None:
            # Kept as a field: what its arguments may be depends on the plugin.
            configs[name] = args
        seen.add(name)
    return configs


# --- PolicyRuntime ---------------------------------------------------------------------------


def _runtime(members: Object) -> PolicyRuntime:
    default = Limits()
    limits = members.object("limits")
    steps = limits.integer("steps", default.steps, 1_000, 10_000_000_000)
    call_depth = limits.integer("callDepth", default.call_depth, 8, 256)
    deadline = limits.duration("deadline", timedelta(seconds=default.deadline))
    if not timedelta(milliseconds=10) <= deadline <= timedelta(seconds=60):
        (limits.get("deadline") or limits.owner).refuse("want a duration in 10ms..60s")
        deadline = timedelta(seconds=default.deadline)
    memory = default.address_space
    if found := limits.get("memory"):
        memory = _memory(found) or memory
    processes = 0
    if limits.get("processes") is not None:
        processes = limits.integer("processes", 1, 1, 64)
    limits.finish()

    failure = members.object("failurePolicy")
    score = failure.choice("score", ("Fail", "Ignore"), "Fail")
    failure.finish()

    fallback_members = members.object("fallback")
    plain = Fallback()
    error_rate = fallback_members.number("errorRate", plain.error_rate)
    if not 0 < error_rate <= 1:
        fallback_members["errorRate"].refuse("want a number above 0 and at most 1")
        error_rate = plain.error_rate
    latency = None
    if found := fallback_members.get("latency"):
        latency = found.duration()
        if latency is not None and latency <= timedelta(0):
            found.refuse("want a duration above 0")
    window = fallback_members.duration("window", plain.window)
    if window <= timedelta(0):
        fallback_members["window"].refuse("want a duration above 0")
    lost_time = fallback_members.duration("lostTime", plain.lost_time)
    if lost_time <= timedelta(0):
        fallback_members["lostTime"].refuse("want a duration above 0")
    fallback = Fallback(
        error_rate=error_rate,
        latency=latency,
        window=window,
        min_decisions=fallback_members.integer("minDecisions", plain.min_decisions, 1),
        pending=fallback_members.integer("pending", plain.pending, 0),
        lost_time=lost_time,
    )
    fallback_members.finish()
    facts = read_facts(members.object("facts"))
    rollout = read_rollout(members.object("rollout"), fallback.error_rate)
    metadata = members.object("metadata")
    metadata.text("name")
    metadata.finish()
    members.finish()
    return PolicyRuntime(
        limits=Limits(
            steps=steps,
            call_depth=call_depth,
            deadline=deadline.total_seconds(),
            address_space=memory,
            processes=processes,
        ),
        score_failure_policy=score,
        fallback=fallback,
        facts=facts,
        rollout=rollout,
    )


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
