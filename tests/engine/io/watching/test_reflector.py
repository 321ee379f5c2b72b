"""Reflector and informer against a server that misbehaves on purpose."""

import asyncio

import pytest
import structlog
import yaml
from aiohttp import web

from engine.io.kube.resources import POD_DISRUPTION_BUDGETS, Resource
from engine.io.watching.informer import Handlers
from engine.io.watching.reflector import WatchOptions
from engine.lib.clock import VirtualClock
from tests.engine.io.kube.faulty_server import (
    FaultyServer,
    Step,
    answer,
    bookmark,
    drop,
    event,
    gone_event,
    half,
    hang,
    item,
    page,
    refuse,
    watch,
)
from tests.engine.io.watching.recorder import Plain, Recorder, Sleeper, name_of, running
from tests.waiting import eventually

#: Lines of a watch that are JSON, and say of no object what has changed.
NAMELESS = b'{"type":"ADDED","object":{"metadata":{"name":7}}}\n'
ANOTHER_KIND = (
    b'{"type":"ADDED","object":{"kind":"Node","metadata":{"name":"n","resourceVersion":"9"}}}\n'
)
NO_TYPE_OF_EVENT = b'{"type":"SURPRISE","object":{}}\n'
DELETED_NOTHING = b'{"type":"DELETED","object":[]}\n'


def versions_watched(server: FaultyServer) -> list[str]:
    """The resourceVersion of each watch request, with `?` if the server is asked whether it knows
    it; "list" for each first page.
    """
    return [
        request.query["resourceVersion"] + "?" * ("watch" not in request.query)
        if "resourceVersion" in request.query
        else "list"
        for request in server.requests
    ]


async def test_objects_of_the_list_come_first_then_events() -> None:
    steps = [
        page(5, [item("a", 1), item("b", 2)]),
        watch(
            event("ADDED", "c", 6),
            event("MODIFIED", "a", 7),
            event("DELETED", "b", 8),
            then="hang",
        ),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder) as informer,
    ):
        await recorder.until_reported("add a", "add b", "add c", "update a", "delete b")
        assert recorder.reported[-1] == ("delete", "b", "2")  # as last told, not as it ended
        assert versions_watched(server) == ["list", "5"]
        assert informer.resource_version == "8"
        assert sorted(map(name_of, informer.values())) == ["a", "c"]
        assert (informer.get("default/a"), informer.get("default/b")) == (
            recorder.mirror["uid-a"],
            None,
        )
        assert len(informer) == 2


async def test_has_synced_only_after_every_handler_saw_the_whole_first_list() -> None:
    """Two pages, two handlers: neither the first page nor the first handler is enough."""
    seen: list[tuple[str, bool]] = []
    synced: list[int] = []
    second = Handlers[Plain](on_add=lambda obj: seen.append((name_of(obj), informer.has_synced)))
    steps = [
        page(5, [item("a", 1)], "token"),
        page(5, [item("b", 2)]),
        watch(event("ADDED", "c", 6), then="hang"),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(
            client,
            recorder,
            handlers=[recorder, second],
            on_synced=lambda: synced.append(len(seen)),
        ) as informer,
    ):
        assert not informer.has_synced
        await informer.wait_synced()
        await recorder.until_reported("add a", "add b", "add c")
    assert seen == [("a", False), ("b", False), ("c", True)]
    assert synced == [2]


async def test_an_empty_list_is_in_sync() -> None:
    recorder = Recorder()
    async with (
        FaultyServer(page(5, []), watch(then="hang")) as server,
        server.client() as client,
        running(client, recorder) as informer,
    ):
        await informer.wait_synced()
    assert recorder.reported == []


