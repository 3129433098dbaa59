"""Measures how readable the code is, room by room; `tests/house` holds the bounds.

A room is a folder of an import package. Density is counted in nodes of the syntax tree
for each line of a function of at least five lines: 5 in httpx and onnx-ir, 15 in
tinygrad. Cyclomatic complexity is McCabe's number as radon counts it: one more than the
branches, loops, handlers, conditions of comprehensions and operands of `and` and `or`.

    python -m benchmarks.house [--functions]
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "edgec",
    "partitioner/edgec_partitioner",
    "runtime/edgec_runtime",
    "devices/edgec_devices",
)
SHORTEST_FUNCTION_LINES = 5
"""Shorter functions say nothing about density: a line of `def` and one of `return` are
as long as they must be.
"""
PRONOUNS = frozenset({"what", "which", "that", "those", "such"})
"""Words that stand where a noun should: a share of more than 4 % of a docstring's words
makes it a riddle.
"""
DIRECTIVES = re.compile(r"#\s*(fmt|type|noqa|ruff|mypy|pragma)\b")
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
class Measured:
    """One function: where it is, its syntax nodes a line, its cyclomatic complexity,
    and its parameters.
    """

    place: str
    lines: int
    density: float
    complexity: int
    parameters: int


@dataclass
class Room:
    """The files of one folder, summed up."""

    files: int = 0
    lines: int = 0
    comments: int = 0
    words: int = 0
    pronouns: int = 0
    longest_file: int = 0
    widest_line: int = 0
    unformatted: int = 0
    functions: list[Measured] = field(default_factory=list)

    @property
    def density(self) -> float:
        """The median of syntax nodes a line over the functions that are long enough."""
        long = [f.density for f in self.functions if f.lines >= SHORTEST_FUNCTION_LINES]
        return statistics.median(long) if long else 0.0


def files() -> list[Path]:
    """Every Python file of the product."""
    return [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
    ]


def room_of(path: Path) -> str:
    """The name of the folder that a file lies in, at most two packages deep."""
    parts = path.relative_to(ROOT).parent.parts
    start = next(i for i, part in enumerate(parts) if part.startswith("edgec"))
    return "/".join(parts[start : start + 2])


def complexity(function: Function) -> int:
    """McCabe's cyclomatic complexity of a function, without the functions inside it."""
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


