"""Running the C of many graphs on a core: one program for all, on this machine or under an emulator."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from edgec_runtime.manifest import MAX_THREADS

from edgec.emit.c import CSRC, CSource, segment_source
from edgec.ir import Array, Graph
from edgec.schedule.cores import core
from tests import builds

DECLARED = re.compile(r"^(?:static const \w+|EK_OP void|    (?=\w+ = \d+,)) ?(\w+)", re.MULTILINE)
"""The names that a generated file has for itself: its constants, functions and offsets."""

ZIG = (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static", "-fno-sanitize=all")
BUILDS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "cortex_a53": ((*ZIG, "-mcpu=cortex_a53"), ("qemu-aarch64", "-cpu", "cortex-a53")),
    "cortex_a76": ((*ZIG, "-mcpu=cortex_a76"), ("qemu-aarch64", "-cpu", "cortex-a76")),
    "x86_64_v3": (("gcc", "-march=x86-64-v3"), ()),
    "x86_64_v4_vnni": (("gcc", "-march=x86-64-v4", "-mavx512vnni"), ()),
}
"""The compiler of each core, and its emulator."""

_C = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-ffp-contract=off")

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int run_t(RUN_ON void *, const void *, const void *const *, void *const * MARKS);
static run_t *const runs[] = {RUNS};
GIVEN

static int next(void) {
    int v;
    if (fread(&v, sizeof v, 1, stdin) != 1) exit(3);
    return v;
}

/* n bytes right before a page that nobody may touch, or from the begin of a line of 64 bytes */
static unsigned char *guarded(size_t n, int line) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (n + page - 1) / page * page;
    unsigned char *at = mmap(NULL, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + all, page, PROT_NONE)) exit(4);
    return at + (all - n) / (line ? 64 : 1) * (line ? 64 : 1);
}

int main(void) {
    const int count = next();
    START
    for (int i = 0; i < count; i++) {
        const int inputs = next(), outputs = next();
        const size_t arena = (size_t)next(), weights = (size_t)next();
        void *in[8], *out[8];
        size_t bytes[8];
        for (int k = 0; k < inputs; k++) {
            const size_t n = (size_t)next();
            in[k] = guarded(n, 0);
            if (fread(in[k], 1, n, stdin) != n) exit(5);
        }
        for (int k = 0; k < outputs; k++) {
            bytes[k] = (size_t)next();
            out[k] = memset(guarded(bytes[k], 0), 77, bytes[k]);
        }
        unsigned char *w = guarded(weights, 1);
        if (fread(w, 1, weights, stdin) != weights) exit(6);
        if (runs[i](FIRST memset(guarded(arena, 1), 88, arena), w, (const void *const *)in, out LAST)) exit(7);
        for (int k = 0; k < outputs; k++)
            if (fwrite(out[k], 1, bytes[k], stdout) != bytes[k]) exit(8);
    }
    return 0;
}
"""


ALONE = {"RUN_ON": "", "MARKS": "", "GIVEN": "", "START": "", "FIRST": "", "LAST": ""}
IN_PARTS = {
    "RUN_ON": "ek_threads *,",
    "MARKS": ", void (*)(void *, int), void *",
    "GIVEN": """
/* the last part first, so that none can count on another */
static void in_turn(ek_threads *t, ek_work *work, const void *run) {
    for (int part = t->parts - 1; part >= 0; part--) work(run, part, t->parts);
}
static ek_threads threads = {.share = in_turn};
""",
    "START": "threads.parts = next();",
    "FIRST": "&threads,",
    "LAST": ", NULL, NULL",
}
"""What MAIN has in place of these words: for one thread; for several, whose parts run one after the other."""


def run_on(
    name: str, graphs: Sequence[Graph], inputs: Sequence[Mapping[str, Array]], parts: int = 0
) -> list[dict[str, Array]]:
    """The outputs of every graph by the C for the core of that name. parts: into so many every call that can be is
    split, however small; 0: by code for one thread."""
    return run_built(name, graphs, inputs, BUILDS[name][0], parts)


def run_built(
    name: str,
    graphs: Sequence[Graph],
    inputs: Sequence[Mapping[str, Array]],
    command: Sequence[str],
    parts: int = 0,
    flags: Sequence[str] = ("-O1",),
) -> list[dict[str, Array]]:
    """The same, built by some compiler with these flags beside those that say what the C is."""
    text, sources = program_text(name, graphs, parts > 0)
    key = " ".join((*command, *flags)) + text
    folder = builds.once(key, lambda into: _build(text, into, (*command, *_C, *flags)))
    data = bytearray(struct.pack("<i", len(graphs)) + (struct.pack("<i", parts) if parts else b""))
    for graph, source, given in zip(graphs, sources, inputs, strict=True):
        data += struct.pack("<4i", len(graph.inputs), len(graph.outputs), source.plan.size, len(source.weights.data))
        for v in graph.inputs:
            x = np.ascontiguousarray(given[v.name])
            data += struct.pack("<i", x.nbytes) + x.tobytes()
        data += struct.pack(f"<{len(graph.outputs)}i", *(v.type.nbytes for v in graph.outputs)) + source.weights.data
    done = subprocess.run(
        [*BUILDS[name][1], str(folder / "cases")], input=bytes(data), capture_output=True, timeout=600
    )
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr.decode()}"
    return list(_outputs(graphs, done.stdout))


def program_text(name: str, graphs: Sequence[Graph], threaded: bool) -> tuple[str, list[CSource]]:
    """The program of all graphs, and their C."""
    on = replace(core(name), threads=MAX_THREADS, barrier=0) if threaded else core(name)
    sources = [segment_source(g, f"seg{i}", on) for i, g in enumerate(graphs)]
    words = IN_PARTS if threaded else ALONE
    ends = ", ".join(f"edgec_{s.name}_run{'_on' if threaded else ''}" for s in sources)
    main = re.sub(r"\b(RUNS|RUN_ON|MARKS|GIVEN|START|FIRST|LAST)\b", lambda m: {**words, "RUNS": ends}[m[1]], MAIN)
    return _text(sources) + main, sources


def _outputs(graphs: Sequence[Graph], data: bytes) -> list[dict[str, Array]]:
    found: list[dict[str, Array]] = []
    at = 0
    for graph in graphs:
        found.append({})
        for v in graph.outputs:
            found[-1][v.name] = np.frombuffer(data, v.type.np_dtype, v.type.size, at).reshape(v.type.shape)
            at += v.type.nbytes
    return found


def _text(sources: Sequence[CSource]) -> str:
    """One file of all, that follow each other as they are: the preprocessor gives the names of each an end."""
    text = ["#define _GNU_SOURCE\n", *(f'#include "{h}"\n' for h in sorted({h for s in sources for h in s.headers}))]
    for source in sources:
        names = sorted(set(DECLARED.findall(source.text)))
        text += [f"#define {name} {name}_of_{source.name}\n" for name in names]
        text += [source.text, *(f"#undef {name}\n" for name in names)]
    return "".join(text)


def _build(text: str, folder: Path, command: Sequence[str]) -> None:
    (folder / "cases.c").write_text(text)
    files = [f"-I{CSRC}", str(folder / "cases.c"), "-lm", "-o", str(folder / "cases")]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
