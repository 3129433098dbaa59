"""Running the C of many graphs on a core: one program for all, on this machine or under
an emulator.

Every tensor lies at the end of its pages or at their begin, between pages that nobody
may touch.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from edgec_runtime.bundle.manifest import MAX_THREADS

from edgec.emit.c import CSRC, CSource, Text, segment_source
from edgec.ir import Array, Graph, KernelCall, Scratch
from edgec.ir.c_structs import GemmS8Params
from edgec.schedule.cores import Core, core
from edgec.schedule.steps import DEFAULT
from edgec.schedule.variant import Choose, Rules, Schedule, Variant
from tests import builds
from tests.harness import NAN, inclusions

PORTS = 8
"""Inputs and outputs of a graph, at most."""

SANITIZED = {
    "sanitized": "x86_64_v3",
    "sanitized_vnni": "x86_64_v4_vnni",
    "sanitized_a53": "cortex_a53",
    "sanitized_a72": "cortex_a72",
    "sanitized_a76": "cortex_a76",
}
"""Cores under sanitizers, and their names without: for addresses and undefined
behaviour here, where all constants are arrays of the C; for undefined behaviour alone
where QEMU runs the code, whose guards see addresses.
"""

_ALL_IN_ARENA = "-DEK_GEMM_STACK=1"
_ZIG = (*builds.ZIG, "-O1", _ALL_IN_ARENA)
_PLAIN = ("-fno-sanitize=all",)
_TRAPS = ("-fsanitize=undefined", "-fsanitize-trap=undefined")
_ARM = (*_ZIG, "-target", "aarch64-linux-musl")
_X86 = (*_ZIG, *_PLAIN, "-target", "x86_64-linux-musl")
_ASAN = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1")
_VNNI = ("-march=x86-64-v4", "-mavx512vnni")
BUILDS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "cortex_a53": (
        (*_ARM, *_PLAIN, "-mcpu=cortex_a53"),
        ("qemu-aarch64", "-cpu", "cortex-a53"),
    ),
    # QEMU has a Cortex-A55 since 8.1.
    "cortex_a55": (
        (*_ARM, *_PLAIN, "-mcpu=cortex_a55"),
        ("qemu-aarch64", "-cpu", "max"),
    ),
    "cortex_a72": (
        (*_ARM, *_PLAIN, "-mcpu=cortex_a72"),
        ("qemu-aarch64", "-cpu", "cortex-a72"),
    ),
    "cortex_a76": (
        (*_ARM, *_PLAIN, "-mcpu=cortex_a76"),
        ("qemu-aarch64", "-cpu", "cortex-a76"),
    ),
    "x86_64_v3": ((*_X86, "-mcpu=x86_64_v3"), ()),
    "x86_64_v4_vnni": ((*_X86, "-mcpu=x86_64_v4+avx512vnni"), ()),
    "sanitized": (("gcc", "-march=x86-64-v3", *_ASAN), ()),
    "sanitized_vnni": (("gcc", *_VNNI, *_ASAN), ()),
    "sanitized_a53": (
        (*_ARM, *_TRAPS, "-mcpu=cortex_a53"),
        ("qemu-aarch64", "-cpu", "cortex-a53"),
    ),
    "sanitized_a72": (
        (*_ARM, *_TRAPS, "-mcpu=cortex_a72"),
        ("qemu-aarch64", "-cpu", "cortex-a72"),
    ),
    "sanitized_a76": (
        (*_ARM, *_TRAPS, "-mcpu=cortex_a76"),
        ("qemu-aarch64", "-cpu", "cortex-a76"),
    ),
}
"""The compiler of each core, and its emulator.

