"""edgec on the boards' cores beside LiteRT, ncnn, MNN and onnxruntime: estimated cycles,
arena and code of the networks of the data folder, and of twelve of 2025 and 2026.

Cycles are those that armlab's `picycles` estimates of one inference of the bundle's
program, one thread.  LiteRT's for .tflite files are of bench/arm-litert.json; all
others are counted once and kept in the user's cache, or read from a file
(peer_figures.py).  Where a network takes longer
than the best peer's, its slowest functions are listed with their multiply-accumulates a cycle
and their share of what the core can do at most; with --beside also LiteRT's cycles for
the same ops as a model of their own (of uint8 models with a conversion of its input and
output, so rather too many).  Where there is no data folder, or no llvm-mca: edgec's own
model of the pipelines, without LiteRT.

Markdown on the screen, build/bench-arm.json, the programs in build/bench-arm/.  What
was found out is kept in the user's cache until the sources change.

    python -m benchmarks.bench_arm [--models a,b,FILE] [--boards pi3,pi4,pi5] [--jobs 2] [--ops
        all] [--beside] [--peers-from FILE] [--peers-only FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from edgec_devices.boards import Board
from edgec_devices.pipeline import Counts, estimate, plugin_option
from edgec_devices.plugin import block_count_plugin

from benchmarks import peer_figures
from benchmarks.arm_programs import Call, Program, alone, compile_for, sources_digest
from benchmarks.arm_results import file_digest, how, memory, recall, remember, tool
from benchmarks.networks import NETWORKS, ONNX_NETWORKS
from benchmarks.peer_figures import Figure, Key
from benchmarks.picycles import ROOT, SHARED, missing
from edgec.errors import EdgecError
from edgec.schedule.cores import core
from tests.networks.recent import RECENT

BOARDS = ("pi3", "pi4", "pi5")

LISTED = 10
"""Functions of a network that are listed."""


@dataclass(frozen=True)
class Share:
    """What one function takes. litert: what LiteRT takes for the same ops as a model of
    their own, if it was asked.
    """

    call: Call
    cycles: float
    litert: float | None = None

    @property
    def rate(self) -> float:
        """Multiply-accumulates a cycle."""
        return self.call.macs / self.cycles if self.cycles else 0.0

    def of_peak(self, board: str) -> float:
        """Share of what the core can do at most."""
        facts = core(Board.load(board).targets[0].mcpu)
        return self.rate / (
            facts.macs_f32 if self.call.dtype.startswith("float") else facts.macs_s8
        )


@dataclass(frozen=True)
class Row:
    """One network on one board. cycles: of one inference. peers: those of others, by
    name. differs: those whose outputs are not onnxruntime's. Bytes.

    shares: of its functions; empty where nobody asked.
    """

    model: str
    board: str
    macs: int
    cycles: float
    peers: Mapping[str, float]
    arena: int
    bound: int
    text: int
    shares: tuple[Share, ...] = ()
    differs: Mapping[str, float] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The fastest peer that computes the model; "" where none does."""
        return min(self.peers, key=self.peers.__getitem__, default="")

    @property
    def ratio(self) -> float | None:
        """The best peer's cycles by ours: above 1, edgec is the faster."""
        return self.peers[self.best] / self.cycles if self.peers else None


@dataclass(frozen=True)
class Job:
    """A network to measure. ops: "all" networks' functions are wanted, or those that
    "lose", or "none".

    twins: files of the same network for peers that do not read the first.
    beside: LiteRT is asked for the listed ones, each as a model of its own.
    known: the peers' figures, of a file; None to count them.
    """

    model: str
    file: Path
    twins: tuple[Path, ...]
    board: str
    ops: str
    beside: bool
    fresh: bool
    known: Mapping[Key, Figure] | None

    def figures(self) -> list[Figure]:
        """Those of the peers."""
        files = (self.file, *self.twins)
        found = peer_figures.figures(self.model, files, self.board, self.known)
        return list(found)


