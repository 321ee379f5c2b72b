"""Whose a token is, and what a user may do: what the API server is asked about callers."""

from typing import Any

import pytest

from tests.contract.harness import Api

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
RIGHTS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def token_status(api: Api, token: str) -> dict[str, Any]:
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }
    answer = await api.call("POST", TOKENS, review)
    assert answer.status == 201
    assert (answer.body["kind"], answer.body["apiVersion"]) == (
        "TokenReview",
        "authentication.k8s.io/v1",
    )
    status: dict[str, Any] = answer.body["status"]
    return status


async def test_a_known_token_names_its_user(api: Api) -> None:
    status = await token_status(api, api.headers["Authorization"].removeprefix("Bearer "))
    assert status["authenticated"] is True
    assert status["user"]["username"] == "admin"
    assert "system:masters" in status["user"]["groups"]


async def test_an_unknown_token_is_nobodys(api: Api) -> None:
    status = await token_status(api, "unknown")
    assert not status.get("authenticated", False)
    assert status["error"]
    assert not status["user"].get("username")


@pytest.mark.parametrize(
    "about",
    [
        pytest.param({"nonResourceAttributes": {"path": "/queue", "verb": "get"}}, id="path"),
        pytest.param(
            {"resourceAttributes": {"namespace": "a", "verb": "list", "resource": "pods"}},
            id="pods",
        ),
    ],
)
@pytest.mark.parametrize(
    ("user", "groups", "allowed"),
    [("admin", ["system:masters"], True), ("stranger", ["system:authenticated"], False)],
)
async def test_rights_are_those_of_the_user(
    api: Api, about: dict[str, Any], user: str, groups: list[str], allowed: bool
) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, **about},
    }
    answer = await api.call("POST", RIGHTS, review)
    assert answer.status == 201
    assert answer.body["kind"] == "SubjectAccessReview"
    assert answer.body["status"]["allowed"] is allowed


@pytest.mark.parametrize("path", [TOKENS, RIGHTS])
async def test_what_is_no_review_is_refused(api: Api, path: str) -> None:
    assert (await api.call("POST", path, b"{")).status == 400


@pytest.mark.parametrize("path", [TOKENS, RIGHTS])
async def test_a_review_is_made_and_never_read(api: Api, path: str) -> None:
    assert (await api.call("GET", path)).status == 405
