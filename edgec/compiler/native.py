"""Graphs as compiled C in this process.

The C gives the results of `interp` within rounding, and is many times as fast.
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
"""The name of the segment in the generated C."""
_ALIGN_BYTES = 64
"""Alignment of arenas and weights: a cache line."""
MIN_COMPILED_WORK = 5e8
"""Work over all samples from which a graph runs as C, in multiply-accumulates.

The C compiler takes a second or two. The limit is a count and not a time, so that a busy
machine makes the same choice.
"""
_MACS_PER_ELEMENT = 10
"""Multiply-accumulates that take numpy as long as writing one element, about."""
_TIMED_TURNS = 20
"""Runs of each graph in a comparison of times."""


def native_compiler(cc: str | None) -> Compiler:
    """Return the compiler for code that runs on this machine.

    cc: the name of an installed compiler; None: zig.
    """
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
    """Return a function that runs a graph, as C if this pays, else by `interp`.

    samples: the number of samples that it will run on. core: the core for kernel
    variants, as in `NativeGraph`.
    """
    if _work(graph) * samples < MIN_COMPILED_WORK:
        return partial(interp, graph)
    try:
        build_libraries(compiler, "this machine", say)
        precision = "float" if core is None else "int8"
        say_compile = partial(say, f"{COMPILE_C} of the {precision} model")
        return NativeGraph(graph, compiler, core, on_compile=say_compile)
    except (NotImplementedError, UnsupportedError):
        # interp also has the ops that are not written as C.
        return partial(interp, graph)


def _work(graph: Graph) -> int:
    """Return the work of `interp` for one sample, in multiply-accumulates."""
    work = 0
    for op in graph.ops:
        elements = sum(v.type.size for v in op.outputs)
        work += op.spec.macs(op) + _MACS_PER_ELEMENT * elements
    return work


class HostRunners:
    """Runs graphs as C on this machine if this pays (`Runners` of quantize)."""

    def __init__(self, compiler: Compiler, say: Progress = lambda text: None) -> None:
        self._compiler = compiler
        self._say = say
        here = Board.load("host")
        self._core = cores_of(here, here.targets[0])[-1]

    def floats(self, graph: Graph, samples: int) -> Run:
        """Return a runner of a float graph by plain kernels."""
        # Ranges, and so the bytes of the bundle, depend on the last bits of floats:
        # variants add in an order that differs from machine to machine.
        return runner(graph, samples, self._compiler, self._say)

    def int8(self, graph: Graph, samples: int) -> Run:
        """Return a runner of a quantized graph by this machine's kernel variants."""
        # Integer variants are exact, so the fastest ones give the same results.
        return runner(graph, samples, self._compiler, self._say, self._core)

    def renew(self, run: Run, op: Op) -> None:
        """Let a runner of a quantized graph read the constants of an op anew."""
        # `interp` reads the constants from the op at every run.
        if isinstance(run, NativeGraph):
            run.renew(op)


def least_ms(runs: Sequence[Run], sample: Mapping[str, Array]) -> list[float]:
    """Return the shortest time of each runner on a sample, in milliseconds."""
    # The minimum, since other programs can only add to a time; in turns, so that a phase
    # of load or heat falls on all runners.
    shortest = [math.inf] * len(runs)
    for _ in range(_TIMED_TURNS):
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run(sample, None)
            ms = 1e3 * (time.perf_counter() - start)
            shortest[i] = min(shortest[i], ms)
    return shortest


