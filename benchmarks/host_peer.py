"""One engine with one model, as a child of benchmarks/bench_host.py: it times
inferences when asked to.

    python -m benchmarks.host_peer ENGINE MODEL THREADS INPUTS OUTPUTS

ENGINE: edgec (MODEL is a bundle), litert, onnxruntime or openvino. INPUTS: .npz of the
arrays in the model's order; what comes out is written to OUTPUTS. Then, for each line
of the standard input (seconds), inferences for as long, and a line of JSON: the medians
of an inference's CPU time and wall time in ms, and how many. An inference is: hand over
the inputs, run, take the outputs, all from Python.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Call = Callable[[], Sequence[Array]]


def _edgec(model: str, threads: int, inputs: Sequence[Array]) -> Call:
    from edgec_runtime import Session

    session = Session(model, tpu="c", threads=threads)
    given = {info.name: x for info, x in zip(session.inputs, inputs, strict=True)}
    return lambda: list(session.run(given).values())


def _litert(model: str, threads: int, inputs: Sequence[Array]) -> Call:
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(model, num_threads=threads)
    engine.allocate_tensors()
    places = [d["index"] for d in engine.get_input_details()]
    results = [d["index"] for d in engine.get_output_details()]

    def call() -> list[Array]:
        for place, x in zip(places, inputs, strict=True):
            engine.set_tensor(place, x)
        engine.invoke()
        return [engine.get_tensor(place) for place in results]

    return call


def _onnxruntime(model: str, threads: int, inputs: Sequence[Array]) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    given = {i.name: x for i, x in zip(session.get_inputs(), inputs, strict=True)}

    def call() -> list[Array]:
        outputs: list[Array] = session.run(None, given)
        return outputs

    return call


def _openvino(model: str, threads: int, inputs: Sequence[Array]) -> Call:
    import openvino

    core = openvino.Core()
    graph = core.read_model(model)
    graph.reshape({i: list(x.shape) for i, x in enumerate(inputs)})
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
    }
    compiled = core.compile_model(
        graph, "CPU", {**options, "INFERENCE_PRECISION_HINT": "f32"}
    )
    request = compiled.create_infer_request()
    given = dict(enumerate(inputs))

    def call() -> list[Array]:
        found = request.infer(given)
        return [found[i] for i in range(len(compiled.outputs))]

    return call


ENGINES: dict[str, Callable[[str, int, Sequence[Array]], Call]] = {
    "edgec": _edgec,
    "litert": _litert,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


def timed(call: Call, seconds: float) -> dict[str, float]:
    """CPU time of the process, since an engine may compute in a thread of its own also
    where it is given one.
    """
    cpu = list[int]()
    wall = list[int]()
    end = time.monotonic() + seconds
    while not wall or time.monotonic() < end:
        c = time.process_time_ns()
        w = time.monotonic_ns()
        call()
        wall.append(time.monotonic_ns() - w)
        cpu.append(time.process_time_ns() - c)
    return {
        "cpu": statistics.median(cpu) / 1e6,
        "wall": statistics.median(wall) / 1e6,
        "runs": len(wall),
    }


def main() -> None:
    engine, model, threads, inputs, outputs = sys.argv[1:]
    with np.load(inputs) as data:
        arrays = [np.ascontiguousarray(data[name]) for name in data.files]
    call = ENGINES[engine](model, int(threads), arrays)
    np.savez(Path(outputs), *call())
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(timed(call, float(line))), flush=True)


if __name__ == "__main__":
    main()
