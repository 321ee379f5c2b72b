"""The words in which field rules are written: causes, name formats, and tables of rules by path.

Owns no rule of any kind of object. A table of rules is data: pairs of a path and a check, compiled
into a tree, so that a walk visits the parts of an object that are there and have rules.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from engine.core.manifests.errors import Cause

Json = dict[str, Any]

#: What is wrong with a value, which may be None, at a field of its holder.
Check = Callable[[str, Any, Any], Iterator[Cause]]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LONGEST_DRIVER = 63
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
NAME_TOO_LONG = "must be no more than 253 bytes"
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_NAME_PART_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def required(field: str, detail: str = "") -> Cause:
    """The field has to be set."""
    return Cause(
        field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value"
    )


def wrong(field: str, value: object, detail: str) -> Cause:
    """The value breaks a rule."""
    shown = f'"{value}"' if isinstance(value, str) else value
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {detail}")


def unsupported(field: str, value: str, supported: tuple[str, ...]) -> Cause:
    """The value is not one of a closed set."""
    listed = ", ".join(f'"{item}"' for item in supported)
    return Cause(
        field,
        "FieldValueNotSupported",
        f'Unsupported value: "{value}": supported values: {listed}',
    )


def denied(field: str, detail: str) -> Cause:
    """The field may not be set, or not like this."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: str) -> Cause:
    """The value occurs twice where it may occur once."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {value}")


@lru_cache(maxsize=8192)
def qualified_name_problems(name: str) -> tuple[str, ...]:
    """What is wrong with a label key, an annotation key or a resource name; empty if nothing."""
    prefix, slash, short = name.rpartition("/")
    found = []
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        found.append("prefix part " + (_SUBDOMAIN_RULE if prefix else "must be non-empty"))
    if not short:
        found.append("name part must be non-empty")
    elif len(short) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(short):
        found.append(_NAME_PART_RULE)
    return tuple(found)


def qualified(field: str, name: str) -> Iterator[Cause]:
    """What is wrong with a label key, an annotation key or a resource name at *field*."""
    for problem in qualified_name_problems(name):
        yield wrong(field, name, problem)


@lru_cache(maxsize=8192)
def label_value_problem(value: str) -> str | None:
    """What is wrong with a label value; None if nothing."""
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return _LABEL_VALUE_RULE if value and not _QUALIFIED.fullmatch(value) else None


def labels(field: str, found: Json) -> Iterator[Cause]:
    """What is wrong with labels at *field*."""
    for key, value in found.items():
        if qualified_name_problems(key):
            yield from qualified(field, key)
        problem = label_value_problem(value)
        if problem:
            yield wrong(field, value, problem)


def name_problems(field: str, name: str) -> Iterator[Cause]:
    """What is wrong with *name*, which has to be a DNS subdomain, as those of nodes are."""
    if len(name) > 253:
        yield wrong(field, name, NAME_TOO_LONG)
    if not _SUBDOMAIN.fullmatch(name):
        yield wrong(field, name, _SUBDOMAIN_RULE)


def not_found(field: str, value: str) -> Cause:
    """The value refers to what is not there."""
    return Cause(field, "FieldValueNotFound", f'Not found: "{value}"')


def too_many(field: str, count: int, most: int) -> Cause:
    """The list has too many entries."""
    shown = f"Too many: {count}: must have at most {most} items"
    return Cause(field, "FieldValueTooMany", shown)


def too_long(field: str, most: int) -> Cause:
    """The text is too long."""
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def node_term(field: str, term: Json, *, is_required: bool = True) -> Iterator[Cause]:
    """What is wrong with one term of a node selector, which *is_required* or preferred."""
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        yield from _requirement(
            f"{field}.matchExpressions[{index}]",
            expression,
            of_node=True,
            looks_at_values=is_required,
        )
    for index, expression in enumerate(term.get("matchFields") or ()):
        yield from _node_field(f"{field}.matchFields[{index}]", expression)


def _requirement(
    path: str, expression: Json, *, of_node: bool = False, looks_at_values: bool = True
) -> Iterator[Cause]:
    """What is wrong with a requirement for a label, of an object or *of_node*."""
    operator, values = expression.get("operator") or "", expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            shown = "must be specified when `operator` is 'In' or 'NotIn'"
            yield required(f"{path}.values", shown)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            shown = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield denied(f"{path}.values", shown)
    elif of_node and operator in ("Gt", "Lt"):
        if len(values) != 1:
            shown = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield required(f"{path}.values", shown)
    else:
        yield wrong(f"{path}.operator", operator, "not a valid selector operator")
    yield from qualified(f"{path}.key", expression.get("key") or "")
    for at, value in enumerate(values if looks_at_values else ()):
        problem = label_value_problem(value)
        if problem:
            yield wrong(f"{path}.values[{at}]", value, problem)


def _node_field(field: str, expression: Json) -> Iterator[Cause]:
    operator, values = expression.get("operator") or "", expression.get("values") or []
    if operator not in ("In", "NotIn"):
        yield wrong(f"{field}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        yield required(
            f"{field}.values",
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        )
    if expression.get("key") != "metadata.name":
        shown = "not a valid field selector key"
        yield wrong(f"{field}.key", expression.get("key") or "", shown)
        return
    for index, value in enumerate(values):
        yield from name_problems(f"{field}.values[{index}]", value)


def label_selector(field: str, selector: Json | None) -> Iterator[Cause]:
    """What is wrong with a label selector of an object."""
    if selector is None:
        return
    yield from labels(f"{field}.matchLabels", selector.get("matchLabels") or {})
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from _requirement(f"{field}.matchExpressions[{index}]", expression)


def selects(selector: Json | None, labels: Json) -> bool:
    """Whether a label selector of an object selects *labels*; None selects nothing."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or ():
        value, values = labels.get(expression.get("key")), expression.get("values") or []
        holds = {
            "In": value is not None and value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }.get(expression.get("operator"), False)
        if not holds:
            return False
    return True


