"""A public quantizer with one model, as a child of benchmarks/accuracy_table.py, in
an environment of its own.

    python accuracy_peer.py ENGINE METHOD MODEL CALIBRATION TEST OUT

CALIBRATION, TEST: .npz with an array x [sample, …] of the model's one input.  OUT: .npz
of what this engine makes of the test samples, f0, f1, … with the float model and q0,
q1, … with the int8 one, in the model's order of outputs.  A line of JSON last: seconds
that quantizing took (not the imports, not the runs), the most memory in MB, and a note.

It needs numpy and the engine, nothing of edgec's: environments have no more.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Call = Callable[[Array], Sequence[Array]]
OPSET = 13


class Made:
    """What an engine makes of a model. quantized: called once, after the samples were
    seen; seconds: for that.
    """

    def __init__(
        self, floats: Call | None, quantized: Call, seconds: float, note: str = ""
    ) -> None:
        self.floats = floats
        self.quantized = quantized
        self.seconds = seconds
        self.note = note


# ---- ONNX
# --------------------------------------------------------------------------------------


def _fixed(model: str, shape: Sequence[int], out: Path) -> str:
    """The model as quantizers want it: the shape of its one input said, an opset that
    has scales per channel.
    """
    import onnx
    from onnx import version_converter

    loaded = onnx.load(model)
    if (
        next(o.version for o in loaded.opset_import if o.domain in ("", "ai.onnx"))
        < OPSET
    ):
        loaded = version_converter.convert_version(loaded, OPSET)
    known = {t.name for t in loaded.graph.initializer}
    (given,) = (v for v in loaded.graph.input if v.name not in known)
    for dim, n in zip(given.type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = n
    for value in loaded.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.ClearField("dim_param")
    onnx.save(onnx.shape_inference.infer_shapes(loaded), str(out))
    return str(out)


def _session(model: str) -> Call:
    """One thread; sums of uint8 by int8 that x86-64 without VNNI does not saturate: the
    peer is its quantizer.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    name = session.get_inputs()[0].name
    return lambda x: list(session.run(None, {name: x}))


class _Reader:
    """What onnxruntime calls a CalibrationDataReader."""

    def __init__(self, name: str, samples: Array) -> None:
        self._left = iter({name: s} for s in samples)

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._left, None)

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return self._left

    def __next__(self) -> Mapping[str, Array]:
        return next(self._left)


