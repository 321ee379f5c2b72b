"""Every rule of the invariants, with what it lets pass and what it finds."""

from typing import Any

import pytest

from devkit.faults.invariants import (
    AT_REST,
    Binding,
    Eviction,
    Group,
    Objects,
    Tenure,
    bound_by_leader,
    bound_once,
    grown,
    late,
    late_groups,
    misplaced_devices,
    outdated_conditions,
    overcommitted,
    overdrawn_devices,
    partial_groups,
    shared_devices,
    shared_volumes,
    tenures_of,
    unexpected,
    unprovisioned,
    unreported_bindings,
    unreserved_claims,
    untrue_conditions,
    untrue_events,
    violated_budgets,
)
from devkit.faults.invariants.budgets import allowed_disruptions, matches
from tests.builders import container, node_manifest, pod_manifest, taint

NODE = node_manifest("n", cpu="4", memory="8Gi")
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def binding(pod: str = "p", node: str = "n", *, at: float = 1.0, by: str = "a") -> Binding:
    return Binding(at, f"{pod}-uid", f"default/{pod}", node, by)


def pod(name: str = "p", **words: Any) -> dict[str, Any]:
    return pod_manifest(name, uid=f"{name}-uid", **words)


def texts(found: Any) -> list[str]:
    return [f"{one.about}: {one.text}" for one in found]


# --- histories -------------------------------------------------------------------------------


def test_a_pod_is_bound_once() -> None:
    assert texts(bound_once([binding("p"), binding("q")])) == []
    twice = [binding("p", "n", at=1), binding("q"), binding("p", "m", at=2, by="b")]
    assert texts(bound_once(twice)) == [
        "default/p: bound 2 times: to `n` by `a` at 1.000, to `m` by `b` at 2.000"
    ]


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(binding(at=1), [], id="as the lease begins"),
        pytest.param(binding(at=12), [], id="in a later tenure"),
        pytest.param(
            binding(at=7),
            ["default/p: bound by `a` at 7.000: its lease was over since 2.000 s"],
            id="between tenures",
        ),
        pytest.param(
            binding(at=5),
            ["default/p: bound by `a` at 5.000: its lease was over since 0.000 s"],
            id="as the lease ends",
        ),
        pytest.param(
            binding(at=2, by="b"), ["default/p: bound by `b` at 2.000: no lease"], id="by another"
        ),
    ],
)
def test_only_the_leader_binds(one: Binding, want: list[str]) -> None:
    tenures = [Tenure("a", 1, 5), Tenure("b", 6, 10), Tenure("a", 11, 15)]
    assert texts(bound_by_leader([one], tenures)) == want


def test_tenures_are_made_of_the_versions_of_a_lease() -> None:
    def version(holder: str, seconds: int = 5) -> dict[str, Any]:
        return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds}}

    got = tenures_of(
        [
            (0, version("a")),
            (3, version("a")),  # renewed
            (9, version("a")),  # renewed too late
            (11, version("b")),  # taken
            (12, version("", 1)),  # given back
            (14, version("a")),
        ]
    )
    assert got == [
        Tenure("a", 0, 8),
        Tenure("a", 9, 11),
        Tenure("b", 11, 12),
        Tenure("a", 14, 19),
    ]


def test_a_group_is_bound_whole_or_not_at_all() -> None:
    group = Group("g", 2, frozenset({"p-uid", "q-uid", "r-uid"}))
    assert texts(partial_groups([group], [])) == []
    assert texts(partial_groups([group], [binding("p"), binding("q")])) == []
    assert texts(partial_groups([group], [binding("p"), binding("x")])) == [
        "g: 1 of 3 pods were bound, want 2 or none"
    ]


def test_what_grows_without_bound_is_found() -> None:
    steady = [100.0, 200, 200, 210, 200, 190, 220, 210]
    assert texts(grown("rss", steady)) == []
    assert texts(grown("rss", steady[:7])) == []
    assert texts(grown("rss", [100.0, 200, 300, 400, 500, 600, 700, 800])) == [
        "rss: grew from 350 to 750"
    ]
    assert texts(grown("rss", [0.0, 0, 0, 1, 1, 2, 2, 3], slack=3)) == []


