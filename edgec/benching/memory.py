"""Bytes of a bundle's code and constants, by the sections of the file that ran, beside
what the compiler planned.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from edgec_runtime import Bundle
from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from edgec.benching.result import MemoryUse
from edgec.emit.graph_file import GraphFile


def memory(
    bundle: Bundle,
    file: str | None,
    target: str,
    graph: GraphFile,
    rss: Sequence[int],
    estimated: bool,
) -> MemoryUse:
    """file: the bundle's program or library that ran, for `target`. graph: its
    report/graph.json. rss: of each launch.

    estimated: nothing ran on that hardware; then rss is what the file and its writable
    memory come to.
    """
    code, constants, data = sections(bundle.read(file)) if file else (0, 0, 0)
    m = bundle.manifest
    constants += m.files[m.weights[target]].bytes if target in m.weights else 0
    plan = {
        "arena": max((s.arena for s in m.segments), default=0),
        "tensors": sum(t.nbytes for t in m.tensors.values()),
        "constants": sum(s.constants for s in graph.segments),
    }
    if estimated:
        # Pages of .bss that nobody touches do not count: the sample store of main.c is
        # nearly all of it.
        return MemoryUse(
            code + constants + plan["arena"] + plan["tensors"],
            True,
            code,
            constants,
            data,
            plan,
        )
    return MemoryUse(max(rss, default=None), False, code, constants, data, plan)


def sections(data: bytes) -> tuple[int, int, int]:
    """Mapped bytes of an ELF file: executable, read-only, writable (with .bss).

    (0, 0, 0) for anything else.
    """
    found = [0, 0, 0]
    try:
        for section in ELFFile(io.BytesIO(data)).iter_sections():
            flags = section["sh_flags"]
            if flags & SH_FLAGS.SHF_ALLOC:
                found[
                    0
                    if flags & SH_FLAGS.SHF_EXECINSTR
                    else 2
                    if flags & SH_FLAGS.SHF_WRITE
                    else 1
                ] += section["sh_size"]
    except ELFError:
        return 0, 0, 0
    return found[0], found[1], found[2]
