"""Files of ai-edge-quantizer through edgec, beside LiteRT: `make quantized-tflite`.

Float models of the data folder (EDGEC_SHARED, default ../shared), each quantized in
every way: static int8, dynamic range, weights alone, and 16-bit activations. Both run
the same photos; LiteRT by its reference kernels.

    int8, left  ops of the graph that edgec makes of the file, conversions apart, and those that
                are left in float
    apart       the largest difference of an output, in reals, as a part of the range
    float       the same between the file and the float model, both by LiteRT: what quantizing
                cost

Markdown on the screen, build/quantized-tflite.json; exit 1 where a file is not read, a
static int8 file not bit for bit, or one of weights alone not within 1e-4. Not where the
quantizer fails, or LiteRT with its file: that is noted. The quantizer gets an
environment of its own under build/.

    python -m benchmarks.quantized_tflite [--models a,b] [--ways static_wi8_ai8] [--photos N]
        [--compile]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import edgec
from benchmarks.accuracy_rows import ROOT, SHARED
from benchmarks.accuracy_ways import PREPROCESS
from benchmarks.peer_env import environment
from edgec.errors import EdgecError
from edgec.frontends import read_model
from edgec.ir import Array, Graph, interp
from edgec.ir.types import dequantize
from edgec.passes.pipeline import optimize
from edgec.quantize import choose, load_calibration

WORK = ROOT / "build" / "quantized-tflite"
MODELS = (
    "resnet8_f32,vww96_f32,mnv1_025_224_f32,ultraface_rfb320_tflite,deeplabv3_257_f32"
)
WAYS: Mapping[str, float | None] = {
    "static_wi8_ai8": 1e-6,  # the same integers
    "weight_only_wi8_afp32": 1e-4,
    "dynamic_wi8_afp32": None,
    "static_wi8_ai16": None,
}
"""Recipes, and how far outputs may be from LiteRT's: those without a figure are
computed otherwise there.
"""
CALIBRATION = 20


@dataclass
class Row:
    """One file. apart, of_float: see above."""

    model: str
    way: str
    int8: int = 0
    floats: str = ""
    apart: float = 0.0
    of_float: float = 0.0
    note: str = ""
    wrong: bool = False

    def markdown(self) -> str:
        """A line of the table."""
        figures = (
            f"{self.int8} | {self.floats} | {self.apart:.3g} | {self.of_float:.3g}"
        )
        return f"| {self.model} | {self.way} | {figures} | {self.note} |"


def quantized(
    python: Path, model: Path, way: str, samples: Sequence[Array], out: Path
) -> None:
    """The file that the quantizer makes. Raises RuntimeError with its last line."""
    given = WORK / "samples.npz"
    np.savez(given, x=np.stack(samples))
    script = Path(__file__).with_name("tflite_quantizer.py")
    command = [str(python), str(script), str(model), way, str(given), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(
            f"the quantizer says: {done.stderr.strip().splitlines()[-1][:150]}"
        )


def litert_outputs(model: Path, samples: Sequence[Array]) -> list[list[Array]]:
    """Of each sample, by the reference kernels; in reals, as the samples are."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    engine = Interpreter(
        str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    engine.allocate_tensors()
    found = []
    for x in samples:
        given = engine.get_input_details()[0]
        engine.set_tensor(given["index"], levels(x, given))
        engine.invoke()
        found.append(
            [
                reals(engine.get_tensor(d["index"]), d)
                for d in engine.get_output_details()
            ]
        )
    return found


def levels(x: Array, detail: Mapping[str, Any]) -> Array:
    """A sample in the element type of an input."""
    if detail["dtype"] is np.float32:
        return x
    (scale, zero), info = detail["quantization"], np.iinfo(detail["dtype"])
    return np.asarray(
        np.clip(np.round(x / scale) + zero, info.min, info.max).astype(detail["dtype"])
    )


