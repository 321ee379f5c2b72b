"""What extenders are asked, in which order, and what becomes of their answers."""

import asyncio
import json
import shutil
import ssl
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
from aiohttp import web
from prometheus_client import CollectorRegistry

from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.extender import EXTENDER, Extender, ExtenderError, ExtenderTls
from engine.core.framework.status import Code, Status
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.scheduling.extender_messages import priorities
from engine.core.scheduling.extenders import (
    DROPPED,
    ExtenderFilter,
    ExtenderPreempt,
    ExtenderPrioritize,
    NodeVictims,
    PreemptAnswer,
)
from engine.io.binding.binder import Binder, BindingRefused
from engine.io.extender_calls import ExtenderBinder, ExtenderCalls
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.lib.clock import SystemClock, VirtualClock
from engine.telemetry.metrics import Metrics
from tests.builders import container, make_node, make_pod, node_manifest, pod_manifest
from tests.certificates import Authority
from tests.small_extender import SmallExtender, names_asked

NODES = ("a", "b", "c")


class Panel:
    """`ExtenderCalls` for *extenders*, closed at the end."""

    def __init__(self, *extenders: Extender, logs_attempts: bool = False) -> None:
        self.registry = CollectorRegistry()
        self.failures: list[str] = []
        self.calls = ExtenderCalls(
            metrics=Metrics(self.registry),
            clock=SystemClock(),
            on_answer=lambda _name, _verb, _seconds, failure: self.failures.append(failure),
            logs_attempts=logs_attempts,
        )
        self.calls.use(extenders)

    async def __aenter__(self) -> ExtenderCalls:
        return self.calls

    async def __aexit__(self, *_: object) -> None:
        await self.calls.close()


def _infos(*names: str) -> list[NodeInfo]:
    return [NodeInfo(name, make_node(name)) for name in names or NODES]


def _keeps(*names: str, **more: Any) -> Any:
    return lambda body: {"NodeNames": list(names), **more}


def _rejects(**reasons: str) -> Any:
    return lambda body: {
        "NodeNames": [n for n in names_asked(body) if n not in reasons],
        "FailedNodes": reasons,
    }


def _filtering(extender: SmallExtender, **words: Any) -> Extender:
    words = {"filter_verb": "filter", "node_cache_capable": True, **words}
    return Extender(url_prefix=extender.url, **words)


# --- what is sent ------------------------------------------------------------------------------


