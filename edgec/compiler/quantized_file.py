"""The notes on a model that is quantized in its ONNX file."""

from __future__ import annotations

from collections import Counter

from edgec.ir import Graph

_INT8_NOTE = (
    "the file is quantized as ONNX has it: {int8} operations became int8; "
    "convolutions, matrix products, sums, "
    "products, means, averages, resizes and functions round as onnxruntime does on Arm "
    "(a float, ties to even); "
    "softmax and averages into a scale of their own, and for an Edge TPU all, "
    "as TFLite does, so that each of these "
    "may differ by one step from onnxruntime"
)
_MAX_KINDS = 4
"""The kinds of float operations that a note lists."""


def notes(graph: Graph) -> tuple[str, ...]:
    """Return the notes on the precision of a model from a quantized ONNX file.

    graph: the optimised graph, in which operations that the file describes in floats
    between scales have their int8 forms.
    """
    int8_results = 0
    floats: Counter[str] = Counter()
    for op in graph.ops:
        # Conversions compute nothing that has a precision of its own.
        if op.kind in ("quantize", "dequantize"):
            continue
        for v in op.outputs:
            if v.type.dtype == "int8" and v.type.is_quantized:
                int8_results += 1
        if any(v.type.dtype == "float32" for v in op.outputs):
            floats[op.kind] += 1

    int8_note = _INT8_NOTE.format(int8=int8_results)
    if not floats:
        return (int8_note,)
    kinds = ", ".join(f"{n} x {kind}" for kind, n in floats.most_common(_MAX_KINDS))
    if len(floats) > _MAX_KINDS:
        kinds += ", …"
    float_note = (
        f"{floats.total()} operations have no int8 form there and stay float: {kinds}"
    )
    return (int8_note, float_note)
