"""What the API server does to a pod before a scheduler sees it: defaults, admission, rules."""

from typing import Any

import pytest

from tests.contract.harness import Api, Breakable, condition, pod, requesting

NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
UNREACHABLE = {**NOT_READY, "key": "node.kubernetes.io/unreachable"}


async def test_a_new_pod_waits_for_the_default_scheduler(api: Api) -> None:
    made = await api.make_pod("a")
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert "nodeName" not in made["spec"]
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["metadata"]["generation"] == 1


async def test_an_empty_scheduler_name_is_the_default_one(api: Api) -> None:
    made = await api.make_pod("a", spec={"schedulerName": ""})
    assert made["spec"]["schedulerName"] == "default-scheduler"


async def test_another_scheduler_name_is_kept(api: Api) -> None:
    made = await api.make_pod("a", spec={"schedulerName": "starsched"})
    assert made["spec"]["schedulerName"] == "starsched"


async def test_a_status_sent_with_a_new_pod_is_dropped(api: Api) -> None:
    sent = {**pod("a"), "status": {"phase": "Running", "nominatedNodeName": "n"}}
    made = await api.make(api.pods(), sent)
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_pod_fields_are_defaulted(api: Api) -> None:
    spec = (await api.make_pod("a"))["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert spec["priority"] == 0
    assert spec["containers"][0]["resources"] == {}


async def test_ports_are_tcp_unless_they_say_otherwise(api: Api) -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 53, "protocol": "UDP"}]
    container = {"name": "main", "image": "i", "ports": ports}
    made = await api.make_pod("a", spec={"containers": [container]})
    got = [port["protocol"] for port in made["spec"]["containers"][0]["ports"]]
    assert got == ["TCP", "UDP"]


async def test_ports_of_a_host_network_pod_are_host_ports(api: Api) -> None:
    container = {"name": "main", "image": "i", "ports": [{"containerPort": 80}]}
    made = await api.make_pod("a", spec={"hostNetwork": True, "containers": [container]})
    assert made["spec"]["containers"][0]["ports"][0]["hostPort"] == 80


async def test_pods_tolerate_lost_nodes_for_five_minutes(api: Api) -> None:
    made = await api.make_pod("a")
    assert made["spec"]["tolerations"] == [NOT_READY, UNREACHABLE]


async def test_default_tolerations_come_after_those_of_the_pod(api: Api) -> None:
    own = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    made = await api.make_pod("a", spec={"tolerations": [own]})
    assert made["spec"]["tolerations"] == [own, NOT_READY, UNREACHABLE]


async def test_a_pod_that_tolerates_everything_gets_no_more(api: Api) -> None:
    made = await api.make_pod("a", spec={"tolerations": [{"operator": "Exists"}]})
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]


async def test_requests_default_to_limits(api: Api) -> None:
    limits = {"cpu": "1", "memory": "1Gi", "example.com/gpu": "2"}
    made = await api.make_pod("a", spec=requesting(limits=limits, requests={"cpu": "500m"}))
    got = made["spec"]["containers"][0]["resources"]["requests"]
    assert got == {"cpu": "500m", "memory": "1Gi", "example.com/gpu": "2"}


async def test_requests_of_init_containers_default_to_limits(api: Api) -> None:
    init = {"name": "init", "image": "i", "resources": {"limits": {"cpu": "2"}}}
    made = await api.make_pod("a", spec={"initContainers": [init]})
    assert made["spec"]["initContainers"][0]["resources"]["requests"] == {"cpu": "2"}