# ---- one network
# --------------------------------------------------------------------------------------
def measure(job: Job) -> Row:
    """A row, from what is remembered if nothing has changed."""
    figures = [f for f in job.figures() if f.cycles is not None]
    peers = {f.peer: float(f.cycles or 0) for f in figures if f.agrees}
    differs = {f.peer: float(f.cycles or 0) for f in figures if not f.agrees}
    key = (
        f"row beside peers {how()} {sources_digest()} {file_digest(job.file)} "
        f"{job.board} {job.ops} {job.beside} {sorted(peers.items())}"
    )
    known = None if job.fresh else recall(key)
    if known:
        shares = tuple(
            Share(_call(s["call"]), s["cycles"], s["litert"])
            for s in known.pop("shares")
        )
        facts = {**known, "model": job.model, "differs": differs}
        return Row(**facts, shares=shares)
    program = compile_for(job.file, job.board)
    main = program.write(ROOT / "build" / "bench-arm" / f"{job.file.stem}-{job.board}")
    cycles = cycles_of(program, main, job.board, fresh=job.fresh)
    slower = min(peers.values(), default=math.inf) < cycles
    wanted = job.ops == "all" or (job.ops == "lose" and slower)
    shares = tuple(_shares(program, job, main)) if wanted else ()
    shares = tuple(_beside(shares, job)) if job.beside and shares else shares
    row = Row(
        job.model,
        job.board,
        program.macs,
        cycles,
        peers,
        program.arena,
        program.bound,
        program.text,
        shares,
        differs,
    )
    remember(key, asdict(row))
    return row


def _call(fields: dict[str, Any]) -> Call:
    return Call(
        **{**fields, "place": tuple(fields["place"]), "also": tuple(fields["also"])}
    )


def cycles_of(
    program: Program, main: Path, board: str, *, fresh: bool = False
) -> float:
    """Of one inference, by picycles' own command.

    Programs that came out the same were counted already.

    main: the program as a file. fresh: count it once more.
    """
    key = f"cycles {how()} {program.digest} {board}"
    known = None if fresh else recall(key)
    if known is None:
        lab = tool()
        if lab:
            known = lab.program(board, [main, "--runs", "1"])
        else:
            known = sum(places(main, board).values())
        remember(key, known)
    return float(known)


def _shares(program: Program, job: Job, main: Path) -> Iterator[Share]:
    """The cycles of each function of a program, counted or remembered."""
    key = f"places {how()} {program.digest} {job.board}"
    known = None if job.fresh else recall(key)
    if known is None:
        counted = places(main, job.board)
        # JSON has no keys of two numbers.
        known = [[*place, cycles] for place, cycles in counted.items()]
        remember(key, known)

    found: dict[tuple[int, int], float] = {}
    for segment, op, cycles in known:
        found[segment, op] = cycles
    for call in program.calls:
        yield Share(call, found.get(call.place, 0.0))


def _beside(shares: Sequence[Share], job: Job) -> Iterator[Share]:
    """The listed ones with LiteRT's cycles for the same ops."""
    listed = {s.call.place for s in sorted(shares, key=lambda s: -s.cycles)[:LISTED]}
    models = alone(job.file, job.board, listed) if tool() else {}
    for s in shares:
        model = models.get(s.call.place)
        yield (
            s
            if model is None
            else replace(s, litert=peer_figures.litert_of(model, job.board))
        )


def places(main: Path, board_name: str) -> dict[tuple[int, int], float]:
    """Of each function of a program: counted by edgec's plugin for QEMU, in picycles'
    cycles or in those of edgec's model.
    """
    board = Board.load(board_name)
    out = main.with_name("counts")
    out.unlink(missing_ok=True)
    option = plugin_option(block_count_plugin(), out, board.caches)
    qemu = [board.targets[0].qemu, "-cpu", board.targets[0].qemu_cpu, "-plugin", option]
    profiled = ["--runs", "1", "--warmup", "0", "--profile", "1"]
    subprocess.run([*qemu, str(main), *profiled], check=True, stdout=subprocess.DEVNULL)
    counts = Counts.read(out)
    out.unlink()
    lab = tool()
    if lab:
        return lab.places(counts, board_name)
    return {
        place: e.cycles
        for place, e in estimate(counts, board.core, board.caches).items()
    }


