"""Real models through the whole line: compile, check the C, run here and on an emulated Pi, compare with references.

Markdown on the screen, build/models-table.json. Only public commands of edgec are used. Needs the data folder
(EDGEC_SHARED, default ../shared).

    python tests/tables/models_table.py [--models a,b] [--targets host,pi4]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from edgec_runtime.session import machine_target

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
WORK = ROOT / "build" / "models"
EDGEC = [sys.executable, "-m", "edgec"]
MODELS = (
    "resnet8_i8,resnet8_f32,vww96_i8,mnv1_025_128_u8,mnv2_tf2_i8,prisma_i8,prisma_f32,mnv1_025_224_f32,"
    "mp_selfie_land_onnx,mp_face_landmark_onnx,ultraface_rfb320,prisma_onnx,pfld_ghostone"
)
TARGETS = "host,pi4,pi4+coral"
FLOAT_TOLERANCE = 1e-4
ALLOCATORS = re.compile(r"\b(malloc|calloc|realloc|free|aligned_alloc|mmap|sbrk)\b")


@dataclass
class Row:
    """One model on one target. local, emulated: the largest difference from the reference (see `difference`)."""

    model: str
    target: str
    segments: str = ""
    edgetpu_macs: float = 0.0
    arena: int = 0
    compile_s: float = 0.0
    local: float | None = None
    emulated: float | None = None
    reference: str = ""
    sanitizers: str = ""
    problems: list[str] = field(default_factory=list)


def run(*command: str | Path, timeout: int = 3600) -> subprocess.CompletedProcess[str]:
    """A command with its output; raises RuntimeError with its last lines when it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command[:6]))}: exit {done.returncode}: {done.stderr[-600:]}")
    return done


def measure(model: str, target: str) -> Row:
    """Everything about one model on one target."""
    row = Row(model, target)
    entry = next(m for m in json.loads((SHARED / "models" / "index.json").read_text()) if m["name"] == model)
    bundle = WORK / f"{model}-{target}.edgec"
    started = time.monotonic()
    try:
        file = SHARED / "models" / entry["file"]
        run(*EDGEC, "compile", file, "--target", target, "--allow-float", "-o", bundle, "-q")
        row.compile_s = round(time.monotonic() - started, 1)
        describe(row, bundle)
        check_c(row, bundle)
        reference = SHARED / "models" / entry["ref"]["file"]
        row.local = compare(row, bundle, reference, "local:")
        if target != "host":
            row.emulated = compare(row, bundle, reference, "emulated:pi4")
    except (RuntimeError, subprocess.TimeoutExpired) as e:
        row.problems.append(str(e))
    return row


def describe(row: Row, bundle: Path) -> None:
    """Places and sizes, from the manifest."""
    manifest = json.loads(zipfile.ZipFile(bundle).read("manifest.json"))
    segments = manifest["segments"]
    row.segments = " ".join(s["place"] for s in segments)
    row.arena = max(s["arena"] for s in segments)
    macs = sum(s["macs"] for s in segments)
    row.edgetpu_macs = sum(s["macs"] for s in segments if s["place"] == "edgetpu") / macs if macs else 0.0


_BUILD = """include src/{target}/model.mk
program: main.o $(MODEL_OBJECTS)
\t$(CC) $(CFLAGS) -o $@ $^ $(MODEL_LIBS)
main.o: src/main.c
\t$(CC) $(CFLAGS) $(MODEL_CFLAGS) $(MODEL_INCLUDES) -c -o $@ $<
"""


