"""Lists: pages, versions, selectors."""

import asyncio

import pytest

from engine.core.manifests.kinds import KINDS, Kind
from tests.contract.harness import Api, names, pod

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


async def five(api: Api) -> None:
    for index in range(5):
        await api.make_pod(f"p{index}", labels={"n": str(index), "app": "web"})


async def test_a_list_names_its_kind_once(api: Api) -> None:
    await five(api)
    body = (await api.get(api.pods())).body
    assert (body["kind"], body["apiVersion"]) == ("PodList", "v1")
    assert "kind" not in body["items"][0]
    assert "apiVersion" not in body["items"][0]


async def test_a_list_is_in_order_of_names(api: Api) -> None:
    for name in ("b", "c", "a"):
        await api.make_pod(name)
    assert names(await api.get(api.pods())) == ["a", "b", "c"]


async def test_the_version_of_a_list_covers_what_it_shows(api: Api) -> None:
    made = await api.make_pod("a")
    body = (await api.get(api.pods())).body
    assert int(body["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


async def test_a_list_comes_in_pages(api: Api) -> None:
    await five(api)
    first = await api.get(api.pods(), limit=2)
    assert names(first) == ["p0", "p1"]
    assert first.body["metadata"]["remainingItemCount"] == 3
    second = await api.get(api.pods(), limit=2, **{"continue": first.body["metadata"]["continue"]})
    assert names(second) == ["p2", "p3"]
    assert second.body["metadata"]["remainingItemCount"] == 1
    third = await api.get(api.pods(), limit=2, **{"continue": second.body["metadata"]["continue"]})
    assert names(third) == ["p4"]
    assert "continue" not in third.body["metadata"]
    assert "remainingItemCount" not in third.body["metadata"]


async def test_pages_show_one_moment(api: Api) -> None:
    await five(api)
    first = await api.get(api.pods(), limit=2)
    await api.delete(api.pods("p3"))
    await api.make_pod("p2b")
    token = first.body["metadata"]["continue"]
    rest = await api.get(api.pods(), limit=10, **{"continue": token})
    assert names(rest) == ["p2", "p3", "p4"]
    got = rest.body["metadata"]["resourceVersion"]
    assert got == first.body["metadata"]["resourceVersion"]


async def test_pages_with_a_selector_hold_what_matches(api: Api) -> None:
    await five(api)
    first = await api.get(api.pods(), limit=2, labelSelector="n notin (1)")
    assert names(first) == ["p0", "p2"]
    assert "remainingItemCount" not in first.body["metadata"]
    token = first.body["metadata"]["continue"]
    rest = await api.get(api.pods(), limit=2, labelSelector="n notin (1)", **{"continue": token})
    assert names(rest) == ["p3", "p4"]


async def test_a_page_does_not_take_a_version(api: Api) -> None:
    await five(api)
    token = (await api.get(api.pods(), limit=2)).body["metadata"]["continue"]
    answer = await api.get(api.pods(), resourceVersion=1, **{"continue": token})
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_a_malformed_continue_token_is_a_bad_request(api: Api) -> None:
    answer = await api.get(api.pods(), limit=2, **{"continue": "garbage"})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith("invalid continue token: continue key is not valid")


async def test_version_zero_takes_any_state_and_has_no_pages(api: Api) -> None:
    await five(api)
    answer = await api.eventually(
        lambda: api.get(api.pods(), limit=2, resourceVersion=0),
        lambda answer: len(answer.body["items"]) == 5,
    )
    assert "continue" not in answer.body["metadata"]


async def test_a_version_asks_for_a_state_no_older(api: Api) -> None:
    made = await api.make_pod("a")
    version = made["metadata"]["resourceVersion"]
    answer = await api.get(api.pods(), resourceVersion=version)
    assert names(answer) == ["a"]
    assert int(answer.body["metadata"]["resourceVersion"]) >= int(version)


async def test_an_exact_version_shows_the_past(api: Api) -> None:
    version = (await api.make_pod("a"))["metadata"]["resourceVersion"]
    await api.make_pod("b")
    answer = await api.get(api.pods(), resourceVersion=version, resourceVersionMatch="Exact")
    assert names(answer) == ["a"]
    assert answer.body["metadata"]["resourceVersion"] == version


async def test_a_version_of_the_future_times_out(api: Api) -> None:
    answer = await api.get(api.pods(), resourceVersion=2**40)
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message.startswith("Timeout: Too large resource version")
    assert answer.headers["Retry-After"] == "1"


async def test_a_malformed_version_is_a_bad_request(api: Api) -> None:
    answer = await api.get(api.pods(), resourceVersion="abc")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith(
        'invalid resource version: resourceVersion: Invalid value: "abc"'
    )


async def test_a_version_match_needs_a_version(api: Api) -> None:
    answer = await api.get(api.pods(), resourceVersionMatch="Exact")
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_a_malformed_limit_is_a_bad_request(api: Api) -> None:
    answer = await api.get(api.pods(), limit="many")
    assert (answer.status, answer.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("app", ["p0", "p1", "p2", "p3", "p4"]),
        ("!app", []),
        ("n=1", ["p1"]),
        ("n==1", ["p1"]),
        ("n!=1", ["p0", "p2", "p3", "p4"]),
        ("missing!=1", ["p0", "p1", "p2", "p3", "p4"]),
        ("n in (1,2)", ["p1", "p2"]),
        ("n in ( 1 , 2 ),app=web", ["p1", "p2"]),
        ("n notin (1,2)", ["p0", "p3", "p4"]),
        ("n>2", ["p3", "p4"]),
        ("n<2,n>0", ["p1"]),
        ("n=", []),
        ("n in ()", []),
        ("", ["p0", "p1", "p2", "p3", "p4"]),
    ],
)
async def test_label_selectors_select(api: Api, selector: str, want: list[str]) -> None:
    await five(api)
    assert names(await api.get(api.pods(), labelSelector=selector)) == want


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("n in", "unable to parse requirement: found '' expected: '('"),
        ("=1", "found '=', expected: !, identifier, or 'end of string'"),
        ("n exists", "unable to parse requirement: found 'exists', expected: in, notin, =, =="),
        ("app,,n", "found ',', expected: identifier after ','"),
        ("n=a b", "found 'b', expected: ',' or 'end of string'"),
        ("n=-", 'unable to parse requirement: values[0][n]: Invalid value: "-": a valid label'),
        (
            "a/b/c=1",
            'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key',
        ),
    ],
)
async def test_malformed_label_selectors_are_bad_requests(
    api: Api, selector: str, want: str
) -> None:
    answer = await api.get(api.pods(), labelSelector=selector)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith(want)


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.name==a", ["a"]),
        ("metadata.name!=a", ["bound", "other"]),
        ("spec.nodeName=", ["a", "other"]),
        ("spec.nodeName!=", ["bound"]),
        ("spec.nodeName=node-1", ["bound"]),
        ("spec.schedulerName=starsched", ["other"]),
        ("spec.schedulerName!=starsched", ["a", "bound"]),
        ("status.phase=Pending", ["a", "other"]),
        ("status.phase!=Succeeded,status.phase!=Failed", ["a", "other"]),
        ("spec.nodeName=,spec.schedulerName=default-scheduler", ["a"]),
        ("spec.hostNetwork=false", ["a", "bound", "other"]),
        ("status.nominatedNodeName=", ["a", "bound", "other"]),
        ("", ["a", "bound", "other"]),
    ],
)
async def test_field_selectors_select_pods(api: Api, selector: str, want: list[str]) -> None:
    await api.make_pod("a")
    await api.make_pod("bound", spec={"nodeName": "node-1"})
    await api.make_pod("other", spec={"schedulerName": "starsched"})
    await api.patch(api.pods("bound", "status"), {"status": {"phase": "Succeeded"}})
    assert names(await api.get(api.pods(), fieldSelector=selector)) == want


