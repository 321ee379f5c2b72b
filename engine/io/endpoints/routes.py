"""The table of routes, and the application that serves it.

A route is a path and a function from a request to an answer. Every request, also one for a path
that does not exist, first passes the guard of its listener, which names the caller or refuses.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog
from aiohttp import hdrs, web

from engine.io.endpoints.callers import Caller
from engine.lib.printable import printable_json, printable_lines

log = structlog.get_logger(component="endpoints")


@dataclass(frozen=True, slots=True)
class Request:
    """A request, and who sent it."""

    caller: Caller
    http: web.Request

    @property
    def query(self) -> Mapping[str, str]:
        """The query; of a key that is given twice, the first value."""
        return self.http.query

    def part(self, name: str) -> str:
        """The decoded part *name* of the path."""
        return self.http.match_info[name]

    def accepts(self, media_type: str) -> bool:
        """True if the caller names *media_type* as one that it takes."""
        return media_type in self.http.headers.get(hdrs.ACCEPT, "")


Handler = Callable[[Request], Awaitable[web.StreamResponse]]
#: Names the caller of a request, or raises `Refused`.
Guard = Callable[[web.Request], Awaitable[Caller]]


@dataclass(frozen=True, slots=True)
class Route:
    """One address.

    Attributes:
        path: As aiohttp writes it: `/explain/{namespace}/{pod}`.
        handle: Answers it.
        verb: The HTTP method; `HEAD` comes with `GET`.
        filters_by_namespace: True if the answer has rows of namespaces, and the handler leaves out
            those that `Request.caller` may not read.
        is_listed: False for one that `/` does not list, because another address leads to it.
        is_open: True if it asks for no right: its handler knows its callers by a secret part.
    """

    path: str
    handle: Handler
    verb: str = hdrs.METH_GET
    filters_by_namespace: bool = False
    is_listed: bool = True
    is_open: bool = False

    @property
    def fixed(self) -> str:
        """What every path of it begins with."""
        return self.path.partition("{")[0]


class Refused(Exception):
    """A request that is not answered, in the words of a kube component.

    Args:
        status: HTTP status.
        reason: The word of the API for it, such as `Forbidden`.
        message: For people.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    def answer(self) -> web.Response:
        """The `Status` object that says so."""
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.status,
        }
        return _hardened(web.json_response(body, status=self.status))


def text_answer(text: str, status: int = 200) -> web.Response:
    """Plain text."""
    return _hardened(web.Response(text=printable_lines(text), status=status))


def json_answer(value: Any, status: int = 200) -> web.Response:
    """*value*, plain data or a Struct, as JSON for people and programs."""
    body = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2) + b"\n"
    body = printable_json(body)
    return _hardened(web.Response(body=body, status=status, content_type="application/json"))


def json_route(path: str, source: Callable[[], Any], *, filters: bool = False) -> Route:
    """A route that shows what *source* returns; nothing in it belongs to a namespace."""

    async def handle(_request: Request) -> web.Response:
        return json_answer(source())

    return Route(path, handle, filters_by_namespace=filters)


_CALLER: Final = web.RequestKey("caller", Caller)


def make_application(routes: Iterable[Route], guard: Guard) -> web.Application:
    """Serve *routes* to the callers that *guard* lets in."""
    table = list(routes)

    @web.middleware
    async def guarded(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            request[_CALLER] = await guard(request)
            return await handler(request)
        except Refused as refusal:
            return refusal.answer()
        except web.HTTPNotFound:
            return text_answer("404 page not found\n", status=404)
        except web.HTTPException as error:
            return text_answer(f"{error.reason}\n", status=error.status)
        except Exception:
            log.exception("Request failed", method=request.method, path=request.path)
            return text_answer("internal server error\n", status=500)

    application = web.Application(middlewares=[guarded])
    for route in table:
        application.router.add_route(route.verb, route.path, _adapted(route.handle))
        if route.verb == hdrs.METH_GET:
            application.router.add_route(hdrs.METH_HEAD, route.path, _adapted(route.handle))
    return application


def index_route(routes: Iterable[Route]) -> Route:
    """`/`: the paths of *routes*."""
    paths = sorted({route.path for route in routes if route.is_listed})

    async def handle(_request: Request) -> web.Response:
        return json_answer({"paths": paths})

    return Route("/", handle, is_listed=False)


def _adapted(handle: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def serve(request: web.Request) -> web.StreamResponse:
        return await handle(Request(request[_CALLER], request))

    return serve


def _hardened(answer: web.Response) -> web.Response:
    """*answer* with headers against guessing its type and keeping it: it is of this moment."""
    answer.headers["X-Content-Type-Options"] = "nosniff"
    answer.headers["Cache-Control"] = "no-cache, private"
    return answer
