"""A model small enough to be written by hand: what the compiler would emit for it, and
numpy's answer.

    image u8 (1,4,4,3) → shift (cpu) → q i8 → relu (edgetpu) → r i8 → mix (cpu, also reads image)
        → out f32, sums i32

It is built with zig for ARM and with the machine's own compiler, or zig, for this
machine.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime.device_end.bundles import WEIGHTS_FILE, machine_target
from numpy.typing import NDArray

from tests import builds

CSRC = Path(__file__).resolve().parents[2] / "runtime" / "edgec_runtime" / "csrc"
SHAPE = (1, 4, 4, 3)
N = 48
SCALE = 0.5
ZERO = -28
WARNINGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror")
ARM_TARGETS = {
    "linux-aarch64": ("aarch64-linux-musl", "cortex_a72"),
    "linux-armv7": ("arm-linux-musleabihf", "cortex_a53"),
}
RAW: dict[str, Any] = {
    "range": "raw",
    "mean": [0],
    "std": [1],
    "color": "rgb",
    "resize": "stretch",
    "crop": 1,
    "fill": [114],
    "position": "center",
    "filter": "bilinear",
    "layout": "nhwc",
    "given": None,
    "metadata": None,
}

GRAPH = "7" * 64
WEIGHTS = bytes([0x80]) * 48 + bytes(16) + np.int8(ZERO).tobytes()
"""What shift flips, and from 64 on relu's lower bound."""

SOURCES = {
    "shift.c": """#include <stdint.h>
int edgec_shift_run(void *arena, const void *weights, const void *const *in, void *const *out);
int edgec_shift_run(void *arena, const void *weights, const void *const *in, void *const *out)
{
    uint8_t *scratch = arena;
    const uint8_t *x = in[0], *flip = weights;
    int8_t *y = out[0];
    for (int i = 0; i < 48; i++) scratch[i] = (uint8_t)(x[i] ^ flip[i]);
    for (int i = 0; i < 48; i++) y[i] = (int8_t)scratch[i];
    return 0;
}
""",
    "relu.c": """#include <stdint.h>
int edgec_relu_run(void *arena, const void *weights, const void *const *in, void *const *out);
int edgec_relu_run(void *arena, const void *weights, const void *const *in, void *const *out)
{
    (void)arena;
    const int8_t *x = in[0], *low = (const int8_t *)weights + 64;
    int8_t *y = out[0];
    for (int i = 0; i < 48; i++) y[i] = x[i] < *low ? *low : x[i];
    return 0;
}
""",
    "mix.c": """#include <stdint.h>
int edgec_mix_run(void *arena, const void *weights, const void *const *in, void *const *out)
{
    (void)arena, (void)weights;
    const int8_t *r = in[0];
    const uint8_t *image = in[1];
    float *y = out[0];
    int32_t *sums = out[1], n = 0;
    for (int i = 0; i < 48; i++) y[i] = 0.5f * (float)(r[i] + 28) + (float)image[i], n += r[i];
    sums[0] = n;
    return n == 48 * 127 ? 7 : 0; /* an image that is all white fails on purpose */
}
""",
    "profile.c": """typedef void mark_fn(void *, int);
int edgec_mix_run(void *arena, const void *weights, const void *const *in, void *const *out);
int edgec_mix_profile(void *arena, const void *weights, const void *const *in, void *const *out, mark_fn *mark,
                      void *context);
int edgec_mix_profile(void *arena, const void *weights, const void *const *in, void *const *out, mark_fn *mark,
                      void *context)
{
    mark(context, 0);
    mark(context, 1);
    int code = edgec_mix_run(arena, weights, in, out);
    mark(context, 2);
    return code;
}
""",
    "edgec_model.c": """#include "ek_model.h"
typedef void mark_fn(void *, int);
int edgec_shift_run(void *arena, const void *weights, const void *const *in, void *const *out);
int edgec_relu_run(void *arena, const void *weights, const void *const *in, void *const *out);
int edgec_mix_run(void *arena, const void *weights, const void *const *in, void *const *out);
int edgec_mix_profile(void *arena, const void *weights, const void *const *in, void *const *out, mark_fn *mark,
                      void *context);
#ifdef EK_PROGRAM
static _Alignas(64) unsigned char t0[48], t1[48], t2[48], t3[192], t4[4], SCRATCH[64];
#else
#define t0 NULL
#define t1 NULL
#define t2 NULL
#define t3 NULL
#define t4 NULL
#define SCRATCH NULL
#endif
static const ek_tensor tensors[] = {
    { "image", "|u1", 4, { 1, 4, 4, 3 }, 48, t0 },  { "q", "|i1", 4, { 1, 4, 4, 3 }, 48, t1 },
    { "r", "|i1", 4, { 1, 4, 4, 3 }, 48, t2 },      { "out", "<f4", 4, { 1, 4, 4, 3 }, 192, t3 },
    { "sums", "<i4", 1, { 1 }, 4, t4 },
};
static const int i0[] = { 0 }, i1[] = { 1 }, i2[] = { 2 }, i20[] = { 2, 0 }, i34[] = { 3, 4 };
static const ek_segment segments[] = {
    { "shift", "cpu", 1, 1, i0, i1, 64, SCRATCH, edgec_shift_run, 0, NULL, NULL },
    { "relu", "edgetpu", 1, 1, i1, i2, 0, NULL, edgec_relu_run, 0, NULL, NULL },
    { "mix", "cpu", 2, 2, i20, i34, 0, NULL, edgec_mix_run, 2, edgec_mix_profile, NULL },
};
const ek_model edgec_model = {
    "tiny", 5, tensors, 3, segments, 1, 2, i0, i34, 65, WEIGHTS_CRC32, 1, NULL, NULL, 0, NULL, "GRAPH", 0
};
#ifndef EK_PROGRAM
const char edgec_made_for[] = MADE_FOR;
#endif
""",
}

