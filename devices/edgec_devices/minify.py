"""Removes docstrings and comments from Python code that goes over a slow line."""

from __future__ import annotations

import ast
import io
import tokenize


def bare(text: str) -> str:
    """Return the same program without docstrings and comments.

    Lines keep their numbers, so that a traceback stays readable.
    """
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            continue
        if ast.get_docstring(node) is not None:
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            first = docstring.lineno - 1
            # A body needs a statement.
            replacement = "..." if len(node.body) == 1 else ""
            lines[first] = " " * docstring.col_offset + replacement
            for line in range(first + 1, docstring.end_lineno):
                lines[line] = ""

    without_docstrings = io.StringIO("\n".join(lines))
    for token in tokenize.generate_tokens(without_docstrings.readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines) + "\n"