async def test_a_watch_that_closes_goes_on_from_the_last_event() -> None:
    steps = [
        page(5, []),
        watch(event("ADDED", "a", 6), event("MODIFIED", "a", 7)),
        watch(bookmark(9)),
        watch(event("MODIFIED", "a", 10), then="hang"),
    ]
    recorder, sleeper = Recorder(), Sleeper()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=sleeper),
    ):
        await recorder.until_reported("add a", "update a", "update a")
        assert versions_watched(server) == ["list", "5", "7", "9"]
    assert sleeper.delays == []  # closing is not a failure


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(watch(event("ADDED", "a", 6), then="abort"), id="cut off"),
        pytest.param(watch(event("ADDED", "a", 6) + b'{"type":"MOD'), id="half an event"),
    ],
)
async def test_a_lost_watch_goes_on_from_the_last_whole_event_if_the_server_knows_it(
    step: Step,
) -> None:
    steps = [page(5, []), step, page(6, []), watch(event("MODIFIED", "a", 7), then="hang")]
    recorder, sleeper = Recorder(), Sleeper()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=sleeper),
    ):
        await recorder.until_reported("add a", "update a")
        assert versions_watched(server) == ["list", "5", "6?", "6"]
    assert len(sleeper.delays) == 1


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(watch(event("ADDED", "a", 6) + b"<html>\n"), id="garbage"),
        pytest.param(watch(event("ADDED", "a", 6) + b'{"type":"ADDED"}\n'), id="no object"),
        pytest.param(watch(event("ADDED", "a", 6) + b'{"type":"\xff"}\n'), id="not text"),
        pytest.param(watch(event("ADDED", "a", 6) + NAMELESS), id="no metadata"),
        pytest.param(watch(event("ADDED", "a", 6) + ANOTHER_KIND), id="another kind"),
        pytest.param(watch(event("ADDED", "a", 6) + NO_TYPE_OF_EVENT), id="no type of event"),
        pytest.param(watch(event("ADDED", "a", 6) + DELETED_NOTHING), id="nothing deleted"),
    ],
)
async def test_a_broken_watch_goes_on_from_the_last_whole_event(step: Step) -> None:
    steps = [page(5, []), step, watch(event("MODIFIED", "a", 7), then="hang")]
    recorder, sleeper = Recorder(), Sleeper()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=sleeper),
    ):
        await recorder.until_reported("add a", "update a")
        assert versions_watched(server) == ["list", "5", "6"]
    assert len(sleeper.delays) == 1


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"<html>\n", id="garbage"),
        pytest.param(NAMELESS, id="no metadata"),
        pytest.param(ANOTHER_KIND, id="another kind"),
        pytest.param(NO_TYPE_OF_EVENT, id="no type of event"),
    ],
)
async def test_garbage_twice_at_the_same_place_leads_to_a_list(line: bytes) -> None:
    """A line that was skipped, with later ones taken in, would hide its change for good."""
    steps = [
        page(5, []),
        watch(line, event("ADDED", "b", 7)),
        watch(line, event("ADDED", "b", 7)),
        page(7, [item("a", 6)]),
        watch(event("MODIFIED", "a", 8), then="hang"),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=Sleeper()) as informer,
    ):
        await recorder.until_reported("add a", "update a")
        assert versions_watched(server) == ["list", "5", "5", "list", "7"]
        assert informer.counts.malformed == 2


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(refuse(410, "Expired"), id="by status"),
        pytest.param(watch(gone_event()), id="by event"),
        pytest.param(watch(bookmark(7), gone_event()), id="by event, later"),
    ],
)
async def test_gone_lists_again_and_reports_only_what_changed(step: Step) -> None:
    steps = [
        page(5, [item("same", 1), item("changed", 2), item("gone", 3), item("again", 4, "one")]),
        step,
        page(20, [item("same", 1), item("changed", 12), item("again", 13, "two"), item("new", 14)]),
        watch(event("MODIFIED", "new", 21), then="hang"),
    ]
    recorder, sleeper = Recorder(), Sleeper()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=sleeper) as informer,
    ):
        await recorder.until(lambda: "update new" in recorder.words)
        assert recorder.words[4:] == [
            "update changed",
            "delete again",
            "add again",
            "add new",
            "delete gone",
            "update new",
        ]
        assert versions_watched(server)[-2:] == ["list", "20"]
        assert informer.counts.unchanged == 1
        assert informer.counts.expirations == 1
    assert sleeper.delays == []  # the first time at once


async def test_gone_again_right_after_the_list_waits() -> None:
    steps = [
        page(5, []),
        refuse(410, "Expired"),
        page(6, []),
        refuse(410, "Expired"),
        page(7, []),
        watch(event("ADDED", "a", 8), then="hang"),
    ]
    recorder, sleeper = Recorder(), Sleeper()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=sleeper),
    ):
        await recorder.until_reported("add a")
    assert len(sleeper.delays) == 1


async def test_a_list_compacted_between_pages_is_taken_in_one_answer() -> None:
    steps = [
        page(5, [item("a", 1), item("b", 2)], "token"),
        refuse(410, "Expired"),
        page(9, [item("a", 1), item("c", 8)]),
        watch(event("MODIFIED", "a", 10), then="hang"),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder) as informer,
    ):
        await recorder.until_reported("add a", "add b", "add c", "delete b", "update a")
        assert "limit=500" in server.asked[0]
        assert "limit" not in server.asked[2]
        assert versions_watched(server)[-1] == "9"
        assert informer.counts.unchanged == 1


async def test_a_list_that_breaks_off_is_not_watched_from() -> None:
    """A watch from its version would never tell of the pages after the break."""
    steps = [
        page(5, [item("a", 1)], "token"),
        drop(),
        drop(),  # the library asks once more when a kept connection was closed
        page(7, [item("a", 1), item("b", 6)]),
        watch(event("ADDED", "c", 8), then="hang"),
    ]
    recorder, sleeper = Recorder(), Sleeper()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=sleeper) as informer,
    ):
        await informer.wait_synced()
        await recorder.until_reported("add a", "add b", "add c")
        assert versions_watched(server)[-1] == "7"
    assert len(sleeper.delays) == 1


