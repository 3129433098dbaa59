"""Results of elementwise calls in the place of an operand that nothing reads later: the cache has that already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgec.ir import Graph, KernelCall, Pointer, Struct, Value
from edgec.schedule.fuse import Step
from edgec.schedule.liveness import lifetimes, peak, tensors
from edgec.schedule.views import Place, Places


def in_place(graph: Graph, asked: Sequence[Step], steps: Sequence[Step], where: Places) -> Places:
    """The places after every result that may has gone where an operand was. asked: the steps with plain calls."""
    plain = {s.ops: s.calls for s in asked}
    border = {*graph.inputs, *graph.outputs}
    used = [tensors(s.calls) for s in steps]
    for i, step in enumerate(steps):
        calls = plain.get(step.ops, step.calls)
        found = _same(calls[0]) if len(calls) == len(step.calls) == 1 else ((), None)
        for x in found[0]:
            y = found[1]
            if y is not None and _may(x, y, i, used, where, border):
                moved = _moved(where, y, where[x])
                if peak(lifetimes(used, moved, border)) <= peak(lifetimes(used, where, border)):
                    where = moved
                    break
    return where


def _same(call: KernelCall) -> tuple[tuple[Value, ...], Value | None]:
    """Operands of which a call reads each element before it writes the same one of its result, and no other after."""
    pointers = [x.value for x in call.operands if isinstance(x, Pointer)]
    if call.then or any(x.offset for x in call.operands if isinstance(x, Pointer)):
        return (), None
    if call.kernel == "ek_chain_f32_simd":
        return tuple(dict.fromkeys(pointers[:4])), pointers[-1]
    unary = len(pointers) == 2 and len(call.operands) > 2 and call.operands[2] == pointers[1].type.size
    binary = any(isinstance(x, Struct) and x.ctype == "ek_nd_t" for x in call.operands)
    if not (unary or binary or call.kernel == "ek_scale_channels_f32"):
        return (), None
    *reads, y = pointers
    return tuple(x for x in reads if x.const is None and x.type.shape == y.type.shape), y


def _may(
    x: Value,
    y: Value,
    at: int,
    used: Sequence[Sequence[Value]],
    where: Places,
    border: Mapping[Value, object] | set[Value],
) -> bool:
    """Whether a result may lie where an operand of its step does."""
    root, own = where[x].root, where[y]
    if x.type.np_dtype.itemsize != y.type.np_dtype.itemsize or x.type.size != y.type.size:
        return False
    if root in border or own.root is not y or y in border:
        return False
    if any(where[v].root is root for later in used[at + 1 :] for v in later):
        return False
    return all(v is x for v in used[at] if where[v].root is root)


def _moved(where: Places, y: Value, to: Place) -> Places:
    return {v: Place(to.root, to.at + p.at) if p.root is y else p for v, p in where.items()}
