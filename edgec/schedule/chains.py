"""Chains: elementwise float calls that follow each other, as one loop over blocks.

A chain computes all of its calls for a block of elements before the next block, so that
the values between them stay in the first cache and out of the arena. Whether a kernel
can be a link of a chain is said by its facts: unary and binary kernels that are
`vectorized`, clamps to constants (`Kernel.bounds`), and the few that `_link` names.
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
    Table,
    Value,
)
from edgec.ir.c_structs import (
    ActivationParams,
    ChainF32Params,
    ChainStepF32Params,
    CoefficientsParams,
)
from edgec.ops.activation import Clamp, LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.common import SCALE_CHANNELS
from edgec.schedule.cores import Core
from edgec.schedule.fuse import FusedStep
from edgec.schedule.liveness import LiveBytes, tensors
from edgec.schedule.simd import on_vectors
from edgec.schedule.views import Place, Places

_CHAIN = Kernel(
    "chain", "simd/ek_chain_f32_simd.h", "f32", isa="simd", in_place=(0, 1, 2, 3)
)
"""Each block of its operands is read whole before the results of the block are written."""

MAX_INPUTS = 4
"""Tensors that a chain reads."""
MAX_OUTPUTS = 2
"""Tensors that it writes."""
BUFFERS = 3
"""Blocks on the stack for values that only the chain reads."""
MAX_LINKS = 8
"""EK_CHAIN_STEPS."""
MAX_BLOCK = 1024
"""Elements of the largest block: EK_CHAIN_BLOCK."""

BLOCK_ELEMENTS = 512
"""Elements of a usual block: several of them fit into the first cache.

Tensors of no more elements are there anyway, and a call for each link takes less time
than the loop over links.
"""


@dataclass(frozen=True)
class _Link:
    """A call as a step of ek_chain_f32_simd.

    Attributes:
        op: the step, EK_CHAIN_*
        a: the tensor that it reads
        y: its result
        b: another tensor that it reads
        k: the constant in place of b: [channels], or of one element
        bias: [channels], of a scale
        bounds: (low, high) of the result
        function: the function for vectors that is applied
        coefficients: the parameters of that function
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
    def operands(self) -> tuple[Value, ...]:
        """The tensors that it reads."""
        return (self.a,) if self.b is None else (self.a, self.b)


def in_chains(
    graph: Graph,
    plain_steps: Sequence[FusedStep],
    steps: Sequence[FusedStep],
    core: Core,
    where: Places,
) -> list[FusedStep]:
    """Return the steps after elementwise ones that follow each other were joined.

    Each link reads what a link before it writes; results that other steps read are
    stored too. Chains that let more bytes live at once are not made.

    Args:
        graph: the graph
        plain_steps: the steps with calls of plain kernels
        steps: the same with the chosen variants
        core: the core, which needs vectors
        where: the places of the values
    """
    chains = _Chains(graph, steps, where)
    if not core.isa:
        return chains.result

    for plain in plain_steps:
        if len(plain.calls) != 1:
            continue

        call = plain.calls[0]
        link = _link(call) if core.computing(call.is_float16).isa else None
        if link is not None and link.y.type.size > BLOCK_ELEMENTS:
            chains.add(plain, link)

    return chains.result


