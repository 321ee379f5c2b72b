"""The `extenders` of a KubeSchedulerConfiguration: fields, defaults and validation rules.

Owns what an extender's entry may say, with kube-scheduler's texts, and the order in which extenders
are asked. Sending them requests is `engine.io.extender_calls`'.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from engine.core.framework.extender import DEFAULT_TIMEOUT, Extender, ExtenderTls
from engine.core.model.resources import is_extended_resource
from engine.policy.documents import (
    Entry,
    Field,
    Object,
    Table,
    entry,
    integer,
    listed,
    record,
    table_of,
    unless_empty,
)

_CERTIFICATES: Final = "want certificates as PEM (`-----BEGIN CERTIFICATE-----`), in base64"


def _url_prefix(found: Field) -> str:
    prefix = found.text()
    try:
        parts = urlsplit(prefix)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if prefix and not is_url:
        found.wrong(f'want a URL such as `http://127.0.0.1:8888/scheduler`, got "{prefix}"')
    return prefix


def _data(found: Field) -> bytes:
    """Reads bytes, which YAML and JSON carry as base64."""
    try:
        return base64.b64decode("".join(found.text().split()), validate=True)
    except (binascii.Error, ValueError):
        found.wrong("want base64")  # and not what came: it may be a key
        return b""


_READERS: Final = {bool: Field.boolean, str: Field.text, bytes: _data}
#: How `tlsConfig` is read and written: by the types of what the record has.
TLS_TABLE: Final[Table] = {
    one.name: Entry(_READERS[type(one.default)]) for one in fields(ExtenderTls)
}


def _check_tls(tls: ExtenderTls, members: Object) -> None:
    """Refuse data that kube-scheduler would not start with; files may come later."""
    # Imported for the few configurations that have an extender with TLS: it loads OpenSSL.
    from engine.lib.certificates import are_certificates, key_problem

    if tls.insecure and (tls.ca_file or tls.ca_data):
        members["insecure"].wrong(
            "specifying a root certificates file with the insecure flag is not allowed"
        )
    if tls.ca_data and not are_certificates(tls.ca_data):
        members["caData"].wrong(_CERTIFICATES)
    if not ((tls.cert_data or tls.cert_file) and (tls.key_data or tls.key_file)):
        return  # not used, as in kube-scheduler
    certificate = tls.cert_data or None
    if certificate is not None and not are_certificates(certificate):
        members["certData"].wrong(_CERTIFICATES)
        certificate = None
    if tls.key_data and (problem := key_problem(tls.key_data, certificate)):
        members["keyData"].wrong(problem)


@dataclass(frozen=True, slots=True)
class _Managed:
    """A managed resource, where it is named, and whether it is ignored elsewhere."""

    name: str = entry(Field.text, "")
    ignored_by_scheduler: bool = entry(Field.boolean, False)
    place: Field | None = None


def _managed(found: Field) -> _Managed:
    members = found.object()
    made = _Managed(**members.values(table_of(_Managed)), place=members.place("name"))
    if not is_extended_resource(made.name):
        members.place("name").wrong(f'"{made.name}" is an invalid extended resource name')
    return made


#: How an extender is read and written; `Extender` keeps what is managed as two attributes.
EXTENDER_TABLE: Final[Table] = {
    "url_prefix": Entry(_url_prefix, is_required=True),
    "filter_verb": Entry(Field.text),
    "preempt_verb": Entry(Field.text),
    "prioritize_verb": Entry(Field.text),
    "weight": Entry(integer()),
    "bind_verb": Entry(Field.text),
    "enable_https": Entry(Field.boolean, "enableHTTPS"),
    "tls": Entry(record(ExtenderTls, TLS_TABLE, _check_tls), "tlsConfig"),
    "timeout": Entry(unless_empty(Field.duration), "httpTimeout"),
    "node_cache_capable": Entry(Field.boolean),
    "managed_resources": Entry(listed(_managed)),
    "ignorable": Entry(Field.boolean),
}


def read_extenders(found: Field) -> tuple[Extender, ...]:
    """The `extenders` of a configuration, as they are written."""
    seen: set[str] = set()
    extenders = tuple(_extender(item, seen) for item in found.items())
    binders = sum(bool(extender.bind_verb) for extender in extenders)
    if binders > 1:
        found.wrong(
            f"found {binders} extenders implementing bind: only one extender can implement bind"
        )
    return extenders


def _extender(found: Field, seen: set[str]) -> Extender:
    members = found.object()
    values = members.values(EXTENDER_TABLE)
    managed: Sequence[_Managed] = values.pop("managed_resources", ())
    for one in managed:
        if one.name in seen and one.place is not None and is_extended_resource(one.name):
            one.place.wrong(f'duplicate extender managed resource name "{one.name}"')
        seen.add(one.name)
    # Without a weight, or with one that is none: that is reported already.
    weight = values.get("weight", 0 if members.get("weight") is None else None)
    if values.get("prioritize_verb") and weight is not None and weight <= 0:
        members.place("weight").wrong("must have a positive weight applied to it")
    if values.get("timeout", DEFAULT_TIMEOUT) < timedelta(0):
        values["timeout"] = None  # to kube-scheduler a negative one is no limit
    tls = values.pop("tls", ExtenderTls())
    if values.get("enable_https") and not (tls.ca_file or tls.ca_data):
        tls = replace(tls, insecure=True)
    return Extender(
        **{"url_prefix": "", **values},
        tls=tls,
        resources=frozenset(one.name for one in managed),
        ignored_resources=tuple(one.name for one in managed if one.ignored_by_scheduler),
    )


def in_order(extenders: Iterable[Extender]) -> tuple[Extender, ...]:
    """*extenders* as they are asked: those that may be ignored come last."""
    return tuple(sorted(extenders, key=lambda extender: extender.ignorable))


def ignored_resources(extenders: Iterable[Extender]) -> list[str]:
    """The resources that an extender counts and NodeResourcesFit is not to look at."""
    return [name for extender in extenders for name in extender.ignored_resources]
