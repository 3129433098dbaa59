"""Files of onnxruntime's static quantizer by edgec, beside onnxruntime.

Eight float models of the data folder, each quantized in eight ways: QDQ or QOperator,
activations uint8 or int8, weights per tensor or per channel. Both run the same photos.
Differences of outputs are in steps of the output's scale; of float outputs in 1/255 of
their range. Each is the largest of all outputs and photos:

    int8     operations of edgec's graph that compute integers, conversions not counted
    float    operations that compute floats
    steps    edgec beside onnxruntime as it runs the file on Arm
    default  edgec beside onnxruntime's default session on this machine; on x86-64 that
             computes much of QDQ files of int8 activations in floats
    itself   onnxruntime's default session beside one without any rewrite of the graph
    model    the file beside the float model, both by onnxruntime: what quantizing cost
    apart    the share of elements that are more than one step from onnxruntime on Arm
    TPU      the share of MACs on the Edge TPU of pi4+coral, and of the float model's with
             any scales

Markdown on the screen, build/quantized-onnx.json.

    python -m benchmarks.quantized_onnx [--models a,b] [--ways qdq-u8,qop-s8-channel]
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.accuracy_peer import OPSET, CalibrationReader
from benchmarks.data_folder import BUILD, model_file, photo_samples
from benchmarks.tables import line, markdown, names, write_json
from edgec.compiler.lower import lower
from edgec.errors import EdgecError
from edgec.frontends import read_model
from edgec.ir import Array, Graph, Value, interp
from edgec.options.compile import CompileOptions
from edgec.passes.pipeline import optimize

WORK = BUILD / "quantized-onnx"
REFUSALS = (Fail, InvalidGraph, NoKernel)
"""What onnxruntime raises for a file that it cannot run."""
MODELS = (
    "mnv2_035_128_st",
    "pfld_ghostone",
    "mp_selfie_land_onnx",
    "mp_blazeface_short_onnx_b",
    "ultraface_rfb320",
    "yunet_n_320",
    "fastestdet_onnx",
    "yolox_nano_416",
)
FORMATS = {"qdq": QuantFormat.QDQ, "qop": QuantFormat.QOperator}
TYPES = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}
WAYS = ["".join(way) for way in product(FORMATS, ("-u8", "-s8"), ("", "-channel"))]
CALIBRATION_PHOTOS = 20
PROVIDERS = ["CPUExecutionProvider"]
HEADS = [
    "model",
    "way",
    "int8",
    "float",
    "steps",
    "default",
    "itself",
    "model",
    "apart",
    "TPU",
]
Outputs = Sequence[Mapping[str, Array]]
"""The outputs for each photo by name."""


@dataclass(frozen=True)
class Row:
    """The figures of one file; the module describes them."""

    model: str
    way: str
    int8: int
    floats: int
    steps: float
    default: float
    itself: float
    of_model: float
    apart: float
    edgetpu: float
    edgetpu_float: float

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        model, way, int8, floats, *steps = astuple(self)[:8]
        shares = f"{self.edgetpu:.1%} of {self.edgetpu_float:.1%}"
        figures = [f"{s:.2f}" for s in steps]
        return [
            model,
            way,
            str(int8),
            str(floats),
            *figures,
            f"{self.apart:.2%}",
            shares,
        ]


def quantize(model: Path, way: str, samples: Array, path: Path) -> None:
    """Write what onnxruntime's quantizer makes of a float model."""
    form, activations, *channel = way.split("-")
    loaded = onnx.load(str(model))
    # onnxruntime does not fold weights that are inputs too.
    weights = {t.name for t in loaded.graph.initializer}
    inputs = [i for i in loaded.graph.input if i.name not in weights]
    del loaded.graph.input[:]
    loaded.graph.input.extend(inputs)
    if next(o.version for o in loaded.opset_import if o.domain == "") < OPSET:
        loaded = onnx.version_converter.convert_version(loaded, OPSET)
    with tempfile.TemporaryDirectory() as folder:
        source = str(Path(folder) / "source.onnx")
        onnx.save(loaded, source)
        quant_pre_process(source, source, skip_symbolic_shape=True)
        quantize_static(
            source,
            str(path),
            CalibrationReader(inputs[0].name, samples),
            FORMATS[form],
            per_channel=bool(channel),
            activation_type=TYPES[activations],
            weight_type=QuantType.QInt8,
        )


