"""Stage 1 of a compile: reading of a model file.

The result is a graph with the preprocessing of its image inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from edgec_runtime import Preprocess

from edgec.catalogue.listing import license_of
from edgec.compiler import nonfinite
from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.frontends.input_requests import likely_state
from edgec.frontends.preprocessing_metadata import stated_license, stated_preprocessing
from edgec.frontends.tflite_file import TfliteFile, damage_told, text
from edgec.frontends.ultralytics import Head
from edgec.ir import Graph
from edgec.ir.tensors import tensor_info
from edgec.options.compile import Options
from edgec.quantize.observe.preprocess import choose


@dataclass(frozen=True)
class ReadOptions:
    """The options of reading a model file.

    Attributes:
        preprocess: the preprocessing of photos (docs/preprocessing.md); None: the one of
            the file.
        input_shapes: the shapes of dynamic inputs, by name.
        fix: the values of inputs that are constants, by name.
        state: the outputs that come back as inputs at the next call, by input.
        head: the possible end of a network before a head with box selection; None: the
            network is read whole.
        becomes_int8: whether the graph will be quantized.
        opaque: whether operators that edgec cannot read become opaque ones.
    """

    preprocess: str | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fix: Mapping[str, Sequence[float]] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    head: Head | None = None
    becomes_int8: bool = False
    opaque: bool = False

    @classmethod
    def of(cls, options: Options, head: Head | None, assume: bool) -> ReadOptions:
        """Return the options for the file of a compile.

        head: the possible end. assume: whether the model is only looked at.
        """
        # `explain` makes up scales, unless the person wants to see the float model.
        is_calibrated = options.calibrate is not None
        return cls(
            preprocess=options.preprocess,
            input_shapes=options.shapes,
            fix=options.constants,
            state=options.state,
            head=None if options.keep_head else head,
            becomes_int8=is_calibrated or (assume and not options.allow_float),
            opaque=assume,
        )


@dataclass(frozen=True)
class ReadModel:
    """A model file as a graph.

    Attributes:
        graph: the graph as the file has it.
        preprocess: the preprocessing of the inputs that are images, by name.
        notes: notes on the file.
        headless: whether the graph ends before a head with box selection.
        signatures: the names that a .tflite gives arguments and results, by signature.
        license: "name" and "source" of the file's licence; empty where nobody says.
    """

    graph: Graph
    preprocess: Mapping[str, Preprocess]
    notes: tuple[str, ...] = ()
    headless: bool = False
    signatures: Mapping[str, Mapping[str, TensorNames]] = field(default_factory=dict)
    license: Mapping[str, str] = field(default_factory=dict)

    def preprocess_notes(self) -> tuple[str, ...]:
        """Return a line for each image input on its preprocessing."""
        return tuple(
            f'a photo becomes "{name}" by {p.explained()}'
            for name, p in self.preprocess.items()
        )

    def state_notes(self) -> Iterator[str]:
        """Yield the notes on state, and on inputs and outputs that look like state."""
        if self.graph.state:
            names = ", ".join(s.input for s in self.graph.state)
            nbytes = sum(s.initial.nbytes for s in self.graph.state)
            yield (
                f"state: {names} ({nbytes} bytes) is kept from one call to the next; "
                "session.reset() begins anew"
            )
        for before, after in likely_state(self.graph):
            option = f"--state {before.name}={after.name}"
            yield (
                f"{before.name} and {after.name} look like state: "
                f"{option} keeps it from one call to the next"
            )


def read(model: Path, options: ReadOptions) -> ReadModel:
    """Read a model file; raises EdgecError."""
    graph, head_notes = _read_graph(model, options)
    # State is no input of a person, so photos cannot become it: `given` leaves it out.
    inputs = [tensor_info(v.name, v.type) for v in graph.given()]
    stated = stated_preprocessing(model, inputs)
    preprocess = choose(graph.given(), options.preprocess, stated.by_input)
    notes = (*head_notes, *stated.notes, *nonfinite.check_constants(graph))
    outputs = {v.name for v in graph.outputs}
    headless = options.head is not None and options.head.name in outputs
    signatures = tflite_signatures(model)
    return ReadModel(graph, preprocess, notes, headless, signatures, _license(model))


def _license(model: Path) -> dict[str, str]:
    """Return the name of a file's licence and where it is stated; {} where nobody says.

    The catalogue knows the licences of its files, also of a copy under another name.
    """
    found = license_of(hashlib.sha256(model.read_bytes()).hexdigest())
    if found is not None:
        name, wheel = found
        return {"name": name, "source": wheel}
    stated = stated_license(model)
    return {"name": stated, "source": "the model file's metadata"} if stated else {}


def _read_graph(model: Path, options: ReadOptions) -> tuple[Graph, list[str]]:
    """Read the graph, without its head with box selection if this cannot be compiled.

    Return the graph, and a note if the head was left out.
    """
    read_whole = partial(
        read_model,
        model,
        options.input_shapes,
        opaque=options.opaque,
        fixed=options.fix,
        state=options.state,
    )
    # A head may end the graph only if it must: the file's own selection of boxes is
    # what its accuracy was measured with.
    head = options.head
    if head is None:
        return read_whole(), []
    if options.becomes_int8:
        why = "in int8 a box's pixels and its scores would share one scale"
    else:
        try:
            return read_whole(), []
        except UnsupportedError as e:
            why = e.what
    note = (
        f'the end-to-end head behind "{head.name}" is left out ({why}); '
        "edgec's C picks the boxes as that would"
    )
    return read_whole(outputs=head.outputs), [note]


TensorNames = dict[str, str]
"""The tensor of each argument or result."""


def tflite_signatures(path: Path) -> dict[str, dict[str, TensorNames]]:
    """Return the signatures of the file's main subgraph; {} of other formats.

    The form is {key: {"inputs": {argument: tensor}, "outputs": {result: tensor}}}.
    Signatures of other subgraphs belong to no code of a bundle and are left out.

    Raises:
        InputError: the file is damaged
    """
    if path.suffix.lower() != ".tflite":
        return {}
    signatures: dict[str, dict[str, TensorNames]] = {}
    with damage_told(path):
        file = TfliteFile.load(path, any_type=True)
        for signature in file.model.signatureDefs or ():
            if signature.subgraphIndex != 0:
                continue
            signatures[text(signature.signatureKey)] = {
                "inputs": _named(file, signature.inputs),
                "outputs": _named(file, signature.outputs),
            }
    return signatures


def _named(file: TfliteFile, maps: Sequence[Any] | None) -> TensorNames:
    """Return the tensors of a signature's TensorMap rows."""
    named: TensorNames = {}
    for row in maps or ():
        named[text(row.name)] = file.name(int(row.tensorIndex))
    return named
