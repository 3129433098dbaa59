"""How much of real models reaches the Edge TPU: the stock compiler against edgec,
before and after each rewrite.

Markdown on the screen, build/partition-table.json. Only public commands of edgec are
used. Needs the data folder (EDGEC_SHARED, default ../shared). Float models are
quantized with their reference inputs as calibration data.

    python benchmarks/partition_table.py [--models a,b] [--jobs 2]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
EDGEC = [sys.executable, "-m", "edgec"]
TARGET = "pi4+coral"
PROMISED = 0.99
PROMISED_MODELS = """
    mp_selfie_land_f16 mp_selfie_land_onnx mp_face_landmark_f16 mp_face_landmark_onnx ultraface_rfb320
    ultraface_rfb320_tflite yolox_nano_416 sinet_portrait_onnx fastestdet_onnx prisma_i8 prisma_f32 prisma_onnx
    deeplab_dm05_u8 movenet_lightning_i8 fns_udnie_std_256
""".split()  # noqa: SIM905 (a list in quotes reads better)
"""Of these the Edge TPU is to be able to run at least `PROMISED` of the
multiply-accumulates, or the row says why not: what goes there is another matter, and
what the CPU is faster at does not.
"""


@dataclass
class Row:
    """One model.

    Shares of operations and multiply-accumulates on the Edge TPU, and estimated ms of
    the whole model.

    able: with all there that it can run. ablation: by rewrite, what leaving it out
    costs in the share of MACs and ms. blockers: what keeps MACs, or most ops, from
    being able, worst first.
    """

    model: str
    kind: str = ""
    stock: Mapping[str, float] = field(default_factory=dict)
    plain: Mapping[str, float] = field(default_factory=dict)
    edgec: Mapping[str, float] = field(default_factory=dict)
    able: Mapping[str, float] = field(default_factory=dict)
    segments: str = ""
    rewrites: Mapping[str, int] = field(default_factory=dict)
    ablation: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    blockers: list[str] = field(default_factory=list)
    problem: str = ""


def explain(
    entry: Mapping[str, Any], *without: str, edgetpu: str = "auto"
) -> dict[str, Any]:
    """What `edgec explain --json` says, with rewrites switched off; RuntimeError with
    its message when it fails.
    """
    command = [
        *EDGEC,
        "explain",
        str(SHARED / "models" / entry["file"]),
        "--target",
        TARGET,
        "--json",
    ]
    command += ["--edgetpu", edgetpu]
    reference = SHARED / "models" / (entry.get("ref") or {}).get("file", "-")
    if reference.is_file():
        command += ["--calibrate", str(reference), *frozen(entry, reference)]
    for name in without:
        command += ["--disable-pass", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(
            done.stderr.strip().splitlines()[0]
            if done.stderr.strip()
            else f"exit {done.returncode}"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def frozen(entry: Mapping[str, Any], reference: Path) -> Iterator[str]:
    """Options that give inputs of open shapes those of the reference."""
    arrays = np.load(reference)
    for j, given in enumerate(entry["inputs"]):
        if not all(isinstance(d, int) for d in given["shape"]):
            yield from (
                "--input-shape",
                f"{given['name']}={'x'.join(map(str, arrays[f'in0_{j}'].shape))}",
            )


def measure(entry: Mapping[str, Any]) -> Row:
    """Everything about one model."""
    row = Row(entry["name"])
    try:
        whole = explain(entry)
        names = sorted({a["rewrite"] for a in whole["applied"]})
        plain = explain(entry, *names) if names else whole
        able = explain(entry, edgetpu="all")
        if whole["comparison"]["basis"] == "int8":
            row.kind = "int8 made by edgec"
        else:
            row.kind = "int8 file"
        own = whole["comparison"]["cpu_only"]["macs"]
        row.stock = figures(whole["comparison"]["stock"], own)
        row.plain, row.edgec, row.able = (
            figures(r["comparison"]["edgec"], own) for r in (plain, whole, able)
        )
        row.segments = "".join(
            {"edgetpu": "T", "cpu": "c"}[s["place"]] for s in whole["segments"]
        )
        row.rewrites = {
            n: sum(a["rewrite"] == n for a in whole["applied"]) for n in names
        }
        for name in names:
            less = plain if len(names) == 1 else explain(entry, name)
            figure = figures(less["comparison"]["edgec"], own)
            row.ablation = {
                **row.ablation,
                name: {k: row.edgec[k] - figure[k] for k in ("macs", "ops", "ms")},
            }
        row.blockers = list(blockers(able))
    except (RuntimeError, subprocess.TimeoutExpired) as e:
        row.problem = str(e)
    return row


def figures(column: Mapping[str, Any], own: int) -> dict[str, float]:
    """Of a column of the comparison.

    What is left on the CPU is set against the model's `own` multiply-accumulates:
    rewrites may add some, and that must not flatter the share.
    """
    left = column["macs"] - column["tpu_macs"]
    return {
        "ops": column["tpu_ops_share"],
        "macs": max(0.0, 1 - left / own) if own else 0.0,
        "ms": column["est_ms"],
    }


def blockers(report: Mapping[str, Any]) -> Iterator[str]:
    """What keeps ops on the CPU: those with MACs, most first, then the most frequent;
    at most three.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for op in report["ops"]:
        if op["place"] == "cpu" and op["refusals"]:
            groups.setdefault((op["kind"], op["refusals"][0]["rule"]), []).append(op)
    ordered = sorted(
        groups.items(), key=lambda g: (-sum(op["macs"] for op in g[1]), -len(g[1]))
    )
    total = max(1, sum(op["macs"] for op in report["ops"]))
    for (kind, rule), ops in ordered[:3]:
        share = sum(op["macs"] for op in ops) / total
        text = f"{len(ops)} {kind} ({rule}: {ops[0]['refusals'][0]['seen']})"
        yield f"{text}, {share:.1%} of the MACs" if share else text


