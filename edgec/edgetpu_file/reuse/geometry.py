"""Checks that the loops of a step are those of an operator."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgec_runtime.edgetpu_file.flatbuffer import Table

from edgec.edgetpu_file.reuse import packing
from edgec.edgetpu_file.reuse.layer import LayerShape, OtherNetworkError, require
from edgec.edgetpu_file.reuse.program import Step
from edgec.edgetpu_file.reuse.source import Operation
from edgec.edgetpu_file.reuse.window import Kernel, Tap, addresses, origins, taps


@dataclass(frozen=True)
class _Distances:
    """How far neighbours are from each other, in y and in x.

    Attributes:
        stride: positions from an output to the next
        dilation: positions from a place of the kernel to the next
    """

    stride: int
    dilation: int


def check_geometry(operation: Operation, layer: LayerShape, step: Step) -> None:
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
        require(
            place.sums() == steps,
            f"the step for {operation.name} adds up another number",
        )
        computed += place.tiles * place.outputs()
        found += [place.instruction.value("last_channels") + 1] * place.tiles
        wide = place.instruction.value("channels") + 1
        require(
            by_tile or (wide, found[-1]) == channels,
            f"the step for {operation.name} has {wide} outputs at a time",
        )
    if by_tile:
        wanted = sorted([packing.GROUP] * (groups - 1) + [channels[1]])
        require(
            sorted(found) == wanted, f"the step for {operation.name} has other outputs"
        )
    require(
        computed == layer.positions * groups,
        f"the step for {operation.name} computes another number of outputs",
    )


def order_of(operation: Operation, layer: LayerShape, step: Step) -> tuple[Tap, ...]:
    """Return the order in which a step adds up, the same for all its instructions."""
    words = 1 if layer.depthwise else layer.words
    position = packing.DEPTH * layer.words * _distances(operation).dilation
    kernel = Kernel(*layer.kernel, words, position)
    orders = {taps(addresses(place.instruction), kernel) for place in step.places}
    order = orders.pop()
    if orders or order is None:
        raise OtherNetworkError(f"the step for {operation.name} reads another window")
    return order


def check_strides(operation: Operation, layer: LayerShape, step: Step) -> None:
    """Check the places of the image where the outputs of a step begin.

    They are rows of positions, as far from each other as the strides say. The distance
    of rows in memory is seen in the kernel, if that has several.
    """
    if layer.positions == 1:
        return
    distances = _distances(operation)
    unit = packing.DEPTH * layer.words
    for place in step.places:
        # Further channels are within a position.
        first = [at // unit for at in origins(place.instruction) if at % unit == 0]
        found = sorted(set(first))
        row = _row(addresses(place.instruction), layer, distances.dilation, unit)
        in_row = [at for at in found if not row or at < row * distances.stride]
        rows = len(found) // len(in_row)
        wanted = [
            y * row * distances.stride + x * distances.stride
            for y in range(rows)
            for x in range(len(in_row))
        ]
        step_in_x = found[1:2] in ([], [distances.stride])
        require(
            found == wanted if row else step_in_x,
            f"the step for {operation.name} has another stride or dilation",
        )


def check_pool(operation: Operation, step: Step) -> Table:
    """Return the options of a pool, whose windows must be those of a step."""
    options = operation.options
    if options is None:
        raise OtherNetworkError(f"{operation.name} has no options")
    width, height = options.integer(3), options.integer(4)
    image, output = operation.source.shape, operation.outputs[0].shape
    sizes = zip(image[1:3], output[1:3], (2, 1), (height, width), strict=False)
    require(
        len(image) == len(output) == 4
        and all(
            window > 0 and (after - 1) * options.integer(stride) + window <= before
            for before, after, stride, window in sizes
        ),
        f"{operation.name} has windows that reach beyond the image",
    )
    computed = 0
    for place in step.places:
        value = place.instruction.value
        window = (value("parameters.more1") + 1, value("parameters.more0") + 1)
        require(
            window == (height, width) and place.sums() == height * width,
            f"the step for {operation.name} adds up other windows",
        )
        computed += place.tiles * place.outputs()
    require(
        computed == math.prod(output[:-1]) * packing.groups(output[-1]),
        f"the step for {operation.name} computes another number of outputs",
    )
    return options


def _distances(operation: Operation) -> _Distances:
    """Return the stride and the dilation of a layer, each the same in y and in x.

    In a tile with a single column or row the program does not show both.
    """
    options = operation.options
    if options is None or operation.kind == "FULLY_CONNECTED":
        return _Distances(1, 1)
    x, y = (4, 5) if operation.kind == "CONV_2D" else (5, 6)
    strides = (options.integer(1), options.integer(2))
    dilations = (options.integer(x, default=1), options.integer(y, default=1))
    require(
        strides[0] == strides[1] > 0 and dilations[0] == dilations[1] > 0,
        f"{operation.name} has other distances in y than in x",
    )
    return _Distances(strides[0], dilations[0])


def _row(found: list[int], layer: LayerShape, dilation: int, unit: int) -> int:
    """Return the positions in a row of the image; 0 if the kernel has a single row.

    found: the addresses that an output reads, relative to the first
    """
    height, width = layer.kernel
    in_row = width if layer.depthwise else width * layer.words
    return 0 if height == 1 else sorted(found)[in_row] // (unit * dilation)
