"""What happened in a run, out of etcd and the audit log, and what was wrong about it.

Owns reading both. etcd keeps every version of every object in the order in which they were
written; the audit log knows who asked for a binding, and when.
"""

import base64
import heapq
import http.client
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from devkit.benchmarks.objects import NAMESPACE, Manifest
from devkit.faults.invariants import (
    ALWAYS,
    AT_BINDING,
    AT_EVICTION,
    Binding,
    Eviction,
    Group,
    Objects,
    Tenure,
    Violation,
    bound_by_leader,
    bound_once,
    partial_groups,
    tenures_of,
)
from tests.controlplane import ControlPlane

LEASE: Final = "starsched"
#: Every process of a replica is a user of its own, named so.
USER_PREFIX: Final = "replica-"
#: What kube-apiserver writes to its audit log: who binds and deletes pods, and takes the lease.
AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Request",
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods/binding"]}],
        },
        {
            "level": "Request",
            "verbs": ["create", "update"],
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        {
            "level": "Metadata",
            "verbs": ["delete"],
            "resources": [{"group": "", "resources": ["pods"]}],
        },
        {"level": "None"},
    ],
}
_PREFIXES: Final = {
    "pods": "/registry/pods/",
    "nodes": "/registry/minions/",
    "leases": f"/registry/leases/{NAMESPACE}/",
    "claims": "/registry/resourceclaims/",
    "volume_claims": "/registry/persistentvolumeclaims/",
    "volumes": "/registry/persistentvolumes/",
}
_END: Final = "~end"
#: A server that was frozen takes this long for what had arrived meanwhile.
_BACKLOG_SECONDS: Final = 2.0


class Version(NamedTuple):
    """One write to etcd."""

    revision: int
    kind: str
    key: str
    value: Manifest | None


@dataclass(frozen=True, slots=True)
class Audit:
    """What the audit log has.

    Attributes:
        bindings: Accepted ones, in order.
        unclear: Those that the server failed at: etcd knows if they took effect.
        answers: Of all requests to bind, how many had each status.
        holders: The user of each identity that was in the lease.
        evictions: Names of pods that replicas deleted, and who did.
    """

    bindings: list[Binding] = field(default_factory=list)
    unclear: list[Binding] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    holders: dict[str, str] = field(default_factory=dict)
    evictions: dict[str, str] = field(default_factory=dict)


def read_audit(lines: Iterable[str]) -> Audit:
    """The part of an audit log that is about replicas."""
    found = Audit()
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the server was killed while it wrote this
        user, about = event["user"]["username"], event.get("objectRef") or {}
        code = (event.get("responseStatus") or {}).get("code", 0)
        if not user.startswith(USER_PREFIX):
            continue
        body = event.get("requestObject") or {}
        if about.get("subresource") == "binding":
            found.answers[str(code)] += 1
            if code == 201 or not 200 <= code < 500:
                (found.bindings if code == 201 else found.unclear).append(
                    Binding(
                        _seconds(event["requestReceivedTimestamp"]),
                        (body.get("metadata") or {}).get("uid") or about.get("uid", ""),
                        f"{about['namespace']}/{about['name']}",
                        body["target"]["name"],
                        user,
                    )
                )
        elif about.get("resource") == "leases":
            if holder := (body.get("spec") or {}).get("holderIdentity"):
                found.holders[holder] = user
        elif about.get("resource") == "pods" and event["verb"] == "delete" and code == 200:
            found.evictions[f"{about['namespace']}/{about['name']}"] = user
    return found


def read_etcd(plane: ControlPlane) -> Iterator[Version]:
    """Every version of the objects that rules are about, in the order of their revisions.

    The API server must not run any more: marks are written to where it reads.
    """
    for prefix in _PREFIXES.values():
        _call(plane, "/v3/kv/put", {"key": _encoded(prefix + _END), "value": _encoded("{}")})
    return heapq.merge(
        *(_versions(plane, kind, prefix) for kind, prefix in _PREFIXES.items()),
        key=lambda version: version.revision,
    )


