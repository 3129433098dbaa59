"""Shows that a refactoring changed nothing: hashes of what every kind of compile
generates.

Each model is compiled up to its generated files, for every board, and the sha256 of
each file (C sources, weights, Edge TPU segments, the report on quantization, and what
`edgec explain` says) becomes one line of `replay.txt`. The lines must be those of the
committed file; where a change means to alter what is generated, `--update` writes them
anew, and the commit says why.

Files that Google's compiler has mapped are compiled and explained for a board with an
Edge TPU; of each also the outputs of the C of its segments, for one sample of noise, are
a line.

What a float model computes on its calibration samples depends, in its last bits, on the
vector instructions of this machine. The first line of the file names them; on a machine
with others, write a file of its own before the change and compare with it after:
`--record build/replay.txt --update`, then `--record build/replay.txt`.

    python -m benchmarks.replay [--update] [--only digits,resnet8_f32] [--record FILE]
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from edgec_devices.boards import Board

from benchmarks.data_folder import ROOT, SHARED
from edgec.compiler.emit import targets_of
from edgec.compiler.job import Job
from edgec.compiler.lower import Lowered, lower
from edgec.compiler.native import NativeGraph, native_compiler
from edgec.compiler.task import bound, vision_texts
from edgec.emit.sources import target_sources
from edgec.emit.tflite import write_tflite
from edgec.errors import EdgecError
from edgec.frontends import read_model
from edgec.ir import Array
from edgec.options.compile import CompileOptions
from edgec.quantize.change.convert import random_sample
from edgec.verbs.explain import explain_model

RECORD = ROOT / "benchmarks" / "replay.txt"
FIXTURES = ("cartoon", "digits")
MODELS = (
    "deeplab_dm05_u8",
    "fastestdet_onnx",
    "hourglass_pose",
    "kws_dscnn_f32",
    "mnist8",
    "mnist_lstm_i8",
    "mnv1_025_128_u8",
    "mnv1_025_224_f32",
    "mnv2_035_128_st",
    "mnv2_tf2_i8",
    "mp_blazeface_short_onnx_b",
    "mp_face_landmark_onnx",
    "mp_selfie_land_f16",
    "omv_facelandmarks_i8",
    "pfld_ghostone",
    "resnet8_f32",
    "resnet8_i8",
    "shufflenetv2_i8_onnx",
    "ultraface_rfb320",
    "vittrack",
)
"""Of the shared data folder: one of each family of architectures, with every kind of
model file.
"""
TARGETS = ("host", "pi3", "pi4", "pi5", "pi4+coral")
QUANTIZED_BEST = ("digits", "kws_dscnn_f32", "mnist8", "resnet8_f32")
"""These are also quantized by the recipe `best`, for which larger models would take
minutes.
"""
NOISE_SAMPLES = 6
MAPPED = SHARED / "edgetpu" / "models"
"""Files whose mapping by Google's compiler is known."""
CORAL = "pi4+coral"


def mapped() -> tuple[str, ...]:
    """The names of the files that Google's compiler has mapped."""
    files = sorted(MAPPED.rglob("*.tflite"))
    return tuple(str(path.relative_to(MAPPED).with_suffix("")) for path in files)


def model_file(name: str) -> Path:
    """The model file of this name, of the fixtures or of the shared data folder."""
    folder = ROOT / "fixtures" / name if name in FIXTURES else SHARED / "models" / name
    return next(
        path for path in sorted(folder.iterdir()) if path.suffix in (".onnx", ".tflite")
    )


def calibration(model: Path, folder: Path) -> Path:
    """The photos of the fixtures for a model of images, and an .npz file of noise for
    any other.
    """
    graph = read_model(model)
    inputs = graph.given()
    photos = ROOT / "fixtures" / "photos"
    shape = inputs[0].type.shape
    if (
        len(inputs) == 1
        and len(shape) == 4
        and 3 in (shape[1], shape[3])
        and not graph.state
    ):
        return photos
    samples = [random_sample(graph, seed) for seed in range(NOISE_SAMPLES)]
    arrays = {
        v.name: np.concatenate([sample[v.name] for sample in samples]) for v in inputs
    }
    path = folder / f"{model.stem}.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def digest(content: bytes) -> str:
    """The first 16 hexadecimal digits of the sha256."""
    return hashlib.sha256(content).hexdigest()[:16]