@pytest.mark.parametrize(
    ("step", "least"),
    [
        pytest.param(refuse(429, "TooManyRequests", Retry_After="7"), 7, id="429 header"),
        pytest.param(refuse(503, "ServiceUnavailable", Retry_After="9"), 9, id="503 header"),
        pytest.param(refuse(500, "InternalError"), 0.25, id="500"),
        pytest.param(answer(502, b"<html>bad gateway"), 0.25, id="a proxy's page"),
        pytest.param(answer(200, b"surprise"), 0.25, id="no list"),
        pytest.param(half(b'{"metadata":{'), 0.25, id="half a list"),
        pytest.param(refuse(403, "Forbidden"), 0.25, id="forbidden"),
        pytest.param(refuse(404, "NotFound"), 0.25, id="not found"),
    ],
)
async def test_a_list_that_fails_is_tried_again_after_a_wait(step: Step, least: float) -> None:
    steps = [step, page(5, [item("a", 1)]), watch(then="hang")]
    recorder, sleeper = Recorder(), Sleeper()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=sleeper) as informer,
    ):
        await informer.wait_synced()
        assert recorder.words == ["add a"]
        assert informer.counts.failures == 1
    [delay] = sleeper.delays
    assert least <= delay <= max(least, 0.5)


async def test_a_refused_watch_honours_retry_after_and_keeps_its_place() -> None:
    steps = [
        page(5, []),
        refuse(429, "TooManyRequests", Retry_After="11"),
        watch(event("ADDED", "a", 6), then="hang"),
    ]
    recorder, sleeper = Recorder(), Sleeper()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=sleeper),
    ):
        await recorder.until_reported("add a")
        assert versions_watched(server) == ["list", "5", "5"]
    assert sleeper.delays == [11]


async def test_waits_grow_while_it_fails_and_start_again_when_it_works() -> None:
    failures = [refuse(500, "InternalError")] * 4
    steps = [
        page(5, []),
        *failures,
        watch(event("ADDED", "a", 6)),
        refuse(500, "InternalError"),
        watch(event("ADDED", "b", 7), then="hang"),
    ]
    recorder, sleeper = Recorder(), Sleeper()
    with structlog.testing.capture_logs() as logs:
        async with (
            FaultyServer(*steps) as server,
            server.client() as client,
            running(client, recorder, sleep=sleeper),
        ):
            await recorder.until_reported("add a", "add b")
    for delay, full in zip(sleeper.delays, [0.5, 1, 2, 4, 0.5], strict=True):
        assert full / 2 <= delay <= full
    loud = [(log["event"], log["log_level"]) for log in logs if log["log_level"] != "debug"]
    assert loud == [
        ("Listed", "info"),
        ("Watch failed", "warning"),
        ("Watch works again", "info"),
        ("Watch failed", "warning"),
        ("Watch works again", "info"),
    ]


async def test_a_watch_that_closes_at_once_is_not_hammered() -> None:
    steps = [page(5, []), watch(), watch(), watch(event("ADDED", "a", 6), then="hang")]
    recorder, sleeper = Recorder(), Sleeper()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=sleeper),
    ):
        await recorder.until_reported("add a")
    assert len(sleeper.delays) == 2


async def test_a_hung_watch_is_noticed_and_goes_on() -> None:
    steps = [
        page(5, []),
        watch(event("ADDED", "a", 6), then="hang"),
        page(6, []),
        hang(),
        page(6, []),
        watch(event("ADDED", "b", 7), then="hang"),
    ]
    recorder, sleeper = Recorder(), Sleeper()
    options = WatchOptions(watch_seconds=(0, 0), grace=0.1)
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, options=options, sleep=sleeper),
    ):
        await recorder.until_reported("add a", "add b")
        assert versions_watched(server)[:6] == ["list", "5", "6?", "6", "6?", "6"]


async def test_a_hung_list_is_noticed() -> None:
    steps = [hang(), page(5, [item("a", 1)]), watch(then="hang")]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, options=WatchOptions(list_timeout=0.1), sleep=Sleeper()),
    ):
        await recorder.until_reported("add a")


async def test_a_watch_without_a_word_leads_to_a_list() -> None:
    """A server that lost its data is silent until its versions have passed those of before."""
    clock = VirtualClock()

    def silent_for(seconds: float, *chunks: bytes) -> Step:
        send = watch(*chunks)

        async def step(server: FaultyServer, request: web.Request) -> web.StreamResponse:
            clock.advance(seconds)
            return await send(server, request)

        return step

    steps = [
        page(500, [item("a", 1), item("b", 2)]),
        silent_for(60, bookmark(501)),
        silent_for(30),
        silent_for(60),
        page(7, [item("b", 6, uid="another")]),
        watch(event("ADDED", "c", 8), then="hang"),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client(clock=clock) as client,
        running(client, recorder),
    ):
        await recorder.until(lambda: "add c" in recorder.words)
        assert recorder.words == ["add a", "add b", "delete b", "add b", "delete a", "add c"]
        assert versions_watched(server) == ["list", "500", "501", "501", "list", "7"]


