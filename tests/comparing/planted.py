"""Faults planted in one layer of an int8 graph, drawn by a seed; and in one kernel of a
copy of the C kernels.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from edgec.comparing.side import Sample
from edgec.compiler.native import NativeGraph, native_compiler
from edgec.emit.c import CSRC
from edgec.ir import Array, Graph, KernelCall, Op, OpDef, Quant, TensorType, Value
from edgec.ir.interp import run_op
from edgec.quantize.change.domains import role

FAULTS = ("scale", "zero point", "channel", "kernel")
_FACTOR = 1.5

Alter = Callable[[TensorType], TensorType]


@dataclass(frozen=True)
class Planted:
    """A graph with a fault. op: the layer that has it. what: to be read. kernel: whose
    rounding is wrong, in `csrc`.
    """

    graph: Graph
    op: Op
    what: str
    kernel: str = ""
    csrc: Path | None = None


def weighted(graph: Graph) -> list[Op]:
    """Its int8 ops that multiply by constant weights."""
    return [
        op
        for op in graph.ops
        if _weight(op) is not None and op.output.type.dtype == "int8"
    ]


def plant(fault: str, graph: Graph, seed: int, folder: Path) -> Planted:
    """One of FAULTS, in a layer drawn by `seed`.

    The graph that is given stays as it is.
    """
    rng = np.random.default_rng(seed)
    if fault == "kernel":
        return _kernel(graph, rng, folder)
    twin = graph.copy()
    ops = weighted(twin)
    op = ops[int(rng.integers(len(ops)))]
    return Planted(twin, op, _PLANT[fault](op, rng))


def _weight(op: Op) -> int | None:
    return next(
        (
            i
            for i, v in enumerate(op.inputs)
            if role(op, i) == "weight" and v.const is not None
        ),
        None,
    )


def _scale(op: Op, rng: np.random.Generator) -> str:
    """The weights' scale is not the one that they were rounded by, and their bias goes
    with them; or the op computes with another scale of its result than those have who
    read it.
    """
    if rng.integers(2):

        def alter(t: TensorType) -> TensorType:
            assert t.quant is not None
            scale = tuple(float(np.float32(s * _FACTOR)) for s in t.quant.scale)
            return t.with_quant(Quant(scale, t.quant.zero_point, t.quant.axis))

        op.spec = lying(op.spec, alter, of_result=True)
        return f"scale of the result of {op.output.name} times {_FACTOR}"
    for i, v in enumerate(op.inputs):
        if role(op, i) in ("weight", "bias") and v.type.quant is not None:
            q = v.type.quant
            scale = tuple(float(np.float32(s * _FACTOR)) for s in q.scale)
            op.inputs[i] = Value(
                v.name, v.type.with_quant(Quant(scale, q.zero_point, q.axis)), v.const
            )
    return f"weights of {op.output.name} times {_FACTOR}"


def _channel(op: Op, rng: np.random.Generator) -> str:
    """Two output channels are swapped, of those that carry something: weights, scales
    and bias.
    """
    at = _weight(op)
    assert at is not None
    axis = op.spec.weight_axis
    w = op.inputs[at].const
    assert w is not None
    alive = np.flatnonzero(
        np.any(w != 0, axis=tuple(i for i in range(w.ndim) if i != axis))
    )
    i, j = (int(n) for n in rng.choice(alive, 2, replace=False))
    for k, v in enumerate(op.inputs):
        if role(op, k) in ("weight", "bias"):
            assert v.const is not None
            along = axis if role(op, k) == "weight" else 0
            order = np.arange(v.const.shape[along])
            order[[i, j]] = order[[j, i]]
            op.inputs[k] = Value(
                v.name, _reordered(v.type, order), np.take(v.const, order, along)
            )
    return f"channels {i} and {j} of {op.output.name} swapped"


def _reordered(t: TensorType, order: Array) -> TensorType:
    q = t.quant
    if q is None or q.axis is None:
        return t
    return t.with_quant(
        Quant(
            tuple(q.scale[i] for i in order),
            tuple(q.zero_point[i] for i in order),
            q.axis,
        )
    )


def _zero_point(op: Op, rng: np.random.Generator) -> str:
    """The op computes with a zero point of its result, or of its input, that is one
    off.
    """
    by = int(rng.choice([-1, 1]))
    of_result = bool(rng.integers(2))

    def alter(t: TensorType) -> TensorType:
        assert t.quant is not None
        return t.with_quant(
            Quant(t.quant.scale, (t.quant.zero_point[0] + by,), t.quant.axis)
        )

    op.spec = lying(op.spec, alter, of_result)
    return (
        f"zero point of the {'result' if of_result else 'input'} of "
        f"{op.output.name} off by {by:+d}"
    )


_PLANT = {"scale": _scale, "zero point": _zero_point, "channel": _channel}


def lying(spec: OpDef, alter: Alter, of_result: bool) -> OpDef:
    """An op that computes as if its result (or its first input) had another type than
    all others see.
    """
    cls: Any = type(spec)

    def ref(
        self: Any,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        if of_result:
            yt = [alter(t) for t in yt]
        else:
            xt = [alter(xt[0]), *xt[1:]]
        return cls.ref(self, x, xt, yt)  # type: ignore[no-any-return]

    def calls(self: Any, op: Op) -> tuple[KernelCall, ...]:
        v = op.output if of_result else op.inputs[0]
        declared = v.type
        v.type = alter(declared)
        try:
            return cls.calls(self, op)  # type: ignore[no-any-return]
        finally:
            v.type = declared

    liar = type(cls.__name__, (cls,), {"ref": ref, "calls": calls})
    return liar(  # type: ignore[no-any-return]
        **{name: getattr(spec, name) for name in (f.name for f in fields(spec))}
    )


_WRONG = """
EK_KERNEL int8_t ek_wrong_requantize(int32_t acc, int channel, const ek_requant_t *q) {
    const int32_t high = ek_high_mul(acc, q->multiplier[channel]);
    const int shift = q->shift[channel];
    const int32_t v = (shift > 0 ? high << shift : high >> -shift) + q->y_zero; /* no rounding to the nearest */
    return (int8_t)EK_CLAMP(v, q->low, q->high);
}
"""
KERNELS = {
    "ek_conv2d_s8": ("ek_conv2d.h", 0),
    "ek_dwconv2d_s8": ("ek_conv2d.h", 1),
}
"""Kernels, with their file and which of its roundings is theirs."""


def _kernel(graph: Graph, rng: np.random.Generator, folder: Path) -> Planted:
    """A kernel that rounds down."""
    users: dict[str, list[Op]] = {}
    for op in graph.ops:
        for call in op.spec.calls(op):
            if call.kernel.name in KERNELS:
                users.setdefault(call.kernel.name, []).append(op)
    kernel = str(rng.choice(sorted(users)))
    csrc = folder / f"csrc-{kernel}"
    if not csrc.exists():
        shutil.copytree(CSRC, csrc)
        name, which = KERNELS[kernel]
        head, *rest = (csrc / name).read_text().split("ek_requantize(")
        rest[which] = f"@{rest[which]}"
        text = "ek_requantize(".join([head, *rest]).replace(
            "ek_requantize(@", "ek_wrong_requantize("
        )
        (csrc / name).write_text(text)
        fixed = csrc / "ek_fixed_point.h"
        whole, end = fixed.read_text().rsplit("#endif", 1)
        fixed.write_text(f"{whole}{_WRONG}#endif{end}")
    return Planted(graph, users[kernel][0], f"{kernel} rounds down", kernel, csrc)


def is_seen(good: Graph, planted: Planted, samples: Sequence[Sample]) -> bool:
    """Whether the layer computes anything else with the fault, on what it reads from
    layers that are right.
    """
    right = {op.output.name: op for op in good.ops}[planted.op.output.name]
    run = NativeGraph(good, native_compiler(None))
    for sample in samples:
        env = _values(run, sample)
        one, other = (
            run_op(op, {v: env[v.name] for v in op.inputs if v.const is None})[0]
            for op in (right, planted.op)
        )
        if not np.array_equal(one, other):
            return True
    return False


def _values(run: NativeGraph, sample: Sample) -> dict[str, Array]:
    env: dict[str, Array] = {}

    def keep(v: Value, array: Array) -> None:
        env[v.name] = array.copy()

    run(sample, keep)
    return env


__all__ = ["FAULTS", "Planted", "is_seen", "lying", "plant", "weighted"]