def _onnxruntime(method: str, model: str, samples: Array, folder: Path) -> Made:
    """QDQ, weights per channel; METHOD: minmax or percentile, of -u8 with unsigned
    activations.
    """
    from onnxruntime.quantization import (
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    how, _, unsigned = method.partition("-")
    started = time.monotonic()
    fixed = _fixed(model, samples.shape[1:], folder / "fixed.onnx")
    ready = folder / "ready.onnx"
    out = folder / "q.onnx"
    quant_pre_process(fixed, str(ready), skip_symbolic_shape=True)
    methods = {
        "minmax": (CalibrationMethod.MinMax, {}),
        "percentile": (CalibrationMethod.Percentile, {"CalibPercentile": 99.99}),
    }
    calibrate, extra = methods[how]
    quantize_static(
        str(ready),
        str(out),
        _Reader(_input_name(str(ready)), samples),
        QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8 if unsigned else QuantType.QInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=calibrate,
        extra_options=extra,
    )
    return Made(_session(model), _session(str(out)), time.monotonic() - started)


def _input_name(model: str) -> str:
    import onnxruntime

    name: str = (
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        .get_inputs()[0]
        .name
    )
    return name


def _aimet(method: str, model: str, samples: Array, folder: Path) -> Made:
    """METHOD: the scheme that ranges are found by.

    Weights per channel, as its default configuration says.
    """
    import onnx
    from aimet_onnx import QuantizationSimModel
    from onnxruntime.quantization.shape_inference import quant_pre_process

    scheme, _, config = method.partition("-")
    started = time.monotonic()
    fixed = _fixed(model, samples.shape[1:], folder / "fixed.onnx")
    ready = folder / "ready.onnx"
    quant_pre_process(fixed, str(ready), skip_symbolic_shape=True)
    scheme = {"enhanced": "tf_enhanced", "minmax": "min_max"}[scheme]
    sim = QuantizationSimModel(
        onnx.load(str(ready)), quant_scheme=scheme, config_file=config or "default"
    )
    name = _input_name(str(ready))
    sim.compute_encodings([{name: s} for s in samples])
    return Made(
        _session(model),
        lambda x: list(sim.session.run(None, {name: x})),
        time.monotonic() - started,
    )


def _esp_ppq(method: str, model: str, samples: Array, folder: Path) -> Made:
    """METHOD: the algorithm that ranges are found by, and after a dash the platform
    (its enumeration's name), or asymmetric: that of onnxruntime with zero points, which
    none of those with weights per channel has.
    """
    import onnx
    import torch
    from esp_ppq import QuantizationSettingFactory, TargetPlatform, TorchExecutor
    from esp_ppq.api import quantize_onnx_model
    from esp_ppq.core import QuantizationPolicy, QuantizationProperty
    from esp_ppq.lib import register_network_quantizer
    from esp_ppq.quantization.quantizer import OnnxruntimeQuantizer
    from onnxsim import simplify

    class Asymmetric(OnnxruntimeQuantizer):  # type: ignore[misc]
        def __init__(self, graph: Any) -> None:
            super().__init__(graph=graph)
            self._quant_min = 0
            self._quant_max = 255

        @property
        def quantize_policy(self) -> Any:
            kinds = (
                QuantizationProperty.ASYMMETRICAL,
                QuantizationProperty.LINEAR,
                QuantizationProperty.PER_TENSOR,
            )
            return QuantizationPolicy(sum(kinds))

    algorithm, _, platform = method.partition("-")
    target = TargetPlatform["EXTENSION" if platform == "asymmetric" else platform]
    if platform == "asymmetric":
        register_network_quantizer(Asymmetric, target)
    started = time.monotonic()
    fixed = _fixed(model, samples.shape[1:], folder / "fixed.onnx")
    simple, good = simplify(onnx.load(fixed))
    onnx.save(simple if good else onnx.load(fixed), str(folder / "simple.onnx"))
    setting = QuantizationSettingFactory.default_setting()
    setting.quantize_activation_setting.calib_algorithm = algorithm
    graph = quantize_onnx_model(
        str(folder / "simple.onnx"),
        [torch.from_numpy(s) for s in samples],
        max(8, len(samples)),
        list(samples.shape[1:]),
        target,
        setting=setting,
        device="cpu",
    )
    executor = TorchExecutor(graph, device="cpu")
    seconds = time.monotonic() - started
    return Made(
        _session(model),
        lambda x: [y.numpy() for y in executor(torch.from_numpy(x))],
        seconds,
    )


# ---- TFLite
# --------------------------------------------------------------------------------------


def _litert(model: str) -> tuple[Call, str]:
    """Real outputs of real inputs, whatever types the model's are; and the kernels, if
    not those of every day.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    note = ""
    try:
        engine = Interpreter(model, num_threads=1)
        engine.allocate_tensors()
        engine.invoke()
    except (RuntimeError, ValueError) as e:
        note = f"without XNNPACK, which says: {' '.join(str(e).split())[:120]}"
        engine = Interpreter(
            model,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        engine.allocate_tensors()
    (given,), wanted = engine.get_input_details(), engine.get_output_details()

    def call(x: Array) -> list[Array]:
        engine.set_tensor(given["index"], _levels(x, given))
        engine.invoke()
        return [_reals(engine.get_tensor(d["index"]), d) for d in wanted]

    return call, note


def _levels(x: Array, detail: Mapping[str, Any]) -> Array:
    scale, zero = detail["quantization"]
    if detail["dtype"] is np.float32 or not scale:
        return x.astype(detail["dtype"])
    info = np.iinfo(detail["dtype"])
    found: Array = np.clip(np.round(x / scale) + zero, info.min, info.max).astype(
        detail["dtype"]
    )
    return found


def _reals(y: Array, detail: Mapping[str, Any]) -> Array:
    scale, zero = detail["quantization"]
    if y.dtype == np.float32 or not scale:
        return y.copy()
    found: Array = (y.astype(np.float32) - zero) * np.float32(scale)
    return found


def _signed(model: str, out: Path) -> str:
    """The model with a signature, which the quantizer asks for and old files have not,
    as they have operators' codes in another field: without that it takes each for ADD.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    loaded = schema.ModelT.InitFromObj(
        schema.Model.GetRootAs(Path(model).read_bytes(), 0)
    )
    if loaded.signatureDefs:
        return model
    for code in loaded.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    graph = loaded.subgraphs[0]
    signature = schema.SignatureDefT()
    signature.signatureKey = b"serving_default"
    signature.subgraphIndex = 0
    signature.inputs, signature.outputs = (
        [
            _entry(schema.TensorMapT(), f"{what}{i}", index)
            for i, index in enumerate(places)
        ]
        for what, places in (("in", graph.inputs), ("out", graph.outputs))
    )
    loaded.signatureDefs = [signature]
    builder = flatbuffers.Builder()
    builder.Finish(loaded.Pack(builder), b"TFL3")
    out.write_bytes(bytes(builder.Output()))
    return str(out)


