"""The parametric rectifier.

Semantics: ONNX PRelu, TFLite PRELU (reference/prelu.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from edgec.ir import Array, CStruct, Op, TensorType, TfliteCode, Versions, edgetpu_rule
from edgec.ops.binary import Binary
from edgec.ops.binary_scales import product_multiplier, scaled_struct
from edgec.ops.common import REAL_KERNELS
from edgec.ops.elementwise_kernels import binary_kernels
from edgec.ops.fixed_point import multiply_by_quantized_multiplier, quantize_multiplier


@dataclass(frozen=True)
class PRelu(Binary):
    """y = x where x >= 0, else alpha * x; alpha is broadcast to x."""

    kind = "prelu"
    kernels = binary_kernels("prelu", (*REAL_KERNELS, "s8"), vectorized=True)
    homogeneous: ClassVar[bool] = True
    onnx = ("PRelu",)
    tflite = ("PRELU",)
    edgetpu_versions = {"PRELU": Versions(1)}
    fn = staticmethod(lambda x, alpha: np.where(x >= 0, x, x * alpha))
    edgetpu: ClassVar[bool] = True
    sampled: ClassVar[tuple[str, ...]] = ("float32",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x.

        Raises ValueError when alpha does not broadcast to x.
        """
        (y,) = super().infer(*x)
        if y.shape != x[0].shape:
            raise ValueError(f"alpha {x[1]} does not fit {x[0]}")

        return (y,)

    def _multipliers(
        self,
        x: TensorType,
        alpha: TensorType,
        y: TensorType,
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the fixed-point multipliers of x and of alpha * x.

        They are scale_x / scale_y and scale_x * scale_alpha / scale_y in float32.
        """
        quotient = np.float32(x.scale) / np.float32(y.scale)
        identity = quantize_multiplier(float(quotient))

        return identity, product_multiplier(x, alpha, y)

    def ref_s8(
        self,
        a: Array,
        b: Array,
        at: TensorType,
        bt: TensorType,
        yt: TensorType,
    ) -> Array:
        """Compute both branches in fixed point, as TFLite's reference kernel does.

        Source: tensorflow/lite/kernels/internal/reference/prelu.h.
        """
        identity, product = self._multipliers(at, bt, yt)
        x = a - at.zero_point
        alpha = b - bt.zero_point

        positive = multiply_by_quantized_multiplier(x, *identity)
        negative = multiply_by_quantized_multiplier(x * alpha, *product)

        return np.where(x >= 0, positive, negative) + np.int32(yt.zero_point)

    def c_requant(self, a: TensorType, b: TensorType, y: TensorType) -> CStruct:
        """Return ek_fixed_point_sum_t, whose second multiplier is not used.

        Its last multiplier is that of alpha * x.
        """
        identity, product = self._multipliers(a, b, y)
        unused = (0, 0)
        multipliers = (identity, unused, product)

        return scaled_struct(multipliers, (a, b, y), self.clamp(y))

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return PRELU, which has one version and no options."""
        return TfliteCode("PRELU")

    @edgetpu_rule(fix="share alpha over height and width: one value for each channel")
    def _alpha_per_channel(self, op: Op) -> str | None:
        """PRELU: alpha must be one value for each channel."""
        alpha = op.inputs[1].type
        if alpha.size != prod(alpha.shape[-1:]):
            return f"alpha {list(alpha.shape)}"
        return None
