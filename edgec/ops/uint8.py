"""What TFLite computes with uint8 alone, and how ops round beside that."""

from __future__ import annotations

from dataclasses import replace

from edgec.ir import Graph, Op, OpDef, Rounding


def needs_uint8(graph: Graph) -> bool:
    """Return whether TFLite has only uint8 kernels for an op of the graph."""
    return any(
        has_asymmetric_weights(op) or op.spec.tflite_needs_uint8(op) for op in graph.ops
    )


def has_asymmetric_weights(op: Op) -> bool:
    """Return whether a weight has a zero point, which only uint8 kernels support."""
    roles = op.spec.roles
    for i, v in enumerate(op.inputs):
        # The last role stands for all further inputs.
        role = roles[min(i, len(roles) - 1)]
        quant = v.type.quant
        if role == "weight" and quant is not None and any(quant.zero_point):
            return True
    return False


def beside_uint8(op: Op) -> OpDef:
    """Return the spec of an op as TFLite's uint8 kernel computes it.

    It is the op's own where the int8 kernel computes the same.
    """
    y = op.outputs[0].type
    is_int8 = y.is_quantized and y.dtype == "int8"
    if not is_int8 or getattr(op.spec, "rounding", None) is not Rounding.TFLITE:
        return op.spec
    spec: OpDef = replace(op.spec, rounding=Rounding.TFLITE_UINT8)  # type: ignore[call-arg]
    return spec if spec.tflite_needs_uint8(op) else op.spec
