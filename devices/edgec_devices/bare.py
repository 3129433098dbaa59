"""Python without what only people read, for a slow line."""

from __future__ import annotations

import ast
import io
import tokenize


def bare(text: str) -> str:
    """The same program without docstrings and comments; lines keep their numbers, so a
    traceback stays readable.
    """
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node) is not None
        ):
            said = node.body[0]
            assert said.end_lineno is not None
            lines[said.lineno - 1] = " " * said.col_offset + (
                "..." if len(node.body) == 1 else ""
            )
            lines[said.lineno : said.end_lineno] = [""] * (
                said.end_lineno - said.lineno
            )
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines) + "\n"
