"""One launch of a .tflite file on LiteRT's CompiledModel, timed by TFLite's own
benchmark tool or by edgec's loop.

    python -m benchmarks.peer_launch tool|edgec MODEL RUNS WARMUP [PLANTED]

WARMUP: inferences for the tool, which knows no other measure; seconds for edgec, as in
edgec bench. PLANTED: by this share edgec's inferences are made longer, to see that it
shows. JSON on the last line. Everything but the loop is the tool's own code in both:
the engine and its options, its buffers, and their data, which is random from one seed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.tools import benchmark_litert_model as tool
from edgec_runtime.model.timing import time_calls

SEED = 0


def by_tool(model: str, runs: int, warmup: float, planted: float) -> dict[str, Any]:
    """The tool's result.

    It rounds to 0.01 ms, a tenth of what a small model takes: here it keeps all digits.
    """
    # hides the built-in one from the tool's functions
    tool.round = lambda value, digits: value
    found: dict[str, Any] = tool.run_benchmark(_options(model, runs, round(warmup)))
    return found


def by_edgec(model: str, runs: int, warmup: float, planted: float) -> dict[str, Any]:
    """What the program of a bundle prints with --json, for a model without segments."""
    options = _options(model, runs, 0)
    (
        compiled_model,
        accelerator,
        environment,
        environment_options,
        model_options,
        cpu_options,
    ) = tool._import_litert()
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

    def call() -> tuple[int, ...]:
        engine.run_by_name(key, inputs, outputs)
        return ()

    def slower() -> tuple[int, ...]:
        start = time.monotonic_ns()
        call()
        end = start + (1 + planted) * (time.monotonic_ns() - start)
        while time.monotonic_ns() < end:
            pass
        return ()

    times = time_calls(slower if planted else call, runs, warmup=warmup)
    return {
        "load": None,
        "warmup": times.warmup,
        "at": times.at,
        "total": times.total,
        "segments": [],
    }


def _options(model: str, runs: int, warmup: int) -> Any:
    """As the tool reads them from its command line."""
    given = {"model": model, "num_runs": runs, "warmup_runs": warmup, "num_threads": 1}
    sys.argv = [
        "litert-benchmark",
        *(f"--{name}={value}" for name, value in given.items()),
    ]
    return tool.parse_args()


def _load() -> Mapping[str, float]:
    """Seconds of this process: on a processor, and waiting for one that others had."""
    try:
        waited = int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        waited = 0.0
    return {"cpu_s": time.process_time(), "waited_s": waited}


def main() -> None:
    how, model, runs, warmup, planted = [*sys.argv[1:], "0"][:5]
    np.random.seed(SEED)
    found = {"tool": by_tool, "edgec": by_edgec}[how](
        model, int(runs), float(warmup), float(planted)
    )
    print(json.dumps({**found, **_load()}))


if __name__ == "__main__":
    main()
