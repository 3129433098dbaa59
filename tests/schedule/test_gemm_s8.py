"""Every tile of csrc/ek_gemm_s8.h computes the law, bit for bit: random layers, edges, odd sizes, extremes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgec.ir import Array
from edgec.ops.fixed_point import multiply_by_quantized_multiplier, round_half_away
from edgec.ops.window import pad_image, patches
from edgec.schedule.kernels import gemm_s8_dot
from edgec.schedule.kernels.gemm_s8 import Requant, Tile, Windows, fields, pack, walks, wrap
from tests.schedule.gemm_runner import Case, program, run

ZIG = ("python", "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static")


def law(c: Windows, x: Array, w: Array, bias: Array, q: Requant) -> Array:
    """What ek_conv2d_s8 and ek_fully_connected_s8 compute: image [n,ih,iw,ic], weights [o,kh,kw,depth]."""
    bottom = (c.oh - 1) * c.sh + (c.kh - 1) * c.dh + 1 - c.pt - c.ih
    pads = (c.pt, max(bottom, 0), c.pl, max(c.right, 0))
    image = pad_image(x.astype(np.float64) - q.x_zero, pads, 0)
    p = patches(image, (c.kh, c.kw), (c.sh, c.sw), (c.dh, c.dw))[:, : c.oh, : c.ow]
    per, sums = c.oc // c.groups, np.empty((c.n, c.oh, c.ow, c.oc))
    for g in range(c.groups):
        part = p[:, :, :, g * c.depth : (g + 1) * c.depth].transpose(0, 1, 2, 4, 5, 3).reshape(c.n, c.oh, c.ow, -1)
        rows = w[g * per : (g + 1) * per].astype(np.float64) - q.w_zero
        sums[..., g * per : (g + 1) * per] = part @ rows.reshape(per, -1).T
    acc = wrap(sums.astype(np.int64) + bias)
    if q.scale is not None:
        y = round_half_away(acc * q.scale) + q.y_zero
    else:
        assert q.multiplier is not None and q.shift is not None
        y = multiply_by_quantized_multiplier(acc, q.multiplier, q.shift).astype(np.int64) + q.y_zero
    return np.clip(y, q.low, q.high).astype(np.int8)


def layer(rng: np.random.Generator, flat: bool) -> Windows:
    """A convolution with the edges that matter: pads beyond the kernel, strides, dilation, groups, odd channels."""
    one = lambda *options: int(rng.choice(options))  # noqa: E731
    depth, oc = one(1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 24, 31, 32, 40, 52, 64), one(1, 2, 3, 7, 8, 9, 16, 17, 24, 30, 65)
    if flat:
        h, w = one(1, 1, 2, 7, 9), one(1, 2, 3, 7, 8, 13, 16)
        return Windows(one(1, 1, 2), h, w, depth, h, w, oc)
    groups = one(1, 1, 1, 2, 3)
    kh, kw, sh, sw, dh, dw = one(1, 2, 3, 3, 5), one(1, 2, 3, 3), one(1, 1, 2, 3), one(1, 1, 2), one(1, 1, 2, 4), one(1, 1, 3)
    pt, pb, pl, pr = (one(0, 0, 1, 2, 3) for _ in range(4))
    ih, iw = (kh - 1) * dh + one(1, 2, 5, 9), (kw - 1) * dw + one(1, 2, 7, 12)
    oh, ow = (ih + pt + pb - (kh - 1) * dh - 1) // sh + 1, (iw + pl + pr - (kw - 1) * dw - 1) // sw + 1
    return Windows(
        one(1, 1, 2), ih, iw, depth * groups, oh, ow, oc * groups, kh, kw, sh, sw, dh, dw, pt, pl, depth
    )  # fmt: skip


def requant(rng: np.random.Generator, oc: int, kind: str) -> Requant:
    """Zero points and multipliers; kinds: right shifts, dead channels, any shifts, a float64 scale."""
    zero = lambda: int(rng.choice([-128, -3, 0, 5, 127]))  # noqa: E731
    low, high = (int(v) for v in sorted(rng.choice([-128, -128, -100, -1, 0, 6, 100, 127, 127], 2)))
    base = Requant(zero(), int(rng.choice([0, -128, 3, 127])) if rng.random() < 0.4 else 0, zero(), low, high)
    if kind == "scale":
        return replace(base, scale=rng.choice([2.0**-9, 1e-3, 0.0, 0.01, 1.5 * 2**-8], oc))
    shift = rng.integers(-12, -5, oc)
    multiplier = rng.integers(1 << 30, 1 << 31, oc)
    multiplier[rng.random(oc) < 0.2] = 1 << 30
    if kind == "dead":
        for m, s in ((0, 0), (1 << 30, -30), (1300000000, -24), (2147483647, -23), (1 << 30, -31)):
            chosen = rng.random(oc) < 0.15
            multiplier[chosen], shift[chosen] = m, s
    if kind == "any":
        shift = rng.choice([-31, -8, -1, 0, 0, 1, 5, 30], oc)
    return replace(base, multiplier=multiplier.astype(np.int32), shift=shift.astype(np.int32))


def cases(tiles: Sequence[Tile], prefix: str, suffix: str, count: int, seed: int) -> tuple[list[Case], list[Array]]:
    """Random cases over tiles, layers and walks, and what each must give."""
    rng = np.random.default_rng(seed)
    out: list[Case] = []
    want: list[Array] = []
    while len(out) < count:
        c, tile = layer(rng, rng.random() < 0.4), tiles[rng.integers(len(tiles))]
        found = list(walks(c, tile, int(rng.choice([256, 4096, 32768])), 1 << 18))
        if not found:
            continue
        q = requant(rng, c.oc, str(rng.choice(["right", "right", "dead", "any", "scale"])))
        wide = bool(rng.random() < 0.3)
        x = rng.choice([-128, 127], (c.n, c.ih, c.iw, c.ic)) if wide else rng.integers(-128, 128, (c.n, c.ih, c.iw, c.ic))
        x = x.astype(np.int8)
        w = rng.integers(-128, 128, (c.oc, c.kh, c.kw, c.depth)).astype(np.int8)
        bias = rng.integers(-(1 << 31), 1 << 31, c.oc) if wide else rng.integers(-9000, 9000, c.oc)
        bias = bias.astype(np.int32)
        panels, size, finish = pack(c, w, bias, q, tile)
        walk = found[rng.integers(len(found))]
        if rng.random() < 0.3:
            walk = replace(walk, by_panels=1 - walk.by_panels)
        f = fields(c, q, tile, walk, size, finish)
        name = f"{prefix}_m{tile.mr}{'z' if q.w_zero else ''}_{suffix}"
        parts = int(rng.integers(1, 4))
        out.append(Case(name, f, x, panels, (c.n, c.oh, c.ow, c.oc), parts))
        want.append(law(c, x, w, bias, q))
    return out, want


def check(header: str, tiles: Sequence[Tile], suffix: str, folder: Path, compiler: Sequence[str],
          emulator: Sequence[str], count: int = 600) -> None:  # fmt: skip
    """All of a header's tiles agree with the law."""
    entries = [f"ek_gemm_s8_m{t.mr}{z}_{suffix}" for t in tiles for z in ("", "z")]
    exe = program(header, entries, folder, compiler)
    todo, want = cases(tiles, "ek_gemm_s8", suffix, count, 7)
    assert {c.fields["finish"] for c in todo} == {0, 1, 2}
    got = run([*emulator, str(exe)], entries, todo)
    for c, y, right in zip(todo, got, want, strict=True):
        np.testing.assert_array_equal(y, right, err_msg=f"{c.entry} {c.fields}")


@pytest.mark.cc
@pytest.mark.arm
def test_dot(tmp_path: Path) -> None:
    compiler = (*ZIG, "-mcpu=cortex_a76")
    emulator = ("qemu-aarch64", "-cpu", "cortex-a76")
    check("dot/ek_gemm_s8_dot.h", gemm_s8_dot.TILES, "dot", tmp_path, compiler, emulator)
