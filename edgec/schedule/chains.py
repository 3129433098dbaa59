"""Chains: elementwise float calls that follow each other, block by block in one loop,
so that what lies between them stays in the first cache and out of the arena.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from edgec.ir import (
    PART,
    PARTS,
    Array,
    Elementwise,
    Graph,
    Kernel,
    KernelCall,
    Pointer,
    Struct,
    Table,
    Value,
)
from edgec.ops.activation import Clamp, LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.common import SCALE_CHANNELS
from edgec.schedule.cores import Core
from edgec.schedule.fuse import FusedStep
from edgec.schedule.liveness import LiveBytes, tensors
from edgec.schedule.simd import on_vectors
from edgec.schedule.views import Places

_CHAIN = Kernel(
    "chain", "simd/ek_chain_f32_simd.h", "f32", isa="simd", in_place=(0, 1, 2, 3)
)
"""Its results are blocks of elements that it has read whole."""

_INPUTS = 4
_OUTPUTS = 2
_SLOTS = 3
_STEPS = 8
_BLOCK = 1024
"""EK_CHAIN_*, as ek_chain_f32_simd.h has them."""

_ABOUT = 512
"""Elements of a block, rather more than fewer: its tensors share the first cache.

Smaller ones are there anyway, and a step's own call for each is rather less than a loop
over steps.
"""


@dataclass(frozen=True)
class _Link:
    """A step of ek_chain_f32_simd. op: EK_CHAIN_*. b: none where k is a constant
    [channels] or of one element.
    """

    op: str
    a: Value
    y: Value
    b: Value | None = None
    k: Array | None = None
    bias: Array | None = None
    bounds: tuple[float, float] = (-inf, inf)
    function: Kernel | None = None
    coefficients: tuple[float, float] = (0.0, 0.0)

    @property
    def reads(self) -> tuple[Value, ...]:
        """Computed tensors."""
        return (self.a,) if self.b is None else (self.a, self.b)


def in_chains(
    graph: Graph,
    asked: Sequence[FusedStep],
    steps: Sequence[FusedStep],
    core: Core,
    where: Places,
) -> list[FusedStep]:
    """Join scheduled steps that are elementwise, two at least, to one step each; asked:
    the same with plain calls.

    Each reads what the one before makes; what others read of that is stored too. No
    more bytes live then.
    """
    chains = _Chains(graph, steps, where)
    if core.isa:
        for plain in asked:
            link = _link(plain.calls[0]) if len(plain.calls) == 1 else None
            if link is not None and link.y.type.size > _ABOUT:
                chains.add(plain, link)
    return chains.result


class _Chains:
    """The steps as they are joined. links: of the steps that are elementwise, or
    chains; by their ops.
    """

    def __init__(self, graph: Graph, steps: Sequence[FusedStep], where: Places) -> None:
        border = {*graph.inputs, *graph.outputs}
        self.where = where
        self.owned = {where[v].root for v in border if v.const is None}
        self.steps = {s.ops: s for s in steps}
        self.links: dict[tuple[int, ...], tuple[_Link, ...]] = {}
        self.written: dict[Value, tuple[int, ...]] = {}
        self.used: dict[Value, list[int]] = {}
        """Where steps read or write a value's bytes, in order."""
        self.living = LiveBytes(len(graph.ops), where, border)
        for step in steps:
            self._put(step)

    @property
    def result(self) -> list[FusedStep]:
        """In order."""
        return sorted(self.steps.values(), key=lambda s: s.at)

    def add(self, plain: FusedStep, link: _Link) -> None:
        """Join a step with those that make what it reads, where that can be."""
        self.links[plain.ops], self.written[link.y] = (link,), plain.ops
        ops = plain.ops
        for v in link.reads:
            before = self.written.get(v)
            if before is not None and before in self.links and before != ops:
                ops = self._join(before, ops)

    def _join(self, before: tuple[int, ...], ops: tuple[int, ...]) -> tuple[int, ...]:
        """The ops of the chain that both are then; `ops` where they stay apart."""
        first = self.steps[before]
        last = self.steps[ops]
        links = (*self.links[before], *self.links[ops])
        if any(
            self._between(self.where[link.y].root, first.at, last.at)
            for link in self.links[before]
        ):
            return ops
        apart = {first.at, last.at}
        call = _call(
            links,
            [link.y for link in links if self._is_read(self.where[link.y].root, apart)],
        )
        if call is None:
            return ops
        joined = FusedStep(tuple(sorted((*before, *ops))), (call,), last.at)
        least = self.living.peak()
        self._change((first, last), (joined,))
        if self.living.peak() > least:
            self._change((joined,), (first, last))
            return ops
        self.links[joined.ops] = links
        self.written.update({link.y: joined.ops for link in links})
        return joined.ops

    def _between(self, root: Value, first: int, last: int) -> bool:
        """Whether a step between two reads or writes a value's bytes: it may call it by
        the name of a view.
        """
        places = self.used.get(root, [])
        return bisect_right(places, first) < bisect_left(places, last)

    def _is_read(self, root: Value, apart: Collection[int]) -> bool:
        """Whether the caller, or a step that is not among these, reads a value's bytes."""
        return root in self.owned or any(
            at not in apart for at in self.used.get(root, [])
        )

    def _change(self, old: Sequence[FusedStep], new: Sequence[FusedStep]) -> None:
        for step in old:
            del self.steps[step.ops]
            self.living.remove(step.at, tensors(step.calls))
            for root in self._roots(step):
                self.used[root].remove(step.at)
        for step in new:
            self.steps[step.ops] = step
            self._put(step)

    def _put(self, step: FusedStep) -> None:
        self.living.add(step.at, tensors(step.calls))
        for root in self._roots(step):
            insort(self.used.setdefault(root, []), step.at)

    def _roots(self, step: FusedStep) -> set[Value]:
        """The values in whose bytes lies what it reads and writes."""
        return {self.where[v].root for v in tensors(step.calls)}


