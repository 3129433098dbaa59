"""Files of onnxruntime's static quantizer through edgec, beside onnxruntime: `make
quantized-onnx`.

Eight float models of the data folder (EDGEC_SHARED, default ../shared), each quantized
in every way: QDQ and QOperator, activations uint8 and int8, weights per tensor and per
channel. Both run the same photos.

    int8, left   ops of the graph that edgec makes of the file, conversions apart, and those that
                 are left in float
    steps        the largest difference of an output from onnxruntime's as it runs on Arm, in
                 steps of its scale; in
                 1/255 of its range where floats follow
    default      the same from onnxruntime's default session on this machine: on x86-64 that
                 computes much of QDQ files
                 of int8 activations in floats, whose sums may round to the other of two steps
    itself       the same between onnxruntime with all its rewrites and with none
    float        the same between the file and the float model, both by onnxruntime: what
                 quantizing cost
    apart        the part of the outputs' elements that are more than one step apart
    top-1, mask  how often the largest element is the same; the part of a mask's pixels that is
    Edge TPU     the part of the multiply-accumulates on pi4+coral, and of the float model's with
                 made-up scales

Markdown on the screen, build/quantized-onnx.json. `--compile` also compiles each for
host and for pi4+coral.

    python -m benchmarks.quantized_onnx [--models a,b] [--ways qdq-u8,qop-s8-channel] [--photos
        N] [--compile]
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

import edgec
from benchmarks.accuracy_rows import ROOT, SHARED
from benchmarks.accuracy_ways import PREPROCESS
from edgec.compiler.lower import lower
from edgec.errors import EdgecError
from edgec.frontends import read_model
from edgec.ir import Array, Graph, Op, Value, interp
from edgec.options.compile import CompileOptions
from edgec.passes.pipeline import optimize
from edgec.quantize import choose, load_calibration

WORK = ROOT / "build" / "quantized-onnx"
REFUSALS = (Fail, InvalidGraph, NoKernel)
"""What onnxruntime raises for a file that it cannot run."""

MODELS = (
    "mnv2_035_128_st,pfld_ghostone,mp_selfie_land_onnx,mp_blazeface_short_onnx_b,ultraface_rfb320,yunet_n_320,"
    "fastestdet_onnx,yolox_nano_416"
)
MASKS = ("mp_selfie_land_onnx",)
FORMATS = {"qdq": QuantFormat.QDQ, "qop": QuantFormat.QOperator}
TYPES = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}
WAYS = tuple(
    "-".join((*w[:2], *w[2])) for w in product(FORMATS, TYPES, ((), ("channel",)))
)
CALIBRATION = 20
_PER_CHANNEL = 13
"""The first opset whose DequantizeLinear has an axis."""


@dataclass
class Row:
    """One file."""

    model: str
    way: str
    int8: int = 0
    floats: str = ""
    steps: float = 0.0
    default: float = 0.0
    itself: float = 0.0
    of_float: float = 0.0
    apart: float = 0.0
    top1: float | None = None
    mask: float | None = None
    edgetpu: float = 0.0
    edgetpu_float: float = 0.0
    note: str = ""

    def markdown(self) -> str:
        """A line of the table."""
        agree = [f"{100 * v:.1f} %" for v in (self.top1, self.mask) if v is not None]
        steps = (
            f"{self.steps:.2f} | {self.default:.2f} | {self.itself:.2f} | "
            f"{self.of_float:.1f}"
        )
        figures = f"{steps} | {100 * self.apart:.2f} % | {', '.join(agree)}"
        tpu = f"{100 * self.edgetpu:.1f} % of {100 * self.edgetpu_float:.1f} %"
        return (
            f"| {self.model} | {self.way} | {self.int8} | {self.floats} | "
            f"{figures} "
            f"| {tpu} | {self.note} |"
        )


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, name: str, samples: Sequence[Array]) -> None:
        self._samples: Iterator[Mapping[str, Array]] = iter(
            [{name: s} for s in samples]
        )

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._samples, None)


def _recent(model: onnx.ModelProto) -> onnx.ModelProto:
    """In an opset that has scales per channel, and without weights as inputs, which
    onnxruntime does not fold.
    """
    weights = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    old = next(o.version for o in model.opset_import if o.domain == "") < _PER_CHANNEL
    return onnx.version_converter.convert_version(model, _PER_CHANNEL) if old else model


def quantized(model: Path, way: str, samples: Sequence[Array], out: Path) -> None:
    """What onnxruntime's quantizer makes of a float model."""
    form, acts, *channel = way.split("-")
    options = SessionOptions()
    name = (
        InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        .get_inputs()[0]
        .name
    )
    with tempfile.TemporaryDirectory() as tmp:
        ready = Path(tmp) / "ready.onnx"
        onnx.save(_recent(onnx.load(str(model))), str(ready))
        quant_pre_process(str(ready), str(ready), skip_symbolic_shape=True)
        quantize_static(
            str(ready),
            str(out),
            _Samples(name, samples),
            FORMATS[form],
            per_channel=bool(channel),
            activation_type=TYPES[acts],
            weight_type=QuantType.QInt8,
        )


def onnxruntime_outputs(
    model: Path, samples: Sequence[Array], way: str = "arm"
) -> list[dict[str, Array]]:
    """Of each sample.

    way: "arm" is what onnxruntime does with the file there, "default" what its default
    session does on this machine, "none" what it does without any rewrite.
    """
    session = _session(model, way)
    names = [o.name for o in session.get_outputs()]
    return [
        dict(
            zip(
                names,
                session.run(names, {session.get_inputs()[0].name: s}),
                strict=True,
            )
        )
        for s in samples
    ]


