"""What int8 costs: edgec's recipes beside onnxruntime's quantizer, on photos that none calibrated on, in one run.

Every float model of the data folder (EDGEC_SHARED, default ../shared) that takes photos; half of the photos, drawn by a
seed, calibrate, the others test; all engines get the same arrays. Each engine is compared with the float model as it
runs it itself (edgec: a bundle of it; onnxruntime: the ONNX file). Figures of several outputs are their means.

    SQNR      signal to quantization noise over all photos, in dB
    centred   the same about the mean of the output, which flatters none that hardly changes
    median    of the photos' own SQNR
    top-1     how often the largest element is the same, of outputs that are one row

Markdown on the screen, build/accuracy-table.json. onnxruntime quantizes ONNX files alone.

    python -m tests.tables.accuracy_table [--models a,b] [--ways best,fast,onnxruntime-minmax] [--photos N]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from edgec_runtime import Bundle, Session

from edgec.frontends import read_model
from edgec.ir import Array
from edgec.quantize import choose, load_calibration
from edgec.quantize.accuracy import Tally, tally

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
WORK = ROOT / "build" / "accuracy"
SEED = 0
WAYS = ("fast", "best", "onnxruntime-minmax", "onnxruntime-percentile")
PREPROCESS = {
    "0_255": "0_255",
    "0_1": "0_1",
    "m1_1": "m1_1",
    "bgr_0_255": "0_255,bgr",
    "bgr_0_1": "0_1,bgr",
    "imagenet": "imagenet",
    "ulff": "0_255,mean=127,std=128",
    "sinet": "0_255,bgr,mean=102.890434/111.25247/126.91212,std=16047.89/16019.45/16920.70",
}
"""Of the index, as edgec writes it."""
MODELS = (
    "mnv1_025_224_f32,resnet8_f32,vww96_f32,mp_blazeface_short_f16,mp_blazeface_short_onnx_b,mp_selfie_land_onnx,"
    "mp_face_landmark_onnx,ultraface_rfb320,yunet_n_320,fastestdet_onnx,yolox_nano_416,sinet_portrait_onnx,pfld_ghostone,"
    "hourglass_pose,deeplabv3_257_f32,prisma_onnx"
)


@dataclass
class Row:
    """One way to quantize one model. seconds: to make it; memory: at most, MB; note: what was kept, or why not."""

    model: str
    way: str
    sqnr: float | None = None
    centred: float | None = None
    median: float | None = None
    top1: float | None = None
    seconds: float = 0.0
    memory: int = 0
    note: str = ""


def child(*command: str | Path) -> tuple[float, int]:
    """Run a command; seconds and the most memory, MB. Raises RuntimeError with its last line when it fails."""
    started = time.monotonic()
    with subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace").strip().splitlines()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(next((s for s in said if s.startswith("error")), said[-1] if said else "no word"))
    return time.monotonic() - started, usage.ru_maxrss >> 10


def prepare(entry: Mapping[str, str], file: Path, limit: int) -> tuple[Path, Path, str]:
    """Arrays [sample, …] to calibrate with and to test with, and the preprocessing, that no bundle's photo needs."""
    inputs = read_model(file, {}).inputs
    spec = PREPROCESS[entry["preproc"]]
    chosen = choose(inputs, spec, {})[inputs[0].name]
    photos = load_calibration(SHARED / "data" / "photos", inputs, chosen)
    order = np.random.default_rng(SEED).permutation(len(photos))[:limit]
    halves = WORK / f"{entry['name']}-calibrate.npz", WORK / f"{entry['name']}-test.npz"
    for path, part in zip(halves, (order[: len(order) // 2], order[len(order) // 2 :]), strict=True):
        np.savez(path, x=np.stack([photos[i][inputs[0].name] for i in sorted(part)]))
    return (*halves, spec)


def bundle_outputs(path: Path, samples: Array) -> list[dict[str, Array]]:
    """What a bundle makes of each."""
    with Bundle.open(path) as bundle, Session(bundle) as session:
        (name,) = bundle.manifest.inputs
        return [{k: y.copy() for k, y in session.run({name: s}).items()} for s in samples]


def peer_outputs(path: Path, test: Path, out: Path) -> list[dict[str, Array]]:
    """What onnxruntime makes of each."""
    child(sys.executable, "-m", "tests.tables.accuracy_peer", "run", path, test, out)
    arrays = np.load(out)
    return [{n: arrays[n][i] for n in arrays.files} for i in range(len(arrays[arrays.files[0]]))]


def judge(row: Row, want: Sequence[Mapping[str, Array]], got: Sequence[Mapping[str, Array]]) -> None:
    """The figures."""
    names = [*want[0]]
    tallies = {n: Tally() for n in names}
    for w, g in zip(want, got, strict=True):
        for n in names:
            tallies[n].add(w[n], g[n])
    each = [[tally(w[n], g[n]).sqnr_db() for n in names] for w, g in zip(want, got, strict=True)]
    row.sqnr = round(float(np.mean([t.sqnr_db() for t in tallies.values()])), 2)
    row.centred = round(float(np.mean([t.centred_sqnr_db() for t in tallies.values()])), 2)
    row.median = round(float(np.median(np.mean(each, 1))), 2)
    tops = [top for t in tallies.values() if (top := t.result().top1) is not None]
    row.top1 = round(float(np.mean(tops)), 3) if tops else None


def measure(model: str, entry: Mapping[str, str], ways: Sequence[str], limit: int) -> list[Row]:
    """All ways of one model."""
    file = SHARED / "models" / entry["file"]
    calibrate, test, spec = prepare(entry, file, limit)
    samples = np.load(test)["x"]
    edgec: list[str | Path] = [
        sys.executable,
        "-m",
        "edgec",
        "compile",
        file,
        "--preprocess",
        spec,
        "-q",
        "--min-cosine",
        "-1",
    ]
    whole = WORK / f"{model}-float.edgec"
    child(*edgec, "--allow-float", "-o", whole)
    floats = {"edgec": bundle_outputs(whole, samples)}
    rows: list[Row] = []
    for way in ways:
        row = Row(model, way)
        rows.append(row)
        engine, _, method = way.rpartition("-")
        made = WORK / f"{model}-{way}{'.onnx' if engine else '.edgec'}"
        try:
            if not engine:
                use: list[str | Path] = [
                    *edgec,
                    "--calibrate",
                    calibrate,
                    "--validate",
                    test,
                    "--quantize",
                    way,
                    "-o",
                    made,
                ]
                row.seconds, row.memory = child(*use)
                judge(row, floats["edgec"], bundle_outputs(made, samples))
                with Bundle.open(made) as bundle:
                    row.note = str(bundle.manifest.quantization["kept"])
            elif file.suffix != ".onnx":
                row.note = "no ONNX file"
            else:
                peer: list[str | Path] = [
                    sys.executable,
                    "-m",
                    "tests.tables.accuracy_peer",
                    method,
                    file,
                    calibrate,
                    made,
                ]
                row.seconds, row.memory = child(*peer)
                if engine not in floats:
                    floats[engine] = peer_outputs(file, test, WORK / f"{model}-float.npz")
                judge(row, floats[engine], peer_outputs(made, test, WORK / f"{model}-{way}.npz"))
        except (RuntimeError, OSError, KeyError) as e:
            row.note = f"failed: {e}"
        row.seconds = round(row.seconds, 1)
        print(markdown(row), flush=True)
    return rows


def markdown(row: Row) -> str:
    figures = (row.sqnr, row.centred, row.median, row.top1)
    shown = " | ".join("" if f is None else f"{f:g}" for f in figures)
    return f"| {row.model} | {row.way} | {shown} | {row.seconds:g} | {row.memory} | {row.note} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--photos", type=int, default=1000, help="at most so many, half of them to calibrate with")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "accuracy-table.json")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    index = {m["name"]: m for m in json.loads((SHARED / "models" / "index.json").read_text())}
    print("| model | way | SQNR, dB | centred | median | top-1 | s | MB | kept |")
    print("| --- | --- | --: | --: | --: | --: | --: | --: | --- |")
    rows: list[Row] = []
    for model in args.models.split(","):
        try:
            rows += measure(model, index[model], args.ways.split(","), args.photos)
        except RuntimeError as e:
            rows.append(Row(model, "", note=f"failed: {e}"))
            print(markdown(rows[-1]), flush=True)
        args.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))


if __name__ == "__main__":
    main()
