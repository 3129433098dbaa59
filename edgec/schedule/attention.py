"""Attention: softmax(scale * Q Kᵀ + bias) V as one kernel, some rows of scores at a time.

The scores of a few rows stay in the first cache and are nowhere whole, so that they
need no bytes of the arena. Slices, transposes and products with one number between the
operands and the projections before them become strides and a factor: the kernel reads
Q, K and V of each head and window where the projection wrote them, and writes its
result where the projection behind it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from edgec.ir import (
    PART,
    PARTS,
    Array,
    Graph,
    Kernel,
    KernelCall,
    Pointer,
    Scratch,
    Table,
    Value,
)
from edgec.ir.c_structs import (
    ActivationParams,
    AttentionF32Params,
    AttentionStridesF32Params,
    BatchMatmulParams,
    GatherParams,
    SoftmaxParams,
)
from edgec.ir.kernel import Operand
from edgec.ops.binary import Add, Mul
from edgec.ops.matmul import BATCH_MATMUL
from edgec.ops.shape import GATHER, element_strides
from edgec.ops.softmax import SOFTMAX
from edgec.schedule.cores import Core
from edgec.schedule.fuse import FusedStep
from edgec.schedule.gemm_f32.windows import GemmF32Shape, tile_heights
from edgec.schedule.liveness import peak, step_lifetimes
from edgec.schedule.operand_walk import Indices, OperandWalk, positions
from edgec.schedule.views import Places, address

_ATTENTION = Kernel("attention", "simd/ek_attention_f32_simd.h", "f32", isa="simd")

_SOFTMAX = SOFTMAX.of("f32")
_ADD = Add.kernels.of("f32")
_MUL = Mul.kernels.of("f32")

SCORES_SHARE = 4
"""The scores of a block of rows take at most this part of the first cache."""


@dataclass(frozen=True)
class _Attention:
    """The parts of an attention, and the steps that compute them.

    Attributes:
        q, k, v, y: the operands and the result
        scale: the factor of the scores
        beta: the factor of the softmax
        bias: [leading dimensions, m, n] what is added to the scores, 1 along
            dimensions that share it; or none
        steps: the steps, in order
        turn: the op in whose turn the attention can run
    """

    q: OperandWalk
    k: OperandWalk
    v: OperandWalk
    y: OperandWalk
    scale: float
    beta: float
    bias: Array | None
    steps: tuple[FusedStep, ...]
    turn: int


def join_attention(
    graph: Graph,
    plain_steps: Sequence[FusedStep],
    steps: Sequence[FusedStep],
    core: Core,
    where: Places,
) -> list[FusedStep]:
    """Return the steps after those of each attention were joined.

    An attention that makes more bytes live at once, scratch included, stays apart.

    Args:
        graph: the graph
        plain_steps: the steps with calls of plain kernels
        steps: the same with the chosen variants
        core: the core, which needs vectors
        where: the places of the values
    """
    joined = list(steps)
    if not core.isa:
        return joined

    search = _AttentionSearch(graph, plain_steps, where)
    border = {*graph.inputs, *graph.outputs}
    most = _peak(joined, where, border, core)
    for step in plain_steps:
        found = search.attention(step)
        if found is None:
            continue

        # Vectors hold twice as many float16, if the core computes with them at all.
        computing = core.computing(step.calls[0].is_float16)
        if not computing.isa:
            continue

        # It runs in the turn of the second product, when all operands are there.
        ops = tuple(sorted(op for part in found.steps for op in part.ops))
        fused = FusedStep(ops, (_call(found, computing),), found.turn)
        others = [s for s in joined if not set(s.ops) & set(ops)]
        trial = sorted([*others, fused], key=lambda s: s.at)
        now = _peak(trial, where, border, core)
        if now <= most:
            joined = trial
            most = now

    return joined


def _peak(
    steps: Sequence[FusedStep], where: Places, border: set[Value], core: Core
) -> int:
    """Return the most bytes that live at any step, scratch included."""
    calls = [step.calls for step in steps]
    return peak(step_lifetimes(calls, where, border, core.threads))


class _AttentionSearch:
    """Looks for attentions among the steps with plain calls.

    Attributes:
        where: the places of the values
        border: values that the caller owns
        readers, writers: the steps that read, that write bytes of a value
    """

    def __init__(
        self, graph: Graph, plain_steps: Sequence[FusedStep], where: Places
    ) -> None:
        self.where = where
        self.border = {*graph.inputs, *graph.outputs}
        self.readers: dict[Value, list[FusedStep]] = {}
        self.writers: dict[Value, list[FusedStep]] = {}
        for step in plain_steps:
            for call in step.calls:
                *read, written = call.pointers()
                self._note(self.readers, read, step)
                self._note(self.writers, [written], step)

    def _note(
        self,
        users: dict[Value, list[FusedStep]],
        pointers: Sequence[Pointer],
        step: FusedStep,
    ) -> None:
        """Note a step as a user of the bytes that pointers point into."""
        for pointer in pointers:
            if pointer.value.const is not None:
                continue
            root, _ = address(pointer, self.where)
            known = users.setdefault(root, [])
            if step not in known:
                known.append(step)

    def attention(self, step: FusedStep) -> _Attention | None:
        """Return the attention whose softmax a step is; None where there is none."""
        call = _single(step)
        if call is None or call.kernel != _SOFTMAX:
            return None

        x, y, _, n, _ = call.operands
        assert isinstance(x, Pointer)
        assert isinstance(y, Pointer)
        last = self._reader(y)
        scores = self._scores(x)
        if last is None or scores is None:
            return None

        product, addition, middle = scores
        first = _product_of(product)
        second = _product_of(last)
        if first is None or second is None:
            return None
        if not _fit(first, second, y) or first[1].n != n:
            return None

        return self._found(product, last, addition, [*middle, step], call)

    def _scores(
        self, x: Pointer
    ) -> tuple[FusedStep, KernelCall | None, list[FusedStep]] | None:
        """Return the product that scores come from, the addition of a bias, and steps.

        The steps are those between the product and the softmax.
        """
        step = self._writer(x)
        call = None if step is None else _single(step)
        if step is None or call is None:
            return None
        if call.kernel != _ADD:
            return step, None, []

        a, b, *_ = call.operands
        product = self._writer(a) if isinstance(a, Pointer) else None
        if product is None or not _is_constant(b) or not _is_linear(call):
            return None
        return product, call, [step]

    def _found(
        self,
        product: FusedStep,
        last: FusedStep,
        addition: KernelCall | None,
        middle: Sequence[FusedStep],
        softmax: KernelCall,
    ) -> _Attention | None:
        """Return the attention of two products; None where its rows are scattered."""
        first = _product_of(product)
        second = _product_of(last)
        assert first is not None
        assert second is not None
        # Steps that become strides join those that compute the attention itself.
        (a, b, _), p = first
        (_, values, y), p_last = second

        absorbed: list[FusedStep] = [product, *middle, last]
        q_walk = OperandWalk(a, (*p.dim, p.m, p.k), (*p.a, p.ar, p.ac))
        k_walk = OperandWalk(b, (*p.dim, p.n, p.k), (*p.b, p.bc, p.br))
        v_dims = (*p.dim, p_last.k, p_last.n)
        v_walk = OperandWalk(values, v_dims, (*p_last.b, p_last.br, p_last.bc))
        y_dims = (*p.dim, p_last.m, p_last.n)
        y_walk = OperandWalk(y, y_dims, tuple(element_strides(y_dims)))

        q, q_scale = self._operand(q_walk, absorbed)
        k, k_scale = self._operand(k_walk, absorbed)
        v, v_scale = self._operand(v_walk, absorbed)
        y_there = self._result(y_walk, absorbed)
        if not all(w.has_adjacent_columns for w in (q, k, v, y_there)):
            return None
        beta = softmax.struct(SoftmaxParams).beta
        if v_scale != 1 or beta <= 0:
            return None

        return _Attention(
            q=q,
            k=k,
            v=v,
            y=y_there,
            scale=q_scale * k_scale,
            beta=beta,
            bias=None if addition is None else _bias(addition, (*p.dim, p.m, p.n)),
            steps=tuple(sorted(absorbed, key=lambda s: s.at)),
            turn=last.at,
        )

    def _operand(
        self, walk: OperandWalk, absorbed: list[FusedStep]
    ) -> tuple[OperandWalk, float]:
        """Return an operand as it is before slices, transposes and factors; the factor.

        The steps that need not run are added to `absorbed`.
        """
        best = walk, 1.0
        scale = 1.0
        passed: list[FusedStep] = []
        step = self._writer(walk.first)
        while step is not None:
            call = _single(step)
            factor = None if call is None else _factor(call)
            earlier = None if call is None else self._before(walk, call)
            if earlier is None:
                break

            # A transpose may take what another did to the columns back.
            walk = earlier
            scale *= factor or 1.0
            passed.append(step)
            if walk.has_adjacent_columns:
                best = walk, scale
                absorbed += passed
                passed = []
            step = self._writer(walk.first)

        return best

    def _before(self, walk: OperandWalk, call: KernelCall) -> OperandWalk | None:
        """Return a walk through the result of a call as one through its operand."""
        *_, target = call.pointers()
        start = self._distance(target, walk.first)
        source = call.operands[0]
        if start is None or not isinstance(source, Pointer):
            return None
        if _factor(call) is not None:
            table = np.arange(target.value.type.size, dtype=np.int64)
            return walk.moved(table, start, source)
        if call.kernel not in GATHER:
            return None

        return walk.moved(_sources(call), start, source)

    def _result(self, walk: OperandWalk, absorbed: list[FusedStep]) -> OperandWalk:
        """Return the result as it is behind transposes, which are added to `absorbed`."""
        best = walk
        passed: list[FusedStep] = []
        step = self._reader(walk.first)
        while step is not None:
            call = _single(step)
            later = None if call is None else self._behind(walk, call)
            if later is None:
                break

            walk = later
            passed.append(step)
            if walk.has_adjacent_columns:
                best = walk
                absorbed += passed
                passed = []
            step = self._reader(walk.first)

        return best

    def _behind(self, walk: OperandWalk, call: KernelCall) -> OperandWalk | None:
        """Return a walk through the operand of a call as one through its result.

        None unless the call puts every element somewhere.
        """
        if call.kernel not in GATHER:
            return None
        source, target, _ = call.operands
        assert isinstance(source, Pointer)
        assert isinstance(target, Pointer)
        start = self._distance(source, walk.first)
        sources = _sources(call)
        size = sources.size
        if start is None or not np.array_equal(np.sort(sources), np.arange(size)):
            return None
        if prod(walk.dims) != size:
            return None

        # The inverse permutation: where each element goes.
        table = np.empty(size, np.int64)
        table[sources] = np.arange(size)
        return walk.moved(table, start, target)

    def _distance(self, start: Pointer, to: Pointer) -> int | None:
        """Return the elements from a pointer to another one; None for other bytes."""
        root, first = address(start, self.where)
        other, second = address(to, self.where)
        nbytes = second - first
        itemsize = start.value.type.np_dtype.itemsize
        if root is not other or nbytes < 0 or nbytes % itemsize:
            return None
        return nbytes // itemsize

    def _writer(self, pointer: Pointer) -> FusedStep | None:
        """Return the only step that writes the bytes of a value for one reader."""
        return self._only_users(pointer)[0]

    def _reader(self, pointer: Pointer) -> FusedStep | None:
        """Return the only step that reads the bytes of a value of one writer."""
        return self._only_users(pointer)[1]

    def _only_users(
        self, pointer: Pointer
    ) -> tuple[FusedStep | None, FusedStep | None]:
        """Return the writer and the reader of bytes that nobody else uses."""
        nobody = None, None
        if pointer.value.const is not None:
            return nobody
        root, _ = address(pointer, self.where)
        readers = self.readers.get(root, [])
        writers = self.writers.get(root, [])
        if root in self.border or len(readers) != 1 or len(writers) != 1:
            return nobody

        # The caller may own a view of the bytes.
        owned = any(self.where[v].root is root for v in self.border if v in self.where)
        return nobody if owned else (writers[0], readers[0])


def _single(step: FusedStep) -> KernelCall | None:
    """Return the only call of a step, with which nothing is fused."""
    if len(step.calls) != 1 or step.calls[0].then:
        return None
    return step.calls[0]


def _product_of(
    step: FusedStep,
) -> tuple[tuple[Pointer, Pointer, Pointer], BatchMatmulParams] | None:
    """Return the operands, result and sizes of a step's product of matrices."""
    call = _single(step)
    if call is None or call.kernel != BATCH_MATMUL:
        return None
    a, b, y, p = call.operands
    assert isinstance(a, Pointer)
    assert isinstance(b, Pointer)
    assert isinstance(y, Pointer)
    assert isinstance(p, BatchMatmulParams)
    if a.value.const is not None or b.value.const is not None:
        return None
    return (a, b, y), p


