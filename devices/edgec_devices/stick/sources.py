"""What known programs compute: they are simulated where all of their instructions are
understood; the others are the networks that they were compiled from, by interp with the
chip's arithmetic as far as it is known.

A folder of compiled files has compiled/index.json, a list of objects; of each the stick
reads `name`, `compiled` and `source`, paths from the folder; `source` may be null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from edgec_partitioner.rounding import as_chip
from edgec_runtime import Bundle, InputError
from edgec_runtime.bundle.extraction import extract
from edgec_runtime.device_end.disk import given
from edgec_runtime.edgetpu_file.compiled_file import (
    CompiledFile,
    CompiledOperator,
    read_compiled,
)

from edgec.frontends.tflite import read_tflite
from edgec.ir import Graph, Op, Value
from edgec.ir.interp import run_op
from edgec_devices.decoding import LARGEST_JSON, from_json
from edgec_devices.stick.layouts import Array
from edgec_devices.stick.programs import Compute, ProgramBook
from edgec_devices.stick.simulation import is_quick, simulation

INDEX = Path("compiled/index.json")
STATE_LAYER = "_variable_output"
"""What edgetpu_compiler appends to a state's name for its layer among the outputs."""
LARGEST_FILE = 64 << 20
"""Bytes of a compiled file; the chip's memories hold 8 MB."""
_UINT8 = 3
"""The number of the type in TFLite's schema; edgec has such tensors as int8, 128 less."""


@dataclass(frozen=True)
class IndexEntry:
    """A compiled file.

    Attributes:
        name: of the network; two files can have the same
        compiled: the file
        source: the file that it was compiled from, if it is at hand
    """

    name: str
    compiled: str
    source: str | None = None


def read_index(folder: Path) -> list[IndexEntry]:
    """Return the compiled files of a folder.

    Raises:
        InputError: the index is missing or damaged
    """
    path = folder / INDEX
    if not path.is_file():
        raise InputError(
            f"the folder has no {INDEX}",
            at=str(folder),
            hint="name its files one by one",
        )
    return from_json(
        given(path, LARGEST_JSON),
        list[IndexEntry],
        "the index of the compiled files",
        str(path),
        "give a folder with compiled files and their index",
    )


def read_folder(folder: Path, names: Collection[str] = ()) -> ProgramBook:
    """Return the programs of the compiled files in a folder.

    names: of the networks; all where it is empty

    Raises:
        InputError: the index or a file is missing or damaged
    """
    book = ProgramBook()
    _add_folder(book, folder, names)
    return book


def read_files(paths: Iterable[Path]) -> ProgramBook:
    """Return the programs of files, each of which is a bundle, a compiled file, or a
    folder of these with their index.

    Raises:
        InputError: a file is missing or damaged
        BundleError: a bundle is
    """
    book = ProgramBook()
    for path in paths:
        if path.is_dir():
            _add_folder(book, path)
        elif path.suffix == ".tflite":
            add_compiled(book, path, None)
        else:
            _add_bundle(book, path)
    return book


def _add_folder(book: ProgramBook, folder: Path, names: Collection[str] = ()) -> None:
    """Add the networks of a folder; all where `names` is empty."""
    for entry in read_index(folder):
        if not names or entry.name in names:
            source = None if entry.source is None else folder / entry.source
            add_compiled(book, folder / entry.compiled, source)


def _add_bundle(book: ProgramBook, path: Path) -> None:
    """Add the segments of a bundle that are for the Edge TPU, if there are any."""
    with Bundle.open(path) as bundle:
        for segment in bundle.manifest.segments:
            if segment.edgetpu is not None:
                source = segment.tflite
                add_compiled(
                    book,
                    extract(bundle, segment.edgetpu),
                    None if source is None else extract(bundle, source),
                )


