"""The arrows between the folders run one way (docs: who may know whom)."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each layer may import itself and whatever stands after it.
LAYERS = [
    ["edgec.cli", "edgec.demo", "edgec.__main__"],
    [
        "edgec",
        "edgec.compiler",
        "edgec.edgetpu_loop",
        "edgec.explaining",
        "edgec.job",
        "edgec.lowering",
        "edgec.report",
        "edgec.running",
        "edgec.verification",
    ],
    ["edgec_devices", "edgec.emit", "edgec.toolchain"],
    ["edgec.quantize", "edgec.passes", "edgec.frontends"],
    ["edgec_partitioner"],
    ["edgec.ops"],
    ["edgec.ir"],
    ["edgec.errors"],
    ["edgec_runtime"],
]
PACKAGES = ["edgec", "partitioner/edgec_partitioner", "runtime/edgec_runtime", "devices/edgec_devices"]


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    start = next(i for i, p in enumerate(parts) if p.startswith("edgec"))
    return ".".join(parts[start:]).removesuffix(".__init__")


def _layer(module: str) -> int | None:
    best: tuple[int, int] | None = None
    for level, names in enumerate(LAYERS):
        for name in names:
            if module == name or module.startswith(name + "."):
                best = max(best or (0, 0), (len(name), level))
    return None if best is None else best[1]


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = _module(path).split(".") if path.name == "__init__.py" else _module(path).split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            found.add(base)
            found.update(f"{base}.{a.name}" for a in node.names)
    return found


def _files() -> list[Path]:
    return [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("path", _files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    mine = _layer(_module(path))
    assert mine is not None, f"{_module(path)} is in no layer"
    for name in _imports(path):
        theirs = _layer(name)
        # importing the package `edgec` for its version is not an arrow
        if theirs is not None and name != "edgec":
            assert theirs >= mine, f"{_module(path)} imports {name}"


def test_the_device_side_needs_only_numpy() -> None:
    allowed = {"numpy", "edgec_runtime", "ai_edge_litert", "tflite_runtime", "pycoral", "__future__"}
    for path in sorted((ROOT / "runtime" / "edgec_runtime").rglob("*.py")):
        for name in _imports(path):
            top = name.split(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_no_file_and_no_function_outgrows_a_head() -> None:
    for path in _files():
        text = path.read_text()
        assert text.count("\n") <= 500, f"{path} has {text.count(chr(10))} lines"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                assert node.end_lineno - node.lineno < 60, f"{path}:{node.lineno} {node.name} is longer than a screen"
