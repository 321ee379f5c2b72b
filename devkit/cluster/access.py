"""Users and their rights in the embedded cluster: TokenReviews and SubjectAccessReviews.

Owns what these two answer, and nothing else: the embedded API server itself asks for one token at
most and allows its holder everything. Rights are given one by one; there are no roles.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from engine.core.manifests.errors import bad_request

Json = dict[str, Any]

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SELF_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#: Who the holder of the server's own token is, or anyone without one.
OWN_USER: Final = "devcluster"
#: Their names in faults and in counts of requests.
REVIEWS: Final = {
    TOKEN_REVIEWS: "tokenreviews",
    ACCESS_REVIEWS: "subjectaccessreviews",
    SELF_REVIEWS: "selfsubjectreviews",
    SELF_ACCESS_REVIEWS: "selfsubjectaccessreviews",
}
_MASTERS: Final = "system:masters"


@dataclass
class Access:
    """Who has which token, and may do what.

    Attributes:
        users: Users by token, as `UserInfo` has them.
        paths: Paths that a user may get.
        namespaces: Namespaces whose pods a user may list; "" for all.
        denied: Verbs on resources (`pods/binding`) that reviews of one's own rights deny. Requests
            are allowed all the same.
    """

    users: dict[str, Json] = field(default_factory=dict)
    paths: set[tuple[str, str]] = field(default_factory=set)
    namespaces: set[tuple[str, str]] = field(default_factory=set)
    denied: set[tuple[str, str]] = field(default_factory=set)

    def add_user(self, token: str, name: str, *groups: str) -> None:
        """Let the holder of *token* be the user *name*."""
        self.users[token] = {"username": name, "uid": f"uid-of-{name}", "groups": list(groups)}

    def allow_path(self, user: str, *paths: str) -> None:
        """Let *user* get *paths*."""
        self.paths.update((user, path) for path in paths)

    def allow_namespace(self, user: str, *namespaces: str) -> None:
        """Let *user* list the pods of *namespaces* ("": of all)."""
        self.namespaces.update((user, namespace) for namespace in namespaces)

    def review(self, path: str, sent: Any) -> Json:
        """*sent* with its status. Refuses with 400 what is no review."""
        if path == SELF_REVIEWS and isinstance(sent, dict):
            return {**sent, "status": {"userInfo": {"username": OWN_USER}}}
        spec = sent.get("spec") if isinstance(sent, dict) else None
        if not isinstance(spec, dict):
            raise bad_request("want a review with a `spec`")
        if path == SELF_ACCESS_REVIEWS:
            status = self._own_rights(spec)
        else:
            status = self._token(spec) if path == TOKEN_REVIEWS else self._rights(spec)
        return {**sent, "status": status}

    def _token(self, spec: Json) -> Json:
        user = self.users.get(spec.get("token", ""))
        if user is None:
            return {"user": {}, "error": "[invalid bearer token]"}
        return {"authenticated": True, "user": user}

    def _own_rights(self, spec: Json) -> Json:
        about = spec.get("resourceAttributes") or {}
        parts = filter(None, (about.get("resource"), about.get("subresource")))
        return {"allowed": (about.get("verb"), "/".join(parts)) not in self.denied}

    def _rights(self, spec: Json) -> Json:
        name = spec.get("user", "")
        of_path, of_resource = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
        if _MASTERS in spec.get("groups", []):
            allowed = True
        elif of_path is not None:
            is_read = of_path.get("verb") in ("get", "head")
            allowed = is_read and (name, of_path.get("path")) in self.paths
        else:
            about = of_resource or {}
            is_list = (about.get("resource"), about.get("verb")) == ("pods", "list")
            allowed = is_list and bool(
                {(name, about.get("namespace", "")), (name, "")} & self.namespaces
            )
        return {"allowed": allowed}