def _fit(
    first: tuple[tuple[Pointer, Pointer, Pointer], BatchMatmulParams],
    second: tuple[tuple[Pointer, Pointer, Pointer], BatchMatmulParams],
    softmax: Pointer,
) -> bool:
    """Return whether the second product takes the softmax of the first as it lies."""
    p = first[1]
    last = second[1]
    if tuple(p.dim) != tuple(last.dim) or (p.m, p.n) != (last.m, last.k):
        return False

    dense = element_strides((*p.dim, p.m, p.n))
    sizes = (*last.dim, last.m, last.k)
    strides = (*last.a, last.ar, last.ac)
    for size, stride, dense_stride in zip(sizes, strides, dense, strict=True):
        if size > 1 and stride != dense_stride:
            return False

    # Q Kᵀ of the scores reads the softmax from its first element on.
    left = second[0][0]
    return left.offset == 0 and softmax.offset == 0 and min(p.k, p.n, last.n) > 0


def _is_constant(operand: Operand) -> bool:
    """Return whether an operand is a constant tensor."""
    return isinstance(operand, Pointer) and operand.value.const is not None


def _is_linear(call: KernelCall) -> bool:
    """Return whether a call has no bounds for its results."""
    act = call.optional_struct(ActivationParams)
    return act is None or (act.low, act.high) == (-inf, inf)


