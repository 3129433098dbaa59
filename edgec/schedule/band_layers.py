"""Scheduled calls as layers of csrc/ek_row_bands.h: what has to be known of them to
compute a few rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgec.ir import Kernel, KernelCall, Pointer, Scratch, Struct, Table
from edgec.ir.kernel import Operand
from edgec.schedule.gemm_s8.walk import in_rows

_F32 = ("x", "w", "bias", "slope", "added", "y", "scratch", "p", "tile")
_HEADER_F32 = "simd/ek_row_bands_f32_simd.h"
_HEADER_S8 = "ek_row_bands_s8.h"
_POINTWISE = {
    "ek_gemm_f32_t": (Kernel("band_gemm", _HEADER_F32, "f32"), (*_F32, "tail")),
    "ek_gemm_s8_t": (
        Kernel("band_gemm", _HEADER_S8, "s8"),
        ("x", "w", "y", "p", "scratch"),
    ),
}
_DEPTHWISE = {
    "ek_dwconv2d_f32_t": (Kernel("band_dwconv2d", _HEADER_F32, "f32"), _F32),
    "ek_dw_s8_t": (
        Kernel("band_dwconv2d", _HEADER_S8, "s8"),
        ("x", "y", "p", "scratch"),
    ),
    "ek_dw_taps_s8_t": (
        Kernel("band_dwconv2d_taps", _HEADER_S8, "s8"),
        ("x", "w", "y", "p"),
    ),
}
"""By the struct that a kernel is told: the function that computes a layer by it, and
its operands.
"""

_ONE = {
    "ek_gemm_f32_t": ("n", "ih", "oh", "kh", "kw", "sh", "sw"),
    "ek_gemm_s8_t": ("n", "taps", "kh", "kw", "sh", "phase_h", "phase_w"),
}
"""Fields that are 1 where every pixel is a window."""


@dataclass(frozen=True)
class CascadeLayer:
    """A convolution. added: a tensor added to its result. weights, scratch: bytes.
    function, struct: of csrc.
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
        """What its kernel is told."""
        p = self.struct.fields["p"]
        assert isinstance(p, Struct)
        return p

    def told(self, x: bool, y: bool) -> Struct:
        """What its function is told, which fetches what it reads or writes first where
        that is beyond the cache: x, y: whether that is a tensor, not a band.
        """
        if "touch" not in self.p.fields:
            return self.struct
        p = Struct(
            self.p.ctype,
            **{**self.p.fields, "touch": self.p.number("touch") & (x + 2 * y)},
        )
        return Struct(self.struct.ctype, **{**self.struct.fields, "p": p})


def pointwise(call: KernelCall, width: int) -> CascadeLayer | None:
    """A scheduled 1x1 convolution of whole tensors in rows of `width` pixels; None for
    what is none.
    """
    p = _told(call, _POINTWISE)
    if p is None or any(p.number(name) != 1 for name in _ONE[p.ctype]):
        return None
    if p.ctype == "ek_gemm_f32_t":
        one_group = p.number("group_ic") == p.number("ic")
        if one_group:
            return _layer(
                call, _POINTWISE, p, "yx", 4 * p.number("tile") * p.number("ic")
            )
        return None
    if p.number("panels") != p.number("group_panels") or width < p.number("mr"):
        return None
    rows = in_rows(p, width)
    return _layer(call, _POINTWISE, rows, "y_step", rows.number("scratch_bytes"))


def depthwise(call: KernelCall) -> CascadeLayer | None:
    """A scheduled depthwise convolution of whole tensors; None for what is none."""
    p = _told(call, _DEPTHWISE)
    if p is None:
        return None
    pitch = {"ek_dwconv2d_f32_t": "yx", "ek_dw_s8_t": "oc"}.get(p.ctype, "c")
    scratch = sum(x.nbytes for x in call.operands if isinstance(x, Scratch))
    return _layer(call, _DEPTHWISE, p, pitch, scratch)


def _told(call: KernelCall, families: Mapping[str, object]) -> Struct | None:
    """What the kernel is told, where it is of these families."""
    return next(
        (x for x in call.operands if isinstance(x, Struct) and x.ctype in families),
        None,
    )


def _layer(
    call: KernelCall,
    families: Mapping[str, tuple[Kernel, tuple[str, ...]]],
    p: Struct,
    pitch: str,
    scratch: int,
) -> CascadeLayer | None:
    """The layer of a call with another p.

    None where it reads or writes a part of a tensor.
    """
    function, names = families[p.ctype]
    found: dict[str, Operand] = dict(zip(names, call.operands, strict=False))
    x, y, added, _ = (found.pop(name, 0) for name in ("x", "y", "added", "scratch"))
    assert isinstance(x, Pointer)
    assert isinstance(y, Pointer)
    if x.offset or y.offset or p.number(pitch) != y.value.type.shape[-1]:
        return None
    more: dict[str, object] = {} if "tile" in found else {"kernel": call.kernel}
    weights = sum(
        t.array.nbytes
        for s in (found, p.fields)
        for t in s.values()
        if isinstance(t, Table)
    )
    struct = Struct(f"{function}_t", **{**found, "p": p}, **more)
    return CascadeLayer(
        x,
        y,
        added if isinstance(added, Pointer) else None,
        weights,
        scratch,
        function,
        struct,
    )
