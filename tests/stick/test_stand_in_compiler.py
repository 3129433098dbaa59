"""Files of the stand-in for edgetpu_compiler: libedgetpu runs them on the stick."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.programs import ProgramBook
from edgec_devices.stick.sources import add_compiled
from edgec_partitioner.rounding import as_chip
from edgec_runtime.edgetpu_file.compiled_file import read_compiled

from edgec.frontends.tflite import read_tflite
from edgec.ir import interp
from tests.stick.real_stack import EDGETPU, Call, run
from tests.toolchain.stand_in_edgetpu_compiler import StandInEdgetpuCompiler

pytestmark = [pytest.mark.cc, pytest.mark.shared, pytest.mark.slow]

MODELS = EDGETPU / "models"
NAMES = (
    "ricardodeazambuja+LibrEdgeTPU/libredgetpu_templates_dense_256",
    "ricardodeazambuja+LibrEdgeTPU/libredgetpu_optical_flow_templates_gabor_64x64_p4",
    "ricardodeazambuja+LibrEdgeTPU/libredgetpu_tracker_templates_bright_16x16",
    "google-coral+test_data/tools_split_concat",
)
"""One and several inputs and outputs, in a row and as pictures, of 1, 2, 8 and 256
channels, uint8 and int8."""


def test_they_run(tmp_path: Path) -> None:
    """Compiled together, each gives what its source gives."""
    compiler = StandInEdgetpuCompiler(tmp_path / "compiler")
    sources = [MODELS / f"{name}.tflite" for name in NAMES]
    subprocess.run(
        [str(compiler.program), "-o", str(tmp_path), *map(str, sources)],
        check=True,
        timeout=60,
    )
    book, calls, expected = ProgramBook(), [], []
    rng = np.random.default_rng(3)
    tokens = set()
    for source in sources:
        compiled = tmp_path / f"{source.stem}_edgetpu.tflite"
        file = read_compiled(compiled.read_bytes(), str(compiled))
        tokens |= {e.token for e in file.packages[0].executables}
        add_compiled(book, compiled, source)
        graph = as_chip(read_tflite(source, {}))
        inputs = {}
        for value in graph.inputs:
            drawn = rng.integers(0, 256, value.type.shape)
            inputs[value.name] = drawn.astype(value.type.np_dtype)
        calls.append(Call(compiled, list(inputs.values())))
        expected.append(list(interp(graph, inputs).values()))
    assert len(tokens) == 1
    with Stick.serve(book, StickOptions(firmware=True)) as stick:
        answer = run(stick, calls * 2, tmp_path)
        assert answer.code == 0, answer.text
        lines = stick.lines
    for made, wanted in zip(answer.outputs, expected * 2, strict=True):
        for mine, theirs in zip(made, wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert sum("packet parameters" in line for line in lines) == len(NAMES)