def _versions(plane: ControlPlane, kind: str, prefix: str) -> Iterator[Version]:
    body = {
        "key": _encoded(prefix),
        "range_end": _encoded(prefix[:-1] + "0"),
        "start_revision": "1",
    }
    connection = http.client.HTTPConnection("127.0.0.1", plane.etcd_port, timeout=60)
    try:
        connection.request("POST", "/v3/watch", json.dumps({"create_request": body}))
        answer = connection.getresponse()
        while line := answer.readline():
            result = json.loads(line)["result"]
            if reason := result.get("cancel_reason"):
                raise RuntimeError(f"etcd ended the watch of {prefix}: {reason}")
            for event in result.get("events", ()):
                pair = event["kv"]
                key = base64.b64decode(pair["key"]).decode()
                if key.endswith(_END):
                    return
                is_gone = event.get("type") == "DELETE"
                value = None if is_gone else json.loads(base64.b64decode(pair["value"]))
                yield Version(int(pair["mod_revision"]), kind, key, value)
    finally:
        connection.close()


def _call(plane: ControlPlane, path: str, body: dict[str, Any]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", plane.etcd_port, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body))
        connection.getresponse().read()
    finally:
        connection.close()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@dataclass(slots=True)
class Verdict:
    """What the history of a run shows.

    Attributes:
        violations: By the rule.
        bound: Pods that were ever bound.
        unaudited: Of them, those whose binding the audit log has lost with its server.
        preempted: Pods that replicas evicted.
        leaders: Processes that held the lease, in order.
    """

    violations: list[Violation] = field(default_factory=list)
    bound: int = 0
    unaudited: int = 0
    preempted: int = 0
    leaders: list[str] = field(default_factory=list)


class Replay:
    """Goes through the versions of all objects and asks the rules about each step.

    Attributes:
        leases: The versions of the lease, with users as holders.
        bindings: What the audit log has of bindings that took effect.
        seen: All bindings that took effect, in order.

    Args:
        audit: Who did what.
        causes: By the key of a victim, the key of its preemptor and the node, from the replicas'
            logs.
    """

    def __init__(self, audit: Audit, causes: Mapping[str, tuple[str, str]]) -> None:
        self.verdict = Verdict()
        self.leases: list[tuple[float, Manifest]] = []
        self._audit = audit
        self._causes = causes
        self.bindings = list(audit.bindings)
        self._accepted = {binding.pod_uid: binding for binding in audit.bindings}
        self._unclear = {(one.pod_uid, one.node): one for one in audit.unclear}
        self.seen: list[Binding] = []
        self._objects: dict[str, dict[str, Manifest]] = defaultdict(dict)
        self._on_node: dict[str, dict[str, Manifest]] = defaultdict(dict)
        self._last: set[Violation] = set()

    def run(self, versions: Iterable[Version]) -> None:
        """Take over all versions."""
        for version in versions:
            before = self._objects[version.kind].get(version.key)
            if version.kind == "pods":
                self._check_pod(before, version.value)
            if version.kind == "leases" and version.value is not None:
                self._note_lease(version.key, version.value)
            if version.value is None:
                self._objects[version.kind].pop(version.key, None)
            else:
                self._objects[version.kind][version.key] = version.value
            if version.kind == "claims" or self._is_of_volumes(version):
                self._check_always()

    def _check_pod(self, before: Manifest | None, after: Manifest | None) -> None:
        was = before["spec"].get("nodeName", "") if before is not None else ""
        now = after["spec"].get("nodeName", "") if after is not None else ""
        if after is not None and before is not None and now and not was:
            self._check_binding(before, after)
        elif before is not None and after is not None and was and now != was:
            text = f"moved from `{was}` to `{now}`"
            self.verdict.violations.append(Violation("bound_once", _key(after), text))
        if after is not None and now and _is_denied(after) and not (was and _is_denied(before)):
            text = f"bound to `{now}`, and then said not to be"
            self.verdict.violations.append(Violation("untrue_conditions", _key(after), text))
        if before is not None and not _is_going(before) and _is_going(after):
            self._check_eviction(before)
        if was:
            assert before is not None
            self._on_node[was].pop(before["metadata"]["uid"], None)
        if now:
            assert after is not None
            self._on_node[now][after["metadata"]["uid"]] = after

    def _check_binding(self, before: Manifest, after: Manifest) -> None:
        self.verdict.bound += 1
        uid, node = after["metadata"]["uid"], after["spec"]["nodeName"]
        binding = self._accepted.get(uid)
        if binding is None and (binding := self._unclear.get((uid, node))) is not None:
            self.bindings.append(binding)
        if binding is None:
            self.verdict.unaudited += 1
            binding = Binding(0.0, uid, _key(after), node, "unknown")
        self.seen.append(binding)
        nodes = [one for one in self._objects["nodes"].values() if _key(one) == node]
        objects = Objects(nodes=nodes, pods=[before, *self._on_node[node].values()])
        for rule in AT_BINDING.values():
            self.verdict.violations += rule(binding, objects)

    def _check_eviction(self, victim: Manifest) -> None:
        key = _key(victim)
        if key not in self._audit.evictions:
            return
        self.verdict.preempted += 1
        if (cause := self._causes.get(key)) is None:
            return
        preemptor, node = cause
        pods = [one for one in self._objects["pods"].values() if _key(one) in (key, preemptor)]
        # Without the budgets: which of them had to be violated depends on what the replica knew.
        eviction = Eviction(0.0, preemptor, node, (key,))
        for rule in AT_EVICTION.values():
            self.verdict.violations += rule(eviction, Objects(pods=pods))

    def _note_lease(self, key: str, lease: Manifest) -> None:
        if not key.endswith(f"/{LEASE}"):
            return
        spec = lease["spec"]
        holder = spec.get("holderIdentity") or ""
        user = self._audit.holders.get(holder, holder)
        if user and (not self.verdict.leaders or self.verdict.leaders[-1] != user):
            self.verdict.leaders.append(user)
        self.leases.append(
            (_seconds(spec["renewTime"]), {"spec": {**spec, "holderIdentity": user}})
        )

    def _is_of_volumes(self, version: Version) -> bool:
        if version.kind in ("volumes", "volume_claims"):
            return True
        pod = version.value
        return version.kind == "pods" and pod is not None and bool(pod["spec"].get("volumes"))

    def _check_always(self) -> None:
        objects = Objects(
            pods=[one for one in self._objects["pods"].values() if one["spec"].get("volumes")],
            claims=list(self._objects["claims"].values()),
            volumes=list(self._objects["volumes"].values()),
            volume_claims=list(self._objects["volume_claims"].values()),
        )
        found = {violation for rule in ALWAYS.values() for violation in rule(objects)}
        # What lasts is reported once.
        self.verdict.violations += sorted(found - self._last)
        self._last = found


def judge(
    audit: Audit,
    versions: Iterable[Version],
    causes: Mapping[str, tuple[str, str]],
    groups: Sequence[Group],
    freezes: Sequence[tuple[float, float]],
) -> Verdict:
    """What was wrong in a run.

    Args:
        audit: Of the same run, as are the others.
        versions: See `read_etcd`.
        causes: See `Replay`.
        groups: Those that were created completely.
        freezes: When the API server was frozen, from and to: it received late what was sent then.
    """
    replay = Replay(audit, causes)
    replay.run(versions)
    tenures = tenures_of(replay.leases)
    bindings = [_as_sent(binding, freezes, tenures) for binding in replay.bindings]
    found = replay.verdict.violations
    found += bound_once(bindings)
    found += bound_by_leader(bindings, tenures)
    found += partial_groups(groups, replay.seen)
    return replay.verdict


def _as_sent(
    binding: Binding, freezes: Sequence[tuple[float, float]], tenures: Sequence[Tenure]
) -> Binding:
    """The binding, with a time at which it may have been sent.

    Between the beginning of a freeze and its end there are several; the lease decides which.
    """
    for since, until in freezes:
        if since <= binding.at <= until + _BACKLOG_SECONDS:
            ends = [tenure.until for tenure in tenures if tenure.holder == binding.by]
            sent_at = min(binding.at, max([since, *(end - 0.001 for end in ends)]))
            return Binding(sent_at, binding.pod_uid, binding.pod, binding.node, binding.by)
    return binding


def _is_denied(pod: Manifest | None) -> bool:
    """True if the condition of a bound pod says that it is not."""
    conditions = pod["status"].get("conditions") or () if pod is not None else ()
    return any(one["type"] == "PodScheduled" and one["status"] != "True" for one in conditions)


def _is_going(pod: Manifest | None) -> bool:
    return pod is None or "deletionTimestamp" in pod["metadata"]


def _key(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def audit_lines(path: Path) -> Iterator[str]:
    """The lines of an audit log."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        yield from lines
