"""The ways to quantize that accuracy_table.py compares: edgec's recipes, public
quantizers, and files that were published as int8.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime import Bundle

from benchmarks import peer_env
from benchmarks.accuracy_rows import (
    COMPILE,
    Case,
    Outputs,
    Row,
    bundle_outputs,
    fill,
    run,
)
from benchmarks.data_folder import index, model_file
from edgec.ir import Array

PEER_PROGRAM = Path(__file__).with_name("accuracy_peer.py")
RECIPES = ("best", "fast")
PUBLISHED = "published"


@dataclass(frozen=True)
class Peer:
    """A public quantizer.

    Attributes:
        engine: its name in accuracy_peer.py
        methods: the settings that it is tried with
    """

    engine: str
    methods: tuple[str, ...]


PEERS: Mapping[str, Peer] = {
    "onnxruntime-minmax": Peer("onnxruntime", ("minmax", "minmax-u8")),
    "onnxruntime-percentile": Peer("onnxruntime", ("percentile", "percentile-u8")),
    "aimet-enhanced": Peer("aimet", ("enhanced",)),
    "aimet-minmax": Peer("aimet", ("minmax",)),
    "esp-ppq-mse": Peer("esp-ppq", ("mse",)),
}


def row_of(case: Case, way: str) -> Row:
    """Return the row of a model and a way, with the reason in its note if it failed."""
    row = Row(case.name, way)
    try:
        if way == PUBLISHED:
            _fill_published(row, case)
        elif way in PEERS:
            _fill_peer(row, case, PEERS[way])
        else:
            _fill_edgec(row, case, way)
    except (RuntimeError, OSError, KeyError, ValueError) as e:
        row.note = f"failed: {' '.join(str(e).split())[:160]}"
    row.seconds = round(row.seconds, 1)
    return row


def _fill_edgec(row: Row, case: Case, recipe: str) -> None:
    """Compile by a recipe with everything on the Edge TPU that it can run."""
    path = case.folder / f"{Path(recipe).stem}.edgec"
    calibrate, test = case.photos
    photos = ("--calibrate", calibrate, "--validate", test, "--preprocess", case.spec)
    options = ("--quantize", recipe, "--min-cosine", "-1")
    target = ("--target", "pi4+coral", "--edgetpu", "all")
    process = run(*COMPILE, case.file, *photos, *options, *target, "-o", path)
    row.seconds = process.seconds
    row.memory = process.memory
    fill(row, case.floats, bundle_outputs(path, case.test))
    with Bundle.open(path) as bundle:
        macs = sum(s.macs for s in bundle.manifest.segments)
        on_edgetpu = sum(
            s.macs for s in bundle.manifest.segments if s.place == "edgetpu"
        )
    row.edgetpu = round(on_edgetpu / max(1, macs), 4)


def _fill_peer(row: Row, case: Case, peer: Peer) -> None:
    """Fill in the best of a peer's settings; raise RuntimeError if none works."""
    python = peer_env.environment(peer.engine)
    model = case.file if case.file.suffix == ".onnx" else _converted(case)
    rows = []
    errors = []
    for method in peer.methods:
        try:
            rows.append(_peer_row(case, python, peer.engine, method, model))
        except RuntimeError as e:
            errors.append(str(e))
    if not rows:
        raise RuntimeError(errors[0])
    best = max(rows, key=lambda r: r.sqnr or 0.0)
    vars(row).update(vars(best), way=row.way, seconds=sum(r.seconds for r in rows))


def _converted(case: Case) -> Path:
    """Return a .tflite model as the ONNX file that tf2onnx writes."""
    path = case.folder / "converted.onnx"
    if not path.exists():
        python = peer_env.environment("tf2onnx")
        unfinished = path.with_suffix(".part.onnx")
        words = ("--tflite", case.file, "--output", unfinished, "--opset", "13")
        run(python, "-m", "tf2onnx.convert", *words)
        unfinished.rename(path)
    return path


def _peer_row(case: Case, python: Path, engine: str, method: str, model: Path) -> Row:
    """Quantize with a peer's Python; raise RuntimeError if it fails."""
    row = Row(case.name, method)
    results = case.folder / f"{engine}-{method}.npz"
    process = run(python, PEER_PROGRAM, engine, method, model, *case.photos, results)
    facts = json.loads(process.last_line)
    with np.load(results) as data:
        floats, int8 = (_outputs(data, letter) for letter in "fq")
    fill(row, floats, int8)
    row.seconds = facts["seconds"]
    row.memory = facts["memory"]
    row.note = method
    return row


def _outputs(data: Mapping[str, Array], letter: str) -> list[Outputs]:
    """Return the outputs for each photo from the arrays f0, f1, ... or q0, q1, ..."""
    count = sum(name.startswith(letter) for name in data)
    return [*zip(*(data[f"{letter}{i}"] for i in range(count)), strict=True)]


def published_file(name: str) -> str | None:
    """Return the int8 or uint8 .tflite file of the same network and input size."""
    entry = index()[name]
    for other in index().values():
        sizes = (sorted(e["inputs"][0]["shape"][1:]) for e in (entry, other))
        is_int8 = other["name"].endswith(("_i8", "_u8"))
        if (
            is_int8
            and other["group"] == entry["group"]
            and len({*map(tuple, sizes)}) == 1
        ):
            return str(other["name"])
    return None


def _fill_published(row: Row, case: Case) -> None:
    name = published_file(case.name)
    assert name is not None, "a case with a published file"
    shape = index()[name]["inputs"][0]["shape"]
    is_planar = case.test.shape[2] == 3 and shape[1] != 3
    photos = np.moveaxis(case.test, 2, -1) if is_planar else case.test
    outputs = _litert_outputs(model_file(name), photos)
    int8 = [
        [_fitting(x, parts) for x in photo]
        for photo, parts in zip(case.floats, outputs, strict=True)
    ]
    fill(row, case.floats, int8)
    row.note = name


def _litert_outputs(model: Path, photos: Array) -> list[list[Array]]:
    """Return the real outputs of LiteRT for real photos [N, ...]."""
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(str(model), num_threads=1)
    engine.allocate_tensors()
    (info,) = engine.get_input_details()
    results = []
    for photo in photos:
        engine.set_tensor(info["index"], _integers(photo, info))
        engine.invoke()
        outputs = engine.get_output_details()
        results.append([_reals(engine.get_tensor(o["index"]), o) for o in outputs])
    return results


def _integers(x: Array, info: Mapping[str, Any]) -> Array:
    scale, zero_point = info["quantization"]
    if not scale:
        return x.astype(info["dtype"])
    limits = np.iinfo(info["dtype"])
    levels = np.round(x / scale) + zero_point
    return np.asarray(np.clip(levels, limits.min, limits.max).astype(info["dtype"]))


def _reals(y: Array, info: Mapping[str, Any]) -> Array:
    scale, zero_point = info["quantization"]
    if not scale:
        return y.copy()
    return np.asarray((y.astype(np.float32) - zero_point) * np.float32(scale))


def _fitting(output: Array, parts: Sequence[Array]) -> Array:
    """Return what the published file has for an output, which may be in several parts.

    Raises ValueError if it has no such output.
    """
    for part in parts:
        if part.size == output.size:
            return part.reshape(output.shape)
    rows = [
        p for p in parts if p.ndim == output.ndim and p.shape[-1] == output.shape[-1]
    ]
    rows.sort(key=lambda p: -p.shape[1])
    if sum(p.size for p in rows) != output.size:
        raise ValueError(f"the published file has no output of {list(output.shape)}")
    return np.concatenate(rows, axis=1)
