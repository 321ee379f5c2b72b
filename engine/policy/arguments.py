"""Plugin arguments: kube-scheduler's by its own schemas, a policy's by what its file declares.

A file declares arguments once, at top level: `args = plugin_args(threshold = 90)`. In a
configuration they may be written `threshold_percent` or `thresholdPercent`; nested values are
given as they are written. Owns declarations, schemas and the checking of values; which policy
gets which values is `profiles`.
"""

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import msgspec

from engine.core.model import objects as api
from engine.core.model.quantity import INT32_MAX
from engine.core.model.resources import is_qualified_name
from engine.core.model.selectors import field_requirement_problem, requirement_problem
from engine.language.syntax import parse, walk
from engine.policy.config import API_VERSION
from engine.policy.documents import (
    Entry,
    Field,
    Object,
    Reader,
    Table,
    camel_case,
    checked,
    choice,
    did_you_mean,
    integer,
    listed,
    record,
)
from engine.policy.rollout_config import REQUIREMENT
from engine.policy.shipped import snake_case
from engine.policy.term_views import node_affinity_view

# A declared default that is not a literal: its type is only known when the file runs.
UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a file declares by `plugin_args(...)` or the like: defaults by name, and where."""

    defaults: Mapping[str, Any]
    line: int = 0
    column: int = 0


#: The builtins that declare something at top level: arguments, and what queues have.
ARGUMENTS: Final = "plugin_args"
ATTRIBUTES: Final = "queue_attributes"


def declarations_in(tree: ast.Module, declares: str = ARGUMENTS) -> list[ast.Call]:
    """Every call of *declares* in a file, in order."""
    calls = [
        node
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == declares
    ]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def assigned_declarations(tree: ast.Module) -> dict[str, ast.Call]:
    """The call that declares the arguments of a file, by what it is assigned to."""
    calls = {id(call): call for call in declarations_in(tree)}
    return {
        target.id: calls[id(statement.value)]
        for statement in tree.body
        if isinstance(statement, ast.Assign) and id(statement.value) in calls
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def declaration(text: str, declares: str = ARGUMENTS) -> Declaration:
    """What the file *text* declares by *declares*; nothing if it does not call it."""
    tree = parse(text) if declares in text else None
    calls = [] if tree is None else declarations_in(tree, declares)
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


def with_arguments(text: str, values: Mapping[str, Any]) -> str:
    """*text* with those of *values* that are strings in place of `args.name`: to be read, not run.

    As it is if what the arguments are assigned to may be something else somewhere in it.
    """
    tree = parse(text) if ARGUMENTS in text else None
    if tree is None:
        return text
    named = [*assigned_declarations(tree)]
    strings = {name: value for name, value in values.items() if isinstance(value, str)}
    if not strings or len(named) != 1:
        return text
    if sum(_binds(node, named[0]) for node in walk(tree)) != 1:
        return text
    return ast.unparse(_Written(named[0], strings).visit(copy.deepcopy(tree)))


def _binds(node: ast.AST, name: str) -> bool:
    """True if *node* may give *name* a meaning."""
    if isinstance(node, ast.Name):
        return node.id == name and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "load":
        loaded = [one.value for one in node.args if isinstance(one, ast.Constant)]
        return name in loaded or name in [one.arg for one in node.keywords]
    return isinstance(node, ast.arg) and node.arg == name


class _Written(ast.NodeTransformer):
    """Puts values in place of the fields of what has *name*."""

    def __init__(self, name: str, values: Mapping[str, str]) -> None:
        self._name, self._values = name, values

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        is_argument = isinstance(node.value, ast.Name) and node.value.id == self._name
        value = self._values.get(node.attr) if is_argument else None
        return node if value is None else ast.Constant(value)


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
            found.given[stem] = found.shown[stem] = value = reader(given)
            if stem in _VIEWS and value is not None:
                found.types[stem], view = _VIEWS[stem]
                found.given[stem] = view(value)
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
    camel = camel_case(argument)
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
            values[snake_case(name)] = reader(given)
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

_STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_CPU_AND_MEMORY: Final = ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})


def _want_name(found: Field, name: str, what: str) -> None:
    if not is_qualified_name(name):
        found.refuse(f"want {what}")


def _names(what: str) -> Callable[[Field], list[str]]:
    """Reads a list of names such as label keys and resources have."""

    def read(found: Field) -> list[str]:
        names = [(item, item.text()) for item in found.items()]
        for item, name in names:
            _want_name(item, name, what)
        return [name for _, name in names]

    return read


def _ignored_groups(found: Field) -> list[str]:
    groups = _names("what the names of resources have before their `/`")(found)
    for item, group in zip(found.items(), groups, strict=True):
        if "/" in group:
            item.wrong("resource group name can't contain '/'")
    return groups


def _or(read: Reader, default: Any) -> Reader:
    """Reads with *read*; the default takes the place of what is empty or wrong."""
    return lambda found: read(found) or default


def _duration(least: timedelta) -> Reader:
    want = f"want a duration of at least {least.total_seconds():.0f}s"
    read = checked(Field.duration, lambda time: time >= least, want=want)
    return lambda found: (read(found) or least).total_seconds()


def _want_choice(owner: Field, name: str, found: str, values: Sequence[str], before: int) -> None:
    """Report that *found* has to be given, unless *owner* has a problem since *before*."""
    if not found and before == len(owner.report.problems):
        known = ", ".join(f"`{value}`" for value in values)
        owner.wrong(f"{name}: required value", f"want one of {known}")


_RESOURCE: Final[Table] = {"name": Entry(Field.text), "weight": Entry(integer())}


def _resources(most: int, *, are_unique: bool = False) -> Callable[[Field], list[dict[str, Any]]]:
    """Reads resources with weights up to *most*."""

    def read(found: Field) -> list[dict[str, Any]]:
        resources: list[dict[str, Any]] = []
        for item in found.items():
            members = item.object()
            values = members.values(_RESOURCE)
            name, weight = values.get("name", ""), values.get("weight")
            if not name:
                item.wrong("name: required value")
            if weight is not None and not 0 <= weight <= most:
                message = f"resource weight of {name} not in valid range [1-{most}]"
                members["weight"].wrong(message)
            if are_unique and any(name == one["name"] for one in resources):
                item.wrong(f'name: duplicate value "{name}"')
            # Zero counts as not given, as it does for kube-scheduler.
            resources.append({"name": name, "weight": weight or 1})
        return resources or [dict(resource) for resource in _CPU_AND_MEMORY]

    return read


_POINT: Final[Table] = {"utilization": Entry(integer(0, 100)), "score": Entry(integer(0, 10))}


def _shape(found: Field) -> list[dict[str, int]]:
    points: list[dict[str, int]] = []
    for item in found.items():
        points.append({"utilization": 0, "score": 0, **item.object().values(_POINT)})
        if len(points) > 1 and points[-1]["utilization"] <= points[-2]["utilization"]:
            item.wrong("utilization values must be sorted in increasing order")
    if not points:
        found.wrong("at least one point must be specified")
    return points


def _check_ratio(made: Mapping[str, Any], members: Object) -> None:
    if members.get("shape") is None:
        members.owner.wrong("at least one point must be specified")


_STRATEGY: Final[Table] = {
    "type": Entry(choice(*_STRATEGIES)),
    "resources": Entry(_resources(100)),
    "requestedToCapacityRatio": Entry(record(dict, {"shape": Entry(_shape)}, _check_ratio)),
}


def _strategy(found: Field) -> dict[str, Any]:
    before = len(found.report.problems)
    members = found.object()
    values = members.values(_STRATEGY)
    kind, ratio = values.setdefault("type", ""), members.get("requestedToCapacityRatio")
    if ratio is not None and kind in ("LeastAllocated", "MostAllocated"):
        ratio.wrong(f"is for `RequestedToCapacityRatio` alone, and the type is `{kind}`")
    elif ratio is None and kind == "RequestedToCapacityRatio":
        found.wrong("requestedToCapacityRatio: required value for this type")
    _want_choice(found, "type", kind, _STRATEGIES, before)
    values.setdefault("resources", [dict(resource) for resource in _CPU_AND_MEMORY])
    return {name: values[name] for name in _STRATEGY if name in values}


_NODE_REQUIREMENT: Final[Table] = {**REQUIREMENT, "operator": Entry(choice(*_NODE_OPERATORS))}


def _requirements(problem_of: Callable[[api.NodeSelectorRequirement], str | None]) -> Reader:
    def read(found: Field) -> bool:
        before = len(found.report.problems)
        values = found.object().values(_NODE_REQUIREMENT)
        if not values.get("key"):
            found.wrong("key: required value")
        _want_choice(found, "operator", values.get("operator", ""), _NODE_OPERATORS, before)
        problem = problem_of(api.NodeSelectorRequirement(**values))
        if problem is not None and before == len(found.report.problems):
            found.wrong(problem)
        return True

    return listed(read)


def _check_required(made: Mapping[str, Any], members: Object) -> None:
    if not made.get("nodeSelectorTerms"):
        members.owner.wrong("nodeSelectorTerms: must have at least one node selector term")


def _check_preferred(made: Mapping[str, Any], members: Object) -> None:
    if members.get("preference") is None:
        members.owner.wrong("preference: required value")


_NODE_TERM: Final[Reader] = record(
    dict,
    {
        "matchExpressions": Entry(_requirements(requirement_problem)),
        "matchFields": Entry(_requirements(field_requirement_problem)),
    },
)
_REQUIRED: Final[Table] = {"nodeSelectorTerms": Entry(listed(_NODE_TERM))}
_PREFERRED: Final[Table] = {"weight": Entry(integer(1, 100)), "preference": Entry(_NODE_TERM)}
_NODE_AFFINITY: Final[Table] = {
    "requiredDuringSchedulingIgnoredDuringExecution": Entry(
        record(dict, _REQUIRED, _check_required)
    ),
    "preferredDuringSchedulingIgnoredDuringExecution": Entry(
        listed(record(dict, _PREFERRED, _check_preferred))
    ),
}


def _node_affinity(found: Field) -> Any:
    found.object().values(_NODE_AFFINITY)
    before = len(found.report.problems)
    manifest = found.plain()
    if before != len(found.report.problems) or not isinstance(manifest, dict):
        return None
    try:
        api.from_plain(api.NodeAffinity, manifest)
    except msgspec.ValidationError:
        return None  # reported above: a value of a wrong type
    return manifest


def _node_affinity_view(manifest: Any) -> Any:
    return node_affinity_view(api.from_plain(api.NodeAffinity, manifest))


#: Arguments that a policy gets as a record: its type, and how it is made of the manifest.
_VIEWS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "added_affinity": ("NodeAffinity?", _node_affinity_view)
}
_CONSTRAINT: Final[Table] = {
    "maxSkew": Entry(integer(1, INT32_MAX)),
    "topologyKey": Entry(Field.text),
    "whenUnsatisfiable": Entry(choice(*_ACTIONS)),
    "labelSelector": Entry(lambda found: found),
    "minDomains": Entry(integer(1, INT32_MAX)),
    "nodeAffinityPolicy": Entry(choice("Honor", "Ignore")),
    "nodeTaintsPolicy": Entry(choice("Honor", "Ignore")),
    "matchLabelKeys": Entry(listed(Field.text)),
}


def _spread_constraints(found: Field) -> Any:
    seen: set[tuple[str, str]] = set()
    for item in found.items():
        before = len(item.report.problems)
        members = item.object()
        values = members.values(_CONSTRAINT)
        key, action = values.get("topologyKey", ""), values.get("whenUnsatisfiable", "")
        if members.get("maxSkew") is None:
            item.wrong("maxSkew: required value")
        if not key:
            item.wrong("topologyKey: can not be empty")
        else:
            _want_name(members["topologyKey"], key, "the key of a label")
        if (key, action) in seen:
            item.wrong(f"a second constraint for `{key}` with `{action}`")
        seen.add((key, action))
        if "labelSelector" in values:
            message = "constraint must not define a selector, as they deduced for each pod"
            members["labelSelector"].wrong(message)
        _want_choice(item, "whenUnsatisfiable", action, _ACTIONS, before)
    return found.plain()


#: The default shape of VolumeBinding: the node with the most free storage is the best one.
EMPTIEST_FIRST: Final[Sequence[Mapping[str, int]]] = (
    {"utilization": 0, "score": 10},
    {"utilization": 100, "score": 0},
)

# By the name that a configuration uses. What is empty counts as not given for kube-scheduler where
# a default follows `or`.
KUBERNETES_ARGUMENTS: Final[Mapping[str, Mapping[str, Reader]]] = {
    "DefaultPreemption": {
        "minCandidateNodesPercentage": _or(integer(0, 100), 0),
        "minCandidateNodesAbsolute": _or(integer(0, INT32_MAX), 0),
    },
    "InterPodAffinity": {
        "hardPodAffinityWeight": _or(integer(0, 100), 0),
        "ignorePreferredTermsOfExistingPods": _or(Field.boolean, False),
    },
    "NodeAffinity": {"addedAffinity": _node_affinity},
    "NodeResourcesFit": {
        "ignoredResources": _names("the name of a resource"),
        "ignoredResourceGroups": _ignored_groups,
        "scoringStrategy": _strategy,
    },
    "NodeResourcesBalancedAllocation": {"resources": _resources(1, are_unique=True)},
    "PodTopologySpread": {
        "defaultConstraints": _spread_constraints,
        "defaultingType": _or(choice("System", "List"), "System"),
    },
    "VolumeBinding": {
        "bindTimeoutSeconds": _or(integer(0), 0),
        "shape": lambda found: _shape(found) if found.items() else list(EMPTIEST_FIRST),
    },
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
    "VolumeBinding": {"bind_timeout_seconds": 600, "shape": list(EMPTIEST_FIRST)},
    "DynamicResources": {"filter_timeout": 10.0, "binding_timeout": 600.0},
}
