"""Evictions: what is said of the pod, and which disruption budget is charged."""

from typing import Any

import pytest

from tests.contract.harness import MERGE, Answer, Api, Json, condition

EVICTION: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
BUDGETS = "policy/v1"


async def evict(api: Api, **options: Any) -> Answer:
    """Ask for the eviction of the pod `a`."""
    sent = {**EVICTION, "deleteOptions": options} if options else EVICTION
    return await api.post(api.pods("a", "eviction"), sent)


async def make_running(api: Api, *, is_ready: bool = True) -> None:
    """The pod `a`, which runs."""
    await api.make_pod("a", spec={"nodeName": "n"}, labels={"app": "web"})
    ready = {"type": "Ready", "status": "True" if is_ready else "False"}
    status = {"phase": "Running", "conditions": [ready]}
    assert (await api.patch(api.pods("a", "status"), {"status": status}, MERGE)).status == 200


async def make_budget(
    api: Api, name: str = "keep", *, spec: Json | None = None, **status: Any
) -> None:
    """A budget for the pod `a`, which a controller has looked at if it has a *status*."""
    path = api.path("poddisruptionbudgets", group=BUDGETS)
    selector = {"matchLabels": {"app": "web"}}
    wanted = {"minAvailable": 1, "selector": selector, **(spec or {})}
    await api.make(path, {"metadata": {"name": name}, "spec": wanted})
    if status:
        numbers = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
        known = {"observedGeneration": 1, "expectedPods": 1, **numbers, **status}
        answer = await api.patch(f"{path}/{name}/status", {"status": known}, MERGE)
        assert answer.status == 200, answer


async def budget_status(api: Api, name: str = "keep") -> Json:
    answer = await api.get(api.path("poddisruptionbudgets", name, group=BUDGETS))
    found: Json = answer.body["status"]
    return found


