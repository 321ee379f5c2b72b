"""What names and calls of a policy's text mean, found from one file without evaluating it.

Owns the parameters of functions and which argument of a call meets which of them, and the names
that a part of a file uses and does not bind itself. What values come of it is `infer`'s.
"""

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.language.syntax import children, has_star, loads_of, local_names, walk


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function.

    Attributes:
        positional: Those that an argument without a name can meet, in order.
        keyword_only: Those behind a `*`.
        rest: The one that is written `*rest`, or None.
        keywords: The one that is written `**keywords`, or None.
        defaults: By name, for those that need no argument.
    """

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    rest: str | None
    keywords: str | None
    defaults: Mapping[str, ast.expr]

    @property
    def named(self) -> tuple[str, ...]:
        """Those that an argument can meet by name."""
        return self.positional + self.keyword_only

    @property
    def required(self) -> list[str]:
        """Those without a default, in order."""
        return [name for name in self.named if name not in self.defaults]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call, as one function's parameters take them.

    Attributes:
        given: By parameter; one that is given twice has the last one.
        surplus: Arguments without a name that no parameter takes, in order.
        unknown: Arguments by name that no parameter takes, in order.
        repeated: The parameters that are given by place and by name.
        missing: The required parameters without an argument; none if the call `is_open`.
        is_open: True if `*x` or `**x` may give any of the parameters.
    """

    given: Mapping[str, ast.expr]
    surplus: tuple[ast.expr, ...]
    unknown: tuple[ast.keyword, ...]
    repeated: tuple[str, ...]
    missing: tuple[str, ...]
    is_open: bool


@functools.lru_cache(maxsize=8192)
def parameters_of(node: ast.arguments) -> Parameters:
    """The parameters that *node* declares."""
    positional = tuple(a.arg for a in [*node.posonlyargs, *node.args])
    defaults = dict(zip(reversed(positional), reversed(node.defaults), strict=False))
    for parameter, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
        if default is not None:
            defaults[parameter.arg] = default
    return Parameters(
        positional,
        tuple(a.arg for a in node.kwonlyargs),
        node.vararg.arg if node.vararg is not None else None,
        node.kwarg.arg if node.kwarg is not None else None,
        defaults,
    )


def is_open(call: ast.Call) -> bool:
    """True if *call* passes on a list or dict of arguments, `*x` or `**x`."""
    return has_star(call.args) or any(keyword.arg is None for keyword in call.keywords)


def bound_to(parameters: Parameters, call: ast.Call) -> Arguments:
    """Which parameter each argument of *call* meets."""
    has_many = has_star(call.args)
    by_place = [] if has_many else call.args
    given = dict(zip(parameters.positional, by_place, strict=False))
    repeated: list[str] = []
    unknown: list[ast.keyword] = []
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        if keyword.arg in parameters.named:
            if keyword.arg in given:
                repeated.append(keyword.arg)
            given[keyword.arg] = keyword.value
        else:
            unknown.append(keyword)
    passes_on = is_open(call)
    missing = () if passes_on else tuple(n for n in parameters.required if n not in given)
    surplus = tuple(by_place[len(parameters.positional) :])
    return Arguments(given, surplus, tuple(unknown), tuple(repeated), missing, passes_on)


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The names that the top level of a file defines, each with its place: loads come first."""
    for load in loads_of(tree):
        yield load.local, load.node
    yield from own_definitions(tree)


def own_definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The same without loads: what others can load, if it is not private."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            yield statement.name, statement
            continue
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        # (A comprehension in the value has names of its own.)
        for part in (part for target in targets for part in walk(target)):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id, part


def functions_of(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The functions of the top level that nothing else there has the name of."""
    found: dict[str, ast.FunctionDef] = {}
    assigned: set[str] = set()
    for name, node in own_definitions(tree):
        if isinstance(node, ast.FunctionDef):
            found[name] = node
        else:
            assigned.add(name)
    return {name: node for name, node in found.items() if name not in assigned}


def free_names(root: ast.AST) -> Iterator[tuple[str, ast.Name]]:
    """Names that are used under *root* and not bound by a function or comprehension there."""
    stack: list[tuple[ast.AST, frozenset[str]]] = [(root, frozenset())]
    while stack:
        node, bound = stack.pop()
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load) and node.id not in bound:
                yield node.id, node
            continue
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            # Defaults and annotations belong to the outside.
            outside: list[ast.AST] = [*node.args.defaults]
            outside += [default for default in node.args.kw_defaults if default is not None]
            outside += annotations_of(node)
            stack.extend((part, bound) for part in outside)
            body: list[ast.AST] = [*node.body] if isinstance(node, ast.FunctionDef) else [node.body]
            inner = bound | set(local_names(node))
            stack.extend((part, inner) for part in body)
            continue
        if isinstance(node, ast.ListComp | ast.DictComp):
            inner = bound | {
                part.id
                for generator in node.generators
                for part in walk(generator.target)
                if isinstance(part, ast.Name)
            }
            stack.append((node.generators[0].iter, bound))
            for index, generator in enumerate(node.generators):
                if index:
                    stack.append((generator.iter, inner))
                stack.extend((condition, inner) for condition in generator.ifs)
            results = [node.elt] if isinstance(node, ast.ListComp) else [node.key, node.value]
            stack.extend((result, inner) for result in results)
            continue
        stack.extend((child, bound) for child in children(node))


def annotations_of(node: ast.FunctionDef | ast.Lambda) -> list[ast.AST]:
    """The types that *node* is written with."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [rest for rest in (arguments.vararg, arguments.kwarg) if rest is not None]
    found: list[ast.AST] = [a.annotation for a in every if a.annotation is not None]
    if isinstance(node, ast.FunctionDef) and node.returns is not None:
        found.append(node.returns)
    return found