def _factor(call: KernelCall) -> float | None:
    """Return the number that a call multiplies all elements with; None for others."""
    if call.kernel != _MUL or not _is_linear(call):
        return None
    x, k, y, *_ = call.operands
    if not isinstance(x, Pointer) or not isinstance(k, Pointer):
        return None
    assert isinstance(y, Pointer)
    is_one_number = k.value.const is not None and k.value.const.size == 1
    if not is_one_number or x.value.type.size != y.value.type.size:
        return None
    assert k.value.const is not None
    return float(k.value.const.item())


def _sources(call: KernelCall) -> Indices:
    """Return the element of the operand that a gather puts at each position."""
    p = call.struct(GatherParams)
    return positions(p.dim, p.stride).reshape(-1)


def _bias(addition: KernelCall, shape: tuple[int, ...]) -> Array:
    """Return what an addition adds to scores of a shape, once for those that share it."""
    _, b, y, *_ = addition.operands
    assert isinstance(b, Pointer)
    assert isinstance(y, Pointer)
    assert b.value.const is not None
    # Windows share their bias as a rule, but heads do not.
    full = np.broadcast_to(b.value.const, y.value.type.shape).reshape(shape)
    for axis in range(len(shape) - 2):
        one = full.take([0], axis)
        if (full == one).all():
            full = one
    return full


