"""Names that a part of a file uses and does not bind itself."""

import ast
from collections.abc import Iterator

from engine.policy.syntax import children, walk


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
            inner = bound | set(_bound_in(node))
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


def _bound_in(function: ast.FunctionDef | ast.Lambda) -> Iterator[str]:
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        yield argument.arg
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            yield rest.arg
    if isinstance(function, ast.Lambda):
        return
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.DictComp):
            stack.extend(children(node))
