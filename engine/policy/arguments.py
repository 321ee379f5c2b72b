"""Plugin arguments: kube-scheduler's by its own schemas, a policy's by what its file declares.

A file declares arguments once, at top level: `args = plugin_args(threshold = 90)`. In a
configuration they may be written `threshold_percent` or `thresholdPercent`; nested values are
given as they are written. Owns declarations, schemas and the checking of values; which policy
gets which values is `profiles`.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import msgspec

from engine.core.model import objects as api
from engine.core.model.resources import is_qualified_name
from engine.core.model.selectors import field_requirement_problem, requirement_problem
from engine.language.syntax import parse, walk
from engine.policy.config import API_VERSION
from engine.policy.documents import MOST_INT32, Field, Object, did_you_mean
from engine.policy.shipped import snake_case
from engine.policy.term_views import node_affinity_view

# A declared default that is not a literal: its type is only known when the file runs.
UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class Declaration:
    """The `plugin_args(...)` of a file: defaults by name, and where it is."""

    defaults: Mapping[str, Any]
    line: int = 0
    column: int = 0


def plugin_args_calls(tree: ast.Module) -> list[ast.Call]:
    """Every call of `plugin_args` in a file, in order."""
    calls = [
        node
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "plugin_args"
    ]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def declaration(text: str) -> Declaration:
    """What the file *text* declares; nothing if it has no `plugin_args`."""
    tree = parse(text) if "plugin_args" in text else None
    calls = [] if tree is None else plugin_args_calls(tree)
    if tree is None or not calls:
        return Declaration({})
    constants = _constants(tree)
    call = calls[0]
    defaults = {k.arg: _value(k.value, constants) for k in call.keywords if k.arg is not None}
    return Declaration(defaults, call.lineno, call.col_offset + 1)


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    return {
        statement.targets[0].id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
    }


def _value(node: ast.expr, constants: Mapping[str, ast.expr], depth: int = 0) -> Any:
    """The value of an expression made of literals and constants of the file, or UNKNOWN."""
    if depth > 20:
        return UNKNOWN
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        constant = constants.get(node.id)
        return UNKNOWN if constant is None else _value(constant, constants, depth + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand, constants, depth + 1)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return -value if is_number else UNKNOWN
    if isinstance(node, ast.List | ast.Tuple):
        items = [_value(item, constants, depth + 1) for item in node.elts]
        return UNKNOWN if UNKNOWN in items else items
    if isinstance(node, ast.Dict):
        keys = [UNKNOWN if k is None else _value(k, constants, depth + 1) for k in node.keys]
        values = [_value(v, constants, depth + 1) for v in node.values]
        if UNKNOWN in values or not all(isinstance(key, str) for key in keys):
            return UNKNOWN
        return dict(zip(keys, values, strict=True))
    return UNKNOWN


# --- values for a policy -------------------------------------------------------------------


@dataclass(slots=True)
class Arguments:
    """The arguments of one plugin in one profile.

    Attributes:
        given: The values of the configuration, by name in snake_case; they override the defaults.
        types: Type text of those whose value is a record.
        shown: The values as the runtime's own parts read them: nested as in the manifest.
    """

    given: dict[str, Any]
    types: dict[str, str]
    shown: dict[str, Any]


def read_arguments(plugin: str, field: Field | None, declared: Mapping[str, Any]) -> Arguments:
    """The arguments of *plugin* as *field* gives them; problems go to its report.

    A field that kube-scheduler knows is held to its schema, any other to the declaration.
    """
    found = Arguments({}, {}, {})
    if field is None:
        return found
    written: dict[str, str] = {}
    members = field.object()
    schema = {snake_case(n): reader for n, reader in KUBERNETES_ARGUMENTS.get(plugin, {}).items()}
    _skip_type_meta(members, plugin)
    for name in members.names:
        if name in ("apiVersion", "kind"):
            continue
        stem = snake_case(name)
        given = members.get(name)
        reader = schema.get(stem)
        if stem not in declared:
            known = sorted(_in_case_of(name, argument) for argument in declared)
            hint = did_you_mean(name, known)
            if not hint:
                hint = f"want one of {', '.join(f'`{n}`' for n in known)}" if declared else ""
            what = "unknown argument" if declared else "unknown argument: the policy takes none"
            members[name].wrong(what, hint)
        elif written.setdefault(stem, name) != name:
            members[name].wrong(f"the argument is there already, as `{written[stem]}`")
        elif given is None:
            continue  # null: the default
        elif reader is not None:
            shown, value, type_text = reader(given)
            found.given[stem], found.shown[stem] = value, shown
            if type_text:
                found.types[stem] = type_text
        else:
            value = given.plain()
            if _has_type_of(value, declared[stem]):
                found.given[stem] = found.shown[stem] = value
            else:
                given.wrong(f"want {_word(declared[stem])}, got {given.shown()}")
    _check_together(plugin, field, {**declared, **found.shown})
    return found


def _in_case_of(given: str, argument: str) -> str:
    """The name *argument* as a configuration has it: in camelCase, unless *given* is not."""
    first, *rest = argument.split("_")
    camel = first + "".join(part.capitalize() for part in rest)
    return argument if "_" in given or snake_case(camel) != argument else camel


def runtime_arguments(plugin: str, field: Field | None) -> dict[str, Any]:
    """The arguments of a plugin without a policy file: kube-scheduler's defaults and *field*."""
    schema = KUBERNETES_ARGUMENTS.get(plugin, {})
    values = dict(RUNTIME_DEFAULTS.get(plugin, {}))
    if field is None:
        return values
    members = field.object()
    _skip_type_meta(members, plugin)
    for name, reader in schema.items():
        given = members.get(name)
        if given is not None:
            values[snake_case(name)] = reader(given)[0]
    members.finish()
    _check_together(plugin, field, values)
    return values