def measured(path: Path, function: Function) -> Measured:
    """The measures of one function."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    nodes = sum(1 for _ in ast.walk(function))
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given = [a for a in named if a.arg not in ("self", "cls")]
    place = f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
    return Measured(place, lines, nodes / lines, complexity(function), len(given))


def comments(text: str) -> int:
    """Lines that have a comment, other than directives to tools."""
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not DIRECTIVES.match(token.string):
            found.add(token.start[0])
    return len(found)


def docstrings(tree: ast.Module) -> Iterator[str]:
    """The docstrings of a module, its classes and functions, and the strings below its
    constants.
    """
    for node in ast.walk(tree):
        if isinstance(
            node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        ):
            values = [s.value for s in node.body if isinstance(s, ast.Expr)]
            constants = [v.value for v in values if isinstance(v, ast.Constant)]
            yield from (text for text in constants if isinstance(text, str))


def rooms() -> dict[str, Room]:
    """The measures of every room."""
    found: dict[str, Room] = defaultdict(Room)
    for path in files():
        room = found[room_of(path)]
        text = path.read_text()
        tree = ast.parse(text)
        lines = text.splitlines()
        room.files += 1
        room.lines += len(lines)
        room.comments += comments(text)
        room.longest_file = max(room.longest_file, len(lines))
        room.widest_line = max([room.widest_line, *map(len, lines)])
        room.unformatted += text.count("# fmt: skip")
        for docstring in docstrings(tree):
            words = re.findall(r"[a-z']+", docstring.lower())
            room.words += len(words)
            room.pronouns += sum(word in PRONOUNS for word in words)
        functions = [
            n
            for n in ast.walk(tree)
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        room.functions += [measured(path, function) for function in functions]
    return dict(found)


def class_names() -> Counter[str]:
    """How many files define a class of each name."""
    trees = [ast.parse(path.read_text()) for path in files()]
    return Counter(
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )


def tests_of_kind() -> int:
    """How often a file outside `edgec/ops` asks which operation another one is:
    `isinstance(….spec, …)`.
    """
    found = 0
    for path in files():
        if "/edgec/ops/" not in str(path):
            found += len(
                re.findall(r"isinstance\(\s*[\w.\[\]()]*spec\b", path.read_text())
            )
    return found


AFFIXES = frozenset(
    {"startswith", "endswith", "removeprefix", "removesuffix", "split", "replace"}
)
"""Methods of strings that look for parts of a name."""


def kernel_name_tests() -> list[str]:
    """Places of edgec that decide by the letters of a kernel's name.

    They are comparisons of a kernel, its name or its family with a string, affixes that
    are looked for in one, and comparisons with a string that begins as C functions do.
    """
    found = []
    for path in files():
        relative = path.relative_to(ROOT)
        if relative.parts[0] != "edgec" or relative.parts[1] == "ir":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if _tests_kernel_name(node):
                found.append(f"{relative}:{getattr(node, 'lineno', 0)}")
    return found


def _tests_kernel_name(node: ast.AST) -> bool:
    """Whether a node is such a test."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        texts = [text for side in sides for text in _strings(side)]
        is_of_kernel = any(map(_is_kernel_name, sides)) and bool(texts)
        return is_of_kernel or any(text.startswith("ek_") for text in texts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in AFFIXES and _is_kernel_name(node.func.value)
    return False


def _is_kernel_name(node: ast.AST) -> bool:
    """Whether an expression is a kernel, its name or its family."""
    if isinstance(node, ast.Attribute) and node.attr in ("name", "family"):
        node = node.value
    elif isinstance(node, ast.Name):
        return False
    return isinstance(node, (ast.Attribute, ast.Name)) and "kernel" in (
        getattr(node, "attr", ""),
        getattr(node, "id", ""),
    )


def _strings(node: ast.AST) -> list[str]:
    """The strings in an expression, also in a list of them."""
    constants = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return [value for value in constants if isinstance(value, str)]


def main() -> int:
    """Print a row for each room, and one for all."""
    parser = argparse.ArgumentParser(prog="benchmarks.house")
    parser.add_argument(
        "--functions",
        action="store_true",
        help="also the densest and most complex functions",
    )
    arguments = parser.parse_args()
    found = rooms()
    print(
        "| room | files | lines | nodes a line | comments in 1,000 | pronouns | "
        "longest file | complexity > 10 | worst |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    every = Room()
    for name, room in sorted(found.items()):
        print(_row(name, room))
        every.files += room.files
        every.lines += room.lines
        every.comments += room.comments
        every.words += room.words
        every.pronouns += room.pronouns
        every.longest_file = max(every.longest_file, room.longest_file)
        every.widest_line = max(every.widest_line, room.widest_line)
        every.unformatted += room.unformatted
        every.functions += room.functions
    print(_row("all", every))
    shared = {name: count for name, count in class_names().items() if count > 1}
    many = sum(f.parameters > 6 for f in every.functions)
    print(
        f"\nclass names in several files: {len(shared)}; "
        f"functions of more than 6 parameters: {many}"
    )
    print(
        f"isinstance of operations outside ops: {tests_of_kind()}; fmt: skip: "
        f"{every.unformatted}; tests of kernels' names: {len(kernel_name_tests())}"
    )
    print(f"widest line: {every.widest_line}")
    if arguments.functions:
        for f in sorted(every.functions, key=lambda f: -f.complexity)[:40]:
            print(f"complexity {f.complexity}: {f.place}")
        for f in sorted(every.functions, key=lambda f: -f.parameters)[:80]:
            print(f"parameters {f.parameters}: {f.place}")
        print("class names:", ", ".join(sorted(shared)))
    return 0


def _row(name: str, room: Room) -> str:
    complex_ones = [f for f in room.functions if f.complexity > 10]
    worst = max([f.complexity for f in room.functions], default=0)
    remarks = 1000 * room.comments / max(room.lines, 1)
    pronouns = room.pronouns / max(room.words, 1)
    return (
        f"| {name} | {room.files} | {room.lines} | {room.density:.1f} | {remarks:.1f} "
        f"| {pronouns:.1%} | "
        f"{room.longest_file} | {len(complex_ones)} | {worst} |"
    )


if __name__ == "__main__":
    sys.exit(main())
