"""Lists: pages, continue tokens, and the resourceVersions that a list may ask for.

Owns which versions of which objects a list shows. Encoding them is the server's business.
"""

import base64
import binascii
from dataclasses import dataclass

import msgspec

from engine.devcluster.selectors import Predicate, selector
from engine.devcluster.store import CompactedError, Store, Table, Version, View
from engine.manifests.errors import (
    bad_request,
    expired,
    invalid_options,
    version_too_large,
)
from engine.manifests.field_rules import denied
from engine.manifests.kinds import Kind

_STALE_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the continue token in this response "
    "to retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The query parameters of a list."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""


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
    text, match = options.resource_version, options.resource_version_match
    if match and not text:
        cause = denied(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )
        raise invalid_options("ListOptions", cause)
    asked = parse_revision(text)
    is_exact = match == "Exact" and asked
    current = seen if text and not is_exact else newest
    if asked > current:
        raise version_too_large(asked, current)
    shown = asked if is_exact else current
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
    if options.resource_version:
        raise bad_request("specifying resource version is not allowed when using continue")
    try:
        padded = options.continue_token + "=" * (-len(options.continue_token) % 4)
        token = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        return int(token["rv"]), prefix + str(token["start"]).lstrip("/")
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        text = f"invalid continue token: continue key is not valid: {error}"
        raise bad_request(text) from error


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
