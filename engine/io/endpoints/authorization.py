"""What a caller may see: paths, and the pods of namespaces, as the API server's rules say.

Owns what is decided here without asking: the paths that are always open, and the group whose
members may do everything.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from engine.io.endpoints.authentication import Authenticator
from engine.io.endpoints.callers import Caller, User
from engine.io.endpoints.reviews import ReviewFailed, Reviews
from engine.io.endpoints.routes import Refused
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ServerError
from engine.lib.clock import Clock
from engine.lib.deep_json import UNREADABLE

log = structlog.get_logger(component="endpoints")

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_PRIVILEGED: Final = "system:masters"
OPEN_PATHS: Final = ("/healthz", "/livez", "/readyz")


@dataclass(frozen=True, slots=True)
class _Question:
    """May *user* do *verb* on *path*, or, without one, list the pods of *namespace*?"""

    user: User
    verb: str
    path: str | None = None
    namespace: str = ""

    def review(self) -> dict[str, Any]:
        """The SubjectAccessReview that asks."""
        user = self.user
        spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups)}
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra}
        if self.path is not None:
            spec["nonResourceAttributes"] = {"path": self.path, "verb": self.verb}
        else:
            spec["resourceAttributes"] = {
                "namespace": self.namespace,
                "verb": self.verb,
                "version": "v1",
                "resource": "pods",
            }
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class Authorizer:
    """Decides what callers may see.

    Args:
        client: The API server, which has the rules; None: nothing is allowed that needs one.
        allowed_seconds, denied_seconds: How long its answers are good.
        open_paths: Paths that need no rule; one that ends in `*` stands for all that begin so.
        clock: Time.
    """

    def __init__(
        self,
        client: ApiClient | None,
        *,
        allowed_seconds: float,
        denied_seconds: float,
        open_paths: Iterable[str] = OPEN_PATHS,
        clock: Clock,
    ) -> None:
        self._client = client
        rooted = ["/" + path.strip().lstrip("/") for path in open_paths]
        self._open = frozenset(path for path in rooted if not path.endswith("*"))
        self._open_prefixes = tuple(path[:-1] for path in rooted if path.endswith("*"))
        self._answers: Reviews[_Question, bool] = Reviews(
            self._review, lambda allowed: allowed_seconds if allowed else denied_seconds, clock
        )

    def is_open(self, path: str) -> bool:
        """True if *path* needs no rule."""
        return path in self._open or bool(
            self._open_prefixes and path.startswith(self._open_prefixes)
        )

    async def check(self, user: User, verb: str, path: str) -> None:
        """Return if *user* may do *verb* on *path*; raises `Refused` if not."""
        if _PRIVILEGED in user.groups or self.is_open(path):
            return
        try:
            is_allowed = await self._answers.answer(_Question(user, verb, path))
        except ReviewFailed as error:
            log.warning("Could not authorize a caller", user=user.name, reason=str(error))
            raise Refused(500, "InternalError", "Internal error: no answer about rights") from error
        if not is_allowed:
            message = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
            raise Refused(403, "Forbidden", message)

    async def may_list_pods(self, user: User, namespace: str) -> bool:
        """True if *user* may list the pods of *namespace* ("": of all). False without an answer."""
        if _PRIVILEGED in user.groups:
            return True
        try:
            return await self._answers.answer(_Question(user, "list", namespace=namespace))
        except ReviewFailed as error:
            log.warning("Could not authorize a caller", user=user.name, reason=str(error))
            return False

    async def _review(self, question: _Question) -> bool:
        if self._client is None:
            return False
        body = await self._client.request(
            "POST", _REVIEWS, body=msgspec.json.encode(question.review())
        )
        try:
            status = msgspec.json.decode(body, type=_Review).status
        except UNREADABLE as error:
            raise ServerError(f"want a SubjectAccessReview: {error}", request=_REVIEWS) from error
        return status.allowed and not status.denied


class DelegatedGuard:
    """The guard of the secure listener: who it is and what it may see, the API server says."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer

    async def __call__(self, request: web.Request) -> Caller:
        """The caller of *request*. Raises `Refused`."""
        user = await self._authenticator.user_of(request)
        await self._authorizer.check(user, request.method.lower(), request.path)

        async def may_read(namespace: str) -> bool:
            return await self._authorizer.may_list_pods(user, namespace)

        return Caller(user, may_read)
