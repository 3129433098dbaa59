"""Reads the activation that a TFLite operator applies to its result.

Source: ActivationFunctionType of TFLite's schema. LiteRT ignores TANH and SIGN_BIT in
some kernels and refuses them in others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edgec.ir import OpDef, TfliteOp, Value
from edgec.ops.fixed_point import ACTIVATIONS, TFLITE_ACTIVATIONS
from edgec.ops.unary import Relu, Relu6, ReluN1To1

_NAMES = (*TFLITE_ACTIVATIONS, "tanh", "sign_bit")
"""All members of ActivationFunctionType, in its order."""
_OPS: dict[str, OpDef] = {
    "relu": Relu(),
    "relu6": Relu6(),
    "relu_n1_to_1": ReluN1To1(),
}
"""The activations as ops of their own."""


def fused_activation(op: TfliteOp, known: Collection[str] = ACTIVATIONS) -> str:
    """Return the fused activation of an operator, "none" without options.

    known: the activations that the operator may have. Raises ValueError for others.
    """
    number = getattr(op.options, "fusedActivationFunction", 0)
    name = _NAMES[number] if 0 <= number < len(_NAMES) else f"number {number}"
    if name not in known:
        names = ", ".join(known).upper()
        raise ValueError(
            f"the fused activation {name.upper()} is not supported; it can be {names}"
        )

    return name


def write_activated(op: TfliteOp, spec: OpDef, inputs: Sequence[Value]) -> None:
    """Append an op without an `act`, and the fused activation as an op of its own.

    The second writes the operator's only output.
    """
    act = fused_activation(op)
    if act == "none":
        op.build.write(spec, inputs, op.outputs)
        return

    out = op.outputs[0]
    y = op.build.add(spec, inputs, f"{out.name}_linear", out.type.quant)
    op.build.write(_OPS[act], [y], op.outputs)
