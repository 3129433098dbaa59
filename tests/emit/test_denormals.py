"""Denormal floats: zeros in the code of x86, which is slow with them; the caller's own
stay as they are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Session

import edgec
from edgec.ir import Builder, TensorType
from edgec.ops.binary import Mul
from tests.conftest import ROOT
from tests.schedule.on import on
from tests.schedule.runner import run_on


@pytest.mark.parametrize("name", on("cortex_a53", "x86_64_v3"))
@pytest.mark.parametrize("parts", [0, 2])
def test_denormal_floats_are_zeros_where_they_are_slow(name: str, parts: int) -> None:
    """A network whose channels had died took three times as long as without them."""
    build = Builder("small")
    x = build.input("x", TensorType((64,)))
    build.graph.outputs = [
        build.add(Mul(), [x, build.const(np.array(1e-3, np.float32), "c")], "y")
    ]
    (got,) = run_on(name, [build.graph], [{"x": np.full(64, 1e-36, np.float32)}], parts)
    assert (got["y"] == 0).all() == (name == "x86_64_v3")


@pytest.mark.cc
@pytest.mark.slow
def test_a_session_leaves_floats_as_they_were(tmp_path: Path) -> None:
    edgec.compile(
        ROOT / "fixtures" / "digits" / "digits.onnx", "host", tmp_path / "d.edgec"
    )
    with Session(tmp_path / "d.edgec") as session:
        session.run({"input": np.zeros((1, 1, 32, 32), np.float32)})
    assert np.array([1e-36], np.float32) * np.float32(1e-3) > 0
