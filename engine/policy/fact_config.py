"""The `facts` of a PolicyRuntime: where values about nodes and pods come from.

Owns their fields, defaults and rules. Getting the values is `engine.io.facts`'. What is here may be
written by users who may edit policies, so it names no credentials and no secret files.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from engine.core.model.fact import DEFAULT_TYPE_LABELS
from engine.lib.time_zones import UTC, zone_names
from engine.policy.documents import Field, Object, did_you_mean

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
_SHORTEST_INTERVAL: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class AnnotationFacts:
    """Annotations of nodes or pods as facts.

    Attributes:
        of: `nodes` or `pods`.
        keys: Fact name to annotation.
        prefix: Every annotation that starts so is a fact too, named by the rest; "": none.
    """

    of: str = "nodes"
    keys: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A facts document in a file, watched."""

    path: str


@dataclass(frozen=True, slots=True)
class ConfigMapFacts:
    """A facts document in a ConfigMap, watched: every key that ends with `.json`, or one."""

    namespace: str
    name: str
    key: str = ""


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

    fact: str
    query: str
    about: str = "node"
    node_label: str = "node"
    pod_label: str = "pod"
    namespace_label: str = "namespace"
    type_label: str = "type"
    strip_port: bool = False
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class PrometheusFacts:
    """Queries that a Prometheus server answers, again and again."""

    url: str
    interval: timedelta = timedelta(seconds=30)
    timeout: timedelta = timedelta(seconds=10)
    queries: tuple[FactQuery, ...] = ()


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

    fact: str = "reward"
    weight: float = 0.1
    start: float = 1.0
    grace: timedelta = timedelta(seconds=600)
    forgiven: float = 0.5
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What scheduled pods ask for, as running means that forget slowly.

    Attributes:
        fact: The start of the facts' names.
        resources: Whose amounts are averaged, and the products of each two of them.
        window: The newest pod's weight is 1 / min(pods so far, window).
    """

    fact: str = "demand"
    resources: tuple[str, ...] = ("cpu", "memory")
    window: int = 100


FactSource = (
    AnnotationFacts | FileFacts | ConfigMapFacts | PrometheusFacts | PodOutcomes | PodDemand
)


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

    sources: tuple[FactSource, ...] = ()
    age_step: timedelta = timedelta(seconds=5)
    pod_type_labels: tuple[str, ...] = DEFAULT_TYPE_LABELS
    max_age: timedelta | None = None
    time_zone: str = UTC

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


# --- reading ---------------------------------------------------------------------------------


def read_facts(members: Object) -> FactsConfig:
    """The `facts` of a document; problems go to its report."""
    default = FactsConfig()
    step = members.duration("ageStep", default.age_step)
    if step < timedelta(seconds=1) or step % timedelta(seconds=1):
        (members.get("ageStep") or members.owner).refuse("want a duration of whole seconds")
        step = default.age_step
    labels = default.pod_type_labels
    if members.get("podTypeLabels") is not None:
        labels = tuple(members.texts("podTypeLabels"))
    max_age = None
    if (found_age := members.get("maxAge")) is not None:
        max_age = found_age.duration()
        if max_age is not None and max_age < step:
            found_age.refuse("want a duration of at least `ageStep`")
    time_zone = members.text("timeZone", default.time_zone)
    if time_zone != UTC and time_zone not in zone_names():
        want = f'want the name of a time zone, such as `Europe/Berlin`, got "{time_zone}"'
        members["timeZone"].wrong(want, did_you_mean(time_zone, zone_names()))
        time_zone = default.time_zone
    sources = [found for entry in members.items("sources") if (found := _source(entry)) is not None]
    _one_each(members, sources)
    members.finish()
    return FactsConfig(tuple(sources), step, labels, max_age, time_zone)


def _source(entry: Field) -> FactSource | None:
    members = entry.object()
    known = members.names
    if len(known) != 1 or known[0] not in _READERS:
        want = ", ".join(f"`{name}`" for name in _READERS)
        entry.wrong(f"want an object with one of {want}")
        return None
    inner = members.object(known[0])
    found = _READERS[known[0]](inner)
    inner.finish()
    return found


def _one_each(members: Object, sources: list[FactSource]) -> None:
    """What is learned is kept under one name each: two reducers of a kind would mix."""
    for kind, name in ((PodOutcomes, "podOutcomes"), (PodDemand, "podDemand")):
        if sum(isinstance(source, kind) for source in sources) > 1:
            members["sources"].wrong(f"want at most one `{name}`")


def _annotations(members: Object) -> AnnotationFacts:
    of = members.choice("of", ("nodes", "pods"), "nodes")
    keys: dict[str, str] = {}
    if found := members.get("keys"):
        inner = found.object()
        for name in inner.names:
            value = inner.get(name)
            _check_name(name, value or found)
            keys[name] = "" if value is None else value.text()
    prefix = members.text("prefix")
    if not keys and not prefix:
        members.owner.wrong("want `keys` or `prefix`")
    return AnnotationFacts(of, keys, prefix)


def _file(members: Object) -> FileFacts:
    path = _required(members, "path")
    if path and not path.startswith("/"):
        members["path"].wrong(f'want an absolute path, got "{path}"')
    return FileFacts(path)


def _config_map(members: Object) -> ConfigMapFacts:
    namespace, name = _required(members, "namespace"), _required(members, "name")
    return ConfigMapFacts(namespace, name, members.text("key"))


def _prometheus(members: Object) -> PrometheusFacts:
    default = PrometheusFacts("")
    url = _required(members, "url")
    if url and not _is_url(url):
        # What may be a password is not repeated: problems are in the log and in events.
        got = "one with `@`" if "@" in url else f'"{url}"'
        members["url"].wrong(
            f"want `http://HOST:PORT` or https, without user and password, got {got}"
        )
    interval = members.duration("interval", default.interval)
    timeout = members.duration("timeout", default.timeout)
    for name, value in (("interval", interval), ("timeout", timeout)):
        if value < _SHORTEST_INTERVAL:
            members[name].refuse("want a duration of at least 1s")
    queries = tuple(_query(entry) for entry in members.items("queries"))
    if not queries:
        members.owner.wrong("queries: want at least one")
    return PrometheusFacts(url.rstrip("/"), interval, timeout, queries)


def _query(entry: Field) -> FactQuery:
    members = entry.object()
    default = FactQuery("", "")
    fact = _required(members, "fact")
    if fact:
        _check_name(fact, members["fact"])
    found = FactQuery(
        fact=fact,
        query=_required(members, "query"),
        about=members.choice("about", ("node", "pod", "type", "pair", "cluster"), "node"),
        node_label=members.text("nodeLabel", default.node_label),
        pod_label=members.text("podLabel", default.pod_label),
        namespace_label=members.text("namespaceLabel", default.namespace_label),
        type_label=members.text("typeLabel", default.type_label),
        strip_port=members.boolean("stripPort", False),
        scale=members.number("scale", 1.0),
    )
    members.finish()
    return found


def _pod_outcomes(members: Object) -> PodOutcomes:
    default = PodOutcomes()
    fact = members.text("fact", default.fact)
    _check_name(fact, members.get("fact") or members.owner)
    weight = members.number("weight", default.weight)
    if not 0 < weight <= 1:
        members["weight"].refuse("want a number above 0 and at most 1")
        weight = default.weight
    numbers = {"start": default.start, "forgiven": default.forgiven}
    for name in numbers:
        numbers[name] = members.number(name, numbers[name])
        if not 0 <= numbers[name] <= 1:
            members[name].refuse("want a number in 0..1")
    return PodOutcomes(
        fact=fact,
        weight=weight,
        start=numbers["start"],
        grace=members.duration("grace", default.grace),
        forgiven=numbers["forgiven"],
        namespaces=tuple(members.texts("namespaces")),
    )


def _pod_demand(members: Object) -> PodDemand:
    default = PodDemand()
    fact = members.text("fact", default.fact)
    _check_name(fact, members.get("fact") or members.owner)
    resources = tuple(members.texts("resources")) or default.resources
    return PodDemand(fact, resources, members.integer("window", default.window, 1, 1_000_000))


_READERS: Final[Mapping[str, Callable[[Object], FactSource]]] = {
    "annotations": _annotations,
    "file": _file,
    "configMap": _config_map,
    "prometheus": _prometheus,
    "podOutcomes": _pod_outcomes,
    "podDemand": _pod_demand,
}


def _required(members: Object, name: str) -> str:
    text = members.text(name)
    if not text:
        (members.get(name) or members.owner).wrong(f"{name}: required value")
    return text


def _check_name(name: str, place: Field) -> None:
    if not _NAME.fullmatch(name):
        place.wrong(f'want a name of letters, digits, `_`, `-` and `.`, got "{name}"')


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