async def test_whole_objects_are_sent_as_the_api_server_has_them_unless_nodes_are_cached() -> None:
    raw_pod = pod_manifest("p", uid="u1", labels={"app": "x"}, spec={"hostname": "kept"})
    raw_pod["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    raw_node = node_manifest("a", zone="z") | {"x-unknown": {"kept": True}}
    raw_node["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    pod = Pod.from_raw(json.dumps(raw_pod).encode())
    node = Node.from_raw(json.dumps(raw_node).encode())
    async with (
        SmallExtender(filter=lambda body: {"Nodes": body["Nodes"]}) as extender,
        Panel(_filtering(extender, node_cache_capable=False)) as calls,
    ):
        answer = await calls.filter(ExtenderFilter(pod, [NodeInfo("a", node)]))
    assert answer.feasible == ("a",)
    (verb, body) = extender.asked[0]
    assert verb == "filter"
    assert body.keys() == {"Pod", "Nodes", "NodeNames"}
    del raw_pod["metadata"]["managedFields"], raw_node["metadata"]["managedFields"]
    assert body["Pod"] == raw_pod
    assert body["Nodes"]["items"] == [raw_node]
    assert body["NodeNames"] is None


async def test_only_names_are_sent_to_an_extender_with_a_cache_of_its_own() -> None:
    async with SmallExtender(filter=_keeps("a"), prioritize=lambda _: []) as extender:
        config = _filtering(extender, prioritize_verb="prioritize", weight=1)
        async with Panel(config) as calls:
            await calls.filter(ExtenderFilter(make_pod(), _infos()))
            await calls.prioritize(ExtenderPrioritize(make_pod(), _infos()))
    for _, body in extender.asked:
        assert body["Nodes"] is None
        assert body["NodeNames"] == list(NODES)


# --- filter ------------------------------------------------------------------------------------


async def test_each_filter_sees_what_the_one_before_left() -> None:
    async with (
        SmallExtender(filter=_rejects(a="full")) as first,
        SmallExtender(filter=_rejects(c="odd")) as second,
        Panel(_filtering(first), _filtering(second)) as calls,
    ):
        answer = await calls.filter(ExtenderFilter(make_pod(), _infos()))
    assert [names_asked(body) for _, body in second.asked] == [["b", "c"]]
    assert answer.feasible == ("b",)
    assert answer.rejected == {
        "a": Status(Code.UNSCHEDULABLE, ("full",), EXTENDER),
        "c": Status(Code.UNSCHEDULABLE, ("odd",), EXTENDER),
    }


async def test_nobody_is_asked_about_no_nodes() -> None:
    async with (
        SmallExtender(filter=_keeps()) as first,
        SmallExtender(filter=_keeps()) as second,
        Panel(_filtering(first), _filtering(second)) as calls,
    ):
        answer = await calls.filter(ExtenderFilter(make_pod(), _infos()))
    assert not second.asked
    assert answer.feasible == ()
    assert answer.rejected == dict.fromkeys(NODES, DROPPED)


async def test_unresolvable_wins_over_failed_and_other_nodes_may_be_named() -> None:
    reply = _keeps(
        "b",
        FailedNodes={"a": "soft", "elsewhere": "soft"},
        FailedAndUnresolvableNodes={"a": "hard", "b": "kept all the same"},
    )
    async with SmallExtender(filter=reply) as extender, Panel(_filtering(extender)) as calls:
        answer = await calls.filter(ExtenderFilter(make_pod(), _infos()))
    assert answer.feasible == ("b",)
    assert answer.rejected == {
        "a": Status(Code.UNRESOLVABLE, ("hard",), EXTENDER),
        "c": DROPPED,
        "elsewhere": Status(Code.UNSCHEDULABLE, ("soft",), EXTENDER),
    }


@pytest.mark.parametrize(
    ("reply", "want"),
    [
        pytest.param(
            _keeps("nowhere"),
            'extender "{url}" claims a filtered node "nowhere" which is not found in the input '
            "node list",
            id="unknown node",
        ),
        pytest.param(lambda _: {"Error": "no licence"}, "no licence", id="error in the answer"),
        pytest.param(
            lambda _: web.Response(status=500),
            "failed filter with extender at URL {url}/filter, code 500",
            id="status",
        ),
        pytest.param(
            lambda _: b"", 'Post "{url}/filter": cannot read the answer: EOF', id="empty body"
        ),
    ],
)
async def test_a_failing_filter_costs_the_attempt_unless_it_may_be_ignored(
    reply: Any, want: str
) -> None:
    async with SmallExtender(filter=reply) as extender:
        want = want.replace("{url}", extender.url)
        async with Panel(_filtering(extender)) as calls:
            answer = await calls.filter(ExtenderFilter(make_pod(), _infos()))
            assert answer.failure is not None
            assert str(answer.failure) == want
            assert (answer.failure.policy, answer.failure.hook) == (EXTENDER, "filter")
        async with Panel(_filtering(extender, ignorable=True)) as calls:
            answer = await calls.filter(ExtenderFilter(make_pod(), _infos()))
            assert answer.failure is None
            assert answer.feasible == NODES


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'"text"', b'{"NodeNames": "a"}', b'{"FailedNodes": ["a"]}', b"\xff\xfe"],
)
async def test_an_answer_that_is_none_is_an_error(body: bytes) -> None:
    """With several extenders, the error did not say which of them it was about."""
    async with (
        SmallExtender(filter=lambda _: body) as extender,
        Panel(_filtering(extender)) as calls,
    ):
        answer = await calls.filter(ExtenderFilter(make_pod(), _infos()))
    assert answer.failure is not None
    want = f'Post "{extender.url}/filter": cannot read the answer: '
    assert str(answer.failure).startswith(want)


@pytest.mark.parametrize("body", [b"null", b"{}"])
async def test_a_filter_that_answers_nothing_is_the_reason_of_every_node(body: bytes) -> None:
    """The pod's event gave no reason at all, nor did it name the extender."""
    async with (
        SmallExtender(filter=lambda _: body) as extender,
        Panel(_filtering(extender)) as calls,
    ):
        answer = await calls.filter(ExtenderFilter(make_pod(), _infos()))
        why = f'extender "{extender.url}" named neither nodes nor reasons'
    assert answer.feasible == ()
    assert answer.rejected == dict.fromkeys(NODES, Status(Code.UNRESOLVABLE, (why,), EXTENDER))