def _check_together(plugin: str, field: Field, values: Mapping[str, Any]) -> None:
    """Report what kube-scheduler refuses of arguments that are right one by one."""
    if plugin == "PodTopologySpread":
        if values.get("default_constraints") and values.get("defaulting_type") == "System":
            message = "defaultConstraints: without effect if defaultingType is `System`"
            field.wrong(message, "write `defaultingType: List` next to them")
    elif plugin == "DefaultPreemption":
        bounds = ("min_candidate_nodes_percentage", "min_candidate_nodes_absolute")
        if not any(values[bound] for bound in bounds):
            message = "minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0"
            field.wrong(message)


def _skip_type_meta(members: Object, plugin: str) -> None:
    version, kind = members.get("apiVersion"), members.get("kind")
    if version is not None and version.text() != API_VERSION:
        version.wrong(f"want `{API_VERSION}`, got {version.shown()}")
    if kind is not None and kind.text() != f"{plugin}Args":
        kind.wrong(f"want `{plugin}Args`, got {kind.shown()}")


def _has_type_of(value: Any, default: Any) -> bool:
    if default is None or default is UNKNOWN:
        return True
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(default)


def _word(default: Any) -> str:
    words = {bool: "true or false", int: "an int", float: "a number", str: "a string"}
    return words.get(type(default), "a list" if isinstance(default, list) else "an object")


# --- kube-scheduler's schemas ----------------------------------------------------------------

# What a reader gives: the value as the manifest has it, as the policy gets it, and the type text
# of the latter if it is a record.
Read = tuple[Any, Any, str]
Reader = Callable[[Field], Read]


def _same(value: Any) -> Read:
    return value, value, ""


def _names(field: Field, what: str) -> list[str]:
    """A list of names such as label keys and resources have."""
    items = field.items()
    names = [item.text() for item in items]
    for item, name in zip(items, names, strict=True):
        _want_name(item, name, what)
    return names


def _want_name(field: Field, name: str, what: str) -> None:
    if not is_qualified_name(name):
        field.refuse(f"want {what}")


def _ignored_resources(field: Field) -> Read:
    return _same(_names(field, "the name of a resource"))


def _ignored_groups(field: Field) -> Read:
    groups = _names(field, "what the names of resources have before their `/`")
    for item, group in zip(field.items(), groups, strict=True):
        if "/" in group:
            item.wrong("resource group name can't contain '/'")
    return _same(groups)


def _integer(low: int, high: int | None = None) -> Reader:
    return lambda field: _same(field.integer(low, high) or 0)


def _boolean(field: Field) -> Read:
    return _same(bool(field.boolean()))


