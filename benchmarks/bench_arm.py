"""edgec on the boards' cores beside LiteRT, ncnn, MNN and onnxruntime: estimated cycles,
arena and code of the networks of the data folder, and of twelve of 2025 and 2026.

Cycles are those that armlab's `picycles` estimates of one inference of the bundle's
program, one thread.  LiteRT's are of bench/arm-litert.json; of a model that is not
there they are counted once and kept in the user's cache.  Where a network takes longer
than the best peer's, its slowest functions are listed with their multiply-accumulates a cycle
and their share of what the core can do at most; with --beside also LiteRT's cycles for
the same ops as a model of their own (of uint8 models with a conversion of its input and
output, so rather too many).  Where there is no data folder, or no llvm-mca: edgec's own
model of the pipelines, without LiteRT.

Markdown on the screen, build/bench-arm.json, the programs in build/bench-arm/.  What
was found out is kept in the user's cache until the sources change.

    python -m benchmarks.bench_arm [--models a,b,FILE] [--boards pi3,pi4,pi5] [--jobs 2] [--ops
        all] [--beside]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from edgec_devices.boards import Board
from edgec_devices.pipeline import Counts, estimate, plugin_option
from edgec_devices.plugin import block_count_plugin
from edgec_runtime.bundle.cache import cache_dir

from benchmarks import arm_peers
from benchmarks.arm_programs import Call, Program, alone, compile_for, sources_digest
from benchmarks.networks import NETWORKS
from benchmarks.picycles import LAB, ROOT, SHARED, Picycles, missing
from edgec.errors import EdgecError
from edgec.schedule.cores import core
from edgec.toolchain.store import Store
from tests.networks.recent import RECENT

BOARDS = ("pi3", "pi4", "pi5")
TARGETS = {"pi3": 1.6, "pi4": 1.4, "pi5": 1.55}
"""Geometric means over LiteRT that are asked for."""

LISTED = 10
"""Functions of a network that are listed."""

REMEMBERED_BYTES = 64 << 20


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
    name. Bytes.

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

    @property
    def best(self) -> str:
        """The fastest peer; "" where none runs the model."""
        return min(self.peers, key=self.peers.__getitem__, default="")

    @property
    def ratio(self) -> float | None:
        """The best peer's cycles by ours: above 1, edgec is the faster."""
        return self.peers[self.best] / self.cycles if self.peers else None


@dataclass(frozen=True)
class Job:
    """A network to measure. ops: "all" networks' functions are wanted, or those that
    "lose", or "none".

    beside: LiteRT is asked for the listed ones, each as a model of its own.
    """

    model: str
    file: Path
    board: str
    ops: str
    beside: bool
    fresh: bool


# ---- what is remembered
# --------------------------------------------------------------------------------------
@cache
def _memory() -> Store:
    return Store(cache_dir("bench-arm", "results"), REMEMBERED_BYTES)


def _recall(key: str) -> Any:
    """What was remembered under a key that says all that it depends on; None if nothing
    was.
    """
    data = _memory().get(hashlib.sha256(key.encode()).hexdigest())
    return None if data is None else json.loads(data)


def _remember(key: str, value: Any) -> None:
    _memory().put(hashlib.sha256(key.encode()).hexdigest(), json.dumps(value).encode())


@cache
def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _tool() -> Picycles | None:
    """None where there is none: then edgec's own model takes its place."""
    return None if missing() else Picycles(cache_dir("bench-arm", "armlab"))


def _how() -> str:
    """What estimates the cycles, for the keys of what is remembered."""
    if missing():
        return "pipeline"
    return "picycles " + " ".join(
        _file_digest(LAB / n) for n in ("picycles", "armlab.py", "picycles_plugin.c")
    )


# ---- one network
# --------------------------------------------------------------------------------------
def measure(job: Job) -> Row:
    """A row, from what is remembered if nothing has changed."""
    key = (
        f"row with peers {_how()} {sources_digest()} {_file_digest(job.file)} "
        f"{job.board} {job.ops} {job.beside} {_peers_digest()}"
    )
    known = None if job.fresh else _recall(key)
    if known:
        shares = tuple(
            Share(_call(s["call"]), s["cycles"], s["litert"])
            for s in known.pop("shares")
        )
        return Row(**{**known, "model": job.model}, shares=shares)
    program = compile_for(job.file, job.board)
    main = program.write(ROOT / "build" / "bench-arm" / f"{job.file.stem}-{job.board}")
    peers = dict(_peers(job))
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
    )
    _remember(key, asdict(row))
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
    key = f"cycles {_how()} {program.digest} {board}"
    known = None if fresh else _recall(key)
    if known is None:
        tool = _tool()
        if tool:
            known = tool.program(board, [main, "--runs", "1"])
        else:
            known = sum(places(main, board).values())
        _remember(key, known)
    return float(known)


def _shares(program: Program, job: Job, main: Path) -> Iterator[Share]:
    key = f"places {_how()} {program.digest} {job.board}"
    known = None if job.fresh else _recall(key)
    if known is None:
        known = [[*place, cycles] for place, cycles in places(main, job.board).items()]
        _remember(key, known)
    found = {(segment, op): cycles for segment, op, cycles in known}
    yield from (Share(c, found.get(c.place, 0.0)) for c in program.calls)


