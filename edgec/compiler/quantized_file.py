"""What is told of a model that its ONNX file quantized."""

from __future__ import annotations

from collections import Counter

from edgec.ir import Graph

_SAID = (
    "the file is quantized as ONNX has it: {int8} operations became int8; "
    "convolutions, matrix products, sums, "
    "products, means, averages, resizes and functions round as onnxruntime does on Arm "
    "(a float, ties to even); "
    "softmax and averages into a scale of their own, and for an Edge TPU all, "
    "as TFLite does, so that each of these "
    "may differ by one step from onnxruntime"
)


def notes(graph: Graph) -> tuple[str, ...]:
    """graph: optimised, with the int8 forms of what the file says in floats between
    scales.
    """
    computed = [op for op in graph.ops if op.kind not in ("quantize", "dequantize")]
    int8 = sum(
        v.type.dtype == "int8" and v.type.is_quantized
        for op in computed
        for v in op.outputs
    )
    floats = Counter(
        op.kind for op in computed if any(v.type.dtype == "float32" for v in op.outputs)
    )
    if not floats:
        return (_SAID.format(int8=int8),)
    kinds = ", ".join(f"{n} x {kind}" for kind, n in floats.most_common(4)) + (
        ", …" if len(floats) > 4 else ""
    )
    return (
        _SAID.format(int8=int8),
        f"{floats.total()} operations have no int8 form there and stay float: {kinds}",
    )
