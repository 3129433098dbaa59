"""The cost of an int8 range for the consumers of a value.

The cost is the power of the error in what a consumer computes, divided by the power of
what it computes. With Q the rounding to int8 in the range:

    of a linear layer     |W Q(x) - W x|² / |W x|²   on sampled windows x
    of a softmax          |f(Q(x)) - f(x)|² / |f(x)|²   on sampled rows x
    of a function f       the same, on the histogram of the value
    of any other          |Q(x) - x|² / |x|²   on the histogram
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
"""The cost of a range, from 0."""


@dataclass(frozen=True)
class RangeCosts:
    """The costs of the consumers of one value.

    Attributes:
        of_products: of linear layers that read it, on windows.
        of_rows: of softmaxes that read it, on rows.
        of_functions: of the functions of the value alone, element by element.
        of_value: of the value itself, if anything else reads it.
    """

    of_products: Sequence[RangeCost]
    of_rows: Sequence[RangeCost]
    of_functions: Sequence[RangeCost]
    of_value: RangeCost | None

    def __iter__(self) -> Iterator[RangeCost]:
        yield from self.of_products
        yield from self.of_rows
        yield from self.of_functions
        if self.of_value is not None:
            yield self.of_value


@dataclass(frozen=True)
class SampledWindows:
    """Windows of a value that were drawn on all samples.

    Attributes:
        rows: the windows, [n, …].
        weights: how many windows each stands for, [n].
        samples: the number of the sample of each, [n].
    """

    rows: Array
    weights: Array
    samples: Array

    @classmethod
    def of(cls, parts: Sequence[tuple[Array, Array]]) -> SampledWindows:
        """Return the windows of all samples.

        parts: the rows and the weights of each sample.
        """
        rows, weights = zip(*parts, strict=True)
        counts = [len(w) for w in weights]
        numbers = np.repeat(np.arange(len(parts)), counts)

        return cls(np.concatenate(rows), np.concatenate(weights), numbers)

    def total(self, x: Array) -> float:
        """Return the power of [n, C]: the weighted sum of squares."""
        return float(self._per_sample(x).sum())

    def pessimistic_total(self, x: Array) -> float:
        """Return n times the root mean square of the n samples' powers.

        It is `total` where all samples have the same power, and more where few samples
        have all of it: unseen samples may have several times as much.
        """
        powers = self._per_sample(x)
        return float(np.sqrt(np.square(powers).mean())) * len(powers)

    def _per_sample(self, x: Array) -> Array:
        """Return the power on each sample, [samples]."""
        squares = np.square(x).sum(1, dtype=np.float64)
        return np.bincount(self.samples, self.weights * squares)


def total(costs: Iterable[RangeCost]) -> RangeCost:
    """Return the sum of several costs."""
    terms = [*costs]
    return lambda r: sum(cost(r) for cost in terms)


@dataclass(frozen=True)
class CostModel:
    """What costs are computed from.

    Attributes:
        graph: the float graph.
        users: its users of each value.
        windows: sampled windows, by layer; rows of a softmax likewise.
        same: the operations with one scale for what they read and write; their
            results have costs of their own.
        clipping: how many times the error of clipped elements counts. Unlike the error
            of rounding it goes one way in a whole region, and no layer averages it out.
    """

    graph: Graph
    users: Mapping[Value, Sequence[Op]]
    windows: Mapping[Op, SampledWindows]
    same: Set[Op]
    clipping: float = 1.0

    def costs(self, v: Value, h: Histogram) -> RangeCosts:
        """Return the costs of one value's consumers. h: its histogram."""
        consumers = self.users.get(v, [])
        layers = [op for op in consumers if op in self.windows and op.inputs[0] is v]
        of_products, of_rows = self._layer_costs(layers)

        element_functions, covered = functions(v, self.users, self.graph.outputs)
        of_functions = [_function_cost(f, h, self.clipping) for f in element_functions]
        # Consumers without a cost of their own see the value as it is.
        accounted = covered | self.same | {*layers}
        others = [op for op in consumers if op not in accounted]
        needs_own = others or v in self.graph.outputs
        of_value = _value_cost(h, self.clipping) if needs_own else None

        return RangeCosts(of_products, of_rows, of_functions, of_value)

    def _layer_costs(
        self, layers: Sequence[Op]
    ) -> tuple[list[RangeCost], list[RangeCost]]:
        """Return the costs of linear layers, and those of softmaxes."""
        of_products: list[RangeCost] = []
        of_rows: list[RangeCost] = []
        for op in layers:
            windows = self.windows[op]
            function = softmax(op)
            # A softmax sees whole rows; other layers are products of weights.
            if function is None:
                layer = LinearLayer(op)
                of_products.append(_product_cost(layer, windows, self.clipping))
            else:
                of_rows.append(_row_cost(function, windows))

        return of_products, of_rows