def test_an_unexpected_exception_is_found_in_a_log() -> None:
    assert texts(unexpected("a.log", ["Bound pod", "Cannot get the lease"])) == []
    assert texts(unexpected("a.log", ["ok", "Unexpected exception in a preemption"])) == [
        "a.log: Unexpected exception in a preemption"
    ]


# --- capacity --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "others", "want"),
    [
        pytest.param({"cpu": "4"}, [], [], id="exactly full"),
        pytest.param(
            {"cpu": "3"},
            [pod("q", cpu="1001m", node="n")],
            ["cpu: 1.001 used and 3 requested of 4"],
            id="too much",
        ),
        pytest.param({"cpu": "3"}, [pod("q", cpu="2", node="m")], [], id="elsewhere"),
        pytest.param({"cpu": "3"}, [pod("q", cpu="2", node="n", phase="Failed")], [], id="over"),
        pytest.param(
            {"cpu": "3"},
            [pod("q", cpu="2", node="n", terminating=True)],
            ["cpu: 2 used and 3 requested of 4"],
            id="terminating, and still there",
        ),
        pytest.param({"memory": "1Gi"}, [pod("q", cpu="9", node="n")], [], id="short of another"),
        pytest.param(
            {"a.b/gpu": "1"}, [], ["a.b/gpu: 0 used and 1 requested of 0"], id="not offered"
        ),
    ],
)
def test_a_node_holds_no_more_than_its_allocatable(
    requests: dict[str, Any], others: list[dict[str, Any]], want: list[str]
) -> None:
    before = Objects(nodes=[NODE], pods=[pod("p", requests=requests), *others])
    got = [one.text.partition("not enough: ")[2] for one in overcommitted(binding(), before)]
    assert got == want


def test_a_node_that_is_full_of_pods_takes_no_more() -> None:
    node = node_manifest("n", cpu="4", memory="8Gi", pods=1)
    before = Objects(nodes=[node], pods=[pod("p"), pod("q", node="n")])
    assert [one.rule for one in overcommitted(binding(), before)] == ["overcommitted"]


def grouped(*names: str, **words: Any) -> list[dict[str, Any]]:
    return [pod(name, cpu="2", **words) for name in names]


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param(
            grouped("a", "b"),
            ["g: pending, and there is capacity for 2 pods, it needs 2"],
            id="fits",
        ),
        pytest.param([*grouped("a", "b"), pod("q", cpu="1", node="n")], [], id="half of it fits"),
        pytest.param(
            [*grouped("a", "b"), pod("q", cpu="1", nominated="n")], [], id="beside a nominated pod"
        ),
        pytest.param(
            grouped("a", "b", nominated="n"),
            ["g: pending, and there is capacity for 2 pods, it needs 2"],
            id="nominated itself",
        ),
        pytest.param(grouped("a"), [], id="not all there"),
        pytest.param([*grouped("a"), *grouped("b", node="n")], [], id="begun"),
        pytest.param([pod("a", cpu="1"), pod("b", cpu="2")], [], id="not alike"),
    ],
)
def test_a_group_that_fits_is_not_left_pending(pods: list[dict[str, Any]], want: list[str]) -> None:
    group = Group("g", 2, frozenset({"a-uid", "b-uid"}))
    assert texts(late_groups([group], Objects(nodes=[NODE], pods=pods))) == want


def test_what_a_replica_could_not_know_is_not_its_doing() -> None:
    shrunk = node_manifest("n", cpu="1", memory="8Gi")
    before = Objects(nodes=[shrunk], pods=[pod("p", cpu="2"), pod("q", cpu="2", node="n")])
    assert len(texts(overcommitted(binding(), before))) == 1
    assert texts(overcommitted(binding(), before, known=[NODE])) == []
    full = Objects(nodes=[NODE], pods=[pod("p", cpu="2"), pod("q", cpu="3", node="n")])
    assert len(texts(overcommitted(binding(), full))) == 1
    assert texts(overcommitted(binding(), full, unseen={"q-uid"})) == []


