"""Google's driver takes the compiled files that edgec writes itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.programs import ProgramBook
from edgec_devices.stick.sources import add_compiled
from edgec_partitioner.rounding import as_chip

from edgec.edgetpu_file.writing.file import written
from edgec.emit.tflite import write_tflite
from edgec.frontends.tflite import read_tflite
from edgec.ir import interp
from tests.edgetpu_file.test_writing import chain
from tests.stick.real_stack import Call, run

pytestmark = pytest.mark.shared


def test_chain_of_layers(tmp_path: Path) -> None:
    """Two chains, of which the stick knows no source: it executes their instructions."""
    book, calls = ProgramBook(), list[Call]()
    expected = list[np.ndarray[Any, Any]]()
    rng = np.random.default_rng(5)
    for seed, sizes in enumerate([(784, 128, 10), (100, 1000)]):
        source = tmp_path / f"chain{seed}.tflite"
        source.write_bytes(write_tflite(chain(sizes, seed, biases=True, act="relu")))
        compiled = tmp_path / f"chain{seed}_edgetpu.tflite"
        compiled.write_bytes(written(source.read_bytes(), source.name))
        add_compiled(book, compiled, None)
        graph = as_chip(read_tflite(source, {}))
        (value,) = graph.inputs
        x = rng.integers(-128, 128, value.type.shape).astype(np.int8)
        calls.append(Call(compiled, [x]))
        expected += interp(graph, {value.name: x}).values()
    with Stick.serve(book, StickOptions(firmware=True)) as stick:
        answer = run(stick, calls * 2, tmp_path)
        assert answer.code == 0, answer.text
    for made, wanted in zip(answer.outputs, expected * 2, strict=True):
        np.testing.assert_array_equal(made[0], wanted)