async def test_a_version_from_the_future_leads_to_a_list() -> None:
    """The server was restored from a backup and counts anew."""
    body = {
        "kind": "Status",
        "code": 504,
        "reason": "Timeout",
        "message": "Too large resource version: 100, current: 5",
        "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]},
    }
    steps = [
        page(100, [item("a", 90)]),
        answer(504, body),
        page(5, [item("a", 3)]),
        watch(event("MODIFIED", "a", 6), then="hang"),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=Sleeper()),
    ):
        await recorder.until_reported("add a", "update a", "update a")
        assert versions_watched(server) == ["list", "100", "list", "5"]


async def test_a_server_that_comes_back_as_an_earlier_state_leads_to_a_list() -> None:
    """Such a server takes the watch, says nothing, and goes on once its versions have passed ours.

    What it had lost or done until then stayed unknown: nodes that were not there any more kept
    getting pods, for as long as the watch never fell silent for a whole minute.
    """
    body = {
        "kind": "Status",
        "code": 504,
        "reason": "Timeout",
        "message": "Too large resource version: 100, current: 5",
        "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]},
    }
    steps = [
        page(90, [item("a", 3), item("lost", 90)]),
        watch(event("MODIFIED", "a", 100), then="abort"),
        drop(),
        answer(504, body),
        page(5, [item("a", 3)]),
        watch(event("MODIFIED", "a", 6), then="hang"),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=Sleeper()),
    ):
        await recorder.until(lambda: recorder.words.count("update a") == 3)
        assert "delete lost" in recorder.words
        assert versions_watched(server) == ["list", "90", "100?", "100?", "list", "5"]


# --- objects that cannot be read ------------------------------------------------------------


async def test_a_malformed_object_is_skipped_counted_and_logged() -> None:
    steps = [
        page(5, [item("a", 1), item("bad", 2, malformed=True), item("b", 3)]),
        watch(
            event("ADDED", "worse", 6, malformed=True),
            b'{"type":"BOOKMARK","object":{}}\n',
            event("ADDED", "c", 7),
            then="hang",
        ),
    ]
    recorder = Recorder()
    with structlog.testing.capture_logs() as logs:
        async with (
            FaultyServer(*steps) as server,
            server.client() as client,
            running(client, recorder) as informer,
        ):
            await recorder.until_reported("add a", "add b", "add c")
            assert informer.counts.malformed == 3
            assert informer.has_synced
            assert versions_watched(server) == ["list", "5"]
    skipped = [log for log in logs if log["event"] == "Skipped a malformed object"]
    assert [log["object"] for log in skipped] == ["default/bad", "default/worse"]
    assert skipped[0]["reason"] == "ValueError: want a well-formed object"


@pytest.mark.parametrize(
    "unreadable",
    [
        pytest.param(b'{"metadata":{"resourceVersion":"\xff"}}', id="not UTF-8"),
        pytest.param(b'{"x":' + b"[" * 20_000, id="deeper than the API server stores"),
    ],
)
async def test_a_list_that_cannot_be_read_is_tried_again(unreadable: bytes) -> None:
    recorder, sleeper = Recorder(), Sleeper()
    steps = [answer(200, unreadable), page(5, [item("a", 1)]), watch(then="hang")]
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, sleep=sleeper) as informer,
    ):
        await informer.wait_synced()
        assert (recorder.words, informer.counts.failures) == (["add a"], 1)


async def test_an_object_that_becomes_malformed_stays_as_it_was_until_it_is_deleted() -> None:
    steps = [
        page(5, [item("a", 1)]),
        watch(
            event("MODIFIED", "a", 6, malformed=True),
            event("MODIFIED", "a", 7),
            event("MODIFIED", "a", 8, malformed=True),
            event("DELETED", "a", 9, malformed=True),
            then="hang",
        ),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder),
    ):
        await recorder.until_reported("add a", "update a", "delete a")
        assert [version for _, _, version in recorder.reported] == ["1", "7", "7"]


async def test_a_malformed_object_of_a_known_name_replaces_the_old_one() -> None:
    steps = [
        page(5, [item("a", 1, "one")]),
        watch(gone_event()),
        page(9, [item("a", 8, "two", malformed=True)]),
        watch(event("MODIFIED", "a", 10, "two"), then="hang"),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder),
    ):
        await recorder.until_reported("add a", "delete a", "add a")


