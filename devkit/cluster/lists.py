"""Lists: pages, continue tokens, and what lists and watches may ask for.

Owns the options of lists and watches, which of them contradict each other, and which versions of
which objects a list shows. Encoding those is the server's business.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from devkit.cluster.selectors import Predicate, selector
from devkit.cluster.store import CompactedError, Store, Table, Version, View
from engine.core.manifests.errors import (
    Cause,
    bad_request,
    expired,
    invalid_options,
    version_too_large,
)
from engine.core.manifests.field_rules import denied, unsupported
from engine.core.manifests.kinds import Kind

_STALE_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the continue token in this response "
    "to retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The query parameters of a list or a watch.

    Attributes:
        send_initial_events: None where the client does not say.
    """

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    send_initial_events: bool | None = None
    wants_bookmarks: bool = False
    timeout_seconds: int = 0

    @property
    def is_exact(self) -> bool:
        """True if a list shows the state at its resourceVersion, not one that is at least as new.

        A page does that, too, unless the client says what it wants.
        """
        if self.resource_version_match:
            return self.resource_version_match == "Exact"
        return self.limit > 0 and self.resource_version not in ("", "0")


_MATCHES: Final = ("Exact", "NotOlderThan")


def list_options(query: Mapping[str, str], *, is_watch: bool = False) -> ListOptions:
    """The options in *query*.

    A watch that names no version and no other wish begins with what is there.

    Raises:
        ApiStatus: 400 for a malformed option, 422 if they contradict each other.
    """
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=max(0, integer(query, "limit")),
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        send_initial_events=flag(query, "sendInitialEvents")
        if "sendInitialEvents" in query
        else None,
        wants_bookmarks=flag(query, "allowWatchBookmarks"),
        timeout_seconds=integer(query, "timeoutSeconds"),
    )
    if (
        is_watch
        and options.resource_version in ("", "0")
        and not options.resource_version_match
        and options.send_initial_events is None
    ):
        options = replace(options, send_initial_events=True, resource_version_match="NotOlderThan")
    found = list(_watch_problems(options) if is_watch else _list_problems(options))
    if found:
        raise invalid_options("ListOptions", *found)
    return options


def flag(query: Mapping[str, str], key: str) -> bool:
    """True if the parameter is there and does not say no, as the API server reads them."""
    return query.get(key, "0").lower() not in ("0", "false")


def integer(query: Mapping[str, str], key: str) -> int:
    """The parameter as a number, 0 if it is not there. Refuses with 400."""
    text = query.get(key, "0")
    if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def _list_problems(asked: ListOptions) -> Iterator[Cause]:
    match = asked.resource_version_match
    field = "resourceVersionMatch"
    if match and not asked.resource_version:
        yield denied(field, f"{field} is forbidden unless resourceVersion is provided")
    if match and asked.continue_token:
        yield denied(field, f"{field} is forbidden when continue is provided")
    if match not in ("", *_MATCHES):
        yield unsupported(field, match, (*_MATCHES, ""))
    if match == "Exact" and asked.resource_version == "0":
        yield denied(field, f'{field} "exact" is forbidden for resourceVersion "0"')
    if asked.send_initial_events is not None:
        yield denied("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _watch_problems(asked: ListOptions) -> Iterator[Cause]:
    match = asked.resource_version_match
    field = "resourceVersionMatch"
    if asked.send_initial_events is not None and match != "NotOlderThan":
        yield denied(field, f"sendInitialEvents requires setting {field} to NotOlderThan")
    if not match:
        return
    if asked.send_initial_events is None:
        yield denied(field, f"{field} is forbidden for watch unless sendInitialEvents is provided")
    if match != "NotOlderThan":
        yield unsupported(field, match, ("NotOlderThan",))
    if asked.continue_token:
        yield denied(field, f"{field} is forbidden when continue is provided")


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    versions: list[Version]
    revision: int
    continue_token: str = ""
    remaining: int = 0


def find_page(
    store: Store, kind: Kind, namespace: str, options: ListOptions, *, seen: int | None = None
) -> Page:
    """One page of the objects that match, in key order, as of one revision.

    Args:
        seen: What a list that need not be the newest shows; None: the newest, too.

    Raises:
        ApiStatus: 400 for malformed options, 410 if the revision asked for is compacted, 504 if it
            has not happened yet.
    """
    matches = selector(kind, options.label_selector, options.field_selector)
    table = store.table(kind.storage)
    prefix = f"{namespace}/" if namespace else ""
    limit, start = options.limit, prefix
    if options.continue_token:
        revision, start = _continued(options, prefix)
        view = _view_for_token(table, revision, store.revision, start.removeprefix(prefix))
        revision = store.revision if revision < 0 else revision
    else:
        newest = store.revision
        view, revision = _view(table, options, newest, newest if seen is None else seen)
        if options.resource_version == "0":
            limit = 0  # served from a cache that has no pages
    return _page(view.scan(prefix, start), revision, matches, prefix, limit)


def _page(
    found: list[Version], revision: int, matches: Predicate | None, prefix: str, limit: int
) -> Page:
    if not limit:
        if matches is not None:
            found = [version for version in found if matches(version.manifest)]
        return Page(found, revision)
    if matches is None:
        page, more = found[:limit], len(found) - limit
    else:
        page, more = [], 0
        for index, version in enumerate(found):
            if matches(version.manifest):
                page.append(version)
                if len(page) == limit:
                    more = len(found) - index - 1
                    break
    if more <= 0:
        return Page(page, revision)
    token = _token(revision, f"/{page[-1].key.removeprefix(prefix)}\0")
    # With a selector it is unknown how many of the rest match.
    return Page(page, revision, token, more if matches is None else 0)


def _view(table: Table, options: ListOptions, newest: int, seen: int) -> tuple[View, int]:
    asked = parse_revision(options.resource_version)
    current = seen if options.resource_version and not options.is_exact else newest
    if asked > current:
        raise version_too_large(asked, current)
    shown = asked if options.is_exact else current
    try:
        return table.at(shown), shown
    except CompactedError as error:
        raise expired("The resourceVersion for the provided list is too old.") from error


def _view_for_token(table: Table, revision: int, current: int, start: str) -> View:
    if revision < 0:  # a token that gave up consistency
        return table.at(current)
    try:
        return table.at(revision)
    except CompactedError as error:
        token = _token(-1, f"/{start}")
        raise expired(_STALE_TOKEN, metadata={"continue": token}) from error


def _continued(options: ListOptions, prefix: str) -> tuple[int, str]:
    try:
        padded = options.continue_token + "=" * (-len(options.continue_token) % 4)
        token = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        revision, start = int(token["rv"]), prefix + str(token["start"]).lstrip("/")
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        text = f"invalid continue token: continue key is not valid: {error}"
        raise bad_request(text) from error
    if options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return revision, start


def _token(revision: int, start: str) -> str:
    token = {"v": "meta.k8s.io/v1", "rv": revision, "start": start}
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()


def parse_revision(text: str) -> int:
    """A resourceVersion parameter as a number; 0 for the empty text. Refuses with 400."""
    if not text:
        return 0
    if not (text.isdecimal() and text.isascii()):
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)
