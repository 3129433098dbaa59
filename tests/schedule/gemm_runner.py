"""Running cases of csrc/ek_gemm_s8.h: one program for all, for this machine or under an emulator."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgec.emit.c import CSRC
from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import FAST, LAW, SCALE

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void entry_t(const int8_t *, const void *, int8_t *, const ek_gemm_s8_t *, void *, int, int);
static entry_t *const entries[] = {ENTRIES};

static int next(void) {
    int v;
    if (fread(&v, sizeof v, 1, stdin) != 1) exit(3);
    return v;
}

/* n bytes right before a page that nobody may touch */
static unsigned char *guarded(size_t n) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (n + page - 1) / page * page;
    unsigned char *at = mmap(NULL, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + all, page, PROT_NONE)) exit(4);
    return at + all - n;
}

static unsigned char *input(size_t n) {
    unsigned char *at = guarded(n);
    if (fread(at, 1, n, stdin) != n) exit(5);
    return at;
}

int main(void) {
    for (int count = next(); count > 0; count--) {
        const int entry = next(), parts = next(), nx = next(), nw = next(), ny = next();
        ek_gemm_s8_t p;
        if (fread(&p, sizeof p, 1, stdin) != 1) exit(6);
        const int8_t *x = (const int8_t *)input((size_t)nx);
        const unsigned char *w = input((size_t)nw);
        unsigned char *y = guarded((size_t)ny), *scratch = guarded((size_t)p.scratch_bytes);
        memset(y, 77, (size_t)ny);
        for (int part = parts - 1; part >= 0; part--) {
            memset(scratch, 88, (size_t)p.scratch_bytes);
            entries[entry](x, w, (int8_t *)y, &p, scratch, part, parts);
        }
        if (fwrite(y, 1, (size_t)ny, stdout) != (size_t)ny) exit(7);
    }
    return 0;
}
"""


FINISH = (FAST, LAW, SCALE)


@dataclass(frozen=True)
class Case:
    """One call: entry (its name), fields of ek_gemm_s8_t in order, image, panels; the result's shape; threads."""

    entry: str
    fields: Mapping[str, object]
    x: Array
    w: Array
    shape: tuple[int, ...]
    parts: int = 1


def program(header: str, entries: Sequence[str], folder: Path, command: Sequence[str]) -> Path:
    """The program of all entries of a header, compiled by a command."""
    source, out = folder / "cases.c", folder / "cases"
    source.write_text(f'#define _GNU_SOURCE\n#include "{header}"\n{MAIN.replace("ENTRIES", ", ".join(entries))}')
    flags = [
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-ffp-contract=off",
        f"-I{CSRC}",
        str(source),
        "-lm",
    ]
    done = subprocess.run([*command, *flags, "-o", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    return out


def run(command: Sequence[str], entries: Sequence[str], cases: Sequence[Case]) -> list[Array]:
    """The results of the cases, by a program and its emulator."""
    data = bytearray(struct.pack("<i", len(cases)))
    for c in cases:
        size = int(np.prod(c.shape))
        data += struct.pack("<5i", entries.index(c.entry), c.parts, c.x.nbytes, c.w.nbytes, size)
        values = [FINISH.index(v) if isinstance(v, str) else v for v in c.fields.values()]
        data += struct.pack(f"<{len(values)}i", *values) + c.x.tobytes() + c.w.tobytes()
    done = subprocess.run(command, input=bytes(data), capture_output=True, timeout=600)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr.decode()}"
    out, at = [], 0
    for c in cases:
        size = int(np.prod(c.shape))
        out.append(np.frombuffer(done.stdout, np.int8, size, at).reshape(c.shape))
        at += size
    return out