def node_terms(field: str, terms: Iterable[Json]) -> Iterator[Cause]:
    """What is wrong with the terms of a node selector, the first of which is `{field}[0]`."""
    for index, term in enumerate(terms):
        yield from node_term(f"{field}[{index}]", term)


# --- checks -------------------------------------------------------------------------------------


def is_set(field: str, value: Any, _: Any) -> Iterator[Cause]:
    """It is neither absent nor empty."""
    if not value:
        yield required(field)


def is_there(field: str, value: Any, _: Any) -> Iterator[Cause]:
    """It is there, though it may be empty."""
    if value is None:
        yield required(field)


def dns_label(field: str, value: Any, _: Any) -> Iterator[Cause]:
    """A DNS label, which has to be there."""
    if not value or len(value) > 63 or not DNS_LABEL.fullmatch(value):
        yield wrong(field, value or "", LABEL_RULE)


def label_if_set(field: str, value: Any, holder: Any) -> Iterator[Cause]:
    """A DNS label; absence is for another check."""
    if value:
        yield from dns_label(field, value, holder)


def qualified_name(field: str, value: Any, _: Any) -> Iterator[Cause]:
    """The key of a label, which has to be there."""
    yield from qualified(field, value or "")


def subdomain_if_set(field: str, value: Any, _: Any) -> Iterator[Cause]:
    """A DNS subdomain; absence is for another check."""
    if value:
        yield from name_problems(field, value)


def driver_name(field: str, value: Any, _: Any) -> Iterator[Cause]:
    """The name of a driver, of storage or of devices, which has to be there."""
    if not value:
        yield required(field)
        return
    if len(value) > _LONGEST_DRIVER:
        yield too_long(field, _LONGEST_DRIVER)
    yield from name_problems(field, value.lower())


def selector(field: str, value: Any, _: Any) -> Iterator[Cause]:
    """A label selector, if it is there."""
    yield from label_selector(field, value)


def node_selector(field: str, value: Any, _: Any) -> Iterator[Cause]:
    """A node selector, if it is there."""
    if value is None:
        return
    terms = value.get("nodeSelectorTerms")
    if not terms:
        yield required(f"{field}.nodeSelectorTerms", "must have at least one node selector term")
    yield from node_terms(f"{field}.nodeSelectorTerms", terms or ())


