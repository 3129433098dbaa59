"""Whole ops on the cores of x86: the int8 samples of all ops with weights, in one segment, by the variants chosen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgec.emit.c import CSRC, segment_source
from edgec.ir import Builder, Graph, Value, interp
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.schedule.cores import core
from edgec.toolchain.cc import Compiler
from tests.harness import X86, assert_agree, has, random_array, random_inputs, run_c


def samples_graph() -> Graph:
    """Every int8 sample of the ops, side by side."""

    rng, build, outputs, inputs = np.random.default_rng(5), Builder("samples"), list[Value](), 0
    for op in (Conv2D, DepthwiseConv2D, TransposeConv2D, FullyConnected):
        for sample in op.samples():
            if sample.args[0].type.dtype != "int8":
                continue
            values = []
            for arg in sample.args:
                if arg.const:
                    data = arg.data if arg.data is not None else random_array(arg.type, rng)
                    values.append(build.const(data, f"c{len(outputs)}", arg.type.quant))
                else:
                    values.append(build.input(f"x{inputs}", arg.type))
                    inputs += 1
            (y,) = build.add_multi(sample.spec, values, f"y{len(outputs)}")
            if sample.output_quant is not None:
                y.type = y.type.with_quant(sample.output_quant)
            outputs.append(y)
    build.graph.outputs = outputs
    return build.graph


@pytest.mark.cc
@pytest.mark.parametrize("name", X86)
def test_samples(name: str) -> None:
    feature, flags = X86[name]
    if not has(feature):
        pytest.skip(f"this processor has no {feature}")
    graph = samples_graph()
    inputs = random_inputs(graph)
    text = segment_source(graph, "seg", core(name)).text
    plain = {
        kernel for kernel in ("conv2d", "dwconv2d", "transpose_conv2d", "fully_connected") if f"ek_{kernel}_s8(" in text
    }
    assert not plain
    gcc = Compiler((*Compiler.native("gcc").command, *flags))
    assert_agree(run_c(graph, inputs, gcc, core(name)), interp(graph, inputs))


@pytest.mark.cc
def test_tiles_for_vnni_are_small(tmp_path: Path) -> None:
    """What turns sums into bytes is there once for tiles of a width, not in each."""
    (tmp_path / "seg.c").write_text(segment_source(samples_graph(), "seg", core("x86_64_v4_vnni")).text)
    gcc = Compiler((*Compiler.native("gcc").command, *X86["x86_64_v4_vnni"][1]))
    gcc.compile(tmp_path / "seg.c", [CSRC], tmp_path / "seg.o")
    done = subprocess.run(["nm", "-S", str(tmp_path / "seg.o")], capture_output=True, text=True, check=True)
    symbols = [line.split() for line in done.stdout.splitlines() if "ek_gemm_s8_row_m" in line]
    sizes = {words[3]: int(words[1], 16) for words in symbols}
    assert len(sizes) > 5
    assert max(sizes.values()) < 2500, sizes
