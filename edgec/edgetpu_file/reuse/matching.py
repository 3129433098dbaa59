"""Finds the instructions and parameters of each operator, and what they become.

Every operator takes the next steps of the program, as edgetpu_compiler orders them. The
geometry of a step, the padding in its parameters and the old zero points must be those
of the operator; otherwise the program is of another network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from edgec_runtime.edgetpu_file.flatbuffer import Table

from edgec.edgetpu_file.reuse import packing
from edgec.edgetpu_file.reuse.geometry import (
    check_geometry,
    check_pool,
    check_strides,
    order_of,
)
from edgec.edgetpu_file.reuse.layer import (
    ZERO,
    LayerShape,
    LayerWeights,
    OtherNetworkError,
    layer_shape,
    layer_weights,
    require,
)
from edgec.edgetpu_file.reuse.parameters import Store
from edgec.edgetpu_file.reuse.program import Edits, Numbers, Place, Step
from edgec.edgetpu_file.reuse.scalar import softmax_words
from edgec.edgetpu_file.reuse.softmax import (
    factor_of,
    factors,
    is_by_class,
    rows,
    softmax_steps,
)
from edgec.edgetpu_file.reuse.source import Operation, Tensor
from edgec.edgetpu_file.reuse.window import Tap, addresses
from edgec.ops.edgetpu_law import (
    MOST,
    Clamps,
    addition_multiplier,
    addition_weights,
    clamps,
    mean_multiplier,
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
        last: the tensor that was written last
        read: what the last step has read, and where in narrow memory
        edits: the new instructions
        parameters: the new parameters, by their first bytes in the file
        next_step: the first step without an operator
    """

    places: Sequence[Place]
    steps: Sequence[Step]
    store: Store
    zeros: dict[str, int]
    last: str
    bases: dict[str, int] = field(default_factory=dict)
    read: tuple[str, int] = ("", 0)
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
        if tensor.name not in self.zeros:
            raise OtherNetworkError(f"{tensor.name} is read before it is written")
        return self.zeros[tensor.name]

    def _reads(self, operation: Operation, step: Step | None) -> None:
        """Check that an operator reads what the operator before it has written.

        Two operators of one tensor, one after the other, read it at the same address.
        Without a step that branches, the program has no other order.
        """
        name = operation.source.name
        at = -1 if step is None else step.first.value("in")
        if name != self.last and (name, at) != self.read:
            raise OtherNetworkError(
                f"{operation.name} reads {name}, and not what was written last"
            )
        if step is not None:
            self.read = (name, at)

    def _between(self, step: Step) -> Sequence[Place]:
        """Return the instructions between the step before and a step."""
        index = self.steps.index(step)
        start = self.steps[index - 1].places[-1].index + 1 if index else 0
        return self.places[start : step.places[0].index]

    def _wrote(self, tensor: Tensor, step: Step, zero: int) -> None:
        at = step.first.value("out")
        # What was there is no more.
        self.bases = {name: base for name, base in self.bases.items() if base != at}
        self.bases[tensor.name] = at
        self.zeros[tensor.name] = zero
        self.last = tensor.name

    # Convolutions and fully connected layers

    def sum_of_products(self, operation: Operation) -> None:
        """Take a convolution, a depthwise one or a fully connected layer."""
        layer = layer_shape(operation)
        weights = layer_weights(operation, layer)
        step = self._step(operation)
        self._reads(operation, step)
        old = step.numbers
        source, output = operation.source, operation.outputs[0]
        require(
            old.in_zero == self._old_zero(source),
            f"the step for {operation.name} reads a tensor of another zero point",
        )
        require(
            old.offset == 0 and (not weights.by_channel or old.weight_zero == 0),
            f"the step for {operation.name} is another one",
        )
        check_geometry(operation, layer, step)
        order = order_of(operation, layer, step)
        check_strides(operation, layer, step)
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
        require(old != 0, f"the borders of {operation.name} cannot be told apart")
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
        require(
            a.shape == b.shape == output.shape, f"{operation.name} repeats an input"
        )
        words = packing.up(a.shape[-1], packing.DEPTH) // packing.DEPTH
        positions = math.prod(a.shape[:-1])
        computed = sum(place.tiles * place.outputs() for place in step.places)
        require(
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
        """Return the inputs in the order of the weights.

        A step reads the first at its address, and the second at a distance from there.
        """
        a, b = operation.needed(0), operation.needed(1)
        at = step.first.value("in")
        places = (at, at + addresses(step.first)[2])
        for x, y in ((a, b), (b, a)):
            zeros = weights[0] * self._old_zero(x) + weights[1] * self._old_zero(y)
            bases = (self.bases.get(x.name), self.bases.get(y.name))
            if bases == places and -zeros == step.numbers.offset:
                return x, y
        raise OtherNetworkError(f"the inputs of {operation.name} are not found")

    # Pools

    def average_pool(self, operation: Operation) -> None:
        """Take an average pool that keeps the scale."""
        step = self._step(operation)
        self._reads(operation, step)
        source, output = operation.source, operation.outputs[0]
        _same_quantization(operation, source, output)
        options = check_pool(operation, step)
        area = options.integer(3) * options.integer(4)
        old = step.numbers
        # The old scale, which is not in the instruction, decides on the last bits.
        require(
            math.isclose(old.multiplier * area, 1.0, rel_tol=2.0**-21),
            f"the step for {operation.name} divides by another area",
        )
        multiplier = mean_multiplier(area, source.scale, output.scale)
        bounds = _clamps(operation)
        if math.isinf(old.most):
            require(
                bounds == clamps(output.scale, output.zero_point),
                f"{operation.name} has an activation, and its step none",
            )
            new = replace(old, multiplier=multiplier)
        else:
            require(
                source.zero_point == old.in_zero == old.out_zero == 0,
                f"{operation.name} has a zero point, and its step is understood without",
            )
            new = Numbers(multiplier, bounds.most, bounds.least, 0, 0, 0, 0)
        self._put(step, new)
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
        require(alone, f"the step for {operation.name} has windows of another distance")
        self.edits.put(place, steps)

    # Reshapes and the like

    def nothing(self, operation: Operation) -> None:
        """Take an operator that takes no step."""
        source, output = operation.source, operation.outputs[0]
        _same_quantization(operation, source, output)
        self._reads(operation, None)
        self.zeros[output.name] = self._old_zero(source)
        if source.name in self.bases:
            self.bases[output.name] = self.bases[source.name]
        self.last = output.name

    def concatenation(self, operation: Operation) -> None:
        """Take a concatenation of tensors with one scale and zero point."""
        step = self._step(operation)
        source, output = operation.source, operation.outputs[0]
        zero = self._old_zero(source)
        at = self.bases.get(source.name, -1)
        for index in range(len(operation.inputs)):
            tensor = operation.needed(index)
            require(
                self.bases.get(tensor.name) == at and math.prod(tensor.shape[:-1]) == 1,
                f"the inputs of {operation.name} do not stand in its order in memory",
            )
            at += packing.up(tensor.shape[-1], packing.DEPTH)
            _same_quantization(operation, source, tensor)
            require(self._old_zero(tensor) == zero, f"{operation.name} is another one")
        old = step.numbers
        require(
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
        require(
            0 < scale < math.inf,
            f"{operation.name} has the factor {beta} of its inputs",
        )
        self._reads(operation, None)
        if self.next_step == len(self.steps):
            self._softmax_of_scalar_core(operation, scale)
        else:
            self._softmax_of_tiles(operation, scale)
        self.zeros[output.name] = 0
        self.last = output.name

    def _softmax_of_scalar_core(self, operation: Operation, scale: float) -> None:
        source = operation.source
        words = softmax_words(self.places)
        if words is None:
            raise OtherNetworkError(f"the words of {operation.name} are not found")
        require(
            words.zero_point == self._old_zero(source)
            and words.length == source.shape[-1]
            and math.prod(source.shape[:-1]) == 1,
            f"the words of {operation.name} compute another size or zero point",
        )
        for place, values in words.edits(source.zero_point, scale):
            self.edits.put(place, values)

    def _softmax_of_tiles(self, operation: Operation, scale: float) -> None:
        source = operation.source
        old_zero, count = self._old_zero(source), math.prod(source.shape)
        by_class = is_by_class(self.steps[self.next_step])
        require(
            by_class or source.zero_point == old_zero == 0,
            f"{operation.name} has a zero point, and its steps are understood without",
        )
        expected = softmax_steps(source.scale, scale, source.zero_point, by_class)
        steps = [self._step(operation) for _ in expected]
        powers, total = (steps[4], steps[6]) if by_class else (steps[2], steps[3])
        if by_class:
            factor = self._softmax_factor(operation, scale)
        else:
            factor = powers.numbers.multiplier
        # No scale of a file is beyond these, with which the formulas stay finite.
        is_scale = 1e-30 < factor < 1e30
        require(
            is_scale
            and powers.curve
            and total.curve
            and [step.numbers for step in steps]
            == [*softmax_steps(factor, factor, old_zero, by_class)],
            f"the steps for {operation.name} are others",
        )
        # With factors by class a word of 4 bytes counts as two results of 16 bits,
        # otherwise as four inputs.
        width = packing.DEPTH // 2 if by_class else packing.DEPTH
        words = sum(place.tiles * place.outputs() for place in powers.places)
        require(
            words * width == packing.up(count, packing.DEPTH),
            f"the steps for {operation.name} compute another size",
        )
        for step, numbers in zip(steps, expected, strict=True):
            self._put(step, numbers)

    def _softmax_factor(self, operation: Operation, scale: float) -> float:
        """Return the old factor of the classes, and write the new one for each."""
        classes = math.prod(operation.source.shape)
        new = factors(scale, classes)
        numbers = packing.up(classes, packing.DEPTH)

        def example(value: int, _: int) -> bytes:
            return rows(np.full(numbers, value, "<i4"))

        # Other pieces of this form, before it, have constants of the steps.
        while place := self.store.take(len(new), example):
            old = place.of(self.store.data)
            if old == factors(factor_of(old), classes):
                self.parameters[place.start] = new
                return factor_of(old)
        raise OtherNetworkError(f"the file has no parameters of {operation.name}")


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
    if len(tensor.scales) != 1 or not 0 < tensor.scale < math.inf:
        raise OtherNetworkError(f"{operation.name} has a tensor without a scale")
    if not 0 <= tensor.zero_point <= MOST:
        raise OtherNetworkError(f"{operation.name} has a zero point beyond its type")


def _same_quantization(operation: Operation, a: Tensor, b: Tensor) -> None:
    same = (a.scale, a.zero_point) == (b.scale, b.zero_point)
    require(
        same, f"{operation.name} has other scales or zero points than are understood"
    )


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