async def test_field_selectors_select_over_all_namespaces(api: Api) -> None:
    await api.make_pod("a")
    answer = await api.get("/api/v1/pods", fieldSelector=f"metadata.namespace={api.namespace}")
    assert names(answer) == ["a"]


async def test_field_selectors_select_nodes_and_config_maps(api: Api) -> None:
    node = api.unique("node")
    await api.make_node(node)
    answer = await api.get(api.nodes(), fieldSelector=f"metadata.name={node}")
    assert names(answer) == [node]
    answer = await api.get(
        api.nodes(), fieldSelector=f"spec.unschedulable=true,metadata.name={node}"
    )
    assert names(answer) == []
    await api.make(api.path("configmaps"), {"metadata": {"name": "policies"}})
    answer = await api.get(api.path("configmaps"), fieldSelector="metadata.name=policies")
    assert names(answer) == ["policies"]


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("spec.color=red", "field label not supported: spec.color"),
        ("nonsense", "invalid selector: 'nonsense'; can't understand 'nonsense'"),
        ("status.phase in (a)", "invalid selector: 'status.phase in (a)'; can't understand"),
    ],
)
async def test_malformed_field_selectors_are_bad_requests(
    api: Api, selector: str, want: str
) -> None:
    answer = await api.get(api.pods(), fieldSelector=selector)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith(want)


