"""Counts the cycles of other runtimes for an ONNX file on a board's core, by armlab's
`picycles`: LiteRT, ncnn, MNN and onnxruntime, each as its package on the index is.

ncnn and OpenVINO compute in float16 by themselves on cores that can; ncnn's float32 is a
peer of its own. MNN does so with `precision: low`, and LiteRT's XNNPACK for a file whose
metadata allow it. LiteRT runs what onnx2tf makes of the file. The arm64 wheels are of
`armlab/setup.sh user peers`, and OpenVINO's are put beside them by `OPENVINO`; converters
run on this machine, in environments of their own below build/.

A peer's outputs are compared with onnxruntime's by their mean and deviation, since some
converters leave out what they do not know without a word.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import flatbuffers
import numpy as np
import onnx
import onnxruntime
from ai_edge_litert import schema_py_generated as schema

from benchmarks.arm_guests.guest_outputs import OUTPUTS, filled, statistics
from benchmarks.peer_env import environment
from benchmarks.picycles import Picycles

GUESTS = Path(__file__).parent / "arm_guests"
PNNX = ("--no-deps", "pnnx==20261020")
"""Its program needs no torch, which the package asks for."""
MNN = ("MNN==3.6.1", "numpy<3")
ONNX2TF = ("onnx2tf==1.29.24",)
OPENVINO = "openvino==2026.4.1"
"""For arm64 and the Python of the emulated system: pip install --target
$ARMLAB_CACHE/site/openvino --only-binary :all: --python-version 3.11
--platform manylinux_2_35_aarch64 --platform manylinux_2_28_aarch64 openvino==2026.4.1"""
LITERT_F16 = "LiteRT f16"
PICTURES = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""The pictures that onnx2tf tries its result on."""
LIMIT_S = 900
TOLERANCE = 0.03
"""Share of an output's deviation by which a peer's mean and deviation may differ."""

Words = Sequence[str | Path]
"""A guest's program and its arguments."""
Statistics = Sequence[tuple[float, float]]
"""The mean and the deviation of each output."""


@dataclass(frozen=True)
class Peer:
    """A runtime.

    Attributes:
        site: its wheels, of armlab/setup.sh.
        package: the one of them whose version is the peer's.
        command: returns the guest's program and words for a model, which lies in the
            folder for what it is converted to and may be changed; raises
            CalledProcessError where that is refused.
    """

    site: str
    package: str
    command: Callable[[Path, Path], Words]


@dataclass(frozen=True)
class Result:
    """What one inference of a peer takes.

    Attributes:
        cycles: the estimate.
        agrees: whether its outputs are those of onnxruntime.
    """

    cycles: float
    agrees: bool


def with_sizes(model: Path) -> onnx.ModelProto:
    """Return a model whose inputs have 1 for each size that its file leaves open."""
    proto = onnx.load(model)
    for value in _inputs(proto):
        for size in value.type.tensor_type.shape.dim:
            size.dim_value = max(1, size.dim_value)
    return proto