def _beside(shares: Sequence[Share], job: Job) -> Iterator[Share]:
    """The listed ones with LiteRT's cycles for the same ops."""
    tool = _tool()
    listed = {s.call.place for s in sorted(shares, key=lambda s: -s.cycles)[:LISTED]}
    models = alone(job.file, job.board, listed) if tool else {}
    for s in shares:
        model = models.get(s.call.place)
        yield (
            s
            if model is None or tool is None
            else replace(s, litert=_litert_of(model, job.board, tool))
        )


def _litert_of(model: bytes, board: str, tool: Picycles) -> float | None:
    key = f"cycles of LiteRT {_how()} {hashlib.sha256(model).hexdigest()} {board}"
    known = _recall(key)
    if known is None:
        with tempfile.NamedTemporaryFile(suffix=".tflite") as f:
            f.write(model)
            f.flush()
            known = tool.litert(board, Path(f.name))
        if known is not None:  # LiteRT may be installed later
            _remember(key, known)
    return None if known is None else float(known)


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
    tool = _tool()
    if tool:
        return tool.places(counts, board_name)
    return {
        place: e.cycles
        for place, e in estimate(counts, board.core, board.caches).items()
    }


@cache
def _peers_digest() -> str:
    """Which peers are there, and how they are run."""
    tool = _tool()
    names = [
        f"{name} {arm_peers.digest(name)}"
        for name, peer in arm_peers.PEERS.items()
        if tool is not None and tool.has(peer.site)
    ]
    return " ".join(names)


def _peers(job: Job) -> Iterator[tuple[str, float]]:
    """The cycles of each runtime that takes the file: LiteRT, or those of ONNX files."""
    tool = _tool()
    litert = _litert(job)
    if litert is not None:
        yield "LiteRT", litert
    if tool is None or job.file.suffix != ".onnx":
        return
    for name, peer in arm_peers.PEERS.items():
        # Wheels may be installed later: nothing is remembered without them.
        if not tool.has(peer.site):
            continue
        key = (
            f"cycles of {name} {_how()} {arm_peers.digest(name)} "
            f"{_file_digest(job.file)} {job.board}"
        )
        known = _recall(key)
        if known is None:
            known = arm_peers.cycles(tool, peer, job.file, job.board)
            # A refusal is remembered too: it takes as long as a run.
            _remember(key, known or 0.0)
        if known:
            yield name, float(known)


def _litert(job: Job) -> float | None:
    """LiteRT's cycles, of the data folder or counted here once; None where it cannot
    run the model.
    """
    tool = _tool()
    if not tool:
        return None
    table = json.loads((SHARED / "bench" / "arm-litert.json").read_text())
    if job.board in table.get(job.file.stem, {}):
        return float(table[job.file.stem][job.board])
    if job.file.suffix == ".tflite":
        return _litert_of(job.file.read_bytes(), job.board, tool)
    return None


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
    """Every peer's cycles by ours, where there are several."""
    names = [*dict.fromkeys(name for r in rows for name in r.peers)]
    if len(names) < 2:
        return
    yield f"| network | board | {' | '.join(f'× {name}' for name in names)} |"
    yield f"| --- | --- |{' --- |' * len(names)}"
    for r in rows:
        cells = []
        for name in names:
            peer = r.peers.get(name)
            cells.append(f"{peer / r.cycles:.2f}" if peer else "–")
        yield f"| {r.model} | {r.board} | {' | '.join(cells)} |"
    yield ""


def _means(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        "| board | networks that a peer runs | geometric mean of × best | asked "
        "for | slower than the best |"
    )
    yield "| --- | --- | --- | --- | --- |"
    for board in dict.fromkeys(r.board for r in rows):
        ratios = {r.model: r.ratio for r in rows if r.board == board and r.ratio}
        if ratios:
            slower = ", ".join(m for m, ratio in ratios.items() if ratio < 1) or "none"
            wanted = TARGETS.get(board, 1.0)
            yield (
                f"| {board} | {len(ratios)} | {geo_mean([*ratios.values()]):.3f} | "
                f"{wanted:g} | {slower} |"
            )


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
    for name in names:
        there = SHARED / "models" / NETWORKS.get(name, (name,))[0]
        if Path(name).is_file():
            found = [Path(name)]
        elif name in RECENT:
            found = [RECENT[name](_made(name))]
        else:
            found = sorted(there.glob(f"{there.name}.*"))
        found = [p for p in found if p.suffix in (".tflite", ".onnx")]
        if not found:
            sys.exit(
                f"there is no model {name}: give a file, or a name of {SHARED / 'models'}"
            )
        yield Path(name).stem, found[0]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if (SHARED / "models").is_dir():
        here = [*NETWORKS, *RECENT]
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
    return parser.parse_args()


def main() -> int:
    """Prints the tables as they become known and writes build/bench-arm.json; 1 if a
    model failed.
    """
    given = _parse()
    if reason := missing():
        print(f"{reason}: cycles are those of edgec's own model of the pipelines\n")
    pairs = [*files(given.models.split(","))]
    jobs = [
        Job(n, f, b, given.ops, given.beside, given.fresh)
        for n, f in pairs
        for b in given.boards.split(",")
    ]
    rows = []
    failed = False
    with ProcessPoolExecutor(max(1, given.jobs)) as pool:
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
    _memory().trim()
    print("\n".join(markdown(rows)))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps([as_json(r) for r in rows], indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
