"""Request arithmetic: init containers, sidecars, pod level, overhead, resize, defaults."""

from typing import Any

import pytest

from engine.core.model.resources import is_counted_resource, is_extended_resource, is_qualified_name
from tests.builders import container, make_pod

MIB = 2**20


def test_requests_add_up_over_containers() -> None:
    pod = make_pod(
        containers=[
            container("a", requests={"cpu": "250m", "memory": "64Mi", "example.com/foo": 1}),
            container("b", requests={"cpu": "1", "example.com/foo": "2"}),
            container("c"),
        ]
    )
    assert pod.requests == {"cpu": 1250, "memory": 64 * MIB, "example.com/foo": 3}


def test_sums_are_rounded_once_not_per_container() -> None:
    half = container("a", requests={"cpu": "500u", "memory": "500m"})
    assert make_pod(containers=[half, half]).requests == {"cpu": 1, "memory": 1}


@pytest.mark.parametrize(
    ("init", "want_cpu"),
    [
        pytest.param([("i", "2", False)], 2000, id="an init container needs room alone"),
        pytest.param([("i", "500m", False)], 1000, id="a small one is covered by the rest"),
        pytest.param([("s", "500m", True)], 1500, id="a sidecar runs beside the rest"),
        pytest.param(
            [("s", "500m", True), ("i", "2", False)], 2500, id="later ones run beside sidecars"
        ),
        pytest.param(
            [("i", "2", False), ("s", "500m", True)], 2000, id="earlier ones run without them"
        ),
        pytest.param(
            [("s", "1", True), ("i", "1", False), ("t", "1", True)],
            3000,
            id="the larger of the peak and the sum",
        ),
    ],
)
def test_init_containers_count_in_their_order(
    init: list[tuple[str, str, bool]], want_cpu: int
) -> None:
    pod = make_pod(
        cpu="1",
        init_containers=[
            container(name, requests={"cpu": cpu}, sidecar=sidecar) for name, cpu, sidecar in init
        ],
    )
    assert pod.requests == {"cpu": want_cpu}


def test_overhead_is_added_last() -> None:
    pod = make_pod(
        cpu="1",
        init_containers=[container("i", requests={"cpu": "3"})],
        overhead={"cpu": "100m", "memory": "10Mi"},
    )
    assert pod.requests == {"cpu": 3100, "memory": 10 * MIB}


def test_pod_level_requests_replace_what_the_containers_say() -> None:
    pod = make_pod(
        requests={"cpu": "4", "memory": "1Gi", "example.com/foo": 1},
        resources={"requests": {"cpu": "1", "example.com/foo": 5, "hugepages-2Mi": "4Mi"}},
        overhead={"cpu": "100m"},
    )
    assert pod.requests == {
        "cpu": 1100,
        "memory": 1024 * MIB,
        "example.com/foo": 1,  # not a resource that a pod may set as a whole
        "hugepages-2Mi": 4 * MIB,
    }


def test_pod_level_requests_count_in_scoring_or_are_left_out() -> None:
    pod = make_pod(requests={"cpu": "4"}, resources={"requests": {"cpu": "1"}})
    assert pod.scoring_requests == {"cpu": 1000, "memory": 200 * MIB}
    assert pod.containers_scoring_requests == {"cpu": 4000, "memory": 200 * MIB}


def test_defaults_for_scoring_apply_to_each_container_beside_pod_level_requests() -> None:
    pod = make_pod(
        containers=[
            container("a", requests={"memory": "1Gi"}),
            container("b", requests={"cpu": "1"}),
        ],
        resources={"requests": {"memory": "2Gi"}},
    )
    assert pod.scoring_requests == {"cpu": 1100, "memory": 2048 * MIB}
    assert pod.nonzero_requests == {"cpu": 1000, "memory": 2048 * MIB}


@pytest.mark.parametrize(
    ("requests", "want"),
    [
        pytest.param({}, {"cpu": 100, "memory": 200 * MIB}, id="nothing named"),
        pytest.param({"cpu": "0"}, {"cpu": 0, "memory": 200 * MIB}, id="an explicit zero stays"),
        pytest.param({"cpu": "1", "memory": "1Mi"}, {"cpu": 1000, "memory": MIB}, id="both named"),
    ],
)
def test_defaults_fill_only_missing_keys(requests: dict[str, str], want: dict[str, int]) -> None:
    pod = make_pod(requests=requests)
    assert pod.nonzero_requests == want
    assert pod.scoring_requests == pod.containers_scoring_requests == want