def test_a_binding_to_a_node_that_is_gone_is_found() -> None:
    before = Objects(pods=[pod("p")])
    assert texts(overcommitted(binding(), before)) == ["default/p: bound to `n`, which is gone"]


@pytest.mark.parametrize(
    ("waits", "others", "want"),
    [
        pytest.param(pod(cpu="5"), [], "", id="too large"),
        pytest.param(pod(cpu="3"), [pod("q", cpu="2", node="n")], "", id="no capacity left"),
        pytest.param(pod(cpu="3"), [], "has enough left", id="fits"),
        pytest.param(
            pod(cpu="3", priority=5),
            [pod("q", cpu="2", node="n", priority=4)],
            "has enough left once pods of lower priority are preempted",
            id="fits by preemption",
        ),
        pytest.param(
            pod(cpu="3", priority=5, spec={"preemptionPolicy": "Never"}),
            [pod("q", cpu="2", node="n", priority=4)],
            "",
            id="must not preempt",
        ),
        pytest.param(pod(cpu="3", gates=["g"]), [], "", id="gated"),
        pytest.param(
            pod(cpu="3"), [pod("q", cpu="5", nominated="n")], "", id="beside a nominated pod"
        ),
        pytest.param(pod(cpu="3", node_selector={"a": "b"}), [], "", id="asks for more"),
        pytest.param(pod(cpu="3", scheduler_name="other"), [], "", id="of another scheduler"),
        pytest.param(pod(cpu="3", terminating=True), [], "", id="terminating"),
        pytest.param(
            pod(cpu="3", containers=[container(ports=[80])]), [], "", id="asks for a port"
        ),
    ],
)
def test_a_pod_that_fits_is_not_left_pending(
    waits: dict[str, Any], others: list[dict[str, Any]], want: str
) -> None:
    got = texts(late(Objects(nodes=[NODE], pods=[waits, *others])))
    assert got == ([f"default/p: pending, and `n` {want}"] if want else [])


def test_a_node_that_is_closed_is_no_place_for_a_pod() -> None:
    closed = [
        node_manifest("n", cpu="4", taints=[taint("a")]),
        node_manifest("m", cpu="4", unschedulable=True),
    ]
    assert texts(late(Objects(nodes=closed, pods=[pod(cpu="1")]))) == []


# --- exclusives ------------------------------------------------------------------------------


def claim(name: str, *devices: str, users: tuple[str, ...] = (), **result: Any) -> dict[str, Any]:
    results = [
        {"request": "r", "driver": "d", "pool": "n", "device": device, **result}
        for device in devices
    ]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in users],
        },
    }


def device_slice(*devices: dict[str, Any], **spec: Any) -> dict[str, Any]:
    named = {"driver": "d", "pool": {"name": "n"}, "devices": devices, **spec}
    return {"metadata": {"name": "s"}, "spec": named}


def test_a_device_is_allocated_once() -> None:
    fine = [claim("a", "0", "1"), claim("b", "2"), claim("watch", "2", adminAccess=True)]
    assert texts(shared_devices(Objects(claims=fine))) == []
    got = texts(shared_devices(Objects(claims=[claim("a", "0", "1"), claim("b", "1")])))
    assert got == ["d/n/1: allocated to `default/a`, `default/b`"]


def test_only_shares_of_a_device_are_allocated_side_by_side() -> None:
    shares = [claim("a", "0", shareID="x"), claim("b", "0", shareID="y")]
    assert texts(shared_devices(Objects(claims=shares))) == []
    got = texts(shared_devices(Objects(claims=[shares[0], claim("b", "0")])))
    assert got == ["d/n/0: allocated to `default/a`, and as a whole to another"]


def test_a_claim_has_no_more_users_than_allowed() -> None:
    users = tuple(f"p{n}" for n in range(257))
    assert texts(shared_devices(Objects(claims=[claim("a", "0", users=users[:256])]))) == []
    got = texts(shared_devices(Objects(claims=[claim("a", "0", users=users)])))
    assert got == ["default/a: reserved for 257, more than 256"]