def of(*choices: str) -> Check:
    """It is one of *choices*, if it is set."""

    def check(field: str, value: Any, _: Any) -> Iterator[Cause]:
        if value and value not in choices:
            yield unsupported(field, value, choices)

    return check


def of_if_there(*choices: str) -> Check:
    """It is one of *choices*, if it is there: the empty text is none of them."""

    def check(field: str, value: Any, _: Any) -> Iterator[Cause]:
        if value is not None and value not in choices:
            yield unsupported(field, value, choices)

    return check


def at_most(most: int) -> Check:
    """A list of not more than *most* entries."""

    def check(field: str, value: Any, _: Any) -> Iterator[Cause]:
        if len(value or ()) > most:
            yield too_many(field, len(value), most)

    return check


def within(least: int, most: int) -> Check:
    """A number, 0 if absent, from *least* to *most*."""

    def check(field: str, value: Any, _: Any) -> Iterator[Cause]:
        if not least <= (value or 0) <= most:
            yield wrong(field, value or 0, f"must be between {least} and {most}, inclusive")

    return check


def at_least(least: int) -> Check:
    """A number, 0 if absent, that is not less than *least*."""

    def check(field: str, value: Any, _: Any) -> Iterator[Cause]:
        if (value or 0) < least:
            yield wrong(field, value or 0, f"must be greater than or equal to {least}")

    return check


def unique(*keys: str) -> Check:
    """No two entries of a list have the same *keys*; without keys, no two are equal."""

    def check(field: str, value: Any, _: Any) -> Iterator[Cause]:
        seen = set()
        for index, item in enumerate(value or ()):
            key = tuple(item.get(one) or "" for one in keys) if keys else item
            if key in seen:
                yield duplicate(f"{field}[{index}]", str(key))
            seen.add(key)

    return check


def one_of(*members: str, reason: Callable[[str, str], Cause] = required) -> Check:
    """Exactly one of *members* is set in an object; *reason* is that of none."""
    listed = ", ".join(f"`{name}`" for name in members)

    def check(field: str, value: Any, _: Any) -> Iterator[Cause]:
        present = [name for name in members if (value or {}).get(name) not in (None, [], False, "")]
        if not present:
            yield reason(field, f"exactly one of {listed} is required")
        elif len(present) > 1:
            yield wrong(field, "", f"exactly one of {listed} is required, but several are set")

    return check


# --- tables -------------------------------------------------------------------------------------


class Rules:
    """A table of rules, as the tree of its paths.

    Args:
        rules: Pairs of a path and a check. In a path, `a.b` is a member, `a[]` each entry of a list
            and `a{}` each value of a map. The check of a member runs where the member is absent,
            too, as long as its holder is there, which `a!` always is (it is no pointer in Go).
    """

    def __init__(self, rules: Iterable[tuple[str, Check]]) -> None:
        self._checks: list[Check] = []
        self._parts: dict[str, Rules] = {}
        for path, check in rules:
            node = self
            for step in re.findall(r"[^.\[{]+|\[\]|\{\}", path):
                node = node._parts.setdefault(step, Rules(()))
            node._checks.append(check)

    def problems(self, field: str, value: Any, holder: Any = None) -> Iterator[Cause]:
        """What is wrong with *value*, which is called *field* in causes."""
        for check in self._checks:
            for cause in check(field, value, holder):
                yield cause
                if cause.reason == "FieldValueTooMany" and cause.field == field:
                    return  # a list that is too long is not looked into
        if value is None:
            return
        for step, part in self._parts.items():
            if step == "[]":
                for index, item in enumerate(value):
                    yield from part.problems(f"{field}[{index}]", item, value)
            elif step == "{}":
                for key, item in value.items():
                    yield from part.problems(f"{field}[{key}]", item, value)
            else:
                name = step.removesuffix("!")
                inner = f"{field}.{name}" if field else name
                item = value.get(name)
                if item is None and step != name:
                    item = {}
                yield from part.problems(inner, item, value)
