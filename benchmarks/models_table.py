"""Every real model of the data folder: read, printed and parsed, compiled, and its C
compared with references; some through the whole line: the C under sanitizers, run on an
emulated Pi, with an Edge TPU.

Markdown on the screen, build/models-table.json. Beside the text form only public
commands of edgec are used. Needs the data folder (EDGEC_SHARED, default ../shared).

    python -m benchmarks.models_table [--models a,b] [--targets host,pi4] [--no-sanitizers]
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
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from edgec_runtime.session.session import machine_target

from edgec.errors import EdgecError
from edgec.frontends import read_model
from edgec.ir import parse, print_graph

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
WORK = ROOT / "build" / "models"
EDGEC = [sys.executable, "-m", "edgec"]
WHOLE_LINE = (
    "resnet8_i8,resnet8_f32,vww96_i8,mnv1_025_128_u8,mnv2_tf2_i8,prisma_i8,prisma_f32,mnv1_025_224_f32,"
    "mp_selfie_land_onnx,mp_face_landmark_onnx,ultraface_rfb320,prisma_onnx,pfld_ghostone"
)
"""Those that go through all of it; the others are compiled for this machine alone."""
TARGETS = "host,pi4,pi4+coral"
FLOAT_TOLERANCE = 1e-4
OWN_SECONDS = 60
OWN_MB = 1000
"""What a compile may take of one core, without the C compiler."""


@dataclass(frozen=True)
class Explained:
    """Why a model cannot be compiled, or is not as near to its reference as others, and
    how far it may be.
    """

    why: str
    up_to: float | None = None


EXPLAINED = {
    "yunet_n_320": Explained(
        "the scores of its coarsest grid are all below 0.0005 on this photo, "
        "and the last bit of onnxruntime's "
        "sigmoid, 1.1e-7, is 2.5e-4 of that range; all other outputs are within 2e-6",
        3e-4,
    ),
    "kws_dscnn_f32": Explained(
        "its convolutions have int8 weights beside float activations, "
        "which TFLite's kernels round to int8 as they "
        "go: behind the first they are 2 % of the range from what the file's weights "
        "give in doubles, edgec 2e-7",
        2e-4,
    ),
}
ALLOCATORS = re.compile(r"\b(malloc|calloc|realloc|free|aligned_alloc|mmap|sbrk)\b")


@dataclass
class Row:
    """One model on one target. local, emulated: the largest difference from the
    reference (see `difference`).
    """

    model: str
    target: str
    ops: int = 0
    text: str = ""
    own_s: float = 0.0
    own_mb: int = 0
    segments: str = ""
    edgetpu_macs: float = 0.0
    arena: int = 0
    compile_s: float = 0.0
    local: float | None = None
    emulated: float | None = None
    reference: str = ""
    sanitizers: str = ""
    problems: list[str] = field(default_factory=list)
    explained: str = ""


def run(*command: str | Path, timeout: int = 3600) -> subprocess.CompletedProcess[str]:
    """A command with its output; raises RuntimeError with its last lines when it fails."""
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=timeout
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, command[:6]))}: exit {done.returncode}: "
            f"{done.stderr[-600:]}"
        )
    return done


def measure(model: str, target: str, sanitizers: bool) -> Row:
    """Everything about one model on one target."""
    row = Row(model, target)
    whole = sanitizers and model in WHOLE_LINE.split(",")
    entry = next(
        m
        for m in json.loads((SHARED / "models" / "index.json").read_text())
        if m["name"] == model
    )
    bundle = WORK / f"{model}-{target}.edgec"
    file = SHARED / "models" / entry["file"]
    reference = SHARED / "models" / entry["ref"]["file"] if "ref" in entry else None
    started = time.monotonic()
    try:
        shapes = frozen(entry, reference)
        read_and_print(row, file, shapes)
        given = [
            f"--input-shape={name}={'x'.join(map(str, shape))}"
            for name, shape in shapes.items()
        ]
        compile_model(
            row, file, "--target", target, "--allow-float", *given, "-o", bundle
        )
        row.compile_s = round(time.monotonic() - started, 1)
        describe(row, bundle)
        if whole:
            check_c(row, bundle)
        if reference:
            row.local = compare(row, bundle, reference, "local:")
        if target != "host" and reference:
            row.emulated = compare(row, bundle, reference, "emulated:pi4")
    except (RuntimeError, EdgecError, subprocess.TimeoutExpired) as e:
        wrong(row, str(e).split("\n")[0])
    return row


def wrong(row: Row, what: str, off: float | None = None) -> None:
    """A problem, or what is known of this model. off: of a result that is too far from
    its reference, how far.
    """
    known = EXPLAINED.get(row.model)
    if (
        known is not None
        and (off is None) == (known.up_to is None)
        and (off or 0.0) <= (known.up_to or 0.0)
    ):
        row.explained = f"{what}: {known.why}"
    else:
        row.problems.append(what)


def frozen(entry: dict[str, Any], reference: Path | None) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs that are dynamic in more than the batch, as the reference
    has them.
    """
    if reference is None:
        return {}
    with np.load(reference) as ref:
        shapes = [ref[f"in0_{j}"].shape for j in range(len(entry["inputs"]))]
    pairs = zip(entry["inputs"], shapes, strict=True)
    return {
        i["name"]: s
        for i, s in pairs
        if any(not isinstance(d, int) for d in i["shape"][1:])
    }


