"""The mutants of a source text: one small change of one function each. Pure."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final, TypeAlias

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
#: What these functions return is read by people and by tests alone.
_FOR_PEOPLE: Final = frozenset({"__repr__", "__str__", "check_invariants"})
#: Calls of these objects write logs.
_LOGS: Final = frozenset({"log", "_log", "logger", "_logger"})


@dataclass(frozen=True)
class Mutant:
    """One change of one function.

    Attributes:
        path: The file, from the root of the checkout.
        line: Where the change is.
        function: Qualified name of the outermost function, such as `Queue.add`.
        before: What the text says there.
        after: What the mutant has in its place; empty if it has nothing.
        node: Position of the changed node in `ast.walk`.
        field: The list of statements that loses one, and its position; None if the node changes.
    """

    path: str
    line: int
    function: str
    before: str
    after: str
    node: int
    field: tuple[str, int] | None = None

    @property
    def key(self) -> str:
        """The same for this change wherever the line is: names it in `explained.toml`."""
        return f"{self.path}:{self.function}: {self.before} -> {self.after or 'nothing'}"


def mutants_of(source: str, path: str) -> list[Mutant]:
    """Each mutant of the functions in *source*, in the order of `ast.walk`."""
    tree = ast.parse(source)
    position = {id(node): index for index, node in enumerate(ast.walk(tree))}
    return [
        Mutant(path, line, name, before, after, position[id(node)], field)
        for name, function in _functions(tree, "")
        for part in function.body
        for node, line, before, after, field in _changes(function, part)
    ]


def mutated(source: str, mutant: Mutant) -> CodeType:
    """The code of the module with the change made."""
    tree = ast.parse(source)
    node = list(ast.walk(tree))[mutant.node]
    if mutant.field is None:
        _change(node)
    else:
        name, index = mutant.field
        statements = getattr(node, name)
        statements[index] = ast.copy_location(ast.Pass(), statements[index])
    return compile(ast.fix_missing_locations(tree), mutant.path, "exec")


def code_of(module: CodeType, function: str) -> CodeType | None:
    """The code of *function* in that of its module; None if there are two of that name."""
    found = [code for code in _codes(module) if code.co_qualname == function]
    return found[0] if len(found) == 1 else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _functions(
    scope: ast.Module | ast.ClassDef, prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name not in _FOR_PEOPLE
        ):
            yield prefix + node.name, node


_Change: TypeAlias = tuple[ast.AST, int, str, str, tuple[str, int] | None]


def _changes(parent: ast.AST, node: ast.AST) -> Iterator[_Change]:
    """What can be changed in *node*, a child of *parent*."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or _is_log(node):
        return
    if isinstance(node, ast.stmt):
        yield from _losses(parent, node)
    if (before := _text(node)) is not None and (changed := _changed_text(node)) is not None:
        yield node, node.lineno, before, changed, None  # type: ignore[attr-defined]  # an expr
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return  # the number in it, one larger, would be one that is smaller
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(
            node, ast.Call
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changes(node, child)


def _losses(parent: ast.AST, node: ast.stmt) -> Iterator[_Change]:
    """*node* itself, if its effect is on something outside the function."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
            pass
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            pass
        case _:
            return
    for field, value in ast.iter_fields(parent):
        if isinstance(value, list) and node in value:
            yield parent, node.lineno, ast.unparse(node), "", (field, value.index(node))


def _is_log(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in _LOGS
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name)))):
            return name in _LOGS
        case _:
            return False


def _text(node: ast.AST) -> str | None:
    return ast.unparse(node) if isinstance(node, ast.expr) else None


def _changed_text(node: ast.AST) -> str | None:
    copied = copy.deepcopy(node)
    return ast.unparse(copied) if _change(copied) else None


def _change(node: ast.AST) -> bool:
    """Change *node* in place. False if there is nothing to change in it."""
    match node:
        case ast.Compare(ops=[operator, *_]):
            node.ops[0] = _COMPARED[type(operator)]()
        case ast.BoolOp(op=operator):
            node.op = ast.And() if isinstance(operator, ast.Or) else ast.Or()
        case ast.BinOp(op=operator) if type(operator) in _COMPUTED:
            node.op = _COMPUTED[type(operator)]()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            # Twice negated is the truth of it.
            node.operand = ast.UnaryOp(ast.Not(), operand)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number) as operand):
            operand.value = number - 1
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() as number):
            node.value = number + 1
        case ast.IfExp(body=body, orelse=other):
            node.body, node.orelse = other, body
        case _:
            return False
    return True
