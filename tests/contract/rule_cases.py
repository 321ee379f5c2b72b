"""What the API server refuses, as a table: an object, a change of it, and the answer.

Owns the table and how a case is asked; `test_rules` asks both servers.
"""

from dataclasses import dataclass
from typing import Any

from engine.core.manifests import kinds
from engine.core.manifests.kinds import Kind
from tests.contract.harness import MERGE, Api, pod

Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One object that is created, and one change of it if the creation is not what is asked about.

    Attributes:
        change: A merge patch of the created object, through the subresource *sub* if that is set;
            or several, the last of which is asked about.
        want: The status, and of a refusal every field at fault with the reason of its cause.
    """

    id: str
    kind: Kind
    manifest: Json
    want: str
    change: Json | tuple[Json, ...] | None = None
    sub: str = ""


async def verdict(api: Api, case: Case) -> str:
    """The server's answer in the form of `Case.want`."""
    manifest = {"kind": case.kind.kind, "apiVersion": case.kind.api_version, **case.manifest}
    name = manifest["metadata"]["name"]
    if not case.kind.namespaced:
        name = api.unique(name)
        manifest["metadata"] = {**manifest["metadata"], "name": name}
    path = case.kind.path(api.namespace if case.kind.namespaced else "")
    if case.change is None:
        return shown(await api.post(path, manifest, dryRun="All"))
    changes = case.change if isinstance(case.change, tuple) else (case.change,)
    await api.make(path, manifest)
    answer, before = None, None
    for change in changes:
        # A change before the last one is not asked about, but it has to be accepted.
        assert answer is None or answer.status == 200, answer
        before = (await api.get(f"{path}/{name}")).body
        target = f"{path}/{name}"
        if case.sub and not change.keys() <= {"metadata"}:
            target += f"/{case.sub}"
        answer = await api.patch(target, change, MERGE)
    assert answer is not None
    await api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}}, MERGE)
    if case.kind.namespaced:
        await api.delete(f"{path}/{name}", gracePeriodSeconds=0)
    # A change that is accepted and lost is as bad as one that is wrongly refused.
    is_lost = answer.status == 200 and _content(answer.body) == _content(before)
    return shown(answer) + (", and unchanged" if is_lost else "")


def _content(manifest: Any) -> Json:
    return {key: value for key, value in manifest.items() if key != "metadata"}


def shown(answer: Any) -> str:
    """An answer in the form of `Case.want`."""
    if answer.status < 400:
        return str(answer.status)
    causes = (answer.body.get("details") or {}).get("causes") or ()
    found = {f"{one.get('field', '')} {one.get('reason', '')}" for one in causes}
    found = {_shortened(one) for one in found}
    return f"{answer.status} {answer.reason}: " + ", ".join(sorted(found))


def _shortened(cause: str) -> str:
    """A cause without the words that say nothing here."""
    return cause.replace("DuringSchedulingIgnoredDuringExecution", "").replace("FieldValue", "")


# --- devices --------------------------------------------------------------------------------------

GPU: Json = {"deviceClassName": "gpu.example.com"}


