"""Bundles with known times: segments that wait, and a real bundle that is slower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import edgec_runtime
import numpy as np
from edgec_devices.boards import Board
from edgec_runtime import Bundle, write_bundle
from edgec_runtime.session.session import machine_target

import edgec
from edgec.compiler.build import compilers_for
from edgec.emit.program import ModelTable, SegmentEntry
from edgec.ir import TensorType
from edgec.schedule.cores import cores_of
from edgec.toolchain.build import build

CSRC = Path(edgec_runtime.__file__).parent / "csrc"

_BINARIES = (("lib", "libmodel.so"), ("bin", "main"))
_PERIOD = 33
_GOLDEN = 0x9E3779B9
"""2^32 over the golden ratio: its multiples fill a range evenly, whatever part of the
sequence is looked at.
"""

_CLOCK = """#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(%s, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
"""

_WAITING = """
typedef void mark_fn(void *, int);
int edgec_wait_run(void *arena, const void *weights, const void *const *in, void *const *out);
int edgec_wait_profile(void *arena, const void *weights, const void *const *in, void *const *out, mark_fn *mark,
                       void *context);

int edgec_wait_run(void *arena, const void *weights, const void *const *in, void *const *out)
{
    static uint32_t i;
    uint64_t end = now_ns() + wait_ns(i++);
    (void)arena, (void)weights;
    ((signed char *)out[0])[0] = ((const signed char *)in[0])[0];
    while (now_ns() < end) {}
    return 0;
}

int edgec_wait_profile(void *arena, const void *weights, const void *const *in, void *const *out, mark_fn *mark,
                       void *context)
{
    mark(context, 0);
    int code = edgec_wait_run(arena, weights, in, out);
    mark(context, 1);
    return code;
}
"""

_SLOWED = """
int edgec_{name}_plain(void *arena, const void *weights, const void *const *in, void *const *out);
int edgec_{name}_run(void *arena, const void *weights, const void *const *in, void *const *out);

int edgec_{name}_run(void *arena, const void *weights, const void *const *in, void *const *out)
{{
    uint64_t start = now_ns();
    int code = edgec_{name}_plain(arena, weights, in, out);
    uint64_t end = start + (uint64_t)((double)(now_ns() - start) * {factor:.6f});
    while (now_ns() < end) {{}}
    return code;
}}
"""


def one_wait(path: Path, ms: float) -> Path:
    """Write a bundle of one segment that waits, and return its path."""
    return _waiting(path, f"(void)i;\n    return {round(ms * 1e6)}u;")


def known_waits(path: Path) -> tuple[Path, list[float]]:
    """Write a bundle that waits for 2 to 3 ms, evenly, but 8 ms every 33rd inference.

    Returns:
        its path, and the times in ms of many periods
    """
    jitter_ns = f"(uint32_t)((uint64_t)(i * {_GOLDEN}u) * 1000000u >> 32)"
    body = f"return i % {_PERIOD} == 0 ? 8000000u : 2000000u + {jitter_ns};"
    i = np.arange(_PERIOD * 1000, dtype=np.uint64)
    jitter = (i * _GOLDEN % 2**32).astype(np.float64) / 2**32
    return _waiting(path, body), np.where(i % _PERIOD == 0, 8.0, 2.0 + jitter).tolist()


def slowed(bundle: Path, path: Path, factor: float) -> Path:
    """Write a bundle whose segments take `factor` times as long, and return its path.

    After its work a segment keeps the processor, by the clock of the processor's time, so
    that it is as much slower on a busy machine. The C is the bundle's own with other names
    of the entry points.
    """
    with Bundle.open(bundle) as opened:
        segments = opened.manifest.segments
        here = f"src/{machine_target()}/"
        sources = {
            n.removeprefix(here): opened.read(n).decode()
            for n in opened.names
            if n.startswith(here) and n.endswith(".c")
        }
        for s in segments:
            if f"{s.name}.c" in sources:
                sources[f"{s.name}.c"] = sources[f"{s.name}.c"].replace(
                    f"edgec_{s.name}_run(", f"edgec_{s.name}_plain("
                )
            else:  # the model's table chooses among cores
                entry = f"\nint edgec_{s.name}_run("
                plain = f"\nint edgec_{s.name}_plain("
                sources["model.c"] = sources["model.c"].replace(entry, plain)
            sources[f"{s.name}_slowed.c"] = (
                _CLOCK % "CLOCK_PROCESS_CPUTIME_ID"
                + _SLOWED.format(name=s.name, factor=factor)
            )
        manifest = opened.manifest_fields()
        files = {name: opened.read(name) for name in opened.names}
    board = Board.load("host")
    cores = [core for target in board.targets for core in cores_of(board, target)]
    flags = {f"{s.name}_{core.name}.c": core.flags for s in segments for core in cores}
    return _write(path, manifest, sources, files, flags)


def _waiting(path: Path, body: str) -> Path:
    """Write a bundle; `body` is that of a C function from inference i to its ns."""
    segment = (
        f"{_CLOCK % 'CLOCK_MONOTONIC'}\nstatic uint32_t wait_ns(uint32_t "
        f"i)\n{{\n    {body}\n}}\n{_WAITING}"
    )
    tensors = {name: TensorType((1,), "int8") for name in ("x", "y")}
    entry = SegmentEntry("wait", "cpu", ("x",), ("y",), 64, 1)
    sources = {
        "wait.c": segment,
        "model.c": ModelTable("wait", tensors, [entry], ["x"], ["y"]).source(),
    }
    manifest = {
        "edgec": edgec.__version__,
        "name": path.stem,
        "target": "host",
        "board": "host",
        "inputs": ["x"],
        "outputs": ["y"],
        "tensors": {
            name: {"shape": [1], "dtype": "|i1", "quant": None} for name in tensors
        },
        "segments": [
            {
                "name": "wait",
                "place": "cpu",
                "inputs": ["x"],
                "outputs": ["y"],
                "arena": 64,
                "macs": 0,
            }
        ],
        "labels": None,
        "preprocess": {},
        "toolchain": {},
        "verification": {},
    }
    return _write(path, manifest, sources, {}, {})


def _write(
    path: Path,
    manifest: Mapping[str, Any],
    sources: Mapping[str, str],
    files: Mapping[str, bytes],
    flags: Mapping[str, Sequence[str]],
) -> Path:
    """Compile the sources for this machine, and write the bundle."""
    compilers = compilers_for(Board.load("host"), None)
    made = build(dict.fromkeys(compilers, sources), CSRC, compilers, flags=flags)
    libraries, programs = (
        {t: f"{kind}/{t}/{name}" for t in made} for kind, name in _BINARIES
    )
    binaries = {libraries[t]: b.library for t, b in made.items()} | {
        programs[t]: b.program for t, b in made.items()
    }
    write_bundle(
        path,
        {**manifest, "libraries": libraries, "programs": programs},
        {**files, **binaries},
    )
    return path