async def test_an_eviction_deletes_the_pod_and_says_so(api: Api) -> None:
    made = await api.make_pod("a", spec={"nodeName": "n"})
    since = made["metadata"]["resourceVersion"]
    async with api.watch(api.pods(), resourceVersion=since) as watch:
        answer = await evict(api)
        assert (answer.status, answer.body["status"]) == (201, "Success")
        marked, ending = [event["object"] for event in await watch.take(2)]
    assert "deletionTimestamp" not in marked["metadata"]
    got = condition(marked, "DisruptionTarget")
    assert got == {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": got["lastTransitionTime"],
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 30
    assert condition(ending, "DisruptionTarget") == got


async def test_a_pod_that_is_evicted_twice_is_marked_once(api: Api) -> None:
    await api.make_pod("a", spec={"nodeName": "n"})
    await evict(api)
    before = (await api.get(api.pods("a"))).body
    answer = await evict(api)
    assert answer.status == 201
    assert (await api.get(api.pods("a"))).body["status"] == before["status"]


async def test_the_condition_of_an_earlier_disruption_is_replaced(api: Api) -> None:
    await make_running(api)
    earlier = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    await api.patch(api.pods("a", "status"), {"status": {"conditions": [earlier]}})
    await evict(api)
    got = condition((await api.get(api.pods("a"))).body, "DisruptionTarget")
    assert got["reason"] == "EvictionByEvictionAPI"
    assert got["lastTransitionTime"] == "2020-01-01T00:00:00Z"


async def test_a_dry_eviction_changes_nothing(api: Api) -> None:
    await make_running(api)
    await make_budget(api, disruptionsAllowed=1)
    before = (await api.get(api.pods("a"))).body, await budget_status(api)
    answer = await api.post(
        api.pods("a", "eviction"), {**EVICTION, "deleteOptions": {"dryRun": ["All"]}}, dryRun="All"
    )
    assert answer.status == 201, answer
    assert ((await api.get(api.pods("a"))).body, await budget_status(api)) == before


async def test_an_eviction_is_of_the_pod_of_its_name(api: Api) -> None:
    await api.make_pod("a", spec={"nodeName": "n"})
    sent = {**EVICTION, "metadata": {"name": "b"}}
    answer = await api.post(api.pods("a", "eviction"), sent)
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_an_eviction_has_preconditions(api: Api) -> None:
    made = await api.make_pod("a", spec={"nodeName": "n"})
    for field, other in (("uid", "other"), ("resourceVersion", "1")):
        answer = await evict(api, preconditions={field: other})
        assert (answer.status, answer.reason) == (409, "Conflict")
    got = (await api.get(api.pods("a"))).body
    assert got == made
    right = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
    assert (await evict(api, preconditions=right)).status == 201


async def test_a_disruption_budget_refuses_an_eviction(api: Api) -> None:
    await make_budget(api)
    await make_running(api)
    answer = await evict(api)
    assert (answer.status, answer.reason) == (429, "TooManyRequests")
    assert answer.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert answer.headers["Retry-After"] == "10"
    got = (await api.get(api.pods("a"))).body
    assert "deletionTimestamp" not in got["metadata"]
    assert {one["type"] for one in got["status"]["conditions"]} == {"Ready"}


async def test_an_eviction_is_charged_to_the_budget(api: Api) -> None:
    await make_running(api)
    await make_budget(api, disruptionsAllowed=2, currentHealthy=3)
    assert (await evict(api)).status == 201
    got = await budget_status(api)
    assert got["disruptionsAllowed"] == 1
    assert list(got["disruptedPods"]) == ["a"]
    assert "conditions" not in got


async def test_the_last_disruption_is_said_in_a_condition(api: Api) -> None:
    await make_running(api)
    await make_budget(api, disruptionsAllowed=1, currentHealthy=2)
    assert (await evict(api)).status == 201
    got = await budget_status(api)
    assert (got["disruptionsAllowed"], list(got["disruptedPods"])) == (0, ["a"])
    (said,) = got["conditions"]
    assert said == {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": 1,
        "lastTransitionTime": said["lastTransitionTime"],
        "reason": "InsufficientPods",
        "message": "",
    }


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_pods_that_do_not_run_are_charged_to_no_budget(api: Api, phase: str) -> None:
    await make_running(api)
    await make_budget(api, disruptionsAllowed=0)
    await api.patch(api.pods("a", "status"), {"status": {"phase": phase}}, MERGE)
    before = await budget_status(api)
    assert (await evict(api)).status == 201
    assert await budget_status(api) == before


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        pytest.param({}, {"currentHealthy": 0}, 429, id="too few are healthy"),
        pytest.param({}, {}, 201, id="enough are healthy"),
        pytest.param({}, {"currentHealthy": 0, "desiredHealthy": 0}, 429, id="none are wanted"),
        pytest.param(
            {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, {"currentHealthy": 0}, 201, id="always"
        ),
        pytest.param(
            {"unhealthyPodEvictionPolicy": "IfHealthyBudget"},
            {"currentHealthy": 0},
            429,
            id="if the others are healthy",
        ),
    ],
)
async def test_pods_that_are_not_ready_are_another_matter(
    api: Api, spec: Json, status: Json, want: int
) -> None:
    await make_running(api, is_ready=False)
    await make_budget(api, spec=spec, disruptionsAllowed=0, **status)
    assert (await evict(api)).status == want
    assert "disruptedPods" not in await budget_status(api)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param(
            {"currentHealthy": 1, "desiredHealthy": 2},
            "The disruption budget keep needs 2 healthy pods and has 1 currently",
            id="too few",
        ),
        pytest.param(
            {"currentHealthy": 3},
            "The disruption budget keep does not allow evicting pods currently",
            id="no reason",
        ),
        pytest.param(
            {
                "currentHealthy": 0,
                "conditions": [
                    {
                        "type": "DisruptionAllowed",
                        "status": "False",
                        "reason": "SyncFailed",
                        "message": "no controller",
                        "lastTransitionTime": "2020-01-01T00:00:00Z",
                    }
                ],
            },
            "The disruption budget keep does not allow evicting pods currently because it failed "
            "sync: no controller",
            id="not in sync",
        ),
    ],
)
async def test_a_budget_says_why_it_allows_no_disruption(api: Api, status: Json, want: str) -> None:
    await make_running(api)
    await make_budget(api, **status)
    answer = await evict(api)
    assert (answer.status, answer.reason) == (429, "TooManyRequests")
    assert answer.body["details"]["causes"][0]["message"] == want


async def test_several_budgets_of_a_pod_are_not_supported(api: Api) -> None:
    await make_running(api)
    for name in ("keep", "keep-2"):
        await make_budget(api, name, disruptionsAllowed=1)
    answer = await evict(api)
    assert answer.body["code"] == 500
    assert "more than one PodDisruptionBudget" in answer.message
    assert "deletionTimestamp" not in (await api.get(api.pods("a"))).body["metadata"]
