"""Renders `deploy/` with the real kustomize, and names what comes out."""

import functools
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.scripts import go_program

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

Manifest = dict[str, Any]

# The plural names and scopes of what deploy/ contains, for the paths of requests.
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "PodMonitor": "/apis/monitoring.coreos.com/v1/namespaces/{namespace}/podmonitors",
    "PrometheusRule": "/apis/monitoring.coreos.com/v1/namespaces/{namespace}/prometheusrules",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


@functools.cache
def kustomize_binary() -> Path:
    """The pinned kustomize; builds it if it is missing."""
    return go_program("kustomize")


@functools.cache
def _rendered(folder: str) -> str:
    result = subprocess.run(
        [kustomize_binary(), "build", DEPLOY / folder], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == "", result.stderr  # warnings, such as of deprecated fields
    return result.stdout


def render(folder: str) -> list[Manifest]:
    """The objects of `deploy/<folder>`, in the order in which kustomize prints them."""
    return list(yaml.safe_load_all(_rendered(folder)))


def pick(objects: list[Manifest], kind: str, name: str | None = None) -> Manifest:
    """The one object of *kind* (of *name*, if given)."""
    found = [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    assert len(found) == 1, f"want one {kind}, got {[o['metadata']['name'] for o in found]}"
    return found[0]


def object_path(manifest: Manifest) -> str:
    """The URL path of *manifest*."""
    metadata = manifest["metadata"]
    collection = _PATHS[manifest["kind"]].format(namespace=metadata.get("namespace"))
    return f"{collection}/{metadata['name']}"


def policies(objects: list[Manifest]) -> Manifest:
    """The ConfigMap that policies are edited in."""
    return pick(objects, "ConfigMap", "starsched-policies")


def container(objects: list[Manifest]) -> Manifest:
    """The only container of the Deployment."""
    containers = pick(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert len(containers) == 1
    found: Manifest = containers[0]
    return found
