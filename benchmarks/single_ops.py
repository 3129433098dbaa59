"""Compiles ops of networks, each alone, into one program for a core, whose cycles can be
counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edgec_devices.boards import Board
from edgec_partitioner.regions import Region
from edgec_partitioner.segments import Segment, segment

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.compiler.lower import lower
from edgec.emit.c import CSRC
from edgec.emit.sources import target_sources
from edgec.errors import EdgecError
from edgec.ir import Array, Graph, Op, Value
from edgec.ops.arithmetic import Maximum
from edgec.ops.slice import Slice
from edgec.options.compile import CompileOptions
from edgec.schedule.cores import Core, cores_of
from edgec.schedule.rates import chosen_names, work
from edgec.schedule.records import signature
from edgec.schedule.steps import plan_plain_steps
from edgec.schedule.variant import Rules
from edgec.toolchain.build import build
from edgec.toolchain.cc import Compiler

MOST_MACS = 16e6
HUGE = 64e6
"""The multiply-accumulates of an op that is measured: larger ones take emulators long, and
have the same rates. The second is for kernels of large ops alone.
"""
EACH = 8
EACH_DENSE = 20
"""The ops that are measured of a kernel; the second, of one that multiplies."""
EACH_FUSED = 4
"""The ops that are measured of each pair of a kernel and fused calls."""
ROOM = Rules(spare=False)
"""The rules of a schedule with as much room as kernels can use."""
IN_ONE = 24
"""The units of a segment, each of which compiles its kernels once."""


@dataclass(frozen=True)
class Unit:
    """An op, or one with the ops that are fused behind it.

    Attributes:
        kernel: the kernel of the first op
        then: the plain kernels of the others
        ops: the ops
    """

    kernel: str
    then: tuple[str, ...]
    ops: tuple[Op, ...]

    @property
    def work(self) -> Array:
        """Return the work of the first op, in the order of the rates."""
        return work(self.ops[0])


def graphs_of(models: Iterable[Path]) -> Iterator[Graph]:
    """Yield networks as they are computed, float ones also in int8 with any scales."""
    for path in models:
        for options, assume in (
            (CompileOptions("pi4"), False),
            (CompileOptions("pi4+coral", edgetpu="all"), True),
        ):
            with contextlib.suppress(EdgecError):
                yield lower(path, options, assume=assume).graph


def units(graph: Graph, on: Core) -> Iterator[tuple[str, Unit]]:
    """Yield the units of a graph that can stand alone, each with a signature that equal
    ones share.
    """
    for step in plan_plain_steps(graph, on, ROOM).plain_steps:
        ops = tuple(graph.ops[i] for i in step.ops)
        if len(step.calls) == len(ops[0].spec.calls(ops[0])):
            then = tuple(call.kernel.name for call in step.calls[0].then)
            yield (
                "".join(map(signature, step.calls)),
                Unit("+".join(chosen_names(step.calls, on)), then, ops),
            )


def chosen(graphs: Iterable[Graph], on: Core) -> list[Unit]:
    """Return some different units of each kernel, from small to large.

    The first op of a fused unit is measured alone too.
    """
    found: dict[tuple[str, ...], dict[str, Unit]] = {}
    for graph in graphs:
        for same, unit in units(graph, on):
            if unit.work[1] <= HUGE:
                found.setdefault((unit.kernel, *unit.then), {}).setdefault(same, unit)
    picked = []
    for alike in found.values():
        ordered = sorted(alike.values(), key=lambda u: tuple(u.work[[1, 2, 3]]))
        ordered = [
            u for i, u in enumerate(ordered) if i < EACH // 2 or u.work[1] <= MOST_MACS
        ]
        if ordered[0].then:
            most = EACH_FUSED
        else:
            most = EACH_DENSE if ordered[-1].work[1] else EACH
        some = [
            ordered[i]
            for i in np.unique(
                np.linspace(0, len(ordered) - 1, most).round().astype(int)
            )
        ]
        picked += [*some, *(Unit(u.kernel, (), u.ops[:1]) for u in some if u.then)]
    return picked


def program(
    several: Sequence[Unit], board: Board, on: Core, folder: Path
) -> list[tuple[Unit, list[tuple[int, int]]]]:
    """Write the program of a board's best target that computes every unit once.

    Returns:
        each unit with its places, as profiles have them
    """
    groups = [several[at : at + IN_ONE] for at in range(0, len(several), IN_ONE)]
    parts = [_apart(f"part{i}", group) for i, group in enumerate(groups)]
    inputs = [v for s in parts for v in s.graph.inputs]
    outputs = [v for s in parts for v in s.graph.outputs]
    whole = Graph("ops", inputs, outputs, [op for s in parts for op in s.graph.ops])
    target = board.targets[0]
    sources = target_sources(whole, parts, (on,), ROOM)
    compiler = Compiler.zig(target.library, target.program, target.mcpu)
    made = build(
        {target.name: sources.texts}, CSRC, {target.name: compiler}, flags=sources.flags
    )[target.name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights.bin").write_bytes(sources.weights)
    (folder / "main").unlink(missing_ok=True)
    (folder / "main").write_bytes(made.program)
    (folder / "main").chmod(0o700)
    return [
        (unit, [(i, call) for call in calls])
        for i, (part, group) in enumerate(zip(parts, groups, strict=True))
        for unit, calls in _functions(
            part, group, sources.segments[part.name].calls, on
        )
    ]


def _functions(
    part: Segment, group: Sequence[Unit], calls: Sequence[int | None], on: Core
) -> Iterator[tuple[Unit, list[int]]]:
    """Yield the functions of the units that are fused in the segment too."""
    for step in plan_plain_steps(part.graph, on, ROOM).plain_steps:
        sources = {part.graph.ops[i].source for i in step.ops}
        if min(sources).isdigit() and len(sources) == 1:
            unit = group[int(min(sources))]
        else:
            unit = None
        if unit is not None and len(step.ops) == len(unit.ops):
            yield unit, [call for i in step.ops if (call := calls[i]) is not None]


def _apart(name: str, group: Sequence[Unit]) -> Segment:
    """Return a segment of independent units; the source of an op is its unit's number.

    Like in networks, an op before a unit has just written what it reads, and an op behind
    it reads a little of its result, which so lies in the arena.
    """
    inputs: list[Value] = []
    outputs: list[Value] = []
    made: list[Op] = []
    for i, unit in enumerate(group):
        own = _own_values(f"{name}_{i}", unit)
        written = {v for op in unit.ops for v in op.outputs}
        read = {v for op in unit.ops for v in op.inputs}
        for v, mine in own.items():
            if v.const is None and v not in written:
                inputs.append(_written_before(mine, made))

        for op in unit.ops:
            operands = [own[v] for v in op.inputs]
            results = [own[v] for v in op.outputs]
            made.append(Op(op.spec, operands, results, str(i)))

        for v, mine in own.items():
            is_between = v in written and v in read
            if v.const is not None or is_between:
                continue
            if _has_ops_around(v):
                outputs.append(_read_behind(mine, made))
            elif v in written:
                outputs.append(mine)
    return segment(name, Region("cpu", tuple(made), tuple(inputs), tuple(outputs)))


def _own_values(prefix: str, unit: Unit) -> dict[Value, Value]:
    """Return a copy with another name of each value that a unit reads or writes."""
    values = dict.fromkeys(v for op in unit.ops for v in (*op.inputs, *op.outputs))
    own: dict[Value, Value] = {}
    for n, v in enumerate(values):
        own[v] = Value(f"{prefix}_{n}", v.type, v.const)
    return own


def _has_ops_around(v: Value) -> bool:
    """Return whether ops around a unit can write or read the value."""
    return v.type.dtype in ("int8", "float32") and v.type.rank > 0


def _written_before(v: Value, made: list[Op]) -> Value:
    """Add an op that writes what a unit reads, and return its input."""
    if not _has_ops_around(v):
        return v
    given = Value(f"{v.name}_in", v.type)
    made.append(Op(Maximum(), [given, given], [v], "before"))
    return given


def _read_behind(v: Value, made: list[Op]) -> Value:
    """Add an op that reads one element of a value, and return its result."""
    ones = (1,) * v.type.rank
    first = Slice((0,) * v.type.rank, ones, ones)
    (element,) = first.infer(v.type)
    result = Value(f"{v.name}_out", element)
    made.append(Op(first, [v], [result], "behind"))
    return result


def core_of(board: Board) -> Core:
    """Return the core of a board's best target."""
    return cores_of(board, board.targets[0])[-1]