def _session(model: Path, way: str, exact: bool = True) -> InferenceSession:
    """On x86-64 without VNNI sums of two products by int8 weights end at 16 bits, and
    the figures are worth less.

    exact: not so, as uint8 is made of such weights; neither "none" nor operators that
    read int8 have that.
    """
    options = SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1" if exact else "0")
    if way == "arm":
        options.add_session_config_entry("session.qdqisint8allowed", "1")
    if way == "none":
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except REFUSALS:
        if not exact:
            raise
        return _session(model, way, exact=False)


Outputs = Sequence[Mapping[str, Array]]


def apart(v: Value, maker: Op | None, want: Outputs, got: Outputs) -> Array:
    """How many steps every element of an output differs by, in all samples."""
    if maker is not None and maker.kind == "dequantize":
        source = maker.inputs[0].type
    else:
        source = None
    a, b = (
        np.stack([y[v.name] for y in all_]).astype(np.float64) for all_ in (want, got)
    )
    step = source.scale if source is not None else max(float(np.ptp(a)), 1e-9) / 255
    return np.asarray(np.abs(a - b) / step)


def compare(row: Row, graph: Graph, got: Outputs, peers: Mapping[str, Outputs]) -> None:
    """The figures of the outputs: edgec beside onnxruntime with the file ("arm",
    "default", "none") and the model.
    """
    makers = graph.producers()
    tops = list[bool]()
    masks = list[float]()
    far = 0
    size = 0
    want = peers["arm"]
    for v in graph.outputs:
        off = apart(v, makers.get(v), want, got)
        row.steps = max(row.steps, float(off.max()))
        row.default = max(
            row.default, float(apart(v, makers.get(v), peers["default"], got).max())
        )
        row.itself = max(
            row.itself,
            float(apart(v, makers.get(v), peers["default"], peers["none"]).max()),
        )
        row.of_float = max(
            row.of_float, float(apart(v, makers.get(v), want, peers["float"]).max())
        )
        far = far + int((off > 1.001).sum())
        size = size + off.size
        for w, g in zip(want, got, strict=True):
            if w[v.name].shape[-1] == w[v.name].size > 1:
                tops.append(int(w[v.name].argmax()) == int(g[v.name].argmax()))
            if row.model in MASKS:
                masks.append(float(((w[v.name] > 0.5) == (g[v.name] > 0.5)).mean()))
    row.apart = far / max(1, size)
    row.top1 = float(np.mean(tops)) if tops else None
    row.mask = float(np.mean(masks)) if masks else None


def share(model: Path, assume: bool = False) -> float:
    """The part of the multiply-accumulates that run on the Edge TPU."""
    parts = lower(
        model, CompileOptions(target="pi4+coral"), assume=assume
    ).partition.segments
    return sum(s.macs for s in parts if s.place == "edgetpu") / max(
        1, sum(s.macs for s in parts)
    )


def measure(
    row: Row,
    file: Path,
    calibration: Sequence[Array],
    test: Sequence[Array],
    both: bool,
) -> None:
    """Make one file and take it through everything."""
    made = WORK / f"{row.model}-{row.way}.onnx"
    if not made.is_file():
        quantized(file, row.way, calibration, made)
    graph = optimize(read_model(made))
    computed = [op for op in graph.ops if op.kind not in ("quantize", "dequantize")]
    kinds = [
        op.kind for op in computed if any(v.type.dtype == "float32" for v in op.outputs)
    ]
    row.int8 = len(computed) - len(kinds)
    row.floats = ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds))
    row.edgetpu = share(made)
    try:
        peers = {
            way: onnxruntime_outputs(made, test, way)
            for way in ("arm", "default", "none")
        }
    except REFUSALS as e:
        row.note = f"onnxruntime cannot run it: {str(e).splitlines()[0][-90:]}"
        return
    got = [interp(graph, {graph.inputs[0].name: s}) for s in test]
    compare(row, graph, got, {**peers, "float": onnxruntime_outputs(file, test)})
    if both:
        for target in ("host", "pi4+coral"):
            edgec.compile(
                made, target=target, output=made.with_suffix(f".{target}.edgec")
            )
        row.note = "compiled"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--photos", type=int, default=5)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "quantized-onnx.json"
    )
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    WORK.mkdir(parents=True, exist_ok=True)
    index = {
        m["name"]: m for m in json.loads((SHARED / "models" / "index.json").read_text())
    }
    print(
        "| model | way | int8 | left | steps | default | itself | float | apart | "
        "top-1, mask | Edge TPU | |"
    )
    print("| --- | --- | --: | --- | --: | --: | --: | --: | --: | --: | --: | --- |")
    rows: list[Row] = []
    for model in args.models.split(","):
        file = SHARED / "models" / index[model]["file"]
        inputs = read_model(file).inputs
        chosen = choose(inputs, PREPROCESS[index[model]["preproc"]], {})[inputs[0].name]
        photos = [
            s[inputs[0].name]
            for s in load_calibration(SHARED / "data" / "photos", inputs, chosen)
        ]
        test = photos[: args.photos]
        calibration = photos[args.photos :][:CALIBRATION]
        of_float = share(file, assume=True)
        for way in args.ways.split(","):
            row = Row(model, way, edgetpu_float=of_float)
            rows.append(row)
            try:
                measure(row, file, calibration, test, args.compile)
            except EdgecError as e:
                row.note = f"failed: {e.what}"
            print(row.markdown(), flush=True)
            args.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))


if __name__ == "__main__":
    main()
