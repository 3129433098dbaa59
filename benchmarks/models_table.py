"""Every model of the data folder: read, printed and parsed again, compiled, and its
outputs compared with reference outputs; some also on an emulated Pi and with an Edge TPU.

References are those of TFLite's reference kernels for integers, and of onnxruntime or
LiteRT for floats. Markdown on the screen, build/models-table.json; the exit code is 1 if
anything is wrong that EXPLANATIONS does not explain.

    python -m benchmarks.models_table [--models a,b] [--targets host,pi4]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from edgec_runtime import Bundle

from benchmarks.data_folder import BUILD, MODELS, index, model_file
from benchmarks.tables import line, markdown, names, write_json
from edgec.errors import EdgecError
from edgec.frontends import read_model
from edgec.ir import Array, parse, print_graph

WORK = BUILD / "models"
EDGEC = (sys.executable, "-m", "edgec")
LIMIT_S = 3600
FOR_ALL_TARGETS = (
    "resnet8_i8",
    "resnet8_f32",
    "vww96_i8",
    "mnv1_025_128_u8",
    "mnv2_tf2_i8",
    "prisma_i8",
    "prisma_f32",
    "mnv1_025_224_f32",
    "mp_selfie_land_onnx",
    "mp_face_landmark_onnx",
    "ultraface_rfb320",
    "prisma_onnx",
    "pfld_ghostone",
)
"""The models that are compiled for all targets; the others for this machine alone."""
TARGETS = ("host", "pi4", "pi4+coral")
FLOAT_TOLERANCE = 1e-4
"""The largest difference of floats, as a share of the reference's range."""


@dataclass(frozen=True)
class Explanation:
    """Why a model differs more than others.

    Attributes:
        reason: what is known of it
        tolerance: its largest difference, as a share of the reference's range
    """

    reason: str
    tolerance: float


EXPLANATIONS: Mapping[str, Explanation] = {
    "yunet_n_320": Explanation(
        "the scores of its coarsest grid are all below 0.0005 on this photo, and the last "
        "bit of onnxruntime's sigmoid, 1.1e-7, is 2.5e-4 of that range",
        3e-4,
    ),
    "kws_dscnn_f32": Explanation(
        "its convolutions have int8 weights beside float activations, which TFLite's "
        "kernels round to int8: 2 % of the range from what the weights give in doubles",
        2e-4,
    ),
}


@dataclass
class Row:
    """One model on one target.

    Attributes:
        model: its name
        target: the target
        ops: the number of its operations
        segments: the place of each segment
        edgetpu: the share of MACs on the Edge TPU
        arena: the largest arena of a segment, bytes
        local: the largest difference from the reference on this machine
        emulated: the same on an emulated Pi
        problems: what is wrong
        explanation: why a difference is no problem
    """

    model: str
    target: str
    ops: int = 0
    segments: str = ""
    edgetpu: float = 0.0
    arena: int = 0
    local: float | None = None
    emulated: float | None = None
    problems: list[str] = field(default_factory=list)
    explanation: str = ""

    def cells(self) -> list[str]:
        """Return the row of the table: the model, its checks and its figures."""
        differences = [
            "" if d is None else f"{d:.3g}" for d in (self.local, self.emulated)
        ]
        verdict = "; ".join(self.problems) or self.explanation or "ok"
        sizes = (str(self.ops), f"{self.edgetpu:.1%}", str(self.arena))
        place = (self.model, self.target, self.segments)
        return [*place, *sizes, *differences, verdict]


HEADS = (
    "model",
    "target",
    "segments",
    "ops",
    "MACs on TPU",
    "arena",
    "local",
    "emulated Pi",
    "verdict",
)


def run(*command: str | Path) -> None:
    """Run a command; raise RuntimeError with the end of its error output if it fails."""
    words = [str(word) for word in command]
    process = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words[2:5])}: {process.stderr[-600:].strip()}")


