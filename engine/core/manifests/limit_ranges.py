"""The admission plugin LimitRanger: what LimitRanges add to containers, and what they refuse.

Owns that plugin. Its arithmetic is exact; amounts are written as the API server stores them.
"""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, Final

from engine.core.manifests import kinds
from engine.core.manifests.errors import forbidden
from engine.core.manifests.kinds import Kind
from engine.core.manifests.pod_defaults import canonical_amounts, summed_amounts
from engine.core.manifests.quantities import amount

Json = dict[str, Any]
Amounts = dict[str, str]

_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_PARTS: Final = ("default", "defaultRequest", "max", "min", "maxLimitRequestRatio")


def set_item_defaults(item: Json) -> None:
    """Fill in what an entry of a LimitRange leaves out: a maximum is the default limit, and so on.

    Source:
        SetDefaults_LimitRangeItem.
    """
    for part in _PARTS:
        if item.get(part):
            item[part] = canonical_amounts(kinds.LIMIT_RANGES, item[part])
    if item.get("type") != "Container":
        return
    default = {**(item.get("max") or {}), **(item.get("default") or {})}
    request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
    for part, amounts in (("default", default), ("defaultRequest", request)):
        if amounts:
            item[part] = amounts


def add_defaults(pod: Json, limit_ranges: Iterable[Json]) -> None:
    """Give the containers of *pod* the requests and limits that its namespace has by default."""
    spec, said = pod["spec"], []
    for limit_range in limit_ranges:
        added: dict[str, Amounts] = {"requests": {}, "limits": {}}
        for item in _items(limit_range, "Container"):
            added["requests"] |= item.get("defaultRequest") or {}
            added["limits"] |= item.get("default") or {}
        for field, called in (("containers", "container"), ("initContainers", "init container")):
            for container in spec.get(field) or ():
                resources = container.setdefault("resources", {})
                for part, defaults in added.items():
                    own = resources.get(part) or {}
                    new = sorted(defaults.keys() - own.keys())
                    if new:
                        resources[part] = {**own, **{name: defaults[name] for name in new}}
                        word, name = part.removesuffix("s"), container.get("name") or ""
                        said.append(f"{', '.join(new)} {word} for {called} {name}")
    if said:
        metadata = pod["metadata"]
        text = f"LimitRanger plugin set: {'; '.join(said)}"
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _ANNOTATION: text}


def check_pod(pod: Json, limit_ranges: Iterable[Json]) -> None:
    """Refuse with 403 a pod with less or more than the LimitRanges of its namespace allow."""
    spec = pod["spec"]
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for limit_range in limit_ranges:
        found: list[str] = []
        for item in _items(limit_range, "Container"):
            for container in containers:
                found += _problems(item, container.get("resources") or {})
        for item in _items(limit_range, "Pod"):
            names = {name for part in _PARTS[2:] for name in item.get(part) or ()}
            sums = {part: summed_amounts(spec, names, part) for part in ("requests", "limits")}
            found += _problems(item, sums)
        _refuse(kinds.PODS, pod, found)


def check_claim(claim: Json, limit_ranges: Iterable[Json]) -> None:
    """Refuse with 403 a claim for less or more storage than its namespace allows."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    for limit_range in limit_ranges:
        found: list[str] = []
        for item in _items(limit_range, "PersistentVolumeClaim"):
            # The limits of a claim mean nothing; its maximum is for the request.
            upper = {key: value for key, value in item.items() if key != "maxLimitRequestRatio"}
            found += _problems(upper, {"requests": requests, "limits": requests})
        _refuse(kinds.PERSISTENT_VOLUME_CLAIMS, claim, found)


def _items(limit_range: Json, of_type: str) -> Iterator[Json]:
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == of_type:
            yield item


def _refuse(kind: Kind, manifest: Json, found: list[str]) -> None:
    if found:
        distinct = list(dict.fromkeys(found))
        text = distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
        raise forbidden(kind, manifest["metadata"].get("name") or "", text)


def _problems(item: Json, resources: Json) -> Iterator[str]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for part, rule in _RULES:
        for name, bound in sorted((item.get(part) or {}).items()):
            if problem := rule(bound, requests.get(name), limits.get(name)):
                per = f"{name} usage per {item['type']}"
                if part == "maxLimitRequestRatio":
                    per = f"{name} max limit to request ratio per {item['type']}"
                yield problem.replace("PER", per)


def _below(bound: str, request: str | None, limit: str | None) -> str:
    if request is None:
        return f"minimum PER is {bound}.  No request is specified"
    for called, given in (("request", request), ("limit", limit)):
        if given is not None and amount(given) < amount(bound):
            return f"minimum PER is {bound}, but {called} is {given}"
    return ""


def _above(bound: str, request: str | None, limit: str | None) -> str:
    if limit is None:
        return f"maximum PER is {bound}.  No limit is specified"
    for called, given in (("limit", limit), ("request", request)):
        if given is not None and amount(given) > amount(bound):
            return f"maximum PER is {bound}, but {called} is {given}"
    return ""


def _ratio(bound: str, request: str | None, limit: str | None) -> str:
    for called, given in (("request", request), ("limit", limit)):
        if given is None or not amount(given):
            return f"PER is {bound}, but no {called} is specified or {called} is 0"
    ratio = Fraction(amount(limit or "0"), amount(request or "1"))
    if ratio > amount(bound):
        return f"PER is {bound}, but provided ratio is {float(ratio):f}"
    return ""


_RULES: Final[tuple[tuple[str, Callable[[str, str | None, str | None], str]], ...]] = (
    ("min", _below),
    ("max", _above),
    ("maxLimitRequestRatio", _ratio),
)