def read_and_print(row: Row, file: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """Its text form, parsed back."""
    graph = read_model(file, shapes)
    row.ops = len(graph.ops)
    row.text = "same" if parse(print_graph(graph)) == graph else "another graph"
    if row.text != "same":
        row.problems.append("the text form is of another graph")


def compile_model(row: Row, *args: str | Path) -> None:
    """A compile, and what its own process took."""
    command = [*EDGEC, "compile", *map(str, args)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said: list[str] = []
        reader = Thread(target=lambda: said.extend(process.stdout or ()))
        reader.start()
        while process.poll() is None:
            with suppress(OSError):  # it may have ended
                row.own_s, row.own_mb = taken(process.pid)
            time.sleep(0.1)
        reader.join()
    text = "".join(said)
    if process.returncode:
        raise RuntimeError(
            next((line for line in said if line.startswith("error:")), text[-300:])
        )
    if row.own_s > OWN_SECONDS or row.own_mb > OWN_MB:
        row.problems.append(
            f"compile took {row.own_s:.0f} s of one core without the C compiler, "
            f"and {row.own_mb} MB"
        )


def taken(pid: int) -> tuple[float, int]:
    """The seconds of a core and the most MB that a process took, without those that it
    started.
    """
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    most = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    seconds = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    if most is None:  # it has ended, and waits for us
        raise ProcessLookupError(pid)
    return seconds, int(most[1]) // 1000


def describe(row: Row, bundle: Path) -> None:
    """Places and sizes, from the manifest."""
    manifest = json.loads(zipfile.ZipFile(bundle).read("manifest.json"))
    segments = manifest["segments"]
    row.segments = " ".join(s["place"] for s in segments)
    row.arena = max(s["arena"] for s in segments)
    macs = sum(s["macs"] for s in segments)
    if macs:
        row.edgetpu_macs = (
            sum(s["macs"] for s in segments if s["place"] == "edgetpu") / macs
        )
    else:
        row.edgetpu_macs = 0.0


_BUILD = """include src/{target}/model.mk
program: main.o $(MODEL_OBJECTS)
\t$(CC) $(CFLAGS) -o $@ $^ $(MODEL_LIBS)
main.o: src/main.c
\t$(CC) $(CFLAGS) $(MODEL_CFLAGS) $(MODEL_INCLUDES) -c -o $@ $<
"""


def check_c(row: Row, bundle: Path) -> None:
    """The bundle's own src/: no warning, no allocation, no .bss, clean under both
    sanitizers.
    """
    out = WORK / f"{bundle.stem}-c"
    here = machine_target()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with zipfile.ZipFile(bundle) as z:
        z.extractall(out, [n for n in z.namelist() if n.startswith("src/")])
        manifest = json.loads(z.read("manifest.json"))
        if f"src/{here}/model.mk" not in z.namelist():
            row.sanitizers = "not for this machine"
            return
        (out / "weights.bin").write_bytes(z.read(manifest["weights"][here]))
    (out / "Makefile").write_text(_BUILD.format(target=here))
    warnings = "-Wall -Wextra -Werror"
    run("make", "-C", out, "program", "CC=gcc", f"CFLAGS={warnings}")
    for object_file in sorted(out.glob("edgec-seg*.o")):
        match = re.search(
            r"^\.bss\s+(\d+)", run("size", "-A", object_file).stdout, re.M
        )
        if match and int(match[1]):
            row.problems.append(f"{object_file.name}: .bss {match[1]}")
        if found := ALLOCATORS.search(run("nm", object_file).stdout):
            row.problems.append(f"{object_file.name} refers to {found[1]}")
    sanitize = (
        "-g -fsanitize=address,undefined -fno-sanitize-recover=all -DEK_ARENAS_APART"
    )
    run("make", "-B", "-C", out, "program", "CC=gcc", f"CFLAGS={warnings} {sanitize}")
    run(out / "program", "--runs", "1")
    row.sanitizers = "clean"


def compare(row: Row, bundle: Path, reference: Path, device: str) -> float:
    """The largest difference over the reference's samples; a problem when it is more
    than allowed.
    """
    ref = np.load(reference)
    worst = 0.0
    for k in sorted(
        {int(m[1]) for n in ref.files if (m := re.fullmatch(r"in(\d+)_0", n))}
    ):
        given = WORK / "input.npz"
        result = WORK / "output.npz"
        np.savez(
            given,
            **{
                f"in0_{n.split('_')[1]}": ref[n]
                for n in ref.files
                if n.startswith(f"in{k}_")
            },
        )
        run(*EDGEC, "run", bundle, "--input", given, "--output", result, "--on", device)
        got = list(np.load(result).values())
        kind = "kref" if f"kref{k}_0" in ref.files else "out"
        row.reference = kind
        for j, y in enumerate(got):
            worst = max(worst, difference(y, ref[f"{kind}{k}_{j}"]))
    exact = got[0].dtype.kind != "f"
    if worst > (0 if exact else FLOAT_TOLERANCE):
        wrong(row, f"{device} differs by {worst:.3g}", worst)
    return worst


def difference(got: np.ndarray, want: np.ndarray) -> float:
    """Steps for integers; for floats a part of the range, or of the magnitude where one
    number has no range.
    """
    if want.dtype.kind != "f":
        return float(np.abs(got.astype(int) - want.astype(int)).max())
    span = float(want.max() - want.min()) or float(np.abs(want).max()) or 1.0
    return float(np.abs(got.reshape(want.shape) - want).max()) / span


def markdown(rows: list[Row]) -> Iterator[str]:
    """The table, then what is wrong and what is explained."""
    heads = [
        "model",
        "target",
        "ops",
        "text form",
        "segments",
        "MACs on TPU",
        "arena",
        "local",
        "emulated Pi",
        "against",
    ]
    heads += ["sanitizers", "compile s", "of one core, without the C compiler s", "MB"]
    yield f"| {' | '.join(heads)} |"
    yield "| --- " * len(heads) + "|"
    for r in rows:
        numbers = ["-" if e is None else f"{e:.3g}" for e in (r.local, r.emulated)]
        cells = [
            r.model,
            r.target,
            str(r.ops),
            r.text,
            r.segments,
            f"{r.edgetpu_macs:.1%}",
            str(r.arena),
            *numbers,
        ]
        cells += [
            r.reference,
            r.sanitizers,
            str(r.compile_s),
            f"{r.own_s:.1f}",
            str(r.own_mb),
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from (f"- {r.model} {r.target}: {r.explained}" for r in rows if r.explained)
    yield from (
        f"- PROBLEM {r.model} {r.target}: {p}" for r in rows for p in r.problems
    )


def main() -> int:
    """Print the table; exit 1 when anything is not as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", help="names, with commas (default: all)")
    parser.add_argument("--targets", default=TARGETS)
    parser.add_argument(
        "--no-sanitizers", action="store_true", help="which take most of the time"
    )
    args = parser.parse_args()
    if not (SHARED / "models").is_dir():
        print(f"no data folder at {SHARED}: set EDGEC_SHARED")
        return 2
    WORK.mkdir(parents=True, exist_ok=True)
    rows = []
    known = [
        m["name"] for m in json.loads((SHARED / "models" / "index.json").read_text())
    ]
    for model in args.models.split(",") if args.models else known:
        for target in (
            args.targets.split(",") if model in WHOLE_LINE.split(",") else ["host"]
        ):
            rows.append(measure(model, target, not args.no_sanitizers))
            print(
                f"{model} {target}: {rows[-1].problems or 'ok'}",
                file=sys.stderr,
                flush=True,
            )
    print("\n".join(markdown(rows)))
    (ROOT / "build" / "models-table.json").write_text(
        json.dumps([asdict(r) for r in rows], indent=1) + "\n"
    )
    print(
        f"\n{sum(not (r.problems or r.explained) for r in rows)} of {len(rows)} rows "
        "as promised",
        file=sys.stderr,
    )
    return 1 if any(r.problems for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
