"""The `extenders` of a KubeSchedulerConfiguration: fields, defaults and validation rules.

Owns what an extender's entry may say, with kube-scheduler's texts, and the order in which extenders
are asked. Sending them requests is `engine.io.extender_calls`'.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from engine.core.framework.extender import DEFAULT_TIMEOUT, Extender, ExtenderTls
from engine.core.model.resources import is_extended_resource
from engine.policy.documents import Field, Object

_CERTIFICATES: Final = "want certificates as PEM (`-----BEGIN CERTIFICATE-----`), in base64"


def decode_extenders(owner: Object) -> tuple[Extender, ...]:
    """The `extenders` of the configuration *owner*, as they are written."""
    entries = owner.items("extenders")
    seen: set[str] = set()
    extenders = tuple(_extender(entry, seen) for entry in entries)
    binders = sum(bool(extender.bind_verb) for extender in extenders)
    if binders > 1:
        owner["extenders"].wrong(
            f"found {binders} extenders implementing bind: only one extender can implement bind"
        )
    return extenders


def in_order(extenders: Iterable[Extender]) -> tuple[Extender, ...]:
    """*extenders* as they are asked: those that may be ignored come last."""
    return tuple(sorted(extenders, key=lambda extender: extender.ignorable))


def ignored_resources(extenders: Iterable[Extender]) -> list[str]:
    """The resources that an extender counts and NodeResourcesFit is not to look at."""
    return [name for extender in extenders for name in extender.ignored_resources]


def _extender(entry: Field, seen: set[str]) -> Extender:
    members = entry.object()
    prioritize_verb = members.text("prioritizeVerb")
    given = members.get("weight")
    weight = 0 if given is None else given.integer()  # None: reported already
    if prioritize_verb and weight is not None and weight <= 0:
        (given or entry).wrong("must have a positive weight applied to it")
    timeout: timedelta | None = members.duration("httpTimeout", timedelta(0)) or DEFAULT_TIMEOUT
    if timeout is not None and timeout < timedelta(0):
        timeout = None  # to kube-scheduler a negative one is no limit
    enable_https = members.boolean("enableHTTPS", False)
    names, ignored = _managed(members.items("managedResources"), seen)
    extender = Extender(
        url_prefix=_url_prefix(members, entry),
        filter_verb=members.text("filterVerb"),
        preempt_verb=members.text("preemptVerb"),
        prioritize_verb=prioritize_verb,
        bind_verb=members.text("bindVerb"),
        weight=weight or 0,
        tls=_tls(members.object("tlsConfig"), enable_https),
        enable_https=enable_https,
        timeout=timeout,
        node_cache_capable=members.boolean("nodeCacheCapable", False),
        resources=frozenset(names),
        ignored_resources=tuple(ignored),
        ignorable=members.boolean("ignorable", False),
    )
    members.finish()
    return extender


def _url_prefix(members: Object, entry: Field) -> str:
    prefix = members.text("urlPrefix")
    found = members.get("urlPrefix")
    if found is None or not prefix:
        (found or entry).wrong("urlPrefix: required value")
        return ""
    try:
        parts = urlsplit(prefix)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        found.wrong(f'want a URL such as `http://127.0.0.1:8888/scheduler`, got "{prefix}"')
    return prefix


def _tls(members: Object, is_https: bool) -> ExtenderTls:
    asked = members.boolean("insecure", False)
    ca_file, ca_data = members.text("caFile"), _data(members, "caData")
    if asked and (ca_file or ca_data):
        members["insecure"].wrong(
            "specifying a root certificates file with the insecure flag is not allowed"
        )
    tls = ExtenderTls(
        insecure=asked or (is_https and not (ca_file or ca_data)),
        server_name=members.text("serverName"),
        cert_file=members.text("certFile"),
        key_file=members.text("keyFile"),
        ca_file=ca_file,
        cert_data=_data(members, "certData"),
        key_data=_data(members, "keyData"),
        ca_data=ca_data,
    )
    _check_data(members, tls)
    members.finish()
    return tls


def _data(members: Object, name: str) -> bytes:
    """A field of bytes, which YAML and JSON carry as base64."""
    text = members.text(name)
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        members[name].wrong("want base64")  # and not what came: it may be a key
        return b""


def _check_data(members: Object, tls: ExtenderTls) -> None:
    """Refuse data that kube-scheduler would not start with; files may come later."""
    # Imported for the few configurations that have an extender with TLS: it loads OpenSSL.
    from engine.lib.certificates import are_certificates, key_problem

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


def _managed(entries: Sequence[Field], seen: set[str]) -> tuple[list[str], list[str]]:
    """Names of the managed resources, and of those among them that are ignored elsewhere."""
    names: list[str] = []
    ignored: list[str] = []
    for entry in entries:
        members = entry.object()
        name = members.text("name")
        place = members.get("name") or entry
        if not is_extended_resource(name):
            place.wrong(f'"{name}" is an invalid extended resource name')
        elif name in seen:
            place.wrong(f'duplicate extender managed resource name "{name}"')
        seen.add(name)
        names.append(name)
        if members.boolean("ignoredByScheduler", False):
            ignored.append(name)
        members.finish()
    return names, ignored