Array = NDArray[Any]


def reference(image: Array) -> dict[str, Array]:
    """numpy's answer."""
    r = np.maximum(image.astype(np.int32) - 128, ZERO)
    out = np.float32(SCALE) * (r - ZERO).astype(np.float32) + image.astype(np.float32)
    return {"out": out, "sums": np.array([r.sum()], np.int32)}


def image(seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, SHAPE, np.uint8)


def manifest() -> dict[str, Any]:
    """Without libraries and programs, which a test adds when it has built them."""
    quant = {"scale": [SCALE], "zero_point": [ZERO], "axis": None}
    return {
        "edgec": "0.1.0",
        "name": "tiny",
        "target": "pi4+coral",
        "board": "pi4",
        "inputs": ["image"],
        "outputs": ["out", "sums"],
        "tensors": {
            "image": {
                "shape": list(SHAPE),
                "dtype": "|u1",
                "quant": {"scale": [1.0], "zero_point": [0], "axis": None},
            },
            "q": {"shape": list(SHAPE), "dtype": "|i1", "quant": quant},
            "r": {"shape": list(SHAPE), "dtype": "|i1", "quant": quant},
            "out": {"shape": list(SHAPE), "dtype": "<f4", "quant": None},
            "sums": {"shape": [1], "dtype": "<i4", "quant": None},
        },
        "segments": [
            {
                "name": "shift",
                "place": "cpu",
                "inputs": ["image"],
                "outputs": ["q"],
                "arena": 64,
                "macs": 0,
            },
            {
                "name": "relu",
                "place": "edgetpu",
                "inputs": ["q"],
                "outputs": ["r"],
                "est_ms": 0.25,
            },
            {
                "name": "mix",
                "place": "cpu",
                "inputs": ["r", "image"],
                "outputs": ["out", "sums"],
                "macs": 48,
            },
        ],
        "libraries": {},
        "programs": {},
        "weights": {},
        "labels": None,
        "preprocess": {"image": RAW},
        "graph": GRAPH,
        "toolchain": {"cc": "test"},
        "verification": {},
    }


