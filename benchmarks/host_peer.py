"""Runs one model with one engine for bench_host.py, and times inferences on request.

    python -m benchmarks.host_peer ENGINE MODEL THREADS INPUTS OUTPUTS

ENGINE is edgec (MODEL is a bundle), litert, onnxruntime or openvino. INPUTS is an .npz file
with the arrays in the model's order; the outputs are written to OUTPUTS. Then each line of
the standard input is a number of seconds to run for, and is answered by a line of JSON: the
medians of an inference's CPU time and wall time in ms. An inference hands over the inputs,
runs, and takes the outputs, all from Python.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Inference = Callable[[], Sequence[Array]]
"""Computes the outputs."""


def _edgec(model: str, threads: int, inputs: Sequence[Array]) -> Inference:
    from edgec_runtime import Session

    session = Session(model, tpu="c", threads=threads)
    feeds = {info.name: x for info, x in zip(session.inputs, inputs, strict=True)}
    return lambda: list(session.run(feeds).values())


def _litert(model: str, threads: int, inputs: Sequence[Array]) -> Inference:
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(model, num_threads=threads)
    engine.allocate_tensors()
    input_numbers = [info["index"] for info in engine.get_input_details()]
    output_numbers = [info["index"] for info in engine.get_output_details()]

    def infer() -> list[Array]:
        for number, x in zip(input_numbers, inputs, strict=True):
            engine.set_tensor(number, x)
        engine.invoke()
        return [engine.get_tensor(number) for number in output_numbers]

    return infer


def _onnxruntime(model: str, threads: int, inputs: Sequence[Array]) -> Inference:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model, options, providers=providers)
    feeds = {i.name: x for i, x in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: list(session.run(None, feeds))


def _openvino(model: str, threads: int, inputs: Sequence[Array]) -> Inference:
    import openvino

    core = openvino.Core()
    graph = core.read_model(model)
    graph.reshape({i: list(x.shape) for i, x in enumerate(inputs)})
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(graph, "CPU", options)
    request = compiled.create_infer_request()
    feeds = dict(enumerate(inputs))

    def infer() -> list[Array]:
        outputs = request.infer(feeds)
        return [outputs[i] for i in range(len(compiled.outputs))]

    return infer


ENGINES: Mapping[str, Callable[[str, int, Sequence[Array]], Inference]] = {
    "edgec": _edgec,
    "litert": _litert,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


def times(infer: Inference, seconds: float) -> dict[str, float]:
    """Run for some seconds, and return the medians of an inference in ms.

    The CPU time is the process's: an engine may compute in a thread of its own even if it
    is allowed only one.
    """
    cpu: list[int] = []
    wall: list[int] = []
    end = time.monotonic() + seconds
    while not wall or time.monotonic() < end:
        cpu_start = time.process_time_ns()
        wall_start = time.monotonic_ns()
        infer()
        wall.append(time.monotonic_ns() - wall_start)
        cpu.append(time.process_time_ns() - cpu_start)
    return {"cpu": median(cpu) / 1e6, "wall": median(wall) / 1e6}


def main() -> None:
    """Write the outputs, and answer requests."""
    engine, model, threads, inputs, outputs = sys.argv[1:]
    with np.load(inputs) as data:
        arrays = [np.ascontiguousarray(x) for x in data.values()]
    infer = ENGINES[engine](model, int(threads), arrays)
    np.savez(outputs, *infer())
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(times(infer, float(line))), flush=True)


if __name__ == "__main__":
    main()
