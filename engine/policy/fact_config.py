"""The `facts` of a PolicyRuntime: where values about nodes and pods come from.

Owns their fields, defaults and rules. Getting the values is `engine.io.facts`'. What is here may be
written by users who may edit policies, so it names no credentials and no secret files.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from engine.core.model.fact import DEFAULT_TYPE_LABELS
from engine.lib.time_zones import UTC, zone_names
from engine.policy.documents import (
    Field,
    Object,
    Reader,
    checked,
    choice,
    did_you_mean,
    entry,
    integer,
    listed,
    nowhere,
    record,
    unless_empty,
)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")


def _check_name(name: str, place: Field) -> None:
    if not _NAME.fullmatch(name):
        place.wrong(f'want a name of letters, digits, `_`, `-` and `.`, got "{name}"')


def _name(found: Field) -> str:
    """Reads the name of a fact."""
    _check_name(name := found.text(), found)
    return name


def _given_name(found: Field) -> str:
    """As `_name`, of a field that is required: an empty one is reported already."""
    name = found.text()
    if name:
        _check_name(name, found)
    return name


def _names(found: Field) -> dict[str, str]:
    """Reads texts by the name of a fact."""
    texts = {}
    members = found.object()
    for name in members.names:
        _check_name(name, members.get(name) or found)
        texts[name] = members.text(name)
    return texts


def _share(want: str, holds: Callable[[float], bool]) -> Reader:
    return checked(Field.number, holds, want=f"want a number {want}")


def _required(read: Reader = Field.text) -> Any:
    return entry(read, "", is_required=True)


@dataclass(frozen=True, slots=True)
class AnnotationFacts:
    """Annotations of nodes or pods as facts.

    Attributes:
        of: `nodes` or `pods`.
        keys: Fact name to annotation.
        prefix: Every annotation that starts so is a fact too, named by the rest; "": none.
    """

    of: str = entry(choice("nodes", "pods"), "nodes")
    keys: Mapping[str, str] = entry(_names, factory=dict)
    prefix: str = entry(Field.text, "")


def _check_annotations(made: AnnotationFacts, members: Object) -> None:
    if not made.keys and not made.prefix:
        members.owner.wrong("want `keys` or `prefix`")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A facts document in a file, watched."""

    path: str = _required()


def _check_file(made: FileFacts, members: Object) -> None:
    if made.path and not made.path.startswith("/"):
        members["path"].wrong(f'want an absolute path, got "{made.path}"')


@dataclass(frozen=True, slots=True)
class ConfigMapFacts:
    """A facts document in a ConfigMap, watched: every key that ends with `.json`, or one."""

    namespace: str = _required()
    name: str = _required()
    key: str = entry(Field.text, "")


@dataclass(frozen=True, slots=True)
class FactQuery:
    """One query of a Prometheus server: each series of its answer is one fact.

    Attributes:
        fact: The fact's name.
        query: PromQL, answered with an instant vector or a scalar.
        about: `node`, `pod`, `type`, `pair` or `cluster`.
        node_label, pod_label, namespace_label, type_label: The series' labels that say which.
        strip_port: The node's label is an address with a port (`instance`).
        scale: What a value is multiplied by: `1000` makes millicores of cores.
    """

    fact: str = _required(_given_name)
    query: str = _required()
    about: str = entry(choice("node", "pod", "type", "pair", "cluster"), "node")
    node_label: str = entry(Field.text, "node")
    pod_label: str = entry(Field.text, "pod")
    namespace_label: str = entry(Field.text, "namespace")
    type_label: str = entry(Field.text, "type")
    strip_port: bool = entry(Field.boolean, False)
    scale: float = entry(Field.number, 1.0)


def _url(found: Field) -> str:
    """Reads the URL of a server; an empty one is reported already."""
    url = found.text()
    if url and not _is_url(url):
        # What may be a password is not repeated: problems are in the log and in events.
        got = "one with `@`" if "@" in url else f'"{url}"'
        found.wrong(f"want `http://HOST:PORT` or https, without user and password, got {got}")
    return url.rstrip("/")


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and parts.username is None
        and not parts.query
        and not parts.fragment
    )


_INTERVAL: Final = checked(
    Field.duration,
    lambda time: time >= timedelta(seconds=1),
    want="want a duration of at least 1s",
)


@dataclass(frozen=True, slots=True)
class PrometheusFacts:
    """Queries that a Prometheus server answers, again and again."""

    url: str = _required(_url)
    interval: timedelta = entry(_INTERVAL, timedelta(seconds=30))
    timeout: timedelta = entry(_INTERVAL, timedelta(seconds=10))
    queries: tuple[FactQuery, ...] = entry(listed(record(FactQuery)), ())


def _check_prometheus(made: PrometheusFacts, members: Object) -> None:
    if not made.queries:
        members.owner.wrong("queries: want at least one")


