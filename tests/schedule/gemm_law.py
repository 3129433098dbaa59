"""The plain kernels as they are, on this machine: what every tile of csrc/ek_gemm_s8.h must give."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from edgec.emit.c import CSRC
from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import Requant
from edgec.schedule.gemm_s8.windows import Windows

SOURCE = """
#include "ek_conv2d.h"
#include "ek_matmul.h"
#include "ek_transpose_conv.h"
void conv(const void *x, const void *w, const void *b, void *y, const void *p, const void *q) {
    ek_conv2d_s8(x, w, b, y, p, q);
}
void transposed(const void *x, const void *w, const void *b, void *y, const void *p, const void *q) {
    ek_transpose_conv2d_s8(x, w, b, y, p, q);
}
void connected(const void *x, const void *w, const void *b, void *y, const int *p, const void *q) {
    ek_fully_connected_s8(x, w, b, y, p[0], p[1], p[2], q);
}
"""


class _Requant(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("x_zero", "w_zero", "y_zero", "low", "high")),
        ("first", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
    )  # fmt: skip


@cache
def _library(folder: Path) -> ctypes.CDLL:
    (folder / "law.c").write_text(SOURCE)
    command = ["gcc", "-std=c11", "-O2", "-fPIC", "-shared", "-ffp-contract=off", f"-I{CSRC}", "-w"]
    subprocess.run([*command, str(folder / "law.c"), "-o", str(folder / "law.so"), "-lm"], check=True)
    return ctypes.CDLL(str(folder / "law.so"))


def law(folder: Path, c: Windows, x: Array, w: Array, bias: Array, q: Requant) -> Array:
    """Image [n,ih,iw,ic], weights [o,kh,kw,depth], bias [o] -> [n,oh,ow,oc]. folder: where to build."""
    y = np.empty((c.n, c.oh, c.ow, c.oc), np.int8)
    params: tuple[int, ...]
    tables: tuple[Array, ...]
    image = (c.n, c.ih, c.iw, c.ic, c.oh, c.ow, c.oc, c.kh, c.kw)
    if q.scale is not None:
        function, params, tables = "connected", (c.n * c.ih * c.iw, c.ic, c.oc), (q.scale.astype(np.float64),)
    else:
        assert q.multiplier is not None
        assert q.shift is not None
        tables, w = (q.multiplier, q.shift), w.transpose(1, 2, 3, 0)
        function, params = "conv", (*image, c.sh, c.sw, c.dh, c.dw, c.pt, c.pl, c.depth)
        if c.phases is not None:
            function, params = "transposed", (*image, *c.phases, c.pt, c.pl)
    w = np.ascontiguousarray(w)
    addresses = [t.ctypes.data for t in tables]
    requant = _Requant(q.x_zero, q.w_zero, q.y_zero, q.low, q.high, *addresses)
    call = getattr(_library(folder), function)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, w, bias, y)]
    call(*pointers, (ctypes.c_int * len(params))(*params), ctypes.byref(requant))
    return y