def made_for(m: dict[str, Any]) -> str:
    """What a library says that was made for this manifest (docs/bundle.md)."""
    return json.dumps(
        {
            **{key: m[key] for key in ("inputs", "outputs", "graph")},
            "tensors": {
                name: [t["dtype"], t["shape"]] for name, t in m["tensors"].items()
            },
            "segments": {
                s["name"]: [s.get("arena", 0), s["inputs"], s["outputs"]]
                for s in m["segments"]
            },
            "weights": [len(WEIGHTS), zlib.crc32(WEIGHTS)],
            "threads": 1,
            "state": [],
        }
    )


def write_sources(folder: Path, told: dict[str, Any] | None = None) -> list[Path]:
    """told: the manifest that the library says it was made for; default is manifest()."""
    said = json.dumps(made_for(told or manifest()))
    for name, text in SOURCES.items():
        text = text.replace("WEIGHTS_CRC32", f"0x{zlib.crc32(WEIGHTS):08x}u")
        (folder / name).write_text(
            text.replace("MADE_FOR", said).replace('"GRAPH"', f'"{GRAPH}"')
        )
    return [folder / name for name in SOURCES]


@lru_cache(maxsize=1)
def host_cc() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def _here() -> list[str]:
    """A compiler for this machine."""
    cc = host_cc()
    return [cc] if cc else [*builds.ZIG]


def _build(
    command: list[str],
    name: str,
    more: Sequence[Path] = (),
    told: dict[str, Any] | None = None,
) -> Path:
    """What a command makes of the sources: once a run, however many tests want it."""

    def make(folder: Path) -> None:
        builds.program(command, [*write_sources(folder, told), *more], folder / name)

    return (
        builds.once(repr((command, SOURCES, WEIGHTS, told or manifest())), make) / name
    )


def build_library(folder: Path, told: dict[str, Any] | None = None) -> Path:
    """libmodel.so for this machine.  told: the manifest that it says it was made for;
    default is manifest().
    """
    built = _build(
        [*_here(), *WARNINGS, "-I", str(CSRC), "-shared", "-fPIC"],
        "libmodel.so",
        told=told,
    )
    return Path(shutil.copy(built, folder))


def build_program(folder: Path, target: str | None = None) -> Path:
    """The bench program, for this machine or statically for an ARM target; its weights
    are beside it.
    """
    if target is not None:
        triple, cpu = ARM_TARGETS[target]
        cc = [*builds.ZIG, "-target", triple, f"-mcpu={cpu}"]
    else:
        cc = _here()
    built = _build(
        [*cc, *WARNINGS, "-DEK_PROGRAM", "-I", str(CSRC)], "main", [CSRC / "main.c"]
    )
    (folder / WEIGHTS_FILE).write_bytes(WEIGHTS)
    return Path(shutil.copy(built, folder))


def parts(
    library: Path | None = None, programs: dict[str, Path] | None = None
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What write_bundle wants: the manifest and the files."""
    m = manifest()
    files = {"src/mix.c": SOURCES["mix.c"].encode()}
    if library is not None:
        name = f"lib/{machine_target()}/libmodel.so"
        m["libraries"][machine_target()] = name
        files[name] = library.read_bytes()
    for target, program in (programs or {}).items():
        m["programs"][target] = f"bin/{target}/main"
        files[f"bin/{target}/main"] = program.read_bytes()
    for target in {*m["libraries"], *m["programs"]}:
        use_weights(m, files, target)
    return m, files


def use_weights(m: dict[str, Any], files: dict[str, bytes], target: str) -> None:
    """The target's code has its weights."""
    m["weights"][target] = WEIGHTS_FILE
    files[WEIGHTS_FILE] = WEIGHTS
