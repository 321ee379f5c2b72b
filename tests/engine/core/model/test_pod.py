"""Pods: identity, derived values, tolerance of bad quantities."""

import json
from typing import Any

import msgspec
import pytest

from engine.core.model.pod import Pod
from engine.core.model.pod_volumes import ClaimUse
from tests.builders import container, make_pod, pod_manifest

INT64_MAX = 2**63 - 1


def test_a_pod_is_known_by_uid_and_key() -> None:
    pod = make_pod("web", "prod", uid="u1", priority=7, scheduler_name="mine", node="n1")
    assert (pod.uid, pod.key, pod.name, pod.namespace) == ("u1", "prod/web", "web", "prod")
    assert (pod.priority, pod.scheduler_name, pod.node_name) == (7, "mine", "n1")


def test_what_is_not_given_has_the_api_s_default() -> None:
    pod = Pod.from_plain({"metadata": {"name": "bare"}})
    assert (pod.uid, pod.key, pod.priority) == ("default/bare", "default/bare", 0)
    assert (pod.scheduler_name, pod.node_name, pod.nominated_node_name) == (
        "default-scheduler",
        "",
        "",
    )
    assert (pod.created_at, pod.start_time, pod.controller) == (0.0, None, None)
    assert not pod.is_terminating
    assert pod.requests == {}
    assert pod.problems == ()


def test_times_are_seconds_since_the_epoch() -> None:
    pod = make_pod(created="2026-01-01T00:19:00Z", start_time="2026-01-01T00:19:00.500000Z")
    assert (pod.created_at, pod.start_time) == (1767226740.0, 1767226740.5)


def test_only_the_managing_owner_is_the_controller() -> None:
    manifest = pod_manifest()
    manifest["metadata"]["ownerReferences"] = [
        {"kind": "Team", "name": "t", "uid": "1"},
        {"kind": "ReplicaSet", "name": "rs", "uid": "2", "controller": True},
    ]
    controller = Pod.from_plain(manifest).controller
    assert controller is not None
    assert (controller.kind, controller.name) == ("ReplicaSet", "rs")


def test_the_json_text_is_kept_only_while_pending() -> None:
    pending = json.dumps(pod_manifest()).encode()
    placed = json.dumps(pod_manifest(node="n")).encode()
    assert Pod.from_raw(pending).raw == pending
    assert Pod.from_raw(placed).raw is None


def test_an_assumed_copy_names_its_node_everywhere_and_leaves_the_original_alone() -> None:
    pod = make_pod(cpu="1", ports=[80])
    requests, ports = pod.requests, pod.host_ports
    copy = pod.with_node("n1")
    assert (copy.node_name, copy.manifest.spec.node_name) == ("n1", "n1")
    assert (pod.node_name, pod.manifest.spec.node_name) == ("", "")
    assert (copy.uid, copy.key) == (pod.uid, pod.key)
    assert copy.requests is requests
    assert copy.host_ports is ports


def test_a_renamed_copy_is_another_pod_with_volumes_of_its_own() -> None:
    manifest = pod_manifest("web", uid="u1", requests={"cpu": "2"})
    claim = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}
    manifest["spec"]["volumes"] = [{"name": "data", "ephemeral": claim}]
    pod = Pod.from_plain(manifest)
    assert [volume.use for volume in pod.volumes] == [ClaimUse("default/web-data", "u1")]
    copy = pod.renamed("u2", "again")
    assert (copy.uid, copy.name, copy.requests) == ("u2", "again", {"cpu": 2000})
    assert [volume.use for volume in copy.volumes] == [ClaimUse("default/again-data", "u2")]
    assert (pod.renamed("u3").uid, pod.renamed("u3").name) == ("u3", "web")
    assert (pod.uid, pod.name) == ("u1", "web")


def test_host_ports_are_those_of_containers_and_sidecars_with_defaults() -> None:
    pod = make_pod(
        containers=[
            container("a", ports=[80, "53/UDP", {"hostPort": 80, "hostIP": "10.0.0.1"}]),
            container("b", ports=[80, {"containerPort": 9}, {"hostPort": -1}]),
        ],
        init_containers=[
            container("s", ports=[81], sidecar=True),
            container("i", ports=[82]),
        ],
    )
    assert pod.host_ports == (
        ("0.0.0.0", "TCP", 81),
        ("0.0.0.0", "TCP", 80),
        ("0.0.0.0", "UDP", 53),
        ("10.0.0.1", "TCP", 80),
    )


both = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param({}, "BestEffort", id="nothing"),
        pytest.param({"cpu": 0, "memory": "0"}, "BestEffort", id="zeros are nothing"),
        pytest.param({"requests": {"example.com/foo": 1}}, "BestEffort", id="other resources"),
        pytest.param({"cpu": "1"}, "Burstable", id="a request alone"),
        pytest.param({"limits": both}, "Burstable", id="limits alone"),
        pytest.param({"requests": both, "limits": both}, "Guaranteed", id="limits equal requests"),
        pytest.param(
            {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": both},
            "Guaranteed",
            id="equal in other words",
        ),
        pytest.param(
            {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, "Burstable", id="cpu only"
        ),
        pytest.param(
            {
                "containers": [container("a", requests=both, limits=both)],
                "init_containers": [container("i")],
            },
            "Burstable",
            id="an init container without limits",
        ),
        pytest.param(
            {"containers": [container("a")], "resources": {"requests": both, "limits": both}},
            "Guaranteed",
            id="for the pod as a whole",
        ),
    ],
)
def test_quality_of_service_follows_the_kubelet(words: dict[str, Any], want: str) -> None:
    assert make_pod(**words).qos_class == want


BAD = [
    pytest.param("abc", 0, "want a quantity, got `abc`", id="malformed"),
    pytest.param("", 0, "want a quantity, got ``", id="empty"),
    pytest.param("-1", 0, "want a quantity of at least 0, got `-1`", id="negative"),
    pytest.param(-5, 0, "want a quantity of at least 0, got `-5`", id="negative number"),
    pytest.param(None, 0, "want a quantity, got `null`", id="null"),
    pytest.param(True, 0, "want a quantity, got `true`", id="bool"),
    pytest.param([1], 0, "want a quantity, got `[1]`", id="list"),
    pytest.param("1e50", INT64_MAX, "want a quantity below 2^63, got `1e50`", id="huge"),
    pytest.param(10**30, INT64_MAX, f"want a quantity below 2^63, got `{10**30}`", id="huge int"),
]


@pytest.mark.parametrize(("quantity", "counts_as", "problem"), BAD)
def test_a_bad_quantity_costs_itself_and_is_reported(
    quantity: object, counts_as: int, problem: str
) -> None:
    manifest = pod_manifest(requests={"cpu": "1", "memory": quantity})
    want = f'spec.containers[0].resources.requests["memory"]: {problem}'
    for pod in (Pod.from_plain(manifest), Pod.from_raw(json.dumps(manifest).encode())):
        assert pod.requests == {"cpu": 1000, "memory": counts_as}
        assert pod.problems == (want,)
        assert pod.nonzero_requests == {"cpu": 1000, "memory": counts_as}
        assert pod.qos_class == "Burstable"


def test_a_number_beyond_every_float_is_huge_not_an_error() -> None:
    pod = Pod.from_raw(
        b'{"spec":{"containers":[{"resources":{"requests":{"memory":1e400,"cpu":0.5}}}]}}'
    )
    assert pod.requests == {"memory": INT64_MAX, "cpu": 500}
    assert len(pod.problems) == 1


def test_every_place_of_a_bad_quantity_is_named() -> None:
    bad = {"cpu": "x"}
    pod = make_pod(
        containers=[container("a"), container("b", limits=bad)],
        init_containers=[container("i", requests=bad)],
        overhead=bad,
        resources={"requests": bad, "limits": bad},
        status={
            "containerStatuses": [{"name": "a", "resources": {"requests": bad}}],
            "initContainerStatuses": [{"name": "i", "allocatedResources": bad}],
        },
    )
    assert [problem.partition(": ")[0] for problem in pod.problems] == [
        'spec.containers[1].resources.limits["cpu"]',
        'spec.initContainers[0].resources.requests["cpu"]',
        'spec.resources.requests["cpu"]',
        'spec.resources.limits["cpu"]',
        'spec.overhead["cpu"]',
        'status.containerStatuses[0].resources.requests["cpu"]',
        'status.initContainerStatuses[0].allocatedResources["cpu"]',
    ]


@pytest.mark.parametrize("requests", ["abc", 5, [], None, True])
def test_requests_that_are_no_map_count_for_nothing(requests: object) -> None:
    pod = make_pod(containers=[{"name": "a", "resources": {"requests": requests}}])
    assert pod.requests == {}
    assert bool(pod.problems) is (requests is not None)


def test_nulls_anywhere_mean_absent() -> None:
    pod = Pod.from_raw(
        b'{"metadata":{"name":"p","labels":null,"annotations":{"a":null}},'
        b'"spec":{"containers":[null,{"name":"a","ports":null}],"tolerations":null,'
        b'"priority":null,"affinity":null},"status":null}'
    )
    assert (pod.labels, pod.annotations, pod.priority, pod.host_ports) == ({}, {}, 0, ())


def test_a_label_named_like_a_quantity_map_stays_a_label() -> None:
    raw = b'{"metadata":{"labels":{"requests":"a","limits":"b"}},"status":null}'
    assert Pod.from_raw(raw).labels == {"requests": "a", "limits": "b"}


def test_a_type_that_the_api_forbids_is_a_decode_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        Pod.from_raw(b'{"metadata":{"labels":[1]}}')
    with pytest.raises(msgspec.DecodeError):
        Pod.from_raw(b"{")