def _rounded(x: Array, r: Range) -> Array:
    """Return reals rounded to int8 in a range; ties may go either way."""
    q = activation_quant(r)
    scale = np.float32(q.scale[0])
    zero = q.zero_point[0]

    # A product with the inverse is faster than a division.
    steps = np.rint(x * (np.float32(1) / scale)).clip(-128 - zero, 127 - zero)

    return np.asarray(steps * scale)


def _int8_ends(r: Range) -> Range:
    """Return the smallest and the largest real of int8 in a range."""
    q = activation_quant(r)
    scale = q.scale[0]
    zero = q.zero_point[0]
    return (-128 - zero) * scale, (127 - zero) * scale


def _product_cost(
    layer: LinearLayer, drawn: SampledWindows, clipping: float
) -> RangeCost:
    """Return the cost for a linear layer, on windows of its input."""
    w = layer.op.inputs[1].const
    assert w is not None
    matrix = layer.matrix(w)
    power = drawn.total(apply(matrix, drawn.rows)) or 1.0

    def relative_error(row_errors: Array) -> float:
        error = apply(matrix, row_errors)
        # A constant error of all windows is no loss: the bias takes it away again.
        mean = np.average(error, 0, drawn.weights)
        return drawn.pessimistic_total(error - mean) / power

    def cost(r: Range) -> float:
        error = relative_error(_rounded(drawn.rows, r) - drawn.rows)
        if clipping == 1:
            return error

        # The part of the error that is clipping counts once more or several times.

        low, high = _int8_ends(r)
        clipped = drawn.rows.clip(np.float32(low), np.float32(high))

        return error + (clipping - 1) * relative_error(clipped - drawn.rows)

    return cost


def _row_cost(function: Function, drawn: SampledWindows) -> RangeCost:
    """Return the cost for a softmax, on rows of its input."""
    want = function(drawn.rows)
    power = drawn.total(want) or 1.0

    def cost(r: Range) -> float:
        error = function(_rounded(drawn.rows, r)) - want
        return drawn.pessimistic_total(error) / power

    return cost


def _function_cost(function: Function, h: Histogram, clipping: float) -> RangeCost:
    """Return the cost for a function of the value, on its histogram."""
    centres = h.centres.astype(np.float32)
    want = function(centres).astype(np.float64)
    power = float((h.counts * want**2).sum()) or 1.0

    def cost(r: Range) -> float:
        low, high = _int8_ends(r)
        inside = (centres >= low) & (centres <= high)
        # Within one step the error is uniform: a difference of d between the ends of
        # the step has the mean square d² / 12.
        half = np.float32(activation_quant(r).scale[0] / 2)
        difference = function(centres + half) - function(centres - half)
        rounding_error = difference.astype(np.float64) ** 2 / 12

        # Outside of the range the function sees its nearest end.
        ends = np.clip(centres, low, high).astype(np.float32)
        clipping_error = clipping * (function(ends) - want) ** 2
        error = np.where(inside, rounding_error, clipping_error)

        return float((h.counts * error).sum()) / power

    return cost


def _value_cost(h: Histogram, clipping: float) -> RangeCost:
    """Return the cost for consumers that see the value itself."""
    power = float((h.counts * h.centres**2).sum() / max(1, h.counts.sum())) or 1.0
    return lambda r: noise(h, r, clipping) / power