@pytest.mark.kubernetes("1.37")  # others know other fields
async def test_every_kind_has_its_fields_for_selectors(served: Api) -> None:
    """Each field that some kind knows is asked of every kind."""
    fields = sorted({path for kind in KINDS for path in kind.fields} | {"spec.color", "name"})
    served_kinds = [kind for kind in KINDS if kind.version != "v1alpha3"]

    async def ask(kind: Kind, path: str) -> tuple[str, str, str]:
        answer = await served.get(kind.path(), fieldSelector=f"{path}=x", limit=1)
        text = answer.message if answer.reason == "BadRequest" else str(answer.status)
        return kind.resource, path, text

    got = [
        one
        for kind in served_kinds
        for one in await asyncio.gather(*(ask(kind, path) for path in fields))
    ]
    want = [
        (kind.resource, path, "200" if path in kind.fields else kind.no_field.format(path))
        for kind in served_kinds
        for path in fields
    ]
    assert got == want


async def slice_of_a_pool(api: Api) -> str:
    """A ResourceSlice of x.io with the name that its pool and its node have; returns the name."""
    name = api.unique("pool")
    spec = {
        "driver": "x.io",
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d"}],
    }
    await api.make(SLICES, {"metadata": {"name": name}, "spec": spec})
    return name


async def test_field_selectors_read_what_they_are_called_after(api: Api) -> None:
    await api.make_pod("p", spec={"nodeName": "node-1"})
    sent = {"status": {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::1"}]}}
    await api.patch(api.pods("p", "status"), sent)
    template = {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}
    jobs = api.path("jobs", group="batch/v1")
    await api.make(jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
    events = api.path("events", group="events.k8s.io/v1")
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2030-01-02T03:04:05.000006Z",
        "reportingController": "c",
        "reportingInstance": "i",
        "action": "A",
        "reason": "R",
        "type": "Normal",
        "regarding": {"kind": "Pod", "name": "p", "namespace": api.namespace},
    }
    await api.make(events, event)
    pool = await slice_of_a_pool(api)
    wanted = [
        (api.pods(), "spec.host=node-1", ["p"]),
        (api.pods(), "status.podIP=10.1.2.3", ["p"]),
        (api.pods(), "status.podIP=fd00::1", []),
        (api.pods(), "status.podIPs=10.1.2.3", []),
        (api.pods(), "status.podIPs=", ["p"]),
        (jobs, "status.successful=0", ["j"]),
        (jobs, "status.successful!=0", []),
        (events, "regarding.name=p,reportingController=c", ["e"]),
        (api.path("events"), "involvedObject.name=p,reportingComponent=c,source=c", ["e"]),
        (SLICES, f"spec.nodeName={pool},spec.driver=x.io", [pool]),
        (SLICES, f"spec.nodeName={pool},spec.driver=y.io", []),
    ]
    got = [names(await api.get(path, fieldSelector=asked)) for path, asked, _ in wanted]
    assert got == [found for _, _, found in wanted]


@pytest.mark.kubernetes("1.37")  # older minors refuse the field
async def test_slices_are_selected_by_their_pool(api: Api) -> None:
    pool = await slice_of_a_pool(api)
    answer = await api.get(SLICES, fieldSelector=f"spec.pool.name={pool}")
    assert names(answer) == [pool]
    answer = await api.get(SLICES, fieldSelector=f"spec.pool.name={pool},spec.driver=y.io")
    assert names(answer) == []


async def test_a_collection_can_be_deleted_by_selector(api: Api) -> None:
    await five(api)
    answer = await api.delete(api.pods(), labelSelector="n in (0,1)")
    assert names(answer) == ["p0", "p1"]
    assert names(await api.get(api.pods())) == ["p2", "p3", "p4"]