def add_compiled(book: ProgramBook, compiled: Path, source: Path | None) -> None:
    """Add the programs of one compiled file.

    source: the file that it was compiled from; None where it is not at hand
    """
    file = read_compiled(given(compiled, LARGEST_FILE), str(compiled))
    functions: list[Compute | None] = []
    network = None if source is None else SourceNetwork(source)
    for operator in file.operators:
        if operator.package is not None:
            known = simulation(file, operator.package, compiled.name)
            is_slow = known is None or not is_quick(file, operator.package)
            if network is not None and is_slow:
                known = network.part(file, operator)
            functions.append(known)
    book.add_file(compiled.name, file, functions)


class SourceNetwork:
    """The network that a file was compiled from; it is read at the first use."""

    def __init__(self, path: Path) -> None:
        """Note the path."""
        self._path = path

    def part(self, file: CompiledFile, operator: CompiledOperator) -> Compute:
        """Return the function of one operator of the compiled file.

        Its tensors are those of the same names in the source; a state has a layer for
        what it will be at the next call.
        """
        types = {t.name: t.type for t in file.tensors}
        outputs = [file.tensors[i].name for i in operator.outputs]
        states = [file.tensors[i].name for i in operator.inputs]

        def compute(inputs: Mapping[str, Array]) -> dict[str, Array]:
            env = {
                self._value(name): _array(self._value(name), data, types[name])
                for name, data in inputs.items()
            }
            following = {s.input: s.output for s in self._graph.state}
            wanted = {(name, types[name]): name for name in outputs}
            for name in filter(following.__contains__, states):
                wanted[name + STATE_LAYER, types[name]] = following[name]
            values = [self._value(name) for name in wanted.values()]
            results = evaluate(self._graph, env, values)
            return {
                layer: _bytes(array, type_)
                for (layer, type_), array in zip(wanted, results, strict=True)
            }

        return compute

    @cached_property
    def _graph(self) -> Graph:
        return as_chip(read_tflite(self._path, {}, opaque=True))

    @cached_property
    def _values(self) -> dict[str, Value]:
        graph = self._graph
        made = [v for op in graph.ops for v in op.outputs]
        return {v.name: v for v in (*graph.inputs, *made)}

    def _value(self, name: str) -> Value:
        if name not in self._values:
            raise InputError(
                f"the source has no tensor {name}, which the compiled file has",
                at=str(self._path),
                hint="give the file that it was compiled from",
            )
        return self._values[name]


def evaluate(
    graph: Graph, known: Mapping[Value, Array], wanted: list[Value]
) -> list[Array]:
    """Return values of a graph that follow from others by interp.

    known: values that are given, anywhere in the graph
    """
    producers = {v: op for op in graph.ops for v in op.outputs}
    needed: set[Op] = set()
    open_values = [v for v in wanted if v not in known]
    while open_values:
        value = open_values.pop()
        op = producers.get(value)
        if op is not None and op not in needed:
            needed.add(op)
            open_values += [v for v in op.inputs if v.const is None and v not in known]
    env = dict(known)
    for op in graph.ops:
        if op in needed:
            for value, array in zip(op.outputs, run_op(op, env), strict=True):
                env.setdefault(value, array)
    return [env[v] for v in wanted]


def _array(value: Value, data: Array, file_type: int) -> Array:
    """Return a tensor of the graph of its bytes in the file's type."""
    made = (
        np.ascontiguousarray(data).view(value.type.np_dtype).reshape(value.type.shape)
    )
    return made ^ np.int8(-128) if _recentred(made, file_type) else made


def _bytes(array: Array, file_type: int) -> Array:
    """Return the elements of a tensor as bytes of the file's type."""
    made = array ^ np.int8(-128) if _recentred(array, file_type) else array
    flat = np.ascontiguousarray(made).reshape(-1, 1)
    return flat.view(np.uint8)


def _recentred(array: Array, file_type: int) -> bool:
    return file_type == _UINT8 and array.dtype == np.int8
