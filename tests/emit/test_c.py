"""Generated C: golden text, and what every generated file promises."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edgec.emit.c import CSRC, segment_source
from edgec.emit.program import ModelTable, SegmentEntry
from edgec.emit.weights import WeightsFile
from edgec.ir import Array, Builder, Graph, Quant, TensorType, interp
from edgec.ops.binary import Add
from edgec.ops.conv import Conv2D
from edgec.ops.pool import MaxPool2D
from edgec.ops.reduce import ReduceMin
from edgec.ops.shape import Reshape, Transpose
from edgec.toolchain.cc import Compiler
from tests.harness import assert_agree, random_inputs, run_c


def residual_int8() -> Graph:
    """A 3x3 convolution with a shortcut and a flatten, int8; its weights are more than
    stay in the text.
    """
    rng = np.random.default_rng(0)
    b = Builder("residual")
    q = Quant.per_tensor(0.05, 3)
    x = b.input("image", TensorType((1, 4, 4, 8), "int8", q))
    scale = tuple(float(np.float32(s)) for s in np.linspace(0.01, 0.03, 8))
    w = b.const(
        rng.integers(-127, 128, (8, 3, 3, 8)).astype(np.int8),
        "weights",
        Quant(scale, (0,) * 8, 0),
    )
    bias = b.const(rng.integers(-50, 50, 8).astype(np.int32), "bias")
    b.source = "block/conv"
    y = b.add(Conv2D(pads=(1, 1, 1, 1), act="relu"), [x, w, bias], "conv", q)
    b.source = "block/add"
    z = b.add(Add(), [y, x], "sum", Quant.per_tensor(0.07, -1))
    flat = b.add(Reshape((1, 128)), [z], "flat", z.type.quant)
    b.graph.outputs = [b.add(Transpose((1, 0)), [flat], "out", z.type.quant)]
    return b.graph


def test_segment(golden: Callable[[str, str], None]) -> None:
    golden(segment_source(residual_int8(), "seg0").text, ".c")


def test_comments_say_what_windows_and_scalars_are() -> None:
    b = Builder("pool")
    x = b.input("x", TensorType((1, 9, 8, 3)))
    y = b.add(MaxPool2D((3, 2), (2, 1)), [x], "y")
    least = b.add(ReduceMin((0, 1, 2, 3), keep_dims=False), [y], "least")
    b.graph.outputs = [least]
    text = segment_source(b.graph, "seg0").text
    assert "\n/* max_pool2d 1x9x8x3 -> 1x4x7x3, 3x2 stride 2x1 */\nEK_OP void" in text
    assert "\n/* reduce_min 1x4x7x3 -> scalar */\nEK_OP void" in text


@pytest.mark.cc
def test_no_name_ends_a_comment() -> None:
    graph = residual_int8()
    for op in graph.ops:
        op.source = '*/ #error /* //\n#error \\\n"??/\n*\\\n/'
    assert_agree(
        interp(graph, random_inputs(graph)), run_c(graph, random_inputs(graph))
    )


def test_model(golden: Callable[[str, str], None]) -> None:
    tensors = {
        'im"age': TensorType((1, 4, 4, 8), "int8"),
        "out": TensorType((128, 1), "int8"),
    }
    entry = SegmentEntry("seg0", "cpu", ('im"age',), ("out",), 256, 3)
    golden(
        ModelTable(
            "residual", tensors, [entry], ['im"age'], ["out"], bytes(64) + b"weights"
        ).source(),
        ".c",
    )


def test_same_graph_same_text() -> None:
    assert (
        segment_source(residual_int8(), "s").text
        == segment_source(residual_int8(), "s").text
    )


def test_weights_are_binary_and_tables_text() -> None:
    graph = residual_int8()
    source = segment_source(graph, "s")
    text = segment_source(graph, "s", text="all")
    weights = graph.ops[0].inputs[1].const
    assert weights is not None
    # as the kernel wants them
    assert source.weights.data == weights.transpose(1, 2, 3, 0).tobytes()
    assert (len(text.weights.data), text.constants) == (0, source.constants)
    assert len(source.weights.data) + 3 * 8 * 4 == source.constants
    assert "static const int8_t w0[576] = {" in text.text
    assert "static const int8_t" not in source.text


def test_arrays_are_in_the_weights_file_once_and_aligned() -> None:
    file = WeightsFile()
    odd = np.arange(3, dtype=np.int8)
    word = np.array([1.5], np.float32)
    assert [file.place(a) for a in (odd, word, odd.copy(), word)] == [0, 64, 0, 64]
    assert file.data == odd.tobytes() + bytes(61) + word.tobytes()


@pytest.mark.cc
def test_runs_as_interp() -> None:
    graph = residual_int8()
    inputs = random_inputs(graph)
    assert_agree(run_c(graph, inputs), interp(graph, inputs))


@pytest.mark.cc
def test_threads_share_the_weights(tmp_path: Path) -> None:
    """Each with an arena of its own; the weights are in memory that cannot be written."""
    graph = residual_int8()
    source = segment_source(graph, "seg")
    (tmp_path / "seg.c").write_text(source.text)
    compiler = Compiler.native("gcc")
    compiler.compile(tmp_path / "seg.c", [CSRC], tmp_path / "seg.o")
    compiler.link_library([tmp_path / "seg.o"], tmp_path / "seg.so")
    run = ctypes.CDLL(str(tmp_path / "seg.so")).edgec_seg_run
    (tmp_path / "w").write_bytes(source.weights.data)
    weights = np.memmap(tmp_path / "w", np.uint8, "r")
    inputs = [random_inputs(graph, seed) for seed in range(8)]

    def many(given: dict[str, Array]) -> Array:
        x = given["image"]
        y = np.zeros((128, 1), np.int8)
        memory = np.zeros(source.plan.size + 64, np.uint8)
        arena = ctypes.c_void_p(memory.ctypes.data + -memory.ctypes.data % 64)
        ports = [(ctypes.c_void_p * 1)(a.ctypes.data) for a in (x, y)]
        for _ in range(500):
            assert run(arena, ctypes.c_void_p(weights.ctypes.data), *ports) == 0
        return y

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(many, inputs))
    for given, y in zip(inputs, found, strict=True):
        np.testing.assert_array_equal(y, interp(graph, given)["out"])


@pytest.mark.cc
def test_nothing_is_written_but_the_arena_and_nothing_allocates(tmp_path: Path) -> None:
    source = segment_source(residual_int8(), "seg0")
    (tmp_path / "seg0.c").write_text(source.text)
    Compiler.native("gcc").compile(tmp_path / "seg0.c", [CSRC], tmp_path / "seg0.o")
    sizes = subprocess.run(
        ["size", "-A", tmp_path / "seg0.o"], capture_output=True, text=True, check=True
    ).stdout
    written = re.findall(r"^\.(?:bss|data)\S*\s+(\d+)", sizes, re.M)
    assert sum(map(int, written)) == 0
    symbols = subprocess.run(
        ["nm", tmp_path / "seg0.o"], capture_output=True, text=True, check=True
    ).stdout
    undefined = {line.split()[-1] for line in symbols.splitlines() if " U " in line}
    assert undefined <= {"memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_"}, (
        undefined
    )