Buffers of GEMM are not on the stack, but where guards see them.
"""

FEATURES = {
    "x86_64_v3": "avx2",
    "x86_64_v4_vnni": "avx512_vnni",
    "sanitized": "avx2",
    "sanitized_vnni": "avx512_vnni",
}
"""What this machine must have for a core, as Linux names it."""

_DECLARED = re.compile(
    r"^(?:static const \w+|EK_OP void|    (?=\w+ = \d+,)) ?(\w+)", re.MULTILINE
)
"""The names that a generated file has for itself: its constants, functions and offsets."""

_MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "ek_model.h"

typedef int run_t(void *, const void *, const void *const *, void *const *);
typedef int run_on_t(ek_threads *, void *, const void *, const void *const *, void *const *, void (*)(void *, int),
                     void *);
static const struct { run_t *alone; run_on_t *shared; } runs[] = {RUNS};
static unsigned char *begin[64], *end[64], *low[64], *high[64];
static int kept;

static int next(void) {
    int v;
    if (fread(&v, sizeof v, 1, stdin) != 1) exit(3);
    return v;
}

/* n bytes between pages that nobody may touch: right before one, or right behind one; line: from the begin of a line
 * of 64 bytes */
static unsigned char *guarded(size_t n, int last, int line) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (n + page - 1) / page * page;
    unsigned char *at = mmap(NULL, all + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at, page, PROT_NONE) || mprotect(at + page + all, page, PROT_NONE)) exit(4);
    begin[kept] = at, end[kept] = at + all + 2 * page;
    memset(at + page, 77 + kept, all); /* what is copied from beside a tensor is seen beside another */
    low[kept] = at + page + (last ? (all - n) / (line ? 64 : 1) * (line ? 64 : 1) : 0), high[kept] = low[kept] + n;
    return low[kept++];
}

/* whether all is as it was beside what was given, which is given back */
static int done(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int same = 1;
    while (kept-- > 0) {
        for (const unsigned char *p = begin[kept] + page; p < end[kept] - page; p++)
            if ((p < low[kept] || p >= high[kept]) && *p != 77 + kept) same = 0;
        munmap(begin[kept], (size_t)(end[kept] - begin[kept]));
    }
    kept = 0;
    return same;
}

/* the last part first, so that none can count on another */
static void in_turn(ek_threads *t, ek_work *work, const void *run) {
    for (int part = t->parts - 1; part >= 0; part--) work(run, part, t->parts);
}

int main(void) {
    for (int count = next(); count > 0; count--) {
        const int i = next(), inputs = next(), outputs = next(), last = i % 3 != 2;
        ek_threads threads = {.share = in_turn, .parts = next()};
        const size_t arena = (size_t)next(), weights = (size_t)next();
        void *in[PORTS], *out[PORTS];
        size_t bytes[PORTS];
        for (int k = 0; k < inputs; k++) {
            const size_t n = (size_t)next();
            in[k] = guarded(n, last, 0);
            if (fread(in[k], 1, n, stdin) != n) exit(5);
        }
        for (int k = 0; k < outputs; k++) {
            bytes[k] = (size_t)next();
            out[k] = guarded(bytes[k], last, 0);
        }
        unsigned char *w = guarded(weights, 1, 1), *m = memset(guarded(arena, last, 1), 88, arena);
        if (fread(w, 1, weights, stdin) != weights) exit(6);
        const void *const *given = (const void *const *)in;
        if (runs[i].shared ? runs[i].shared(&threads, m, w, given, out, NULL, NULL) : runs[i].alone(m, w, given, out))
            exit(7);
        for (int k = 0; k < outputs; k++)
            if (fwrite(out[k], 1, bytes[k], stdout) != bytes[k]) exit(8);
        fflush(stdout);
        if (!done()) return 9;
    }
    return 0;
}
"""


@dataclass(frozen=True, eq=False)
class Case:
    """A graph, the core that its C is for, and what its schedule may do.

    threads: the most that the C is written for; parts: into so many every call that can
    be is split, however small.
    """

    graph: Graph
    inputs: Mapping[str, Array]
    core: Core
    rules: Rules = DEFAULT
    threads: int = 1
    parts: int = 1


