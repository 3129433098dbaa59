"""Every variant of int8 depthwise convolution computes what the plain kernel does, bit for bit, and touches no byte
that is not its own, on random layers: edges, odd sizes, extremes of zero points, shifts and weights, dead channels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgec.emit.c import CSRC, CTYPES
from edgec.ir import KernelCall, Pointer, Scratch, Struct, Table, TensorType, Value
from edgec.schedule.cores import core
from edgec.schedule.kernels.dwconv2d import DOT, NEON, VARIANTS, Loops
from edgec.schedule.variant import Variant

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* n bytes right before a page that nobody may touch */
static unsigned char *guarded(size_t n) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (n + page - 1) / page * page;
    unsigned char *at = mmap(NULL, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + all, page, PROT_NONE)) exit(4);
    return at + all - n;
}

static __attribute__((noinline)) void law(const int8_t *x, const int8_t *w, const int32_t *b, int8_t *y,
                                          const ek_conv2d_t *p, const ek_requant_t *q) {
    ek_dwconv2d_s8(x, w, b, y, p, q);
}

int main(void) {
    uint32_t seed = 1;
    for (int c = 0; c < (int)(sizeof cases / sizeof *cases); c++) {
        const int nx = cases[c].nx, ny = cases[c].ny, scratch = cases[c].scratch;
        int8_t *x = (int8_t *)guarded((size_t)nx), *y = (int8_t *)guarded((size_t)ny), *z = malloc((size_t)ny);
        for (int i = 0; i < nx; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = c % 5 == 0 ? -128 : c % 5 == 1 ? (int8_t)(seed >> 31 ? 127 : -128) : (int8_t)(seed >> 24);
        }
        cases[c].law(x, z);
        for (int parts = 1; parts < 4; parts++) {
            unsigned char *m = guarded((size_t)scratch);
            memset(y, 77, (size_t)ny);
            for (int part = parts - 1; part >= 0; part--) {
                memset(m, 88, (size_t)scratch);
                cases[c].fast(x, y, m, part, parts);
            }
            if (memcmp(y, z, (size_t)ny)) printf("case %d in %d parts\n", c, parts);
        }
        free(z);
    }
    return 0;
}
"""


def layers(seed: int) -> Iterator[KernelCall]:
    """Random calls of the plain kernel."""
    rng = np.random.default_rng(seed)

    def one(*options: int) -> int:
        return int(rng.choice(options))

    while True:
        n, ih, iw = one(1, 1, 2), one(1, 2, 3, 5, 8, 13), one(1, 2, 4, 7, 12)
        ic, multiplier = one(1, 2, 3, 7, 8, 9, 12, 15, 16, 17, 24, 31, 40), one(1, 1, 1, 1, 2, 3, 8)
        square = rng.random() < 0.7
        kh, kw = (3, 3) if square else (one(1, 2, 3, 5, 6), one(1, 3, 4, 5))
        sh, sw = (one(1, 1, 2),) * 2 if square else (one(1, 2, 3), one(1, 2))
        dh, dw = (one(1, 1, 2, 4), one(1, 1, 1, 3)) if sh == 1 else (1, one(1, 1, 2))
        pt, pb, pl, pr = (one(0, 1, 1, 2, 3) for _ in range(4))
        oh, ow, oc = (
            (ih + pt + pb - (kh - 1) * dh - 1) // sh + 1,
            (iw + pl + pr - (kw - 1) * dw - 1) // sw + 1,
            ic * multiplier,
        )
        if min(oh, ow) < 1:
            continue
        most, w_zero = one(3, 60, 127, 128), one(0, 0, 0, 3, 76, -128, 127)
        w = rng.integers(-most, min(most, 127) + 1, (kh, kw, oc)) if rng.random() < 0.9 else np.full((kh, kw, oc), -128)
        multipliers, shift = rng.integers(1 << 30, 1 << 31, oc), rng.integers(-14, -5, oc)
        kind = rng.random()
        if kind < 0.2:
            shift = np.where(rng.random(oc) < 0.2, rng.integers(-3, 5, oc), shift)
        elif kind < 0.3:
            shift = rng.choice([-31, -24, -8, -1, 0, 1, 5], oc)
        dead = rng.random(oc) < 0.05
        multipliers[dead], shift[dead] = 0, 0
        low, high = sorted((one(-128, -128, -100, 0), one(127, 127, 6, 100)))
        y_zero = one(-128, -128, -3, 0, 127)
        shape = Struct(
            "ek_conv2d_t", n=n, ih=ih, iw=iw, ic=ic, oh=oh, ow=ow, oc=oc, kh=kh, kw=kw, sh=sh, sw=sw, dh=dh, dw=dw,
            pt=pt, pl=pl, group_ic=1,
        )  # fmt: skip
        requant = Struct(
            "ek_requant_t", x_zero=one(-128, -3, 0, 127), w_zero=w_zero, y_zero=y_zero, low=low, high=high,
            multiplier=Table(multipliers.astype(np.int32), "m"), shift=Table(shift.astype(np.int32), "s"),
        )  # fmt: skip
        x, y = (
            Value(name, TensorType(size, "int8")) for name, size in (("x", (n, ih, iw, ic)), ("y", (n, oh, ow, oc)))
        )
        bias = rng.integers(-30000, 30000, oc).astype(np.int32)
        yield KernelCall.of("ek_dwconv2d_s8", x, Table(w.astype(np.int8), "w"), Table(bias, "b"), y, shape, requant)