@pytest.mark.parametrize("is_cached", [True, False], ids=["names", "whole nodes"])
async def test_an_answer_may_be_as_large_as_the_nodes_that_it_is_about(is_cached: bool) -> None:
    """46 MB of scores for ten nodes were taken, for 9 s of CPU time and 440 MiB."""
    spaces = [b" " * (1 << 20) + b" " * 4000, b" " * (1 << 20)]
    annotations = {"x": "y" * 100_000}
    infos = [NodeInfo(name, make_node(name, annotations=annotations)) for name in NODES]
    async with SmallExtender(
        filter=lambda body: {"Nodes": body["Nodes"], "NodeNames": body["NodeNames"]},
        prioritize=lambda _: b"[]" + spaces.pop(0),
    ) as extender:
        config = _filtering(
            extender, prioritize_verb="prioritize", weight=1, node_cache_capable=is_cached
        )
        panel = Panel(config)
        async with panel as calls:
            assert (await calls.filter(ExtenderFilter(make_pod(), infos))).feasible == NODES
            for _ in range(2):
                answer = await calls.prioritize(ExtenderPrioritize(make_pod(), infos))
                assert answer.totals == (0, 0, 0)
    assert panel.failures[0] == panel.failures[2] == ""
    assert "the answer is larger than 1," in panel.failures[1]


async def test_texts_of_extenders_are_cut_before_anyone_reads_them() -> None:
    """2 MB of an `Error` were in the pod's condition, and in the log at each attempt."""
    long = "x" * 500_000
    error = {"Error": long}
    reasons: dict[str, Any] = {"FailedNodes": {"a": long, "b": "short"}, "NodeNames": ["c"]}
    replies = iter((error, reasons, {"NodeNames": [long]}))
    async with SmallExtender(filter=lambda _: next(replies), bind=lambda _: error) as extender:
        config = _filtering(extender, bind_verb="bind")
        async with Panel(config) as calls:
            question = ExtenderFilter(make_pod(), _infos())
            failed, rejected, unknown = [await calls.filter(question) for _ in range(3)]
            with pytest.raises(ExtenderError) as caught:
                await calls.bind(make_pod(), "a")
    for text in (str(failed.failure), str(unknown.failure), str(caught.value)):
        assert len(text) < 1_100
        assert text.endswith("more characters)")
    (cut,) = rejected.rejected["a"].reasons
    assert len(cut) < 300
    assert rejected.rejected["b"].reasons == ("short",)


async def test_reasons_that_differ_for_every_node_are_few_in_the_end() -> None:
    """A condition listed one for each of thousands of nodes."""
    names = [f"n{number}" for number in range(200)]
    failing = {"FailedNodes": {name: f"no: {name}" for name in names}}
    async with (
        SmallExtender(filter=lambda _: failing) as extender,
        Panel(_filtering(extender)) as calls,
    ):
        answer = await calls.filter(ExtenderFilter(make_pod(), _infos(*names)))
    assert len(answer.rejected) == 200
    assert len({status.reasons for status in answer.rejected.values()}) == 65


async def test_scores_are_read_alike_in_the_usual_form_and_in_others() -> None:
    usual = b'[{"host":"a","score":3},{"host":"b","score":0}]'
    others = b'[{"Host":"a","Score":3,"Why":null},{"HOST":"b"}]'
    assert priorities(usual) == priorities(others) == [("a", 3), ("b", 0)]


async def test_keys_are_read_whatever_their_case() -> None:
    reply = {"nodenames": ["a"], "failednodes": {"b": "no"}, "error": ""}
    async with SmallExtender(filter=lambda _: reply) as extender, Panel(_filtering(extender)) as c:
        answer = await c.filter(ExtenderFilter(make_pod(), _infos("a", "b")))
    assert answer.feasible == ("a",)
    assert answer.rejected["b"].reasons == ("no",)


async def test_a_filter_that_hangs_ends_with_its_time_out() -> None:
    never = asyncio.Event()
    async with SmallExtender(filter=lambda _: never.wait()) as extender:
        config = _filtering(extender, timeout=timedelta(milliseconds=50))
        async with Panel(config) as calls:
            answer = await calls.filter(ExtenderFilter(make_pod(), _infos()))
    assert answer.failure is not None
    assert "context deadline exceeded" in str(answer.failure)


