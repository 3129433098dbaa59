"""Which channels of a float network are multiples of what they were before a recipe scaled them (equalization)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgec.comparing.channels import Weights
from edgec.ir import Array, Graph, Op
from edgec.ops.binary import Mul
from edgec.ops.concat import Concat
from edgec.quantize.domains import role
from edgec.quantize.lower import lower

_ONE = 1e-3

Factors = Mapping[str, Array]
"""By the name of a value: what its channels (of the last axis) are multiplied by."""


def channel_factors(before: Graph, scaled: Graph) -> dict[str, Array]:
    """Of the values of `scaled` that are not what they were, from the weights of both."""
    were = {op.output.name: op for op in lower(before).ops if len(op.outputs) == 1}
    found: dict[str, Array] = {}
    for op in scaled.ops:
        if len(op.outputs) != 1 or (old := were.get(op.output.name)) is None:
            continue
        factor = _by_weights(op, old, found)
        if factor is None:
            factor = _kept(op, found)
        if factor is not None and (np.abs(factor - 1) > _ONE).any():
            found[op.output.name] = factor
    return found


def _by_weights(op: Op, old: Op, found: Factors) -> Array | None:
    """Of what multiplies by constants."""
    now, then = Weights.of(op), Weights.of(old)
    if now is None or then is None or now.real.shape != then.real.shape:
        return None
    read, rows = found.get(op.inputs[0].name), now.real
    if read is not None and now.own:
        rows = rows * np.repeat(read, -(-len(rows) // len(read)))[: len(rows), None]
    elif read is not None and rows.shape[1] % len(read) == 0:
        rows = (rows.reshape(len(rows), -1, len(read)) * read).reshape(rows.shape)
    known = then.real != 0
    ratios = np.where(known, rows / np.where(known, then.real, 1.0), np.nan)
    alive = known.any(1)
    # not the mean: what reads a channel that is nothing at all may have divided it by anything
    times = np.nanmedian(np.where(alive[:, None], ratios, 1.0), axis=1)
    return np.where(alive, times, _by_bias(op, old, len(rows)))


def _by_bias(op: Op, old: Op, count: int) -> Array:
    """Where a channel has no weight: by its bias, which is all that it is."""
    pair = [next((v.const for i, v in enumerate(o.inputs) if role(o, i) == "bias"), None) for o in (op, old)]
    now, then = pair
    if now is None or then is None:
        return np.ones(count)
    return np.where(then != 0, now / np.where(then != 0, then, 1), 1.0)


def _kept(op: Op, found: Factors) -> Array | None:
    """Of what keeps the channels of what it reads, adds or multiplies them, or puts them beside each other."""
    acts = [v for i, v in enumerate(op.inputs) if role(op, i) == "act" and v.const is None]
    if not any(v.name in found for v in acts):
        return None
    each, last = [found.get(v.name, np.ones(v.type.shape[-1:] or 1)) for v in acts], op.output.type.shape[-1:]
    if isinstance(op.spec, Concat) and sum(map(len, each)) == last[0]:
        return np.concatenate(each)
    if not last or any(len(f) not in (1, last[0]) for f in each):
        return None
    if isinstance(op.spec, Mul):
        return np.asarray(np.prod(np.broadcast_arrays(*each), axis=0))
    return np.broadcast_to(max(each, key=len), last)


def factor_of(factors: Factors, name: str) -> Array | None:
    """That of a value or of another form of it; None where it is as it came."""
    for ending in ("", "_int8", "_f32"):
        if name.endswith(ending) and (found := factors.get(name.removesuffix(ending))) is not None:
            return found
    return None
