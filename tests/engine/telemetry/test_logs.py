"""Logs are one JSON object a line, with shared keys first and no secrets."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import BinaryIO

import pytest
import structlog
from aiohttp import web

from devkit.cluster import DevCluster
from engine.telemetry.logs import LogFormat, configure_logging, level_of, logs_attempts
from engine.telemetry.spans import Span, within
from tests.builders import node_manifest, pod_manifest
from tests.engine.app.harness import config_map, namespace, node_of, scheduler
from tests.engine.io.tracing.kept import KeptTrace
from tests.engine.lib.hostile import HOSTILE, raw_in
from tests.waiting import eventually


@pytest.fixture
def stream() -> Iterator[io.BytesIO]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield io.BytesIO()
    structlog.reset_defaults()
    root.handlers[:] = before
    root.setLevel(level)


def lines(stream: io.BytesIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_time_level_and_message_first(stream: io.BytesIO) -> None:
    configure_logging(stream=stream)
    structlog.get_logger().info("Bound pod", pod="default/web", node="node-1", attempts=3)
    (line,) = lines(stream)
    assert list(line)[:3] == ["time", "level", "message"]
    assert (line["message"], line["pod"], line["attempts"]) == ("Bound pod", "default/web", 3)


def test_a_line_about_a_traced_pod_names_its_span(stream: io.BytesIO) -> None:
    configure_logging(stream=stream)
    span = Span(KeptTrace(), "attempt", 0)
    with within(span):
        structlog.get_logger().info("Bound pod")
    structlog.get_logger().info("Bound pod")
    one, other = lines(stream)
    assert (one["trace_id"], one["span_id"]) == (f"{0xABC:032x}", f"{span.span_id:016x}")
    assert "trace_id" not in other


@pytest.mark.parametrize(
    ("fields", "secret"),
    [
        pytest.param({"token": "hunter2"}, "hunter2", id="secret key"),
        pytest.param({"authorization": "Basic aHVudGVyMg"}, "aHVudGVyMg", id="header"),
        pytest.param({"reason": "GET /x: Bearer eyJh.bG-c_i= refused"}, "eyJh", id="inside a text"),
    ],
)
def test_secrets_are_never_written(stream: io.BytesIO, fields: dict[str, str], secret: str) -> None:
    configure_logging(stream=stream)
    structlog.get_logger().warning("Request failed", **fields)
    assert secret not in stream.getvalue().decode()
    assert "[redacted]" in stream.getvalue().decode()


def test_a_traceback_is_redacted_too(stream: io.BytesIO) -> None:
    configure_logging(stream=stream)
    try:
        raise ValueError("sent Bearer abcdef")
    except ValueError:
        structlog.get_logger().exception("Unexpected exception")
    (line,) = lines(stream)
    assert "Traceback" in str(line["exception"])
    assert "abcdef" not in stream.getvalue().decode()


@pytest.mark.parametrize(
    ("verbosity", "want"),
    [
        pytest.param(-1, logging.WARNING, id="quiet"),
        pytest.param(0, logging.INFO, id="outcomes"),
        pytest.param(4, logging.DEBUG, id="steps"),
    ],
)
def test_verbosity_is_kubes_dash_v(verbosity: int, want: int) -> None:
    assert level_of(verbosity) == want


def test_attempts_are_logged_where_kube_scheduler_logs_bindings() -> None:
    assert [logs_attempts(verbosity) for verbosity in (-1, 0, 1, 2, 4)] == [False] * 3 + [True] * 2


def test_warnings_of_libraries_come_out_in_the_same_form(stream: io.BytesIO) -> None:
    configure_logging(stream=stream)
    logging.getLogger("aiohttp.client").warning("slow answer from %s", "there")
    (line,) = lines(stream)
    assert (line["message"], line["component"]) == ("slow answer from there", "aiohttp.client")


async def test_what_is_no_http_is_a_warning_of_one_line(stream: io.BytesIO) -> None:
    configure_logging(stream=stream)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        reader, writer = await asyncio.open_connection(*runner.addresses[0])
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
        await writer.wait_closed()
    finally:
        await runner.cleanup()
    (line,) = lines(stream)
    assert line["message"] == "Error handling request from 127.0.0.1"
    assert line["level"] == "warning"
    assert line["reason"] == "Missing 'Host' header in request."
    assert "exception" not in line


def test_text_for_people_has_no_colours_in_a_pipe(stream: io.BytesIO) -> None:
    configure_logging(stream=stream, log_format="text")
    structlog.get_logger().info("Bound pod", pod="default/web")
    assert "\x1b" not in stream.getvalue().decode()
    assert "Bound pod" in stream.getvalue().decode()


@pytest.fixture
def full(stream: io.BytesIO) -> Iterator[BinaryIO]:
    with open("/dev/full", "wb", buffering=0) as opened:
        yield opened


async def test_a_log_that_takes_no_line_stops_no_scheduler(full: BinaryIO) -> None:
    """Each line on a full disk was an error of whoever wrote it, and the first one the end."""
    async with DevCluster() as cluster:
        for made in (namespace(), config_map({}), node_manifest("a")):
            cluster.create(made)
        configure_logging(stream=full)
        logging.getLogger("a library").warning("lost as well")
        async with scheduler(cluster, from_config_map=True):
            cluster.create(pod_manifest("p", image="app"))
            await eventually(lambda: node_of(cluster, "p") == "a")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_line_has_no_control_characters_whatever_is_logged(
    stream: io.BytesIO, log_format: LogFormat
) -> None:
    """A reason of a policy went out raw: with colours, and a line of its own."""
    configure_logging(stream=stream, log_format=log_format)
    log = structlog.get_logger()
    log.warning("Pod waits", pod=HOSTILE, reason=HOSTILE, policy=[HOSTILE], node={"a": HOSTILE})
    logging.getLogger("library").warning("said %s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("Failed", reason=HOSTILE)
    text = stream.getvalue().decode()
    assert raw_in(text) == []
    if log_format == "json":
        first = lines(stream)[0]
        assert (first["pod"], first["policy"]) == (HOSTILE, [HOSTILE])
    else:
        head, _, traceback = text.partition("Traceback")
        assert "\nfake: ok" not in head
        assert "\n" in traceback
