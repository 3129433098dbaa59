"""The comparison of estimates with published times (benchmarks/truth): which published
times count, how networks of ncnn's benchmark become ONNX files, and what errors say.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.truth import published
from benchmarks.truth.errors import Errors
from benchmarks.truth.networks import convert
from benchmarks.truth.published import Series

PARAM = """7767517
12 14
Input         data   0 1 data 0=8 1=8 2=3
Convolution   conv   1 1 data a 0=8 1=3 3=2 4=-233 5=1 6=216 9=1
Split         split  1 2 a b c
ConvolutionDepthWise dw 1 1 b d 0=8 1=3 4=1 5=1 6=72 7=8 9=2 -23310=1,1.000000e-01
Eltwise       sum    2 1 c d e 0=1
ShuffleChannel mix   1 1 e f 0=2
Slice         cut    1 2 f g h -23300=2,3,-233
Pooling       pool   1 1 g i 1=3 2=2
Convolution   head   1 1 h j 0=4 1=1 5=1 6=20
Permute       move   1 1 j k 0=3
Flatten       flat   1 1 k l
InnerProduct  dense  1 1 i out 0=10 1=1 2=120
"""


def row(**changes: object) -> str:
    """Return a line of latencies.jsonl."""
    facts = {
        "board": "Raspberry Pi 5",
        "core": "A76",
        "clock_ghz": 2.4,
        "device": "cpu",
        "runtime": "ncnn",
        "threads": 4,
        "model": "mobilenet",
        "input": "1x3x224x224",
        "ms": 10.0,
        "ms_min": 9.0,
    }
    return json.dumps(facts | changes)


def test_published_times_of_a_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "latencies.jsonl"
    lines = [
        row(),
        row(ms=8.0),
        row(threads=1, ms=33.9),
        row(model="vgg16", ms=50.0, ms_min=None),
        row(model="squeezenet", device="vulkan gpu"),
        row(model="squeezenet", clock_ghz=2.9),
        row(model="squeezenet", board="Raspberry Pi 4B"),
    ]
    file.write_text("\n".join(lines))
    monkeypatch.setattr(published, "FILE", file)
    times = Series("pi5", "Raspberry Pi 5", "ncnn", 2.4).times()
    assert {key: time.ms for key, time in times.items()} == {
        ("mobilenet", 4): 8.0,
        # A mean far above the least is of a disturbed run.
        ("mobilenet", 1): 9.0,
        ("vgg16", 4): 50.0,
    }


def test_a_network_of_the_benchmark_becomes_an_onnx_file(tmp_path: Path) -> None:
    (tmp_path / "tiny.param").write_text(PARAM)
    file = convert(tmp_path / "tiny.param", (1, 3, 8, 8), tmp_path / "tiny.onnx")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"images": np.ones((1, 3, 8, 8), np.float32)})
    # The head ends before its boxes are put in order; SAME halves 8 x 8, and the pool's
    # last window may reach beyond the image, so that the dense layer reads 3 x 2 x 2.
    assert [o.shape for o in outputs] == [(1, 4, 4, 4), (1, 10, 1, 1)]
    constants = onnx.load(file).graph.initializer
    weights = {tuple(c.dims) for c in constants}
    assert {(8, 3, 3, 3), (8, 1, 3, 3), (4, 5, 1, 1), (10, 3, 2, 2)} <= weights


def test_a_layer_that_is_not_known_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.param").write_text(
        "7767517\n2 2\nInput data 0 1 data\nSpectrogram s 1 1 data out\n"
    )
    with pytest.raises(ValueError, match="Spectrogram"):
        convert(tmp_path / "odd.param", (1, 3, 8, 8), tmp_path / "odd.onnx")


def test_errors() -> None:
    errors = Errors({"a": 1.1, "b": 0.8, "c": 1.0})
    assert errors.mean == pytest.approx((1.1 * 0.8) ** (1 / 3) - 1)
    assert errors.rms == pytest.approx(((0.1**2 + 0.2**2) / 3) ** 0.5)
    assert errors.median == pytest.approx(0.1)
    name, error = errors.worst
    assert name == "b"
    assert error == pytest.approx(-0.2)
    assert list(errors.cells()) == ["3", "-4%", "13%", "10%", "-20% b"]
    assert list(Errors({}).cells()) == ["0", "–", "–", "–", "–"]
