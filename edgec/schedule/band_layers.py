"""Scheduled convolutions as layers of a cascade (csrc/ek_row_bands.h).

A layer is a call with what its band function needs to compute a few rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from edgec.ir import Kernel, KernelCall, Pointer, Scratch, Table
from edgec.ir.c_structs import (
    BandDwconv2dF32Params,
    BandDwconv2dS8Params,
    BandDwconv2dTapsS8Params,
    BandGemmF32Params,
    BandGemmS8Params,
    Dwconv2dF32Params,
    Dwconv2dS8Params,
    Dwconv2dTapsS8Params,
    GemmF32Params,
    GemmS8Params,
)
from edgec.schedule.gemm_s8.walk import with_row_length

DepthwiseParams = Dwconv2dF32Params | Dwconv2dS8Params | Dwconv2dTapsS8Params
"""The parameters of the kernels of depthwise convolutions."""

BandParams = (
    BandGemmF32Params
    | BandGemmS8Params
    | BandDwconv2dF32Params
    | BandDwconv2dS8Params
    | BandDwconv2dTapsS8Params
)
"""The parameters of the functions that compute rows of a layer."""

P = TypeVar("P", bound=GemmF32Params | GemmS8Params | DepthwiseParams, covariant=True)
"""The parameters of the kernel of a layer."""

_HEADER_F32 = "simd/ek_row_bands_f32_simd.h"
_HEADER_S8 = "ek_row_bands_s8.h"
_GEMM_F32 = Kernel("band_gemm", _HEADER_F32, "f32")
_GEMM_S8 = Kernel("band_gemm", _HEADER_S8, "s8")
_DEPTHWISE_F32 = Kernel("band_dwconv2d", _HEADER_F32, "f32")
_DEPTHWISE_S8 = Kernel("band_dwconv2d", _HEADER_S8, "s8")
_DEPTHWISE_TAPS_S8 = Kernel("band_dwconv2d_taps", _HEADER_S8, "s8")


@dataclass(frozen=True, eq=False)
class CascadeLayer(Generic[P]):
    """A convolution of a cascade.

    Attributes:
        x: its input
        y: its result
        added: a tensor that it adds to its result
        p: the parameters of its kernel
        scratch: bytes of its scratch
        function: the C function that computes rows of it
        struct: the parameters of that function
    """

    x: Pointer
    y: Pointer
    added: Pointer | None
    p: P
    scratch: int
    function: Kernel
    struct: BandParams

    @property
    def weights(self) -> int:
        """Bytes of its weights and tables."""
        return _table_bytes(self.struct.given().values()) + _table_bytes(
            self.p.given().values()
        )

    def parameters(self, reads_tensor: bool, writes_tensor: bool) -> BandParams:
        """Return the parameters of its function.

        The field `touch` makes it fetch what it reads (bit 0) or writes (bit 1) ahead,
        which is useless for a band.

        Args:
            reads_tensor: whether it reads a tensor rather than a band
            writes_tensor: whether it writes a tensor rather than a band
        """
        mask = reads_tensor + 2 * writes_tensor
        if isinstance(self.struct, BandGemmF32Params):
            gemm = self.struct.p
            return replace(self.struct, p=replace(gemm, touch=gemm.touch & mask))
        if isinstance(self.struct, BandDwconv2dF32Params):
            deep = self.struct.p
            return replace(self.struct, p=replace(deep, touch=deep.touch & mask))
        return self.struct


PointwiseLayer = CascadeLayer[GemmF32Params | GemmS8Params]
DepthwiseLayer = CascadeLayer[DepthwiseParams]


def pointwise(call: KernelCall, width: int) -> PointwiseLayer | None:
    """Return the layer of a scheduled 1x1 convolution of whole tensors.

    Args:
        call: a scheduled call
        width: pixels of a row of the image

    Returns:
        None for any other call
    """
    layer = _pointwise_f32(call)
    if layer is not None:
        return layer
    return _pointwise_s8(call, width)


def _pointwise_f32(call: KernelCall) -> CascadeLayer[GemmF32Params] | None:
    """Return the layer of a float 1x1 convolution."""
    match call.operands:
        case (
            Pointer() as x,
            Table() as w,
            Table() as bias,
            (Table() | int()) as slope,
            added,
            Pointer() as y,
            _,
            GemmF32Params() as p,
            str() as tile,
            str() as tail,
            *_,
        ):
            pass
        case _:
            return None

    # Each window is one pixel, in one image of one row.
    ones = (p.n, p.ih, p.oh, p.kh, p.kw, p.sh, p.sw)
    if any(size != 1 for size in ones) or p.group_ic != p.ic:
        return None
    if not _is_whole(x, y, p.yx):
        return None

    return CascadeLayer(
        x=x,
        y=y,
        added=added if isinstance(added, Pointer) else None,
        p=p,
        # The scratch holds the windows of the last tile of a row.
        scratch=x.value.type.np_dtype.itemsize * p.tile * p.ic,
        function=_GEMM_F32,
        struct=BandGemmF32Params(
            w=w, bias=bias, slope=slope, p=p, tile=tile, tail=tail
        ),
    )


def _pointwise_s8(call: KernelCall, width: int) -> CascadeLayer[GemmS8Params] | None:
    """Return the layer of an int8 1x1 convolution with rows of `width` pixels."""
    match call.operands:
        case (Pointer() as x, Table() as w, Pointer() as y, GemmS8Params() as p, *_):
            pass
        case _:
            return None

    ones = (p.n, p.taps, p.kh, p.kw, p.sh, p.phase_h, p.phase_w)
    if any(size != 1 for size in ones):
        return None

    # The int8 tile needs rows of MR pixels, and all channels in one group.
    if p.panels != p.group_panels or width < p.mr:
        return None
    rows = with_row_length(p, width)
    if not _is_whole(x, y, rows.y_step):
        return None

    return CascadeLayer(
        x=x,
        y=y,
        added=None,
        p=rows,
        scratch=rows.scratch_bytes,
        function=_GEMM_S8,
        struct=BandGemmS8Params(w=w, p=rows, kernel=call.kernel),
    )


def depthwise(call: KernelCall) -> DepthwiseLayer | None:
    """Return the layer of a scheduled depthwise convolution of whole tensors.

    None for any other call.
    """
    # A band needs the kernel's own scratch, whatever its rows are.
    scratch = sum(x.nbytes for x in call.operands if isinstance(x, Scratch))
    layer: DepthwiseLayer
    match call.operands:
        case (
            Pointer() as x,
            Table() as w,
            Table() as bias,
            (Table() | int()) as slope,
            added,
            Pointer() as y,
            _,
            Dwconv2dF32Params() as p,
            (str() | Kernel()) as tile,
            *_,
        ):
            f32 = BandDwconv2dF32Params(w=w, bias=bias, slope=slope, p=p, tile=tile)
            tensor = added if isinstance(added, Pointer) else None
            layer = CascadeLayer(x, y, tensor, p, scratch, _DEPTHWISE_F32, f32)
            pitch = p.yx
        case (Pointer() as x, Pointer() as y, Dwconv2dS8Params() as blocks, *_):
            s8 = BandDwconv2dS8Params(p=blocks, kernel=call.kernel)
            layer = CascadeLayer(x, y, None, blocks, scratch, _DEPTHWISE_S8, s8)
            pitch = blocks.oc
        case (
            Pointer() as x,
            Table() as w,
            Pointer() as y,
            Dwconv2dTapsS8Params() as taps,
            *_,
        ):
            units = BandDwconv2dTapsS8Params(w=w, p=taps, kernel=call.kernel)
            layer = CascadeLayer(x, y, None, taps, scratch, _DEPTHWISE_TAPS_S8, units)
            pitch = taps.c
        case _:
            return None

    return layer if _is_whole(x, y, pitch) else None


def _is_whole(x: Pointer, y: Pointer, pitch: int) -> bool:
    """Return whether a layer reads and writes whole tensors.

    pitch: elements from pixel to pixel of the result.
    """
    return not x.offset and not y.offset and pitch == y.value.type.shape[-1]


def _table_bytes(operands: Iterable[object]) -> int:
    """Return the bytes of the constant tables among operands or fields."""
    return sum(x.array.nbytes for x in operands if isinstance(x, Table))
