"""Types of the API: what is misspelt, misplaced or of another type is named."""

from typing import Any

import pytest
import yaml

from engine.manifests import kinds
from engine.manifests.errors import ApiStatus
from engine.manifests.schema import read_types, type_problems, without_nulls


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
