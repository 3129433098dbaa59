"""Bilinear resizing of NHWC images of plain integers, which have no scale.

Semantics: ONNX Resize as onnxruntime computes it. ONNX's reference rounds the sums to
the nearest; onnxruntime cuts them off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    CStruct,
    Kernel,
    KernelCall,
    KernelFamily,
    KernelRounding,
    Op,
    Sample,
    Table,
    TensorType,
)
from edgec.ir.c_structs import ResizeBilinearFixedParams, ResizeBilinearRealParams
from edgec.ir.opdef import Arg
from edgec.ops.cast import Cast
from edgec.ops.common import INTEGER_KERNELS, INTEGERS, plain_suffix
from edgec.ops.resampling import (
    FIXED_ONE,
    Neighbours,
    blend,
    blend_reals,
    linear_clipped,
    linear_cut,
)
from edgec.ops.resize import Resize

_KERNELS = KernelFamily(
    Kernel("resize_integers", "ek_resize.h"), INTEGER_KERNELS, cut=("i8", "u8")
)


@dataclass(frozen=True)
class ResizeIntegers(Resize):
    """A resize of integers by the two by two pixels around a place.

    The sum, weighted by distance, is cut off towards zero.

    Attributes:
        fixed: whether the weights are whole numbers of 1/1024, as onnxruntime has them
            for 8-bit images whose channels come last; else they are float32
    """

    fixed: bool = False

    kind = "resize_integers"
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the image type with the new size.

        Raises ValueError but for integers without a scale.
        """
        dtypes = ("int8", "uint8") if self.fixed else INTEGERS
        if x[0].dtype not in dtypes or x[0].is_quantized:
            raise ValueError(f"{self.kind} of {x[0]}; its elements are {dtypes}")
        return super().infer(*x)

    def _tables(self, x: TensorType) -> tuple[Neighbours, Neighbours]:
        """Return the neighbours and weights of the rows, and of the columns."""
        neighbours = linear_cut if self.fixed else linear_clipped
        vertical, horizontal = self.axes(x)
        return neighbours(vertical), neighbours(horizontal)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the sums in onnxruntime's order, exactly where they are fixed."""
        rows, columns = self._tables(xt[0])
        if not self.fixed:
            sums = blend_reals(x[0].astype(np.float32), rows, columns)
            return Cast(xt[0].dtype).ref([sums], xt, yt)

        # Integers are exact, so that the order does not matter.
        total = blend(x[0].astype(np.int64), rows, columns, np.int64(FIXED_ONE))
        return [np.trunc(total / FIXED_ONE**2).astype(xt[0].dtype)]

    def c(self, op: Op) -> KernelCall:
        """Return ek_resize_integers_<type>, of fixed weights _cut_<type>."""
        x = op.inputs[0].type
        rows, columns = self._tables(x)
        fields: dict[str, Any] = {
            **self.dims(op),
            "y0": Table(rows.low, "y0"),
            "y1": Table(rows.high, "y1"),
            "fy": Table(rows.weight, "fy"),
            "x0": Table(columns.low, "x0"),
            "x1": Table(columns.high, "x1"),
            "fx": Table(columns.weight, "fx"),
        }
        # The type of the weights decides the struct.
        params: type[CStruct] = ResizeBilinearRealParams
        rounding = KernelRounding.TFLITE
        if self.fixed:
            params = ResizeBilinearFixedParams
            rounding = KernelRounding.CUT

        kernel = _KERNELS.of(plain_suffix(x), rounding)

        return KernelCall.of(kernel, op.inputs[0], op.output, params(**fields))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield both kinds of weights, up and down, and every element type."""
        for dtype in INTEGERS:
            image = Arg(TensorType((2, 4, 5, 3), dtype))
            yield Sample(cls((7, 9), "onnx_half_pixel"), (image,), label=dtype)

        for dtype in ("int8", "uint8"):
            image = Arg(TensorType((1, 4, 5, 3), dtype))
            for size in ((7, 9), (3, 2)):
                spec = cls(size, "onnx_half_pixel", fixed=True)
                label = f"fixed_{dtype}_{size[0]}x{size[1]}"
                yield Sample(spec, (image,), label=label)
