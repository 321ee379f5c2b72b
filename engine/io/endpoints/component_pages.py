"""`/statusz` and `/flagz` as the components of Kubernetes 1.37 answer them.

Owns the forms of the answer: text for people unless the caller asks for an object of a version, in
JSON or YAML. An object must be asked for by group, version and kind; nothing else is acceptable.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml
from aiohttp import hdrs, web

from engine.io.endpoints.routes import Refused, Request, Route, json_answer, text_answer

_GROUP: Final = "config.k8s.io"
_VERSIONS: Final = ("v1beta1", "v1alpha1")
_DEPRECATED: Final = "v1alpha1"
_TEXT: Final = frozenset({"text/plain", "text/*", "*/*"})
_STRUCTURED: Final = frozenset({"application/json", "application/yaml"})
_WARNING: Final = (
    "This endpoint is not meant to be machine parseable, has no formatting compatibility "
    "guarantees and is for debugging purposes only."
)


@dataclass(frozen=True, slots=True)
class Component:
    """What these pages say of the process.

    Attributes:
        name: Of the component.
        version: Its own.
        emulates: The minor version of Kubernetes that it behaves like.
        language: What it is written in, with the version.
        started_at: When it was started (Unix time).
        flags: Every flag and its value.
    """

    name: str
    version: str
    emulates: Callable[[], str]
    language: str
    started_at: float
    flags: Mapping[str, str]


def component_routes(
    component: Component, paths: Iterable[str], now: Callable[[], float]
) -> list[Route]:
    """`/statusz`, which names *paths*, and `/flagz`."""
    folders = sorted(
        {"/" + path.split("/")[1] for path in (*paths, "/flagz", "/statusz") if path != "/"}
    )

    def status() -> dict[str, Any]:
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(component.started_at))
        return {
            "startTime": began,
            "uptimeSeconds": max(0, int(now() - component.started_at)),
            "goVersion": component.language,
            "binaryVersion": component.version,
            "emulationVersion": component.emulates(),
            "paths": folders,
        }

    def status_text() -> Iterator[str]:
        up = max(0, int(now() - component.started_at))
        began = time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(component.started_at))
        yield ""
        yield f"Started: {began}"
        yield f"Up: {up // 3600} hr {up // 60 % 60:02} min {up % 60:02} sec"
        yield f"Language version: {component.language}"
        yield f"Binary version: {component.version}"
        yield f"Emulation version: {component.emulates()}"
        yield f"Paths: {' '.join(folders)}"

    def flags() -> dict[str, Any]:
        return {"flags": dict(component.flags)}

    def flags_text() -> Iterator[str]:
        return (f"{name}={value}" for name, value in sorted(component.flags.items()))

    return [
        Route("/statusz", _page(component.name, "Statusz", status, status_text)),
        Route("/flagz", _page(component.name, "Flagz", flags, flags_text)),
    ]


def _page(
    component: str,
    kind: str,
    content: Callable[[], dict[str, Any]],
    lines: Callable[[], Iterator[str]],
) -> Callable[[Request], Any]:
    async def handle(request: Request) -> web.Response:
        form = _negotiated(request.http.headers.get(hdrs.ACCEPT, ""), kind)
        if form is None:
            head = ["", f"{component} {kind.lower()}", f"Warning: {_WARNING}"]
            return text_answer("\n".join([*head, *lines(), ""]))
        media_type, version = form
        found = {
            "kind": kind,
            "apiVersion": f"{_GROUP}/{version}",
            "metadata": {"name": component},
            **content(),
        }
        if media_type == "application/yaml":
            answer = text_answer(yaml.safe_dump(found))
            answer.content_type = media_type
        else:
            answer = json_answer(found)
        if version == _DEPRECATED:
            answer.headers["Warning"] = (
                f'299 - "This version of the {kind.lower()} endpoint is deprecated. '
                'Please use a newer version."'
            )
        return answer

    return handle


def _negotiated(accept: str, kind: str) -> tuple[str, str] | None:
    """The media type and version of the object that is asked for; None for text.

    Raises `Refused` if neither is acceptable to the caller.
    """
    if not accept.strip():
        return None
    for media_type, parameters in _clauses(accept):
        version = parameters.get("v", "")
        wanted = (parameters.get("g"), parameters.get("as"))
        if media_type in _TEXT and wanted == (None, None):
            return None
        structured = {"application/*": "application/json", "*/*": "application/json"}
        media_type = structured.get(media_type, media_type)
        if media_type in _STRUCTURED and wanted == (_GROUP, kind) and version in _VERSIONS:
            return media_type, version
    raise Refused(
        406,
        "NotAcceptable",
        "only the following media types are accepted: text/plain, and application/json and "
        f"application/yaml with ;g={_GROUP};v=v1beta1;as={kind}",
    )


def _clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The media types of an `Accept` header with their parameters, the most wanted first."""
    found: list[tuple[float, str, dict[str, str]]] = []
    for clause in accept.split(","):
        media_type, *pieces = (piece.strip() for piece in clause.split(";"))
        pairs = (piece.partition("=") for piece in pieces)
        parameters = {key.strip(): value.strip() for key, _, value in pairs}
        try:
            weight = float(parameters.pop("q", "1"))
        except ValueError:
            weight = 0.0
        found.append((weight, media_type.lower(), parameters))
    found.sort(key=lambda entry: -entry[0])
    return [(media_type, parameters) for _, media_type, parameters in found]