class Text:
    """Calls as C, their tables as arrays."""

    def __init__(self) -> None:
        self.arrays: list[str] = []

    def operand(self, x: object) -> str:
        """The expression of an operand."""
        if isinstance(x, Pointer):
            return x.value.name
        if isinstance(x, Table):
            name, values = f"t{len(self.arrays)}", ", ".join(map(str, x.array.reshape(-1)))
            self.arrays.append(f"static const {CTYPES[str(x.array.dtype)]} {name}[] = {{{values}}};\n")
            return name
        if isinstance(x, Struct):
            return f"&(const {x.ctype}){{{', '.join(f'.{k} = {self.operand(v)}' for k, v in x.fields.items())}}}"
        return "m" if isinstance(x, Scratch) else str(x)

    def function(self, name: str, call: KernelCall, kernel: str, parameters: str, last: str) -> str:
        """A function that makes the call."""
        operands = [self.operand(x) for x in call.operands]
        kept = operands[: len(operands) - (2 if last else 0)]
        return f"static void {name}({parameters}) {{ {kernel}({', '.join(kept)}{last}); }}\n"


def program(calls: list[KernelCall], variant: Variant, on: str, rng: np.random.Generator) -> str:
    """The C of all calls by the plain kernel and by a random schedule of the variant."""
    text, bodies, rows = Text(), [], []
    for i, call in enumerate(calls):
        found = variant.schedules(call, core(on))
        fast = variant.apply(
            call, core(on), {"columns": int(rng.choice([1, 3, 5]))} if rng.random() < 0.5 else found[0]
        )
        (scratch,) = (-(-x.nbytes // 64) * 64 for x in fast.operands if isinstance(x, Scratch))
        bodies.append(text.function(f"law{i}", call, "law", "const int8_t *x, int8_t *y", ""))
        parameters = "const int8_t *x, int8_t *y, void *m, int part, int parts"
        bodies.append(text.function(f"fast{i}", fast, fast.kernel, parameters, ", part, parts"))
        nx, ny = (p.value.type.size for p in call.operands if isinstance(p, Pointer))
        rows.append(f"{{law{i}, fast{i}, {nx}, {ny}, {scratch}}}")
    head, _, main = MAIN.partition("int main")
    includes, _, helpers = head.partition("/* n bytes")
    functions = "void (*law)(const int8_t *, int8_t *); void (*fast)(const int8_t *, int8_t *, void *, int, int)"
    case = f"static const struct {{ {functions}; int nx, ny, scratch; }} cases[]"
    parts = (
        includes,
        "/* n bytes",
        helpers,
        *text.arrays,
        *bodies,
        f"{case} = {{{', '.join(rows)}}};\n",
        "int main",
        main,
    )
    return "".join(parts)


@pytest.mark.cc
@pytest.mark.arm
@pytest.mark.parametrize(("loops", "on"), [(NEON, "cortex_a53"), (NEON, "cortex_a72"), (DOT, "cortex_a76")])
def test_computes_the_law(tmp_path: Path, loops: Loops, on: str) -> None:
    stream, rng = layers(11), np.random.default_rng(12)
    calls = [next(stream) for _ in range(400)]
    (variant,) = (v for v in VARIANTS if v.name.endswith(loops.suffix))
    used = {variant.apply(c, core(on), {"columns": 8}).kernel for c in calls}
    assert len(used) == 5  # 3x3 of stride 1 and 2, each saturating or not, and others
    source = tmp_path / "cases.c"
    header = f'#define _GNU_SOURCE\n#include "ek_conv2d.h"\n#include "{loops.suffix}/ek_dwconv2d_s8_{loops.suffix}.h"\n'
    source.write_text(header + program(calls, variant, on, rng))
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "aarch64-linux-musl",
        "-static",
        f"-mcpu={on}",
        "-std=c11",
    ]
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", str(source), "-o", str(tmp_path / "cases")]
    done = subprocess.run([*command, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    emulator = ["qemu-aarch64", "-cpu", on.replace("_", "-"), str(tmp_path / "cases")]
    done = subprocess.run(emulator, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "")