def _duration(least: timedelta) -> Reader:
    def read(field: Field) -> Read:
        found = field.duration()
        if found is not None and found < least:
            field.refuse(f"want a duration of at least {least.total_seconds():.0f}s")
        return _same((found or least).total_seconds())

    return read


def _want_choice(owner: Field, name: str, found: str, values: Sequence[str], before: int) -> None:
    """Report that *found* has to be given, unless *owner* has a problem since *before*."""
    if not found and before == len(owner.report.problems):
        known = ", ".join(f"`{value}`" for value in values)
        owner.wrong(f"{name}: required value", f"want one of {known}")


_STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_CPU_AND_MEMORY: Final = ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})


def _resources(field: Field | None, most: int) -> list[dict[str, Any]]:
    resources = []
    for item in [] if field is None else field.items():
        members = item.object()
        name = members.text("name")
        if not name:
            item.wrong("name: required value")
        weight = 1
        if found := members.get("weight"):
            value = found.integer()
            # Zero counts as not given, as it does for kube-scheduler.
            weight = value or 1
            if value is not None and not 0 <= value <= most:
                found.wrong(f"resource weight of {name} not in valid range [1-{most}]")
        members.finish()
        resources.append({"name": name, "weight": weight})
    return resources or [dict(resource) for resource in _CPU_AND_MEMORY]


def _balanced(field: Field) -> Read:
    resources = _resources(field, 1)
    names = [resource["name"] for resource in resources]
    for index, item in enumerate(field.items()):
        if names[index] in names[:index]:
            item.wrong(f'name: duplicate value "{names[index]}"')
    return _same(resources)


def _shape(field: Field | None, owner: Field, most_score: int) -> list[dict[str, int]]:
    points: list[dict[str, int]] = []
    items = [] if field is None else field.items()
    if not items:
        (field or owner).wrong("at least one point must be specified")
    for item in items:
        members = item.object()
        utilization = members.integer("utilization", 0, 0, 100)
        score = members.integer("score", 0, 0, most_score)
        members.finish()
        if points and utilization <= points[-1]["utilization"]:
            item.wrong("utilization values must be sorted in increasing order")
        points.append({"utilization": utilization, "score": score})
    return points


def _strategy(field: Field) -> Read:
    before = len(field.report.problems)
    members = field.object()
    kind = members.choice("type", _STRATEGIES, "")
    strategy: dict[str, Any] = {
        "type": kind,
        "resources": _resources(members.get("resources"), 100),
    }
    ratio = members.get("requestedToCapacityRatio")
    if ratio is not None:
        inner = ratio.object()
        shape = _shape(inner.get("shape"), ratio, 10)
        inner.finish()
        strategy["requestedToCapacityRatio"] = {"shape": shape}
        if kind in ("LeastAllocated", "MostAllocated"):
            ratio.wrong(f"is for `RequestedToCapacityRatio` alone, and the type is `{kind}`")
    elif kind == "RequestedToCapacityRatio":
        field.wrong("requestedToCapacityRatio: required value for this type")
    members.finish()
    _want_choice(field, "type", kind, _STRATEGIES, before)
    return _same(strategy)


_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def _node_requirements(
    items: list[Field], problem_of: Callable[[api.NodeSelectorRequirement], str | None]
) -> None:
    for item in items:
        before = len(item.report.problems)
        members = item.object()
        if not (key := members.text("key")):
            item.wrong("key: required value")
        operator = members.choice("operator", _NODE_OPERATORS, "")
        requirement = api.NodeSelectorRequirement(key, operator, tuple(members.texts("values")))
        members.finish()
        _want_choice(item, "operator", operator, _NODE_OPERATORS, before)
        problem = problem_of(requirement)
        if problem is not None and before == len(item.report.problems):
            item.wrong(problem)


def _node_terms(field: Field) -> None:
    members = field.object()
    _node_requirements(members.items("matchExpressions"), requirement_problem)
    _node_requirements(members.items("matchFields"), field_requirement_problem)
    members.finish()


