"""Real models under sanitizers: the C of each core with fast kernels, as gcc and clang
see it at run time.

    addresses  plain C, AVX2, and AVX-512 VNNI where this processor has it: gcc's address,
               undefined behaviour and
               float-cast sanitizers; of noise, and of NaN, infinities, denormals, extremes and
               any bits: the integers
               are interp's
    threads    the same code for four threads, on 2, 3 and 4: gcc's thread sanitizer; the outputs
               are the same bits
    undefined  the boards' cores under QEMU: clang's undefined behaviour sanitizer, which ends the
               program

Markdown on the screen, build/sanitize-table.json; 1 if anything is found.

    python -m benchmarks.sanitize_table [--models a,b,FILE] [--checks
        addresses,threads,undefined]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from edgec_devices.boards import Board

from benchmarks.arm_programs import lowered_for
from benchmarks.data_folder import ROOT
from benchmarks.networks import NETWORKS, files
from edgec.emit.c import CSRC
from edgec.emit.sources import TargetSources, target_sources
from edgec.errors import EdgecError
from edgec.ir import Graph, interp
from edgec.schedule.cores import PLAIN, Core, cores_of
from tests.conformance.sanitizing import hostile
from tests.harness import has

BOARDS = ("pi3", "pi4", "pi5")
FLAGS = (
    "-std=c11",
    "-O1",
    "-g",
    "-ffp-contract=off",
    "-DEK_PROGRAM",
    "-DEK_ARENAS_APART",
    f"-I{CSRC}",
)
CHECKED = "-fsanitize=address,undefined,float-cast-overflow"
ADDRESSES = ("gcc", "-march=x86-64-v3", CHECKED, "-fno-sanitize-recover=all")
RACES = ("gcc", "-march=x86-64-v3", "-fsanitize=thread")
UNDEFINED = ("-static", "-fsanitize=undefined", "-fsanitize-trap=undefined")
LIMIT_S = 3600


@dataclass(frozen=True)
class Row:
    """One model on one core. found: what a sanitizer said; "" if nothing."""

    model: str
    check: str
    core: str
    found: str


def compiled(sources: TargetSources, command: Sequence[str], folder: Path) -> Path:
    """The program of a model; its weights lie beside it."""
    (folder / "weights.bin").write_bytes(sources.weights)
    objects = []
    for name, text in sources.texts.items():
        source = folder / name
        made = folder / f"{name}.o"
        source.write_text(text)
        _run(
            [
                *command,
                *FLAGS,
                *sources.flags.get(name, ()),
                "-c",
                str(source),
                "-o",
                str(made),
            ]
        )
        objects.append(str(made))
    _run(
        [
            *command,
            *FLAGS,
            str(CSRC / "main.c"),
            *objects,
            "-lm",
            "-pthread",
            "-o",
            str(folder / "main"),
        ]
    )
    return folder / "main"


def _run(command: Sequence[str | Path]) -> str:
    """What it prints. Raises RuntimeError with its last words."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, errors="replace"
    )
    if done.returncode or done.stderr:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-3000:]}")
    return done.stdout


def _x86() -> Mapping[str, tuple[Core, ...]]:
    """The cores whose code this machine runs, each by itself."""
    board = Board.load("host")
    found = {c.name: (c,) for c in cores_of(board, board.targets[0], 4)}
    return {
        name: cores
        for name, cores in found.items()
        if "vnni" not in name or has("avx512_vnni")
    }


def addresses(file: Path) -> Iterator[tuple[str, str]]:
    """Core by core, what is found."""
    for name, cores in {"plain": (PLAIN,), **_x86()}.items():
        yield (
            name,
            _found(file, "host", cores, ADDRESSES, [["--runs", "1"]], cases=HOSTILE),
        )


def threads(file: Path) -> Iterator[tuple[str, str]]:
    """Core by core, what is found."""
    for name, cores in _x86().items():
        yield (
            name,
            _found(
                file,
                "host",
                cores,
                RACES,
                [["--runs", "2", "--threads", n] for n in "1234"],
            ),
        )


