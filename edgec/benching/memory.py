"""Measures the code and constants of a bundle from the sections of an ELF file."""

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
    """Return the memory that a bundle uses and the compiler planned.

    Args:
        bundle: the bundle
        file: the bundle's program or library that ran, if it is known
        target: the target of the file
        graph: the bundle's report/graph.json
        rss: peak resident size of each launch, bytes
        estimated: whether nothing ran on the target; the resident size is then the sum
            of the file and its planned memory
    """
    code, constants, data = sections(bundle.read(file)) if file else (0, 0, 0)
    manifest = bundle.manifest
    if target in manifest.weights:
        weights_file = manifest.weights[target]
        constants += manifest.files[weights_file].bytes
    # Segments run one after the other in one arena: the largest counts.
    plan = {
        "arena": max((segment.arena for segment in manifest.segments), default=0),
        "tensors": sum(tensor.nbytes for tensor in manifest.tensors.values()),
        "constants": sum(segment.constants for segment in graph.segments),
    }

    peak = max(rss, default=None)
    if estimated:
        # Pages of .bss that nothing touches do not count: the sample store of main.c is
        # nearly all of it.
        peak = code + constants + plan["arena"] + plan["tensors"]
    return MemoryUse(peak, estimated, code, constants, data, plan)


def sections(data: bytes) -> tuple[int, int, int]:
    """Return the mapped bytes of an ELF file: executable, read-only, writable.

    The writable bytes include .bss. Other files give (0, 0, 0).
    """
    executable = 0
    read_only = 0
    writable = 0
    try:
        for section in ELFFile(io.BytesIO(data)).iter_sections():
            flags = section["sh_flags"]
            size = section["sh_size"]
            # Other sections, such as debug information, are not mapped.
            if not flags & SH_FLAGS.SHF_ALLOC:
                continue
            if flags & SH_FLAGS.SHF_EXECINSTR:
                executable += size
            elif flags & SH_FLAGS.SHF_WRITE:
                writable += size
            else:
                read_only += size
    except ELFError:
        return 0, 0, 0
    return executable, read_only, writable
