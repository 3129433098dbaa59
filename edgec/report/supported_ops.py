"""Writes docs/supported-ops.md from the declarations of each op."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.ir import OpDef, QuantRule

_HEAD = """# Supported operations

Derived from the definitions in `edgec/ops/`; `tests/house/test_docs.py` keeps it fresh. int8
"same", "fixed" and "free" say where the output's scale comes from; "file" means that the op is
int8 where a .tflite file has it so, and else stays float32, as "-" always does. Edge TPU "rules"
means that the op maps when the rules below hold.

Every float type of ONNX (float16, bfloat16, double) is computed in float32; inputs and outputs of
float16 and double stay as they are. What has no C kernel for its element types is refused by its
name, and so is an attribute that edgec does not know, unless it says what the format's schema
says anyway.

An ONNX operator that has no row here is read as the nodes of which ONNX itself defines it, if it
does; so are functions of the model file, loops with a trip count that is known, of onnxruntime's
own domain FusedConv, FusedMatMul, MatMulNBits, Gelu, BiasGelu, FastGelu, QuickGelu and the layer
normalisations (SimplifiedLayerNormalization also in the standard's domain), and of the
experimental operators that ONNX took back in version 1.5 those that onnxruntime runs: Affine, Crop,
DynamicSlice, ImageScaler, ParametricSoftplus and ScaledTanh. Ops without a kernel of their own
(einsum, lstm, dft and the like) are read as several others. `make conformance` runs ONNX's own node
tests through the generated C.

Of ONNX, sparse tensors become dense; int4 and uint4 are int8 and uint8 here, as inputs and outputs
too.

Of TFLite, sparse weights and weights of 4 bits become dense int8 or float ones. int16 activations
(16x8) are floats inside that end where int16 does, within a few of their 65536 steps of TFLite's,
and calibration can make int8 of them; beside float activations, int8 weights (dynamic range) are
the floats that they stand for, where TFLite quantizes the activations as it goes.
UNIDIRECTIONAL_SEQUENCE_LSTM is read with floats and int8; its variables are state, and so are
resource variables (VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE): see
[state.md](state.md). TFLite_Detection_PostProcess is read with the fast suppression and one class
for each box. Of MediaPipe's own operators those of its published networks are read, in their
second versions where there are two; what they compute of landmarks stays in float.

"""


def supported_ops() -> str:
    """Return the whole document as Markdown."""
    rows = [
        "| op | ONNX | TFLite | int8 | Edge TPU |",
        "| --- | --- | --- | --- | --- |",
    ]
    for _, cls in sorted(OpDef.registry.items()):
        rows.append(_row(cls))
    table = "\n".join(rows)
    rules = "\n".join(_rules())
    return f"{_HEAD}{table}\n\n## Edge TPU rules\n\n{rules}\n"


def _row(cls: type[OpDef]) -> str:
    """Return the row of an op."""
    onnx = ", ".join(cls.onnx)
    tflite = ", ".join(cls.tflite)
    int8 = cls.quant.name.lower()
    if cls.quant is QuantRule.FLOAT:
        arguments = [arg for sample in cls.samples() for arg in sample.args]
        is_read = any(arg.type.is_quantized for arg in arguments)
        int8 = "file" if is_read else "-"
    place = "rules" if cls.edgetpu else "-"
    return f"| {cls.kind} | {onnx} | {tflite} | {int8} | {place} |"


def _rules() -> Iterator[str]:
    """Yield each rule once, with the ops that it holds for, the most common first."""
    kinds: dict[str, list[str]] = {}
    for kind, cls in sorted(OpDef.registry.items()):
        if not cls.edgetpu:
            continue
        for _, method in inspect.getmembers(cls, inspect.isfunction):
            # The decorator of a rule puts a remedy beside the method.
            if hasattr(method, "edgetpu_fix"):
                # The docstring of a rule is its text for people.
                docstring = inspect.getdoc(method) or ""
                rule = " ".join(docstring.split())
                kinds.setdefault(rule, []).append(kind)

    mapped_ops = sum(cls.edgetpu for cls in OpDef.registry.values())
    # A rule of all ops would otherwise list every name.
    for rule, ops in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])):
        names = "all" if len(ops) == mapped_ops else ", ".join(ops)
        yield f"- {names}: {rule}"
