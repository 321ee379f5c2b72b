"""The tree of queues of a bundle: which policy governs it, and the queues that are written out.

Owns the resolved form: the queues of the document with the attributes that the policy declares
(`queue_attributes(...)`), and what each of its hooks is given of a queue. Which queues objects and
namespaces add is known only in a cluster, see `core.kernel.queue_trees`.
"""

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from engine.core.model.quantity import QuantityError, resource_amount
from engine.core.sharing.amounts import LARGEST
from engine.core.sharing.tree import GivenQueue, build_tree
from engine.language import tree_hooks
from engine.language.syntax import children, parse, walk, with_loaded
from engine.language.tree_hooks import USAGE
from engine.policy.arguments import UNKNOWN, read_arguments
from engine.policy.documents import did_you_mean
from engine.policy.evaluator import Files, Instance
from engine.policy.profiles import PolicyFile
from engine.policy.queue_tree_config import (
    COUNT,
    HOLD,
    NamespaceSource,
    ObjectSource,
    QueueTreeConfig,
    ReclaimLimits,
    UsageRule,
)

# What reads fields whose names are values.
_BY_NAME: Final = {"getattr", "hasattr"}

#: The one attribute that may be below 0, as it may everywhere in Kubernetes.
_MAY_BE_NEGATIVE: Final = "priority"


@dataclass(frozen=True, slots=True)
class QueueTreePolicy:
    """A QueueTree with its policy.

    Attributes:
        policy: The name of the policy, and its instance in the bundle's program.
        instance: See `policy`.
        hooks: The parameters of each of its hooks, by name.
        attributes: The attributes that a queue may have, with what they are where none is given.
        mentioned: By hook, the names of fields that its text, and what it calls, reads of anything,
            but for what an argument turns off: `queue.usage` in `... if args.past else 0`.
        given: The queues that are written out.
        objects, namespaces, unknown, guarantees: As in the document.
        refresh: Seconds between two computations of shares, at least.
        limits: The runtime's own, of evictions.
        usage: How what queues used in the past is kept; None: it is not.
    """

    policy: str
    instance: int
    hooks: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    mentioned: Mapping[str, frozenset[str]] = field(default_factory=dict)
    given: tuple[GivenQueue, ...] = ()
    objects: tuple[ObjectSource, ...] = ()
    namespaces: NamespaceSource | None = None
    unknown: str = HOLD
    guarantees: str = ""
    refresh: float = 0.1
    limits: ReclaimLimits = field(default_factory=ReclaimLimits)
    usage: UsageRule | None = None

    def mentions(self, name: str) -> bool:
        """True if any hook may read a field *name* of anything."""
        return any(name in names for names in self.mentioned.values())

    def with_defaults(
        self, given: Mapping[str, Any], *, is_written: bool = True
    ) -> tuple[dict[str, Any], list[str]]:
        """The attributes that a queue has of those *given* as plain data, and what is wrong.

        An attribute that is wrong is as if it were not given. Unless people have written it down,
        where `cpu: 2` is two cores, an int is an amount in the language's units, as hooks give it.
        """
        found, problems = dict(self.attributes), []
        for name, value in given.items():
            if name not in self.attributes:
                hint = did_you_mean(name, self.attributes) or _known(self.attributes)
                problems.append(f"has no attribute `{name}`: {hint}")
                continue
            try:
                found[name] = _checked(name, value, self.attributes[name], is_written)
            except ValueError as error:
                problems.append(f"{name}: {error}")
        return found, problems


def policy_alone(
    policy: PolicyFile, attributes: Mapping[str, Any], files: Files, given: Mapping[str, Any]
) -> QueueTreePolicy:
    """The policy as the first instance of a program, for a tree without queues of its own.

    *given* are its arguments. It sees that no queue used anything in the past.
    """
    hooks = _hooks(policy)
    return QueueTreePolicy(
        policy.name,
        0,
        hooks,
        attributes,
        _mentioned(files, policy.module, hooks, {**policy.defaults, **given}),
        usage=UsageRule(timedelta(hours=1)),
    )


def _hooks(policy: PolicyFile) -> dict[str, tuple[str, ...]]:
    return {h.name: policy.parameters[h.name] for h in tree_hooks.ENTRIES if h.name in policy.hooks}