def measure(model: str, target: str) -> Row:
    """Return the row of a model on a target."""
    row = Row(model, target)
    reference = reference_of(model)
    bundle = WORK / f"{model}-{target}.edgec"
    try:
        shapes = open_shapes(model)
        row.ops = check_text(model_file(model), shapes)
        words = [
            f"--input-shape={name}={'x'.join(map(str, shape))}"
            for name, shape in shapes.items()
        ]
        command = ("compile", model_file(model), "--target", target, "--allow-float")
        run(*EDGEC, *command, *words, "-o", bundle)
        _describe(row, bundle)
        if reference is not None:
            row.local = _difference(row, bundle, reference, "local:")
        if reference is not None and target != "host":
            row.emulated = _difference(row, bundle, reference, "emulated:pi4")
    except (RuntimeError, EdgecError, subprocess.TimeoutExpired) as e:
        row.problems.append(str(e).replace("\n", " "))
    return row


def reference_of(model: str) -> Path | None:
    """Return the file of a model's reference inputs and outputs, if it has one."""
    reference = index()[model].get("ref")
    return None if reference is None else MODELS / str(reference["file"])


def open_shapes(model: str) -> dict[str, tuple[int, ...]]:
    """Return the reference's shapes of inputs that are open in more than the batch."""
    reference = reference_of(model)
    if reference is None:
        return {}
    with np.load(reference) as arrays:
        return {
            info["name"]: arrays[f"in0_{j}"].shape
            for j, info in enumerate(index()[model]["inputs"])
            if not all(isinstance(size, int) for size in info["shape"][1:])
        }


def check_text(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Parse the text form of a model again, and return the number of its operations.

    Raises RuntimeError if the text is of another graph.
    """
    graph = read_model(file, shapes)
    if parse(print_graph(graph)) != graph:
        raise RuntimeError("the text form is of another graph")
    return len(graph.ops)


def _describe(row: Row, path: Path) -> None:
    """Fill in places and sizes."""
    with Bundle.open(path) as bundle:
        segments = bundle.manifest.segments
    row.segments = " ".join(s.place for s in segments)
    row.arena = max(s.arena for s in segments)
    on_edgetpu = sum(s.macs for s in segments if s.place == "edgetpu")
    row.edgetpu = on_edgetpu / max(1, sum(s.macs for s in segments))


def _difference(row: Row, bundle: Path, reference: Path, device: str) -> float:
    """Return the largest difference over the reference's samples, and judge it."""
    with np.load(reference) as file:
        arrays = dict(file)
    samples = {int(m[1]) for name in arrays if (m := re.fullmatch(r"in(\d+)_0", name))}
    worst = 0.0
    is_near = True
    for k in sorted(samples):
        inputs = {
            name.replace(f"in{k}_", "in0_"): array
            for name, array in arrays.items()
            if name.startswith(f"in{k}_")
        }
        np.savez(WORK / "input.npz", allow_pickle=False, **inputs)
        files = ("--input", WORK / "input.npz", "--output", WORK / "output.npz")
        run(*EDGEC, "run", bundle, *files, "--on", device)
        kind = "kref" if f"kref{k}_0" in arrays else "out"
        with np.load(WORK / "output.npz") as outputs:
            for j, output in enumerate(outputs.values()):
                difference = distance(output, arrays[f"{kind}{k}_{j}"])
                is_float = output.dtype.kind == "f"
                is_near &= difference <= (FLOAT_TOLERANCE if is_float else 0)
                worst = max(worst, difference)
    explanation = EXPLANATIONS.get(row.model)
    if not is_near and explanation and worst <= explanation.tolerance:
        row.explanation = explanation.reason
    elif not is_near:
        row.problems.append(f"{device} differs by {worst:.3g}")
    return worst


def distance(output: Array, reference: Array) -> float:
    """Return the largest difference: in steps of integers, or as a share of the range.

    A float output without a range is compared with its magnitude.
    """
    if reference.dtype.kind != "f":
        return float(np.abs(output.astype(int) - reference.astype(int)).max())
    scale = float(np.ptp(reference)) or float(np.abs(reference).max()) or 1.0
    return float(np.abs(output.reshape(reference.shape) - reference).max()) / scale


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=names, help="default: all")
    parser.add_argument("--targets", type=names, default=TARGETS)
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    print("\n".join(markdown(HEADS, [], texts=3)))
    rows: list[Row] = []
    for model in args.models or index():
        for target in args.targets if model in FOR_ALL_TARGETS else ["host"]:
            rows.append(measure(model, target))
            print(line(rows[-1].cells()), flush=True)
    write_json(BUILD / "models-table.json", rows)
    return int(any(row.problems for row in rows))


if __name__ == "__main__":
    sys.exit(main())