def undefined(file: Path) -> Iterator[tuple[str, str]]:
    """Board by board, what is found."""
    for name in BOARDS:
        board = Board.load(name)
        target = board.targets[0]
        zig = (
            sys.executable,
            "-m",
            "ziglang",
            "cc",
            "-target",
            target.program,
            f"-mcpu={target.mcpu}",
            *UNDEFINED,
        )
        qemu = (target.qemu, "-cpu", target.qemu_cpu)
        yield (
            target.mcpu,
            _found(file, name, cores_of(board, target), zig, [["--runs", "1"]], qemu),
        )


CHECKS = {"addresses": addresses, "threads": threads, "undefined": undefined}


def _found(
    file: Path,
    board: str,
    cores: tuple[Core, ...],
    command: Sequence[str],
    runs: Sequence[Sequence[str]],
    emulator: Sequence[str] = (),
    cases: Sequence[str] = (),
) -> str:
    """The same outputs of all runs are wanted, and nothing said; of cases of
    sanitizing.py interp's integers.
    """
    lowered = lowered_for(file, board)
    sources = target_sources(lowered.graph, lowered.partition.segments, cores)
    # of one core there are none
    flags = {n: (*sources.flags.get(n, ()), *cores[0].flags) for n in sources.texts}
    with tempfile.TemporaryDirectory(prefix="edgec-") as tmp:
        folder = Path(tmp)
        try:
            made = replace(sources, flags=flags)
            main = compiled(made, command, folder)
            for options in runs:
                _run(
                    [
                        *emulator,
                        main,
                        *options,
                        "--output",
                        folder / f"out{options[-1]}",
                    ]
                )
            outputs = [
                [p.read_bytes() for p in sorted(f.iterdir())]
                for f in sorted(folder.glob("out*"))
            ]
            others = [
                said
                for case in cases
                if (said := _other_integers(lowered.graph, main, case, folder))
            ]
        except RuntimeError as e:
            return str(e)
        if all(o == outputs[0] for o in outputs):
            return "; ".join(others)
        return "threads give other bits"


HOSTILE = ("nan", "infinite", "some nan", "extreme", "denormal", "bits")


def _other_integers(graph: Graph, main: Path, case: str, folder: Path) -> str:
    """Where the program's integers are not those of interp, of inputs of a case.

    Raises RuntimeError as _run does.
    """
    rng = np.random.default_rng(0)
    files = []
    out = folder / case.replace(" ", "-")
    given = {v.name: hostile(v.type, case, rng) for v in graph.given()}
    for i, v in enumerate(graph.given()):
        files.append(folder / f"{case}{i}.npy")
        np.save(files[-1], given[v.name])
    _run([main, "--runs", "1", "--input", *files, "--output", out])
    want = interp(graph, given)
    got = {
        v.name: np.load(out / f"output{i}.npy") for i, v in enumerate(graph.returned())
    }
    whole = [v.name for v in graph.returned() if v.type.np_dtype.kind != "f"]
    return "; ".join(
        f"{case}: other integers in {n}"
        for n in whole
        if not np.array_equal(got[n], want[n])
    )


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each model and check."""
    yield "| model | check | core | found |"
    yield "| --- | --- | --- | --- |"
    for r in rows:
        yield (
            f"| {r.model} | {r.check} | {r.core} | "
            f"{' '.join(r.found.split())[:200] or 'nothing'} |"
        )


def main() -> int:
    """Prints the table and writes build/sanitize-table.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", default=",".join(NETWORKS), help="names, or files, with commas"
    )
    parser.add_argument("--checks", default=",".join(CHECKS), help="names, with commas")
    parser.add_argument(
        "--json",
        type=Path,
        default=ROOT / "build" / "sanitize-table.json",
        metavar="FILE",
    )
    given = parser.parse_args()
    rows = list[Row]()
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0"
    for model, file in files(given.models.split(",")):
        for check in given.checks.split(","):
            try:
                rows += [
                    Row(model, check, core, found)
                    for core, found in CHECKS[check](file)
                ]
            except EdgecError as e:
                rows.append(Row(model, check, "", str(e)))
            print(*markdown(rows[-1:]), sep="\n", file=sys.stderr, flush=True)
    print("\n".join(markdown(rows)))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    return int(any(r.found for r in rows))


if __name__ == "__main__":
    sys.exit(main())