def test_defaults_apply_to_each_container() -> None:
    pod = make_pod(containers=[container("a", requests={"cpu": "1"}), container("b")])
    assert pod.nonzero_requests == {"cpu": 1100, "memory": 400 * MIB}
    assert pod.requests == {"cpu": 1000}


def test_with_pod_level_requests_a_default_fills_only_what_the_whole_pod_leaves_open() -> None:
    pod = make_pod(
        containers=[container("a", requests={"memory": "1Mi"}), container("b")],
        resources={"requests": {"cpu": "2"}},
    )
    assert pod.nonzero_requests == {"cpu": 2000, "memory": MIB}
    only_cpu = make_pod(containers=[container("a"), container("b")], resources=pod_level("2"))
    assert only_cpu.nonzero_requests == {"cpu": 2000, "memory": 400 * MIB}


def pod_level(cpu: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu}}


def status_of(
    actuated: str, allocated: str, *, infeasible: bool = False, field: str = "containerStatuses"
) -> dict[str, Any]:
    status: dict[str, Any] = {
        field: [
            {
                "name": "main",
                "resources": {"requests": {"cpu": actuated}},
                "allocatedResources": {"cpu": allocated},
            }
        ]
    }
    if infeasible:
        status["conditions"] = [
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
        ]
    return status


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        pytest.param("1", status_of("2", "1"), 2000, id="still using more than asked"),
        pytest.param("1", status_of("1", "3"), 3000, id="allocated more than in use"),
        pytest.param("4", status_of("1", "1"), 4000, id="asked for more"),
        pytest.param(
            "4", status_of("1", "2", infeasible=True), 2000, id="a resize that cannot ever be done"
        ),
    ],
)
def test_a_placed_pod_counts_for_the_most_of_asked_granted_and_used(
    spec: str, status: dict[str, Any], want: int
) -> None:
    pod = make_pod(cpu=spec, node="n", status=status)
    assert pod.running_requests["cpu"] == want
    assert pod.running_nonzero_requests["cpu"] == want
    assert pod.requests["cpu"] == int(spec) * 1000


def test_every_init_container_is_resized() -> None:
    status = status_of("3", "3", field="initContainerStatuses")
    sidecar = container("main", requests={"cpu": "1"}, sidecar=True)
    passing = container("main", requests={"cpu": "1"})
    app = container("app", requests={"cpu": "1"})
    assert make_pod(
        containers=[app], init_containers=[sidecar], node="n", status=status
    ).running_requests == {"cpu": 4000}
    assert make_pod(
        containers=[app], init_containers=[passing], node="n", status=status
    ).running_requests == {"cpu": 3000}


def has(name: str, actuated: str | None, allocated: str | None) -> dict[str, Any]:
    """The status of a container; None: not reported."""
    found: dict[str, Any] = {"name": name, "resources": {}}
    if actuated is not None:
        found["resources"] = {"requests": {"cpu": actuated}}
    if allocated is not None:
        found["allocatedResources"] = {"cpu": allocated}
    return found


INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param(
            {"containerStatuses": [has("a", "1", "1"), has("b", "5", "5")]},
            6000,
            id="one grows and one shrinks: the larger sum, not the sum of the larger",
        ),
        pytest.param(
            {"containerStatuses": [has("a", None, "9"), has("b", None, None)]},
            11_000,
            id="allocated counts if nothing is applied",
        ),
        pytest.param(
            {"containerStatuses": [has("a", "0", "1")], "conditions": INFEASIBLE},
            1000,
            id="infeasible: a container without a status counts for nothing",
        ),
        pytest.param(
            {"containerStatuses": [has("a", "0", None), has("b", "0", None)]},
            6000,
            id="what is not allocated counts as specified",
        ),
        pytest.param(
            {
                "containerStatuses": [has("a", "9", "9")],
                "resources": {"requests": {"cpu": "7"}},
                "allocatedResources": {"cpu": "1"},
            },
            7000,
            id="sums that the kubelet reports take the place of those over containers",
        ),
        pytest.param(
            {
                "containerStatuses": [has("a", "9", "9")],
                "resources": {},
                "allocatedResources": {"cpu": "1"},
            },
            11_000,
            id="both sums are needed",
        ),
        pytest.param(
            {"initContainerStatuses": [has("a", "8", "8")]},
            10_000,
            id="a status is found by name wherever it is",
        ),
    ],
)
def test_a_placed_pod_counts_for_the_largest_of_three_sums(
    status: dict[str, Any], want: int
) -> None:
    containers = [
        container("a", requests={"cpu": "4"}),
        container("b", requests={"cpu": "2"}),
    ]
    pod = make_pod(containers=containers, node="n", status=status)
    assert pod.running_requests.get("cpu", 0) == want
    assert pod.requests == {"cpu": 6000}