def check_c(row: Row, bundle: Path) -> None:
    """The bundle's own src/: no warning, no allocation, no .bss, clean under both sanitizers."""
    out, here = WORK / f"{bundle.stem}-c", machine_target()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with zipfile.ZipFile(bundle) as z:
        z.extractall(out, [n for n in z.namelist() if n.startswith("src/")])
        manifest = json.loads(z.read("manifest.json"))
        if here not in manifest["weights"]:
            row.sanitizers = "not for this machine"
            return
        (out / "weights.bin").write_bytes(z.read(manifest["weights"][here]))
    (out / "Makefile").write_text(_BUILD.format(target=here))
    warnings = "-Wall -Wextra -Werror"
    run("make", "-C", out, "program", "CC=gcc", f"CFLAGS={warnings}")
    for object_file in sorted(out.glob("edgec-seg*.o")):
        match = re.search(r"^\.bss\s+(\d+)", run("size", "-A", object_file).stdout, re.M)
        if match and int(match[1]):
            row.problems.append(f"{object_file.name}: .bss {match[1]}")
        if found := ALLOCATORS.search(run("nm", object_file).stdout):
            row.problems.append(f"{object_file.name} refers to {found[1]}")
    sanitize = "-g -fsanitize=address,undefined -fno-sanitize-recover=all -DEK_ARENAS_APART"
    run("make", "-B", "-C", out, "program", "CC=gcc", f"CFLAGS={warnings} {sanitize}")
    run(out / "program", "--runs", "1")
    row.sanitizers = "clean"


def compare(row: Row, bundle: Path, reference: Path, device: str) -> float:
    """The largest difference over the reference's samples; a problem when it is more than allowed."""
    ref = np.load(reference)
    worst = 0.0
    for k in sorted({int(m[1]) for n in ref.files if (m := re.fullmatch(r"in(\d+)_0", n))}):
        given, result = WORK / "input.npz", WORK / "output.npz"
        np.savez(given, **{f"in0_{n.split('_')[1]}": ref[n] for n in ref.files if n.startswith(f"in{k}_")})
        run(*EDGEC, "run", bundle, "--input", given, "--output", result, "--on", device)
        got = list(np.load(result).values())
        kind = "kref" if f"kref{k}_0" in ref.files else "out"
        row.reference = kind
        for j, y in enumerate(got):
            worst = max(worst, difference(y, ref[f"{kind}{k}_{j}"]))
    exact = got[0].dtype.kind != "f"
    if worst > (0 if exact else FLOAT_TOLERANCE):
        row.problems.append(f"{device} differs by {worst:.3g}")
    return worst


def difference(got: np.ndarray, want: np.ndarray) -> float:
    """Steps for integers; for floats a part of the range, or of the magnitude where one number has no range."""
    if want.dtype.kind != "f":
        return float(np.abs(got.astype(int) - want.astype(int)).max())
    span = float(want.max() - want.min()) or float(np.abs(want).max()) or 1.0
    return float(np.abs(got.reshape(want.shape) - want).max()) / span


def markdown(rows: list[Row]) -> Iterator[str]:
    """The table."""
    heads = ["model", "target", "segments", "MACs on TPU", "arena", "local", "emulated Pi", "against"]
    heads += ["sanitizers", "compile s"]
    yield f"| {' | '.join(heads)} |"
    yield "| --- " * len(heads) + "|"
    for r in rows:
        numbers = ["-" if e is None else f"{e:.3g}" for e in (r.local, r.emulated)]
        share = f"{r.edgetpu_macs:.1%}"
        cells = [r.model, r.target, r.segments, share, str(r.arena), *numbers, r.reference, r.sanitizers]
        yield f"| {' | '.join(cells)} | {r.compile_s} |"
        yield from (f"  PROBLEM {r.model} {r.target}: {p}" for p in r.problems)


def main() -> int:
    """Print the table; exit 1 when anything is not as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--targets", default=TARGETS)
    args = parser.parse_args()
    if not (SHARED / "models").is_dir():
        print(f"no data folder at {SHARED}: set EDGEC_SHARED")
        return 2
    WORK.mkdir(parents=True, exist_ok=True)
    rows = []
    for model in args.models.split(","):
        for target in args.targets.split(","):
            rows.append(measure(model, target))
            print(f"{model} {target}: {rows[-1].problems or 'ok'}", file=sys.stderr, flush=True)
    print("\n".join(markdown(rows)))
    (ROOT / "build" / "models-table.json").write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    return 1 if any(r.problems for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