async def test_an_extender_whose_certificates_cannot_be_read_fails_like_one_that_is_down() -> None:
    broken = Extender(
        url_prefix="https://127.0.0.1:1",
        filter_verb="filter",
        tls=ExtenderTls(ca_file="/nowhere/ca.crt"),
    )
    async with Panel(broken) as calls:
        answer = await calls.filter(ExtenderFilter(make_pod(), _infos()))
    assert answer.failure is not None
    assert "open /nowhere/ca.crt" in str(answer.failure)


async def test_an_extender_whose_certificates_come_later_is_asked_then(tmp_path: Path) -> None:
    """It was taken for broken until the next edit of the configuration."""
    authority = Authority(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*authority.issue("127.0.0.1"))
    ca = tmp_path / "later.crt"
    async with (
        SmallExtender(filter=_keeps("a"), tls=server) as extender,
        Panel(_filtering(extender, tls=ExtenderTls(ca_file=str(ca)))) as calls,
    ):
        answer = await calls.filter(ExtenderFilter(make_pod(), _infos()))
        assert "later.crt" in str(answer.failure)
        shutil.copy(authority.file, ca)
        assert (await calls.filter(ExtenderFilter(make_pod(), _infos()))).feasible == ("a",)


# --- interest ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(make_pod(requests={"x/gpu": 1}), True, id="request"),
        pytest.param(make_pod(limits={"x/gpu": 1}), True, id="limit"),
        pytest.param(
            make_pod(init_containers=[container("i", requests={"x/gpu": 1})]), True, id="init"
        ),
        pytest.param(make_pod(cpu=1), False, id="other resource"),
        pytest.param(make_pod(overhead={"x/gpu": 1}), False, id="overhead"),
    ],
)
async def test_an_extender_of_resources_is_asked_about_pods_that_name_one(
    pod: Pod, want: bool
) -> None:
    reply = _keeps("a")
    async with SmallExtender(filter=reply, bind=lambda _: {}) as extender:
        config = _filtering(extender, resources=frozenset({"x/gpu", "x/nic"}), bind_verb="bind")
        async with Panel(config) as calls:
            answer = await calls.filter(ExtenderFilter(pod, _infos()))
            assert answer.feasible == (("a",) if want else NODES)
            assert await calls.bind(pod, "a") is want
    assert bool(extender.asked) is want


# --- prioritize --------------------------------------------------------------------------------


async def test_priorities_are_weighed_added_and_asked_for_at_once() -> None:
    both = asyncio.Barrier(2)

    async def one(_: Mapping[str, Any]) -> Any:
        await both.wait()
        return [{"Host": "a", "Score": 10}, {"Host": "b", "Score": 3}, {"Host": "zz", "Score": 9}]

    async def two(_: Mapping[str, Any]) -> Any:
        await both.wait()
        return [{"host": "b", "score": 1}]

    async with (
        SmallExtender(prioritize=one) as first,
        SmallExtender(prioritize=two) as second,
        Panel(
            Extender(url_prefix=first.url, prioritize_verb="prioritize", weight=2),
            Extender(url_prefix=second.url, prioritize_verb="prioritize", weight=5),
            Extender(url_prefix="http://127.0.0.1:1"),  # without the verb: not asked
        ) as calls,
    ):
        answer = await calls.prioritize(ExtenderPrioritize(make_pod(), _infos()))
    assert answer.totals == (10 * 2 * 10, 3 * 2 * 10 + 1 * 5 * 10, 0)
    assert answer.by_extender == {first.url: (200, 60, 0), second.url: (0, 50, 0)}


@pytest.mark.parametrize(
    "reply",
    [
        lambda _: web.Response(status=500),
        lambda _: b"[{",
        lambda _: {"Host": "a"},
        lambda _: [{"Host": "a", "Score": 1 << 63}],
    ],
)
async def test_a_failing_priority_counts_for_nothing(reply: Any) -> None:
    async with (
        SmallExtender(prioritize=reply) as bad,
        SmallExtender(prioritize=lambda _: [{"Host": "c", "Score": 1}]) as good,
        Panel(
            Extender(url_prefix=bad.url, prioritize_verb="prioritize", weight=9),
            Extender(url_prefix=good.url, prioritize_verb="prioritize", weight=1),
        ) as calls,
    ):
        answer = await calls.prioritize(ExtenderPrioritize(make_pod(), _infos()))
    assert answer.totals == (0, 0, 10)