class _Chains:
    """The steps while they are joined.

    Attributes:
        owned: values with bytes that the caller owns
        steps: the steps by their ops
        links: the links of steps that are elementwise or chains, by their ops
        producers: the ops of the step that writes each result of a link
        used: the positions of the steps that read or write a value's bytes, in order
        living: the bytes that live at each step
    """

    def __init__(self, graph: Graph, steps: Sequence[FusedStep], where: Places) -> None:
        border = {*graph.inputs, *graph.outputs}
        self.where = where
        self.owned = {where[v].root for v in border if v.const is None}
        self.steps = {step.ops: step for step in steps}
        self.links: dict[tuple[int, ...], tuple[_Link, ...]] = {}
        self.producers: dict[Value, tuple[int, ...]] = {}
        self.used: dict[Value, list[int]] = {}
        self.living = LiveBytes(len(graph.ops), where, border)
        for step in steps:
            self._put(step)

    @property
    def result(self) -> list[FusedStep]:
        """The steps in the order in which they run."""
        return sorted(self.steps.values(), key=lambda step: step.at)

    def add(self, plain: FusedStep, link: _Link) -> None:
        """Join a step with the chains that write its operands, where possible."""
        self.links[plain.ops] = (link,)
        self.producers[link.y] = plain.ops
        ops = plain.ops
        for value in link.operands:
            before = self.producers.get(value)
            if before is not None and before in self.links and before != ops:
                ops = self._join(before, ops)

    def _join(self, before: tuple[int, ...], ops: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ops of the chain of two steps; `ops` where they stay apart."""
        first = self.steps[before]
        last = self.steps[ops]
        links = (*self.links[before], *self.links[ops])

        # The first step moves to the place of the last, so that nobody in between may
        # need its results.
        for link in self.links[before]:
            if self._is_used_between(self.where[link.y].root, first.at, last.at):
                return ops

        # Only what others read is written to memory.
        joining = {first.at, last.at}
        stored: list[Value] = []
        for link in links:
            if self._has_readers(self.where[link.y], joining):
                stored.append(link.y)

        call = _chain_call(links, stored)
        if call is None:
            return ops

        joined = FusedStep(tuple(sorted((*before, *ops))), (call,), last.at)
        peak = self.living.peak()
        self._replace((first, last), (joined,))

        # The operands of the first step live longer now.
        if self.living.peak() > peak:
            self._replace((joined,), (first, last))
            return ops

        self.links[joined.ops] = links
        for link in links:
            self.producers[link.y] = joined.ops

        return joined.ops

    def _is_used_between(self, root: Value, first: int, last: int) -> bool:
        """Return whether a step between two others reads or writes a value's bytes.

        It may know them by the name of a view.
        """
        positions = self.used.get(root, [])
        return bisect_right(positions, first) < bisect_left(positions, last)

    def _has_readers(self, place: Place, joining: Collection[int]) -> bool:
        """Return whether the caller or a step other than `joining` reads the bytes."""
        if place.root in self.owned:
            return True

        return any(at not in joining for at in self.used.get(place.root, []))

    def _replace(self, old: Sequence[FusedStep], new: Sequence[FusedStep]) -> None:
        """Replace steps by others."""
        for step in old:
            del self.steps[step.ops]
            self.living.remove(step.at, tensors(step.calls))
            for root in self._roots(step):
                self.used[root].remove(step.at)

        for step in new:
            self.steps[step.ops] = step
            self._put(step)

    def _put(self, step: FusedStep) -> None:
        """Note the values that a step uses."""
        self.living.add(step.at, tensors(step.calls))
        for root in self._roots(step):
            insort(self.used.setdefault(root, []), step.at)

    def _roots(self, step: FusedStep) -> set[Value]:
        """Return the values in whose bytes the tensors of a step lie."""
        return {self.where[v].root for v in tensors(step.calls)}


def _chain_call(links: Sequence[_Link], stored: Sequence[Value]) -> KernelCall | None:
    """Return the call of a chain; None where it has too many parts.

    stored: the results that are written to memory.
    """
    results = {link.y for link in links}
    inputs: list[Value] = []
    for link in links:
        for value in link.operands:
            if value not in results and value not in inputs:
                inputs.append(value)

    channels = _channels(links)
    if len(inputs) > MAX_INPUTS or len(stored) > MAX_OUTPUTS:
        return None
    if len(links) > MAX_LINKS or channels > MAX_BLOCK:
        return None

    # A block is whole pixels, so that constants begin anew with each block.
    block = max(channels, BLOCK_ELEMENTS // channels * channels)
    steps = _steps(links, inputs, stored, block)
    if steps is None:
        return None

    # Places that the chain does not need repeat the last tensor.
    read = [Pointer(inputs[min(i, len(inputs) - 1)]) for i in range(MAX_INPUTS)]
    written = [Pointer(stored[min(i, len(stored) - 1)]) for i in range(MAX_OUTPUTS)]
    p = ChainF32Params(
        n=links[0].y.type.size, block=block, steps=len(links), step=steps
    )
    return KernelCall(_CHAIN, (*read, *written, p, PART, PARTS))


def _steps(
    links: Sequence[_Link], inputs: Sequence[Value], stored: Sequence[Value], block: int
) -> list[ChainStepF32Params] | None:
    """Return the parameters of each link; None where the buffers do not suffice.

    Places are numbered: inputs, outputs, buffers. A buffer is free again after the last
    link that reads it, also for the result of that link.
    """
    first_buffer = MAX_INPUTS + MAX_OUTPUTS
    places = {value: i for i, value in enumerate(inputs)}
    for i, value in enumerate(stored):
        places[value] = MAX_INPUTS + i

    last_reader: dict[Value, int] = {}
    for i, link in enumerate(links):
        for value in link.operands:
            last_reader[value] = i

    free = list(range(BUFFERS))
    steps: list[ChainStepF32Params] = []
    for i, link in enumerate(links):
        # By value, as a square reads one operand twice.
        at = {value: places[value] for value in link.operands}
        for value, place in at.items():
            if place >= first_buffer and last_reader[value] == i:
                free.insert(0, place - first_buffer)

        if link.y not in places:
            if not free:
                return None
            places[link.y] = first_buffer + free.pop(0)

        steps.append(_step(link, at, places[link.y], block))

    return steps


def _channels(links: Sequence[_Link]) -> int:
    """Return the number of elements after which the constants of a chain repeat."""
    has_channels = any(link.k is not None and link.k.size > 1 for link in links)
    return links[0].y.type.shape[-1] if has_channels else 1


def _step(
    link: _Link, at: Mapping[Value, int], y: int, block: int
) -> ChainStepF32Params:
    """Return the parameters of a link.

    at: the places of its operands. y: the place of its result. block: elements, as
    often as which constants are repeated.
    """
    low, high = link.bounds
    coefficients: CoefficientsParams | None = None
    if link.function is not None:
        a, b = link.coefficients
        coefficients = CoefficientsParams(a=a, b=b)

    return ChainStepF32Params(
        op=link.op,
        a=at[link.a],
        b=-1 if link.b is None else at[link.b],
        y=y,
        low=low,
        high=high,
        k=_repeated(link.k, "k", block),
        bias=_repeated(link.bias, "bias", block),
        function=link.function,
        coef=coefficients,
    )


def _repeated(array: Array | None, name: str, block: int) -> Table | None:
    """Return a constant of a link for each element of a block."""
    if array is None:
        return None

    return Table(np.resize(array.reshape(-1), block).astype(np.float32), name)


def _link(call: KernelCall) -> _Link | None:
    """Return a call of a plain kernel as a link; None where it cannot be one."""
    kernel = call.kernel
    pointers = [x for x in call.operands if isinstance(x, Pointer)]
    if call.then or kernel.dtype != "f32":
        return None

    # A chain has one position in all tensors.
    if any(x.offset for x in pointers):
        return None

    if kernel == SCALE_CHANNELS:
        return _scale_link(call)
    if kernel.elementwise is Elementwise.BINARY and kernel.vectorized:
        a, b, y = (x.value for x in pointers)
        return _binary_link(call, a, b, y)
    if kernel.elementwise is Elementwise.UNARY:
        operand, y = (x.value for x in pointers)
        return _unary_link(call, operand, y)

    return None


def _scale_link(call: KernelCall) -> _Link | None:
    """Return the link of x * k + bias, with constants for each channel."""
    match call.operands:
        case (Pointer() as x, Table() as k, Table() as bias, Pointer() as y, *_):
            constants = (k.array, bias.array)
            return _Link("EK_CHAIN_SCALE", x.value, y.value, None, *constants)

    return None


def _binary_link(call: KernelCall, a: Value, b: Value, y: Value) -> _Link | None:
    """Return the link of a sum, difference, product or PReLU.

    None where an operand is broadcast, other than a constant along the channels.
    """
    is_commutative = call.kernel in Add.kernels or call.kernel in Mul.kernels
    if a.const is not None and is_commutative:
        a, b = b, a
    if a.const is not None or a.type.shape != y.type.shape or not y.type.shape:
        return None

    step = f"EK_CHAIN_{call.kernel.family.upper()}"
    act = call.optional_struct(ActivationParams)
    bounds = (-inf, inf) if act is None else (act.low, act.high)
    if b.const is None:
        if b.type.shape != y.type.shape:
            return None
        return _Link(step, a, y, b, bounds=bounds)

    # All elements of the constant must lie along the channels, or be one.
    last = b.type.shape[-1] if b.type.shape else 1
    if b.type.size not in (1, last) or b.type.size not in (1, y.type.shape[-1]):
        return None

    return _Link(step, a, y, k=b.const, bounds=bounds)


def _unary_link(call: KernelCall, x: Value, y: Value) -> _Link | None:
    """Return the link of a function of one float; None where chains have no such step."""
    if x.const is not None or x.type.shape != y.type.shape:
        return None

    kernel = call.kernel
    p = call.optional_struct(CoefficientsParams)
    a, b = (0.0, 0.0) if p is None else (p.a, p.b or 0.0)
    if kernel.bounds is not None:
        return _Link("EK_CHAIN_CLAMP", x, y, bounds=kernel.bounds)
    if kernel in Clamp.kernels:
        return _Link("EK_CHAIN_CLAMP", x, y, bounds=(a, b))
    if kernel in LeakyRelu.kernels:
        return _Link("EK_CHAIN_PRELU", x, y, k=np.array([a], np.float32))
    if not kernel.vectorized:
        return None

    function = on_vectors(kernel)
    return _Link("EK_CHAIN_FUNCTION", x, y, function=function, coefficients=(a, b))