class NativeGraph:
    """The generated C of a graph, compiled for this machine and loaded.

    Several threads may call it at once: they share the weights, and each call has an
    arena and outputs of its own.
    """

    def __init__(
        self,
        graph: Graph,
        compiler: Compiler,
        core: Core | None = None,
        csrc: Path | None = None,
        on_compile: Callable[[], None] = lambda: None,
    ) -> None:
        """Generate, compile and load the C.

        core: the core for kernel variants; None: plain kernels, with the same float
        results on every machine. csrc: the folder of the kernels; None: edgec's own.
        on_compile: is called before the C compiler runs.

        Graphs that differ only in weights, biases and multipliers share a library.
        """
        self.graph = graph
        self._core = core
        # text="none" keeps constants out of the C, so that graphs which differ only in
        # them have the same text, and the cached library serves all.
        if core is None:
            self._source = segment_source(graph, _NAME, text="none")
            flags: tuple[str, ...] = ()
        else:
            self._source = segment_source(graph, _NAME, core, text="none", rules=_RULES)
            flags = core.flags

        key = (self._source.text, compiler, flags, csrc or CSRC)
        if hash(key) not in _COMPILED:
            on_compile()
            _COMPILED.add(hash(key))
        self._library = _load(*key)
        self._arenas = [aligned_bytes(self._source.plan.size)]
        self._weights = aligned_bytes(len(self._source.weights.data))
        self._weights[:] = np.frombuffer(self._source.weights.data, np.uint8)
        self._complete = self._complete_values()

    def __call__(
        self, inputs: Mapping[str, Array], observe: Observe | None = None
    ) -> dict[str, Array]:
        """Run the graph as `interp` does.

        The arrays for `observe` lie in the arena and are overwritten later.
        """
        ins: list[Array] = []
        for v in self.graph.inputs:
            ins.append(np.ascontiguousarray(inputs[v.name], v.type.np_dtype))
        # A value that is listed as several outputs has one array.
        arrays = {
            v: np.empty(v.type.shape, v.type.np_dtype) for v in self.graph.outputs
        }
        outs = [arrays[v] for v in self.graph.outputs]

        # pop and append of a list are atomic, so threads need no lock here.
        try:
            arena = self._arenas.pop()
        except IndexError:
            arena = aligned_bytes(self._source.plan.size)
        arguments = (
            ctypes.c_void_p(arena.ctypes.data),
            ctypes.c_void_p(self._weights.ctypes.data),
            pointers(ins),
            pointers(outs),
        )
        if observe is None:
            self._library.edgec_here_run(*arguments)
        else:
            self._observed(arguments, arena, ins, outs, observe)
        self._arenas.append(arena)

        # The C does not copy inputs and constants that are outputs too.
        input_arrays = dict(zip(self.graph.inputs, ins, strict=True))
        outputs = {}
        for v, y in zip(self.graph.outputs, outs, strict=True):
            outputs[v.name] = v.const if v.const is not None else input_arrays.get(v, y)
        return outputs

    def renew(self, op: Op) -> None:
        """Take in the constants of an op of the graph, which have the same shapes still.

        The graph must have been compiled for a core.
        """
        # The variant determines how weights are packed, and only a core has variants.
        assert self._core is not None
        position = self.graph.ops.index(op)
        first, last = self._source.spans[position]
        data = constants_again(self._source, op, position, self._core, _cached_choice)
        self._weights[first:last] = np.frombuffer(data, np.uint8)

    def _observed(
        self,
        arguments: Sequence[object],
        arena: Array,
        ins: Sequence[Array],
        outs: Sequence[Array],
        observe: Observe,
    ) -> None:
        """Run the profiled entry, and show each value once it is complete."""
        # Inputs come last: the array of an output that is an input is never written.
        buffers = {
            **dict(zip(self.graph.outputs, outs, strict=True)),
            **dict(zip(self.graph.inputs, ins, strict=True)),
        }
        raised: list[BaseException] = []

        # The arena reuses memory, but between two functions the result of the first is
        # still in its place.
        def mark(_: int | None, step: int) -> None:
            if raised:
                return
            # C cannot pass an exception on, so it waits until the C has returned.
            try:
                for v in self._complete[step]:
                    observe(v, self._array(v, arena, buffers))
            except BaseException as e:
                raised.append(e)

        for v in self.graph.inputs:
            observe(v, buffers[v])
        self._library.edgec_here_profile(*arguments, MARK(mark), None)
        if raised:
            raise raised[0]

    def _complete_values(self) -> list[list[Value]]:
        """Return, for each mark, the values that are complete since the mark before."""
        marks = len(self._source.functions) + 1
        complete: list[list[Value]] = [[] for _ in range(marks)]
        mark = 0
        for op, function in zip(self.graph.ops, self._source.calls, strict=True):
            # An op without a function copies bytes to where they are already: it is
            # complete with the op before it.
            if function is not None:
                mark = function + 1
            complete[mark] += op.outputs
        return complete

    def _array(self, v: Value, arena: Array, buffers: Mapping[Value, Array]) -> Array:
        """Return the memory of a value as an array of its type."""
        place = self._source.places[v]
        raw: Array
        if place.root in buffers:
            raw = buffers[place.root].reshape(-1).view(np.uint8)[place.at :]
        else:
            offset = self._source.plan.offsets[place.root.name]
            raw = arena[offset + place.at :]
        return raw[: v.type.nbytes].view(v.type.np_dtype).reshape(v.type.shape)


MARK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)
"""The callback of a profiled entry: a context, and the number of the mark."""

_COMPILED: set[int] = set()
"""Hashes of the sources that were compiled before, so that no wait is announced."""
_CHOICES: dict[tuple[str, str], tuple[Variant, Schedule] | None] = {}
"""The variant by analysis for a core's name and a call's signature."""


def _cached_choice(call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
    """Return the variant and schedule by analysis for a call, cached by signature."""
    # Quantization renews constants again and again, and analysis takes longer than
    # packing the weights.
    key = (core.name, signature(call))
    if key not in _CHOICES:
        _CHOICES.setdefault(key, preferred(call, core))
    choice = _CHOICES[key]
    if choice is None:
        return None

    # The signature has no scales, and an elementwise variant, the one with an empty
    # schedule, may refuse some: it is asked for each call.
    variant, schedule = choice
    if not schedule and not variant.ways(call, core):
        return preferred(call, core)
    return choice


_RULES = Rules(_cached_choice, fusion=False, bands=False, chains=False, attention=False)
"""Nothing is fused, so that every value is in memory for `observe`."""


# Candidates of a recipe that differ only in constants share one entry.
@lru_cache(maxsize=64)
def _load(
    text: str, compiler: Compiler, flags: tuple[str, ...], csrc: Path
) -> ctypes.CDLL:
    """Compile and load a library. The text of its C is the key of the cache."""
    with temporary_folder("native") as folder:
        path = folder / "here.so"
        path.write_bytes(build_library(text, csrc, compiler, ["-O2", *flags]))
        # A loaded library stays without its file.
        return ctypes.CDLL(str(path))


def aligned_bytes(nbytes: int) -> Array:
    """Return zeroed bytes that start on a multiple of _ALIGN_BYTES."""
    raw = np.zeros(nbytes + _ALIGN_BYTES, np.uint8)
    start = -raw.ctypes.data % _ALIGN_BYTES
    return raw[start : start + nbytes]


def pointers(arrays: Sequence[Array]) -> object:
    """Return a C table of the addresses of arrays."""
    # ISO C has no empty arrays, so a table has at least one element.
    table = ctypes.c_void_p * max(1, len(arrays))
    return table(*(a.ctypes.data for a in arrays))
