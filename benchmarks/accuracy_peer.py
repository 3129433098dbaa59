"""Quantizes one model by a public quantizer, in an environment of its own, and runs it.

    python accuracy_peer.py ENGINE METHOD MODEL CALIBRATION TEST OUT

CALIBRATION and TEST are .npz files with an array x [N, ...] of samples of the model's one
input. OUT is written: an .npz file with the outputs for the test samples, f0, f1, ... of
the float model and q0, q1, ... of the int8 one, in the model's order. The last line that
is printed is JSON: the seconds that quantizing took, and the most memory in MB.

It imports nothing of edgec, which the environments of peers do not have.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Network = Callable[[Array], Sequence[Array]]
"""Computes the outputs for one sample."""
OPSET = 13
"""The first opset with scales for each channel."""


def with_fixed_shape(model: str, shape: Sequence[int], path: Path) -> str:
    """Write a model with the shape of its one input and a recent opset.

    Args:
        model: the file
        shape: the input's shape
        path: where the result goes

    Returns:
        the path as text
    """
    import onnx
    from onnx import version_converter

    loaded = onnx.load(model)
    opsets = {o.domain: o.version for o in loaded.opset_import}
    if opsets.get("", opsets.get("ai.onnx", OPSET)) < OPSET:
        loaded = version_converter.convert_version(loaded, OPSET)
    # Older files list their weights among the inputs.
    weights = {t.name for t in loaded.graph.initializer}
    (value,) = (v for v in loaded.graph.input if v.name not in weights)
    for dim, size in zip(value.type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = size
    for value in loaded.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.ClearField("dim_param")
    onnx.save(onnx.shape_inference.infer_shapes(loaded), str(path))
    return str(path)


def prepared(model: str, shape: Sequence[int], folder: Path) -> str:
    """Write a model as onnxruntime's quantizer wants it, and return the path."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    path = str(folder / "prepared.onnx")
    fixed = with_fixed_shape(model, shape, folder / "fixed.onnx")
    quant_pre_process(fixed, path, skip_symbolic_shape=True)
    return path


def session_of(model: str) -> Any:
    """Return a session of onnxruntime with one thread.

    Its sums of uint8 by int8 must not saturate, as they do on x86-64 without VNNI: the
    quantizer is compared, not these kernels.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model, options, providers=providers)


def input_name(model: str) -> str:
    """Return the name of a model's one input."""
    name: str = session_of(model).get_inputs()[0].name
    return name


def network_of(model: str) -> Network:
    """Return an ONNX file as onnxruntime computes it."""
    session = session_of(model)
    name = session.get_inputs()[0].name
    return lambda x: list(session.run(None, {name: x}))


class CalibrationReader:
    """A CalibrationDataReader of onnxruntime.

    Args:
        name: the input's name
        samples: the array of samples
    """

    def __init__(self, name: str, samples: Array) -> None:
        self._feeds: Iterator[Mapping[str, Array]] = iter({name: s} for s in samples)

    def get_next(self) -> Mapping[str, Array] | None:
        """Return the next sample, and None after the last."""
        return next(self._feeds, None)

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return self._feeds

    def __next__(self) -> Mapping[str, Array]:
        return next(self._feeds)


def by_onnxruntime(method: str, model: str, samples: Array, folder: Path) -> Network:
    """Quantize to a QDQ file with weights per channel.

    The method is minmax or percentile, with -u8 for unsigned activations.
    """
    from onnxruntime.quantization import (
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    ranges, _, unsigned = method.partition("-")
    is_percentile = ranges == "percentile"
    source = prepared(model, samples.shape[1:], folder)
    path = str(folder / "int8.onnx")
    quantize_static(
        source,
        path,
        CalibrationReader(input_name(source), samples),
        QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8 if unsigned else QuantType.QInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=getattr(
            CalibrationMethod, "Percentile" if is_percentile else "MinMax"
        ),
        extra_options={"CalibPercentile": 99.99} if is_percentile else {},
    )
    return network_of(path)


def by_aimet(method: str, model: str, samples: Array, folder: Path) -> Network:
    """Quantize by AIMET's default configuration; the method chooses ranges."""
    import onnx
    from aimet_onnx import QuantizationSimModel

    source = prepared(model, samples.shape[1:], folder)
    scheme = {"enhanced": "tf_enhanced", "minmax": "min_max"}[method]
    sim = QuantizationSimModel(onnx.load(source), quant_scheme=scheme)
    name = input_name(source)
    sim.compute_encodings([{name: s} for s in samples])
    return lambda x: list(sim.session.run(None, {name: x}))


def by_esp_ppq(method: str, model: str, samples: Array, folder: Path) -> Network:
    """Quantize by esp-ppq; the method chooses ranges.

    The platform is onnxruntime's with zero points, which no platform with weights per
    channel has.
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
            properties = QuantizationProperty
            kinds = properties.ASYMMETRICAL, properties.LINEAR, properties.PER_TENSOR
            return QuantizationPolicy(sum(kinds))

    platform = TargetPlatform["EXTENSION"]
    register_network_quantizer(Asymmetric, platform)
    fixed = onnx.load(with_fixed_shape(model, samples.shape[1:], folder / "fixed.onnx"))
    simple, is_valid = simplify(fixed)
    path = str(folder / "simple.onnx")
    onnx.save(simple if is_valid else fixed, path)
    setting = QuantizationSettingFactory.default_setting()
    setting.quantize_activation_setting.calib_algorithm = method
    graph = quantize_onnx_model(
        path,
        [torch.from_numpy(s) for s in samples],
        max(8, len(samples)),
        list(samples.shape[1:]),
        platform,
        setting=setting,
        device="cpu",
    )
    executor = TorchExecutor(graph, device="cpu")
    return lambda x: [y.numpy() for y in executor(torch.from_numpy(x))]


ENGINES: Mapping[str, Callable[[str, str, Array, Path], Network]] = {
    "onnxruntime": by_onnxruntime,
    "aimet": by_aimet,
    "esp-ppq": by_esp_ppq,
}


def main() -> None:
    """Quantize, run both networks, and print the facts."""
    engine, method, model, calibration, test, out = sys.argv[1:]
    with np.load(calibration) as data:
        samples = data["x"]
    with np.load(test) as data:
        photos = data["x"]
    outputs: dict[str, Array] = {}
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        int8 = ENGINES[engine](method, model, samples, Path(folder))
        seconds = round(time.monotonic() - started, 1)
        for letter, network in (("f", network_of(model)), ("q", int8)):
            columns = zip(*map(network, photos), strict=True)
            outputs |= {f"{letter}{i}": np.stack(y) for i, y in enumerate(columns)}
    np.savez(out, allow_pickle=False, **outputs)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"seconds": seconds, "memory": memory}))


if __name__ == "__main__":
    main()
