"""What the product says to a person is English: "is not a share", not "is no share"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from benchmarks.house import files

NO_NOUN = re.compile(
    r"(?<!there )\b(is|are) no (?!longer\b)|\b(is|are) none (of|for)\b", re.I
)


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module but its docstrings, each with its line."""
    if isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant):
        return
    if isinstance(tree, ast.JoinedStr):
        parts = [getattr(part, "value", "") for part in tree.values]
        yield tree.lineno, "".join(p if isinstance(p, str) else "{}" for p in parts)
        return
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree.lineno, tree.value
    for child in ast.iter_child_nodes(tree):
        yield from texts(child)


def test_nothing_is_no_noun() -> None:
    wrong = []
    for path in files():
        for line, text in texts(ast.parse(path.read_text())):
            if NO_NOUN.search(text):
                wrong.append(f"{path}:{line}: {text:.80}")
    assert wrong == []
