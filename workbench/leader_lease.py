"""What the Lease says of the scheduler that leads: its pod, and where its page is.

Owns where a Lease and the pod of its holder are looked for.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from yarl import URL

from engine.io.kube.client import ApiClient
from engine.io.kube.errors import Forbidden, NotFound
from engine.io.kube.resources import LEASES
from engine.io.leader_election import CERTIFICATE_ANNOTATION, PAGE_ANNOTATION, HolderPage

#: Where a Lease is looked for: where the manifests of `deploy/` put it, and where it is without
#: any options.
LEASE_NAMES: Final = ("starsched/starsched", "kube-system/starsched", "kube-system/kube-scheduler")
_KUBE_SCHEDULER: Final = "kube-system/kube-scheduler"
#: The namespace of the manifests that replace kube-scheduler, and compete for its Lease.
REPLACING: Final = "starsched"
# How an identity ends that `make_identity` makes: the pod's name comes before it.
_UUID: Final = re.compile(r"_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class NoLeader(Exception):
    """No Lease names a pod that leads; the text says why."""


@dataclass(frozen=True, slots=True)
class LeaderLease:
    """A Lease as read.

    Attributes:
        name: `namespace/name`.
        holder: The identity that holds it.
        pods: Namespace and name of what may be the holder's pod, the likeliest first.
        page: Where the holder's page is, and its certificate.
        renewed: When it was renewed last, as the Lease has it.
    """

    name: str
    holder: str
    pods: tuple[tuple[str, str], ...]
    page: HolderPage
    renewed: str


async def read_lease(client: ApiClient, lease: str, namespace: str) -> LeaderLease:
    """The Lease *lease* (`namespace/name`; "" for where it usually is), and its holder's pod.

    *namespace* is that of the pod; "" for where the manifests have it. Raises `NoLeader`, and
    `ApiError` where it could not be read.
    """
    tried = (lease,) if lease else LEASE_NAMES
    forbidden: Forbidden | None = None
    for one in tried:
        where, _, name = one.rpartition("/")
        where = where or "kube-system"
        try:
            found = msgspec.json.decode(await client.get(LEASES, name, where))
        except NotFound:
            continue
        except Forbidden as error:
            forbidden = forbidden or error
            continue
        return _leader(f"{where}/{name}", found, namespace)
    if forbidden is not None:
        raise forbidden
    raise NoLeader(f"no Lease {' or '.join(f'`{one}`' for one in tried)}: no scheduler leads")


def _leader(named: str, found: dict[str, Any], namespace: str) -> LeaderLease:
    spec = found.get("spec") or {}
    annotations = (found.get("metadata") or {}).get("annotations") or {}
    holder = str(spec.get("holderIdentity") or "")
    pod = _UUID.sub("", holder)
    if not holder:
        raise NoLeader(f"no scheduler leads: the Lease `{named}` has no holder")
    if pod == holder:
        raise NoLeader(f"the Lease `{named}` names no pod: its holder is `{holder}`")
    own = named.partition("/")[0]
    pods = [(namespace or own, pod)]
    if named == _KUBE_SCHEDULER:
        # Of the manifests that replace kube-scheduler; or of a static pod: it shares the name of
        # its host, and its mirror pod is named after the node.
        pods = [(namespace or REPLACING, pod), (namespace or own, f"kube-scheduler-{pod}")]
    address = str(annotations.get(PAGE_ANNOTATION) or "")
    page = HolderPage(
        address if _is_url(address) else "", str(annotations.get(CERTIFICATE_ANNOTATION) or "")
    )
    return LeaderLease(named, holder, tuple(pods), page, str(spec.get("renewTime") or ""))


def _is_url(text: str) -> bool:
    try:
        return URL(text).host is not None
    except ValueError:
        return False
