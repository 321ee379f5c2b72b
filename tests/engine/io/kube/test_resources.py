"""Paths of API resources."""

import pytest

from engine.io.kube.resources import LEASES, NODES, PODS, Resource


@pytest.mark.parametrize(
    ("got", "want"),
    [
        pytest.param(PODS.path(), "/api/v1/pods", id="all namespaces"),
        pytest.param(PODS.path("web"), "/api/v1/namespaces/web/pods", id="one namespace"),
        pytest.param(
            PODS.path("web", "a", "binding"),
            "/api/v1/namespaces/web/pods/a/binding",
            id="subresource",
        ),
        pytest.param(NODES.path(name="n-1"), "/api/v1/nodes/n-1", id="cluster-wide object"),
        pytest.param(
            LEASES.path("kube-system", "starsched"),
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/starsched",
            id="named group",
        ),
        pytest.param(NODES.path(name="a/../b?"), "/api/v1/nodes/a%2F..%2Fb%3F", id="escaped"),
    ],
)
def test_path_follows_the_api_conventions(got: str, want: str) -> None:
    assert got == want


@pytest.mark.parametrize(
    ("resource", "parts", "want"),
    [
        pytest.param(NODES, ("web", None, None), "not namespaced", id="namespace on a node"),
        pytest.param(PODS, (None, "a", None), "needs a namespace", id="pod without namespace"),
        pytest.param(NODES, (None, None, "status"), "needs a name", id="subresource of nothing"),
    ],
)
def test_path_refuses_what_would_name_something_else(
    resource: Resource, parts: tuple[str | None, str | None, str | None], want: str
) -> None:
    with pytest.raises(ValueError, match=want):
        resource.path(*parts)


def test_api_version_and_text_name_the_group() -> None:
    assert (PODS.api_version, str(PODS)) == ("v1", "pods")
    assert (LEASES.api_version, str(LEASES)) == (
        "coordination.k8s.io/v1",
        "leases.coordination.k8s.io",
    )