def _call(links: Sequence[_Link], stored: Sequence[Value]) -> KernelCall | None:
    """The call of a chain; None where it has too many parts."""
    made = {link.y for link in links}
    inputs = list(
        dict.fromkeys(v for link in links for v in link.reads if v not in made)
    )
    channels = _channels(links)
    if (
        max(
            len(inputs) - _INPUTS,
            len(stored) - _OUTPUTS,
            len(links) - _STEPS,
            channels - _BLOCK,
        )
        > 0
    ):
        return None
    block = max(channels, _ABOUT // channels * channels)
    place = {v: i for i, v in enumerate(inputs)} | {
        v: _INPUTS + i for i, v in enumerate(stored)
    }
    last = {v: i for i, link in enumerate(links) for v in link.reads}
    free = list(range(_SLOTS))
    told = list[Struct]()
    for i, link in enumerate(links):
        at = {v: place[v] for v in link.reads}
        for v in at:  # each once, though a square reads it twice
            if place[v] >= _INPUTS + _OUTPUTS and last[v] == i:
                free.insert(0, place[v] - _INPUTS - _OUTPUTS)
        if link.y not in place:
            if not free:
                return None
            place[link.y] = _INPUTS + _OUTPUTS + free.pop(0)
        told.append(_told(link, at, place[link.y], block))
    pointers = [Pointer(inputs[min(i, len(inputs) - 1)]) for i in range(_INPUTS)]
    results = [Pointer(stored[min(i, len(stored) - 1)]) for i in range(_OUTPUTS)]
    p = Struct(
        "ek_chain_f32_t",
        n=links[0].y.type.size,
        block=block,
        steps=len(links),
        step=told,
    )
    return KernelCall(_CHAIN, (*pointers, *results, p, PART, PARTS))


def _channels(links: Sequence[_Link]) -> int:
    """Elements after which constants begin again."""
    shape = links[0].y.type.shape
    if any(link.k is not None and link.k.size > 1 for link in links):
        return shape[-1]
    return 1


def _told(link: _Link, at: Mapping[Value, int], y: int, block: int) -> Struct:
    """One ek_chain_step_t."""
    constants = {
        name: Table(np.resize(array.reshape(-1), block).astype(np.float32), name)
        for name, array in (("k", link.k), ("bias", link.bias))
        if array is not None
    }
    if link.function is not None:
        function: dict[str, object] = {
            "function": link.function,
            "coef": link.coefficients,
        }
    else:
        function = {}
    return Struct(
        "ek_chain_step_t",
        op=link.op,
        a=at[link.a],
        b=-1 if link.b is None else at[link.b],
        y=y,
        low=link.bounds[0],
        high=link.bounds[1],
        **constants,
        **function,
    )


def _link(call: KernelCall) -> _Link | None:
    """A call of a plain kernel as a step; None where it is none."""
    if call.then:
        return None
    kernel = call.kernel
    pointers = [x for x in call.operands if isinstance(x, Pointer)]
    if kernel.dtype != "f32" or any(x.offset for x in pointers) or not pointers:
        return None
    y = pointers[-1].value
    if kernel == SCALE_CHANNELS:
        _, k, bias, *_ = call.operands
        assert isinstance(k, Table)
        assert isinstance(bias, Table)
        return _Link("EK_CHAIN_SCALE", pointers[0].value, y, k=k.array, bias=bias.array)
    if kernel.elementwise is Elementwise.BINARY and kernel.vectorized:
        return _binary(call, pointers[0].value, pointers[1].value, y)
    if kernel.elementwise is Elementwise.UNARY:
        return _unary(call, pointers[0].value, y)
    return None


def _binary(call: KernelCall, a: Value, b: Value, y: Value) -> _Link | None:
    act = next(
        (
            x
            for x in call.operands
            if isinstance(x, Struct) and x.ctype == "ek_act_f32_t"
        ),
        None,
    )
    bounds = (act.real("low"), act.real("high")) if act else (-inf, inf)
    step = f"EK_CHAIN_{call.kernel.family.upper()}"
    if a.const is not None and (
        call.kernel in Add.kernels or call.kernel in Mul.kernels
    ):
        a, b = b, a
    if a.const is not None or a.type.shape != y.type.shape or not y.type.shape:
        return None
    if b.const is None:
        if b.type.shape == y.type.shape:
            return _Link(step, a, y, b, bounds=bounds)
        return None
    if b.type.size not in (
        1,
        b.type.shape[-1] if b.type.shape else 1,
    ) or b.type.size not in (1, y.type.shape[-1]):
        return None
    return _Link(step, a, y, k=b.const, bounds=bounds)


def _unary(call: KernelCall, x: Value, y: Value) -> _Link | None:
    known = next(
        (s for s in call.operands if isinstance(s, Struct) and s.ctype == "ek_coef_t"),
        None,
    )
    a, b = (
        known.real(name) if known and name in known.fields else 0.0 for name in "ab"
    )
    if x.const is not None or x.type.shape != y.type.shape:
        return None
    kernel = call.kernel
    if kernel.bounds is not None:
        return _Link("EK_CHAIN_CLAMP", x, y, bounds=kernel.bounds)
    if kernel in Clamp.kernels:
        return _Link("EK_CHAIN_CLAMP", x, y, bounds=(a, b))
    if kernel in LeakyRelu.kernels:
        return _Link("EK_CHAIN_PRELU", x, y, k=np.array([a], np.float32))
    if kernel.vectorized:
        return _Link(
            "EK_CHAIN_FUNCTION",
            x,
            y,
            function=on_vectors(kernel),
            coefficients=(a, b),
        )
    return None
