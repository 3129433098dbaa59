"""Stage 1 of a compile: a model file becomes a graph with preprocessing of its image inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from edgec_runtime import Preprocess

from edgec.compiler import finite
from edgec.compiler.options import Options
from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.frontends.asked import likely_state
from edgec.frontends.stated import stated_preprocessing
from edgec.frontends.ultralytics import Head
from edgec.ir import Graph
from edgec.ir.tensors import tensor_info
from edgec.quantize.observe.preprocess import choose


@dataclass(frozen=True)
class ReadOptions:
    """How a model file is read.

    Attributes:
        preprocess: how photos become inputs (docs/preprocessing.md); None: as the file
            states.
        input_shapes: the shapes of dynamic inputs, by name.
        fix: the values of inputs that are constants, by name.
        state: the outputs that come back as inputs at the next call, by input.
        head: where a network that picks its boxes itself may end; None: it does not.
        becomes_int8: whether the graph will be quantized, which such a head cannot be.
        opaque: whether an operator that edgec cannot read becomes one that it does not
            look into.
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
        """Return how a compile reads its file.

        head: where the network may end. assume: whether the model is only looked at.
        """
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
        notes: what there is to say of the file.
        headless: whether the graph ends before the head that picks boxes.
    """

    graph: Graph
    preprocess: Mapping[str, Preprocess]
    notes: tuple[str, ...] = ()
    headless: bool = False

    def preprocess_notes(self) -> tuple[str, ...]:
        """Return a line for each image input on how a photo becomes it."""
        return tuple(
            f'a photo becomes "{name}" by {p.explained()}'
            for name, p in self.preprocess.items()
        )

    def state_notes(self) -> Iterator[str]:
        """Yield what is kept between calls, and what looks as if it should be."""
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
    """Read a model file. Raises EdgecError for what cannot be read."""
    graph, head_notes = _read_graph(model, options)
    inputs = [tensor_info(v.name, v.type) for v in graph.given()]
    stated = stated_preprocessing(model, inputs)
    preprocess = choose(graph.given(), options.preprocess, stated.by_input)
    notes = (*head_notes, *stated.notes, *finite.check_constants(graph))
    outputs = {v.name for v in graph.outputs}
    headless = options.head is not None and options.head.name in outputs
    return ReadModel(graph, preprocess, notes, headless)


def _read_graph(model: Path, options: ReadOptions) -> tuple[Graph, list[str]]:
    """Read the graph, without a head that picks boxes where that cannot be compiled.

    Return it, and why the head was left out.
    """
    read_whole = partial(
        read_model,
        model,
        options.input_shapes,
        opaque=options.opaque,
        fixed=options.fix,
        state=options.state,
    )
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
