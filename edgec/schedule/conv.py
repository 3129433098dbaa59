"""The shape of a convolution as the plain kernels take it (csrc/ek_conv2d.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from edgec.ir.c_structs import Conv2dParams, TransposeConv2dParams


@dataclass(frozen=True)
class Conv:
    """The fields of ek_conv2d_t and ek_transpose_conv2d_t.

    Attributes:
        n: images
        ih: rows of an image [n, ih, iw, ic]
        iw: columns of an image
        ic: input channels
        oh: rows of a result [n, oh, ow, oc]
        ow: columns of a result
        oc: output channels
        kh: rows of the kernel
        kw: columns of the kernel
        sh: stride in rows
        sw: stride in columns
        dh: dilation in rows
        dw: dilation in columns
        pt: padding at the top
        pl: padding at the left
        group_ic: input channels of a group; 0 where there are no groups
    """

    n: int
    ih: int
    iw: int
    ic: int
    oh: int
    ow: int
    oc: int
    kh: int = 1
    kw: int = 1
    sh: int = 1
    sw: int = 1
    dh: int = 1
    dw: int = 1
    pt: int = 0
    pl: int = 0
    group_ic: int = 0

    @classmethod
    def of(cls, p: Conv2dParams | TransposeConv2dParams) -> Self:
        """Return the shape in the parameters of a plain kernel."""
        # Transposed convolutions lack dilations and groups.
        return cls(**p.given())
