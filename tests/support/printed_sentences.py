"""The sentences that reports, verdicts and findings can print, out of the syntax trees of the modules that hold them.

A sentence is a string of five words or more, in the code or as the fixed part of a formatted one ("{}" for a value).
Left out are docstrings, messages of errors and of the log, descriptions for the command line, and the records of
guarantees, which have a table of their own; in procedures also constants of modules, which those records consist of.
"""

import ast
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("report", "audit", "exchange", "probe", "procedures")
_CALLS = ("check_", "as_", "refuse", "add_argument", "InputError", "ValueError", "Guarantee", "finite_sample")
_LOGGER = ("debug", "info", "warning", "error")
_FEWEST_WORDS = 5


def printed() -> Iterator[tuple[str, str]]:
    """(scope, sentence): the scope is "file:function" or "file:name" of the constant, below tdd."""
    for folder in FOLDERS:
        for file in sorted((ROOT / "tdd" / folder).glob("*.py")):
            for statement in ast.parse(file.read_text("utf-8")).body:
                name = _name(statement)
                if folder == "procedures" and isinstance(statement, ast.Assign | ast.AnnAssign):
                    continue
                for sentence in sentences(statement):
                    yield f"{file.relative_to(ROOT / 'tdd')}:{name}", sentence


def sentences(node: ast.AST) -> Iterator[str]:
    """The sentences of a syntax tree."""
    if isinstance(node, ast.Raise | ast.Assert) or (isinstance(node, ast.Call) and _is_left_out(node.func)):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    text = template(node)
    if text is not None and len(text.split()) >= _FEWEST_WORDS:
        yield text
    inner = ast.walk(node) if text is not None else [node]
    values = [part.value for part in inner if isinstance(part, ast.FormattedValue)] if text is not None else None
    for child in ast.iter_child_nodes(node) if values is None else values:
        yield from sentences(child)


def template(node: ast.AST) -> str | None:
    """The string with "{}" for values, None for what is no string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def _is_left_out(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    of_log = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "_logger"
    return name.startswith(_CALLS) or (of_log and name in _LOGGER)


def _name(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0])
    if isinstance(statement, ast.AnnAssign):
        return ast.unparse(statement.target)
    return getattr(statement, "name", "")