# --- preempt -----------------------------------------------------------------------------------


def _world() -> tuple[Snapshot, dict[str, NodeVictims]]:
    cache = Cache()
    victims: dict[str, NodeVictims] = {}
    for name in ("a", "b"):
        cache.add_node(make_node(name))
        pods = [make_pod(f"{name}{i}", uid=f"{name}{i}", node=name) for i in range(2)]
        for pod in pods:
            cache.add_pod(pod)
        victims[name] = NodeVictims(tuple(pods), 1)
    return cache.snapshot(), victims


def _preempting(extender: SmallExtender, **words: Any) -> Extender:
    return Extender(url_prefix=extender.url, preempt_verb="preempt", **words)


async def _preempt(config: Extender) -> Any:
    snapshot, victims = _world()
    async with Panel(config) as calls:
        return await calls.preempt(ExtenderPreempt(make_pod(uid="me"), victims, snapshot))


@pytest.mark.parametrize("meta", [False, True])
async def test_victims_are_sent_whole_or_by_uid_and_come_back_by_uid(meta: bool) -> None:
    answer = {"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "b1"}], "NumPDBViolations": 7}}}
    async with SmallExtender(preempt=lambda _: answer) as extender:
        got = await _preempt(_preempting(extender, node_cache_capable=meta))
    (_, body) = extender.asked[0]
    assert body["Pod"]["metadata"]["uid"] == "me"
    sent = body["NodeNameToMetaVictims" if meta else "NodeNameToVictims"]
    assert body["NodeNameToVictims" if meta else "NodeNameToMetaVictims"] is None
    assert sent["a"]["NumPDBViolations"] == 1
    if meta:
        assert sent["a"]["Pods"] == [{"UID": "a0"}, {"UID": "a1"}]
    else:
        assert [pod["metadata"]["uid"] for pod in sent["a"]["Pods"]] == ["a0", "a1"]
        assert sent["a"]["Pods"][0]["spec"]["nodeName"] == "a"
    assert got.failure is None
    assert [pod.uid for pod in got.victims["b"].pods] == ["b1"]
    assert got.victims["b"].pdb_violations == 7
    assert list(got.victims) == ["b"]


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (
            {"x": {"Pods": [{"UID": "a0"}]}},
            'nodeinfo not found for node name "x"',
        ),
        (
            {"a": {"Pods": [{"UID": "b0"}]}},
            "extender: {url} claims to preempt pod (UID: &{b0}) on node: a, but the pod is not "
            "found on that node",
        ),
        ({"a": {"Pods": []}}, 'expected at least one victim pod on node "a"'),
        ({"a": None}, 'expected at least one victim pod on node "a"'),
    ],
)
async def test_victims_that_make_no_sense_end_preemption_or_are_ignored(
    answer: Any, want: str
) -> None:
    async with SmallExtender(preempt=lambda _: {"NodeNameToMetaVictims": answer}) as extender:
        got = await _preempt(_preempting(extender))
        assert str(got.failure) == want.replace("{url}", extender.url)
        assert not got.victims
        got = await _preempt(_preempting(extender, ignorable=True))
        assert got.failure is None
        empty = "at least one" in want
        # A node without victims is left out; any other nonsense leaves the candidates alone.
        assert sorted(got.victims) == ([] if empty else ["a", "b"])


@pytest.mark.parametrize("ignorable", [False, True])
async def test_nodes_without_victims_may_stay_so_until_the_last_extender(ignorable: bool) -> None:
    """There are such from 1.38 on: an extender names their victims, or leaves them to the next."""
    snapshot, victims = _world()
    shown = {"a": NodeVictims(()), "b": NodeVictims(())}
    one: Any = {"NodeNameToMetaVictims": {"a": {"Pods": []}, "b": {"Pods": []}}}
    other = {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "a0"}]}, "b": None}}
    async with (
        SmallExtender(preempt=lambda _: one) as first,
        SmallExtender(preempt=lambda _: other) as second,
        Panel(*(_preempting(each, ignorable=ignorable) for each in (first, second))) as calls,
    ):
        question = ExtenderPreempt(make_pod(uid="me"), shown, snapshot)
        got = await calls.preempt(question)
        assert got == PreemptAnswer({"a": NodeVictims(victims["a"].pods[:1])})
        # What the first one named, the second one may not take back.
        one["NodeNameToMetaVictims"]["b"] = {"Pods": [{"UID": "b0"}]}
        got = await calls.preempt(question)
        assert (got.failure is None) is ignorable
        assert list(got.victims) == (["a"] if ignorable else [])


