"""A file that onnxruntime quantized, through the whole line: taken as it is, checked,
right on an Edge TPU target.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Session
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)

import edgec
from edgec.ir import Array
from tests.compile.test_compile import CALIBRATION, DIGITS, FIXTURES

pytestmark = pytest.mark.slow


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self._samples = iter(
            [
                {"input": x[None]}
                for x in np.load(CALIBRATION)["input"].astype(np.float32)
            ]
        )

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._samples, None)


@pytest.mark.parametrize(
    ("form", "acts"),
    [(QuantFormat.QDQ, QuantType.QInt8), (QuantFormat.QOperator, QuantType.QUInt8)],
)
def test_it_needs_no_calibration_and_runs_on_the_edge_tpu(
    form: QuantFormat, acts: QuantType, tmp_path: Path
) -> None:
    path = tmp_path / "q.onnx"
    data = np.load(FIXTURES / "digits" / "digits_test.npz")
    types = {
        "activation_type": acts,
        "weight_type": QuantType.QInt8,
        "reduce_range": True,
    }
    quantize_static(str(DIGITS), str(path), _Samples(), form, per_channel=True, **types)
    done = edgec.compile(path, "pi4+coral", tmp_path / "q.edgec", edgetpu="all")
    assert not done.network.verification.quantized
    assert done.network.verification.whole["output"].cosine > 0.999
    text = " ".join(done.summary().split())
    assert "note: the file is quantized as ONNX has it" in text
    assert "may differ by one step from onnxruntime" in text
    segments = done.network.lowered.partition.segments
    assert sum(s.macs for s in segments if s.place == "edgetpu") >= 0.99 * sum(
        s.macs for s in segments
    )
    with Session(tmp_path / "q.edgec") as session:
        guesses = [
            session.run({"input": x[None]})["output"].argmax()
            for x in data["x"].astype(np.float32)
        ]
    assert np.mean(np.array(guesses) == data["y"]) >= 0.97