def _node_affinity(field: Field) -> Read:
    members = field.object()
    required = members.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None:
        inner = required.object()
        terms = inner.items("nodeSelectorTerms")
        if not terms:
            required.wrong("nodeSelectorTerms: must have at least one node selector term")
        for term in terms:
            _node_terms(term)
        inner.finish()
    for item in members.items("preferredDuringSchedulingIgnoredDuringExecution"):
        inner = item.object()
        inner.integer("weight", 1, 1, 100)
        preference = inner.get("preference")
        if preference is None:
            item.wrong("preference: required value")
        else:
            _node_terms(preference)
        inner.finish()
    members.finish()
    before = len(field.report.problems)
    manifest = field.plain()
    if before != len(field.report.problems) or not isinstance(manifest, dict):
        return _same(None)
    try:
        view = node_affinity_view(api.from_plain(api.NodeAffinity, manifest))
    except msgspec.ValidationError:
        return _same(None)  # reported above: a value of a wrong type
    return manifest, view, "NodeAffinity?"


_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")


def _spread_constraints(field: Field) -> Read:
    seen: set[tuple[str, str]] = set()
    for item in field.items():
        before = len(item.report.problems)
        members = item.object()
        if members.get("maxSkew") is None:
            item.wrong("maxSkew: required value")
        members.integer("maxSkew", 1, 1, MOST_INT32)
        key = members.text("topologyKey")
        if not key:
            item.wrong("topologyKey: can not be empty")
        else:
            _want_name(members["topologyKey"], key, "the key of a label")
        action = members.choice("whenUnsatisfiable", _ACTIONS, "")
        if (key, action) in seen:
            item.wrong(f"a second constraint for `{key}` with `{action}`")
        seen.add((key, action))
        if selector := members.get("labelSelector"):
            selector.wrong("constraint must not define a selector, as they deduced for each pod")
        members.integer("minDomains", 1, 1, MOST_INT32)
        members.choice("nodeAffinityPolicy", ("Honor", "Ignore"), "")
        members.choice("nodeTaintsPolicy", ("Honor", "Ignore"), "")
        members.texts("matchLabelKeys")
        members.finish()
        _want_choice(item, "whenUnsatisfiable", action, _ACTIONS, before)
    return _same(field.plain())


#: The default shape of VolumeBinding: the node with the most free storage is the best one.
EMPTIEST_FIRST: Final[Sequence[Mapping[str, int]]] = (
    {"utilization": 0, "score": 10},
    {"utilization": 100, "score": 0},
)


def _scoring_by_capacity(field: Field) -> Read:
    # An empty one counts as not given, as it does for kube-scheduler.
    return _same(_shape(field, field, 10) if field.items() else list(EMPTIEST_FIRST))


KUBERNETES_ARGUMENTS: Final[Mapping[str, Mapping[str, Reader]]] = {
    "DefaultPreemption": {
        "minCandidateNodesPercentage": _integer(0, 100),
        "minCandidateNodesAbsolute": _integer(0, MOST_INT32),
    },
    "InterPodAffinity": {
        "hardPodAffinityWeight": _integer(0, 100),
        "ignorePreferredTermsOfExistingPods": _boolean,
    },
    "NodeAffinity": {"addedAffinity": _node_affinity},
    "NodeResourcesFit": {
        "ignoredResources": _ignored_resources,
        "ignoredResourceGroups": _ignored_groups,
        "scoringStrategy": _strategy,
    },
    "NodeResourcesBalancedAllocation": {"resources": _balanced},
    "PodTopologySpread": {
        "defaultConstraints": _spread_constraints,
        # An empty one counts as not given, as it does for kube-scheduler.
        "defaultingType": lambda field: _same(field.choice(("System", "List")) or "System"),
    },
    "VolumeBinding": {"bindTimeoutSeconds": _integer(0), "shape": _scoring_by_capacity},
    "DynamicResources": {
        "filterTimeout": _duration(timedelta(0)),
        "bindingTimeout": _duration(timedelta(seconds=1)),
    },
}

# Of plugins that are parts of the runtime; those of policies are declared in their files.
RUNTIME_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "DefaultPreemption": {
        "min_candidate_nodes_percentage": 10,
        "min_candidate_nodes_absolute": 100,
    },
    "InterPodAffinity": {
        "hard_pod_affinity_weight": 1,
        "ignore_preferred_terms_of_existing_pods": False,
    },
    "PodTopologySpread": {"default_constraints": [], "defaulting_type": "System"},
    "VolumeBinding": {"bind_timeout_seconds": 600, "shape": list(EMPTIEST_FIRST)},
    "DynamicResources": {"filter_timeout": 10.0, "binding_timeout": 600.0},
}
