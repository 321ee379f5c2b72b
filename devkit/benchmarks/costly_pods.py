"""Pods that are legal and large: what their creators can make a scheduler work and remember.

Owns the shapes. Each is below what an API server takes, and no two pods of one shape are alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from devkit.benchmarks import objects
from devkit.benchmarks.objects import Manifest

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Shape:
    """What makes pods large: *fill* puts *count* of *what* into the pod with a number."""

    name: str
    what: str
    count: int
    fill: Callable[[Manifest, int, int], None]

    def pod(self, number: int, count: int | None = None) -> Manifest:
        """The pod with *number*."""
        requests = {"cpu": "1m"}
        manifest = objects.pod(f"{self.name}-{number:06d}", requests=requests)
        manifest["metadata"]["labels"] = {"serial": str(number)}
        self.fill(manifest, number, self.count if count is None else count)
        return manifest


def _term(key: str, topology: str) -> Manifest:
    return {"labelSelector": {"matchLabels": {key: "x"}}, "topologyKey": topology}


def _anti(pod: Manifest, number: int, count: int) -> None:
    terms = [_term(f"a{number}-{i}", objects.ZONE) for i in range(count)]
    pod["spec"]["affinity"] = {"podAntiAffinity": {_REQUIRED: terms}}


def _near(pod: Manifest, number: int, count: int) -> None:
    others = [{"key": f"a{number}-{i}", "operator": "DoesNotExist"} for i in range(count)]
    terms = [
        {"labelSelector": {"matchExpressions": [one]}, "topologyKey": objects.ZONE}
        for one in others
    ]
    pod["spec"]["affinity"] = {"podAffinity": {_REQUIRED: terms}}


def _liked(pod: Manifest, number: int, count: int) -> None:
    preferred = []
    for i in range(count):
        other = {"key": "serial", "operator": "NotIn", "values": [f"v{number}-{i}"]}
        term = {"labelSelector": {"matchExpressions": [other]}, "topologyKey": f"t{i % 50}"}
        preferred.append({"weight": 1 + i % 100, "podAffinityTerm": term})
    pod["spec"]["affinity"] = {"podAffinity": {_PREFERRED: preferred}}


def _node_term(value: str, operator: str = "In") -> Manifest:
    return {"matchExpressions": [{"key": "rack", "operator": operator, "values": [value]}]}


def _node_terms(pod: Manifest, number: int, count: int) -> None:
    terms = [_node_term(f"r{number}-{i}") for i in range(count - 1)]
    terms.append(_node_term("none", "NotIn"))
    pod["spec"]["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}


def _equal_node_terms(pod: Manifest, number: int, count: int) -> None:
    terms = [_node_term(f"r{number}")] * (count - 1)
    terms.append(_node_term("none", "NotIn"))
    pod["spec"]["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}


def _node_preferences(pod: Manifest, number: int, count: int) -> None:
    preferred = [
        {"weight": 1, "preference": _node_term(f"r{number}-{i}", "NotIn")} for i in range(count)
    ]
    pod["spec"]["affinity"] = {"nodeAffinity": {_PREFERRED: preferred}}


def _tolerations(pod: Manifest, number: int, count: int) -> None:
    pod["spec"]["tolerations"] = [
        {"key": f"k{number}-{i}", "operator": "Exists"} for i in range(count)
    ]


def _labels(pod: Manifest, number: int, count: int) -> None:
    pod["metadata"]["labels"] = {f"l{number}-{i}": "x" for i in range(count)}


def _annotations(pod: Manifest, number: int, count: int) -> None:
    pod["metadata"]["annotations"] = {f"a{number}-{i}": "x" * 1000 for i in range(count)}


def _containers(pod: Manifest, number: int, count: int) -> None:
    pod["spec"]["containers"] = [
        {"name": f"c{i}", "image": f"registry.example/image-{number}-{i}:1"} for i in range(count)
    ]


def _spread(pod: Manifest, number: int, count: int) -> None:
    pod["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": objects.ZONE if i == 0 else f"t{i}",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {f"a{number}": f"{i}"}},
        }
        for i in range(count)
    ]


def _plain(pod: Manifest, number: int, count: int) -> None:
    pass


PLAIN: Final = Shape("plain", "nothing", 0, _plain)

COSTLY: Final[Mapping[str, Shape]] = {
    shape.name: shape
    for shape in (
        Shape("anti-affinity", "required anti-affinity terms", 3_000, _anti),
        Shape("much-anti-affinity", "required anti-affinity terms", 14_000, _anti),
        Shape("affinity", "required affinity terms", 3_000, _near),
        Shape("preferred-affinity", "preferred affinity terms", 3_000, _liked),
        Shape("node-terms", "required node selector terms", 10_000, _node_terms),
        Shape("equal-node-terms", "equal node selector terms", 10_000, _equal_node_terms),
        Shape("node-preferences", "preferred node selector terms", 3_000, _node_preferences),
        Shape("tolerations", "tolerations", 10_000, _tolerations),
        Shape("labels", "labels", 8_000, _labels),
        Shape("annotations", "annotations of 1 kB", 250, _annotations),
        Shape("containers", "containers", 5_000, _containers),
        Shape("spreading", "spread constraints", 500, _spread),
    )
}
