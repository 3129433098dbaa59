"""The graph of a bundle's whole model, put together from its segments."""

from __future__ import annotations

from pathlib import PurePosixPath

from edgec_devices.decoding import from_json
from edgec_devices.temporary import temporary_folder
from edgec_runtime import Bundle, SegmentInfo

from edgec.emit.values_file import VALUES_FILE, ValuesFile
from edgec.errors import BundleError, InputError
from edgec.frontends import read_model
from edgec.ir import Graph, Op, Value
from edgec.ir.text import ParseError, parse

_HINT = "compile the model again with this version of edgec"


def joined_graph(bundle: Bundle) -> Graph:
    """Return the model's graph with the inputs and outputs of the manifest.

    Segments for the Edge TPU come from their .tflite, with weights. Segments for the
    CPU come from the bundle's report, without: their constants are zeros
    (`has_elements` tells).

    Raises:
        BundleError: the report is missing or damaged
    """
    segments = _reported(bundle)
    whole = Graph(bundle.manifest.name)
    values: dict[str, Value] = {}
    for info in bundle.manifest.segments:
        graph = _segment(bundle, info, segments)
        for value in graph.inputs:
            if value.name in values:
                graph.replace(value, values[value.name])
            else:
                values[value.name] = value
                whole.inputs.append(value)
        whole.ops += graph.ops
        # Borders are found by name; names within segments may repeat.
        for name, value in zip(info.outputs, graph.outputs, strict=True):
            values[name] = value
    whole.outputs = [values[name] for name in bundle.manifest.outputs]
    return whole


def has_elements(op: Op) -> bool:
    """Return whether an op has no constant whose elements the report leaves out."""
    for value in op.inputs:
        array = value.const
        # The parser has one zero stand for all of them.
        if array is not None and array.size > 1 and not any(array.strides):
            return False
    return True


def _reported(bundle: Bundle) -> ValuesFile:
    """Return the report with the text of each segment's graph."""
    at = str(bundle.path)
    if VALUES_FILE not in bundle.names:
        raise BundleError(f"the bundle has no {VALUES_FILE}", at, _HINT)
    return from_json(bundle.read(VALUES_FILE), ValuesFile, VALUES_FILE, at, _HINT)


def _segment(bundle: Bundle, info: SegmentInfo, reported: ValuesFile) -> Graph:
    """Return the graph of a segment, with weights where the bundle has a .tflite."""
    if info.tflite is not None:
        # The reader takes a file; its operators are those of the segment.
        with temporary_folder("frigate") as folder:
            path = folder / PurePosixPath(info.tflite).name
            path.write_bytes(bundle.read(info.tflite))
            return read_model(path)
    try:
        return parse(reported.segments[info.name].graph)
    except (KeyError, ParseError) as e:
        message = f"{VALUES_FILE} is damaged: {e}"
        raise BundleError(message, str(bundle.path), _HINT) from e


def check_weights(graph: Graph, at: str) -> None:
    """Raise InputError for a graph with an op whose weights are not known."""
    for op in graph.ops:
        if not has_elements(op):
            raise InputError(
                f"{op.source or op.outputs[0].name} ({op.spec.kind}) runs on the CPU, "
                "and its weights are in no .tflite",
                at=at,
                hint="compile with --target pi4+coral --edgetpu all --calibrate photos/",
            )
