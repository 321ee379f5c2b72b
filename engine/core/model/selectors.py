"""Selectors: does an object with these labels match?

Owns the meaning of label selectors and node selectors, malformed ones included. Two rules differ
on purpose, as in the API: a malformed *label* selector is an error, a malformed *node* selector
term matches nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from engine.core.model.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from engine.core.model.resources import is_qualified_name

#: Sets of labels for which one set of selectors remembers what it said. Few, since a set of
#: selectors belongs to one pod or one counter, and there may be thousands of those.
MOST_LABELS: Final = 64

_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,30}")
_SET_OPERATORS: Final = frozenset({"In", "NotIn"})
_PRESENCE_OPERATORS: Final = frozenset({"Exists", "DoesNotExist"})
_NUMBER_OPERATORS: Final = frozenset({"Gt", "Lt"})


class SelectorError(ValueError):
    """A selector that the API would not accept. The message names the requirement."""


def _int64(text: str) -> int | None:
    """*text* as a base-10 int64; None if it is not one."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _is_label_value(text: str) -> bool:
    return _LABEL_VALUE.fullmatch(text) is not None


def requirement_problem(
    requirement: LabelSelectorRequirement | NodeSelectorRequirement,
) -> str | None:
    """Why the API would not accept *requirement*, or None if it would."""
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if not is_qualified_name(key):
        return f"key `{key}`: want [prefix/]name"
    if operator in _SET_OPERATORS:
        if not values:
            return f"`{key}` {operator}: want at least one value"
    elif operator in _PRESENCE_OPERATORS:
        if values:
            return f"`{key}` {operator}: want no values, got {len(values)}"
    elif operator in _NUMBER_OPERATORS and isinstance(requirement, NodeSelectorRequirement):
        if len(values) != 1 or _int64(values[0]) is None:
            return f"`{key}` {operator}: want one integer"
    else:
        return f"`{key}`: unknown operator `{operator}`"
    for value in values:
        if not _is_label_value(value):
            return f"`{key}` {operator}: `{value}` is not a label value"
    return None


def field_requirement_problem(requirement: NodeSelectorRequirement) -> str | None:
    """As `requirement_problem`, of a requirement on a field of a node."""
    if requirement.operator not in _SET_OPERATORS or len(requirement.values) != 1:
        return f"`{requirement.key}` {requirement.operator}: want `In` or `NotIn` with one value"
    return None


def _holds(
    requirement: LabelSelectorRequirement | NodeSelectorRequirement, labels: Mapping[str, str]
) -> bool:
    """Whether *labels* meet *requirement*, which has no problem. A missing key meets NotIn."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    bound = _int64(requirement.values[0])
    number = None if value is None else _int64(value)
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def check_label_selector(selector: LabelSelector) -> None:
    """Raise `SelectorError` if the API would not accept *selector*."""
    for key, value in selector.match_labels.items():
        if not is_qualified_name(key):
            raise SelectorError(f"key `{key}`: want [prefix/]name")
        if not _is_label_value(value):
            raise SelectorError(f"`{key}`: `{value}` is not a label value")
    for requirement in selector.match_expressions:
        problem = requirement_problem(requirement)
        if problem is not None:
            raise SelectorError(problem)


def matches_label_selector(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether an object with *labels* is selected: by everything in *selector*; by None never.

    Raises `SelectorError` for a malformed selector, whatever the labels are.
    """
    if selector is None:
        return False
    check_label_selector(selector)
    return is_selected(selector, labels)


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """As `matches_label_selector`, but a malformed selector selects nothing."""
    try:
        return matches_label_selector(selector, labels)
    except SelectorError:
        return False


def is_selected(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """As `matches_label_selector`, of a selector that was checked: for many labels in a row."""
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return all(_holds(r, labels) for r in selector.match_expressions)


def label_keys(selector: LabelSelector | None) -> set[str]:
    """The keys of the labels that *selector* looks at."""
    if selector is None:
        return set()
    return {*selector.match_labels, *(r.key for r in selector.match_expressions)}


class SelectorSet:
    """Many label selectors of one owner, to be held against the labels of one object after another.

    Objects with equal values of the labels that are asked for cost one lookup. Raises
    `SelectorError` for a malformed selector.
    """

    def __init__(self, selectors: Sequence[LabelSelector | None]) -> None:
        self._selectors: list[tuple[int, LabelSelector]] = []
        keys = set[str]()
        for place, selector in enumerate(selectors):
            if selector is not None:
                check_label_selector(selector)
                self._selectors.append((1 << place, selector))
                keys |= label_keys(selector)
        self._keys = frozenset(keys)
        self._known: dict[frozenset[tuple[str, str]], int] = {}

    def matching(self, labels: Mapping[str, str]) -> int:
        """Which of them select *labels*: the bit of each one's place is set."""
        asked = frozenset(item for item in labels.items() if item[0] in self._keys)
        found = self._known.get(asked)
        if found is None:
            if len(self._known) >= MOST_LABELS:
                self._known.clear()
            found = self._known[asked] = sum(
                bit for bit, selector in self._selectors if is_selected(selector, labels)
            )
        return found


def _field_holds(requirement: NodeSelectorRequirement, fields: Mapping[str, str]) -> bool:
    value = fields.get(requirement.key, "")
    if requirement.operator == "In":
        return value == requirement.values[0]
    return value != requirement.values[0]


def matches_node_selector_term(
    term: NodeSelectorTerm, labels: Mapping[str, str], node_name: str
) -> bool:
    """Whether a node meets every requirement of *term*. An empty or malformed term matches nothing.

    Without a *node_name* requirements on fields are met if they make sense: kube-scheduler asks so
    about the nodes of a volume, which it knows by their labels.
    """
    if not term.match_expressions and not term.match_fields:
        return False
    for requirement in term.match_expressions:
        if requirement_problem(requirement) is not None:
            return False
    for requirement in term.match_fields:
        if field_requirement_problem(requirement) is not None:
            return False
    fields = {"metadata.name": node_name}
    return all(_holds(r, labels) for r in term.match_expressions) and (
        not node_name or all(_field_holds(r, fields) for r in term.match_fields)
    )


def node_selector_problem(selector: NodeSelector) -> str | None:
    """Why the API would not accept *selector*, or None if it would."""
    for term in selector.node_selector_terms:
        for requirement in term.match_expressions:
            if (problem := requirement_problem(requirement)) is not None:
                return problem
        for requirement in term.match_fields:
            if (problem := field_requirement_problem(requirement)) is not None:
                return problem
    return None


def matches_node_selector(
    selector: NodeSelector | None, labels: Mapping[str, str], node_name: str
) -> bool:
    """Whether a node meets one of the terms; None asks for nothing and matches every node."""
    if selector is None:
        return True
    return any(
        matches_node_selector_term(term, labels, node_name) for term in selector.node_selector_terms
    )