def reals(y: Array, detail: Mapping[str, Any]) -> Array:
    """What an output stands for."""
    scale, zero = detail["quantization"]
    if y.dtype == np.float32:
        return y
    return np.asarray((y.astype(np.float32) - zero) * np.float32(scale))


def apart(got: Sequence[Array], want: Sequence[Array]) -> float:
    """The largest difference of any output, as a part of its range."""
    return max(
        float(np.abs(a - b).max()) / (float(np.ptp(b)) or 1.0)
        for a, b in zip(got, want, strict=True)
    )


def measure(
    row: Row,
    python: Path,
    model: Path,
    given: Sequence[Array],
    test: Sequence[Array],
    both: bool,
) -> None:
    """Make one file and read it."""
    made = WORK / f"{row.model}-{row.way}.tflite"
    if not made.is_file():
        try:
            quantized(python, model, row.way, given, made)
        except RuntimeError as e:
            row.note = str(e)
            return
    graph = optimize(read_model(made))
    computed = [op for op in graph.ops if op.kind not in ("quantize", "dequantize")]
    kinds = [
        op.kind for op in computed if any(v.type.dtype == "float32" for v in op.outputs)
    ]
    row.int8 = len(computed) - len(kinds)
    row.floats = ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds))
    got = [_edgec(graph, s) for s in test]
    try:
        want = litert_outputs(made, test)
    except RuntimeError as e:
        row.note = f"LiteRT cannot run it: {' '.join(str(e).split())}"[:150]
        return
    row.apart = max(apart(g, w) for g, w in zip(got, want, strict=True))
    row.of_float = max(
        apart(w, f) for w, f in zip(want, litert_outputs(model, test), strict=True)
    )
    allowed = WAYS[row.way]
    row.wrong = allowed is not None and row.apart > allowed
    if both:
        for target in ("host", "pi4+coral"):
            edgec.compile(
                made,
                target=target,
                output=made.with_suffix(f".{target}.edgec"),
                allow_float=True,
            )
        row.note = "compiled"


def _edgec(graph: Graph, sample: Array) -> list[Array]:
    """The outputs in reals."""
    (x,) = graph.inputs
    own = {
        "dtype": x.type.np_dtype.type,
        "quantization": (x.type.scale, x.type.zero_point) if x.type.quant else None,
    }
    got = interp(graph, {x.name: levels(sample, own)})
    return [dequantize(got[v.name], v.type) for v in graph.outputs]


def photos(entry: Mapping[str, Any]) -> list[Array]:
    inputs = read_model(SHARED / "models" / entry["file"]).inputs
    chosen = choose(inputs, PREPROCESS[entry["preproc"]], {})[inputs[0].name]
    return [
        s[inputs[0].name]
        for s in load_calibration(SHARED / "data" / "photos", inputs, chosen)
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--photos", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    try:
        python = environment("ai-edge-quantizer")
    except RuntimeError as e:
        print(f"skipped: {e}")
        return 0
    WORK.mkdir(parents=True, exist_ok=True)
    index = {
        m["name"]: m for m in json.loads((SHARED / "models" / "index.json").read_text())
    }
    print(
        "| model | way | int8 | left | apart | float | |\n| --- | --- | --: "
        "| --- | --: | --: | --- |"
    )
    rows: list[Row] = []
    for model in args.models.split(","):
        images = photos(index[model])
        for way in args.ways.split(","):
            rows.append(row := Row(model, way))
            try:
                file = SHARED / "models" / index[model]["file"]
                measure(
                    row,
                    python,
                    file,
                    images[args.photos :][:CALIBRATION],
                    images[: args.photos],
                    args.compile,
                )
            except EdgecError as e:
                row.note = f"failed: {e}"[:200]
                row.wrong = True
            print(row.markdown(), flush=True)
    (ROOT / "build" / "quantized-tflite.json").write_text(
        json.dumps([asdict(r) for r in rows], indent=1)
    )
    return int(any(r.wrong for r in rows))


if __name__ == "__main__":
    sys.exit(main())