def generated(
    model: Path, options: CompileOptions, runs: bool = False
) -> Iterator[tuple[str, bytes]]:
    """Every file that a compile of the model generates, by a path that names it.

    runs: also the outputs of the segments' C on this machine.
    """
    job = Job(model, options)
    lowered = lower(model, options)
    board = lowered.target.board
    segments = lowered.partition.segments
    task = bound(job.wanted(), lowered.read, lowered.graph)
    vision = vision_texts(lowered.read, lowered.graph, task)
    for target in targets_of(board):
        cores = lowered.cores(target, options.threads)
        sources = target_sources(lowered.graph, segments, cores).with_files(vision)
        for name, text in sorted(sources.texts.items()):
            yield f"src/{target.name}/{name}", text.encode()
        yield f"weights/{target.name}", sources.weights
    for segment in segments:
        if segment.place == "edgetpu":
            yield f"segments/{segment.name}.tflite", write_tflite(segment.in_tflite)
    yield "quantize.json", quantization(lowered)
    if runs:
        for name, array in sorted(outputs(lowered).items()):
            yield f"output/{name}", array.tobytes()


def outputs(lowered: Lowered) -> dict[str, Array]:
    """The outputs of the segments, one after the other as C, for a sample of noise."""
    values = random_sample(lowered.graph)
    for segment in lowered.partition.segments:
        run = NativeGraph(segment.graph, native_compiler(None))
        values |= run({v.name: values[v.name] for v in segment.graph.inputs})
    return {v.name: values[v.name] for v in lowered.graph.outputs}


def quantization(lowered: Lowered) -> bytes:
    """The bundle's report on how the model became int8; nothing for a model that is
    taken as it is.
    """
    if lowered.model.quantized is None:
        return b""
    return json.dumps(lowered.model.quantized.to_json(), sort_keys=True).encode()


def replay_mapped(name: str) -> list[str]:
    """The lines of one file that Google's compiler has mapped."""
    model = MAPPED / f"{name}.tflite"
    options = CompileOptions(CORAL, min_cosine=-1)
    head = f"{name} {CORAL}"
    lines = _lines(head, model, options, runs=True)
    return [*lines, _explained(head, model, CompileOptions(CORAL))]


def _lines(
    head: str, model: Path, options: CompileOptions, runs: bool = False
) -> list[str]:
    """A line for each file that a compile generates, or what it says."""
    try:
        files = list(generated(model, options, runs))
    except EdgecError as e:
        return [f"{head} {e.what}"]
    return [f"{head} {path} {digest(content)}" for path, content in files]


def _explained(head: str, model: Path, options: CompileOptions) -> str:
    """The line of what `edgec explain` says."""
    report = json.dumps(explain_model(model, options).to_json(), sort_keys=True)
    return f"{head} explain.json {digest(report.encode())}"


def replay(name: str) -> list[str]:
    """The lines of one model: what was compiled, the generated file, and its hash."""
    if name in mapped():
        return replay_mapped(name)
    lines = []
    model = model_file(name)
    with tempfile.TemporaryDirectory(prefix="edgec-replay-") as folder:
        try:
            samples = calibration(model, Path(folder))
        except EdgecError as e:
            return [f"{name} {e.what}"]
        recipes = ("fast", "best") if name in QUANTIZED_BEST else ("fast",)
        for target in TARGETS:
            for recipe in recipes:
                options = CompileOptions(
                    target, calibrate=samples, quantize=recipe, min_cosine=-1
                )
                lines += _lines(f"{name} {target} {recipe}", model, options)
            options = CompileOptions(target, calibrate=samples, quantize="fast")
            lines.append(_explained(f"{name} {target}", model, options))
    return [line.replace(str(samples.parent), "samples") for line in lines]


def machine() -> str:
    """The vector instructions of this machine that float kernels are written for."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    wide = "AVX-512 VNNI" if "avx512_vnni" in flags else "no AVX-512 VNNI"
    return f"# {Board.load('host').targets[0].name}, {wide}"


def main() -> int:
    """Compare with the committed lines, or write them; 1 where they differ."""
    parser = argparse.ArgumentParser(prog="benchmarks.replay")
    parser.add_argument("--update", action="store_true", help="write the record anew")
    parser.add_argument("--only", default="", help="names of models, with commas")
    parser.add_argument(
        "--record", type=Path, default=RECORD, help="the file to compare with"
    )
    arguments = parser.parse_args()
    known = (*FIXTURES, *((*MODELS, *mapped()) if SHARED.is_dir() else ()))
    if not SHARED.is_dir():
        print(
            f"note: {SHARED} is not there: the fixtures alone are compiled",
            file=sys.stderr,
        )
    names = [n for n in known if not arguments.only or n in arguments.only.split(",")]
    lines = [machine()]
    with ProcessPoolExecutor(2) as pool:
        for name, made in zip(names, pool.map(replay, names), strict=True):
            print(f"{name}: {len(made)} lines", file=sys.stderr, flush=True)
            lines += made
    if arguments.update:
        arguments.record.write_text("".join(f"{line}\n" for line in lines))
        return 0
    before = arguments.record.read_text().splitlines()
    before = [before[0], *(line for line in before[1:] if line.split(" ")[0] in names)]
    changed = list(
        difflib.unified_diff(
            before, lines, str(arguments.record), "now", lineterm="", n=0
        )
    )
    print("\n".join(changed) or f"{len(lines) - 1} lines, all as recorded")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