class CrashError(AssertionError):
    """The program died, or wrote beside what it was given. at: the case."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(f"case {at}: {why}")
        self.at = at
        self.why = why


def run_on(
    name: str,
    graphs: Sequence[Graph],
    inputs: Sequence[Mapping[str, Array]],
    parts: int = 0,
    command: Sequence[str] = (),
) -> list[dict[str, Array]]:
    """The outputs of every graph by the C that is chosen for the core of that name.

    parts: into so many every call that can be is split; 0: by code for one thread.
    command: a compiler and its flags in place of those of BUILDS.
    """
    threads = MAX_THREADS if parts else 1
    on = core_of(name)
    cases = [
        Case(g, x, on, DEFAULT, threads, max(1, parts))
        for g, x in zip(graphs, inputs, strict=True)
    ]
    return run(name, cases, command)


def core_of(name: str) -> Core:
    """The core of a name of BUILDS."""
    return core(SANITIZED.get(name, name))


def nan_of(name: str) -> float:
    """NaN as the processor of a name of BUILDS makes it."""
    return NAN["arm" if name not in FEATURES else "x86"]


def run(
    name: str, cases: Sequence[Case], command: Sequence[str] = ()
) -> list[dict[str, Array]]:
    """The outputs of every case by a program for a name of BUILDS, perhaps by another
    compiler.
    """
    command = command or BUILDS[name][0]
    in_text: Text = "all" if command[-3:] == _ASAN else "small"
    text, sources = program_text(cases, _ALL_IN_ARENA in command, in_text)
    folder = build(command, text)
    data = bytearray(struct.pack("<i", len(cases)))
    for i, (case, source) in enumerate(zip(cases, sources, strict=True)):
        graph = case.graph
        weights = source.weights.data
        counts = (
            len(graph.inputs),
            len(graph.outputs),
            case.parts,
            source.plan.size,
            len(weights),
        )
        data += struct.pack("<6i", i, *counts)
        for v in graph.inputs:
            x = np.ascontiguousarray(case.inputs[v.name])
            data += struct.pack("<i", x.nbytes) + x.tobytes()
        data += (
            struct.pack(
                f"<{len(graph.outputs)}i", *(v.type.nbytes for v in graph.outputs)
            )
            + weights
        )
    done = start(name, folder, bytes(data))
    found = list(_outputs(cases, done.stdout))
    if done.returncode:
        wrote = done.returncode == 9
        if wrote:
            why = "it wrote beside a tensor"
        else:
            why = f"exit status {done.returncode}: {done.stderr.decode()[-3000:]}"
        raise CrashError(len(found) - wrote, why)
    return found


def start(
    name: str, folder: Path, data: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run what was built."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    command = [*BUILDS[name][1], str(folder / "cases")]
    return subprocess.run(
        command, input=data, env=environment, capture_output=True, timeout=1200
    )


def build(command: Sequence[str], text: str) -> Path:
    """The folder with the program `cases` of a C text, by a compiler with these flags."""
    return builds.once(
        " ".join(command) + text, lambda into: _build(text, into, command)
    )


def _build(text: str, folder: Path, command: Sequence[str]) -> None:
    (folder / "cases.c").write_text(text)
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
        "-ffp-contract=off",
        f"-I{CSRC}",
    ]
    builds.program([*command, *flags], [folder / "cases.c"], folder / "cases")


def program_text(
    cases: Sequence[Case], in_arena: bool = False, in_text: Text = "small"
) -> tuple[str, list[CSource]]:
    """The program of all cases, and their C. in_arena: buffers of GEMM, however small
    they are. in_text: constants.
    """
    sources = []
    for i, case in enumerate(cases):
        if case.threads > 1:
            on = replace(case.core, threads=case.threads, barrier=0)
        else:
            on = case.core
        if in_arena:
            rules = replace(case.rules, choose=_in_arena(case.rules.choose))
        else:
            rules = case.rules
        sources.append(segment_source(case.graph, f"seg{i}", on, None, in_text, rules))
    runs = ", ".join(
        f"{{edgec_{s.name}_run, "
        f"{f'edgec_{s.name}_run_on' if case.threads > 1 else 'NULL'}}}"
        for s, case in zip(sources, cases, strict=True)
    )
    return _text(sources) + _MAIN.replace("RUNS", runs).replace(
        "PORTS", str(PORTS)
    ), sources


def _in_arena(choose: Choose) -> Choose:
    """The same choice, with the buffers of GEMM in the arena however small they are."""

    def chosen(call: KernelCall, on: Core) -> tuple[Variant, Schedule] | None:
        found = choose(call, on)
        if found is None or not found[0].name.startswith("ek_gemm_s8"):
            return found
        return replace(
            found[0], apply=lambda *given: _with_scratch(found[0].apply(*given))
        ), found[1]

    return chosen


def _with_scratch(call: KernelCall) -> KernelCall:
    x, w, y, params, _, *rest = call.operands
    scratch = Scratch(call.struct(GemmS8Params).scratch_bytes)
    return replace(call, operands=(x, w, y, params, scratch, *rest))


def _outputs(cases: Sequence[Case], data: bytes) -> Iterator[dict[str, Array]]:
    """Of the graphs that are whole in what was written."""
    at = 0
    for case in cases:
        graph = case.graph
        if at + sum(v.type.nbytes for v in graph.outputs) > len(data):
            return
        # The C writes neither inputs nor constants, and of equal outputs the first.
        found: dict[str, Array] = {}
        for v in graph.outputs:
            written = np.frombuffer(data, v.type.np_dtype, v.type.size, at)
            at += v.type.nbytes
            if v in graph.inputs:
                found[v.name] = case.inputs[v.name]
            elif v.const is not None:
                found[v.name] = v.const
            else:
                found.setdefault(v.name, written.reshape(v.type.shape))
        yield found


def _text(sources: Sequence[CSource]) -> str:
    """One file of all, that follow each other as they are: the preprocessor gives the
    names of each an end.
    """
    text = [
        "#define _GNU_SOURCE\n",
        *inclusions(sources),
    ]
    for source in sources:
        names = sorted(set(_DECLARED.findall(source.text)))
        text += [f"#define {name} {name}_of_{source.name}\n" for name in names]
        text += [source.text, *(f"#undef {name}\n" for name in names)]
    return "".join(text)
