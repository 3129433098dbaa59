"""Scheduled convolutions as layers of a cascade (csrc/ek_row_bands.h).

A layer is a call with what its band function needs to compute a few rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgec.ir import Kernel, KernelCall, Pointer, Scratch, Struct, Table
from edgec.ir.kernel import Operand
from edgec.schedule.gemm_s8.walk import with_row_length


@dataclass(frozen=True)
class _BandFunction:
    """A C function that computes rows of a layer.

    Attributes:
        kernel: the function; the struct of its parameters is <name>_t
        operands: the operands of the kernel that it follows, by name
    """

    kernel: Kernel
    operands: tuple[str, ...]


_HEADER_F32 = "simd/ek_row_bands_f32_simd.h"
_HEADER_S8 = "ek_row_bands_s8.h"
_GEMM_F32 = Kernel("band_gemm", _HEADER_F32, "f32")
_GEMM_S8 = Kernel("band_gemm", _HEADER_S8, "s8")
_DEPTHWISE_F32 = Kernel("band_dwconv2d", _HEADER_F32, "f32")
_DEPTHWISE_S8 = Kernel("band_dwconv2d", _HEADER_S8, "s8")
_DEPTHWISE_TAPS_S8 = Kernel("band_dwconv2d_taps", _HEADER_S8, "s8")

_F32_OPERANDS = ("x", "w", "bias", "slope", "added", "y", "scratch", "p", "tile")

POINTWISE = {
    "ek_gemm_f32_t": _BandFunction(_GEMM_F32, (*_F32_OPERANDS, "tail")),
    "ek_gemm_s8_t": _BandFunction(_GEMM_S8, ("x", "w", "y", "p", "scratch")),
}
"""Functions for 1x1 convolutions, by the struct of the kernel's parameters."""

DEPTHWISE = {
    "ek_dwconv2d_f32_t": _BandFunction(_DEPTHWISE_F32, _F32_OPERANDS),
    "ek_dw_s8_t": _BandFunction(_DEPTHWISE_S8, ("x", "y", "p", "scratch")),
    "ek_dw_taps_s8_t": _BandFunction(_DEPTHWISE_TAPS_S8, ("x", "w", "y", "p")),
}
"""Functions for depthwise convolutions, by the struct of the kernel's parameters."""

POINTWISE_ONES = {
    "ek_gemm_f32_t": ("n", "ih", "oh", "kh", "kw", "sh", "sw"),
    "ek_gemm_s8_t": ("n", "taps", "kh", "kw", "sh", "phase_h", "phase_w"),
}
"""Fields that are 1 where each window is one pixel."""

DEPTHWISE_PITCH = {
    "ek_dwconv2d_f32_t": "yx",
    "ek_dw_s8_t": "oc",
    "ek_dw_taps_s8_t": "c",
}
"""Fields with the elements from pixel to pixel of the result."""


@dataclass(frozen=True)
class CascadeLayer:
    """A convolution of a cascade.

    Attributes:
        x: its input
        y: its result
        added: a tensor that it adds to its result
        weights: bytes of its weights and tables
        scratch: bytes of its scratch
        function: the C function that computes rows of it
        struct: the parameters of that function
    """

    x: Pointer
    y: Pointer
    added: Pointer | None
    weights: int
    scratch: int
    function: Kernel
    struct: Struct

    @property
    def p(self) -> Struct:
        """The parameters of its kernel."""
        p = self.struct.fields["p"]
        assert isinstance(p, Struct)
        return p

    def parameters(self, reads_tensor: bool, writes_tensor: bool) -> Struct:
        """Return the parameters of its function.

        The field `touch` makes it fetch what it reads (bit 0) or writes (bit 1) ahead,
        which is useless for a band.

        Args:
            reads_tensor: whether it reads a tensor rather than a band
            writes_tensor: whether it writes a tensor rather than a band
        """
        if "touch" not in self.p.fields:
            return self.struct
        touch = self.p.number("touch") & (reads_tensor + 2 * writes_tensor)
        p = Struct(self.p.ctype, **{**self.p.fields, "touch": touch})
        return Struct(self.struct.ctype, **{**self.struct.fields, "p": p})


def pointwise(call: KernelCall, width: int) -> CascadeLayer | None:
    """Return the layer of a scheduled 1x1 convolution of whole tensors.

    Args:
        call: a scheduled call
        width: pixels of a row of the image

    Returns:
        None for any other call
    """
    p = _kernel_parameters(call, POINTWISE)
    if p is None or any(p.number(name) != 1 for name in POINTWISE_ONES[p.ctype]):
        return None
    function = POINTWISE[p.ctype]
    if p.ctype == "ek_gemm_f32_t":
        if p.number("group_ic") != p.number("ic"):
            return None
        # The scratch holds the windows of the last tile of a row.
        scratch = 4 * p.number("tile") * p.number("ic")
        return _layer(call, function, p, "yx", scratch)

    # The int8 tile needs rows of MR pixels, and all channels in one group.
    has_groups = p.number("panels") != p.number("group_panels")
    if has_groups or width < p.number("mr"):
        return None
    rows = with_row_length(p, width)
    return _layer(call, function, rows, "y_step", rows.number("scratch_bytes"))


def depthwise(call: KernelCall) -> CascadeLayer | None:
    """Return the layer of a scheduled depthwise convolution of whole tensors.

    None for any other call.
    """
    p = _kernel_parameters(call, DEPTHWISE)
    if p is None:
        return None

    # A band needs the kernel's own scratch, whatever its rows are.
    scratch = sum(x.nbytes for x in call.operands if isinstance(x, Scratch))
    pitch = DEPTHWISE_PITCH[p.ctype]
    return _layer(call, DEPTHWISE[p.ctype], p, pitch, scratch)


def _kernel_parameters(
    call: KernelCall, functions: Mapping[str, _BandFunction]
) -> Struct | None:
    """Return the parameters of a call whose kernel has one of these functions."""
    for x in call.operands:
        if isinstance(x, Struct) and x.ctype in functions:
            return x
    return None


def _layer(
    call: KernelCall, function: _BandFunction, p: Struct, pitch: str, scratch: int
) -> CascadeLayer | None:
    """Return the layer of a call.

    Args:
        call: the scheduled call
        function: the function that computes rows of it
        p: the parameters of its kernel, in rows of the image
        pitch: the field with the elements from pixel to pixel of the result
        scratch: bytes

    Returns:
        None if it reads or writes a part of a tensor
    """
    operands: dict[str, Operand] = dict(
        zip(function.operands, call.operands, strict=False)
    )
    # The cascade passes these itself, band by band.
    x = operands.pop("x")
    y = operands.pop("y")
    added = operands.pop("added", 0)
    operands.pop("scratch", None)
    assert isinstance(x, Pointer)
    assert isinstance(y, Pointer)
    if x.offset or y.offset or p.number(pitch) != y.value.type.shape[-1]:
        return None

    # Float kernels differ in their tile, which is an operand, the others in themselves.
    kernel = {} if "tile" in operands else {"kernel": call.kernel}
    fields = {**operands, "p": p, **kernel}
    weights = _table_bytes(operands.values()) + _table_bytes(p.fields.values())
    return CascadeLayer(
        x=x,
        y=y,
        added=added if isinstance(added, Pointer) else None,
        weights=weights,
        scratch=scratch,
        function=function.kernel,
        struct=Struct(f"{function.kernel}_t", **fields),
    )


def _table_bytes(operands: Iterable[object]) -> int:
    """Return the bytes of the constant tables among operands or fields."""
    return sum(x.array.nbytes for x in operands if isinstance(x, Table))
