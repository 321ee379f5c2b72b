"""The rights that the scheduler uses, each with what it is for, and the rules that grant them.

Owns the table; `deploy/base` grants the same, which a test compares. What is watched is
`engine.io.informers`'.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from engine.io.informers import OTHER_OBJECTS, READ_BY_POLICIES, resources_read
from engine.io.kube import resources
from engine.io.kube.resources import Resource
from engine.policy.bundle import Bundle

_READ: Final = ("list", "watch")
_DECISIONS: Final = "read by decisions: without it the replica is not ready"
_POLICIES: Final = "read by the policies: without it the replica is not ready"
_RBAC: Final = "rbac.authorization.k8s.io"

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False
)

# Resource, subresource, verbs, what for. Reading comes from `OTHER_OBJECTS`.
_WRITES: Final[tuple[tuple[Resource, str, tuple[str, ...], str], ...]] = (
    (resources.PODS, "", ("get",), "resolves a binding whose answer was lost"),
    (resources.PODS, "binding", ("create",), "placing a pod"),
    (resources.PODS, "", ("delete",), "evicting pods for a more urgent one"),
    (resources.PODS, "status", ("patch",), "the condition that says why a pod waits"),
    (
        resources.PERSISTENT_VOLUMES,
        "",
        ("get", "patch"),
        "binding a volume to a claim",
    ),
    (
        resources.PERSISTENT_VOLUME_CLAIMS,
        "",
        ("get", "patch"),
        "naming the node for a claim that is provisioned",
    ),
    (resources.POD_GROUPS, "status", ("patch",), "the condition of a group of pods"),
    (
        resources.RESOURCE_CLAIMS,
        "",
        ("get", "patch", "create", "delete"),
        "keeping a claim while it is allocated",
    ),
    (resources.RESOURCE_CLAIMS, "status", ("patch",), "the allocation of a claim"),
    (resources.RESOURCE_CLAIMS, "binding", ("patch",), "the allocation of a claim"),
    (resources.EVENTS, "", ("create", "patch"), "events about pods"),
)


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource, in one namespace ("": in all) and on one object ("": on all)."""

    resource: Resource
    subresource: str
    verb: str
    purpose: str
    namespace: str = ""
    name: str = ""

    @property
    def plural(self) -> str:
        """The resource as rules name it: `pods/binding`."""
        plural = self.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural

    def __str__(self) -> str:
        """`list pods`, `get configmaps x in the namespace y`."""
        group = f".{self.resource.group}" if self.resource.group else ""
        name = f" `{self.name}`" if self.name else ""
        where = f" in the namespace `{self.namespace}`" if self.namespace else ""
        return f"{self.verb} {self.plural}{group}{name}{where}"

    def review(self) -> dict[str, Any]:
        """The SelfSubjectAccessReview that asks for it."""
        about = {
            "namespace": self.namespace,
            "verb": self.verb,
            "group": self.resource.group,
            "resource": self.resource.plural,
            "subresource": self.subresource,
            "name": self.name,
        }
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {name: value for name, value in about.items() if value}},
        }


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects that one scheduler uses, which its flags name.

    Attributes:
        lease: Namespace and name; None without leader election.
        policies: Namespace and name of their ConfigMap; None for another source.
        reviews_callers: True if the endpoints are served to the network.
        authorities: Namespace and name of the ConfigMap with the authorities of callers; None if it
            is not looked up.
        webhook: The ValidatingWebhookConfiguration that it registers itself in; "": none.
    """

    lease: tuple[str, str] | None = None
    policies: tuple[str, str] | None = None
    reviews_callers: bool = False
    authorities: tuple[str, str] | None = None
    webhook: str = ""

    def namespaces(self) -> list[str]:
        """The namespaces that have to be there."""
        named = (self.lease, self.policies)
        return sorted({one[0] for one in named if one is not None})


#: Suffixes of the ConfigMaps next to the policies', with the verbs that they need.
_ROLLOUT: Final = "-rollout"
_KEPT: Final = {
    "-last-good": "the policies that were last in force, for a restart",
    "-facts": "what was learned of pods, for a restart",
}


def kept_names(policies: str) -> list[str]:
    """The names of the ConfigMaps that the scheduler writes for the policies *policies*."""
    return [policies + suffix for suffix in _KEPT]


def needed_rights(objects: Objects) -> list[Right]:
    """Every right that a scheduler with *objects* uses."""
    return list(dict.fromkeys(_needed(objects)))


def rights_of_policies(bundle: Bundle) -> list[Right]:
    """The rights that a scheduler uses in addition if the policies of *bundle* decide."""
    return [Right(one, "", verb, _POLICIES) for one in resources_read(bundle) for verb in _READ]


def watched_resources() -> list[Resource]:
    """The resources whose lists have to be in sync, whatever policies read."""
    others = [resource for resource, _ in OTHER_OBJECTS if resource not in READ_BY_POLICIES]
    return [resources.NODES, resources.PODS, *others]


def _needed(objects: Objects) -> Iterator[Right]:
    for resource in watched_resources():
        yield from (Right(resource, "", verb, _DECISIONS) for verb in _READ)
    for resource, subresource, verbs, purpose in _WRITES:
        yield from (Right(resource, subresource, verb, purpose) for verb in verbs)
    if objects.reviews_callers:
        yield Right(TOKEN_REVIEWS, "", "create", "who asks at the secure port")
        yield Right(ACCESS_REVIEWS, "", "create", "what callers of the secure port may read")
    if objects.lease is not None:
        namespace, name = objects.lease
        held = "the lease that one of the replicas holds"
        yield Right(resources.LEASES, "", "create", held, namespace)
        yield from (
            Right(resources.LEASES, "", verb, held, namespace, name) for verb in ("get", "update")
        )
    if objects.policies is not None:
        namespace, name = objects.policies
        followed = {
            name: "the policies",
            name + _ROLLOUT: "how edits of the policies are rolled out",
        }
        for one, purpose in followed.items():
            for verb in _READ:
                yield Right(resources.CONFIG_MAPS, "", verb, purpose, namespace, one)
        for suffix, purpose in _KEPT.items():
            for verb in ("get", "patch"):
                yield Right(resources.CONFIG_MAPS, "", verb, purpose, namespace, name + suffix)
    if objects.authorities is not None:
        namespace, name = objects.authorities
        purpose = "the authorities of client certificates at the secure port"
        yield Right(resources.CONFIG_MAPS, "", "get", purpose, namespace, name)
    if objects.webhook:
        purpose = "having the API server ask about edits of the policies"
        for verb in ("get", "patch"):
            yield Right(resources.WEBHOOKS, "", verb, purpose, name=objects.webhook)


# --- the rules that grant rights -----------------------------------------------------------------


def granting(rights: Iterable[Right], user: str, name: str) -> list[dict[str, Any]]:
    """Roles with *rights* and their bindings to *user*, all called *name*.

    New ones, so that applying them changes nothing that is there.
    """
    by_namespace: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    for right in rights:
        rules = by_namespace.setdefault(right.namespace, {})
        verbs = rules.setdefault((right.resource.group, right.plural, right.name), [])
        verbs += [] if right.verb in verbs else [right.verb]
    manifests: list[dict[str, Any]] = []
    for namespace, rules in sorted(by_namespace.items()):
        prefix = "" if namespace else "Cluster"
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        role = {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{prefix}Role",
            "metadata": dict(metadata),
            "rules": [
                {
                    "apiGroups": [group],
                    "resources": [plural],
                    **({"resourceNames": [object_name]} if object_name else {}),
                    "verbs": verbs,
                }
                for (group, plural, object_name), verbs in sorted(rules.items())
            ],
        }
        binding = {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{prefix}RoleBinding",
            "metadata": dict(metadata),
            "roleRef": {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": name},
            "subjects": [_subject(user)],
        }
        manifests += [role, binding]
    return manifests


def _subject(user: str) -> dict[str, str]:
    """*user* as bindings name it; a ServiceAccount is called `system:serviceaccount:NS:NAME`."""
    parts = user.split(":")
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        return {"kind": "ServiceAccount", "namespace": parts[2], "name": parts[3]}
    return {"apiGroup": _RBAC, "kind": "User", "name": user}
