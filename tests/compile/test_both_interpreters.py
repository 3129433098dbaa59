"""An Edge TPU segment gives the same integers on LiteRT here and on tflite-runtime in
an environment of its own.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Session

import edgec

ROOT = Path(__file__).parents[2]
OTHER = ROOT / ".venv-tflite-runtime" / "bin" / "python"
SCRIPT = """
import sys, numpy as np
from edgec_runtime import Session
with Session(sys.argv[1], tpu="interpreter", interpreter="tflite-runtime") as s:
    assert "interpreter" in s.backends.values(), s.backends
    np.savez(sys.argv[3], **s.run(dict(np.load(sys.argv[2]))))
"""


def _has_tflite_runtime() -> bool:
    if not OTHER.exists():
        return False
    return (
        subprocess.run(
            [OTHER, "-c", "import tflite_runtime"], capture_output=True
        ).returncode
        == 0
    )


@pytest.mark.slow
def test_the_same_bits_on_litert_tflite_runtime_and_c(tmp_path: Path) -> None:
    if not _has_tflite_runtime():
        pytest.skip(
            "no tflite-runtime environment: make setup makes .venv-tflite-runtime with "
            "Python <= 3.11"
        )
    digits = ROOT / "fixtures" / "digits"
    bundle = tmp_path / "digits.edgec"
    photos = digits / "digits_calibration.npz"
    edgec.compile(
        digits / "digits.onnx",
        "pi4+coral",
        bundle,
        calibrate=photos,
        quantize="fast",
        edgetpu="all",
        rounding="tflite",
    )
    sample = {"input": np.load(digits / "digits_test.npz")["x"][:1].astype(np.float32)}
    np.savez(tmp_path / "in.npz", **sample)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "runtime")}
    command: list[str | Path] = [
        OTHER,
        "-c",
        SCRIPT,
        bundle,
        tmp_path / "in.npz",
        tmp_path / "out.npz",
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    other = dict(np.load(tmp_path / "out.npz"))
    for mode in ("interpreter", "c"):
        with Session(bundle, tpu=mode) as session:
            here = session.run(sample)
        for name, y in here.items():
            np.testing.assert_array_equal(y, other[name], err_msg=f"{name}, {mode}")
