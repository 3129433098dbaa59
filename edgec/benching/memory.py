"""Bytes of a bundle's code and constants, by the sections of the file that ran, beside what the compiler planned."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from edgec_runtime import Bundle

from edgec.benching.result import Memory

_WRITE, _ALLOC, _EXEC = 1, 2, 4


def memory(bundle: Bundle, file: str | None, graph: Mapping[str, Any], rss: Sequence[int], estimated: bool) -> Memory:
    """file: the bundle's program or library that ran. graph: its report/graph.json. rss: of each launch.

    estimated: nothing ran on that hardware; then rss is what the file and its writable memory come to.
    """
    code, constants, data = sections(bundle.read(file)) if file else (0, 0, 0)
    m = bundle.manifest
    plan = {
        "arena": max((s.arena for s in m.segments), default=0),
        "tensors": sum(t.nbytes for t in m.tensors.values()),
        "constants": sum(s["constants"] for s in graph["segments"]),
    }
    if estimated:
        # Pages of .bss that nobody touches do not count: the sample store of main.c is nearly all of it.
        return Memory(code + constants + plan["arena"] + plan["tensors"], True, code, constants, data, plan)
    return Memory(max(rss, default=None), False, code, constants, data, plan)


def sections(elf: bytes) -> tuple[int, int, int]:
    """Mapped bytes of an ELF file: executable, read-only, writable (with .bss). (0, 0, 0) for anything else."""
    try:
        wide = elf[4] == 2
        if elf[:4] != b"\x7fELF" or elf[5] != 1:
            return 0, 0, 0
        start = struct.unpack_from("<Q", elf, 0x28)[0] if wide else struct.unpack_from("<I", elf, 0x20)[0]
        each, count = struct.unpack_from("<HH", elf, 0x3A if wide else 0x2E)
        found = [0, 0, 0]
        for i in range(count):
            at = start + i * each
            flags = struct.unpack_from("<Q" if wide else "<I", elf, at + 8)[0]
            size = struct.unpack_from("<Q" if wide else "<I", elf, at + (0x20 if wide else 0x14))[0]
            if flags & _ALLOC:
                found[0 if flags & _EXEC else 2 if flags & _WRITE else 1] += size
    except (struct.error, IndexError):
        return 0, 0, 0
    return found[0], found[1], found[2]
