"""What int8 in a range costs those who read a value: judges tell the error as a part of
the power of what they see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Graph, Op, Value
from edgec.quantize.change.functions import Function, functions, softmax
from edgec.quantize.change.histograms import Histogram, noise
from edgec.quantize.change.params import activation_quant
from edgec.quantize.change.products import LinearLayer, apply
from edgec.quantize.observe.ranges import Range

RangeCost = Callable[[Range], float]


@dataclass(frozen=True)
class RangeCosts:
    """of_products: of the layers that read it, on windows. of_rows: of softmaxes.
    of_functions: of what is computed from the value alone, element by element. own: of
    the value itself, where something else reads it.
    """

    of_products: Sequence[RangeCost]
    of_rows: Sequence[RangeCost]
    of_functions: Sequence[RangeCost]
    own: RangeCost | None

    def __iter__(self) -> Iterator[RangeCost]:
        yield from (
            *self.of_products,
            *self.of_rows,
            *self.of_functions,
            *([self.own] if self.own is not None else []),
        )


@dataclass(frozen=True)
class SampledWindows:
    """What was drawn of a value over all samples. rows: [n, …]; weights: how many each
    stands for; samples: whose each is.
    """

    rows: Array
    weights: Array
    samples: Array

    @classmethod
    def of(cls, parts: Sequence[tuple[Array, Array]]) -> SampledWindows:
        """Of the rows and weights of each sample."""
        rows, weights = zip(*parts, strict=True)
        numbers = np.repeat(np.arange(len(parts)), [len(w) for w in weights])
        return cls(np.concatenate(rows), np.concatenate(weights), numbers)

    def total(self, x: Array) -> float:
        """The power of [n, C]."""
        return float(self._each(x).sum())

    def worse(self, x: Array) -> float:
        """The same where all samples have as much; more where few have all of it:
        samples that were not seen may have several times that.
        """
        each = self._each(x)
        return float(np.sqrt(np.square(each).mean())) * len(each)

    def _each(self, x: Array) -> Array:
        """[samples]: their power."""
        return np.bincount(
            self.samples, self.weights * np.square(x).sum(1, dtype=np.float64)
        )


def total(every: Iterable[RangeCost]) -> RangeCost:
    """The sum of what they tell."""
    some = [*every]
    return lambda r: sum(judge(r) for judge in some)


def range_costs(
    graph: Graph,
    users: Mapping[Value, Sequence[Op]],
    v: Value,
    h: Histogram,
    windows: Mapping[Op, SampledWindows],
    same: Set[Op],
    clipping: float = 1.0,
) -> RangeCosts:
    """Of one value. users: of the graph. windows: some, by layer. same: ops that bring
    what they read and write to one scale; what they write has judges of its own.
    clipping: how many times what is clipped counts: its error, unlike that of rounding,
    goes one way in all of a region, and no layer behind averages it out.
    """
    used = users.get(v, [])
    layers = [op for op in used if op in windows and op.inputs[0] is v]
    seen, told = functions(v, users, graph.outputs)
    others = [
        op for op in used if op not in layers and op not in told and op not in same
    ]
    return RangeCosts(
        [
            _product(LinearLayer(op), windows[op], clipping)
            for op in layers
            if softmax(op) is None
        ],
        [_rows(see, windows[op]) for op in layers if (see := softmax(op)) is not None],
        [_function(f, h, clipping) for f in seen],
        _own(h, clipping) if others or v in graph.outputs else None,
    )


def _rounded(x: Array, r: Range) -> Array:
    """What int8 tells of reals; ties may go either way."""
    q = activation_quant(r)
    scale = np.float32(q.scale[0])
    zero = q.zero_point[0]
    steps = np.rint(x * (np.float32(1) / scale)).clip(-128 - zero, 127 - zero)
    return np.asarray(steps * scale)


def _ends(r: Range) -> Range:
    """Of what int8 tells."""
    q = activation_quant(r)
    low, high = ((end - q.zero_point[0]) * q.scale[0] for end in (-128, 127))
    return low, high


def _product(p: LinearLayer, drawn: SampledWindows, clipping: float) -> RangeCost:
    w = p.op.inputs[1].const
    assert w is not None
    matrix = p.matrix(w)
    power = drawn.total(apply(matrix, drawn.rows)) or 1.0

    def worse(of_rows: Array) -> float:
        error = apply(matrix, of_rows)
        # what is the same for all windows belongs to the bias
        return drawn.worse(error - np.average(error, 0, drawn.weights)) / power

    def judge(r: Range) -> float:
        error = worse(_rounded(drawn.rows, r) - drawn.rows)
        if clipping == 1:
            return error
        low, high = _ends(r)
        return error + (clipping - 1) * worse(
            drawn.rows.clip(np.float32(low), np.float32(high)) - drawn.rows
        )

    return judge


def _rows(see: Function, drawn: SampledWindows) -> RangeCost:
    want = see(drawn.rows)
    power = drawn.total(want) or 1.0
    return lambda r: drawn.worse(see(_rounded(drawn.rows, r)) - want) / power


def _function(see: Function, h: Histogram, clipping: float) -> RangeCost:
    centres = h.centres.astype(np.float32)
    want = see(centres).astype(np.float64)
    power = float((h.counts * want**2).sum()) or 1.0

    def judge(r: Range) -> float:
        low, high = _ends(r)
        inside = (centres >= low) & (centres <= high)
        # within a step the error is even: a difference of d at its ends has a mean
        # square of d²/12
        half = np.float32(activation_quant(r).scale[0] / 2)
        spread = (see(centres + half) - see(centres - half)).astype(
            np.float64
        ) ** 2 / 12
        clipped = (
            clipping * (see(np.clip(centres, low, high).astype(np.float32)) - want) ** 2
        )
        return float((h.counts * np.where(inside, spread, clipped)).sum()) / power

    return judge


def _own(h: Histogram, clipping: float) -> RangeCost:
    power = float((h.counts * h.centres**2).sum() / max(1, h.counts.sum())) or 1.0
    return lambda r: noise(h, r, clipping) / power
