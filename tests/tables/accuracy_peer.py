"""onnxruntime's own quantization of a model, in a process of its own: python -m tests.tables.accuracy_peer FILE ….

accuracy_peer METHOD MODEL CALIBRATION OUT     quantize MODEL into OUT by minmax or percentile
accuracy_peer run MODEL SAMPLES OUT            its outputs on samples, as an .npz of arrays [sample, …]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from edgec.ir import Array

METHODS = {
    "minmax": (CalibrationMethod.MinMax, {}),
    "percentile": (CalibrationMethod.Percentile, {"CalibPercentile": 99.99}),
}


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, name: str, samples: Array) -> None:
        self._samples = iter({name: s} for s in samples)

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._samples, None)


def session(model: Path) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = 1
    return InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def make(method: str, model: Path, calibration: Path, out: Path) -> None:
    name = session(model).get_inputs()[0].name
    how, extra = METHODS[method]
    with tempfile.TemporaryDirectory() as tmp:
        ready = Path(tmp) / "ready.onnx"
        quant_pre_process(str(model), str(ready), skip_symbolic_shape=True)
        quantize_static(
            str(ready), str(out), _Reader(name, np.load(calibration)["x"]), QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QInt8, weight_type=QuantType.QInt8, calibrate_method=how, extra_options=extra,
        )  # fmt: skip


def run(model: Path, samples: Path, out: Path) -> None:
    peer = session(model)
    name, names = peer.get_inputs()[0].name, [o.name for o in peer.get_outputs()]
    rows = [peer.run(names, {name: s}) for s in np.load(samples)["x"]]
    np.savez(out, allow_pickle=False, **{n: np.stack([r[i] for r in rows]) for i, n in enumerate(names)})


if __name__ == "__main__":
    what, *paths = sys.argv[1:]
    if what == "run":
        run(*map(Path, paths))
    else:
        make(what, *map(Path, paths))