def _call(attention: _Attention, core: Core) -> KernelCall:
    """Return the call of the kernel, with the bias padded to whole tiles.

    core: the core as schedules of its element type see it
    """
    *dim, m, depth = attention.q.dims
    n = attention.k.dims[-2]
    width = attention.v.dims[-1]
    panel = 2 * (core.vector // 4)
    pitch = -(-n // panel) * panel
    tile = tile_heights(GemmF32Shape(1, 1, m, depth, 1, m, n, group_ic=depth), core)[0]

    # Whole tiles of rows, whose scores leave room for panels in the first cache.
    tiles = max(1, core.l1 // SCORES_SHARE // (4 * pitch * tile))
    block = min(tiles, -(-m // tile)) * tile
    bias, bias_walk = _padded(attention.bias, block, pitch)
    p = AttentionF32Params(
        dim=tuple(dim),
        m=m,
        n=n,
        depth=depth,
        width=width,
        pitch=pitch,
        block=block,
        scale=attention.scale,
        beta=attention.beta,
        q=_strides(attention.q),
        k=_strides(attention.k),
        v=_strides(attention.v),
        y=_strides(attention.y),
        bias=bias_walk,
    )
    values = -(-width // panel) * panel
    itemsize = attention.q.first.value.type.np_dtype.itemsize
    floats = pitch * depth + values * n + block * pitch + tile * depth
    operands = (
        attention.q.first,
        attention.k.first,
        attention.v.first,
        bias,
        attention.y.first,
        Scratch(itemsize * floats),
        p,
        f"ek_tile_f32_{tile}x2",
        f"ek_tile_f32_{tile}x2_sum",
        tile,
    )
    return KernelCall(_ATTENTION, (*operands, PART, PARTS))


def _strides(walk: OperandWalk) -> AttentionStridesF32Params:
    """Return the strides of an operand for the kernel."""
    return AttentionStridesF32Params(lead=walk.strides[:4], row=walk.strides[4])


def _padded(
    bias: Array | None, block: int, pitch: int
) -> tuple[Table | int, AttentionStridesF32Params]:
    """Return the bias in rows of whole panels, and its strides; 0 where there is none.

    Rows behind the last are 0, columns -inf: such scores have no share of the softmax.
    """
    if bias is None:
        return 0, AttentionStridesF32Params(lead=(0, 0, 0, 0), row=pitch)

    *lead, m, n = bias.shape
    rows = -(-m // block) * block
    padded = np.zeros((*lead, rows, pitch), np.float32)
    padded[..., :m, :n] = bias
    padded[..., n:] = -inf
    strides = element_strides(padded.shape)[:4]
    shared = [0 if d == 1 else s for d, s in zip(lead, strides, strict=True)]
    return Table(padded, "bias"), AttentionStridesF32Params(lead=shared, row=pitch)
