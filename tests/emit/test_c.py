"""Generated C: golden text, and what every generated file promises."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgec.emit.c import CSRC, segment_source
from edgec.emit.program import SegmentEntry, model_source
from edgec.ir import Builder, Graph, Quant, TensorType, interp
from edgec.ops.binary import Add
from edgec.ops.conv import Conv2D
from edgec.ops.shape import Reshape, Transpose
from edgec.toolchain.cc import Compiler
from tests.harness import assert_agree, random_inputs, run_c


def residual_int8() -> Graph:
    """A 3x3 convolution with a shortcut and a flatten, int8."""
    rng = np.random.default_rng(0)
    b = Builder("residual")
    q = Quant.per_tensor(0.05, 3)
    x = b.input("image", TensorType((1, 4, 4, 2), "int8", q))
    scale = tuple(float(np.float32(s)) for s in (0.01, 0.02))
    w = b.const(rng.integers(-127, 128, (2, 3, 3, 2)).astype(np.int8), "weights", Quant(scale, (0, 0), 0))
    bias = b.const(rng.integers(-50, 50, 2).astype(np.int32), "bias")
    b.source = "block/conv"
    y = b.add(Conv2D(pads=(1, 1, 1, 1), act="relu"), [x, w, bias], "conv", q)
    b.source = "block/add"
    z = b.add(Add(), [y, x], "sum", Quant.per_tensor(0.07, -1))
    flat = b.add(Reshape((1, 32)), [z], "flat", z.type.quant)
    b.graph.outputs = [b.add(Transpose((1, 0)), [flat], "out", z.type.quant)]
    return b.graph


def test_segment(golden: Callable[[str, str], None]) -> None:
    golden(segment_source(residual_int8(), "seg0").text, ".c")


def test_model(golden: Callable[[str, str], None]) -> None:
    tensors = {'im"age': TensorType((1, 4, 4, 2), "int8"), "out": TensorType((32, 1), "int8")}
    entry = SegmentEntry("seg0", "cpu", ('im"age',), ("out",), 128, 3)
    golden(model_source("residual", tensors, [entry], ['im"age'], ["out"]), ".c")


def test_same_graph_same_text() -> None:
    assert segment_source(residual_int8(), "s").text == segment_source(residual_int8(), "s").text


@pytest.mark.cc
def test_runs_as_interp() -> None:
    graph = residual_int8()
    inputs = random_inputs(graph)
    assert_agree(run_c(graph, inputs), interp(graph, inputs))


@pytest.mark.cc
def test_nothing_is_written_but_the_arena_and_nothing_allocates(tmp_path: Path) -> None:
    source = segment_source(residual_int8(), "seg0")
    (tmp_path / "seg0.c").write_text(source.text)
    Compiler.native("gcc").compile(tmp_path / "seg0.c", [CSRC], tmp_path / "seg0.o")
    sizes = subprocess.run(["size", "-A", tmp_path / "seg0.o"], capture_output=True, text=True, check=True).stdout
    written = re.findall(r"^\.(?:bss|data)\S*\s+(\d+)", sizes, re.M)
    assert sum(map(int, written)) == 0
    symbols = subprocess.run(["nm", tmp_path / "seg0.o"], capture_output=True, text=True, check=True).stdout
    undefined = {line.split()[-1] for line in symbols.splitlines() if " U " in line}
    assert undefined <= {"memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_"}, undefined