def markdown(rows: Iterable[Row]) -> Iterator[str]:
    """The table, what each rewrite brings, and the rows that miss what was promised."""
    heads = [
        "model",
        "stock ops",
        "stock MACs",
        "stock ms",
        "edgec without rewrites: ops",
        "MACs",
        "ms",
    ]
    heads += [
        "edgec ops",
        "edgec MACs",
        "edgec ms",
        "MACs that could",
        "ms with those",
        "segments",
    ]
    yield f"| {' | '.join(heads)} |"
    yield "| --- " * len(heads) + "|"
    rows = list(rows)
    for r in rows:
        if r.problem:
            yield f"| {r.model} | {r.problem} |" + " |" * (len(heads) - 2)
            continue
        cells = [
            f"{c['ops']:.0%} | {c['macs']:.1%} | {c['ms']:.1f}"
            for c in (r.stock, r.plain, r.edgec)
        ]
        yield (
            f"| {r.model} | {' | '.join(cells)} | {r.able['macs']:.1%} | "
            f"{r.able['ms']:.1f} | {r.segments} |"
        )
    yield ""
    yield "| model | rewrite | times | MACs on the TPU without it | ops | est. ms |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for r in rows:
        for name, d in r.ablation.items():
            changes = f"{-d['macs']:+.1%} | {-d['ops']:+.0%} | {-d['ms']:+.2f}"
            yield f"| {r.model} | {name} | {r.rewrites[name]} | {changes} |"
    yield ""
    for r in rows:
        if r.model in PROMISED_MODELS and r.able and r.able["macs"] < PROMISED:
            yield (
                f"below {PROMISED:.0%} of the MACs: "
                f"{r.model} "
                f"({r.able['macs']:.1%}): "
                f"{'; '.join(r.blockers)}"
            )


def main() -> int:
    """Print the table; exit 1 when a promised model cannot be explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    index = SHARED / "models" / "index.json"
    if not index.is_file():
        print(f"no data folder at {SHARED}: set EDGEC_SHARED")
        return 2
    wanted = [n for n in args.models.split(",") if n]
    entries = [
        e for e in json.loads(index.read_text()) if not wanted or e["name"] in wanted
    ]
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = []
        for row in pool.map(measure, entries):
            rows.append(row)
            print(f"{row.model}: {row.problem or 'ok'}", file=sys.stderr, flush=True)
    print("\n".join(markdown(rows)))
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "partition-table.json").write_text(
        json.dumps([asdict(r) for r in rows], indent=1) + "\n"
    )
    return 1 if any(r.problem for r in rows if r.model in PROMISED_MODELS) else 0


if __name__ == "__main__":
    sys.exit(main())