@pytest.mark.parametrize(
    ("each", "want"),
    [("4", []), ("6", ["d/n/0: memory: 12 consumed of 10"])],
)
def test_shares_stay_within_the_capacity_of_a_device(each: str, want: list[str]) -> None:
    offered = device_slice({"name": "0", "capacity": {"memory": {"value": "10"}}})
    claims = [
        claim(name, "0", shareID=name, consumedCapacity={"memory": each}) for name in ("a", "b")
    ]
    assert texts(overdrawn_devices(Objects(claims=claims, slices=[offered]))) == want


@pytest.mark.parametrize(
    ("each", "want"),
    [("20Gi", []), ("21Gi", ["d/n/gpu/memory: 4.50972e+10 consumed of 4.29497e+10"])],
)
def test_parts_of_a_device_stay_within_its_counters(each: str, want: list[str]) -> None:
    use = [{"counterSet": "gpu", "counters": {"memory": {"value": each}}}]
    offered = [
        device_slice(
            {"name": "0", "consumesCounters": use}, {"name": "1", "consumesCounters": use}
        ),
        device_slice(sharedCounters=[{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]),
    ]
    claims = [claim("a", "0"), claim("b", "1")]
    assert texts(overdrawn_devices(Objects(claims=claims, slices=offered))) == want


def volume_claim(name: str, volume: str = "", mode: str = "ReadWriteOnce") -> dict[str, Any]:
    spec = {"accessModes": [mode], **({"volumeName": volume} if volume else {})}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def volume(name: str, claim_name: str) -> dict[str, Any]:
    spec = {"claimRef": {"namespace": "default", "name": claim_name}}
    return {"metadata": {"name": name}, "spec": spec}


def using(name: str, claim_name: str, **words: Any) -> dict[str, Any]:
    source = {"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}
    return pod(name, volumes=[source], **words)


def test_a_volume_of_one_pod_has_one() -> None:
    mine = volume_claim("c", mode="ReadWriteOncePod")
    fine = [using("p", "c", node="n"), using("q", "c"), using("r", "c", node="n", phase="Failed")]
    assert texts(shared_volumes(Objects(volume_claims=[mine], pods=fine))) == []
    both = [using("p", "c", node="n"), using("q", "c", node="m")]
    assert texts(shared_volumes(Objects(volume_claims=[volume_claim("c")], pods=both))) == []
    assert texts(shared_volumes(Objects(volume_claims=[mine], pods=both))) == [
        "default/c: is for one pod, and used by `default/p`, `default/q`"
    ]


def test_a_volume_is_bound_to_one_claim_and_a_claim_to_one_volume() -> None:
    fine = Objects(
        volume_claims=[volume_claim("c", "v"), volume_claim("d", "w"), volume_claim("e")],
        volumes=[volume("v", "c"), volume("w", "d")],
    )
    assert texts(shared_volumes(fine)) == []
    wrong = Objects(
        volume_claims=[volume_claim("c", "v"), volume_claim("d", "v")],
        volumes=[volume("v", "c"), volume("w", "c")],
    )
    assert texts(shared_volumes(wrong)) == [
        "v: is bound to the claims `default/c`, `default/d`",
        "default/c: has the volumes `v`, `w`",
    ]


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        pytest.param([claim("c", "0", users=("p-uid",))], "", id="reserved"),
        pytest.param([], "its claim `default/c` is gone", id="gone"),
        pytest.param([claim("c", "0")], "its claim `default/c` is not reserved for it", id="not"),
        pytest.param(
            [{**claim("c"), "status": {}}],
            "its claim `default/c` is not allocated",
            id="not allocated",
        ),
    ],
)
def test_a_bound_pod_has_its_claims(claims: list[dict[str, Any]], want: str) -> None:
    user = pod(node="n", spec={"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]})
    waits = pod("q", spec={"resourceClaims": [{"name": "x", "resourceClaimName": "none"}]})
    got = texts(unreserved_claims(Objects(pods=[user, waits], claims=claims)))
    assert got == ([f"default/p: bound, and {want}"] if want else [])


# --- claims ----------------------------------------------------------------------------------


def local_volume(name: str, claim_name: str, node: str) -> dict[str, Any]:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    found = volume(name, claim_name)
    found["spec"]["nodeAffinity"] = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    }
    return found


def selecting(node: str) -> dict[str, Any]:
    found = volume_claim("c")
    found["spec"]["storageClassName"] = "s"
    found["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": node}
    return found


@pytest.mark.parametrize(
    ("own", "mode", "is_late"),
    [
        pytest.param(selecting("n"), "WaitForFirstConsumer", True, id="to be made there"),
        pytest.param(selecting("m"), "WaitForFirstConsumer", False, id="to be made elsewhere"),
        pytest.param(selecting("n"), "Immediate", False, id="to be made anywhere"),
        pytest.param(volume_claim("c", "v"), "", True, id="is there"),
        pytest.param(volume_claim("c", "w"), "", False, id="is elsewhere"),
        pytest.param(volume_claim("other"), "", False, id="no claim"),
    ],
)
def test_a_pod_whose_volume_is_in_reach_is_not_left_pending(
    own: dict[str, Any], mode: str, is_late: bool
) -> None:
    objects = Objects(
        nodes=[NODE],
        pods=[using("p", "c")],
        volume_claims=[own],
        volumes=[local_volume("v", "c", "n"), local_volume("w", "c", "m")],
        storage_classes=[{"metadata": {"name": "s"}, "volumeBindingMode": mode}],
    )
    want = ["default/p: pending, and `n` has enough left"] if is_late else []
    assert texts(late(objects)) == want


def requesting(name: str = "c", **request: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", **request}
    devices = {"requests": [{"name": "r", "exactly": exactly}]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}


@pytest.mark.parametrize(
    ("claims", "is_late"),
    [
        pytest.param([requesting()], True, id="a device is free"),
        pytest.param([requesting(), claim("other", "0")], False, id="none is free"),
        pytest.param([requesting(count=2)], False, id="asks for several"),
        pytest.param([claim("c", "0")], True, id="has its device there"),
        pytest.param([claim("c", "0", pool="m")], False, id="has its device elsewhere"),
        pytest.param([], False, id="no claim"),
    ],
)
def test_a_pod_whose_device_is_in_reach_is_not_left_pending(
    claims: list[dict[str, Any]], is_late: bool
) -> None:
    selector = {"cel": {"expression": "device.driver == 'd'"}}
    objects = Objects(
        nodes=[NODE],
        pods=[pod(spec={"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]})],
        claims=claims,
        slices=[device_slice({"name": "0"}, nodeName="n")],
        device_classes=[{"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}],
    )
    assert bool(texts(late(objects))) is is_late


@pytest.mark.parametrize(
    ("own", "want"),
    [
        pytest.param(volume_claim("c", "v"), [], id="there"),
        pytest.param(
            volume_claim("c", "w"),
            ["default/p: bound to `n`, and its volume is on `m`"],
            id="elsewhere",
        ),
        pytest.param(
            volume_claim("c"), ["default/p: bound, and its claim `default/c` has no volume"],
            id="not made",
        ),
        pytest.param(volume_claim("other"), [], id="deleted"),
    ],
)  # fmt: skip
def test_a_pod_is_bound_where_its_volumes_are(own: dict[str, Any], want: list[str]) -> None:
    volumes = [local_volume("v", "c", "n"), local_volume("w", "c", "m")]
    before = Objects(pods=[using("p", "c")], volume_claims=[own], volumes=volumes)
    assert texts(unprovisioned(binding(), before)) == want


def test_a_pod_runs_where_its_devices_are() -> None:
    one = pod(node="n", spec={"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]})
    got = [
        texts(
            misplaced_devices(
                Objects(
                    pods=[one],
                    claims=[claim("c", "0", users=("p-uid",))],
                    slices=[device_slice({"name": "0"}, nodeName=node)],
                )
            )
        )
        for node in ("n", "m")
    ]
    assert got == [[], ["default/p: bound to `n`, and its device is on `m`"]]


# --- budgets ---------------------------------------------------------------------------------


def budget(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }


def web(name: str, node: str = "n", *, ready: bool = True, **words: Any) -> dict[str, Any]:
    status = READY if ready else {}
    return pod(name, labels={"app": "web"}, node=node, status=status, **words)


@pytest.mark.parametrize(
    ("spec", "ready", "want"),
    [
        ({"minAvailable": 2}, 4, 2),
        ({"minAvailable": "50%"}, 3, 1),
        ({"maxUnavailable": 1}, 4, 1),
        ({"maxUnavailable": 1}, 3, 0),
        ({"maxUnavailable": "30%"}, 4, 2),
        ({"minAvailable": 5}, 4, 0),
    ],
)
def test_what_a_budget_allows(spec: dict[str, Any], ready: int, want: int) -> None:
    pods = [web(f"w{n}", ready=n < ready) for n in range(4)]
    assert allowed_disruptions(budget(**spec), [*pods, pod("x", node="n")]) == want


def test_selectors_select_by_labels_and_expressions() -> None:
    def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}

    labels = {"app": "web"}
    right = [
        {}, {"matchLabels": labels}, expression("app", "In", "web"), expression("app", "Exists"),
        expression("x", "NotIn", "1"), expression("x", "DoesNotExist"),
    ]  # fmt: skip
    wrong = [
        None, {"matchLabels": {"app": "db"}}, expression("app", "NotIn", "web"),
        expression("x", "In", "1"), expression("x", "Exists"), expression("app", "DoesNotExist"),
    ]  # fmt: skip
    assert [matches(selector, labels) for selector in right] == [True] * len(right)
    assert [matches(selector, labels) for selector in wrong] == [False] * len(wrong)


def eviction(*victims: str) -> Eviction:
    return Eviction(1.0, "default/p", "n", tuple(f"default/{name}" for name in victims))


def test_preemption_violates_a_budget_only_where_it_must() -> None:
    wants = pod("p", cpu="4", priority=9)
    full = [web("w", cpu="4")]
    strict = [budget(maxUnavailable=0)]
    must = Objects(nodes=[NODE], pods=[wants, *full], budgets=strict)
    assert texts(violated_budgets(eviction("w"), must)) == []
    other = node_manifest("m", cpu="4", memory="8Gi")
    free = Objects(
        nodes=[NODE, other],
        pods=[wants, *full, pod("x", cpu="4", node="m")],
        budgets=strict,
    )
    assert texts(violated_budgets(eviction("w"), free)) == [
        "default/p: violates `default/b` on `n`, and not needed on `m`"
    ]
    allowed = Objects(nodes=free.nodes, pods=free.pods, budgets=[budget(maxUnavailable=1)])
    assert texts(violated_budgets(eviction("w"), allowed)) == []


def test_what_the_disruption_controller_says_counts() -> None:
    wants, other = pod("p", cpu="4", priority=9), node_manifest("m", cpu="4", memory="8Gi")
    said = {**budget(maxUnavailable=1), "status": {"disruptionsAllowed": 0}}
    before = Objects(nodes=[NODE, other], pods=[wants, web("w", cpu="4")], budgets=[said])
    assert len(texts(violated_budgets(eviction("w"), before))) == 1


def test_preemption_evicts_pods_of_lower_priority_only() -> None:
    pods = [pod("low", node="n"), pod("same", node="n", priority=9), pod(cpu="4", priority=9)]
    before = Objects(nodes=[NODE], pods=pods)
    assert texts(violated_budgets(eviction("low", "gone"), before)) == []
    assert texts(violated_budgets(eviction("same"), before)) == [
        "default/p: has priority 9, and preempts `default/same` with 9"
    ]
    never = pod(cpu="4", priority=9, spec={"preemptionPolicy": "Never"})
    assert texts(violated_budgets(eviction("low"), Objects(nodes=[NODE], pods=[*pods[:2], never])))


# --- conditions and events -------------------------------------------------------------------


def scheduled(status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    one = {"type": "PodScheduled", "status": status, "reason": reason, "message": message}
    return {"conditions": [one]}


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(pod(node="n", status=scheduled("True")), "", id="bound"),
        pytest.param(pod(node="n"), "", id="bound, without conditions"),
        pytest.param(
            pod(node="n", status=scheduled("False", "Unschedulable", "0/1")),
            "bound to `n`, and PodScheduled is False",
            id="bound, and said not to be",
        ),
        pytest.param(
            pod(status=scheduled("False", "Unschedulable", "0/1 nodes")), "", id="unschedulable"
        ),
        pytest.param(pod(), "pending, and has no condition PodScheduled", id="unseen"),
        pytest.param(
            pod(status=scheduled("True")), "pending, and PodScheduled is True", id="not bound"
        ),
        pytest.param(
            pod(status=scheduled("False", "Unschedulable")),
            "pending for the reason `Unschedulable`, with message ``",
            id="no message",
        ),
        pytest.param(
            pod(gates=["g"], status=scheduled("False", "Unschedulable", "0/1 nodes")),
            "pending for the reason `Unschedulable`, with message `0/1 nodes`",
            id="gated, and said to be unschedulable",
        ),
        pytest.param(
            pod(status={**scheduled("False", "Unschedulable", "0/1"), "nominatedNodeName": "gone"}),
            "nominated to `gone`, which does not exist",
            id="nominated to a node that is gone",
        ),
        pytest.param(pod(scheduler_name="other"), "", id="of another scheduler"),
    ],
)
def test_conditions_are_true(one: dict[str, Any], want: str) -> None:
    got = texts(untrue_conditions(Objects(nodes=[NODE], pods=[one])))
    assert got == ([f"default/p: {want}"] if want else [])


def test_events_are_true() -> None:
    said = {
        "regarding": {"uid": "p-uid"},
        "reason": "Scheduled",
        "note": "Successfully assigned default/p to n",
    }
    other = {**said, "regarding": {"uid": "none"}}
    failed = {**said, "reason": "FailedScheduling", "note": "0/1 nodes are available"}
    fine = Objects(pods=[pod(node="n")], events=[said, other, failed])
    assert texts(untrue_events(fine)) == []
    got = [texts(untrue_events(Objects(pods=[one], events=[said]))) for one in
           (pod(), pod(node="m"))]  # fmt: skip
    assert got == [
        ["default/p: pending, and its event: Successfully assigned default/p to n"],
        ["default/p: on `m`, and its event: Successfully assigned default/p to n"],
    ]


def test_conditions_speak_of_the_nodes_that_there_are() -> None:
    def waiting(message: str) -> Objects:
        return Objects(
            nodes=[NODE, node_manifest("m")],
            pods=[pod(status=scheduled("False", "Unschedulable", message))],
        )

    for fine in ("0/2 nodes are available: 2 Insufficient cpu.", "0/1 nodes are available: 1 no."):
        assert texts(outdated_conditions(waiting(fine))) == []
    old = "0/3 nodes are available: 3 Insufficient cpu."
    assert texts(outdated_conditions(waiting(old))) == [
        f"default/p: there are 2 nodes, and its condition says: {old}"
    ]


def test_a_binding_has_an_event() -> None:
    said = {"regarding": {"uid": "p-uid"}, "reason": "Scheduled"}
    there = Objects(pods=[pod("p", node="n"), pod("q", node="n")], events=[said])
    assert texts(unreported_bindings([binding("p"), binding("gone")], there)) == []
    assert texts(unreported_bindings([binding("p"), binding("q")], there)) == [
        "default/q: bound to `n` at 1.000, and no event says so"
    ]


def test_rules_for_rest_find_nothing_wrong_with_an_empty_cluster() -> None:
    assert [one for rule in AT_REST.values() for one in rule(Objects())] == []