def _entry(entry: Any, name: str, index: int) -> Any:
    entry.name = name.encode()
    entry.tensorIndex = index
    return entry


def _tflite_quantizer(module: str) -> Callable[[str, str, Array, Path], Made]:
    """ai_edge_quantizer, or litert_quantizer, as it is called from 0.11 on."""

    def make(method: str, model: str, samples: Array, folder: Path) -> Made:
        from ai_edge_litert.interpreter import Interpreter

        quantizer = import_module(f"{module}.quantizer")
        recipe = import_module(f"{module}.recipe")
        started = time.monotonic()
        signed = _signed(model, folder / "signed.tflite")
        key, named = next(iter(Interpreter(signed).get_signature_list().items()))
        work = quantizer.Quantizer(signed, recipe.static_wi8_ai8())
        found = work.calibrate({key: [{named["inputs"][0]: s} for s in samples]})
        out = folder / "q.tflite"
        work.quantize(found).export_model(str(out))
        seconds = time.monotonic() - started
        quantized, note = _litert(str(out))
        return Made(_litert(model)[0], quantized, seconds, note)

    return make


def _published(method: str, model: str, samples: Array, folder: Path) -> Made:
    """A file that is int8 already."""
    call, note = _litert(model)
    return Made(None, call, 0.0, note)


ENGINES: Mapping[str, Callable[[str, str, Array, Path], Made]] = {
    "onnxruntime": _onnxruntime,
    "aimet": _aimet,
    "esp-ppq": _esp_ppq,
    "ai-edge-quantizer": _tflite_quantizer("ai_edge_quantizer"),
    "litert-quantizer": _tflite_quantizer("litert_quantizer"),
    "published": _published,
}


def main() -> None:
    engine, method, model, calibration, test, out = sys.argv[1:]
    with (
        np.load(calibration) as given,
        np.load(test) as shown,
        tempfile.TemporaryDirectory() as tmp,
    ):
        made = ENGINES[engine](method, model, given["x"], Path(tmp))
        found: dict[str, Array] = {}
        for letter, call in (("f", made.floats), ("q", made.quantized)):
            rows = [call(x) for x in shown["x"]] if call else []
            found |= {
                f"{letter}{i}": np.stack([r[i] for r in rows])
                for i in range(len(rows[0]) if rows else 0)
            }
    np.savez(out, allow_pickle=False, **found)
    print(
        json.dumps(
            {"seconds": round(made.seconds, 1), "memory": _memory(), "note": made.note}
        )
    )


def _memory() -> int:
    """The most this process had, MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(
        int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")
    )


if __name__ == "__main__":
    main()