async def test_pod_level_requests_default_to_limits(api: Api) -> None:
    made = await api.make_pod("a", spec={"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}})
    want = {"cpu": "1", "memory": "1Gi"}
    assert made["spec"]["resources"] == {"limits": want, "requests": want}


async def test_pod_level_requests_default_to_the_sum_over_containers(api: Api) -> None:
    containers = [
        {"name": "a", "image": "i", "resources": {"requests": {"cpu": "100m"}}},
        {"name": "b", "image": "i", "resources": {"requests": {"cpu": "100m"}}},
    ]
    spec = {"containers": containers, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    made = await api.make_pod("a", spec=spec)
    assert made["spec"]["resources"]["requests"] == {"cpu": "200m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        pytest.param({}, "BestEffort", id="nothing asked for"),
        pytest.param({"requests": {"cpu": "1"}}, "Burstable", id="requests alone"),
        pytest.param({"limits": {"cpu": "1"}}, "Burstable", id="one of two limits"),
        pytest.param({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed", id="limits"),
        pytest.param(
            {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            "Burstable",
            id="requests below limits",
        ),
        pytest.param({"requests": {"cpu": "0"}}, "BestEffort", id="zero asked for"),
        pytest.param({"limits": {"example.com/gpu": "1"}}, "BestEffort", id="devices alone"),
    ],
)
async def test_the_qos_class_follows_from_resources(
    api: Api, resources: dict[str, Any], want: str
) -> None:
    made = await api.make_pod("a", spec=requesting(**resources))
    assert made["status"]["qosClass"] == want


async def test_a_gated_pod_says_why_it_waits(api: Api) -> None:
    made = await api.make_pod("a", spec={"schedulingGates": [{"name": "example.com/quota"}]})
    got = condition(made, "PodScheduled")
    assert got.pop("lastTransitionTime") == made["metadata"]["creationTimestamp"]
    assert got == {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


async def test_a_gated_pod_cannot_be_created_on_a_node(api: Api) -> None:
    spec = {"schedulingGates": [{"name": "example.com/quota"}], "nodeName": "somewhere"}
    answer = await api.post(api.pods(), pod("a", spec=spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "cannot be set until all schedulingGates have been cleared" in answer.message


async def test_gates_can_be_removed_one_by_one(api: Api) -> None:
    made = await api.make_pod("a", spec={"schedulingGates": [{"name": "x"}, {"name": "y"}]})
    made["spec"]["schedulingGates"] = [{"name": "y"}]
    made = (await api.put(api.pods("a"), made)).body
    assert made["spec"]["schedulingGates"] == [{"name": "y"}]
    assert made["metadata"]["generation"] == 2
    del made["spec"]["schedulingGates"]
    made = (await api.put(api.pods("a"), made)).body
    assert "schedulingGates" not in made["spec"]
    assert condition(made, "PodScheduled")["reason"] == "SchedulingGated"


async def test_gates_cannot_be_added(api: Api) -> None:
    made = await api.make_pod("a")
    made["spec"]["schedulingGates"] = [{"name": "late"}]
    answer = await api.put(api.pods("a"), made)
    assert answer.status == 422
    assert "only deletion is allowed, but found new scheduling gate 'late'" in answer.message


async def test_a_gated_pod_may_narrow_its_node_selector(api: Api) -> None:
    made = await api.make_pod("a", spec={"schedulingGates": [{"name": "x"}]})
    made["spec"]["nodeSelector"] = {"disk": "ssd"}
    assert (await api.put(api.pods("a"), made)).status == 200


async def test_the_priority_comes_from_the_class(api: Api) -> None:
    name = api.unique("high")
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    sent = {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}
    await api.make(path, sent)
    sent_pod = pod("a", spec={"priorityClassName": name})
    answer = await api.eventually(lambda: api.post(api.pods(), sent_pod), lambda a: a.status == 201)
    assert answer.body["spec"]["priority"] == 1000
    assert answer.body["spec"]["preemptionPolicy"] == "Never"


async def test_the_system_priority_classes_exist(api: Api) -> None:
    made = await api.make_pod("a", spec={"priorityClassName": "system-node-critical"})
    assert made["spec"]["priority"] == 2_000_001_000


async def test_an_unknown_priority_class_is_forbidden(api: Api) -> None:
    answer = await api.post(api.pods(), pod("a", spec={"priorityClassName": "nope"}))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    want = 'pods "a" is forbidden: no PriorityClass with name nope was found'
    assert answer.message == want


async def test_a_priority_without_a_class_is_forbidden(api: Api) -> None:
    answer = await api.post(api.pods(), pod("a", spec={"priority": 5}))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert "the integer value of priority (5) must not be provided in pod spec" in answer.message


async def test_the_global_default_class_applies_to_pods_without_one(breakable: Breakable) -> None:
    api = breakable.api
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await api.make(path, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    answer = await api.eventually(
        lambda: api.post(api.pods(), pod("a"), dryRun="All"),
        lambda answer: answer.body["spec"]["priority"] == 7,
    )
    assert answer.body["spec"]["priorityClassName"] == "usual"


async def test_the_overhead_comes_from_the_runtime_class(api: Api) -> None:
    name = api.unique("sandboxed")
    runtime = {
        "metadata": {"name": name},
        "handler": "sandbox",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"sandbox": "yes"}},
    }
    await api.make("/apis/node.k8s.io/v1/runtimeclasses", runtime)
    sent = pod("a", spec={"runtimeClassName": name})
    answer = await api.eventually(lambda: api.post(api.pods(), sent), lambda a: a.status == 201)
    assert answer.body["spec"]["overhead"] == {"cpu": "250m", "memory": "64Mi"}
    assert answer.body["spec"]["nodeSelector"] == {"sandbox": "yes"}


async def test_an_overhead_of_the_pods_own_is_forbidden(api: Api) -> None:
    answer = await api.post(api.pods(), pod("a", spec={"overhead": {"cpu": "1"}}))
    assert (answer.status, answer.reason) == (403, "Forbidden")


_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": []}, "spec.containers: Required value", id="no containers"),
        pytest.param(
            {"containers": [{"name": "a"}]},
            "spec.containers[0].image: Required value",
            id="no image",
        ),
        pytest.param(
            {"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]},
            'spec.containers[1].name: Duplicate value: "a"',
            id="a name twice",
        ),
        pytest.param(
            requesting(requests={"cpu": "-1"}),
            "spec.containers[0].resources.requests[cpu]: "
            'Invalid value: "-1": must be greater than or equal to 0',
            id="negative request",
        ),
        pytest.param(
            requesting(requests={"cpu": "2"}, limits={"cpu": "1"}),
            "spec.containers[0].resources.requests: "
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
            id="request above limit",
        ),
        pytest.param(
            requesting(requests={"example.com/gpu": "1"}),
            "spec.containers[0].resources.limits: "
            "Required value: Limit must be set for non overcommitable resources",
            id="device without limit",
        ),
        pytest.param(
            requesting(limits={"example.com/gpu": "500m"}),
            "[spec.containers[0].resources.limits[example.com/gpu]: "
            'Invalid value: "500m": must be an integer, '
            "spec.containers[0].resources.requests[example.com/gpu]: "
            'Invalid value: "500m": must be an integer]',
            id="half a device",
        ),
        pytest.param(
            {"tolerations": [{"key": "a", "operator": "Like"}]},
            "spec.tolerations[0].operator: "
            'Unsupported value: "Like": supported values: "Equal", "Exists"',
            id="toleration operator",
        ),
        pytest.param(
            {"tolerations": [{"key": "a", "effect": "Never"}]},
            'spec.tolerations[0].effect: Unsupported value: "Never": supported values: '
            '"NoSchedule", "PreferNoSchedule", "NoExecute"',
            id="toleration effect",
        ),
        pytest.param(
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            "spec.topologySpreadConstraints[0].maxSkew: "
            "Invalid value: 0: must be greater than zero",
            id="no skew allowed",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {_HARD: {"nodeSelectorTerms": []}}}},
            f"spec.affinity.nodeAffinity.{_HARD}.nodeSelectorTerms: "
            "Required value: must have at least one node selector term",
            id="no node selector term",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {_SOFT: [{"weight": 101, "preference": {}}]}}},
            f"spec.affinity.nodeAffinity.{_SOFT}[0].weight: "
            "Invalid value: 101: must be in the range 1-100",
            id="weight",
        ),
    ],
)
async def test_a_pod_that_breaks_a_rule_is_invalid(
    api: Api, spec: dict[str, Any], want: str
) -> None:
    answer = await api.post(api.pods(), pod("a", spec=spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == f'Pod "a" is invalid: {want}'


async def test_the_node_of_a_pod_cannot_be_updated(api: Api) -> None:
    made = await api.make_pod("a")
    made["spec"]["nodeName"] = "somewhere"
    answer = await api.put(api.pods("a"), made)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "spec: Forbidden: pod updates may not change fields other than" in answer.message


async def test_requests_of_a_pod_cannot_be_updated(api: Api) -> None:
    made = await api.make_pod("a")
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    assert (await api.put(api.pods("a"), made)).status == 422


async def test_tolerations_of_a_pod_can_only_grow(api: Api) -> None:
    made = await api.make_pod("a")
    made["spec"]["tolerations"].append({"key": "x", "operator": "Exists"})
    made = (await api.put(api.pods("a"), made)).body
    assert len(made["spec"]["tolerations"]) == 3
    made["spec"]["tolerations"] = made["spec"]["tolerations"][:2]
    answer = await api.put(api.pods("a"), made)
    assert answer.status == 422
    assert "existing toleration can not be modified" in answer.message


async def test_labels_of_a_pod_can_be_updated(api: Api) -> None:
    made = await api.make_pod("a")
    made["metadata"]["labels"] = {"tier": "web"}
    answer = await api.put(api.pods("a"), made)
    assert answer.body["metadata"]["labels"] == {"tier": "web"}
    assert answer.body["metadata"]["generation"] == 1
