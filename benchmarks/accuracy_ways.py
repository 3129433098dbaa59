"""The ways to quantize of benchmarks/accuracy_table.py: edgec's recipes, the peers'
settings, published files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from edgec_runtime import Bundle

from benchmarks import peer_env
from benchmarks.accuracy_rows import (
    COMPILE,
    ROOT,
    SHARED,
    Case,
    Outputs,
    Row,
    bundle_outputs,
    child,
    digest,
    judge,
)
from edgec.ir import Array

PEER = Path(__file__).with_name("accuracy_peer.py")
CPU = "best-pi4"
"""`best` without an Edge TPU: it may leave operations in float for a tenth more time.

What that is, is in the note.
"""
EDGEC = ("best", "fast", CPU)
PUBLISHED = "published"
PREPROCESS = {
    "0_255": "0_255",
    "0_1": "0_1",
    "m1_1": "m1_1",
    "bgr_0_255": "0_255,bgr",
    "bgr_0_1": "0_1,bgr",
    "imagenet": "imagenet",
    "y01": "0_1,gray",
    "ulff": "0_255,mean=127,std=128",
    "sinet": "0_255,bgr,mean=102.890434/111.25247/126.91212,std=16047.89/16019.45/16920.70",
}
"""Of the index, as edgec writes it."""


@dataclass(frozen=True)
class Peer:
    """A quantizer and the settings of which the best counts, as accuracy_peer.py reads
    them.
    """

    engine: str
    suffix: str
    methods: tuple[str, ...]


PEERS: Mapping[str, Peer] = {
    "onnxruntime-minmax": Peer("onnxruntime", ".onnx", ("minmax", "minmax-u8")),
    "onnxruntime-percentile": Peer(
        "onnxruntime", ".onnx", ("percentile", "percentile-u8")
    ),
    "aimet-enhanced": Peer("aimet", ".onnx", ("enhanced",)),
    "aimet-minmax": Peer("aimet", ".onnx", ("minmax",)),
    "esp-ppq-mse": Peer("esp-ppq", ".onnx", ("mse-asymmetric",)),
    "ai-edge-quantizer": Peer("ai-edge-quantizer", ".tflite", ("static",)),
    "litert-quantizer": Peer("litert-quantizer", ".tflite", ("static",)),
}


def row_of(case: Case, way: str, entries: Sequence[Mapping[str, Any]]) -> Row:
    """As kept, or made now; one that failed says why."""
    row = Row(case.name, way)
    try:
        key = digest([], case.digest, *_hangs_on(way))
        found = case.kept(way, key)
        if found is not None:
            return found
        if way == PUBLISHED:
            _published(row, case, twin(case.entry, entries) or {})
        elif way in PEERS:
            _peer(row, case, PEERS[way])
        else:
            _edgec(row, case, way)
        row.seconds = round(row.seconds, 1)
        case.keep(row, key)
    except (RuntimeError, OSError, KeyError, ValueError) as e:
        row.note = f"failed: {' '.join(str(e).split())[:160]}"
    return row


def _hangs_on(way: str) -> list[str]:
    """Besides the model and the photos: our sources, or the peer's versions and
    settings.
    """
    if way in PEERS:
        peer = PEERS[way]
        return [
            *peer_env.REQUIREMENTS[peer.engine],
            *peer.methods,
            digest([PEER]),
            *peer_env.REQUIREMENTS["tf2onnx"],
        ]
    if way == PUBLISHED:
        return [*peer_env.REQUIREMENTS[PUBLISHED], digest([PEER])]
    return [
        way,
        digest(sources()),
        Path(way).read_text() if way.endswith(".toml") else "",
    ]


def sources() -> list[Path]:
    """Those of edgec that int8 models hang on."""
    return sorted(
        p
        for p in (ROOT / "edgec").rglob("*")
        if p.suffix in {".py", ".toml", ".h", ".c"}
    )


def _edgec(row: Row, case: Case, way: str) -> None:
    made = case.folder / f"{Path(way).stem}.edgec"
    recipe, target = ("best", "pi4") if way == CPU else (way, "pi4+coral")
    calibrate, test = case.photos
    row.seconds, row.memory, _ = child(
        *COMPILE,
        case.file,
        "--preprocess",
        case.spec,
        "-q",
        "--min-cosine",
        "-1",
        "--calibrate",
        calibrate,
        "--validate",
        test,
        "--quantize",
        recipe,
        "--target",
        target,
        "--edgetpu",
        "all",
        "-o",
        made,
    )
    judge(row, case.entry["task"], case.floats, bundle_outputs(made, case.test))
    with Bundle.open(made) as bundle:
        row.note = f"kept {bundle.manifest.quantization['kept']}{_floats(made)}"
        if way == CPU:
            return
        macs = {
            place: sum(s.macs for s in bundle.manifest.segments if s.place == place)
            for place in ("edgetpu", "cpu")
        }
        row.tpu = round(macs["edgetpu"] / max(1, sum(macs.values())), 4)


def _floats(made: Path) -> str:
    """What a bundle leaves in float, and how long it is estimated to take with and
    without.
    """
    with ZipFile(made) as bundle:
        plan = json.loads(bundle.read("report/quantize.json"))["plan"]
    if plan is None or not plan["floats"]:
        return ""
    without, having = (
        row["price"]["ms"] for row in (plan["rows"][0], plan["rows"][-1])
    )
    return (
        f"; {len(plan['floats'])} ops in float, {having:.2f} ms in place of "
        f"{without:.2f}"
    )


def _peer(row: Row, case: Case, peer: Peer) -> None:
    """The best of its settings; RuntimeError when none works."""
    python = peer_env.environment(peer.engine)
    file = case.file if case.file.suffix == peer.suffix else _as_onnx(case)
    failed = list[str]()
    for method in peer.methods:
        try:
            one = _launched(case, python, peer.engine, method, file)
        except RuntimeError as e:
            failed.append(str(e))
            continue
        seconds = row.seconds + one.seconds
        if row.sqnr is None or (one.sqnr or 0.0) > row.sqnr:
            row.__dict__.update(one.__dict__ | {"way": row.way})
        row.seconds = seconds
    if row.sqnr is None:
        raise RuntimeError(failed[0])


def _as_onnx(case: Case) -> Path:
    """A .tflite file as tf2onnx writes it. RuntimeError when it cannot."""
    out = case.folder / "converted.onnx"
    if not out.exists():
        python = peer_env.environment("tf2onnx")
        aside = out.with_suffix(".part.onnx")
        try:
            child(
                python,
                "-m",
                "tf2onnx.convert",
                "--tflite",
                case.file,
                "--output",
                aside,
                "--opset",
                "13",
            )
        except RuntimeError as e:
            raise RuntimeError(f"tf2onnx cannot convert the model: {e}") from e
        aside.rename(out)
    return out


def _launched(case: Case, python: Path, engine: str, method: str, file: Path) -> Row:
    row = Row(case.name, method)
    out = case.folder / f"{engine}-{method}.npz"
    _, _, said = child(python, PEER, engine, method, file, *case.photos, out)
    told = json.loads(said)
    with np.load(out) as data:
        want, got = (_outputs(data, letter) for letter in "fq")
    out.unlink()
    if not want:
        got = alike(case.floats, got)
    judge(row, case.entry["task"], want or case.floats, got)
    row.seconds = told["seconds"]
    row.memory = told["memory"]
    row.note = ", ".join(filter(None, (method, told["note"])))
    return row


def _outputs(data: Mapping[str, Array], letter: str) -> Outputs:
    names = sorted((n for n in data if n.startswith(letter)), key=lambda n: int(n[1:]))
    return [*zip(*(data[n] for n in names), strict=True)] if names else []


# ---- published files
# --------------------------------------------------------------------------------------


def twin(
    entry: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """An int8 or uint8 .tflite of the same network and the same size of picture."""
    for other in entries:
        size, wanted = (sorted(m["inputs"][0]["shape"][1:]) for m in (other, entry))
        if (
            other["group"] == entry["group"]
            and size == wanted
            and other["name"].endswith(("_i8", "_u8"))
        ):
            return other
    return None


def _published(row: Row, case: Case, other: Mapping[str, Any]) -> None:
    python = peer_env.environment(PUBLISHED)
    test = case.folder / "published.npz"
    # channels first here, last there
    moved = case.test.shape[2] == 3 and other["inputs"][0]["shape"][1] != 3
    np.savez(test, x=np.moveaxis(case.test, 2, -1) if moved else case.test)
    _, _, said = child(
        python,
        PEER,
        PUBLISHED,
        "",
        SHARED / "models" / other["file"],
        test,
        test,
        case.folder / "out.npz",
    )
    with np.load(case.folder / "out.npz") as data:
        got = _outputs(data, "q")
    judge(row, case.entry["task"], case.floats, alike(case.floats, got))
    row.note = ", ".join(filter(None, (other["name"], json.loads(said)["note"])))


def alike(want: Outputs, got: Outputs) -> Outputs:
    """The twin's outputs as the model's, whatever order and parts it gives them in.

    ValueError when they do not fit.
    """
    return [
        [_fitting(w, photo) for w in wanted]
        for wanted, photo in zip(want, got, strict=True)
    ]


def _fitting(want: Array, parts: Sequence[Array]) -> Array:
    for part in parts:
        if part.size == want.size:
            return part.reshape(want.shape)
    rows = sorted(
        (p for p in parts if p.ndim == want.ndim and p.shape[-1] == want.shape[-1]),
        key=lambda p: -p.shape[1],
    )
    if sum(p.size for p in rows) != want.size:
        raise ValueError(f"the published file has no output of {list(want.shape)}")
    return np.concatenate(rows, 1)
