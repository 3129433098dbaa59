"""A model's program for one core of a board, and what is known of it before it runs."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from edgec_devices.boards import Board
from edgec_partitioner.regions import Region
from edgec_partitioner.segments import Segment
from edgec_partitioner.segments import segment as split_off

from benchmarks.data_folder import MODELS, PREPROCESS, ROOT, index
from edgec.benching.memory import sections
from edgec.compiler.lower import Lowered, lower
from edgec.emit.c import CSRC, CSource
from edgec.emit.sources import TargetSources, target_sources
from edgec.emit.tflite import write_tflite
from edgec.errors import EdgecError
from edgec.ir import Op, Value
from edgec.options.compile import CompileOptions
from edgec.schedule.steps import DEFAULT
from edgec.schedule.variant import Rules
from edgec.toolchain.build import build
from edgec.toolchain.cc import Compiler


@dataclass(frozen=True)
class Call:
    """One function of a segment's C: its main op, and that op's type, shapes and
    multiply-accumulates.

    place: (segment, function), as profiles have it. also: kinds of the other ops that
    it computes.
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
        """Multiply-accumulates of one inference."""
        return sum(c.macs for c in self.calls)

    @property
    def digest(self) -> str:
        """Two with the same do the same."""
        return hashlib.sha256(self.main + self.weights).hexdigest()

    def write(self, folder: Path) -> Path:
        """As files; the program, which finds its weights beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights.bin").write_bytes(self.weights)
        (folder / "main").unlink(missing_ok=True)
        (folder / "main").write_bytes(self.main)
        (folder / "main").chmod(0o700)
        return folder / "main"


def compile_for(
    model: Path, board_name: str, rules: Rules = DEFAULT, prelude: str = ""
) -> Program:
    """As `edgec compile --target` does, for the board's 64-bit target alone, and
    without verification.

    rules: what its schedule may do. prelude: what each C file of a segment begins with.
    """
    segments, sources = _emitted(model, board_name, rules)
    target = Board.load(board_name).targets[0]
    compiler = Compiler.zig(target.library, target.program, target.mcpu)
    texts = {
        name: text if name == "model.c" else prelude + text
        for name, text in sources.texts.items()
    }
    made = build(
        {target.name: texts}, CSRC, {target.name: compiler}, flags=sources.flags
    )[target.name]
    return Program(
        main=made.program,
        weights=sources.weights,
        arena=max(sources.arena.values()),
        bound=max(s.plan.lower_bound for s in sources.segments.values()),
        text=sections(made.library)[0],
        calls=tuple(
            c
            for i, s in enumerate(segments)
            for c in _calls(i, s, sources.segments[s.name])
        ),
    )


def alone(
    model: Path, board_name: str, places: Collection[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    """What functions of a model's C compute, each as a .tflite file of its own; without
    those that TFLite has not.
    """
    segments, sources = _emitted(model, board_name)
    found: dict[tuple[int, int], bytes] = {}
    for i, s in enumerate(segments):
        for call, ops in _by_call(s, sources.segments[s.name]).items():
            written = dict.fromkeys(v for op in ops for v in op.outputs)
            reads = dict.fromkeys(
                v
                for op in ops
                for v in op.inputs
                if v.const is None and v not in written
            )
            others = {v for op in s.graph.ops if op not in ops for v in op.inputs} | {
                *s.graph.outputs
            }
            region = Region(
                "cpu",
                tuple(ops),
                tuple(reads),
                tuple(v for v in written if v in others),
            )
            if (i, call) in places:
                with contextlib.suppress(EdgecError, NotImplementedError):
                    found[i, call] = write_tflite(split_off("alone", region).graph)
    return found


@lru_cache(maxsize=1)
def lowered_for(model: Path, board_name: str) -> Lowered:
    """The model as the board's C computes it."""
    # Where float16 is accurate enough is measured on photos, as the network takes them.
    wanted = _preprocess(model)
    return lower(model, CompileOptions(target=board_name, preprocess=wanted))


def _preprocess(model: Path) -> str | None:
    """Return the preprocessing of a network of the data folder, else None."""
    name = model.parent.name
    if model.parent.parent != MODELS or name not in index():
        return None
    return PREPROCESS.get(index()[name]["preproc"])


def _emitted(
    model: Path, board_name: str, rules: Rules = DEFAULT
) -> tuple[Sequence[Segment], TargetSources]:
    """The C for the board's 64-bit core."""
    board = Board.load(board_name)
    lowered = lowered_for(model, board_name)
    segments = lowered.partition.segments
    cores = lowered.cores(board.targets[0])
    return segments, target_sources(lowered.graph, segments, cores, rules)


def _by_call(segment: Segment, source: CSource) -> dict[int, list[Op]]:
    """The ops of each function, in order."""
    ops: dict[int, list[Op]] = {}
    for op, call in zip(segment.graph.ops, source.within, strict=True):
        if call is not None:
            ops.setdefault(call, []).append(op)
    return dict(sorted(ops.items()))


def _calls(index: int, segment: Segment, source: CSource) -> Iterator[Call]:
    """Yield the functions of a segment's C in order.

    index: of the segment.
    """
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
    """Of the input, of the weights if there are any, of the first output."""
    read: Sequence[Value] = op.inputs[: 2 if op.spec.macs(op) else 1]
    return " · ".join(_shape(v) for v in read) + " → " + _shape(op.outputs[0])


def _shape(v: Value) -> str:
    return "×".join(map(str, v.type.shape)) or "1"


@cache
def sources_digest() -> str:
    """Of all that decides what a model is compiled to."""
    found = hashlib.sha256()
    for part in ("edgec", "partitioner", "runtime", "devices"):
        for path in sorted((ROOT / part).rglob("*")):
            if path.suffix in (".py", ".c", ".h", ".toml", ".json", ".txt"):
                found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()
