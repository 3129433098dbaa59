"""A graph as C in this process: what `interp` gives within rounding, many times as
fast.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from edgec_devices.boards import Board
from edgec_devices.temporary import temporary_folder

from edgec.emit.c import CSRC, constants_again, segment_source
from edgec.errors import UnsupportedError
from edgec.ir import Array, Graph, KernelCall, Observe, Op, Run, Value, interp
from edgec.schedule.cores import Core, cores_of
from edgec.schedule.records import signature
from edgec.schedule.variant import Rules, Schedule, Variant, preferred
from edgec.steps import COMPILE_C, Progress
from edgec.toolchain.build import build_library
from edgec.toolchain.cc import Compiler
from edgec.toolchain.libraries import build_libraries

_NAME = "here"
_ALIGN = 64
_WORTH_COMPILING = 5e8
"""Multiply-accumulates and elements written, over all samples, above which the C is
made: the compiler takes a second or two. A count, since what is chosen must not hang on
how busy this machine is.
"""
_TURNS = 20
_ELEMENT = 10
"""An element that is written takes numpy as long as about so many multiply-accumulates."""


def native_compiler(cc: str | None) -> Compiler:
    """For code that runs on this machine: zig, or the compiler of that name."""
    here = Board.load("host").targets[0]
    if cc:
        return Compiler.native(cc)
    return Compiler.zig(here.library, here.program, here.mcpu)


def runner(
    graph: Graph,
    samples: int,
    compiler: Compiler,
    say: Progress,
    core: Core | None = None,
) -> Run:
    """Runs a graph: by its C where that pays for so many samples and every op has some,
    else by `interp`.

    core: one whose variants compute, as in `NativeGraph`.
    """
    work = sum(
        op.spec.macs(op) + _ELEMENT * sum(v.type.size for v in op.outputs)
        for op in graph.ops
    )
    if work * samples >= _WORTH_COMPILING:
        try:
            build_libraries(compiler, "this machine", say)
            waits = partial(
                say, f"{COMPILE_C} of the {'float' if core is None else 'int8'} model"
            )
            return NativeGraph(graph, compiler, core, waits=waits)
        except (NotImplementedError, UnsupportedError):
            pass  # an op without C: interp has them all
    return partial(interp, graph)


class HostRunners:
    """Runs graphs as C on this machine where that pays (`Runners` of quantize)."""

    def __init__(self, compiler: Compiler, say: Progress = lambda text: None) -> None:
        self._compiler = compiler
        self._say = say
        here = Board.load("host")
        self._core = cores_of(here, here.targets[0])[-1]

    def floats(self, graph: Graph, samples: int) -> Run:
        """By plain kernels."""
        return runner(graph, samples, self._compiler, self._say)

    def int8(self, graph: Graph, samples: int) -> Run:
        """By this machine's variants, which are exact."""
        return runner(graph, samples, self._compiler, self._say, self._core)

    def renew(self, run: Run, op: Op) -> None:
        """Where it is C: interp reads the op itself."""
        if isinstance(run, NativeGraph):
            run.renew(op)


def least_ms(runs: Sequence[Run], sample: Mapping[str, Array]) -> list[float]:
    """How long each takes here, in turn and at least: other programs only ever add to
    it.
    """
    found = [math.inf] * len(runs)
    for _ in range(_TURNS):
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run(sample, None)
            found[i] = min(found[i], 1e3 * (time.perf_counter() - start))
    return found


