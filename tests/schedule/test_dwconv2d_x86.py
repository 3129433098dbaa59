"""The depthwise int8 kernels for x86 compute what the plain one does, bit for bit, and touch nothing beside."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from edgec.emit.c import CSRC
from edgec.ir import Array, KernelCall, Struct, Table, TensorType, Value
from edgec.schedule.cores import Core
from edgec.schedule.kernels.dwconv2d_x86 import VARIANTS
from edgec.toolchain.cc import Compiler
from tests.harness import has

NUMBERS = ("n", "ih", "iw", "ic", "oh", "ow", "oc", "kh", "kw", "sh", "sw", "dh", "dw", "pt", "pl", "group_ic")
ENTRIES = ("nine", "any")
SLIDES = tuple(f"k3{windows}{how}" for windows in ("s1", "s2", "flat") for how in ("", "p", "z", "zp"))
LAW = """#include "ek_conv2d.h"
EK_API void law(const void *x, const void *w, const void *b, void *y, const void *p, const void *q) {
    ek_dwconv2d_s8(x, w, b, y, p, q);
}
"""
WRAPPER = """EK_API void run_{name}(const void *x, const void *w, void *y, const void *p, int part, int parts) {{
    {name}(x, w, y, p, part, parts);
}}
"""


@dataclass
class Layer:
    """One call of the plain kernel, and its data."""

    call: KernelCall
    x: Array
    shape: tuple[int, ...]


def _one(rng: np.random.Generator, *options: int) -> int:
    return int(rng.choice(options))


def layer(rng: np.random.Generator) -> Layer:
    """Strides, dilations, pads, narrow and wide images, extremes of zero points, shifts, sums and dead channels."""
    one = partial(_one, rng)
    c = one(1, 2, 3, 8, 16, 24, 32, 48, 64, 72, 96, 130)
    kh, kw = [(3, 3), (3, 3), (3, 3), (5, 5), (1, 3), (2, 2), (7, 1)][one(*range(7))]
    sh = sw = one(1, 1, 2, 3)
    dh = dw = one(1, 1, 1, 2, 4)
    if rng.random() < 0.1:
        sw, dw = one(1, 2), one(1, 2)
    pt, pb, pl, pr = (one(0, 1, 1, 2, 3) for _ in range(4))
    ih, iw = max(1, (kh - 1) * dh + one(0, 1, 2, 5) - pt), max(1, (kw - 1) * dw + one(0, 1, 4, 9) - pl)
    oh, ow = (max(0, i + p + q - (k - 1) * d - 1) // s + 1 for i, p, q, k, d, s in
              ((ih, pt, pb, kh, dh, sh), (iw, pl, pr, kw, dw, sw)))  # fmt: skip
    n = one(1, 1, 2)
    wide = bool(rng.random() < 0.3)
    size = (n, ih, iw, c)
    x = rng.choice([-128, 127], size) if wide else rng.integers(-128, 128, size)
    w = rng.integers(-128, 128, (kh, kw, c)).astype(np.int8)
    bias = rng.choice([-(1 << 30), -70000, 900, 1 << 28], c) if wide else rng.integers(-9000, 9000, c)
    multiplier, shift = rng.integers(1 << 30, 1 << 31, c), rng.integers(-12, -5, c)
    multiplier[rng.random(c) < 0.2] = 1 << 30
    if rng.random() < 0.4:
        for m, s in ((0, 0), (1 << 30, -30), (1300000000, -24), (2147483647, -22), (1500000000, 0), (1 << 30, 2)):
            chosen = rng.random(c) < 0.15
            multiplier[chosen], shift[chosen] = m, s
    low, high = (int(v) for v in sorted(rng.choice([-128, -100, 6, 127], 2))) if rng.random() < 0.5 else (-128, 127)
    p = (n, ih, iw, c, oh, ow, c, kh, kw, sh, sw, dh, dw, pt, pl, 1)
    tables = {"multiplier": Table(multiplier.astype(np.int32), "m"), "shift": Table(shift.astype(np.int32), "s")}
    q = Struct(
        "ek_requant_t",
        x_zero=one(-128, -3, 0, 127), w_zero=one(0, 0, 0, -128, 3, 127), y_zero=one(-128, -128, 0, 5, 127),
        low=low, high=high, **tables,
    )  # fmt: skip
    image, result = (Value(name, TensorType(s, "int8")) for name, s in (("x", size), ("y", (n, oh, ow, c))))
    table = Struct("ek_conv2d_t", **dict(zip(NUMBERS, p, strict=True)))
    biases = Table(bias.astype(np.int32), "b")
    return Layer(
        KernelCall.of("ek_dwconv2d_s8", image, Table(w, "w"), biases, result, table, q),
        x.astype(np.int8),
        (n, oh, ow, c),
    )


class Guarded:
    """Bytes right before a page that nobody may touch."""

    def __init__(self, data: Array) -> None:
        whole = -(-data.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.memory = mmap.mmap(-1, whole + mmap.PAGESIZE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(base + whole), mmap.PAGESIZE, 0) == 0
        self.bytes = np.frombuffer(self.memory, np.uint8, whole)
        self.bytes[:] = 77
        self.array = self.bytes[whole - data.nbytes :].view(data.dtype).reshape(data.shape)
        self.array[...] = data

    @property
    def untouched(self) -> bool:
        """Whether what lies before the data is as it was."""
        return bool((self.bytes[: self.bytes.size - self.array.nbytes] == 77).all())


def c_struct(struct: Struct) -> tuple[ctypes.Structure, list[Array]]:
    """A struct of numbers and tables as the C sees it, and what it points to."""
    kept = [Guarded(t.array).array for t in struct.fields.values() if isinstance(t, Table)]
    kinds = [(k, ctypes.c_void_p if isinstance(v, Table) else ctypes.c_int) for k, v in struct.fields.items()]
    made = type(struct.ctype, (ctypes.Structure,), {"_fields_": kinds})
    addresses = iter(kept)
    return made(*(next(addresses).ctypes.data if isinstance(v, Table) else v for v in struct.fields.values())), kept


def aligned(data: Array) -> Array:
    """At a multiple of 64, as weights are."""
    room = np.empty(data.nbytes + 64, np.uint8)
    out = room[-room.ctypes.data % 64 :][: data.nbytes]
    out[:] = data.reshape(-1).view(np.uint8)
    return out


def check(suffix: str, cpu: str, names: tuple[str, ...], folder: Path, count: int = 700) -> None:
    """Random layers, each in parts of one, two or three threads; every function has its turn."""
    variant = next(v for v in VARIANTS if v.name.endswith(suffix))
    functions = [f"ek_dwconv2d_{name}_s8_{suffix}" for name in names]
    header = f'#include "{suffix}/ek_dwconv2d_s8_{suffix}.h"\n'
    (folder / "dw.c").write_text(LAW + header + "".join(WRAPPER.format(name=f) for f in functions))
    compiler = Compiler.zig("x86_64-linux-gnu", "x86_64-linux-musl", cpu)
    compiler.compile(folder / "dw.c", [CSRC], folder / "dw.o")
    compiler.link_library([folder / "dw.o"], folder / "dw.so")
    library, core, used = ctypes.CDLL(str(folder / "dw.so")), Core("any", variant.isa), set[str]()
    rng, refused = np.random.default_rng(3), 0
    for _ in range(count):
        one = layer(rng)
        want = np.empty(one.shape, np.int8)
        p, q = (c_struct(s) for s in one.call.operands[4:6] if isinstance(s, Struct))
        w, bias = (t.array for t in one.call.operands[1:3] if isinstance(t, Table))
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (one.x, w, bias, want)]
        library.law(*pointers, ctypes.byref(p[0]), ctypes.byref(q[0]))
        found = variant.schedules(one.call, core)
        refused += not found
        for schedule in found:
            fast = variant.apply(one.call, core, schedule)
            units, struct = fast.operands[1], fast.operands[3]
            assert isinstance(units, Table)
            assert isinstance(struct, Struct)
            packed, (params, kept) = aligned(units.array), c_struct(struct)
            x, y, parts = Guarded(one.x), Guarded(np.zeros(one.shape, np.int8)), int(rng.integers(1, 4))
            for part in range(parts):
                addresses = [ctypes.c_void_p(a.ctypes.data) for a in (x.array, packed, y.array)]
                getattr(library, f"run_{fast.kernel}")(*addresses, ctypes.byref(params), part, parts)
            np.testing.assert_array_equal(y.array, want, err_msg=f"{fast.kernel} {dict(struct.fields)}")
            assert y.untouched, fast.kernel
            assert kept
            used.add(fast.kernel)
    assert used == set(functions)
    assert refused < count / 10


@pytest.mark.cc
@pytest.mark.skipif(not has("avx512_vnni"), reason="this processor has no AVX-512 VNNI")
def test_vnni(tmp_path: Path) -> None:
    check("vnni", "x86_64_v4+avx512vnni", (*ENTRIES, *SLIDES), tmp_path)


@pytest.mark.cc
@pytest.mark.skipif(not has("avx2"), reason="this processor has no AVX2")
def test_avx2(tmp_path: Path) -> None:
    check("avx2", "x86_64_v3", ENTRIES, tmp_path)
