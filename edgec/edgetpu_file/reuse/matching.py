"""Finds the instructions and parameters of each operator, and what they become.

Every operator takes the next steps of the program, as edgetpu_compiler orders them. The
geometry of a step, the padding in its parameters and the old zero points must be those
of the operator; otherwise the program is of another network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from edgec_runtime.edgetpu_file.flatbuffer import Table

from edgec.edgetpu_file.reuse import packing
from edgec.edgetpu_file.reuse.layer import (
    ZERO,
    LayerShape,
    LayerWeights,
    OtherNetworkError,
    layer_shape,
    layer_weights,
)
from edgec.edgetpu_file.reuse.parameters import Store
from edgec.edgetpu_file.reuse.program import Edits, Numbers, Place, Step
from edgec.edgetpu_file.reuse.scalar import softmax_words
from edgec.edgetpu_file.reuse.source import Operation, Tensor
from edgec.edgetpu_file.reuse.window import Kernel, Tap, addresses, taps
from edgec.ops.edgetpu_law import (
    Clamps,
    addition_multiplier,
    addition_weights,
    clamps,
    f32,
    product,
    reciprocal,
)

_SAME = 0
_BYTES = 0x01010101
"""A byte in each of the four of a word."""


@dataclass
class Match:
    """A program and a network, operator by operator.

    Attributes:
        places: the instructions of the program
        steps: those that compute
        store: the old parameters
        zeros: the old zero points of tensors, by name
        bases: where the steps write tensors in narrow memory, by name
        edits: the new instructions
        parameters: the new parameters, by their first bytes in the file
        next_step: the first step without an operator
    """

    places: Sequence[Place]
    steps: Sequence[Step]
    store: Store
    zeros: dict[str, int]
    bases: dict[str, int] = field(default_factory=dict)
    edits: Edits = field(default_factory=Edits)
    parameters: dict[int, bytes] = field(default_factory=dict)
    next_step: int = 0

    def operation(self, operation: Operation) -> None:
        """Take the steps of an operator.

        Raises OtherNetworkError: they are others, or the operator is not understood.
        """
        matches = _MATCHES.get(operation.kind)
        if matches is None:
            raise OtherNetworkError(f"{operation.name} is not understood")
        for tensor in (*operation.inputs, *operation.outputs):
            if tensor is not None and tensor.data is None:
                _check_quantized(operation, tensor)
        matches(self, operation)

    def end(self) -> None:
        """Check that nothing is left. Raises OtherNetworkError otherwise."""
        if self.next_step < len(self.steps):
            left = len(self.steps) - self.next_step
            raise OtherNetworkError(
                f"the program computes {left} steps more than the network has"
            )
        if self.store.left:
            raise OtherNetworkError(
                f"{self.store.left} bytes of its parameters belong to no operator"
            )

    def _step(self, operation: Operation) -> Step:
        if self.next_step == len(self.steps):
            raise OtherNetworkError(f"the program has no step for {operation.name}")
        step = self.steps[self.next_step]
        self.next_step += 1
        return step

    def _old_zero(self, tensor: Tensor) -> int:
        return self.zeros[tensor.name]

    def _between(self, step: Step) -> Sequence[Place]:
        """Return the instructions between the step before and a step."""
        index = self.steps.index(step)
        start = self.steps[index - 1].places[-1].index + 1 if index else 0
        return self.places[start : step.places[0].index]

    def _wrote(self, tensor: Tensor, step: Step, zero: int) -> None:
        self.zeros[tensor.name] = zero
        self.bases[tensor.name] = step.first.value("out")

    # Convolutions and fully connected layers

    def sum_of_products(self, operation: Operation) -> None:
        """Take a convolution, a depthwise one or a fully connected layer."""
        layer = layer_shape(operation)
        weights = layer_weights(operation, layer)
        step = self._step(operation)
        old = step.numbers
        source, output = operation.source, operation.outputs[0]
        _require(
            old.in_zero == self._old_zero(source),
            f"the step for {operation.name} reads a tensor of another zero point",
        )
        _require(
            old.offset == 0 and (not weights.by_channel or old.weight_zero == 0),
            f"the step for {operation.name} is another one",
        )
        _check_geometry(operation, layer, step)
        order = _order(operation, layer, step)
        old_zero = ZERO if weights.by_channel else old.weight_zero
        self._pack(operation, layer, weights, order, old_zero)
        self._padding(operation, layer, step)

        bounds = _clamps(operation)
        new = Numbers(
            weights.multiplier,
            bounds.most,
            bounds.least,
            source.zero_point,
            0 if weights.by_channel else weights.zero_point,
            output.zero_point,
            0,
        )
        self._put(step, new)
        self._wrote(output, step, old.out_zero)

    def _put(self, step: Step, new: Numbers) -> None:
        for place in step.places:
            self.edits.put(place, new.fields())

    def _pack(
        self,
        operation: Operation,
        layer: LayerShape,
        weights: LayerWeights,
        order: Sequence[Tap],
        old_zero: int,
    ) -> None:
        """Write the parameters of a layer at their place."""
        biases = weights.biases
        # Those of zeros alone are left out by some versions of the compiler.
        none = biases is None or not np.any(biases)
        for heads in dict.fromkeys((len(weights.heads) + (not weights.by_channel), 0)):
            if heads < len(weights.heads):
                continue
            example = partial(_example, layer, heads, old_zero, order)
            place = self.store.take(layer.size(heads), example)
            if place is None:
                continue
            if heads == 0 and not none:
                raise OtherNetworkError(
                    f"{operation.name} has biases, and the compiled one has none"
                )
            rows = list(weights.heads)
            if heads > len(rows):
                zeros = np.zeros(layer.outputs, "<i4")
                rows.append(zeros if biases is None else biases)
            self.parameters[place.start] = layer.packed(
                weights.values, rows, weights.zero_point, order
            )
            return
        raise OtherNetworkError(f"the file has no parameters of {operation.name}")

    def _padding(self, operation: Operation, layer: LayerShape, step: Step) -> None:
        """Change the constants with which the borders of an image are filled."""
        options = operation.options
        old, new = step.numbers.in_zero, operation.source.zero_point
        padded = options is not None and options.integer(0, 1) == _SAME
        if layer.kernel == (1, 1) or not padded or old == new:
            return
        # Zeros are written for other purposes too.
        _require(old != 0, f"the borders of {operation.name} cannot be told apart")
        for place in self._between(step):
            if _fills(place) and place.instruction.value("filling") == old * _BYTES:
                self.edits.put(place, {"filling": new * _BYTES})

    # Additions

    def addition(self, operation: Operation) -> None:
        """Take an addition of two tensors."""
        step = self._step(operation)
        old, output = step.numbers, operation.outputs[0]
        fills, weights = self._weights(operation, step)
        a, b = self._operands(operation, step, weights)
        _require(
            a.shape == b.shape == output.shape, f"{operation.name} repeats an input"
        )
        words = packing.up(a.shape[-1], packing.DEPTH) // packing.DEPTH
        positions = math.prod(a.shape[:-1])
        computed = sum(place.tiles * place.outputs() for place in step.places)
        _require(
            computed == positions * words and step.places[0].sums() == 4,
            f"the step for {operation.name} computes another size",
        )
        bounds = _clamps(operation)
        new_a, new_b = addition_weights(a.scale, b.scale)
        new = Numbers(
            addition_multiplier(a.scale, b.scale, output.scale),
            bounds.most,
            bounds.least,
            old.in_zero,
            old.weight_zero,
            output.zero_point,
            -(new_a * a.zero_point + new_b * b.zero_point),
        )
        self._put(step, new)
        pattern = _pattern(new_a, new_b)
        for place, value in zip(fills, pattern, strict=True):
            self.edits.put(place, {"filling": value})
        self._wrote(output, step, old.out_zero)

    def _weights(
        self, operation: Operation, step: Step
    ) -> tuple[Sequence[Place], tuple[int, int]]:
        """Return the instructions that write the integer weights, and these."""
        fills = [place for place in self._between(step) if _fills(place)]
        count = len(_pattern(0, 0))
        found = list[tuple[Sequence[Place], tuple[int, int]]]()
        for start in range(len(fills) - count + 1):
            run = fills[start : start + count]
            values = [place.instruction.value("filling") for place in run]
            weights = values[0], values[5]
            if all(weights) and values == _pattern(*weights):
                found.append((run, weights))
        if len(found) != 1:
            raise OtherNetworkError(f"the weights of {operation.name} are not found")
        return found[0]

    def _operands(
        self, operation: Operation, step: Step, weights: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """Return the inputs in the order of the weights."""
        a, b = operation.needed(0), operation.needed(1)
        orders = [
            (x, y)
            for x, y in ((a, b), (b, a))
            if -(weights[0] * self._old_zero(x) + weights[1] * self._old_zero(y))
            == step.numbers.offset
        ]
        at = step.first.value("in")
        if len(orders) == 2:
            orders = [o for o in orders if self.bases.get(o[0].name) == at]
        if len(orders) != 1:
            raise OtherNetworkError(f"the inputs of {operation.name} are not found")
        return orders[0]

    # Pools

    def average_pool(self, operation: Operation) -> None:
        """Take an average pool that keeps the scale."""
        step = self._step(operation)
        source, output = operation.source, operation.outputs[0]
        _same_quantization(operation, source, output)
        options = operation.options
        _require(options is not None, f"{operation.name} has no options")
        assert options is not None
        area = options.integer(3) * options.integer(4)
        old = step.numbers
        _require(
            area > 0 and old.multiplier == f32(1.0 / area),
            f"the step for {operation.name} divides by another area",
        )
        _require(
            step.places[0].sums() == area,
            f"the step for {operation.name} adds up other windows",
        )
        if not math.isinf(old.most):
            _require(
                source.zero_point == old.in_zero == old.out_zero == 0,
                f"{operation.name} has a zero point, and its step is understood without",
            )
            bounds = _clamps(operation)
            self._put(
                step, Numbers(old.multiplier, bounds.most, bounds.least, 0, 0, 0, 0)
            )
        for place in step.places:
            self._pool_strides(operation, place, options)
        self._wrote(output, step, self._old_zero(source))

    def _pool_strides(self, operation: Operation, place: Place, options: Table) -> None:
        """Check the distances of windows; without a second window, write new ones."""
        value = place.instruction.value
        column = value("parameters.step0")
        row = value("parameters.step1") + value("parameters.more0") * column
        # A step takes back what the loops within it have added.
        back = value("parameters.more0") * column + value("parameters.more1") * row
        x = options.integer(1) * column - back
        back += value("parameters.more2") * (x + back)
        steps = {
            "parameters.step2": x,
            "parameters.step3": options.integer(2) * row - back,
        }
        if all(value(name) == step for name, step in steps.items()):
            return
        alone = not value("parameters.more2") and not value("parameters.more3")
        _require(
            alone, f"the step for {operation.name} has windows of another distance"
        )
        self.edits.put(place, steps)

    # Reshapes and the like

    def nothing(self, operation: Operation) -> None:
        """Take an operator that takes no step."""
        source, output = operation.source, operation.outputs[0]
        _same_quantization(operation, source, output)
        self.zeros[output.name] = self._old_zero(source)
        if source.name in self.bases:
            self.bases[output.name] = self.bases[source.name]

    def concatenation(self, operation: Operation) -> None:
        """Take a concatenation of tensors with one scale and zero point."""
        step = self._step(operation)
        source, output = operation.source, operation.outputs[0]
        zero = self._old_zero(source)
        for tensor in operation.inputs:
            assert tensor is not None
            _same_quantization(operation, source, tensor)
            _require(self._old_zero(tensor) == zero, f"{operation.name} is another one")
        old = step.numbers
        _require(
            old.in_zero == zero and old.weight_zero == 0 and old.offset == 0,
            f"the step for {operation.name} is another one",
        )
        bounds = _clamps(operation)
        new = Numbers(
            product(source.scale, reciprocal(output.scale)),
            bounds.most,
            bounds.least,
            source.zero_point,
            0,
            output.zero_point,
            0,
        )
        self._put(step, new)
        self._wrote(output, step, old.out_zero)

    # SOFTMAX

    def softmax(self, operation: Operation) -> None:
        """Take a SOFTMAX, on the tiles or on the scalar core."""
        source, output = operation.source, operation.outputs[0]
        beta = 1.0 if operation.options is None else operation.options.float32(0)
        scale = product(source.scale, beta)
        if self.next_step == len(self.steps):
            self._softmax_of_scalar_core(operation, scale)
        else:
            self._softmax_of_tiles(operation, scale)
        self.zeros[output.name] = 0

    def _softmax_of_scalar_core(self, operation: Operation, scale: float) -> None:
        source = operation.source
        words = softmax_words(self.places)
        if words is None:
            raise OtherNetworkError(f"the words of {operation.name} are not found")
        _require(
            words.zero_point == self._old_zero(source)
            and words.length == source.shape[-1]
            and math.prod(source.shape[:-1]) == 1,
            f"the words of {operation.name} compute another size or zero point",
        )
        for place, values in words.edits(source.zero_point, scale):
            self.edits.put(place, values)

    def _softmax_of_tiles(self, operation: Operation, scale: float) -> None:
        source = operation.source
        _require(
            source.zero_point == self._old_zero(source) == 0,
            f"{operation.name} has a zero point, and its steps are understood without",
        )
        steps = [self._step(operation) for _ in range(6)]
        largest, below, powers, total, inverse, shares = (s.numbers for s in steps)
        bound = largest.most
        expected = (
            largest == Numbers(1.0, bound, 0.0, 0, 0, 0, 0)
            and below == Numbers(1.0, 0.0, -bound, 0, 1, 255, 0)
            and (powers.most, powers.in_zero, powers.out_zero) == (0.0, 255, 0)
            and steps[2].curve
            and steps[3].curve
            and math.isinf(total.most)
            and inverse.most == 32768.0
            and shares.most == 255.0
            and bound == clamps(powers.multiplier, 0).most
        )
        _require(expected, f"the steps for {operation.name} are others")
        count = sum(p.tiles * p.outputs() for p in steps[2].places) * packing.DEPTH
        _require(
            count == math.prod(source.shape),
            f"the steps for {operation.name} compute another size",
        )
        new = clamps(source.scale, 0).most
        for step, name, value in (
            (steps[0], "most", new),
            (steps[1], "least", -new),
            (steps[2], "multiplier", scale),
        ):
            numbers = {**step.numbers.__dict__, name: value}
            self._put(step, Numbers(**numbers))


def _example(
    layer: LayerShape,
    heads: int,
    zero_point: int,
    order: Sequence[Tap],
    weight: int,
    head: int,
) -> bytes:
    """Return the parameters of a layer whose weights, and heads, are one number each."""
    values = np.full(layer.shape, weight % 256, np.uint8)
    rows = [np.full(layer.outputs, head, "<i4")] * heads
    return layer.packed(values, rows, zero_point, order)


def _check_geometry(operation: Operation, layer: LayerShape, step: Step) -> None:
    """Check that a step computes as many outputs of as many steps as a layer."""
    computed = 0
    if layer.depthwise:
        steps, groups = layer.places, layer.words
        channels = (packing.DEPTH, packing.DEPTH)
    else:
        steps, groups = layer.places * layer.words, packing.groups(layer.outputs)
        rest = layer.outputs - packing.GROUP * (groups - 1)
        first = min(packing.GROUP, packing.up(layer.outputs, packing.DEPTH))
        channels = (first, packing.up(rest, packing.DEPTH))
    # Without an image, each tile may have a group of outputs.
    by_tile = layer.positions == 1 and groups > 1
    found = list[int]()
    for place in step.places:
        _require(
            place.sums() == steps,
            f"the step for {operation.name} adds up another number",
        )
        computed += place.tiles * place.outputs()
        found += [place.instruction.value("last_channels") + 1] * place.tiles
        wide = place.instruction.value("channels") + 1
        _require(
            by_tile or (wide, found[-1]) == channels,
            f"the step for {operation.name} has {wide} outputs at a time",
        )
    if by_tile:
        wanted = sorted([packing.GROUP] * (groups - 1) + [channels[1]])
        _require(
            sorted(found) == wanted, f"the step for {operation.name} has other outputs"
        )
    _require(
        computed == layer.positions * groups,
        f"the step for {operation.name} computes another number of outputs",
    )


def _order(operation: Operation, layer: LayerShape, step: Step) -> tuple[Tap, ...]:
    """Return the order in which a step adds up, the same for all its instructions."""
    dilation = 1
    field_of_dilation = {"CONV_2D": 4, "DEPTHWISE_CONV_2D": 5}.get(operation.kind)
    if field_of_dilation is not None and operation.options is not None:
        dilation = operation.options.integer(field_of_dilation, default=1)
    position = 4 * layer.words * dilation
    kernel = Kernel(*layer.kernel, 1 if layer.depthwise else layer.words, position)
    orders = {taps(addresses(place.instruction), kernel) for place in step.places}
    if len(orders) == 1 and (order := orders.pop()) is not None:
        return order
    raise OtherNetworkError(f"the step for {operation.name} reads another window")


def _clamps(operation: Operation) -> Clamps:
    output = operation.outputs[0]
    try:
        return clamps(output.scale, output.zero_point, operation.activation)
    except ValueError as e:
        raise OtherNetworkError(f"{operation.name}: {e}") from None


def _pattern(a: int, b: int) -> list[int]:
    """Return what the instructions write that make the weights of an addition."""
    return [a, a << 16, 0, a, a << 16, b, b << 16, 0, b, b << 16]


def _fills(place: Place) -> bool:
    instruction = place.instruction
    is_mesh = instruction.layout is not None and instruction.name.startswith("mesh")
    return is_mesh and bool(instruction.value("fill"))


def _check_quantized(operation: Operation, tensor: Tensor) -> None:
    if len(tensor.scales) != 1 or not tensor.scale > 0:
        raise OtherNetworkError(f"{operation.name} has a tensor without a scale")


def _same_quantization(operation: Operation, a: Tensor, b: Tensor) -> None:
    same = (a.scale, a.zero_point) == (b.scale, b.zero_point)
    _require(
        same, f"{operation.name} has other scales or zero points than are understood"
    )


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise OtherNetworkError(otherwise)


_MATCHES: dict[str, Callable[[Match, Operation], None]] = {
    "ADD": Match.addition,
    "AVERAGE_POOL_2D": Match.average_pool,
    "CONCATENATION": Match.concatenation,
    "CONV_2D": Match.sum_of_products,
    "DEPTHWISE_CONV_2D": Match.sum_of_products,
    "FULLY_CONNECTED": Match.sum_of_products,
    "QUANTIZE": Match.nothing,
    "RESHAPE": Match.nothing,
    "SOFTMAX": Match.softmax,
}
