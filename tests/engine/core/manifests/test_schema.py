"""Types of the API: what is misspelt, misplaced or of another type is named."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from engine.core.manifests import kinds
from engine.core.manifests.errors import ApiStatus
from engine.core.manifests.kinds import KINDS, Kind
from engine.core.manifests.schema import (
    read_document,
    read_types,
    type_problems,
    without_empties,
    without_nulls,
)
from engine.core.manifests.times import TIMES

Json = dict[str, Any]

TIME, MICRO_TIME = TIMES
NONE: Final[frozenset[str]] = frozenset()


def problems(text: str) -> list[str]:
    return [str(one) for one in type_problems(kinds.PODS, yaml.safe_load(text))]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            "{containers: [{name: a, resources: {request: {cpu: 1}}}]}",
            "spec.containers[0].resources.request: no such field; did you mean `requests`?",
            id="misspelt",
        ),
        pytest.param(
            "{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
            "[{podAffinityTerm: {topologyKey: zone}}]}}}",
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
            ".podAffinityTerm: no such field here; it belongs in "
            "`preferredDuringSchedulingIgnoredDuringExecution[]`",
            id="misplaced",
        ),
        pytest.param(
            "{tolerations: [{key: a, effect: Noschedule}]}",
            "spec.tolerations[0].effect: want `NoExecute` or `NoSchedule` or `PreferNoSchedule`, "
            "got `Noschedule`; did you mean `NoSchedule`?",
            id="no value of the enum",
        ),
        pytest.param(
            "{nodeSelector: {gpu: true}}",
            "spec.nodeSelector.gpu: want a string, got `True` (bool)",
            id="a boolean for a text",
        ),
        pytest.param(
            "{priority: 3000000000}",
            "spec.priority: want an integer of 32 bits, got `3000000000` (int)",
            id="too large",
        ),
        pytest.param(
            "{containers: {name: a}}", "spec.containers: want an array, got an object", id="no list"
        ),
        pytest.param(
            "{nodeselector: {a: b}}",
            "spec.nodeselector: no such field; did you mean `nodeSelector`?",
            id="another case",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_was_meant(spec: str, want: str) -> None:
    assert problems(f"spec: {spec}") == [want]


def test_all_problems_are_found_at_once() -> None:
    text = "{metadata: {lables: {}}, spec: {nodename: a, hostNetwork: 1}, stauts: {}}"
    assert [one.partition(":")[0] for one in problems(text)] == [
        "metadata.lables",
        "spec.nodename",
        "spec.hostNetwork",
        "stauts",
    ]


def test_amounts_may_be_numbers_and_fields_null() -> None:
    limits = "{cpu: 1, memory: 1Gi, nvidia.com/gpu: 1.0}"
    text = f"spec: {{affinity: null, containers: [{{name: a, resources: {{limits: {limits}}}}}]}}"
    assert problems(text) == []


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_every_kind_has_its_types(kind: kinds.Kind) -> None:
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "a"}}
    assert type_problems(kind, manifest) == []
    assert [str(one) for one in type_problems(kind, {**manifest, "metadat": {}})] == [
        "metadat: no such field; did you mean `metadata`?"
    ]


def test_templates_that_contain_templates_are_looked_through() -> None:
    inner = {"compositePodGroupTemplates": [{"name": 1}]}
    workload = {"spec": {"compositePodGroupTemplates": [inner]}}
    got = type_problems(kinds.WORKLOADS, {**workload, "x": 1})
    path = "spec.compositePodGroupTemplates[0].compositePodGroupTemplates[0].name"
    assert f"{path}: want a string, got `1` (int)" in map(str, got)


def test_a_decoder_drops_what_it_does_not_know() -> None:
    body: dict[str, Any] = {"spec": {"nodename": "a", "containers": [{"name": "a", "x": 1}]}}
    assert read_types(kinds.PODS, body) == {"spec": {"containers": [{"name": "a"}]}}
    with pytest.raises(ApiStatus) as refused:
        read_types(kinds.PODS, body, is_strict=True)
    assert refused.value.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field '
        '"spec.nodename", unknown field "spec.containers[0].x"'
    )


def test_a_null_in_a_map_is_an_empty_value() -> None:
    body = {
        "metadata": {"labels": {"a": None}},
        "spec": {"containers": [{"resources": {"requests": {"cpu": None}}, "image": None}]},
    }
    assert without_nulls(kinds.PODS, body) == {
        "metadata": {"labels": {"a": ""}},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "0"}}}]},
    }


def times(
    schema: Json, at: tuple[str | int, ...] = (), above: frozenset[str] = NONE
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The paths of the times in *schema*, each with the name of its type."""
    name = schema.get("$ref", "")
    if name in TIMES:
        yield at, name
    if name in above:
        return
    schema = read_document()["schemas"][name] if name else schema
    above |= {name} if name else above
    if "items" in schema:
        yield from times(schema["items"], (*at, 0), above)
    if "additionalProperties" in schema:
        yield from times(schema["additionalProperties"], (*at, "key"), above)
    for member, inner in (schema.get("properties") or {}).items():
        yield from times(inner, (*at, member), above)


def holding(at: tuple[str | int, ...], value: Any) -> Any:
    """What has *value* at a path, and nothing else."""
    for step in reversed(at):
        value = [value] if step == 0 else {step: value}
    return value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind} {kind.version}")
def test_every_time_is_read(kind: Kind) -> None:
    found = list(times({"$ref": read_document()["kinds"][f"{kind.api_version} {kind.kind}"]}))
    assert (("metadata", "creationTimestamp"), TIME) in found
    for at, name in found:
        sent, want = {
            TIME: ("2030-01-02T03:04:05.678+02:00", "2030-01-02T01:04:05Z"),
            MICRO_TIME: ("2030-01-02T03:04:05.000678+02:00", "2030-01-02T01:04:05.000678Z"),
        }[name]
        assert read_types(kind, holding(at, sent)) == holding(at, want)
        with pytest.raises(ApiStatus, match="want a time such as") as refusal:
            read_types(kind, holding(at, "soon"))
        assert refusal.value.code == 400
        (problem,) = type_problems(kind, holding(at, "2030-02-30T00:00:00Z"))
        assert problem.path == at


def test_a_time_that_is_as_it_is_stored_costs_no_copy() -> None:
    """Leases are renewed all the time."""
    lease = {"spec": {"renewTime": "2030-11-30T23:59:59.000678Z"}}
    assert read_types(kinds.LEASES, lease) is lease


def test_a_null_in_a_list_is_an_empty_value() -> None:
    budget = {"spec": {"selector": {"matchExpressions": [None, {"key": "a", "values": [None]}]}}}
    found = without_nulls(kinds.POD_DISRUPTION_BUDGETS, budget)
    assert found["spec"]["selector"]["matchExpressions"] == [{}, {"key": "a", "values": [""]}]


def test_empty_lists_and_maps_are_left_out_and_empty_objects_stay() -> None:
    spec = {"selector": {"matchLabels": {}, "matchExpressions": []}, "resources": {"limits": {}}}
    found = without_empties(kinds.PERSISTENT_VOLUME_CLAIMS, {"spec": {**spec, "accessModes": []}})
    assert found == {"spec": {"selector": {}, "resources": {}}}
