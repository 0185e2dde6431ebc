"""Single-line mutants of a Python source: one operator, constant, name, argument, branch or statement is changed."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple


class Mutant(NamedTuple):
    """A changed source."""

    line: int
    last_line: int
    change: str  # "before -> after"
    source: str

    @property
    def lines(self) -> range:
        """The lines of what is changed."""
        return range(self.line, self.last_line + 1)


OPERATORS = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,), ast.Pow: (ast.Mult,), ast.MatMult: (ast.Mult,), ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,),
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.And: (ast.Or,), ast.Or: (ast.And,),
}  # fmt: skip
PAIRS = (
    ("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("nanmin", "nanmax"), ("any", "all"),
    ("before", "after"), ("lower", "upper"), ("low", "high"), ("first", "last"), ("phi", "xi"), ("zeros", "ones"),
    ("startswith", "endswith"), ("floor", "ceil"),
)  # fmt: skip
OTHER_NAME = dict(PAIRS) | {b: a for a, b in PAIRS}
SKIPPED = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Raise, ast.Global, ast.Nonlocal)  # messages are not behaviour
FIELDS_SKIPPED = {"annotation", "returns", "decorator_list", "bases", "type_params"}


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a source that are valid Python."""
    content = source.encode()
    starts = [0]
    for text in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    for node in _nodes(ast.parse(source)):
        for new in _changes(node):
            if isinstance(new, ast.expr):
                ast.copy_location(new, node)
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            text = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
            changed = (content[:begin] + text.encode() + content[end:]).decode()
            try:
                compile(changed, "", "exec")
            except SyntaxError:
                continue
            yield Mutant(node.lineno, _last_line(node), f"{_short(ast.unparse(node))} -> {_short(text)}", changed)


def _last_line(node: ast.expr | ast.stmt) -> int:
    """The last line of an expression, or of a statement's head."""
    head = node.test if isinstance(node, ast.If) else node
    return head.end_lineno or head.lineno


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 70 else f"{text[:34]} .. {text[-34:]}"


def _nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The nodes below `node` that can be changed."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if field in FIELDS_SKIPPED or not isinstance(child, ast.AST) or _is_outside(child):
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            yield from _nodes(child)


def _is_outside(node: ast.AST) -> bool:
    """Docstrings, declarations for type checkers, and lists of names."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    return isinstance(node, SKIPPED) or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign():
            for other in OPERATORS.get(type(node.op), ()):
                yield _with(node, op=other())
            if isinstance(node, ast.AugAssign):
                yield ast.Pass()
        case ast.Compare():
            for i, operator in enumerate(node.ops):
                for other in OPERATORS[type(operator)]:
                    yield _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Constant(value=float() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value / 2))
        case ast.Name(ctx=ast.Load()) if node.id in OTHER_NAME:
            yield ast.Name(OTHER_NAME[node.id])
        case ast.Attribute(ctx=ast.Load()) if node.attr in OTHER_NAME:
            yield _with(node, attr=OTHER_NAME[node.attr])
        case ast.Call():
            for i in range(len(node.keywords)):
                yield _with(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])
            if len(node.args) > 1:
                yield _with(node, args=node.args[:-1])
        case ast.Tuple(ctx=ast.Load()) | ast.List(ctx=ast.Load()) | ast.Set() if len(node.elts) > 1:
            for i in range(len(node.elts)):
                yield _with(node, elts=[*node.elts[:i], *node.elts[i + 1 :]])
        case ast.Dict() if len(node.keys) > 1:
            for i in range(len(node.keys)):
                rest = {name: [*(every := getattr(node, name))[:i], *every[i + 1 :]] for name in ("keys", "values")}
                yield _with(node, **rest)
        case ast.IfExp():
            yield _with(node, body=node.orelse, orelse=node.body)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            for i, loop in enumerate(node.generators):
                if loop.ifs:
                    loops = [*node.generators[:i], _with(loop, ifs=[]), *node.generators[i + 1 :]]
                    yield _with(node, generators=loops)
        case ast.If():
            yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Return(value=ast.expr()) if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Expr():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """A copy of a node with other fields."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new