def onnxruntime_outputs(model: Path, samples: Array, kind: str = "arm") -> Outputs:
    """Return onnxruntime's outputs for each sample.

    Args:
        model: the file
        samples: the samples of its one input [N, ...]
        kind: "arm" for what it computes on Arm, "default" for its default session on this
            machine, "none" for a session without rewrites
    """
    session = _session(model, kind)
    outputs = [o.name for o in session.get_outputs()]
    name = session.get_inputs()[0].name
    return [
        dict(zip(outputs, session.run(None, {name: x}), strict=True)) for x in samples
    ]


def _session(model: Path, kind: str, precise: bool = True) -> InferenceSession:
    """Return a session whose sums do not saturate, if onnxruntime has such kernels.

    On x86-64 without VNNI it adds two products by int8 weights in 16 bits. `precise` makes
    uint8 of such weights; operators that read int8 have no such kernel.
    """
    options = SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", str(int(precise)))
    if kind == "arm":
        options.add_session_config_entry("session.qdqisint8allowed", "1")
    if kind == "none":
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return InferenceSession(str(model), options, providers=PROVIDERS)
    except REFUSALS:
        if not precise:
            raise
        return _session(model, kind, precise=False)


def step_distances(graph: Graph, value: Value, a: Outputs, b: Outputs) -> Array:
    """Return how many steps each element of an output differs by, for all photos."""
    x, y = (np.stack([p[value.name] for p in rows]).astype(float) for rows in (a, b))
    producer = graph.producers().get(value)
    if producer is not None and producer.kind == "dequantize":
        step = producer.inputs[0].type.scale
    else:
        step = max(float(np.ptp(x)), 1e-9) / 255
    return np.asarray(np.abs(x - y) / step)


def edgetpu_share(model: Path, assume: bool = False) -> float:
    """Return the share of the multiply-accumulates on the Edge TPU.

    Args:
        model: the file
        assume: whether any scales take the place of those that a float model lacks
    """
    lowered = lower(model, CompileOptions(target="pi4+coral"), assume=assume)
    segments = lowered.partition.segments
    macs = sum(s.macs for s in segments)
    return sum(s.macs for s in segments if s.place == "edgetpu") / max(1, macs)


def measure(model: str, way: str, photos: Array, count: int) -> Row:
    """Return the row of one file.

    Args:
        model: the float model's name
        way: how it is quantized
        photos: all samples [N, ...]
        count: how many of them test; the next ones calibrate

    Raises one of REFUSALS if onnxruntime cannot run the file.
    """
    test = photos[:count]
    file = WORK / f"{model}-{way}.onnx"
    if not file.is_file():
        quantize(model_file(model), way, photos[count:][:CALIBRATION_PHOTOS], file)
    graph = optimize(read_model(file))
    ops = [op for op in graph.ops if op.kind not in ("quantize", "dequantize")]
    floats = sum(any(v.type.dtype == "float32" for v in op.outputs) for op in ops)
    arm, default, unoptimized = (
        onnxruntime_outputs(file, test, kind) for kind in ("arm", "default", "none")
    )
    edgec = [interp(graph, {graph.inputs[0].name: x}) for x in test]
    of_model = onnxruntime_outputs(model_file(model), test)
    pairs = ((arm, edgec), (default, edgec), (default, unoptimized), (arm, of_model))
    steps, default_steps, itself_steps, model_steps = (
        max(float(step_distances(graph, v, *pair).max()) for v in graph.outputs)
        for pair in pairs
    )
    distances = [step_distances(graph, v, arm, edgec).ravel() for v in graph.outputs]
    return Row(
        model,
        way,
        len(ops) - floats,
        floats,
        steps,
        default_steps,
        itself_steps,
        model_steps,
        apart=float(np.mean(np.concatenate(distances) > 1.001)),
        edgetpu=edgetpu_share(file),
        edgetpu_float=edgetpu_share(model_file(model), assume=True),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=names, default=MODELS)
    parser.add_argument("--ways", type=names, default=WAYS)
    parser.add_argument("--photos", type=int, default=5, help="that test")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    WORK.mkdir(parents=True, exist_ok=True)
    print("\n".join(markdown(HEADS, [], texts=2)))
    rows: list[Row] = []
    for model in args.models:
        photos = np.stack(photo_samples(model))
        for way in args.ways:
            try:
                rows.append(measure(model, way, photos, args.photos))
                print(line(rows[-1].cells()), flush=True)
            except (EdgecError, *REFUSALS) as e:
                reason = str(e).splitlines()[0][:150]
                print(line([model, way, reason, *[""] * (len(HEADS) - 3)]), flush=True)
            write_json(BUILD / "quantized-onnx.json", rows)


if __name__ == "__main__":
    main()
