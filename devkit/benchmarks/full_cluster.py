"""A cluster in use: nodes with pods on them as workload controllers and kubelets write them.

Owns these objects, how they get into an API server, and the embedded server as a process of its
own, empty. A placed pod is about 6 kB of JSON: owner, projected token, probes, environment,
conditions and the status of its container, as a Deployment's pods have them.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from devkit.benchmarks import holdings, objects, trees
from devkit.benchmarks.holdings import HOLDINGS
from devkit.benchmarks.load import create_all
from devkit.benchmarks.objects import NAMESPACE, Manifest
from devkit.benchmarks.wire import Wire
from devkit.cluster.cluster import DevCluster

NODES: Final = 5000
PODS: Final = 30_000
#: Printed by the embedded server's process once it serves.
SERVES: Final = "serving at"

_PODS_PER_APP: Final = 100
_NAMESPACES: Final = 10
_CREATED: Final = "2026-01-01T00:00:00Z"
_SHAPES: Final = (
    ("100m", "128Mi"),
    ("250m", "256Mi"),
    ("250m", "1Gi"),
    ("500m", "512Mi"),
    ("500m", "2Gi"),
)

Progress = Callable[[str, int, int], None]


def namespaces() -> Iterator[Manifest]:
    """The namespaces of everything below."""
    for name in (NAMESPACE, *(f"team-{n}" for n in range(_NAMESPACES))):
        yield objects.namespace(name)


def placed_pod(number: int, nodes: int) -> Manifest:
    """The running pod with *number*, on one of *nodes* nodes; *status* included."""
    app_number = number // _PODS_PER_APP
    app = f"app-{app_number:04d}"
    digest = f"{app_number * 2654435761 % 2**32:08x}"
    name = f"{app}-{digest}-{number:05d}"
    cpu, memory = _SHAPES[app_number % len(_SHAPES)]
    node = number % nodes
    image = f"registry.example/teams/{app}:1.{app_number % 7}.{app_number % 13}"
    token = f"kube-api-access-{number:05d}"
    address = f"10.{node // 256 % 256}.{node % 256}.{2 + number // nodes % 250}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": f"{app}-{digest}-",
            "namespace": f"team-{app_number % _NAMESPACES}",
            "labels": {
                "app.kubernetes.io/name": app,
                "app.kubernetes.io/part-of": f"product-{app_number % 40}",
                "pod-template-hash": digest,
            },
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9090",
                "checksum/config": f"{digest * 8}",
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-{digest}",
                    "uid": f"{digest}-0000-4000-8000-{app_number:012d}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "nodeName": f"node-{node:05d}",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 0,
            "containers": [_container(app, image, token, cpu, memory)],
            "volumes": [{"name": token, "projected": _token_sources()}],
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
        },
        "status": _running(app, image, address),
    }


def _container(app: str, image: str, token: str, cpu: str, memory: str) -> Manifest:
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    return {
        "name": "main",
        "image": image,
        "args": ["--listen=:8080", f"--name={app}", "--log-format=json"],
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "m", "containerPort": 9090}],
        "env": [
            {"name": "APP", "value": app},
            {"name": "GOMEMLIMIT", "value": memory},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "resources": {
            "requests": {"cpu": cpu, "memory": memory},
            "limits": {"memory": memory},
        },
        "livenessProbe": probe,
        "readinessProbe": {**probe, "httpGet": {"path": "/readyz", "port": 8080}},
        "volumeMounts": [
            {
                "name": token,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": True,
            }
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _token_sources() -> Manifest:
    field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {"downwardAPI": {"items": [{"path": "namespace", **field}]}},
        ],
    }


def _running(app: str, image: str, address: str) -> Manifest:
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": _CREATED,
        "qosClass": "Burstable",
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": _CREATED}
            for kind in (
                "PodReadyToStartContainers",
                "Initialized",
                "Ready",
                "ContainersReady",
                "PodScheduled",
            )
        ],
        "containerStatuses": [
            {
                "name": "main",
                "image": image,
                "imageID": f"{image}@sha256:{'0123456789abcdef' * 4}",
                "containerID": f"containerd://{'fedcba9876543210' * 4}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": _CREATED}},
                "lastState": {},
            }
        ],
    }


async def fill(
    wire: Wire, nodes: int, pods: int, holds: str, progress: Progress, queues: int = 0
) -> None:
    """Create the cluster through the API, pods and then their status.

    *holds* names one of `HOLDINGS`: what each pod has besides its capacity. Pods are in *queues*
    queues of `trees`, or in none.
    """
    holding = HOLDINGS[holds]
    await create_all(wire, namespaces())
    await create_all(
        wire,
        map(objects.node, range(nodes)),
        on_done=lambda place: progress("creating nodes", place + 1, nodes),
    )
    await create_all(wire, holding.before(nodes))
    placed = [placed_pod(number, nodes) for number in range(pods)]
    for number, pod in enumerate(placed if queues else ()):
        trees.put_in_queue(pod, number, queues)
    held = [one for n, pod in enumerate(placed) for one in holding.placed(pod, n, nodes)]
    progress("creating what they hold", 0, len(held))
    await holdings.create(wire, held)
    await create_all(wire, placed, on_done=lambda place: progress("placing pods", place + 1, pods))

    def statuses() -> Iterator[bytes]:
        for manifest in placed:
            meta = manifest["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
            kind = "application/merge-patch+json"
            body = {"status": manifest["status"]}
            yield wire.encode("PATCH", path, body, content_type=kind)

    await wire.send_all(
        statuses(), on_done=lambda place: progress("reporting status", place + 1, pods)
    )


# --- the embedded server as a process ----------------------------------------------------------


async def _serve(kubeconfig: Path) -> None:
    async with DevCluster(history=200_000) as cluster:
        cluster.write_kubeconfig(kubeconfig)
        click.echo(f"{SERVES} {cluster.url}")
        sys.stdout.flush()
        await asyncio.Event().wait()


@click.command(help="Serve the embedded API server until killed.")
@click.argument("kubeconfig", type=click.Path(path_type=Path))
def main(kubeconfig: Path) -> None:
    asyncio.run(_serve(kubeconfig))


if __name__ == "__main__":
    main()