def resolve_queue_tree(
    config: QueueTreeConfig,
    policies: Mapping[str, PolicyFile],
    declared: Callable[[str], Mapping[str, Any]],
    files: Files,
    instances: list[Instance],
) -> QueueTreePolicy | None:
    """The tree of *config* with its policy; None after a report. *instances* get the policy's.

    *declared* gives the attributes that a policy's file declares, by its name.
    """
    place = config.place.object().place("policy")
    policy = policies.get(config.policy)
    if policy is None:
        if config.policy:
            hint = did_you_mean(config.policy, policies)
            place.wrong(f"policy: no policy `{config.policy}`", hint)
        return None
    hooks = _hooks(policy)
    if not hooks:
        wanted = ", ".join(f"`{hook.name}`" for hook in tree_hooks.ENTRIES)
        place.wrong(f"policy: `{config.policy}` governs no queues: it has none of {wanted}")
        return None
    if config.objects and "queues" not in hooks:
        place.wrong(f"policy: `{config.policy}` has no hook `queues` to read `objects` with")
    if "queue_of" not in hooks and config.namespaces is None:
        place.wrong(
            f"policy: `{config.policy}` has no hook `queue_of` to say in which queue a pod is",
            "or let the labels of namespaces say it: `namespaces: {label: ...}`",
        )
    attributes = declared(config.policy)
    if config.guarantees and not isinstance(attributes.get(config.guarantees), dict):
        amounts = [name for name, default in attributes.items() if isinstance(default, dict)]
        config.place.object().place("guarantees").wrong(
            f"guarantees: `{config.policy}` reads no attribute `{config.guarantees}` of amounts",
            did_you_mean(config.guarantees, amounts) or _known(amounts),
        )
    arguments = read_arguments(config.policy, config.args, policy.defaults)
    given = {**policy.defaults, **arguments.given}
    mentioned = _mentioned(files, policy.module, hooks, given)
    is_read = any(USAGE in names for names in mentioned.values())
    at = _read_at(files, policy.module, USAGE, given) if is_read else ""
    if at and config.usage is None:
        place.wrong(
            f"policy: `{config.policy}` reads `{USAGE}` of queues ({at}), which is not kept",
            "have it kept: `usage: {halfLife: 1h}`",
        )
    made = Instance(policy.name, policy.module, arguments.given, arguments.types)
    if made not in instances:
        instances.append(made)
    return QueueTreePolicy(
        policy=policy.name,
        instance=instances.index(made),
        hooks=hooks,
        attributes=attributes,
        mentioned=mentioned,
        given=_given(config, attributes),
        objects=config.objects,
        namespaces=config.namespaces,
        unknown=config.unknown,
        guarantees=config.guarantees,
        refresh=config.shares.refresh.total_seconds(),
        limits=config.limits,
        usage=config.usage,
    )


def _given(config: QueueTreeConfig, attributes: Mapping[str, Any]) -> tuple[GivenQueue, ...]:
    """The queues that are written out; what keeps one out of the tree is reported at its line."""
    found, places = [], {}
    for path, place in config.queues:
        places[path] = place
        members = place.object()
        values = dict(attributes)
        for name in members.names:
            given = members[name]
            if name not in attributes:
                hint = did_you_mean(name, attributes) or _known(attributes)
                given.wrong(f"`{config.policy}` reads no attribute `{name}`", hint)
            elif not given.is_null:
                plain = given.plain()
                try:
                    values[name] = _checked(name, plain, attributes[name])
                except ValueError as error:
                    given.wrong(str(error))
        source = f"{place.report.file}:{place.node.start_mark.line + 1}"
        found.append(GivenQueue(path, "", values, source, is_path=True))
    tree = build_tree(found)
    for problem in tree.problems:
        places[problem.queue].wrong(problem.message)
    if config.unknown not in (HOLD, COUNT, *tree.queues) and not (
        config.objects or config.namespaces
    ):
        hint = did_you_mean(config.unknown, (HOLD, COUNT, *filter(None, tree.queues)))
        want = f"unknown: want `{HOLD}`, `{COUNT}` or the path of a queue, got `{config.unknown}`"
        config.place.object().place("unknown").wrong(want, hint)
    return tuple(found)


def _known(attributes: Iterable[str]) -> str:
    listed_ = ", ".join(f"`{name}`" for name in attributes)
    return f"want one of {listed_}" if listed_ else "its policy declares none"


def _checked(name: str, value: Any, default: Any, is_written: bool = True) -> Any:
    """*value* as the attribute *name* with this *default* has it. Raises ValueError."""
    if default is UNKNOWN:
        return value
    if isinstance(default, dict) or (default is None and isinstance(value, dict)):
        return _amounts(value, is_written)
    if isinstance(default, bool):
        return _of_type(value, bool, "true or false")
    if isinstance(default, int):
        number = _of_type(value, int, "an int")
        if number < 0 and name != _MAY_BE_NEGATIVE:
            raise ValueError(f"want an int of at least 0, got {number}")
        if abs(number) > LARGEST:
            raise ValueError("want an int of at most 2**62")
        return number
    if isinstance(default, str):
        return _of_type(value, str, "a string")
    if isinstance(default, list):
        return _of_type(value, list, "a list")
    return value


