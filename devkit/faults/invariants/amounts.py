"""What a pod takes and a node offers, in exact fractions.

Owns quantities and the sum over a pod's containers. A pod that is resized in place counts by its
spec alone.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from devkit.faults.invariants.facts import Manifest

Amounts = Mapping[str, Fraction]

_QUANTITY: Final = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d+))?"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
#: A pod's own requests replace the sum of its containers' for these alone.
_OF_POD: Final = ("cpu", "memory")
_PAGES: Final = "hugepages-"


def quantity(text: str | int | float) -> Fraction:
    """The value of a quantity. Raises `ValueError` for anything else."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"want a quantity, got `{text}`")
    number, suffix, exponent = found.groups()
    if suffix in _BINARY:
        return Fraction(number) * (1 << _BINARY[suffix])
    zeros = int(exponent) if exponent is not None else _DECIMAL.get(suffix or "", 0)
    return Fraction(f"{number}e{zeros}")


def allocatable_of(node: Manifest) -> Amounts:
    """What a node offers."""
    return _quantities(node.get("status", {}).get("allocatable"))


def requests_of(pod: Manifest) -> Amounts:
    """What a pod takes of its node: its containers, with one of the resource `pods`.

    Init containers run one after the other, beside the sidecars that were started before them; the
    containers run beside all sidecars. What a pod gets from devices that a claim of the
    scheduler's stands for is not taken of the node's allocatable.
    """
    spec = pod["spec"]
    sidecars: dict[str, Fraction] = defaultdict(Fraction)
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            for name, value in own.items():
                sidecars[name] += value
            step: Amounts = dict(sidecars)
        else:
            step = total([own, sidecars])
        peak = _largest(peak, step)
    running = total([sidecars, *(_requests(container) for container in spec.get("containers", ()))])
    of_pod = {
        name: value
        for name, value in _requests(spec).items()
        if name in _OF_POD or name.startswith(_PAGES)
    }
    found = _largest(running, peak) | of_pod
    for name in _from_devices(pod):
        found.pop(name, None)
    return total([found, _quantities(spec.get("overhead")), {"pods": Fraction(1)}])


def total(amounts: Iterable[Amounts]) -> Amounts:
    """The sum, resource by resource."""
    found: dict[str, Fraction] = defaultdict(Fraction)
    for one in amounts:
        for name, value in one.items():
            found[name] += value
    return dict(found)


def missing(wanted: Amounts, used: Amounts, offered: Amounts) -> list[str]:
    """In words, each resource that is wanted and is not left; what is not wanted may be short."""
    return [
        f"{name}: {_text(used.get(name, Fraction()))} used and {_text(value)} requested of "
        f"{_text(offered.get(name, Fraction()))}"
        for name, value in sorted(wanted.items())
        if value > 0 and used.get(name, Fraction()) + value > offered.get(name, Fraction())
    ]


def _largest(one: Amounts, other: Amounts) -> dict[str, Fraction]:
    nothing = Fraction()
    return {name: max(one.get(name, nothing), other.get(name, nothing)) for name in {*one, *other}}


def _requests(holder: Mapping[str, Any]) -> Amounts:
    return _quantities((holder.get("resources") or {}).get("requests"))


def _quantities(found: Mapping[str, Any] | None) -> dict[str, Fraction]:
    return {name: quantity(value) for name, value in (found or {}).items()}


def _from_devices(pod: Manifest) -> set[str]:
    status = pod.get("status", {}).get("extendedResourceClaimStatus") or {}
    return {one["resourceName"] for one in status.get("requestMappings") or ()}


def _text(value: Fraction) -> str:
    return f"{float(value):g}"