async def test_a_handler_that_raises_costs_no_other_handler() -> None:
    def fail(*_: Plain) -> None:
        raise RuntimeError("broken handler")

    broken = Handlers[Plain](on_add=fail, on_update=fail, on_delete=fail)
    steps = [
        page(5, [item("a", 1)]),
        watch(event("MODIFIED", "a", 6), event("DELETED", "a", 7), then="hang"),
    ]
    recorder = Recorder()
    with structlog.testing.capture_logs() as logs:
        async with (
            FaultyServer(*steps) as server,
            server.client() as client,
            running(
                client, recorder, handlers=[broken, recorder], on_synced=fail, handler_errors=4
            ) as informer,
        ):
            await recorder.until_reported("add a", "update a", "delete a")
            assert informer.has_synced
    failures = [log for log in logs if log["event"] == "Handler failed"]
    assert len(failures) == 4
    assert all(log["exc_info"] for log in failures)


# --- what is not readable, and what is not served ---------------------------------------------

NONE_SUCH = ("NotFound", "the server could not find the requested resource")


def served(*names: str) -> Step:
    """The resources that a version of a group has."""
    return answer(body={"kind": "APIResourceList", "resources": [{"name": n} for n in names]})


def versions(*names: str) -> Step:
    """The versions that a group has."""
    return answer(body={"kind": "APIGroup", "versions": [{"version": n} for n in names]})


@pytest.mark.parametrize("is_optional", [True, False])
@pytest.mark.parametrize(
    ("step", "is_forbidden"),
    [
        pytest.param(refuse(403, "Forbidden"), True, id="no right"),
        pytest.param(refuse(401, "Unauthorized"), True, id="no credentials"),
        pytest.param(refuse(500, "InternalError"), False, id="broken"),
        pytest.param(refuse(503, "ServiceUnavailable"), False, id="away"),
        pytest.param(refuse(504, "Timeout"), False, id="too slow"),
        pytest.param(refuse(400, "BadRequest"), False, id="not understood"),
        pytest.param(refuse(429, "TooManyRequests", Retry_After="1"), False, id="overloaded"),
        pytest.param(drop(), False, id="cut off"),
        pytest.param(answer(body=b"<html>maintenance</html>"), False, id="another page"),
        pytest.param(answer(body={}), False, id="an empty object"),
        pytest.param(answer(body={"kind": "Status", "metadata": {}}), False, id="a status"),
        pytest.param(answer(body={"metadata": {"resourceVersion": "5"}}), False, id="no items"),
        pytest.param(answer(body={"metadata": {}, "items": []}), False, id="no version"),
        pytest.param(half(b'{"metadata":{"resourceVersion":"5"},"items":['), False, id="half"),
    ],
)
async def test_what_cannot_be_listed_is_not_in_sync_however_often_it_is_asked(
    step: Step, is_forbidden: bool, is_optional: bool
) -> None:
    """An upgrade without its manifests took the right to disruption budgets away. Six refusals
    counted as "there are none", the replica was ready and led, and evicted a pod that a budget
    protected.
    """
    steps = [step] * 12 + [page(5, [item("a", 1)]), watch(then="hang")]
    seen = list[tuple[bool, bool, bool]]()

    async def sleep(_: float) -> None:
        currency = informer.currency
        seen.append((informer.has_synced, bool(currency.failure), currency.is_forbidden))

    recorder, options = Recorder(), WatchOptions(optional=is_optional)
    with structlog.testing.capture_logs() as logs:
        async with (
            FaultyServer(*steps) as server,
            server.client() as client,
            running(client, recorder, options=options, sleep=sleep) as informer,
        ):
            await informer.wait_synced()
            assert recorder.words == ["add a"]
            assert informer.currency.failure == ""
            assert not informer.currency.is_forbidden
    # A kept connection that is cut off is tried a second time at once.
    assert len(seen) >= 6
    assert set(seen) == {(False, True, is_forbidden)}
    errors = [log for log in logs if log["log_level"] == "error"]
    assert bool(errors) == is_forbidden


async def test_the_log_names_the_right_that_is_missing_and_the_rule_that_gives_it() -> None:
    steps = [refuse(403, "Forbidden"), page(5, []), watch(then="hang")]
    with structlog.testing.capture_logs() as logs:
        async with (
            FaultyServer(*steps) as server,
            server.client() as client,
            running(client, Recorder(), POD_DISRUPTION_BUDGETS, sleep=Sleeper()) as informer,
        ):
            await informer.wait_synced()
    (error,) = [log for log in logs if log["log_level"] == "error"]
    assert error["resource"] == "poddisruptionbudgets.policy"
    rule = error["hint"].partition(": ")[2]
    assert yaml.safe_load(rule) == [
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list", "watch"]}
    ]


