"""Measures how readable the code is, room by room; tests/house/test_measures.py has the bounds.

A room is a folder of an import package. Density is counted in nodes of the syntax tree for
each line of code of a function, where comments, docstrings and empty lines are no code.
Cyclomatic complexity is McCabe's number as radon counts it: one more than the branches,
loops, handlers, conditions of comprehensions and operands of `and` and `or`.

    python -m benchmarks.house [--functions]
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "edgec",
    "partitioner/edgec_partitioner",
    "runtime/edgec_runtime",
    "devices/edgec_devices",
)
CONTEXTS = (ast.Load, ast.Store, ast.Del)
"""Nodes that say only how a name is used; they are not counted."""
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.match_case,
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class FunctionMeasures:
    """The measures of one function.

    Attributes:
        place: its file, line and name
        density: syntax nodes for each line of code
        complexity: McCabe's number
        parameters: their number, without self and cls
    """

    place: str
    density: float
    complexity: int
    parameters: int


def files() -> list[Path]:
    """Return every Python file of the product."""
    return [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
    ]


def room_of(path: Path) -> str:
    """Return the name of the folder that a file lies in, at most two packages deep."""
    parts = path.relative_to(ROOT).parent.parts
    start = next(i for i, part in enumerate(parts) if part.startswith("edgec"))
    return "/".join(parts[start : start + 2])


def node_count(tree: ast.AST) -> int:
    """Return the size of a tree: its nodes without Load, Store and Del."""
    return sum(not isinstance(node, CONTEXTS) for node in ast.walk(tree))


def complexity(function: Function) -> int:
    """Return McCabe's number of a function, without the functions inside it."""
    count = 1
    for node in _own_nodes(function):
        if isinstance(node, BRANCHES):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)

    return count


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))


def _code_lines(function: Function) -> int:
    """Return the lines on which an expression or a statement that is no text begins."""
    texts = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    docstring_lines = {text.lineno for text in texts}
    lines = {getattr(node, "lineno", function.lineno) for node in ast.walk(function)}
    return max(1, len(lines - docstring_lines))


def measures_of(path: Path, function: Function) -> FunctionMeasures:
    """Return the measures of one function."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    parameters = [a for a in named if a.arg not in ("self", "cls")]
    return FunctionMeasures(
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}",
        node_count(function) / _code_lines(function),
        complexity(function),
        len(parameters),
    )


def rooms() -> dict[str, list[FunctionMeasures]]:
    """Return the measures of the functions of every room."""
    functions: dict[str, list[FunctionMeasures]] = defaultdict(list)
    for path in files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Function):
                functions[room_of(path)].append(measures_of(path, node))

    return dict(functions)


def main() -> int:
    """Print a row for each room, and one for all."""
    parser = argparse.ArgumentParser(prog="benchmarks.house")
    parser.add_argument(
        "--functions",
        action="store_true",
        help="also the densest and most complex functions",
    )
    arguments = parser.parse_args()
    nodes: dict[str, int] = defaultdict(int)
    for path in files():
        nodes[room_of(path)] += node_count(ast.parse(path.read_text()))

    functions = rooms()
    print(
        "| room | nodes | nodes a line of code, median | 90th percentile | most complex |"
    )
    print("| --- | --: | --: | --: | --: |")
    for name in sorted(functions):
        print(_row(name, nodes[name], functions[name]))

    every = [f for room in functions.values() for f in room]
    print(_row("all", sum(nodes.values()), every))
    if arguments.functions:
        for measure in ("density", "complexity", "parameters"):
            for f in sorted(every, key=lambda f: -getattr(f, measure))[:40]:
                print(f"{measure} {getattr(f, measure):.0f}: {f.place}")

    return 0


def _row(name: str, nodes: int, functions: list[FunctionMeasures]) -> str:
    median, high = np.percentile([f.density for f in functions], (50, 90))
    worst = max(f.complexity for f in functions)
    return f"| {name} | {nodes:,} | {median:.1f} | {high:.1f} | {worst} |"


if __name__ == "__main__":
    sys.exit(main())
