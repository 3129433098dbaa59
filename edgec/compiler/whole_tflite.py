"""The whole model as one .tflite file for other tools (`compile --keep-tflite`)."""

from __future__ import annotations

from edgec_partitioner.legalize import legalize
from edgec_partitioner.segments import Segment
from edgec_runtime import Bundle
from edgec_runtime.model.interpreters import interpreter_factory

from edgec.compiler.lower import Lowered
from edgec.compiler.segment_checks import SegmentChecker
from edgec.emit.tflite import MODEL_TFLITE, write_tflite
from edgec.errors import EdgecError, InputError
from edgec.ir import Array, Graph, Op
from edgec.ops.quantize import Dequantize, Quantize
from edgec.quantize.observe.calibration import Sample

_OPTION = "--keep-tflite"
_LEAVE_OUT = (
    "leave it out: export --tflite has the segments for the Edge TPU all the same"
)
_NAME = "model"
"""The name of the model in the list of what was checked."""


def whole_tflite(graph: Graph) -> bytes:
    """Return a graph as the bytes of a .tflite file.

    Raises InputError for a graph with an operation in float, or with one that TFLite
    does not have.
    """
    # Bit-exact rewrites give operations forms that TFLite has, such as pads of its own
    # kinds, and the stock compiler then maps more of them.
    legal, _ = legalize(graph, exact=True)
    for op in legal.ops:
        if _is_float(op):
            raise InputError(
                f"{op.kind} {op.outputs[0].name} is in float, so the model is not an int8 "
                ".tflite",
                at=_OPTION,
                hint=_LEAVE_OUT,
            )
        if op.spec.to_tflite(op) is None:
            raise InputError(
                f"TFLite has no form of {op.kind} {op.outputs[0].name}",
                at=_OPTION,
                hint=_LEAVE_OUT,
            )
    return write_tflite(legal)


def _is_float(op: Op) -> bool:
    """Return whether an op computes with floats; the borders of int8 do not."""
    if isinstance(op.spec, (Quantize, Dequantize)):
        return False
    return any(v.type.dtype == "float32" for v in op.outputs)


def check_whole(
    bundle: Bundle, lowered: Lowered, checker: SegmentChecker, exact: int
) -> None:
    """Run the file of a bundle, if it has one, on the first samples, beside `interp`.

    Raises EdgecError where the interpreter refuses the file.
    """
    if MODEL_TFLITE not in bundle.manifest.files:
        return
    whole = Segment(_NAME, "cpu", lowered.graph, 0)
    data = bundle.read(MODEL_TFLITE)
    for sample in lowered.samples.verify[:exact]:
        tensors = _inferred(data, _with_state(lowered.graph, sample))
        checker(whole, tensors.__getitem__, "TFLite")


def _with_state(graph: Graph, sample: Sample) -> dict[str, Array]:
    """Return the inputs of an inference, state among them as it begins."""
    initial = {state.input: state.initial for state in graph.state}
    return {**initial, **{v.name: sample[v.name] for v in graph.given()}}


def _inferred(data: bytes, inputs: dict[str, Array]) -> dict[str, Array]:
    """Return the inputs and outputs of one inference by TFLite's reference kernels."""
    interpreter = interpreter_factory()(data, None)
    try:
        interpreter.allocate_tensors()
        for row in interpreter.get_input_details():
            interpreter.tensor(row["index"])()[...] = inputs[row["name"]]
        interpreter.invoke()
    except (RuntimeError, ValueError) as e:
        # An interpreter has fewer kernels than the schema has operators.
        raise EdgecError(
            f"TFLite cannot run the model: {e}", at=_OPTION, hint="leave it out"
        ) from e
    found = dict(inputs)
    for row in interpreter.get_output_details():
        found[row["name"]] = interpreter.tensor(row["index"])().copy()
    return found
