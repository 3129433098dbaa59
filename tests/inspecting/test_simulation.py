"""`edgec inspect --simulate`: a compiled file on a simulated Edge TPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgec.ir.interp import interp
from tests.cli.verbs import edgec as verb
from tests.conftest import SHARED
from tests.edgetpu_file.simulated import network

pytestmark = pytest.mark.shared
COMPILED = SHARED / "edgetpu/compiled"
DENSE = COMPILED / "ricardodeazambuja+LibrEdgeTPU/dense_256_edgetpu.tflite"
REFUSED = COMPILED / "google-coral+test_data/split_concat_edgetpu.tflite"


def test_outputs(tmp_path: Path) -> None:
    """The file has the output by its name, and the line says what is in it."""
    graph = network("dense_256")
    (value,) = graph.inputs
    x = np.random.default_rng(4).integers(0, 256, value.type.shape, np.uint8)
    np.save(tmp_path / "x.npy", x)
    made = verb("inspect", DENSE, "--simulate", "x.npy", "y.npz", cwd=tmp_path)
    assert made.code == 0, made.err
    ((name, wanted),) = interp(graph, {value.name: x}).items()
    result = np.load(tmp_path / "y.npz")[name]
    np.testing.assert_array_equal(result, wanted)
    span = f"{wanted.min()} to {wanted.max()}"
    assert made.out.splitlines() == [
        f"{name}: uint8 1 x 256, {span}",
        "written: y.npz",
    ]


def test_refusals(tmp_path: Path) -> None:
    """An instruction, a missing input and one of another shape are named."""
    np.save(tmp_path / "x.npy", np.zeros(5, np.uint8))
    np.savez(tmp_path / "other.npz", other=np.zeros(5, np.uint8))

    def refusal(file: Path, inputs: str) -> str:
        made = verb("inspect", file, "--simulate", inputs, "y.npz", cwd=tmp_path)
        assert made.code == 2
        assert not (tmp_path / "y.npz").exists()
        return made.err

    text = refusal(REFUSED, "x.npy")
    assert "instruction wide_to_narrow at word 122 (opcode 0x14): its field" in text
    assert "uint8 of 5 elements" in refusal(DENSE, "x.npy")
    assert "it has no array serving_default" in refusal(DENSE, "other.npz")