class NativeGraph:
    """The generated C of a graph, compiled for this machine and loaded; threads may
    call it at once.

    Memory: weights, and for each thread an arena and outputs.
    """

    def __init__(
        self,
        graph: Graph,
        compiler: Compiler,
        core: Core | None = None,
        csrc: Path | None = None,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        """core: one whose variants compute.

        Default: plain kernels, whose float results are those of every machine. Graphs
        that differ in weights, biases and multipliers alone share a library. csrc: the
        kernels, if not edgec's own. waits: called where the C compiler has to run.
        """
        self.graph = graph
        self._core = core
        if core is None:
            self._source = segment_source(graph, _NAME, text="none")
        else:
            self._source = segment_source(graph, _NAME, core, text="none", rules=_RULES)
        asked = (
            self._source.text,
            compiler,
            core.flags if core is not None else (),
            csrc or CSRC,
        )
        if hash(asked) not in _KNOWN:
            waits()
            _KNOWN.add(hash(asked))
        self._library = _load(*asked)
        self._arenas = [aligned_bytes(self._source.plan.size)]
        self._weights = aligned_bytes(len(self._source.weights.data))
        self._weights[:] = np.frombuffer(self._source.weights.data, np.uint8)
        self._complete = self._values()

    def __call__(
        self, inputs: Mapping[str, Array], observe: Observe | None = None
    ) -> dict[str, Array]:
        """As `interp`.

        What `observe` is given lies in the arena and is written over later.
        """
        ins = [
            np.ascontiguousarray(inputs[v.name], v.type.np_dtype)
            for v in self.graph.inputs
        ]
        outs = [np.empty(v.type.shape, v.type.np_dtype) for v in self.graph.outputs]
        tables = pointers(ins), pointers(outs)
        try:
            arena = self._arenas.pop()
        except IndexError:
            arena = aligned_bytes(self._source.plan.size)
        memory = (
            ctypes.c_void_p(arena.ctypes.data),
            ctypes.c_void_p(self._weights.ctypes.data),
        )
        if observe is None:
            self._library.edgec_here_run(*memory, *tables)
        else:
            self._observed((*memory, *tables), arena, ins, outs, observe)
        self._arenas.append(arena)
        given = dict(zip(self.graph.inputs, ins, strict=True))
        return {
            v.name: v.const if v.const is not None else given.get(v, y)
            for v, y in zip(self.graph.outputs, outs, strict=True)
        }

    def renew(self, op: Op) -> None:
        """Take in what the constants of an op of the graph are now: others of the same
        shapes. With a core alone.
        """
        assert self._core is not None
        at = self.graph.ops.index(op)
        first, last = self._source.spans[at]
        data = constants_again(self._source, op, at, self._core, _as_before)
        self._weights[first:last] = np.frombuffer(data, np.uint8)

    def _observed(
        self,
        arguments: Sequence[object],
        arena: Array,
        ins: Sequence[Array],
        outs: Sequence[Array],
        observe: Observe,
    ) -> None:
        """Between two functions of the profiled entry, what the first has written is
        still in its place.
        """
        buffers = {
            **dict(zip(self.graph.outputs, outs, strict=True)),
            **dict(zip(self.graph.inputs, ins, strict=True)),
        }
        raised: list[BaseException] = []

        def mark(_: int | None, step: int) -> None:
            try:
                for v in self._complete[step] if not raised else ():
                    observe(v, self._array(v, arena, buffers))
            except BaseException as e:  # C cannot pass it on
                raised.append(e)

        for v in self.graph.inputs:
            observe(v, buffers[v])
        self._library.edgec_here_profile(*arguments, MARK(mark), None)
        if raised:
            raise raised[0]

    def _values(self) -> list[list[Value]]:
        """For each mark, the values that are complete since the mark before."""
        done: list[list[Value]] = [[] for _ in range(len(self._source.functions) + 1)]
        step = 0
        for op, call in zip(self.graph.ops, self._source.calls, strict=True):
            step = step if call is None else call + 1
            done[step] += op.outputs
        return done

    def _array(self, v: Value, arena: Array, buffers: Mapping[Value, Array]) -> Array:
        place = self._source.places[v]
        if place.root in buffers:
            raw: Array = buffers[place.root].reshape(-1).view(np.uint8)[place.at :]
        else:
            raw = arena[self._source.plan.offsets[place.root.name] + place.at :]
        return raw[: v.type.nbytes].view(v.type.np_dtype).reshape(v.type.shape)


MARK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)


_KNOWN: set[int] = set()
"""Hashes of what was loaded before."""
_CHOSEN: dict[tuple[str, str], tuple[Variant, Schedule] | None] = {}


def _as_before(call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
    """What analysis chose for a call of this signature: it takes longer than packing
    the weights.

    Elementwise ones, which have but one schedule, may not take every scale: they are
    asked again.
    """
    key = (core.name, signature(call))
    if key in _CHOSEN:
        found = _CHOSEN[key]
    else:
        found = _CHOSEN.setdefault(key, preferred(call, core))
    if found is not None and not found[1] and not found[0].schedules(call, core):
        return preferred(call, core)
    return found


_RULES = Rules(_as_before, fusion=False, bands=False, chains=False)
"""Every value is there to be seen."""


@lru_cache(maxsize=64)
def _load(
    text: str, compiler: Compiler, flags: tuple[str, ...], csrc: Path
) -> ctypes.CDLL:
    with temporary_folder("native") as tmp:
        path = tmp / "here.so"
        path.write_bytes(build_library(text, csrc, compiler, ["-O2", *flags]))
        return ctypes.CDLL(str(path))  # it stays loaded without its file


def aligned_bytes(nbytes: int) -> Array:
    """Zeroed bytes that start on a multiple of _ALIGN."""
    raw = np.zeros(nbytes + _ALIGN, np.uint8)
    start = -raw.ctypes.data % _ALIGN
    return raw[start : start + nbytes]


def pointers(arrays: Sequence[Array]) -> object:
    """A C table of where they begin."""
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
