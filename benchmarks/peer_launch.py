"""Times one launch of a .tflite file on LiteRT's CompiledModel, by TFLite's own benchmark
tool or by edgec's loop.

    python -m benchmarks.peer_launch tool|edgec MODEL RUNS WARMUP [LONGER]

WARMUP is a number of inferences for the tool, which takes no other measure, and seconds
for edgec, like in edgec bench. LONGER is the share by which edgec's inferences are made
longer, to see that the comparison notices it. The last line is JSON. Engine, options and
buffers are the tool's in both cases, and so is their data, random from one seed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.tools import benchmark_litert_model as tool
from edgec_runtime.model.timing import time_calls

SEED = 0


def by_tool(model: str, runs: int, warmup: float) -> dict[str, Any]:
    """Return the tool's result."""
    # The tool rounds to 0.01 ms, a tenth of a small model's time: this keeps all digits.
    tool.round = lambda value, digits: value
    result: dict[str, Any] = tool.run_benchmark(_options(model, runs, round(warmup)))
    return result


def by_edgec(model: str, runs: int, warmup: float, longer: float) -> dict[str, Any]:
    """Return a report like the program of a bundle without segments prints it."""
    options = _options(model, runs, 0)
    compiled_model, accelerator, *kinds = tool._import_litert()
    environment, environment_options, model_options, cpu_options = kinds
    places = tool.build_hardware_accelerators(options, accelerator)
    engine = compiled_model.from_file(
        model,
        environment=tool.create_environment(options, environment, environment_options),
        options=tool.create_model_options(options, model_options, cpu_options, places),
    )
    key = next(iter(engine.get_signature_list()))
    details = engine.get_input_tensor_details(key)
    inputs = {name: engine.create_input_buffer_by_name(key, name) for name in details}
    outputs = {
        name: engine.create_output_buffer_by_name(key, name)
        for name in engine.get_output_tensor_details(key)
    }
    for name, buffer in inputs.items():
        tool.fill_random_input(buffer, details[name])

    def infer() -> tuple[int, ...]:
        start = time.monotonic_ns()
        engine.run_by_name(key, inputs, outputs)
        end = start + (1 + longer) * (time.monotonic_ns() - start)
        while longer and time.monotonic_ns() < end:
            pass
        return ()

    times = time_calls(infer, runs, warmup=warmup)
    facts = {"warmup": times.warmup, "at": times.at, "total": times.total}
    return {"load": None, "segments": [], **facts}


def _options(model: str, runs: int, warmup: int) -> Any:
    """Return the tool's options, which it reads from its command line."""
    words = [f"--model={model}", f"--num_runs={runs}", f"--warmup_runs={warmup}"]
    sys.argv = ["litert-benchmark", *words, "--num_threads=1"]
    return tool.parse_args()


def main() -> None:
    """Print the result, with the seconds on a processor and of waiting for one."""
    way, model, runs, warmup, longer = [*sys.argv[1:], "0"][:5]
    np.random.seed(SEED)
    if way == "tool":
        result = by_tool(model, int(runs), float(warmup))
    else:
        result = by_edgec(model, int(runs), float(warmup), float(longer))
    waited = int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    load = {"cpu_s": time.process_time(), "waited_s": waited}
    print(json.dumps({**result, **load}))


if __name__ == "__main__":
    main()
