"""A model's program for one core of a board, and what is known of it before it runs."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from edgec_devices.boards import Board
from edgec_devices.pipeline import Counts, plugin_option
from edgec_devices.plugin import block_count_plugin
from edgec_partitioner.segments import Segment

from benchmarks.data_folder import MODELS, PREPROCESS, ROOT, index
from edgec.benching.memory import sections
from edgec.compiler.lower import Lowered, lower
from edgec.emit.c import CSRC, CSource
from edgec.emit.sources import TargetSources, target_sources
from edgec.ir import Op, Value
from edgec.options.compile import CompileOptions
from edgec.toolchain.build import build
from edgec.toolchain.cc import Compiler


@dataclass(frozen=True)
class Call:
    """One function of a segment's C.

    Attributes:
        place: the numbers of segment and function, as profiles have them
        kind: the kind of its main op, which multiplies most
        dtype: the element type of that op's input
        shapes: the shapes that the op reads and writes
        macs: the multiply-accumulates of all its ops
        also: the kinds of its other ops
    """

    place: tuple[int, int]
    kind: str
    dtype: str
    shapes: str
    macs: int
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """A static program of the board's 64-bit target.

    Attributes:
        main: the program
        weights: the file of its weights
        arena: the size of its arena, in bytes
        bound: the least size that any plan of the arena could have, in bytes
        text: the size of the model's own code, in bytes
        calls: its calls of kernels
    """

    main: bytes
    weights: bytes
    arena: int
    bound: int
    text: int
    calls: tuple[Call, ...]

    @property
    def macs(self) -> int:
        """The multiply-accumulates of one inference."""
        return sum(c.macs for c in self.calls)

    @property
    def digest(self) -> str:
        """The same for two programs that do the same."""
        return hashlib.sha256(self.main + self.weights).hexdigest()

    def write(self, folder: Path) -> Path:
        """Write the program with its weights into a folder, and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights.bin").write_bytes(self.weights)
        (folder / "main").unlink(missing_ok=True)
        (folder / "main").write_bytes(self.main)
        (folder / "main").chmod(0o700)
        return folder / "main"


def compile_for(model: Path, board_name: str, threads: int = 1) -> Program:
    """Compile a model for the board's 64-bit target, without verification."""
    segments, sources = _emitted(model, board_name, threads)
    target = Board.load(board_name).targets[0]
    compiler = Compiler.zig(target.library, target.program, target.mcpu)
    built = build(
        {target.name: sources.texts}, CSRC, {target.name: compiler}, flags=sources.flags
    )[target.name]
    calls: list[Call] = []
    for i, segment in enumerate(segments):
        calls += _calls(i, segment, sources.segments[segment.name])
    return Program(
        main=built.program,
        weights=sources.weights,
        arena=max(sources.arena.values()),
        bound=max(s.plan.lower_bound for s in sources.segments.values()),
        text=sections(built.library)[0],
        calls=tuple(calls),
    )


def counted(main: Path, board: Board, threads: int = 1) -> Counts:
    """Return the counts of a profiled inference of a program, by function; with threads
    by part of a function too.
    """
    target = board.targets[0]
    out = main.with_name("counts")
    option = plugin_option(block_count_plugin(), out, board.caches)
    words = [target.qemu, "-cpu", target.qemu_cpu, "-plugin", option, str(main)]
    words += ["--runs", "1", "--warmup", "0", "--profile", "1"]
    words += ["--threads", str(threads), "--in-turn"] if threads > 1 else []
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    counts = Counts.read(out)
    out.unlink()
    return counts


@lru_cache(maxsize=1)
def lowered_for(model: Path, board_name: str) -> Lowered:
    """Return the model as the board's C computes it."""
    # Where float16 is accurate enough is measured on photos, as the network takes them.
    spec = _preprocess(model)
    return lower(model, CompileOptions(target=board_name, preprocess=spec))


def _preprocess(model: Path) -> str | None:
    """Return the preprocessing of a network of the data folder, else None."""
    name = model.parent.name
    if model.parent.parent != MODELS or name not in index():
        return None
    return PREPROCESS.get(index()[name]["preproc"])


def _emitted(
    model: Path, board_name: str, threads: int
) -> tuple[Sequence[Segment], TargetSources]:
    """Return the segments and the C for the board's 64-bit core."""
    board = Board.load(board_name)
    lowered = lowered_for(model, board_name)
    segments = lowered.partition.segments
    cores = lowered.cores(board.targets[0], threads)
    return segments, target_sources(lowered.graph, segments, cores)


def _by_call(segment: Segment, source: CSource) -> dict[int, list[Op]]:
    """Return the ops of each function, in order."""
    ops: dict[int, list[Op]] = {}
    for op, call in zip(segment.graph.ops, source.within, strict=True):
        if call is not None:
            ops.setdefault(call, []).append(op)
    return dict(sorted(ops.items()))


def _calls(index: int, segment: Segment, source: CSource) -> Iterator[Call]:
    """Yield the functions of a segment's C in order; `index` is the segment's."""
    for number, ops in _by_call(segment, source).items():
        main = max(ops, key=_work)
        others = [op.kind for op in ops if op is not main]
        macs = [op.spec.macs(op) for op in ops]
        yield Call(
            place=(index, number),
            kind=main.kind,
            dtype=main.inputs[0].type.dtype,
            shapes=_shapes(main),
            macs=sum(macs),
            also=tuple(others),
        )


def _work(op: Op) -> tuple[int, int]:
    """Return the multiply-accumulates of an op and the elements of its result, by which
    the main op of a function is found.
    """
    return op.spec.macs(op), op.outputs[0].type.size


def _shapes(op: Op) -> str:
    """Return the shapes of the input, of weights and of the first output."""
    inputs: Sequence[Value] = op.inputs[: 2 if op.spec.macs(op) else 1]
    return " · ".join(map(_shape, inputs)) + " → " + _shape(op.outputs[0])


def _shape(v: Value) -> str:
    return "×".join(map(str, v.type.shape)) or "1"


@cache
def sources_digest() -> str:
    """Return a hash of the sources that decide what a model is compiled to."""
    content = hashlib.sha256()
    for part in ("edgec", "partitioner", "runtime", "devices"):
        for path in sorted((ROOT / part).rglob("*")):
            if path.suffix in (".py", ".c", ".h", ".toml", ".json", ".txt"):
                name = f"{path.relative_to(ROOT)}\0".encode()
                content.update(name + path.read_bytes())
    return content.hexdigest()
