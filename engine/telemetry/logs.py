"""Structured logs: a constant message, then key-values, as JSON lines or for a terminal.

Owns the set-up, verbosity, and the guarantee that no secret is written. What is logged, and when,
is each module's own business; the keys are shared: `pod`, `node`, `profile`, `policy`,
`extension_point`, `attempts`, `reason`, `duration_ms`, `revision`; `component` names the part, and
`trace_id` and `span_id` the span of a pod that is traced.
"""

import contextlib
import functools
import logging
import re
import sys
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final, Literal, cast

import msgspec
import structlog

from engine.lib.printable import printable, printable_json, printable_lines
from engine.telemetry import spans

LogFormat = Literal["json", "text"]

_REDACTED: Final = "[redacted]"
_SECRET_KEYS: Final = frozenset(
    {"authorization", "token", "password", "secret", "client_key", "private_key", "kubeconfig_data"}
)
_BEARER: Final = re.compile(r"(?i)(bearer\s+)[a-z0-9._~+/=-]+")

_REASON_LENGTH: Final = 300
_OF_LINES: Final = ("exception", "stack")

# kube's -v: 0 and 1 are what changes, 2 adds each attempt, 4 and more are for debugging.
_ATTEMPTS_VERBOSITY: Final = 2
_DEBUG_VERBOSITY: Final = 4


def level_of(verbosity: int) -> int:
    """The log level that kube's `-v` *verbosity* stands for; negative: warnings and errors only."""
    if verbosity < 0:
        return logging.WARNING
    return logging.DEBUG if verbosity >= _DEBUG_VERBOSITY else logging.INFO


def logs_attempts(verbosity: int) -> bool:
    """True if each attempt to schedule a pod has a line with kube's `-v` *verbosity*."""
    return verbosity >= _ATTEMPTS_VERBOSITY


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace what must never be logged: values of secret keys, bearer tokens inside texts."""
    for key, value in event.items():
        if key in _SECRET_KEYS:
            event[key] = _REDACTED
        elif isinstance(value, str) and ("earer " in value or "EARER " in value):
            event[key] = _BEARER.sub(rf"\1{_REDACTED}", value)
    return event


def _stamp(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    second, millis = divmod(time.time_ns() // 1_000_000, 1000)
    event["time"] = f"{_second(second)}.{millis:03d}Z"
    return event


def _locate(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    span = spans.current.get()
    if span is not None:
        event.update(span.exemplar)
    return event


@functools.lru_cache(maxsize=4)
def _second(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


_encode = msgspec.json.Encoder(enc_hook=str).encode


def _render_json(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> bytes:
    # Fixed keys first, so that lines are readable without a tool.
    line = {
        "time": event.pop("time", None),
        "level": event.pop("level", None),
        "message": event.pop("event", None),
    }
    line.update(event)
    return printable_json(_encode(line))


def _render_text(colors: bool) -> Any:
    console = structlog.dev.ConsoleRenderer(colors=colors, timestamp_key="time")

    def render(logger: Any, method: str, event: MutableMapping[str, Any]) -> bytes:
        for key, value in event.items():
            if isinstance(value, str):
                # A traceback has lines; anything else that has them would look like other entries.
                event[key] = printable_lines(value) if key in _OF_LINES else printable(value)
        return console(logger, method, event).encode()

    return render


def _bad_request(record: logging.LogRecord) -> str | None:
    """What is wrong with a request that is not HTTP, if *record* is about one.

    Any client can send one: that is worth a line, and not an error of ours.
    """
    if not record.name.startswith("aiohttp") or record.exc_info is None:
        return None
    # Servers have imported it; other commands save a tenth of a second.
    from aiohttp.http_exceptions import HttpProcessingError

    error = record.exc_info[1]
    return error.message if isinstance(error, HttpProcessingError) else None


class _StandardLibraryHandler(logging.Handler):
    """Sends what libraries log through `logging` to the same output, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = record.levelno
            fields: dict[str, Any] = {"component": record.name}
            bad_request = _bad_request(record)
            if bad_request is not None:
                level = logging.WARNING
                fields["reason"] = " ".join(bad_request.split())[:_REASON_LENGTH]
            elif record.exc_info:
                fields["exc_info"] = record.exc_info
            structlog.get_logger().log(level, record.getMessage(), **fields)
        except Exception:
            self.handleError(record)


class _Lossy:
    """A stream that drops what it cannot write: a full disk must not stop the scheduler."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, line: bytes) -> None:
        """Write *line*, or lose it."""
        with contextlib.suppress(OSError):
            self._stream.write(line)

    def flush(self) -> None:
        """Pass on what was written, now or with a later line."""
        with contextlib.suppress(OSError):
            self._stream.flush()


def configure_logging(
    *,
    verbosity: int = 0,
    log_format: LogFormat = "json",
    stream: BinaryIO | None = None,
    colors: bool | None = None,
) -> None:
    """Set logging up for the process: every line goes to *stream* (standard error by default).

    What cannot be written there, as on a full disk, is lost.

    Args:
        verbosity: kube's `-v`. Below 0 only warnings and errors, from 4 on debugging too.
        log_format: `json` for machines, `text` for people.
        stream: Where bytes are written.
        colors: Only for `text`; by default if the stream is a terminal.
    """
    target = stream if stream is not None else sys.stderr.buffer
    level = level_of(verbosity)
    # Tracebacks become text before redaction: an error's text may quote a request.
    processors: list[Any] = [
        structlog.processors.add_log_level,
        _stamp,
        _locate,
        structlog.processors.format_exc_info,
        redact,
    ]
    if log_format == "json":
        processors.append(_render_json)
    else:
        processors.append(_render_text(target.isatty() if colors is None else colors))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.BytesLoggerFactory(cast("BinaryIO", _Lossy(target))),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_StandardLibraryHandler())
    # Libraries are quiet unless something is wrong; their INFO is our DEBUG.
    root.setLevel(logging.DEBUG if verbosity > _DEBUG_VERBOSITY else logging.WARNING)
