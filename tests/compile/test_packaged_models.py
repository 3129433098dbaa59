"""Networks that Python packages bring along, as what runs them there computes them:
`make packaged-models` gets them.

What is not installed is skipped. Sequences are compared where a model keeps something
between calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from edgec_runtime import Session, TensorInfo

import edgec
from edgec.ir import Array
from tests import builds
from tests.frontends.tflite_state import litert_calls

pytestmark = pytest.mark.slow

CALLS = 3


@dataclass(frozen=True)
class Case:
    """A file of a package, and how it is compiled. calls: in turn. tolerance: of the
    range of each output; of a dynamically quantized file, whose activations are floats
    here, what those 8 bits make.
    """

    package: str
    path: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fix: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    calls: int = CALLS
    tolerance: float = 1e-4

    @property
    def file(self) -> Path:
        """Skips the test where the package is not installed, or is of another version."""
        spec = find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            pytest.skip(f"{self.package} is not installed: make packaged-models")
        path = Path(next(iter(spec.submodule_search_locations))) / self.path
        if not path.is_file():
            pytest.skip(f"this version of {self.package} has no {self.path}")
        return path

    def compiled(self) -> Path:
        """The bundle, once."""
        file = self.file

        def make(to: Path) -> None:
            edgec.compile(
                file,
                "host",
                to / "m.edgec",
                input_shapes=self.shapes,
                fix=self.fix,
                state=self.state,
            )

        return (
            builds.once(f"{self.package}/{self.path} {dict(self.fix)}", make)
            / "m.edgec"
        )


def silero(name: str, samples: int, rate: int) -> Case:
    """Of a window and what came before it, at a rate."""
    shapes = {"input": (1, samples), "state": (2, 1, 128)}
    return Case(
        "silero_vad", f"data/{name}.onnx", shapes, {"sr": rate}, {"state": "stateN"}, 20
    )


def image(
    package: str, path: str, name: str, *shape: int, tolerance: float = 1e-4
) -> Case:
    """Of one image."""
    return Case(package, path, {name: shape}, tolerance=tolerance)


ONNX = [
    silero("silero_vad", 576, 16000),
    silero("silero_vad", 288, 8000),
    silero("silero_vad_op18_ifless", 576, 16000),
    Case(
        "silero_vad",
        "data/silero_vad_16k_sequence.onnx",
        state={"h": "hn", "c": "cn"},
        calls=20,
    ),
    # rounding weighs more in it: numpy's sums of the optimised graph are 0.7e-4 from
    # onnxruntime's
    image(
        "rapidocr_onnxruntime",
        "models/ch_PP-OCRv4_det_infer.onnx",
        "x",
        1,
        3,
        320,
        320,
        tolerance=2e-4,
    ),
    image(
        "rapidocr_onnxruntime",
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "x",
        1,
        3,
        48,
        192,
    ),
    image(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", "x", 1, 3, 48, 320
    ),
    image("ddddocr", "common.onnx", "input1", 1, 1, 64, 160),
    image("ddddocr", "common_old.onnx", "input1", 1, 1, 64, 160, tolerance=0.06),
    image("ddddocr", "common_det.onnx", "images", 1, 3, 416, 416),
    Case("basic_pitch", "saved_models/icassp_2022/nmp.onnx"),
    image("nudenet", "320n.onnx", "images", 1, 3, 320, 320),
]
TFLITE = [
    Case("pymicro_wakeword", f"models/{n}.tflite", calls=60)
    for n in ("alexa", "hey_jarvis", "okay_nabu")
]


def _inputs(infos: tuple[TensorInfo, ...], calls: int) -> Iterator[dict[str, Array]]:
    """Blobs and bars of ink on paper where it is an image, else noise: networks of text
    answer noise with next to nothing, of which rounding is a large part.
    """
    rng = np.random.default_rng(0)
    for _ in range(calls):
        yield {
            i.name: _drawn(rng, i) if len(i.shape) == 4 else _noise(rng, i)
            for i in infos
        }


def _noise(rng: np.random.Generator, info: TensorInfo) -> Array:
    if info.numpy_dtype.kind == "f":
        return (rng.normal(size=info.shape) * 0.3).astype(info.numpy_dtype)
    limits = np.iinfo(info.numpy_dtype)
    return rng.integers(limits.min, limits.max + 1, info.shape).astype(info.numpy_dtype)


def _drawn(rng: np.random.Generator, info: TensorInfo) -> Array:
    paper = np.ones(info.shape, np.float32)
    height, width = info.shape[2:]
    for x in range(8, width - 12, 12):
        top = height // 3 + int(rng.integers(0, height // 8))
        paper[..., top : top + height // 4, x : x + 3] = -1
        paper[..., top + int(rng.integers(0, height // 5)), x : x + 9] = -1
    return (paper + rng.normal(size=info.shape) * 0.02).astype(np.float32)


@pytest.mark.parametrize(
    "case",
    ONNX,
    ids=lambda c: f"{Path(c.path).stem}{'-'.join(str(v) for v in c.fix.values())}",
)
def test_as_onnxruntime(case: Case) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    with Session(case.compiled()) as session:
        reference = onnxruntime.InferenceSession(
            str(case.file), options, providers=["CPUExecutionProvider"]
        )
        names = [o.name for o in reference.get_outputs()]
        types = {i.name: i for i in reference.get_inputs()}
        fed: dict[str, Any] = {
            n: np.full((), v, np.int64) for n, v in case.fix.items() if n in types
        }
        before = {
            s.input: session.manifest.tensors[s.input] for s in session.manifest.state
        }
        fed |= {n: np.zeros(info.shape, info.numpy_dtype) for n, info in before.items()}
        for inputs in _inputs(session.inputs, case.calls):
            want = dict(zip(names, reference.run(None, {**fed, **inputs}), strict=True))
            fed |= {n: want[output] for n, output in case.state.items()}
            for name, got in session.run(inputs).items():
                span = max(
                    float(np.ptp(want[name])), 1.0 if want[name].size == 1 else 1e-6
                )
                assert np.abs(got - want[name]).max() <= case.tolerance * span, name


@pytest.mark.parametrize("case", TFLITE, ids=lambda c: Path(c.path).stem)
def test_as_litert(case: Case) -> None:
    """Bit for bit, over a sequence."""
    with Session(case.compiled()) as session:
        assert session.manifest.state
        (info,) = session.inputs
        xs = [x[info.name] for x in _inputs(session.inputs, case.calls)]
        for x, (want,) in zip(
            xs, litert_calls(case.file.read_bytes(), xs), strict=True
        ):
            (got,) = session.run({info.name: x}).values()
            np.testing.assert_array_equal(got, want)