# --- bind --------------------------------------------------------------------------------------


async def test_binding_says_which_pod_goes_where() -> None:
    pod = make_pod("p", "ns", uid="u")
    async with (
        SmallExtender(bind=lambda _: {"Error": ""}) as extender,
        Panel(Extender(url_prefix=extender.url, bind_verb="bind")) as calls,
    ):
        assert await calls.bind(pod, "a")
    want = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "a"}
    assert extender.asked == [("bind", want)]


async def test_a_binding_that_fails_is_left_to_others_only_if_it_may_be_ignored() -> None:
    async with SmallExtender(bind=lambda _: {"Error": "no room"}) as extender:
        config = Extender(url_prefix=extender.url, bind_verb="bind")
        async with Panel(config) as calls:
            with pytest.raises(ExtenderError, match=r"^no room$"):
                await calls.bind(make_pod(), "a")
        config = Extender(url_prefix=extender.url, bind_verb="bind", ignorable=True)
        async with Panel(config) as calls:
            assert not await calls.bind(make_pod(), "a")


async def test_an_extender_is_not_called_to_bind_when_the_lease_may_have_run_out() -> None:
    async with SmallExtender(bind=lambda _: {"Error": ""}) as extender:
        panel = Panel(Extender(url_prefix=extender.url, bind_verb="bind"))
        async with panel as calls, ApiClient(Endpoint("http://127.0.0.1:1")) as client:
            clock, metrics = VirtualClock(), Metrics(CollectorRegistry())
            binder = Binder(client, clock=clock, metrics=metrics, may_act=lambda: False)
            with pytest.raises(BindingRefused, match="the lease may have run out"):
                await ExtenderBinder(calls, binder).bind(make_pod(), "a")
    assert extender.asked == []


@pytest.mark.parametrize(
    ("logs_attempts", "want"), [(False, [1, 0, 1, 0, 1]), (True, [1, 1, 1, 0, 1])]
)
async def test_an_extender_that_is_skipped_is_logged_once_for_each_reason_or_every_time(
    logs_attempts: bool, want: list[int]
) -> None:
    """An extender that was down had a line for each attempt, for hours."""
    errors = ["down", "down", "full", "", "full"]
    replies = iter(errors)
    counts = []
    async with SmallExtender(bind=lambda _: {"Error": next(replies)}) as extender:
        config = Extender(url_prefix=extender.url, bind_verb="bind", ignorable=True)
        async with Panel(config, logs_attempts=logs_attempts) as calls:
            for _ in errors:
                with structlog.testing.capture_logs() as lines:
                    await calls.bind(make_pod(), "a")
                counts.append(len(lines))
    assert counts == want


# --- changes and figures -----------------------------------------------------------------------


async def test_requests_are_timed_by_extender_verb_and_result() -> None:
    async with SmallExtender(filter=_keeps("a")) as extender:
        panel = Panel(_filtering(extender, prioritize_verb="prioritize", weight=1))
        async with panel as calls:
            await calls.filter(ExtenderFilter(make_pod(), _infos()))
            await calls.prioritize(ExtenderPrioritize(make_pod(), _infos()))
        for verb, result in (("filter", "success"), ("prioritize", "error")):
            labels = {"extender": extender.url, "verb": verb, "result": result}
            name = "starsched_extender_request_duration_seconds_count"
            assert panel.registry.get_sample_value(name, labels) == 1


async def test_new_extenders_take_over_from_the_next_question_on() -> None:
    async with (
        SmallExtender(filter=_keeps("a")) as old,
        SmallExtender(filter=_keeps("b")) as new,
        Panel(_filtering(old)) as calls,
    ):
        question = ExtenderFilter(make_pod(), _infos())
        assert (await calls.filter(question)).feasible == ("a",)
        calls.use([_filtering(new)])
        assert (await calls.filter(question)).feasible == ("b",)
        calls.use([])
        assert (await calls.filter(question)).feasible == NODES
    assert (len(old.asked), len(new.asked)) == (1, 1)