@pytest.mark.parametrize(
    "discovery",
    [
        pytest.param([served("nodes")], id="its version lacks it"),
        pytest.param([answer(body={"resources": None})], id="its version has nothing"),
    ],
)
@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(refuse(404, *NONE_SUCH), id="not found"),
        pytest.param(refuse(403, "Forbidden"), id="rights are asked before paths are"),
    ],
)
async def test_only_what_discovery_lacks_is_empty_and_it_is_logged_once(
    refusal: Step, discovery: list[Step]
) -> None:
    """kube-scheduler's own role has no right to pod groups where they are not served."""
    steps = [refusal, *discovery] * 3
    steps += [page(5, [item("a", 1)]), watch(then="hang")]
    recorder, sleeper = Recorder(), Sleeper()
    options = WatchOptions(optional=True, absent_retry=100)
    with structlog.testing.capture_logs() as logs:
        async with (
            FaultyServer(*steps) as server,
            server.client() as client,
            running(client, recorder, options=options, sleep=sleeper) as informer,
        ):
            await informer.wait_synced()
            assert recorder.reported == []
            assert informer.state in ("absent", "listing")
            await recorder.until_reported("add a")
            assert informer.counts.failures == 0  # what is not served is no failure
    assert all(50 <= delay <= 100 for delay in sleeper.delays)
    assert len(sleeper.delays) == 3
    assert [log["event"] for log in logs].count("Not served, so there is none") == 1


@pytest.mark.parametrize(
    "discovery",
    [
        pytest.param([versions("v1"), served("poddisruptionbudgets")], id="served"),
        pytest.param([versions("v1"), refuse(404, *NONE_SUCH)], id="its version is coming"),
        pytest.param([versions("v1"), refuse(503, "ServiceUnavailable")], id="aggregated, away"),
        pytest.param([refuse(403, "Forbidden")], id="forbidden"),
        pytest.param([refuse(500, "InternalError")], id="broken"),
        pytest.param([answer(body=b"<html>")], id="another page"),
        pytest.param([versions("v1"), answer(body={"kind": "Status"})], id="a status"),
    ],
)
async def test_a_list_that_is_not_found_is_no_empty_one_unless_discovery_says_so(
    discovery: list[Step],
) -> None:
    """A server that is starting answers 404 for what it will serve in a moment."""
    steps = [refuse(404, *NONE_SUCH), *discovery] * 3
    steps += [page(5, [item("a", 1, kind="PodDisruptionBudget")]), watch(then="hang")]
    recorder, sleeper = Recorder(), Sleeper()
    options = WatchOptions(optional=True)
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, POD_DISRUPTION_BUDGETS, options, sleep=sleeper) as informer,
    ):
        await informer.wait_synced()
        assert recorder.words == ["add a"]
    assert len(sleeper.delays) == 3