# ---- the table
# --------------------------------------------------------------------------------------
def geo_mean(values: Sequence[float]) -> float:
    """Their product's root."""
    return math.exp(sum(map(math.log, values)) / len(values))


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """The networks, the geometric means, and the functions that are known."""
    yield (
        "| network | MMAC | board | M cycles | best peer | its | × best | arena | above "
        "bound | .text |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for r in rows:
        beside = "– | – | –"
        if r.ratio:
            beside = f"{r.best} | {r.peers[r.best] / 1e6:.2f} | {r.ratio:.2f}"
        sizes = f"{r.arena:,} | {r.arena - r.bound:,} | {r.text / 1024:.1f} K"
        yield (
            f"| {r.model} | {r.macs / 1e6:.1f} | {r.board} | {r.cycles / 1e6:.2f} | "
            f"{beside} | {sizes} |"
        )
    yield ""
    yield from _of_peers(rows)
    yield from _means(rows)
    for r in rows:
        if r.shares:
            yield from ("", *_functions(r))


def _of_peers(rows: Sequence[Row]) -> Iterator[str]:
    """Every peer's cycles by ours, where there are several; ≠ where it computes
    something else.
    """
    names = [*dict.fromkeys(name for r in rows for name in (*r.peers, *r.differs))]
    if len(names) < 2:
        return
    yield f"| network | board | {' | '.join(f'× {name}' for name in names)} |"
    yield f"| --- | --- |{' --- |' * len(names)}"
    for r in rows:
        cells = []
        for name in names:
            cycles = r.peers.get(name) or r.differs.get(name)
            mark = " ≠" if name in r.differs else ""
            cells.append(f"{cycles / r.cycles:.2f}{mark}" if cycles else "–")
        yield f"| {r.model} | {r.board} | {' | '.join(cells)} |"
    yield ""


def _means(rows: Sequence[Row]) -> Iterator[str]:
    """Of each board's networks that a peer runs."""
    yield (
        "| board | networks that a peer runs | geometric mean of × best "
        "| slower than the best |"
    )
    yield "| --- | --- | --- | --- |"
    for board in dict.fromkeys(r.board for r in rows):
        ratios = {r.model: r.ratio for r in rows if r.board == board and r.ratio}
        if ratios:
            slower = ", ".join(m for m, ratio in ratios.items() if ratio < 1) or "none"
            mean = geo_mean([*ratios.values()])
            yield f"| {board} | {len(ratios)} | {mean:.3f} | {slower} |"


def _functions(row: Row) -> Iterator[str]:
    """The slowest of a network, and what the others take together."""
    against = f", {row.ratio:.2f} × {row.best}" if row.ratio else ""
    yield (
        f"{row.model} on {row.board}{against}: where its {row.cycles / 1e6:.2f} M "
        "cycles go"
    )
    yield ""
    yield (
        "| function | shapes | MMAC | M cycles | of all | MAC a cycle | of the peak "
        "| LiteRT alone | × LiteRT |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    ordered = sorted(row.shares, key=lambda s: -s.cycles)
    for s in ordered[:LISTED]:
        rate = f"{s.rate:.2f} | {s.of_peak(row.board):.0%}" if s.call.macs else "– | –"
        kinds = "+".join((s.call.kind, *s.call.also))
        figures = (
            f"{s.call.macs / 1e6:.2f} | {s.cycles / 1e6:.3f} | "
            f"{s.cycles / row.cycles:.1%} | {rate}"
        )
        if s.litert:
            beside = f"{s.litert / 1e6:.3f} | {s.litert / s.cycles:.2f}"
        else:
            beside = "– | –"
        yield (
            f"| op {s.call.place[1]} {kinds} {s.call.dtype} | {s.call.shapes} | "
            f"{figures} | {beside} |"
        )
    rest = ordered[LISTED:]
    if rest:
        cycles = sum(s.cycles for s in rest)
        share = f"{cycles / 1e6:.3f} | {cycles / row.cycles:.1%}"
        yield (
            f"| {len(rest)} more | | {sum(s.call.macs for s in rest) / 1e6:.2f} | "
            f"{share} | | | | |"
        )


def as_json(row: Row) -> dict[str, Any]:
    """A row of build/bench-arm.json."""
    functions = [
        {
            **asdict(s.call),
            "cycles": s.cycles,
            "macs_per_cycle": s.rate,
            "of_peak": s.of_peak(row.board),
        }
        for s in row.shares
    ]
    fields = asdict(row)
    del fields["shares"]
    return {**fields, "ratio": row.ratio, "functions": functions}


def _made(name: str) -> Path:
    """The file of a network that is made here."""
    folder = ROOT / "build" / "bench-arm" / "networks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.onnx"


# ---- the command
# --------------------------------------------------------------------------------------
def files(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """The files of networks by name, of the data folder; any other file by its path."""
    for name, found in all_files(names):
        yield name, found[0]


def all_files(names: Iterable[str]) -> Iterator[tuple[str, Sequence[Path]]]:
    """Yield what `files` does, with all files of a network: first the one edgec reads."""
    for name in names:
        if Path(name).is_file():
            found = [Path(name)]
        elif name in RECENT:
            found = [RECENT[name](_made(name))]
        else:
            folders = {**NETWORKS, **ONNX_NETWORKS}.get(name, (name,))
            found = [path for folder in folders for path in _there(folder)]
        if not found:
            sys.exit(
                f"there is no model {name}: give a file, or a name of {SHARED / 'models'}"
            )
        yield Path(name).stem, found


def _there(name: str) -> list[Path]:
    """The model files of a folder of the data folder."""
    found = sorted((SHARED / "models" / name).glob(f"{name}.*"))
    return [p for p in found if p.suffix in (".tflite", ".onnx")]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if (SHARED / "models").is_dir():
        here = [*NETWORKS, *ONNX_NETWORKS, *RECENT]
    else:
        here = [str(p) for p in (ROOT / "fixtures").glob("*/*.onnx")]
    parser.add_argument(
        "--models", default=",".join(here), help="names, or files, with commas"
    )
    parser.add_argument("--boards", default=",".join(BOARDS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--ops",
        choices=("lose", "all", "none"),
        default="lose",
        help="whose functions are listed",
    )
    parser.add_argument(
        "--beside",
        action="store_true",
        help="ask LiteRT for each listed function as its own model",
    )
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "bench-arm.json", metavar="FILE"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="use nothing that is remembered"
    )
    parser.add_argument(
        "--peers-from",
        type=Path,
        metavar="FILE",
        help="the peers' figures, which --peers-only wrote; none is counted",
    )
    parser.add_argument(
        "--peers-only",
        type=Path,
        metavar="FILE",
        help="count the peers alone, and write their figures to a file",
    )
    return parser.parse_args()


def main() -> int:
    """Prints the tables as they become known and writes build/bench-arm.json; 1 if a
    model failed.
    """
    given = _parse()
    if reason := missing():
        print(f"{reason}: cycles are those of edgec's own model of the pipelines\n")
    known = peer_figures.read(given.peers_from) if given.peers_from else None
    jobs = []
    for name, (file, *twins) in all_files(given.models.split(",")):
        for board in given.boards.split(","):
            job = Job(
                name,
                file,
                tuple(twins),
                board,
                given.ops,
                given.beside,
                given.fresh,
                known,
            )
            jobs.append(job)
    if given.peers_only:
        peer_figures.write(given.peers_only, _all_figures(jobs, given.jobs))
        memory().trim()
        return 0
    rows, failed = _rows(jobs, given.jobs)
    memory().trim()
    print("\n".join(markdown(rows)))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps([as_json(r) for r in rows], indent=1) + "\n")
    return int(failed)


def _all_figures(jobs: Sequence[Job], processes: int) -> list[Figure]:
    """The peers' figures for all jobs, in order."""
    with ProcessPoolExecutor(max(1, processes)) as pool:
        found = pool.map(Job.figures, jobs)
        return [figure for figures in found for figure in figures]


def _rows(jobs: Sequence[Job], processes: int) -> tuple[list[Row], bool]:
    """The rows of all jobs that did not fail, and whether one did."""
    rows = []
    failed = False
    with ProcessPoolExecutor(max(1, processes)) as pool:
        for job, future in [(job, pool.submit(measure, job)) for job in jobs]:
            try:
                rows.append(future.result())
                print(
                    f"{job.model} on {job.board}: {rows[-1].cycles / 1e6:.2f} M cycles",
                    file=sys.stderr,
                )
            except (EdgecError, subprocess.CalledProcessError) as e:
                failed = True
                print(f"{job.model} on {job.board}: {e}", file=sys.stderr)
    return rows, failed


if __name__ == "__main__":
    sys.exit(main())
