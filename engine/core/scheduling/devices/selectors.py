"""Device selectors: whether a device satisfies a CEL expression.

Owns the cache of compiled expressions, how a device looks to them, and what is remembered of the
answers: an expression always says the same of the same device.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from engine.core.framework.behaviors import Behaviors
from engine.core.model.devices import DeviceAttribute, DeviceCapacity
from engine.core.scheduling.devices.evaluation import (
    MOST_COST,
    Domains,
    Evaluator,
    Scope,
    StrictDomains,
    evaluator_of,
)
from engine.core.scheduling.devices.expressions import CompileError, compile_expression
from engine.core.scheduling.devices.names import by_full_name
from engine.core.scheduling.devices.values import (
    CelError,
    Failure,
    Quantity,
    Semver,
    StrictMap,
    type_name,
)

# Why an attribute is no answer, by its type.
_NO_BOOL: Final = {
    "int": "unsupported type conversion from 'int' to bool",
    "string": "unsupported native conversion from string to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "kubernetes.Semver": "type conversion error from 'Semver' to 'bool'",
}


class SelectorError(Exception):
    """A selector that cannot say if a device suits: the text says why.

    `is_about_device`: it may say so of another device, because it is a valid expression.
    `is_device_at_fault`: every expression would fail on the device, since it has a malformed value.
    """

    def __init__(
        self, text: str, *, is_about_device: bool = False, is_device_at_fault: bool = False
    ) -> None:
        super().__init__(text)
        self.is_about_device = is_about_device
        self.is_device_at_fault = is_device_at_fault


class Described(Protocol):
    """What of a device an expression can see; `answers` holds what was said of it before."""

    behaves: Behaviors
    driver: str
    attributes: Mapping[str, DeviceAttribute]
    capacity: Mapping[str, DeviceCapacity]
    allows_many: bool
    answers: "dict[str, bool | SelectorError]"
    variables: "dict[str, Any] | None"


def matches(expression: str, device: Described) -> tuple[bool, int]:
    """Whether *device* suits *expression*, and what it cost to find out (0: it was known).

    Raises `SelectorError` if the expression is invalid, or gives no bool for this device.
    """
    known = device.answers.get(expression)
    cost = 0
    if known is None:
        known, cost = _ask(expression, device)
        device.answers[expression] = known
    if isinstance(known, SelectorError):
        raise known.with_traceback(None)  # or it would grow with each time
    return known, cost


def _ask(expression: str, device: Described) -> tuple[bool | SelectorError, int]:
    evaluate = _compiled(expression)
    if isinstance(evaluate, SelectorError):
        return evaluate, 1
    try:
        if device.variables is None:
            device.variables = _variables(device)
        is_newer = device.behaves.newer_expressions
        scope = Scope(device.variables, MOST_COST, is_newer=is_newer)
    except CelError as error:
        return _runtime_error(error, is_device_at_fault=True), 1
    try:
        answer = evaluate(scope)
    except CelError as error:
        return _runtime_error(error), scope.cost
    if not isinstance(answer, bool):
        kind = type_name(answer)
        why = _NO_BOOL.get(kind, f"type conversion error from '{kind}' to 'bool'")
        text = f"CEL result of type {kind} could not be converted to bool: {why}"
        return _runtime_error(CelError(text)), scope.cost
    return answer, scope.cost


@lru_cache(maxsize=1_000)
def _compiled(expression: str) -> Evaluator | SelectorError:
    try:
        return evaluator_of(compile_expression(expression))
    except (CompileError, CelError) as error:
        return SelectorError(f"CEL compile error: {error}")


def _runtime_error(error: CelError, *, is_device_at_fault: bool = False) -> SelectorError:
    text = f"CEL runtime error: {error}"
    if "no such key:" in text:
        text += (
            ". consider using CEL optional chaining (.? followed by orValue()) "
            "or guarding the check with has() for optional fields"
        )
    return SelectorError(text, is_about_device=True, is_device_at_fault=is_device_at_fault)


def _variables(device: Described) -> dict[str, Any]:
    """What `device` is to an expression. Raises `CelError` for a malformed value."""
    named_attributes, named_capacity = device.attributes, device.capacity
    if device.behaves.names_in_full:
        named_attributes = by_full_name(named_attributes, device.driver)
        named_capacity = by_full_name(named_capacity, device.driver)
    is_lenient = device.behaves.attributes_fail_when_read
    make = StrictMap if is_lenient else dict[str, Any]
    domains = StrictDomains if is_lenient else Domains
    attributes, capacity = domains(), domains()
    for name, attribute in named_attributes.items():
        domain, identifier = _split(name, device.driver)
        value = _value_or_failure(identifier, attribute) if is_lenient else _value(name, attribute)
        attributes.setdefault(domain, make())[identifier] = value
    for name, amount in named_capacity.items():
        domain, identifier = _split(name, device.driver)
        capacity.setdefault(domain, make())[identifier] = Quantity.parse(
            amount.value, is_newer=device.behaves.newer_expressions
        )
    fields: dict[str, Any] = {
        "driver": device.driver,
        "allowMultipleAllocations": device.allows_many,
        "attributes": attributes,
        "capacity": capacity,
    }
    return {"device": fields, **{f"device.{name}": value for name, value in fields.items()}}


def _split(name: str, driver: str) -> tuple[str, str]:
    """Domain and identifier of a qualified name; without a domain it is the driver's."""
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _value(name: str, attribute: DeviceAttribute) -> Any:
    plain = (
        attribute.int_values,
        attribute.bool_values,
        attribute.string_values,
        attribute.int_value,
        attribute.bool_value,
        attribute.string_value,
    )
    for value in plain:
        if value is not None:
            return value
    try:
        if attribute.version_values is not None:
            return [Semver.parse(version) for version in attribute.version_values]
        if attribute.version_value is not None:
            return Semver.parse(attribute.version_value)
    except CelError as error:
        raise CelError(f"attribute {name}: parse semantic version: {error}") from error
    raise CelError(f"attribute {name}: unsupported attribute value")


def _value_or_failure(identifier: str, attribute: DeviceAttribute) -> Any:
    """The value of an attribute; of one that is not understood, what fails once it is read."""
    try:
        value = _value(identifier, attribute)
        if value != []:
            return value
    except CelError:
        pass
    text = f"attribute {identifier}: value is invalid or its type is not supported by this version"
    return Failure(CelError(text))