def claim(*requests: Json, **devices: Any) -> Json:
    return {
        "metadata": {"name": "a"},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def claim_case(name: str, want: str, *requests: Json, **devices: Any) -> Case:
    return Case(f"claim: {name}", kinds.RESOURCE_CLAIMS, claim(*requests, **devices), want)


def one(**exactly: Any) -> Json:
    return {"name": "r", "exactly": {**GPU, **exactly}}


CLAIM_CASES = [
    claim_case(
        "parameters of no members",
        "201",
        one(),
        config=[{"opaque": {"driver": "a.b", "parameters": {}}}],
    ),
    claim_case(
        "neither way to ask", "422 Invalid: spec.devices.requests[0] Required", {"name": "r"}
    ),
    claim_case(
        "both ways to ask",
        "422 Invalid: spec.devices.requests[0] Invalid",
        {"name": "r", "exactly": GPU, "firstAvailable": [{**GPU, "name": "a"}]},
    ),
    claim_case(
        "both ways to ask, each of them wrong",
        "422 Invalid: spec.devices.requests[0] Invalid, "
        "spec.devices.requests[0].firstAvailable[0].deviceClassName Required",
        {"name": "r", "exactly": {"deviceClassName": "A_"}, "firstAvailable": [{"name": "A_"}]},
    ),
    claim_case("a name twice", "422 Invalid: spec.devices.requests[1] Duplicate", one(), one()),
    claim_case("no name", "422 Invalid: spec.devices.requests[0].name Invalid", {"exactly": GPU}),
    claim_case(
        "a bad name",
        "422 Invalid: spec.devices.requests[0].name Invalid",
        {"name": "A_b", "exactly": GPU},
    ),
    claim_case(
        "no class",
        "422 Invalid: spec.devices.requests[0].exactly.deviceClassName Required",
        {"name": "r", "exactly": {}},
    ),
    claim_case(
        "a bad class",
        "422 Invalid: spec.devices.requests[0].exactly.deviceClassName Invalid",
        {"name": "r", "exactly": {"deviceClassName": "A_b"}},
    ),
    claim_case(
        "all, with a count",
        "422 Invalid: spec.devices.requests[0].exactly.count Invalid",
        one(allocationMode="All", count=2),
    ),
    claim_case(
        "a count below one",
        "422 Invalid: spec.devices.requests[0].exactly.count Invalid",
        one(count=-1),
    ),
    claim_case(
        "an unknown mode",
        "422 Invalid: spec.devices.requests[0].exactly.allocationMode NotSupported",
        one(allocationMode="Some"),
    ),
    claim_case(
        "33 requests",
        "422 Invalid: spec.devices.requests TooMany",
        *({"name": f"r{i}", "exactly": GPU} for i in range(33)),
    ),
    claim_case(
        "nine alternatives",
        "422 Invalid: spec.devices.requests[0].firstAvailable TooMany",
        {"name": "r", "firstAvailable": [{**GPU, "name": f"a{i}"} for i in range(9)]},
    ),
    claim_case(
        "an alternative twice",
        "422 Invalid: spec.devices.requests[0].firstAvailable[1] Duplicate",
        {"name": "r", "firstAvailable": [{**GPU, "name": "a"}, {**GPU, "name": "a"}]},
    ),
    claim_case(
        "an alternative without a class",
        "422 Invalid: spec.devices.requests[0].firstAvailable[0].deviceClassName Required",
        {"name": "r", "firstAvailable": [{"name": "a"}]},
    ),
    claim_case(
        "an alternative of all with a count",
        "422 Invalid: spec.devices.requests[0].firstAvailable[0].count Invalid",
        {
            "name": "r",
            "firstAvailable": [{**GPU, "name": "a", "allocationMode": "All", "count": 2}],
        },
    ),
    claim_case(
        "a selector of nothing",
        "422 Invalid: spec.devices.requests[0].exactly.selectors[0].cel Required",
        one(selectors=[{}]),
    ),
    claim_case(
        "a selector without an expression",
        "422 Invalid: spec.devices.requests[0].exactly.selectors[0].cel.expression Invalid",
        one(selectors=[{"cel": {}}]),
    ),
    claim_case(
        "33 selectors",
        "422 Invalid: spec.devices.requests[0].exactly.selectors TooMany",
        one(selectors=[{"cel": {"expression": "true"}}] * 33),
    ),
    claim_case("a toleration of no operator", "201", one(tolerations=[{"key": "a", "value": "b"}])),
    claim_case(
        "a toleration of an unknown operator",
        "422 Invalid: spec.devices.requests[0].exactly.tolerations[0].operator NotSupported",
        one(tolerations=[{"key": "a", "operator": "Like"}]),
    ),
    claim_case(
        "a toleration of an unknown effect",
        "422 Invalid: spec.devices.requests[0].exactly.tolerations[0].effect NotSupported",
        one(tolerations=[{"key": "a", "effect": "Never", "operator": "Exists"}]),
    ),
    claim_case(
        "a toleration of a value and Exists",
        "422 Invalid: spec.devices.requests[0].exactly.tolerations[0].value Invalid",
        one(tolerations=[{"key": "a", "value": "b", "operator": "Exists"}]),
    ),
    claim_case(
        "a toleration of an unknown operator and a bad value",
        "422 Invalid: spec.devices.requests[0].exactly.tolerations[0].operator NotSupported",
        one(tolerations=[{"key": "a", "operator": "Like", "value": "b c"}]),
    ),
    claim_case(
        "a toleration of a bad value",
        "422 Invalid: spec.devices.requests[0].exactly.tolerations[0].value Invalid",
        one(tolerations=[{"key": "a", "value": "b c"}]),
    ),
    claim_case(
        "a toleration of a bad key",
        "422 Invalid: spec.devices.requests[0].exactly.tolerations[0].key Invalid",
        one(tolerations=[{"key": "a b", "operator": "Exists"}]),
    ),
    claim_case("a toleration without a key", "201", one(tolerations=[{"value": "b"}])),
    claim_case("17 tolerations", "201", one(tolerations=[{"key": "a", "operator": "Exists"}] * 17)),
    claim_case(
        "a constraint of no attribute",
        "422 Invalid: spec.devices.constraints[0] Required",
        one(),
        constraints=[{"requests": ["r"]}],
    ),
    claim_case(
        "a constraint on no domain",
        "422 Invalid: spec.devices.constraints[0].matchAttribute Invalid",
        one(),
        constraints=[{"matchAttribute": "model"}],
    ),
    claim_case(
        "a constraint on an unknown request",
        "422 Invalid: spec.devices.constraints[0].requests[0] Invalid",
        one(),
        constraints=[{"requests": ["x"], "matchAttribute": "a.b/model"}],
    ),
    claim_case(
        "a constraint on a request twice",
        "422 Invalid: spec.devices.constraints[0].requests[1] Duplicate",
        one(),
        constraints=[{"requests": ["r", "r"], "matchAttribute": "a.b/model"}],
    ),
    claim_case(
        "a constraint of both attributes",
        "201",
        one(),
        constraints=[{"distinctAttribute": "a.b/x", "matchAttribute": "a.b/model"}],
    ),
    claim_case(
        "33 constraints",
        "422 Invalid: spec.devices.constraints TooMany",
        one(),
        constraints=[{"matchAttribute": "a.b/model"}] * 33,
    ),
    claim_case(
        "a configuration of nothing",
        "422 Invalid: spec.devices.config[0].opaque Required",
        one(),
        config=[{}],
    ),
    claim_case(
        "a configuration of an unknown request",
        "422 Invalid: spec.devices.config[0].requests[0] Invalid",
        one(),
        config=[{"requests": ["x"], "opaque": {"driver": "a.b", "parameters": {"a": 1}}}],
    ),
    claim_case(
        "a configuration without driver",
        "422 Invalid: spec.devices.config[0].opaque.driver Required",
        one(),
        config=[{"opaque": {"parameters": {"a": 1}}}],
    ),
    claim_case(
        "a configuration without parameters",
        "422 Invalid: spec.devices.config[0].opaque.parameters Required",
        one(),
        config=[{"opaque": {"driver": "a.b"}}],
    ),
    claim_case("no requests", "201", *()),
    claim_case("a capacity of a bad name", "201", one(capacity={"requests": {"a b": "1"}})),
    Case(
        "claim: another specification",
        kinds.RESOURCE_CLAIMS,
        claim(one()),
        "422 Invalid: spec Invalid",
        {"spec": {"devices": {"requests": [one(count=2)]}}},
    ),
    Case(
        "template: neither way to ask",
        kinds.RESOURCE_CLAIM_TEMPLATES,
        {"metadata": {"name": "a"}, "spec": {"spec": {"devices": {"requests": [{"name": "r"}]}}}},
        "422 Invalid: spec.spec.devices.requests[0] Required",
    ),
    Case(
        "template: another specification",
        kinds.RESOURCE_CLAIM_TEMPLATES,
        {"metadata": {"name": "a"}, "spec": {"spec": {"devices": {"requests": [one()]}}}},
        "422 Invalid: spec Invalid",
        {"spec": {"spec": {"devices": {"requests": [one(count=2)]}}}},
    ),
]

RESULT: Json = {"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "gpu-0"}
ALLOCATED: Json = {"allocation": {"devices": {"results": [RESULT]}}}


def consumer(name: str = "p", uid: str = "u") -> Json:
    return {"resource": "pods", "name": name, "uid": uid}


def status_case(name: str, want: str, *statuses: Json, finalizers: list[str] | None = None) -> Case:
    manifest = claim(one())
    if finalizers:
        manifest["metadata"]["finalizers"] = finalizers
    changes = tuple(one if "metadata" in one else {"status": one} for one in statuses)
    return Case(f"claim status: {name}", kinds.RESOURCE_CLAIMS, manifest, want, changes, "status")


STATUS_CASES = [
    status_case("allocated", "200", ALLOCATED),
    status_case("allocated and reserved", "200", {**ALLOCATED, "reservedFor": [consumer()]}),
    status_case(
        "another allocation",
        "422 Invalid: status.allocation Invalid",
        ALLOCATED,
        {"allocation": {"devices": {"results": [{**RESULT, "device": "gpu-1"}]}}},
    ),
    status_case(
        "reserved without an allocation",
        "422 Invalid: status.reservedFor Forbidden",
        {"reservedFor": [consumer()]},
    ),
    status_case(
        "a consumer twice",
        "422 Invalid: status.reservedFor[1] Duplicate",
        {**ALLOCATED, "reservedFor": [consumer("p"), consumer("q")]},
    ),
    status_case(
        "257 consumers",
        "422 Invalid: status.reservedFor TooMany",
        {**ALLOCATED, "reservedFor": [consumer(uid=f"u{i}") for i in range(257)]},
    ),
    status_case(
        "a consumer without uid",
        "422 Invalid: status.reservedFor[0].uid Required",
        {**ALLOCATED, "reservedFor": [{"resource": "pods", "name": "p"}]},
    ),
    status_case(
        "a consumer without name",
        "422 Invalid: status.reservedFor[0].name Required",
        {**ALLOCATED, "reservedFor": [{"resource": "pods", "uid": "p"}]},
    ),
    status_case(
        "the allocation goes and the reservation stays",
        "422 Invalid: status.reservedFor Forbidden",
        {**ALLOCATED, "reservedFor": [consumer()]},
        {"allocation": None},
    ),
    status_case(
        "both go",
        "200",
        {**ALLOCATED, "reservedFor": [consumer()]},
        {"allocation": None, "reservedFor": None},
    ),
    status_case(
        "of an unknown request",
        "422 Invalid: status.allocation.devices.results[0].request Invalid",
        {"allocation": {"devices": {"results": [{**RESULT, "request": "x"}]}}},
    ),
    status_case(
        "of no pool",
        "422 Invalid: status.allocation.devices.results[0].pool Required",
        {"allocation": {"devices": {"results": [{**RESULT, "pool": ""}]}}},
    ),
    status_case(
        "of no driver",
        "422 Invalid: status.allocation.devices.results[0].driver Required",
        {"allocation": {"devices": {"results": [{**RESULT, "driver": ""}]}}},
    ),
    status_case(
        "of no device",
        "422 Invalid: status.allocation.devices.results[0].device Invalid",
        {"allocation": {"devices": {"results": [{**RESULT, "device": ""}]}}},
    ),
    status_case(
        "of 33 devices",
        "422 Invalid: status.allocation.devices.results TooMany",
        {"allocation": {"devices": {"results": [RESULT] * 33}}},
    ),
    status_case(
        "of a node selector without terms",
        "422 Invalid: status.allocation.nodeSelector.nodeSelectorTerms Required",
        {
            "allocation": {
                "devices": {"results": [RESULT]},
                "nodeSelector": {"nodeSelectorTerms": []},
            }
        },
    ),
    status_case(
        "a device that is not allocated",
        "422 Invalid: status.devices[0] Invalid",
        {**ALLOCATED, "devices": [{"driver": "gpu.example.com", "pool": "p", "device": "gpu-7"}]},
    ),
]

# --- slices ---------------------------------------------------------------------------------------

POOL: Json = {"name": "p", "generation": 1, "resourceSliceCount": 1}


def slices(**spec: Any) -> Json:
    whole = {
        "driver": "gpu.example.com",
        "nodeName": "n",
        "pool": POOL,
        "devices": [{"name": "gpu-0"}],
        **spec,
    }
    return {
        "metadata": {"name": "slice"},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def slice_case(name: str, want: str, change: Json | None = None, **spec: Any) -> Case:
    changed = None if change is None else {"spec": change}
    return Case(f"slice: {name}", kinds.RESOURCE_SLICES, slices(**spec), want, changed)


def device(**fields: Any) -> Json:
    return {"devices": [{"name": "gpu-0", **fields}]}


TERM: Json = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
SLICE_CASES = [
    slice_case("no nodes", "422 Invalid: spec Required", nodeName=None),
    slice_case("two sets of nodes", "422 Invalid: spec Invalid", allNodes=True),
    slice_case("not all nodes", "422 Invalid: spec.allNodes Invalid", allNodes=False),
    slice_case("a bad node", "422 Invalid: spec.nodeName Invalid", nodeName="A_b"),
    slice_case(
        "two terms",
        "422 Invalid: spec.nodeSelector.nodeSelectorTerms Invalid",
        nodeName=None,
        nodeSelector={"nodeSelectorTerms": [TERM, TERM]},
    ),
    slice_case(
        "no terms",
        "422 Invalid: spec.nodeSelector.nodeSelectorTerms Invalid, "
        "spec.nodeSelector.nodeSelectorTerms Required",
        nodeName=None,
        nodeSelector={"nodeSelectorTerms": []},
    ),
    slice_case(
        "129 devices",
        "422 Invalid: spec.devices TooMany",
        devices=[{"name": f"d{i}"} for i in range(129)],
    ),
    slice_case(
        "65 devices with taints",
        "422 Invalid: spec.devices TooMany",
        devices=[
            {"name": f"d{i}", "taints": [{"key": "a", "effect": "NoSchedule"}]} for i in range(65)
        ],
    ),
    slice_case(
        "a device twice",
        "422 Invalid: spec.devices[1] Duplicate",
        devices=[{"name": "d"}, {"name": "d"}],
    ),
    slice_case("a device without name", "422 Invalid: spec.devices[0].name Invalid", devices=[{}]),
    slice_case(
        "a bad device", "422 Invalid: spec.devices[0].name Invalid", devices=[{"name": "A_b"}]
    ),
    slice_case(
        "no slices in the pool",
        "422 Invalid: spec.pool.resourceSliceCount Invalid",
        pool={**POOL, "resourceSliceCount": 0},
    ),
    slice_case(
        "a generation below zero",
        "422 Invalid: spec.pool.generation Invalid",
        pool={**POOL, "generation": -1},
    ),
    slice_case(
        "no pool",
        "422 Invalid: spec.pool.name Required, spec.pool.resourceSliceCount Invalid",
        pool={},
    ),
    slice_case("a bad pool", "422 Invalid: spec.pool.name Invalid", pool={**POOL, "name": "A_b"}),
    slice_case(
        "a pool that is absent",
        "422 Invalid: spec.pool.name Required, spec.pool.resourceSliceCount Invalid",
        pool=None,
    ),
    Case(
        "slice: nothing",
        kinds.RESOURCE_SLICES,
        {"metadata": {"name": "slice"}},
        "422 Invalid: spec Required, spec.driver Required, spec.pool.name Required, "
        "spec.pool.resourceSliceCount Invalid",
    ),
    Case("claim: nothing", kinds.RESOURCE_CLAIMS, {"metadata": {"name": "a"}}, "201"),
    Case("template: nothing", kinds.RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": "a"}}, "201"),
    Case("class: nothing", kinds.DEVICE_CLASSES, {"metadata": {"name": "c"}}, "201"),
    slice_case("a pool of two parts", "201", pool={**POOL, "name": "a/b"}),
    slice_case("no driver", "422 Invalid: spec.driver Required", driver=""),
    slice_case("a bad driver", "422 Invalid: spec.driver Invalid", driver="A_b"),
    slice_case("a long driver", "422 Invalid: spec.driver TooLong", driver="a" * 64),
    slice_case("another node", "422 Invalid: spec.nodeName Invalid", {"nodeName": "m"}),
    slice_case(
        "another pool", "422 Invalid: spec.pool.name Invalid", {"pool": {**POOL, "name": "q"}}
    ),
    slice_case("another driver", "422 Invalid: spec.driver Invalid", {"driver": "x.example.com"}),
    slice_case("a new generation", "200", {"pool": {**POOL, "generation": 2}}),
    slice_case(
        "counters and devices",
        "422 Invalid: spec Invalid",
        sharedCounters=[{"name": "c", "counters": {"m": {"value": "1"}}}],
    ),
    slice_case(
        "a counter set without counters",
        "422 Invalid: spec.sharedCounters[0].counters Required",
        devices=None,
        sharedCounters=[{"name": "c"}],
    ),
    slice_case(
        "a counter set without name",
        "422 Invalid: spec.sharedCounters[0].name Required",
        devices=None,
        sharedCounters=[{"counters": {"m": {"value": "1"}}}],
    ),
    slice_case(
        "a counter set twice",
        "422 Invalid: spec.sharedCounters[1] Duplicate",
        devices=None,
        sharedCounters=[{"name": "c", "counters": {"m": {"value": "1"}}}] * 2,
    ),
    slice_case(
        "an attribute of no value",
        "422 Invalid: spec.devices[0].attributes[a] Invalid",
        **device(attributes={"a": {}}),
    ),
    slice_case(
        "an attribute of two values",
        "422 Invalid: spec.devices[0].attributes[a] Invalid",
        **device(attributes={"a": {"int": 1, "bool": True}}),
    ),
    slice_case(
        "an attribute of a bad name",
        "422 Invalid: spec.devices[0].attributes Invalid",
        **device(attributes={"a-b": {"int": 1}}),
    ),
    slice_case(
        "an attribute of a bad version",
        "422 Invalid: spec.devices[0].attributes[a].version Invalid",
        **device(attributes={"a": {"version": "1.2"}}),
    ),
    slice_case(
        "an attribute of a long text",
        "422 Invalid: spec.devices[0].attributes[a].string TooLong",
        **device(attributes={"a": {"string": "x" * 65}}),
    ),
    slice_case(
        "an attribute of a long name",
        "422 Invalid: spec.devices[0].attributes TooLong",
        **device(attributes={"a" * 33: {"int": 1}}),
    ),
    slice_case(
        "33 attributes",
        "422 Invalid: spec.devices[0] Invalid",
        **device(attributes={f"a{i}": {"int": 1} for i in range(33)}),
    ),
    slice_case(
        "a capacity of a bad name",
        "422 Invalid: spec.devices[0].capacity Invalid",
        **device(capacity={"a-b": {"value": "1"}}),
    ),
    slice_case(
        "a policy for a device of one claim",
        "422 Invalid: spec.devices[0].capacity[m].requestPolicy Forbidden",
        **device(capacity={"m": {"value": "4", "requestPolicy": {"default": "1"}}}),
    ),
    slice_case(
        "a policy of two kinds",
        "422 Invalid: spec.devices[0].capacity[m].requestPolicy Forbidden",
        **device(
            allowMultipleAllocations=True,
            capacity={
                "m": {
                    "value": "4",
                    "requestPolicy": {
                        "default": "1",
                        "validValues": ["1"],
                        "validRange": {"min": "1"},
                    },
                }
            },
        ),
    ),
    slice_case(
        "a policy without default",
        "422 Invalid: spec.devices[0].capacity[m].requestPolicy.default Required",
        **device(
            allowMultipleAllocations=True,
            capacity={"m": {"value": "4", "requestPolicy": {"validRange": {"min": "1"}}}},
        ),
    ),
    slice_case(
        "a policy whose default is no value",
        "422 Invalid: spec.devices[0].capacity[m].requestPolicy.validValues Invalid",
        **device(
            allowMultipleAllocations=True,
            capacity={
                "m": {"value": "4", "requestPolicy": {"default": "3", "validValues": ["1", "2"]}}
            },
        ),
    ),
    slice_case(
        "a policy of a value twice",
        "422 Invalid: spec.devices[0].capacity[m].requestPolicy.validValues[1] Duplicate",
        **device(
            allowMultipleAllocations=True,
            capacity={
                "m": {"value": "4", "requestPolicy": {"default": "1", "validValues": ["1", "1"]}}
            },
        ),
    ),
    slice_case(
        "a policy of eleven values",
        "422 Invalid: spec.devices[0].capacity[m].requestPolicy.validValues Invalid, "
        "spec.devices[0].capacity[m].requestPolicy.validValues TooMany",
        **device(
            allowMultipleAllocations=True,
            capacity={
                "m": {
                    "value": "99",
                    "requestPolicy": {"default": "1", "validValues": [str(i) for i in range(11)]},
                }
            },
        ),
    ),
    slice_case(
        "a policy beyond the capacity",
        "422 Invalid: spec.devices[0].capacity[m].requestPolicy.validRange.max Invalid",
        **device(
            allowMultipleAllocations=True,
            capacity={
                "m": {
                    "value": "4",
                    "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "8"}},
                }
            },
        ),
    ),
    slice_case(
        "a policy of a step that does not fit",
        "422 Invalid: spec.devices[0].capacity[m].requestPolicy.validRange.step Invalid",
        **device(
            allowMultipleAllocations=True,
            capacity={
                "m": {
                    "value": "8",
                    "requestPolicy": {"default": "2", "validRange": {"min": "1", "step": "2"}},
                }
            },
        ),
    ),
    slice_case(
        "a taint without effect",
        "422 Invalid: spec.devices[0].taints[0].effect Required",
        **device(taints=[{"key": "a"}]),
    ),
    slice_case(
        "a taint of an unknown effect",
        "422 Invalid: spec.devices[0].taints[0].effect NotSupported",
        **device(taints=[{"key": "a", "effect": "Never"}]),
    ),
    slice_case(
        "a taint without key",
        "422 Invalid: spec.devices[0].taints[0].key Invalid",
        **device(taints=[{"effect": "NoSchedule"}]),
    ),
    slice_case(
        "17 taints",
        "422 Invalid: spec.devices[0].taints TooMany",
        **device(taints=[{"key": "a", "effect": "NoSchedule"}] * 17),
    ),
    slice_case(
        "a node per device, not asked for",
        "422 Invalid: spec.devices[0] Invalid",
        **device(nodeName="n"),
    ),
    slice_case(
        "a node per device, not there",
        "422 Invalid: spec.devices[0] Required",
        nodeName=None,
        perDeviceNodeSelection=True,
    ),
    slice_case(
        "nodes per device, twice",
        "422 Invalid: spec.devices[0] Invalid",
        nodeName=None,
        perDeviceNodeSelection=True,
        **device(nodeName="n", allNodes=True),
    ),
    slice_case(
        "counters of no set",
        "422 Invalid: spec.devices[0].consumesCounters[0].counterSet Required",
        **device(consumesCounters=[{"counters": {"m": {"value": "1"}}}]),
    ),
    slice_case(
        "counters of a set twice",
        "422 Invalid: spec.devices[0].consumesCounters[1] Duplicate",
        **device(consumesCounters=[{"counterSet": "c", "counters": {"m": {"value": "1"}}}] * 2),
    ),
    slice_case(
        "no counters of a set",
        "422 Invalid: spec.devices[0].consumesCounters[0].counters Required",
        **device(consumesCounters=[{"counterSet": "c"}]),
    ),
    slice_case(
        "conditions without failures",
        "422 Invalid: spec.devices[0].bindingFailureConditions Invalid",
        **device(bindingConditions=["a"]),
    ),
    slice_case(
        "five conditions",
        "422 Invalid: spec.devices[0].bindingConditions TooMany",
        **device(bindingConditions=list("abcde"), bindingFailureConditions=["x"]),
    ),
    Case(
        "class: a selector of nothing",
        kinds.DEVICE_CLASSES,
        {"metadata": {"name": "c"}, "spec": {"selectors": [{}]}},
        "422 Invalid: spec.selectors[0].cel Required",
    ),
    Case(
        "class: an extended resource of a bad name",
        kinds.DEVICE_CLASSES,
        {"metadata": {"name": "c"}, "spec": {"extendedResourceName": "cpu"}},
        "422 Invalid: spec.extendedResourceName Invalid",
    ),
    Case(
        "class: a configuration of nothing",
        kinds.DEVICE_CLASSES,
        {"metadata": {"name": "c"}, "spec": {"config": [{}]}},
        "422 Invalid: spec.config[0].opaque Required",
    ),
]

# --- pods -----------------------------------------------------------------------------------------


def pod_case(
    name: str,
    want: str,
    change: Json | tuple[Json, ...] | None = None,
    *,
    sub: str = "",
    labels: Json | None = None,
    **spec: Any,
) -> Case:
    return Case(
        f"pod: {name}", kinds.PODS, pod("a", spec=spec, labels=labels or {}), want, change, sub
    )


def containers(*resources: Json) -> list[Json]:
    return [{"name": f"c{i}", "image": "i", "resources": one} for i, one in enumerate(resources)]


def spread(**fields: Any) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": "z",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
        **fields,
    }


def anti(**term: Any) -> Json:
    term = {"topologyKey": "z", "labelSelector": {"matchLabels": {"app": "x"}}, **term}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def hard(*terms: Json) -> Json:
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
        }
    }


SIDECAR: Json = {
    "name": "s",
    "image": "i",
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "1"}},
}
LONG_NAME = ".".join(["a" * 61] * 4)  # 247 characters of 253
MAIN: Json = {"name": "m", "image": "i", "resources": {"requests": {"cpu": "1"}}}
POD_CASES = [
    pod_case(
        "a pod's request below its containers'",
        "422 Invalid: spec.resources.requests[cpu] Invalid",
        resources={"requests": {"cpu": "1"}},
        containers=containers({"requests": {"cpu": "1500m"}}),
    ),
    pod_case(
        "a pod's limit below a container's",
        "422 Invalid: spec.resources.containers[0][cpu].limits Invalid",
        resources={"limits": {"cpu": "1"}},
        containers=containers({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}),
    ),
    pod_case(
        "a pod's claims",
        "422 Invalid: spec.resources.claims Forbidden, spec.resources.claims[0] NotFound",
        resources={"claims": [{"name": "a"}]},
    ),
    pod_case(
        "a pod's extended resource",
        "422 Invalid: spec.resources.limits[example.com/x] NotSupported",
        resources={"limits": {"example.com/x": "1"}},
    ),
    pod_case(
        "a part of an extended resource",
        "422 Invalid: spec.containers[0].resources.limits[example.com/x] Invalid, "
        "spec.containers[0].resources.requests[example.com/x] Invalid",
        containers=containers({"limits": {"example.com/x": "1500m"}}),
    ),
    pod_case(
        "a whole extended resource, in thousandths",
        "201",
        containers=containers({"limits": {"example.com/x": "2000m"}}),
    ),
    pod_case(
        "a resource that only quotas have",
        "422 Invalid: spec.containers[0].resources.limits Required, "
        "spec.containers[0].resources.requests[requests.example.com/x] Invalid",
        containers=containers({"requests": {"requests.example.com/x": "1"}}),
    ),
    pod_case(
        "a resource that is not for containers",
        "422 Invalid: spec.containers[0].resources.requests[pods] Invalid",
        containers=containers({"requests": {"pods": "1"}}),
    ),
    pod_case(
        "a resource whose name is too long for quotas",
        f"422 Invalid: spec.containers[0].resources.limits[{LONG_NAME}/x] Invalid, "
        f"spec.containers[0].resources.requests[{LONG_NAME}/x] Invalid",
        containers=containers({"limits": {f"{LONG_NAME}/x": "1"}}),
    ),
    pod_case(
        "huge pages alone",
        "422 Invalid: spec.containers[0].resources Forbidden",
        containers=containers({"limits": {"hugepages-2Mi": "2Mi"}}),
    ),
    pod_case(
        "a huge page and a half",
        "422 Invalid: spec.containers[0].resources.limits[hugepages-2Mi] Invalid, "
        "spec.containers[0].resources.requests[hugepages-2Mi] Invalid",
        containers=containers({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
    ),
    pod_case(
        "huge pages below their limit",
        "422 Invalid: spec.containers[0].resources.requests Invalid",
        containers=containers(
            {"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}, "requests": {"hugepages-2Mi": "2Mi"}}
        ),
    ),
    pod_case(
        "huge pages and a half, of the containers and so of the pod",
        "422 Invalid: spec.containers[0].resources.limits[hugepages-2Mi] Invalid, "
        "spec.containers[0].resources.requests[hugepages-2Mi] Invalid, "
        "spec.resources.limits[hugepages-2Mi] Invalid, "
        "spec.resources.requests[hugepages-2Mi] Invalid",
        containers=containers({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
        resources={"requests": {"cpu": "2"}},
    ),
    pod_case(
        "a bad name twice",
        "422 Invalid: spec.containers[0].name Invalid, spec.initContainers[0].name Duplicate, "
        "spec.initContainers[0].name Invalid",
        containers=[{"name": "A_b", "image": "i"}],
        initContainers=[{"name": "A_b", "image": "i"}],
    ),
    pod_case(
        "a host port of two containers, one after the other",
        "201",
        initContainers=[
            {"name": name, "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}
            for name in ("a", "b")
        ],
    ),
    pod_case(
        "a group of nothing",
        "422 Invalid: spec.schedulingGroup.podGroupName Invalid",
        schedulingGroup={},
    ),
    pod_case(
        "a group of a bad name",
        "422 Invalid: spec.schedulingGroup.podGroupName Invalid",
        schedulingGroup={"podGroupName": "A_b"},
    ),
    pod_case(
        "a container's claim that the pod has not",
        "422 Invalid: spec.containers[0].resources.claims[0] NotFound",
        containers=containers({"claims": [{"name": "x"}]}),
    ),
    pod_case(
        "a container's claim twice",
        "422 Invalid: spec.containers[0].resources.claims[1] Duplicate",
        containers=containers({"claims": [{"name": "x"}, {"name": "x"}]}),
        resourceClaims=[{"name": "x", "resourceClaimName": "c"}],
    ),
    pod_case(
        "a claim from nowhere",
        "422 Invalid: spec.resourceClaims[0] Invalid",
        resourceClaims=[{"name": "x"}],
    ),
    pod_case(
        "a claim from two places",
        "422 Invalid: spec.resourceClaims[0] Invalid",
        resourceClaims=[{"name": "x", "resourceClaimName": "c", "resourceClaimTemplateName": "c"}],
    ),
    pod_case(
        "a claim without name",
        "422 Invalid: spec.resourceClaims[0].name Required",
        resourceClaims=[{"resourceClaimName": "c"}],
    ),
    pod_case(
        "a claim twice",
        "422 Invalid: spec.resourceClaims[1].name Duplicate",
        resourceClaims=[
            {"name": "x", "resourceClaimName": "c"},
            {"name": "x", "resourceClaimName": "d"},
        ],
    ),
    pod_case(
        "a claim of a bad name",
        "422 Invalid: spec.resourceClaims[0].resourceClaimName Invalid",
        resourceClaims=[{"name": "x", "resourceClaimName": "A_b"}],
    ),
    pod_case(
        "spread by keys without a selector",
        "422 Invalid: spec.topologySpreadConstraints[0].matchLabelKeys Forbidden",
        topologySpreadConstraints=[spread(matchLabelKeys=["h"], labelSelector=None)],
        labels={"h": "1"},
    ),
    pod_case(
        "spread by a key that the selector has",
        "422 Invalid: spec.topologySpreadConstraints[0][0] Invalid",
        topologySpreadConstraints=[spread(matchLabelKeys=["app"])],
        labels={"app": "x"},
    ),
    pod_case(
        "spread by a bad key",
        "422 Invalid: spec.topologySpreadConstraints[0].matchLabelKeys[0] Invalid",
        topologySpreadConstraints=[spread(matchLabelKeys=["a b"])],
    ),
    pod_case(
        "domains of soft spread",
        "422 Invalid: spec.topologySpreadConstraints[0].minDomains Invalid",
        topologySpreadConstraints=[spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway")],
    ),
    pod_case(
        "the same spread twice",
        "422 Invalid: spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable} Duplicate",
        topologySpreadConstraints=[spread(), spread(maxSkew=2)],
    ),
    pod_case(
        "spread of an unknown policy",
        "422 Invalid: spec.topologySpreadConstraints[0].nodeTaintsPolicy NotSupported",
        topologySpreadConstraints=[spread(nodeTaintsPolicy="Maybe")],
    ),
    pod_case(
        "spread of a bad selector",
        "422 Invalid: spec.topologySpreadConstraints[0].labelSelector.matchExpressions[0].values "
        "Required",
        topologySpreadConstraints=[
            spread(labelSelector={"matchExpressions": [{"key": "a", "operator": "In"}]})
        ],
    ),
    pod_case(
        "affinity by a key that the selector has",
        "422 Invalid: spec.affinity.podAntiAffinity.required[0][0] Invalid",
        affinity=anti(matchLabelKeys=["app"]),
        labels={"app": "x"},
    ),
    pod_case(
        "affinity by a key in both lists",
        "422 Invalid: spec.affinity.podAntiAffinity.required[0].matchLabelKeys[0] Invalid, "
        "spec.affinity.podAntiAffinity.required[0][0] Invalid",
        affinity=anti(matchLabelKeys=["h"], mismatchLabelKeys=["h"]),
        labels={"h": "x"},
    ),
    pod_case(
        "affinity by keys without a selector",
        "422 Invalid: spec.affinity.podAntiAffinity.required[0].matchLabelKeys Forbidden",
        affinity=anti(matchLabelKeys=["h"], labelSelector=None),
        labels={"h": "x"},
    ),
    pod_case(
        "affinity of a bad selector",
        "422 Invalid: "
        "spec.affinity.podAntiAffinity."
        "required[0].labelSelector.matchExpressions[0].operator Invalid",
        affinity=anti(labelSelector={"matchExpressions": [{"key": "a", "operator": "Like"}]}),
    ),
    pod_case(
        "affinity of a bad label value",
        "422 Invalid: spec.affinity.podAntiAffinity.required[0].labelSelector.matchLabels Invalid",
        affinity=anti(labelSelector={"matchLabels": {"a": "b c"}}),
    ),
    pod_case(
        "affinity of a bad namespace",
        "422 Invalid: spec.affinity.podAntiAffinity.required[0].namespace Invalid",
        affinity=anti(namespaces=["A_b"]),
    ),
    pod_case(
        "affinity of a bad namespace selector",
        "422 Invalid: "
        "spec.affinity.podAntiAffinity."
        "required[0].namespaceSelector.matchExpressions[0].values Forbidden",
        affinity=anti(
            namespaceSelector={
                "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]
            }
        ),
    ),
    pod_case(
        "a field of another key",
        "422 Invalid: "
        "spec.affinity.nodeAffinity.required.nodeSelectorTerms[0].matchFields[0].key Invalid",
        affinity=hard({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}),
    ),
    pod_case(
        "a field of two values",
        "422 Invalid: "
        "spec.affinity.nodeAffinity.required.nodeSelectorTerms[0].matchFields[0].values Required",
        affinity=hard(
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}
        ),
    ),
    pod_case(
        "a field that exists",
        "422 Invalid: "
        "spec.affinity.nodeAffinity.required.nodeSelectorTerms[0].matchFields[0].operator Invalid",
        affinity=hard({"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}),
    ),
    pod_case(
        "a bad node label value",
        "422 Invalid: "
        "spec.affinity.nodeAffinity."
        "required.nodeSelectorTerms[0].matchExpressions[0].values[0] Invalid",
        affinity=hard({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]}),
    ),
    pod_case(
        "a node label above a text",
        "201",
        affinity=hard({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["b"]}]}),
    ),
    pod_case(
        "another host port on the host's network",
        "422 Invalid: spec.containers[0].ports[0].hostPort Invalid",
        hostNetwork=True,
        containers=[{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 81}]}],
    ),
    pod_case(
        "a host port twice",
        "422 Invalid: spec.containers[1].ports[0].hostPort Duplicate",
        containers=[
            {"name": n, "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}
            for n in "ab"
        ],
    ),
    pod_case(
        "a port without number",
        "422 Invalid: spec.containers[0].ports[0].containerPort Required",
        containers=[{"name": "c", "image": "i", "ports": [{}]}],
    ),
    pod_case("a bad node name", "422 Invalid: spec.nodeName Invalid", nodeName="A_b"),
    pod_case("a bad scheduler name", "201", schedulerName="A_b"),
    pod_case(
        "a toleration of a bad value",
        "422 Invalid: spec.tolerations[0].operator Invalid",
        tolerations=[{"key": "a", "value": "b c"}],
    ),
    pod_case(
        "a name twice in both kinds of containers",
        "422 Invalid: spec.initContainers[0].name Duplicate",
        initContainers=[{"name": "a", "image": "i"}],
        containers=[{"name": "a", "image": "i"}],
    ),
    pod_case(
        "an init container of an unknown policy",
        "422 Invalid: spec.initContainers[0].restartPolicy NotSupported",
        initContainers=[{"name": "i", "image": "i", "restartPolicy": "Sometimes"}],
    ),
    pod_case(
        "a volume twice",
        "422 Invalid: spec.volumes[1].name Duplicate",
        volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}],
    ),
    pod_case(
        "a volume of two sources",
        "422 Invalid: spec.volumes[0].hostPath Forbidden",
        volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/a"}}],
    ),
    pod_case(
        "a volume of no claim",
        "422 Invalid: spec.volumes[0].persistentVolumeClaim.claimName Required",
        volumes=[{"name": "v", "persistentVolumeClaim": {}}],
    ),
    pod_case(
        "a volume without name",
        "422 Invalid: spec.volumes[0].name Required",
        volumes=[{"emptyDir": {}}],
    ),
    pod_case(
        "a gate opened and a term added",
        "422 Invalid: spec.affinity.nodeAffinity.required.nodeSelectorTerms Invalid",
        {"spec": {"affinity": hard(TERM, TERM)}},
        schedulingGates=[{"name": "g"}],
        affinity=hard(TERM),
    ),
    pod_case(
        "a gated pod's term narrowed",
        "200",
        {
            "spec": {
                "affinity": hard(
                    {
                        "matchExpressions": [
                            *TERM["matchExpressions"],
                            {"key": "b", "operator": "Exists"},
                        ]
                    }
                )
            }
        },
        schedulingGates=[{"name": "g"}],
        affinity=hard(TERM),
    ),
    pod_case(
        "a gated pod's term replaced",
        "422 Invalid: spec.affinity.nodeAffinity.required.nodeSelectorTerms[0] Invalid",
        {"spec": {"affinity": hard({"matchExpressions": [{"key": "b", "operator": "Exists"}]})}},
        schedulingGates=[{"name": "g"}],
        affinity=hard(TERM),
    ),
    pod_case(
        "a gated pod's first term",
        "200",
        {"spec": {"affinity": hard(TERM)}},
        schedulingGates=[{"name": "g"}],
    ),
    pod_case(
        "a gated pod's anti-affinity",
        "422 Invalid: spec Forbidden",
        {"spec": {"affinity": anti()}},
        schedulingGates=[{"name": "g"}],
    ),
    pod_case(
        "nominated to a bad name",
        "422 Invalid: status.nominatedNodeName Invalid",
        {"status": {"nominatedNodeName": "Not Valid"}},
        sub="status",
    ),
    pod_case(
        "another class of service",
        "422 Invalid: status.qosClass Invalid",
        {"status": {"qosClass": "Guaranteed"}},
        sub="status",
    ),
    pod_case(
        "an observed generation below zero",
        "422 Invalid: status.observedGeneration Invalid",
        {"status": {"observedGeneration": -1}},
        sub="status",
    ),
    pod_case(
        "resized: a sidecar",
        "200",
        {"spec": {"initContainers": [{**SIDECAR, "resources": {"requests": {"cpu": "2"}}}]}},
        sub="resize",
        initContainers=[SIDECAR],
        containers=[MAIN],
    ),
    pod_case(
        "resized: the pod's own request",
        "200",
        {"spec": {"resources": {"requests": {"cpu": "3"}}}},
        sub="resize",
        resources={"requests": {"cpu": "2"}},
        containers=[MAIN],
    ),
    pod_case(
        "resized: beyond the pod's request",
        "422 Invalid: spec.resources.requests[cpu] Invalid",
        {"spec": {"containers": [{**MAIN, "resources": {"requests": {"cpu": "3"}}}]}},
        sub="resize",
        resources={"requests": {"cpu": "2"}},
        containers=[MAIN],
    ),
    pod_case(
        "resized: storage",
        "422 Invalid: spec Forbidden",
        {
            "spec": {
                "containers": [
                    {**MAIN, "resources": {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}}
                ]
            }
        },
        sub="resize",
        containers=[MAIN],
    ),
    pod_case(
        "resized: an extended resource",
        "422 Invalid: spec Forbidden",
        {
            "spec": {
                "containers": [
                    {
                        **MAIN,
                        "resources": {
                            "requests": {"cpu": "1", "a.b/c": "1"},
                            "limits": {"a.b/c": "1"},
                        },
                    }
                ]
            }
        },
        sub="resize",
        containers=[MAIN],
    ),
    pod_case(
        "resized: a request taken off",
        "422 Invalid: spec.containers[0].resources.requests Forbidden",
        {
            "spec": {
                "containers": [{**MAIN, "resources": {"requests": {"memory": "1Gi", "cpu": None}}}]
            }
        },
        sub="resize",
        containers=[MAIN],
    ),
    pod_case(
        "resized: an init container",
        "200",
        {
            "spec": {
                "initContainers": [
                    {"name": "s", "image": "i", "resources": {"requests": {"cpu": "2"}}}
                ]
            }
        },
        sub="resize",
        initContainers=[{"name": "s", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        containers=[MAIN],
    ),
    pod_case(
        "resized: another image",
        "200, and unchanged",
        {"spec": {"containers": [{**MAIN, "image": "j"}]}},
        sub="resize",
        containers=[MAIN],
    ),
    pod_case(
        "resized: another class",
        "422 Invalid: spec Invalid",
        {
            "spec": {
                "containers": [
                    {
                        **MAIN,
                        "resources": {
                            "requests": {"cpu": "1", "memory": "1"},
                            "limits": {"cpu": "1", "memory": "1"},
                        },
                    }
                ]
            }
        },
        sub="resize",
        containers=[MAIN],
    ),
    pod_case(
        "resized: a container",
        "200",
        {"spec": {"containers": [{**MAIN, "resources": {"requests": {"cpu": "2"}}}]}},
        sub="resize",
        containers=[MAIN],
    ),
    pod_case(
        "resized: a container more",
        "422 Invalid: spec.containers Forbidden",
        {"spec": {"containers": [MAIN, {"name": "n", "image": "i"}]}},
        sub="resize",
        containers=[MAIN],
    ),
]

# --- other kinds ----------------------------------------------------------------------------------


def config(**fields: Any) -> Json:
    return {"metadata": {"name": "c"}, **fields}


BINARY = "AAAA"
BUDGET: Json = {"selector": {"matchLabels": {"app": "x"}}}
GROUP: Json = {
    "metadata": {"name": "g"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
}
CONDITION: Json = {
    "type": "A",
    "status": "True",
    "reason": "R",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def budget(**spec: Any) -> Json:
    return {"metadata": {"name": "b"}, "spec": {**BUDGET, **spec}}


def other(name: str, kind: Kind, want: str, manifest: Json, *change: Json, sub: str = "") -> Case:
    return Case(f"{kind.kind}: {name}", kind, manifest, want, change or None, sub)


OTHER_CASES = [
    other(
        "a key twice",
        kinds.CONFIG_MAPS,
        "422 Invalid: data[a] Invalid",
        config(data={"a": "x"}, binaryData={"a": BINARY}),
    ),
    other(
        "mebibyte of both kinds",
        kinds.CONFIG_MAPS,
        "201",
        config(data={"a": "x" * 524287}, binaryData={"b": BINARY * 174762}),
    ),
    other(
        "too much of both kinds",
        kinds.CONFIG_MAPS,
        "422 Invalid: [] TooLong",
        config(data={"a": "x" * 524300}, binaryData={"b": BINARY * 174763}),
    ),
    other(
        "mutable again",
        kinds.CONFIG_MAPS,
        "422 Invalid: immutable Forbidden",
        config(immutable=True),
        {"immutable": None},
    ),
    other(
        "other data of an immutable one",
        kinds.CONFIG_MAPS,
        "422 Invalid: data Forbidden",
        config(immutable=True, data={"a": "x"}),
        {"data": {"a": "y"}},
    ),
    other(
        "other binary data of an immutable one",
        kinds.CONFIG_MAPS,
        "422 Invalid: binaryData Forbidden",
        config(immutable=True, binaryData={"a": BINARY}),
        {"binaryData": {"a": "BBBB"}},
    ),
    other(
        "another policy",
        kinds.PRIORITY_CLASSES,
        "422 Invalid: preemptionPolicy Invalid",
        {"metadata": {"name": "p"}, "value": 1},
        {"preemptionPolicy": "Never"},
    ),
    other(
        "an unknown policy",
        kinds.PRIORITY_CLASSES,
        "422 Invalid: preemptionPolicy NotSupported",
        {"metadata": {"name": "p"}, "value": 1, "preemptionPolicy": "Maybe"},
    ),
    *(
        other(
            f"{amount} of {name}",
            kinds.NODES,
            f"422 Invalid: status.allocatable.{name} Invalid",
            {"metadata": {"name": "n"}},
            {"status": {"allocatable": {name: amount}}},
            sub="status",
        )
        for name, amount in (
            ("example.com/x", "1500m"),
            ("example.com/x", "1n"),
            ("example.com/x", "-1"),
            ("pods", "1500m"),
            ("configmaps", "0.5"),
        )
    ),
    other(
        "a part of a device among what it has",
        kinds.NODES,
        "422 Invalid: status.capacity.example.com/x Invalid",
        {"metadata": {"name": "n"}},
        {"status": {"capacity": {"example.com/x": "0.5"}, "allocatable": {"cpu": "1"}}},
        sub="status",
    ),
    other(
        "less than no device among what it has, as it is created",
        kinds.NODES,
        "422 Invalid: status.allocatable.example.com/x Invalid, "
        "status.capacity.example.com/x Invalid",
        {"metadata": {"name": "n"}, "status": {"capacity": {"example.com/x": "-1"}}},
    ),
    *(
        other(
            f"a part of {name}, of which there may be parts",
            kinds.NODES,
            "200",
            {"metadata": {"name": "n"}},
            {"status": {"allocatable": {name: "1500m"}}},
            sub="status",
        )
        for name in ("cpu", "memory", "hugepages-2Mi", "kubernetes.io/x", "requests.example.com/x")
    ),
    other(
        "a taint of a bad value",
        kinds.NODES,
        "422 Invalid: metadata.taints[0].value Invalid",
        {
            "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "a", "value": "b c", "effect": "NoSchedule"}]},
        },
    ),
    other(
        "both bounds",
        kinds.POD_DISRUPTION_BUDGETS,
        "422 Invalid: spec Invalid",
        budget(minAvailable=1, maxUnavailable=1),
    ),
    other("no bound", kinds.POD_DISRUPTION_BUDGETS, "201", budget()),
    other(
        "a bound below zero",
        kinds.POD_DISRUPTION_BUDGETS,
        "422 Invalid: spec.minAvailable Invalid",
        budget(minAvailable=-1),
    ),
    other(
        "a bound that is no percentage",
        kinds.POD_DISRUPTION_BUDGETS,
        "422 Invalid: spec.maxUnavailable Invalid",
        budget(maxUnavailable="many"),
    ),
    other(
        "a bound above the whole",
        kinds.POD_DISRUPTION_BUDGETS,
        "422 Invalid: spec.maxUnavailable Invalid",
        budget(maxUnavailable="101%"),
    ),
    other(
        "a bad selector",
        kinds.POD_DISRUPTION_BUDGETS,
        "422 Invalid: spec.selector.matchExpressions[0].values Required",
        budget(selector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
    ),
    other(
        "a condition without reason",
        kinds.POD_GROUPS,
        "422 Invalid: status.conditions[0].reason Required",
        GROUP,
        {"status": {"conditions": [{**CONDITION, "reason": ""}]}},
        sub="status",
    ),
    other(
        "a condition twice",
        kinds.POD_GROUPS,
        "422 Invalid: status.conditions[1] Duplicate",
        GROUP,
        {"status": {"conditions": [CONDITION, CONDITION]}},
        sub="status",
    ),
]

CASES: list[Case] = [*CLAIM_CASES, *STATUS_CASES, *SLICE_CASES, *POD_CASES, *OTHER_CASES]
