"""Many samples as one graph, compiled for one core and run there, under qemu where the core is an Arm one."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from edgec.emit.c import CSRC, segment_source
from edgec.ir import Array, Builder, Graph, Sample
from edgec.schedule.cores import core
from edgec.toolchain.cc import Compiler
from tests.harness import random_array

QEMU_CPU = {"cortex_a53": "cortex-a53", "cortex_a72": "cortex-a72", "cortex_a76": "neoverse-n1"}
"""qemu's model of each Arm core; the Neoverse N1 is the Cortex-A76 of servers."""
SANITIZED = "sanitized"
"""This machine with AVX2, each tensor in memory of its own, under the address and undefined behaviour sanitizers."""

_MAIN = """
#include <stdio.h>
#include <stdlib.h>
static void *get(size_t n, const char *path) {{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (f && fread(p, 1, n, f) != n) exit(2);
    if (f) fclose(f);
    return p;
}}
int main(void) {{
    static const size_t in_size[] = {{{in_sizes}}}, out_size[] = {{{out_sizes}}};
    void *in[{n_in}], *out[{n_out}], *arena = get({arena}, NULL), *weights = get({weights_size}, "{weights}");
    FILE *f = fopen("{inputs}", "rb"), *g = fopen("{outputs}", "wb");
    for (int i = 0; i < {n_in}; i++)
        if (in[i] = malloc(in_size[i]), fread(in[i], 1, in_size[i], f) != in_size[i]) exit(2);
    for (int i = 0; i < {n_out}; i++) out[i] = malloc(out_size[i]);
    if (edgec_batch_run(arena, weights, (const void *const *)in, out)) return 1;
    for (int i = 0; i < {n_out}; i++) fwrite(out[i], 1, out_size[i], g);
    fclose(f), fclose(g);
    return 0;
}}
"""


def batch(samples: Iterable[Sample], seed: int = 0) -> tuple[Graph, dict[str, Array]]:
    """One graph of all samples, each by itself, and random inputs."""
    rng, build = np.random.default_rng(seed), Builder("batch")
    inputs: dict[str, Array] = {}
    for i, sample in enumerate(samples):
        values = []
        for j, arg in enumerate(sample.args):
            data = arg.data if arg.data is not None else random_array(arg.type, rng)
            if arg.const:
                values.append(build.const(data, f"c{i}_{j}", arg.type.quant))
            else:
                values.append(build.input(f"x{i}_{j}", arg.type))
                inputs[values[-1].name] = data
        outputs = build.add_multi(sample.spec, values, f"y{i}_{sample.label}")
        for y in outputs:
            if sample.output_quant is not None:
                y.type = y.type.with_quant(sample.output_quant)
        build.graph.outputs += outputs
    return build.graph, inputs


def run_on(graph: Graph, inputs: dict[str, Array], name: str, tmp: Path, parts: int = 1) -> dict[str, Array]:
    """The outputs of the graph's C for a core (or SANITIZED), each call in so many parts, the last one first."""
    of = "x86_64_v3" if name == SANITIZED else name
    source = segment_source(graph, "batch", core(of), all_text=name == SANITIZED)
    files = {k: tmp / f"{k}.bin" for k in ("inputs", "outputs", "weights")}
    files["inputs"].write_bytes(b"".join(np.ascontiguousarray(inputs[v.name]).tobytes() for v in graph.inputs))
    files["weights"].write_bytes(source.weights.data or b"\0")
    main = _MAIN.format(
        **files,
        in_sizes=", ".join(str(v.type.nbytes) for v in graph.inputs),
        out_sizes=", ".join(str(v.type.nbytes) for v in graph.outputs),
        n_in=len(graph.inputs),
        n_out=len(graph.outputs),
        arena=source.plan.size or 1,
        weights_size=len(source.weights.data) or 1,
    )
    each = rf"for (int part = {parts} - 1; part >= 0; part--) \1, part, {parts});"
    (tmp / "batch.c").write_text(re.sub(r"(ek_\w+_simd\(.*), 0, 1\);", each, source.text) + main)
    _build_and_run(tmp, "batch", name)
    return _split(files["outputs"].read_bytes(), graph)


def _build_and_run(tmp: Path, stem: str, name: str) -> None:
    compiler, flags = _compiler("x86_64_v3" if name == SANITIZED else name, name == SANITIZED)
    compiler.compile(tmp / f"{stem}.c", [CSRC], tmp / f"{stem}.o", flags)
    compiler.link_program([tmp / f"{stem}.o"], tmp / stem)
    emulator = ["qemu-aarch64", "-cpu", QEMU_CPU[name]] if name in QEMU_CPU else []
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # it ends with its tensors
    done = subprocess.run([*emulator, str(tmp / stem)], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]


_TRIED = """
int main(void) {{
    static float x[{n}], y[{n}];
    FILE *f = fopen("{inputs}", "rb"), *g = fopen("{outputs}", "wb");
    if (fread(x, sizeof(float), {n}, f) != {n}) return 2;
    void (*const tried[])(const float *, float *, int) = {{{functions}}};
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) tried[i](x, y, {n}), fwrite(y, sizeof(float), {n}, g);
    return fclose(g);
}}
"""


def run_text(text: str, functions: Sequence[str], x: Array, name: str, tmp: Path) -> list[Array]:
    """The result of each of a C text's functions (x, y, n) of floats on a core."""
    inputs, outputs = tmp / "x.bin", tmp / "y.bin"
    inputs.write_bytes(x.tobytes())
    main = _TRIED.format(n=x.size, inputs=inputs, outputs=outputs, functions=", ".join(functions))
    (tmp / "tried.c").write_text(text + main)
    _build_and_run(tmp, "tried", name)
    return list(np.fromfile(outputs, np.float32).reshape(len(functions), -1))


def _compiler(name: str, sanitized: bool) -> tuple[Compiler, list[str]]:
    if sanitized:
        checks = "-fsanitize=address,undefined"
        flags = ["-O1", "-march=x86-64-v3", "-fno-sanitize-recover=all", checks]
        return Compiler(("gcc",), program=(checks,)), flags
    target = f"{'aarch64' if name in QEMU_CPU else 'x86_64'}-linux-musl"
    cpu = "x86_64_v3" if name.startswith("x86") else name
    return Compiler.zig(target, target, cpu), ["-O1", *core(name).flags]


def _split(data: bytes, graph: Graph) -> dict[str, Array]:
    at, found = 0, {}
    for v in graph.outputs:
        found[v.name] = np.frombuffer(data, v.type.np_dtype, v.type.size, at).reshape(v.type.shape)
        at += v.type.nbytes
    return found
