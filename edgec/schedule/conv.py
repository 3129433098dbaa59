"""A convolution as the plain kernels are told it: csrc/ek_conv2d.h."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from edgec.ir import Struct


@dataclass(frozen=True)
class Conv:
    """Fields of ek_conv2d_t and ek_transpose_conv2d_t: image [n,ih,iw,ic], result
    [n,oh,ow,oc], kernel, stride, dilation, padding at the top and left; group_ic: input
    channels of a group, where it has groups.
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
    def of(cls, struct: Struct) -> Self:
        """What one of those structs says."""
        return cls(**struct.numbers())