def _of_type(value: Any, kind: type, want: str) -> Any:
    if type(value) is not kind:
        raise ValueError(f"want {want}, got {value!r}")
    return value


def _amounts(value: Any, is_written: bool) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError(f"want amounts by resource, got {value!r}")
    found: dict[str, int] = {}
    for resource, given in value.items():
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise ValueError(f"{resource}: want a quantity, got {given!r}")
        try:
            is_amount = isinstance(given, int) and not is_written
            amount = int(given) if is_amount else resource_amount(resource, given)
        except QuantityError as error:
            raise ValueError(f"{resource}: {error}") from None
        if not 0 <= amount <= LARGEST:
            raise ValueError(f"{resource}: want an amount of at least 0 and at most 2**62")
        found[resource] = amount
    return found


def _mentioned(
    files: Files, module: str, hooks: Collection[str], arguments: Mapping[str, Any]
) -> dict[str, frozenset[str]]:
    """By hook, every name that its text, and what that uses of *module* and its loads, may read.

    A name that stands for several things in these files stands for all of them. What one of the
    *arguments* turns off is not read.
    """
    read: list[set[str]] = []
    texts: list[set[str]] = []  # which `getattr` may read: `getattr(queue, "share")`
    used: list[set[str]] = []
    meaning: dict[str, list[int]] = {}  # the statements that give a name its meaning
    for file in with_loaded(files, [module]):
        tree = parse(files[file])
        for statement in tree.body if tree is not None else ():
            for name in _bound(statement):
                meaning.setdefault(name, []).append(len(read))
            read.append(set())
            texts.append(set())
            used.append(set())
            for node in _live(statement, arguments if file == module else {}):
                if isinstance(node, ast.Attribute):
                    read[-1].add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts[-1].add(node.value)
                    used[-1].add(node.value)  # `load("@std/amounts.star", more = "plus")`
                elif isinstance(node, ast.Name):
                    used[-1].add(node.id)
    found = {}
    for hook in hooks:
        reached, statements, open_names = {hook}, set[int](), [hook]
        while open_names:
            for number in meaning.get(open_names.pop(), ()):
                if number not in statements:
                    statements.add(number)
                    open_names += used[number] - reached
                    reached |= used[number]
        kept = [read, texts] if reached & _BY_NAME else [read]
        found[hook] = frozenset().union(*(names[n] for names in kept for n in statements))
    return found


def _bound(statement: ast.stmt) -> set[str]:
    """The names of a file that *statement* gives a meaning, or may change what they stand for."""
    if isinstance(statement, ast.FunctionDef):
        return {statement.name}
    found = set()
    for part in statement.targets if isinstance(statement, ast.Assign) else [statement]:
        for node in walk(part):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.keyword) and node.arg is not None:
                found.add(node.arg)
    return found


def _read_at(files: Files, module: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Where *module*, or what it loads, first reads a field *name*; "" if only a string has it."""
    for file in with_loaded(files, [module]):
        tree = parse(files[file])
        for node in _live(tree, arguments if file == module else {}) if tree is not None else ():
            if isinstance(node, ast.Attribute) and node.attr == name:
                return f"{file}:{node.lineno}"
    return ""


def _live(node: ast.AST, arguments: Mapping[str, Any]) -> Iterator[ast.AST]:
    """The nodes below *node*, in order, but for those that an argument which is off leaves out."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(list(_below(node, arguments)))


def _below(node: ast.AST, arguments: Mapping[str, Any]) -> Iterable[ast.AST]:
    """What is right below *node*, in order, without what an argument that is off leaves out."""
    if isinstance(node, ast.If) and _is_off(node.test, arguments):
        return [node.test, *node.orelse]
    if isinstance(node, ast.IfExp) and _is_off(node.test, arguments):
        return [node.test, node.orelse]
    if isinstance(node, ast.BoolOp) and _is_off(node, arguments):
        off = [_is_off(one, arguments) for one in node.values]
        return node.values[: off.index(True) + 1]
    return children(node)


def _is_off(test: ast.expr, arguments: Mapping[str, Any]) -> bool:
    """True if *test* is `args.name`, or has it among what must all hold, and that is none."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_is_off(one, arguments) for one in test.values)
    if not isinstance(test, ast.Attribute) or not isinstance(test.value, ast.Name):
        return False
    return test.value.id == "args" and not arguments.get(test.attr, True)