@pytest.mark.parametrize("discovery", [hang(), drop(), refuse(503, "ServiceUnavailable")])
async def test_a_refusal_is_reported_as_one_though_discovery_has_no_answer(
    discovery: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for a failure that passes, and reported a minute later if discovery hung."""
    monkeypatch.setattr("engine.io.kube.discovery._TIMEOUT", 0.1)
    steps = [refuse(403, "Forbidden"), discovery, *[page(5, [])] * 2, watch(then="hang")]
    with structlog.testing.capture_logs() as logs:
        async with (
            FaultyServer(*steps) as server,
            server.client() as client,
            running(
                client,
                Recorder(),
                POD_DISRUPTION_BUDGETS,
                WatchOptions(optional=True),
                sleep=Sleeper(),
            ) as informer,
        ):
            await informer.wait_synced()
    (error,) = [log for log in logs if log["log_level"] == "error"]
    assert error["event"] == "Could not list"
    assert "poddisruptionbudgets" in error["hint"]


async def test_a_group_that_discovery_lacks_is_empty() -> None:
    steps = [refuse(404, *NONE_SUCH), refuse(404, *NONE_SUCH)]
    options = WatchOptions(optional=True)
    sleeper = Sleeper()
    sleeper.gate.clear()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, Recorder(), POD_DISRUPTION_BUDGETS, options, sleep=sleeper) as informer,
    ):
        await informer.wait_synced()
        assert informer.state == "absent"


@pytest.mark.parametrize(
    ("refusals", "want"),
    [
        pytest.param(
            [refuse(404, *NONE_SUCH), served("nodes")],
            ["add a", "delete a", "add b"],
            id="no longer served",
        ),
        pytest.param([refuse(403, "No")], ["add a", "add b", "delete a"], id="no longer allowed"),
        pytest.param(
            [refuse(404, *NONE_SUCH), served("pods")],
            ["add a", "add b", "delete a"],
            id="not found, but served",
        ),
    ],
)
async def test_what_is_known_stays_until_it_is_no_longer_served(
    refusals: list[Step], want: list[str]
) -> None:
    steps = [
        page(5, [item("a", 1)]),
        refusals[0],  # the watch
        *refusals,
        *refusals,
        page(9, [item("b", 8)]),
        watch(then="hang"),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, options=WatchOptions(optional=True), sleep=Sleeper()),
    ):
        await recorder.until_reported(*want)


@pytest.mark.parametrize(
    ("steps", "is_forbidden"),
    [
        pytest.param([refuse(403, "Forbidden")] * 40, True, id="refused"),
        pytest.param([refuse(500, "InternalError")] * 40, False, id="broken"),
        pytest.param([refuse(504, "Timeout")] * 40, False, id="too slow"),
        pytest.param([watch(b"{{{\n")] * 40, False, id="garbage"),
    ],
)
async def test_what_can_no_longer_be_read_grows_old(steps: list[Step], is_forbidden: bool) -> None:
    clock, sleeper = VirtualClock(), Sleeper()
    sleeper.gate.clear()
    async with (
        FaultyServer(page(5, [item("a", 1)]), *steps) as server,
        server.client(clock=clock) as client,
        running(client, Recorder(), sleep=sleeper) as informer,
    ):
        await sleeper.asleep.wait()
        currency = informer.currency
        assert informer.has_synced
        assert currency.is_forbidden == is_forbidden
        now = clock.monotonic()
        assert not currency.is_older(300, now + 299)
        assert currency.is_older(300, now + 301)
        assert currency.is_older(0, now + 1)


async def test_other_failures_of_an_optional_resource_are_failures() -> None:
    steps = [refuse(500, "InternalError"), page(5, []), watch(then="hang")]
    sleeper = Sleeper()
    sleeper.gate.clear()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, Recorder(), options=WatchOptions(optional=True), sleep=sleeper) as informer,
    ):
        await sleeper.asleep.wait()
        assert not informer.has_synced
        sleeper.gate.set()
        await informer.wait_synced()


# --- being a good neighbour -----------------------------------------------------------------


async def test_selectors_and_namespace_reach_list_and_watch() -> None:
    options = WatchOptions(
        namespace="web", field_selector="status.phase!=Failed", label_selector="a=b"
    )
    steps = [page(5, [item("a", 1)]), watch(event("ADDED", "b", 6), then="hang")]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder, options=options),
    ):
        await recorder.until_reported("add a", "add b")
    for request in server.requests:
        assert request.path == "/api/v1/namespaces/web/pods"
        assert request.query["fieldSelector"] == "status.phase!=Failed"
        assert request.query["labelSelector"] == "a=b"


async def test_other_tasks_run_while_a_long_list_is_processed() -> None:
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    seen: list[int] = []
    handlers = Handlers[Plain](on_add=lambda _: seen.append(turns))
    steps = [page(9, [item(f"p{i}", i) for i in range(1000)]), watch(then="hang")]
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, Recorder(), handlers=handlers) as informer,
    ):
        task = asyncio.create_task(neighbour())
        await informer.wait_synced()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(set(seen)) == 10  # 1000 objects in slices of 100


async def test_cancelling_ends_it_at_any_point() -> None:
    """In a list, in a watch, and in a wait; afterwards nothing is called."""
    for steps in (
        [hang()],
        [page(5, [item("a", 1)]), watch(then="hang")],
        [refuse(500, "InternalError")],
    ):
        sleeper = Sleeper()
        sleeper.gate.clear()
        async with (
            FaultyServer(*steps) as server,
            server.client() as client,
        ):
            async with running(client, Recorder(), sleep=sleeper):
                await server.was_asked.wait()
            assert client  # still usable: the informer does not own it


# --- versions of a resource ----------------------------------------------------------------------

VERSIONS = tuple(Resource("example.com", one, "things", "Thing", True) for one in ("v2", "v1beta1"))
NOT_SERVED = ("NotFound", "the server could not find the requested resource")


def versions_asked(server: FaultyServer) -> list[str]:
    """The version and verb of each request for objects."""
    return [
        f"{'watch' if 'watch' in request.query else 'list'} {request.path.split('/')[3]}"
        for request in server.requests
        if request.path.endswith("/things")
    ]


async def test_the_newest_version_that_the_server_has_is_watched() -> None:
    steps = [refuse(404, *NOT_SERVED), page(5, [item("a", 1)]), watch(then="hang")]
    recorder, served = Recorder(), list[Resource | None]()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(
            client,
            recorder,
            VERSIONS[0],
            WatchOptions(optional=True, older=VERSIONS[1:]),
            on_served=served.append,
        ),
    ):
        await recorder.until_reported("add a")
        await eventually(lambda: len(server.requests) == 3)
        assert versions_asked(server) == ["list v2", "list v1beta1", "watch v1beta1"]
        assert served == [VERSIONS[1]]


async def test_a_newer_version_is_taken_when_the_watch_of_an_older_one_ends() -> None:
    """The objects are the same in both versions, so nothing is reported twice."""
    steps = [
        refuse(404, *NOT_SERVED),
        page(5, [item("a", 1)]),
        watch(event("ADDED", "b", 6)),
        page(7, [item("a", 1), item("b", 6)]),
        watch(event("DELETED", "a", 8), then="hang"),
    ]
    recorder, served = Recorder(), list[Resource | None]()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(
            client,
            recorder,
            VERSIONS[0],
            WatchOptions(optional=True, older=VERSIONS[1:]),
            on_served=served.append,
            sleep=Sleeper(),
        ),
    ):
        await recorder.until_reported("add a", "add b", "delete a")
        assert versions_asked(server)[2:] == ["watch v1beta1", "list v2", "watch v2"]
        assert served == [VERSIONS[1], VERSIONS[0]]


async def test_a_version_that_is_gone_leaves_the_resource_empty_until_another_one_comes() -> None:
    steps = [
        page(5, [item("a", 1)]),
        refuse(404, *NOT_SERVED),  # the watch
        refuse(404, *NOT_SERVED),
        refuse(404, *NOT_SERVED),
        refuse(404, *NOT_SERVED),  # discovery, for each version
        refuse(404, *NOT_SERVED),
        refuse(404, *NOT_SERVED),
        page(9, [item("b", 8)]),
        watch(then="hang"),
    ]
    recorder, served = Recorder(), list[Resource | None]()
    with structlog.testing.capture_logs() as logs:
        async with (
            FaultyServer(*steps) as server,
            server.client() as client,
            running(
                client,
                recorder,
                VERSIONS[0],
                WatchOptions(optional=True, older=VERSIONS[1:]),
                on_served=served.append,
                sleep=Sleeper(),
            ),
        ):
            await recorder.until_reported("add a", "delete a", "add b")
            lists = ["list v2", "list v1beta1"]
            assert versions_asked(server)[:5] == ["list v2", "watch v2", *lists, "list v2"]
            await eventually(lambda: served == [VERSIONS[0], None, VERSIONS[1]])
    assert not [log for log in logs if log["log_level"] == "error"]


# --- listing again --------------------------------------------------------------------------


async def test_catching_up_shows_what_a_silent_watch_has_not() -> None:
    steps = [
        page(5, [item("a", 1), item("b", 2)]),
        watch(then="hang"),
        page(9, [item("a", 8)]),
        watch(event("MODIFIED", "a", 10), then="hang"),
    ]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder) as informer,
    ):
        await eventually(lambda: len(server.requests) == 2)
        await informer.catch_up("9", 0.0)
        assert recorder.words[2:4] == ["update a", "delete b"]
        await recorder.until_reported("add a", "add b", "update a", "delete b", "update a")
        assert versions_watched(server) == ["list", "5", "list", "9"]


async def test_catching_up_is_not_content_with_a_list_that_had_begun() -> None:
    steps = [hang(), page(9, [item("a", 8)]), watch(then="hang")]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder) as informer,
    ):
        await eventually(lambda: len(server.requests) == 1)
        await informer.catch_up("9", 0.0)
        assert recorder.words == ["add a"]
        assert versions_watched(server)[:2] == ["list", "list"]


async def test_catching_up_does_not_wait_for_the_end_of_a_backoff() -> None:
    sleeper = Sleeper()
    sleeper.gate.clear()
    steps = [page(5, []), refuse(500, "InternalError"), page(9, [item("a", 8)]), watch(then="hang")]
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, Recorder(), sleep=sleeper) as informer,
    ):
        await sleeper.asleep.wait()
        await informer.catch_up("9", 0.0)
        assert informer.resource_version == "9"


async def test_catching_up_with_what_is_not_served_is_over_at_once() -> None:
    steps = [refuse(404, "NotFound"), served(), refuse(404, "NotFound"), served()]
    sleeper = Sleeper()
    sleeper.gate.clear()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, Recorder(), options=WatchOptions(optional=True), sleep=sleeper) as informer,
    ):
        await informer.wait_synced()
        await informer.catch_up("9", 0.0)
        assert len(server.requests) == 4


async def test_an_event_that_is_late_shows_enough() -> None:
    """Listing a large cluster would take longer than the watch is behind."""
    steps = [page(5, [item("a", 1)]), watch(event("MODIFIED", "a", 10), then="hang")]
    recorder = Recorder()
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, recorder) as informer,
    ):
        await eventually(lambda: len(server.requests) == 2)
        await informer.catch_up("9", 20.0)
        assert recorder.words == ["add a", "update a"]
        await informer.catch_up("10", 20.0)
        assert versions_watched(server) == ["list", "5"]


async def test_a_version_that_is_no_number_is_reached_by_a_list() -> None:
    steps = [page(5, []), watch(then="hang"), page(9, []), watch(then="hang")]
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        running(client, Recorder()) as informer,
    ):
        await eventually(lambda: len(server.requests) == 2)
        await informer.catch_up("odd", 0.0)
        assert versions_watched(server)[2] == "list"
