"""Live updates, as a client of the stream sees them."""

import asyncio

import aiohttp
import pytest

from engine.surfaces.live.answers import Refusal
from engine.surfaces.page.streams import Streams, _message
from tests.engine.surfaces.page import answers
from tests.engine.surfaces.page.site import Site, running_site
from tests.waiting import eventually, idle

_STREAM = {"Accept": "text/event-stream"}


async def _event(response: aiohttp.ClientResponse) -> str:
    """The next message of a stream."""
    lines: list[str] = []
    while (line := (await response.content.readline()).decode().rstrip("\n")) or not lines:
        lines.append(line)
    return "\n".join(lines)


async def test_only_changes_are_sent(site: Site) -> None:
    async with (
        aiohttp.ClientSession(site.url) as session,
        session.get("/queue", headers=_STREAM) as response,
    ):
        assert response.content_type == "text/event-stream"
        assert "checkout-1" in await _event(response)
        # An age alone is no change, and the page goes on counting by itself.
        site.answers["/queue"] = answers.queue(answers.row(waited_seconds=9999.0))
        await idle()
        site.answers["/queue"] = answers.queue(answers.row("shop/other"))
        event = await _event(response)
        assert "other" in event
        assert "2 h 46 min" not in event


async def test_what_is_shown_stays_while_there_is_no_answer(site: Site) -> None:
    async with (
        aiohttp.ClientSession(site.url) as session,
        session.get("/queue", headers=_STREAM) as response,
    ):
        assert "checkout-1" in await _event(response)
        site.status, site.answers["/queue"] = 429, Refusal(error="too many explanations")
        await idle()
        site.status, site.answers["/queue"] = 200, answers.queue(answers.row("shop/other"))
        assert "other" in await _event(response)


async def test_a_stream_ends_with_its_client(site: Site) -> None:
    async with aiohttp.ClientSession(site.url) as session:
        async with session.get("/queue", headers=_STREAM) as response:
            await _event(response)
            assert site.streams.count == 1
            response.close()
        await eventually(lambda: site.streams.count == 0)


async def test_one_beyond_the_limit_is_told_to_come_back() -> None:
    site = Site(streams=Streams(most=1, pace=0.02))
    async with (
        running_site(site),
        aiohttp.ClientSession(site.url) as session,
        session.get("/queue", headers=_STREAM) as first,
        session.get("/queue", headers=_STREAM) as second,
    ):
        await _event(first)
        assert await second.text() == "event: crowded\nretry: 30000\ndata: \n\n"


async def test_a_stream_ends_after_a_while_so_that_its_caller_is_asked_for_again() -> None:
    site = Site(streams=Streams(sleep=lambda _seconds: asyncio.sleep(0)))
    async with (
        running_site(site),
        aiohttp.ClientSession(site.url) as session,
        session.get("/queue", headers=_STREAM) as response,
    ):
        body = await response.text()
    assert body.count("checkout-1") > 0
    # 300 seconds, with a sign of life every 20.
    assert body.count(": nothing new") == 14


async def test_asking_for_the_head_of_a_stream_opens_none(site: Site) -> None:
    async with (
        aiohttp.ClientSession(site.url) as session,
        session.head("/queue", headers=_STREAM) as response,
    ):
        assert response.status == 200
        assert site.streams.count == 0


async def test_closing_ends_every_stream(site: Site) -> None:
    async with (
        aiohttp.ClientSession(site.url) as session,
        session.get("/queue", headers=_STREAM) as response,
    ):
        await _event(response)
        await site.streams.close()
        await eventually(lambda: site.streams.count == 0)


async def test_a_large_answer_is_sent_less_often() -> None:
    pauses: list[float] = []
    more = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await more.wait()

    site = Site(streams=Streams(sleep=sleep))
    site.answers["/queue"] = answers.queue(*(answers.row(f"shop/p{i}") for i in range(1000)))
    async with (
        running_site(site),
        aiohttp.ClientSession(site.url) as session,
        session.get("/queue", headers=_STREAM) as response,
    ):
        size = len(await _event(response))
        await eventually(lambda: pauses)
        assert size > 500_000
        assert pauses[0] == pytest.approx(size / 200_000, rel=0.1)


def test_a_text_cannot_end_its_message() -> None:
    text = "a\n\nevent: evil\r\rdata: b\r\n"
    assert (
        _message(text) == b"data: a\ndata: \ndata: event: evil\ndata: \ndata: data: b\ndata: \n\n"
    )
