"""Ops of the data folder's networks, each alone, in one program for a core: what its cycles can be counted of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from edgec_devices import Board
from edgec_partitioner.regions import Region
from edgec_partitioner.segments import Segment, segment

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.drive.lower import Options, lower
from edgec.emit.c import CSRC
from edgec.emit.sources import target_sources
from edgec.errors import EdgecError
from edgec.ir import Graph, Op, Value
from edgec.ops.arithmetic import Maximum
from edgec.schedule.cores import Core, cores_of
from edgec.schedule.estimate import OTHER, kernels, work
from edgec.schedule.records import signature
from edgec.toolchain.build import build
from edgec.toolchain.cc import Compiler

MOST_MACS = 24e6
"""Of an op that is measured: larger ones take emulators long, and are as fast."""
EACH, EACH_DENSE = 12, 36
"""Ops of a kernel that are measured; of one that multiplies and accumulates, where networks spend their time."""
IN_ONE = 12
"""Ops in a segment: each compiles its kernels once."""


def ops_of(models: Iterable[Path]) -> Iterator[Op]:
    """All that networks compute; of float ones also what int8 with made-up scales computes."""
    for path in models:
        for options, assume in ((Options("pi4"), False), (Options("pi4+coral", edgetpu="all"), True)):
            with contextlib.suppress(EdgecError):
                yield from lower(path, options, assume=assume).graph.ops


def chosen(ops: Iterable[Op], on: Core) -> list[Op]:
    """Of every kernel that the core uses for them, some that differ, from small to large."""
    found: dict[str, dict[str, Op]] = {}
    for op in ops:
        names = kernels(op, on)
        if names and names != (OTHER,) and op.spec.macs(op) <= MOST_MACS:
            same = "".join(map(signature, op.spec.calls(op)))
            found.setdefault("+".join(names), {}).setdefault(same, op)
    picked = []
    for several in found.values():
        ordered = sorted(several.values(), key=lambda op: tuple(work(op)[[1, 2, 3]]))
        most = EACH_DENSE if ordered[-1].spec.macs(ordered[-1]) else EACH
        picked += [ordered[i] for i in np.unique(np.linspace(0, len(ordered) - 1, most).round().astype(int))]
    return picked


def program(ops: Sequence[Op], board: Board, on: Core, folder: Path) -> Mapping[tuple[int, int], Op]:
    """Write the program of a board's best target that computes every op once; where each is, as profiles have it."""
    parts = [_apart(f"part{i}", ops[at : at + IN_ONE]) for i, at in enumerate(range(0, len(ops), IN_ONE))]
    ends = [[v for s in parts for v in of(s)] for of in (lambda s: s.graph.inputs, lambda s: s.graph.outputs)]
    whole = Graph("ops", *ends, [op for s in parts for op in s.graph.ops])
    target = board.targets[0]
    sources = target_sources(whole, parts, (on,))
    compiler = Compiler.zig(target.library, target.program, target.mcpu)
    made = build({target.name: sources.texts}, CSRC, {target.name: compiler}, flags=sources.flags)[target.name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights.bin").write_bytes(sources.weights)
    (folder / "main").unlink(missing_ok=True)
    (folder / "main").write_bytes(made.program)
    (folder / "main").chmod(0o700)
    found = {}
    for i, s in enumerate(parts):
        calls = sources.segments[s.name].calls
        for op, call in zip(s.graph.ops, calls, strict=True):
            if call is not None and calls.count(call) == 1 and not op.source.startswith(_NEAR):
                found[i, call] = op
    return found


_NEAR = "near "


def _apart(name: str, ops: Sequence[Op]) -> Segment:
    """A segment of ops that have nothing to do with one another. What each reads was just written, as in networks: by
    an op before it, whose result is an output too, so that it stays apart."""
    inputs, outputs, made = [], [], list[Op]()
    for i, op in enumerate(ops):
        own = {v: Value(f"{name}_{i}_{n}", v.type, v.const) for n, v in enumerate((*op.inputs, *op.outputs))}
        for v in dict.fromkeys(v for v in op.inputs if v.const is None):
            first = Value(f"{own[v].name}_in", v.type)
            inputs.append(first)
            if v.type.dtype in ("int8", "float32"):
                made.append(Op(Maximum(), [first, first], [own[v]], _NEAR + own[v].name))
                outputs.append(own[v])
            else:
                own[v] = first
        made.append(Op(op.spec, [own[v] for v in op.inputs], [own[v] for v in op.outputs], op.source or op.kind))
        outputs += [own[v] for v in op.outputs]
    return segment(name, Region("cpu", tuple(made), tuple(inputs), tuple(outputs)))


def core_of(board: Board) -> Core:
    """Of its best target."""
    return cores_of(board, board.targets[0])[-1]
