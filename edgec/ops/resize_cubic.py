"""Resizing of NHWC images by cubic convolution.

Keys 1981, "Cubic convolution interpolation for digital image processing". Semantics:
the mode "cubic" of ONNX Resize; TFLite has no such operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    Op,
    Sample,
    Table,
    TensorType,
)
from edgec.ir.c_structs import ResizeCubicParams
from edgec.ir.opdef import Arg
from edgec.ops.common import float_kernel, real_types
from edgec.ops.resampling import (
    cubic,
)
from edgec.ops.resize import Resize

_RESIZE_CUBIC = float_kernel("resize_cubic", "ek_resize.h")


@dataclass(frozen=True)
class ResizeCubic(Resize):
    """A resize by Keys' cubic convolution over four by four pixels; float32 only.

    Attributes:
        coefficient: a of Keys' kernel
        exclude_outside: whether pixels outside of the image count nothing, and the
            other weights are scaled to sum to 1
    """

    coefficient: float = -0.75
    exclude_outside: bool = False

    kind = "resize_cubic"

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the image type with the new size; raises ValueError without floats."""
        real_types(self, x[0], int8=False)
        return super().infer(*x)

    def _taps(self, x: TensorType) -> list[tuple[Array, Array]]:
        """Return (indices, weights) of the rows, and of the columns."""
        coefficient = self.coefficient
        return [cubic(a, coefficient, self.exclude_outside) for a in self.axes(x)]

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute weighted sums along the rows, then along the columns."""
        (row_index, row_weight), (column_index, column_weight) = self._taps(xt[0])
        image = x[0][:, :, column_index]

        # The kernel is separable.
        columns = np.einsum("nyxtc,xt->nyxc", image, column_weight)
        y = np.einsum("nytxc,yt->nyxc", columns[:, row_index], row_weight)

        return [y.astype(np.float32)]

    def c(self, op: Op) -> KernelCall:
        """Return ek_resize_cubic_f32, which weights sixteen pixels."""
        (row_index, row_weight), (column_index, column_weight) = self._taps(
            op.inputs[0].type
        )
        spec = ResizeCubicParams(
            **self.dims(op),
            iy=Table(row_index, "iy"),
            wy=Table(row_weight, "wy"),
            ix=Table(column_index, "ix"),
            wx=Table(column_weight, "wx"),
        )

        return KernelCall.of(_RESIZE_CUBIC, op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield an enlargement, a reduction, and one without pixels outside.

        The last has weights that are scaled to sum to 1 at the border.
        """
        image = Arg(TensorType((1, 4, 5, 3)))
        specs = {
            "up": cls((8, 10), "onnx_half_pixel"),
            "down": cls((3, 2), "onnx_align_corners"),
            "inside": cls((7, 9), "onnx_half_pixel", exclude_outside=True),
        }
        for label, spec in specs.items():
            yield Sample(spec, (image,), label=label)