def test_defaults_are_added_to_each_of_the_sums() -> None:
    containers = [container("a", requests={"memory": "1Mi"}), container("b")]
    status = {"containerStatuses": [has("a", "50m", "20m")]}
    pod = make_pod(containers=containers, node="n", status=status)
    # What is reported of `a` names no memory; nothing is reported of `b`.
    assert pod.running_nonzero_requests == {"cpu": 200, "memory": 400 * MIB}


@pytest.mark.parametrize("status", [{}, {"containerStatuses": [has("main", "1", "1")]}])
def test_a_pod_that_has_what_it_requests_shares_the_sums_of_its_spec(
    status: dict[str, Any],
) -> None:
    pod = make_pod(cpu="1", node="n", status=status)
    assert pod.running_requests is pod.requests


def test_pod_level_requests_are_resized_too() -> None:
    pod = make_pod(
        resources=pod_level("1"),
        node="n",
        status={
            "resources": {"requests": {"cpu": "2"}},
            "allocatedResources": {"cpu": "3"},
        },
    )
    assert pod.running_requests == {"cpu": 3000}


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        pytest.param([], {"cpu": 2000, "memory": 3 * MIB}, id="what the status names counts too"),
        pytest.param(
            INFEASIBLE, {"cpu": 500, "memory": 3 * MIB}, id="infeasible: the sum over containers"
        ),
    ],
)
def test_pod_level_requests_of_the_status_replace_those_of_the_containers(
    conditions: list[dict[str, str]], want: dict[str, int]
) -> None:
    pod = make_pod(
        containers=[container("a", requests={"cpu": "500m", "memory": "1Mi"})],
        resources=pod_level("2"),
        node="n",
        status={
            "conditions": conditions,
            "containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "500m"}}],
            "resources": {"requests": {"memory": "3Mi", "example.com/foo": 1}},
        },
    )
    assert pod.running_requests == want


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("cpu", True),
        ("memory", True),
        ("ephemeral-storage", True),
        ("nvidia.com/gpu", True),
        ("hugepages-2Mi", True),
        ("attachable-volumes-csi-x", True),
        ("batch.kubernetes.io/slots", True),
        ("pods", False),
        ("foo", False),
        ("requests.nvidia.com/gpu", False),
        ("a/b/c", False),
        ("-bad.com/gpu", False),
        ("example.com/", False),
    ],
)
def test_only_names_that_nodes_count_are_counted(name: str, want: bool) -> None:
    assert is_counted_resource(name) is want
    assert make_pod(requests={name: 2}).requests == (
        {name: 2000 if name == "cpu" else 2} if want else {}
    )


def test_extended_resources_are_those_outside_kubernetes_own_names() -> None:
    assert is_extended_resource("nvidia.com/gpu")
    assert not is_extended_resource("kubernetes.io/foo")
    assert not is_extended_resource("hugepages-2Mi")


def test_qualified_names_follow_the_api() -> None:
    assert is_qualified_name("app")
    assert is_qualified_name("example.com/My_name.1")
    for bad in ("", "/app", "UPPER.com/x", "x" * 64, "a/b/c", "app-", "a b", f"{'x' * 254}/a"):
        assert not is_qualified_name(bad), bad


def test_equal_pods_share_their_sums() -> None:
    one, other = make_pod("a", cpu="1", memory="2Gi"), make_pod("b", cpu="1", memory="2Gi")
    assert one.requests is other.requests
    assert one.running_requests is one.requests