def _inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that a caller gives."""
    # Older files list their weights among the inputs.
    weights = {constant.name for constant in proto.graph.initializer}
    return [value for value in proto.graph.input if value.name not in weights]


def _shape(model: Path) -> str:
    """Return the shape of the only input, for example 1x3x224x224."""
    (value,) = _inputs(onnx.load(model, load_external_data=False))
    return "x".join(str(d.dim_value) for d in value.type.tensor_type.shape.dim)


def _onnxruntime(model: Path, folder: Path) -> Words:
    return [GUESTS / "run_onnxruntime.py", model]


def _ncnn(model: Path, folder: Path) -> Words:
    python = environment("pnnx", PNNX)
    (program,) = python.parents[1].glob("lib/python*/site-packages/pnnx/pnnx")
    program.chmod(0o700)
    # It writes beside the file that it is given.
    _run([program, model], folder)
    return [GUESTS / "run_ncnn.py", model.with_suffix(""), _shape(model)]


def _ncnn_f32(model: Path, folder: Path) -> Words:
    return [*_ncnn(model, folder), "f32"]


def _mnn(model: Path, folder: Path) -> Words:
    # The package's own script of this name installs a program that reports its use.
    python = environment("mnn", MNN)
    words = ["mnnconvert", "-f", "ONNX", "--modelFile", str(model)]
    words += ["--MNNModel", "model.mnn", "--bizCode", "edgec"]
    _run([python, "-c", f"import _tools; _tools.mnnconvert({words!r})"], folder)
    return [GUESTS / "run_mnn.py", folder / "model.mnn", _shape(model)]


def _mnn_low(model: Path, folder: Path) -> Words:
    return [*_mnn(model, folder), "low"]


def _openvino(model: Path, folder: Path) -> Words:
    return [GUESTS / "run_openvino.py", model]


def is_float(file: Path) -> bool:
    """Return whether most tensors of a .tflite file are float32; True for other files."""
    if file.suffix != ".tflite":
        return True
    model = schema.ModelT.InitFromPackedBuf(file.read_bytes(), 0)
    types = [t.type for graph in model.subgraphs for t in graph.tensors]
    return 2 * types.count(schema.TensorType.FLOAT32) > len(types)


def allow_halves(source: Path, target: Path) -> None:
    """Write a .tflite file that XNNPACK may compute in float16, sums too.

    It reads the metadata `reduced_precision_support` (tensorflow/lite/tools/optimize/
    reduced_precision_metadata.h).
    """
    model = schema.ModelT.InitFromPackedBuf(source.read_bytes(), 0)
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(b"fp16accfp16")
    entry.name, entry.buffer = "reduced_precision_support", len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or ()), entry]
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    target.write_bytes(builder.Output())


def _litert_f16(model: Path, folder: Path) -> Words:
    program, twin, shape = _litert(model, folder)
    allow_halves(Path(twin), folder / "halves.tflite")
    return [program, folder / "halves.tflite", shape]


def _litert(model: Path, folder: Path) -> Words:
    python = environment("onnx2tf", ONNX2TF)
    shape = _shape(model)
    # It compares layers on pictures, which it would fetch where no such file is.
    pictures = np.random.default_rng(0).random((20, 128, 128, 3), np.float32)
    np.save(folder / PICTURES, pictures)
    program = python.parent / "onnx2tf"
    # LiteRT has no Erf of its own.
    _run([program, "-i", model, "-o", folder / "tf", "-rtpo", "erf"], folder)
    (twin,) = (folder / "tf").glob("*_float32.tflite")
    return [GUESTS / "run_litert.py", twin, shape]


def _run(command: Words, folder: Path) -> None:
    subprocess.run(
        command, cwd=folder, check=True, capture_output=True, timeout=LIMIT_S
    )


PEERS: Mapping[str, Peer] = {
    "LiteRT": Peer("litert", "ai_edge_litert", _litert),
    LITERT_F16: Peer("litert", "ai_edge_litert", _litert_f16),
    "ncnn": Peer("ncnn", "ncnn", _ncnn),
    "ncnn f32": Peer("ncnn", "ncnn", _ncnn_f32),
    "MNN": Peer("mnn", "mnn", _mnn),
    "MNN low": Peer("mnn", "mnn", _mnn_low),
    "onnxruntime": Peer("ort", "onnxruntime", _onnxruntime),
    "OpenVINO": Peer("openvino", "openvino", _openvino),
}


def measure(tool: Picycles, peer: Peer, model: Path, board: str) -> Result | None:
    """Return the result of one inference; None if the peer refuses the model."""
    with tempfile.TemporaryDirectory(prefix="edgec-") as name:
        copy = Path(name, "model.onnx")
        onnx.save(with_sizes(model), copy)
        try:
            command = peer.command(copy, Path(name))
        except (subprocess.SubprocessError, RuntimeError, ValueError):
            return None
        run = tool.guest(board, peer.site, command)
    if run is None:
        return None
    found = _printed(run.text)
    return Result(run.cycles, found is not None and _agree(found, _expected(model)))


@cache
def _expected(model: Path) -> Statistics:
    """Return the statistics of onnxruntime's outputs for the input of the guests."""
    options = onnxruntime.SessionOptions()
    # Without its warnings, one for each weight of an older file.
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        with_sizes(model).SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
    )
    given = {value.name: filled(value.shape) for value in session.get_inputs()}
    return statistics(session.run(None, given))


def _printed(text: str) -> Statistics | None:
    """Return the statistics that a guest printed; None if it printed none."""
    for line in text.splitlines():
        if line.startswith(OUTPUTS):
            pairs = json.loads(line.removeprefix(OUTPUTS))
            return [(float(mean), float(deviation)) for mean, deviation in pairs]
    return None


def _agree(found: Statistics, expected: Statistics) -> bool:
    """Return whether each expected output is among a peer's, in any order."""
    return all(any(_close(f, e) for f in found) for e in expected)


def _close(found: tuple[float, float], expected: tuple[float, float]) -> bool:
    mean, deviation = expected
    # An output that is the same everywhere has no deviation to compare with.
    allowed = TOLERANCE * max(deviation, 0.01 * abs(mean))
    # NaN, where halves overflow, is close to nothing.
    return (
        math.fabs(found[0] - mean) <= allowed
        and math.fabs(found[1] - deviation) <= allowed
    )


def digest(name: str) -> str:
    """Return a hash of how the peer is run, a part of the keys of its results."""
    programs = [path.read_bytes() for path in sorted(GUESTS.glob("*.py"))]
    requirements = repr((PNNX, MNN, ONNX2TF, TOLERANCE))
    texts = [name.encode(), requirements.encode(), *programs]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()
