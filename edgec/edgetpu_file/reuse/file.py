"""Writes a compiled file for a network from the one of a network of the same structure."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator

from edgec_runtime.edgetpu_file.compiled_file import CompiledFile, read_compiled
from edgec_runtime.edgetpu_file.executable import Executable, ExecutableType, Layer
from edgec_runtime.edgetpu_file.flatbuffer import DamagedError, Table
from edgec_runtime.errors import InputError

from edgec.edgetpu_file.reuse.layer import OtherNetworkError
from edgec.edgetpu_file.reuse.matching import Match
from edgec.edgetpu_file.reuse.names import rename
from edgec.edgetpu_file.reuse.parameters import Store
from edgec.edgetpu_file.reuse.program import places_of, steps_of
from edgec.edgetpu_file.reuse.source import INT8, Network, Tensor, read_network


def reused(compiled: bytes, network: bytes, old: str, new: str) -> bytes:
    """Return the compiled file of a network.

    Args:
        compiled: a file of edgetpu_compiler
        network: a .tflite file with other weights, scales and zero points
        old, new: their places, for messages

    Raises:
        InputError: a file is damaged, the networks have different structures, or
            something that would change is not understood
    """
    file = read_compiled(compiled, old)
    try:
        source = read_network(network)
    except DamagedError as e:
        raise InputError(
            f"the file cannot be read: {e}", new, "give a quantized .tflite file"
        ) from None
    try:
        return _reused(file, source)
    except (OtherNetworkError, DamagedError) as e:
        raise InputError(
            f"the compiled file cannot be re-used for {new}: {e}",
            at=old,
            hint="compile the network with edgetpu_compiler",
        ) from None


def _reused(file: CompiledFile, network: Network) -> bytes:
    if len(file.operators) != 1:
        raise OtherNetworkError(
            f"it has {len(file.operators)} operators, and one of them is understood"
        )
    (package,) = file.packages
    caching = package.of_type(ExecutableType.PARAMETER_CACHING)
    runs = package.of_type(ExecutableType.EXECUTION_ONLY)
    if runs is None or len(package.executables) > 2:
        raise OtherNetworkError("it has other programs than are understood")
    zeros = dict[str, int]()
    for layers, tensors in (
        (runs.inputs, network.inputs),
        (runs.outputs, network.outputs),
    ):
        _check_borders(layers, tensors)
        if layers is runs.inputs:
            for layer, tensor in zip(layers, tensors, strict=True):
                zeros[tensor.name] = layer.zero_point
    places = places_of(file.data, runs)
    store = Store.of(file.data, caching, runs)
    match = Match(places, steps_of(places), store, zeros, network.inputs[0].name)
    for operation in network.operations:
        match.operation(operation)
    match.end()
    (layer,), (tensor,) = runs.outputs, network.outputs
    if match.last != tensor.name:
        raise OtherNetworkError(f"the output {tensor.name} is not written last")
    if match.zeros[tensor.name] != layer.zero_point:
        raise OtherNetworkError(f"the output {tensor.name} has another zero point")

    content = bytearray(file.data)
    match.edits.apply(content)
    for at, data in match.parameters.items():
        content[at : at + len(data)] = data
    _write_quantization(content, file, runs, network)
    content = rename(content, file, network)
    # Last, so that the same network gives the same file from whatever old one.
    _write_tokens(content, package.executables)
    return bytes(content)


def _check_borders(layers: tuple[Layer, ...], tensors: tuple[Tensor, ...]) -> None:
    if len(layers) != len(tensors):
        raise OtherNetworkError(
            f"it has {len(layers)} inputs or outputs, and the network {len(tensors)}"
        )
    # Which of several is which, a program does not say.
    if len(layers) != 1:
        raise OtherNetworkError(
            f"it has {len(layers)} inputs or outputs, and one of them is understood"
        )
    for layer, tensor in zip(layers, tensors, strict=True):
        shape = (1, 1, *tensor.shape[1:])[-3:]
        # Where the first operator is a RESHAPE, the program's input has its output's shape.
        flat = (1, 1, math.prod(tensor.shape))
        shapes = (shape, flat)
        if (layer.y, layer.x, layer.z) not in shapes or tensor.shape[:1] != (1,):
            theirs = " x ".join(map(str, (layer.y, layer.x, layer.z)))
            ours = " x ".join(map(str, tensor.shape))
            raise OtherNetworkError(
                f"{tensor.name} has another shape, {ours} and not {theirs}"
            )
        if len(tensor.scales) != 1:
            raise OtherNetworkError(f"{tensor.name} has no scale")


def _write_quantization(
    content: bytearray, file: CompiledFile, runs: Executable, network: Network
) -> None:
    """Write the scales and zero points of the inputs and outputs."""
    table = Table.root(file.data, runs.span.start)
    for field, tensors in ((8, network.inputs), (9, network.outputs)):
        for layer, tensor in zip(table.tables(field), tensors, strict=True):
            _write_numbers(content, layer.table(5), tensor)
    graph = Table.root(file.data).tables(2)[0]
    borders = (*file.inputs, *file.outputs)
    for index, tensor in zip(borders, (*network.inputs, *network.outputs), strict=True):
        entry = graph.tables(0)[index]
        if entry.integer(1, 1, signed=False) != tensor.type:
            raise OtherNetworkError(f"{tensor.name} has another type")
        sign = 128 if tensor.type == INT8 else 0
        quantization = entry.table(4)
        scales = None if quantization is None else quantization.span(2, 4)
        zeros = None if quantization is None else quantization.span(3, 8)
        if scales is None or zeros is None or (scales.size, zeros.size) != (4, 8):
            raise OtherNetworkError(f"{tensor.name} has other scales")
        struct.pack_into("<f", content, scales.start, tensor.scale)
        struct.pack_into("<q", content, zeros.start, tensor.zero_point - sign)


def _write_numbers(content: bytearray, numerics: Table | None, tensor: Tensor) -> None:
    """Write the scale and zero point of a layer, where it has both."""
    zero = None if numerics is None else numerics.place(0)
    scale = None if numerics is None else numerics.place(1)
    old = 0 if numerics is None else numerics.integer(0)
    # A default has no place in the file: it stays what it is.
    if scale is None or (zero is None and tensor.zero_point != old):
        raise OtherNetworkError(
            f"{tensor.name} has no place for its scale or zero point"
        )
    struct.pack_into("<f", content, scale, tensor.scale)
    if zero is not None:
        struct.pack_into("<i", content, zero, tensor.zero_point)


def _write_tokens(content: bytearray, executables: tuple[Executable, ...]) -> None:
    """Write a token of the new content: the driver must not take the old parameters,
    which may be on the chip, for the new ones."""
    places = [*_tokens(bytes(content), executables)]
    for at in places:
        content[at : at + 8] = bytes(8)
    token = hashlib.sha256(content).digest()[:8]
    for at in places:
        content[at : at + 8] = token


def _tokens(data: bytes, executables: tuple[Executable, ...]) -> Iterator[int]:
    for executable in executables:
        at = Table.root(data, executable.span.start).place(14)
        if at is None:
            raise OtherNetworkError("a program has no token")
        yield at