@dataclass(frozen=True, slots=True)
class PodOutcomes:
    """How pods of a type ended per node, as exponential averages of a reward in 0..1.

    Attributes:
        fact: The facts' name.
        weight: Of the newest outcome, above 0 and at most 1.
        start: The average before the first outcome.
        grace: A container that ends again within this time counts 0, else `forgiven`.
        forgiven: What a container counts that ended for the first time in a while.
        namespaces: Whose pods are watched; empty: all.
    """

    fact: str = entry(_name, "reward")
    weight: float = entry(_share("above 0 and at most 1", lambda share: 0 < share <= 1), 0.1)
    start: float = entry(_share("in 0..1", lambda share: 0 <= share <= 1), 1.0)
    grace: timedelta = entry(Field.duration, timedelta(seconds=600))
    forgiven: float = entry(_share("in 0..1", lambda share: 0 <= share <= 1), 0.5)
    namespaces: tuple[str, ...] = entry(listed(Field.text), ())


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What scheduled pods ask for, as running means that forget slowly.

    Attributes:
        fact: The start of the facts' names.
        resources: Whose amounts are averaged, and the products of each two of them.
        window: The newest pod's weight is 1 / min(pods so far, window).
    """

    fact: str = entry(_name, "demand")
    resources: tuple[str, ...] = entry(unless_empty(listed(Field.text)), ("cpu", "memory"))
    window: int = entry(integer(1, 1_000_000), 100)


FactSource = (
    AnnotationFacts | FileFacts | ConfigMapFacts | PrometheusFacts | PodOutcomes | PodDemand
)


_SOURCES: Final[Mapping[str, Reader]] = {
    "annotations": record(AnnotationFacts, check=_check_annotations),
    "file": record(FileFacts, check=_check_file),
    "configMap": record(ConfigMapFacts),
    "prometheus": record(PrometheusFacts, check=_check_prometheus),
    "podOutcomes": record(PodOutcomes),
    "podDemand": record(PodDemand),
}


def _source(found: Field) -> FactSource | None:
    members = found.object()
    known = members.names
    if len(known) != 1 or known[0] not in _SOURCES:
        want = ", ".join(f"`{name}`" for name in _SOURCES)
        found.wrong(f"want an object with one of {want}")
        return None
    name = known[0]
    # Null is an object without fields, which is where the source is.
    place = members.get(name) or nowhere(f"{found.path}.{name}", found.report, found.node)
    source: FactSource = _SOURCES[name](place)
    return source


_SECONDS: Final = checked(
    Field.duration,
    lambda time: time >= timedelta(seconds=1) and not time % timedelta(seconds=1),
    want="want a duration of whole seconds",
)


def _time_zone(found: Field) -> str | None:
    name = found.text()
    if name == UTC or name in zone_names():
        return name
    want = f'want the name of a time zone, such as `Europe/Berlin`, got "{name}"'
    found.wrong(want, did_you_mean(name, zone_names()))
    return None


@dataclass(frozen=True, slots=True)
class FactsConfig:
    """Where facts come from, in order: a later source wins where two give the same name.

    Attributes:
        sources: In order.
        age_step: Ages are whole multiples of it: time passes for policies only that often.
        pod_type_labels: The labels that say of which type a pod is; the first that it has.
        max_age: Facts that are older are dropped; None: none are.
        time_zone: The IANA name of the time zone in which the facts of the clock are.
    """

    sources: tuple[FactSource, ...] = entry(listed(_source), ())
    age_step: timedelta = entry(_SECONDS, timedelta(seconds=5))
    pod_type_labels: tuple[str, ...] = entry(listed(Field.text), DEFAULT_TYPE_LABELS)
    max_age: timedelta | None = entry(Field.duration, None)
    time_zone: str = entry(_time_zone, UTC)

    def may_give(self, fact: str) -> bool:
        """False if no source can give *fact*: what is in a document is known only to its writer."""
        return any(_may_give(source, fact) for source in self.sources)


def _may_give(source: FactSource, fact: str) -> bool:
    if isinstance(source, AnnotationFacts):
        return bool(source.prefix) or fact in source.keys
    if isinstance(source, PrometheusFacts):
        return any(query.fact == fact for query in source.queries)
    if isinstance(source, PodOutcomes):
        return fact == source.fact
    if isinstance(source, PodDemand):
        return fact.startswith(f"{source.fact}_")
    return True


def check_facts(made: FactsConfig, members: Object) -> None:
    """Report what is wrong with values that are right one by one."""
    if made.max_age is not None and made.max_age < made.age_step:
        members["maxAge"].refuse("want a duration of at least `ageStep`")
    # What is learned is kept under one name each: two reducers of a kind would mix.
    for kind, name in ((PodOutcomes, "podOutcomes"), (PodDemand, "podDemand")):
        if sum(isinstance(source, kind) for source in made.sources) > 1:
            members["sources"].wrong(f"want at most one `{name}`")
