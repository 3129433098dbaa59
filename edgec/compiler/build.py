"""Stage 7 of a compile: the C of every target becomes libraries and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgec_devices.boards import Board

from edgec.compiler.emit import Emitted, targets_of
from edgec.compiler.native import native_compiler
from edgec.emit.c import CSRC
from edgec.steps import Progress
from edgec.toolchain.build import Binaries, build
from edgec.toolchain.cc import Compiler


@dataclass(frozen=True)
class Built:
    """The binaries and the compiler of each target."""

    binaries: Mapping[str, Binaries]
    compilers: Mapping[str, Compiler]

    def versions(self) -> dict[str, str]:
        """Return the version of each target's compiler."""
        return {name: c.version() for name, c in self.compilers.items()}


def build_programs(
    emitted: Emitted, board: Board, cc: str | None, say: Progress
) -> Built:
    """Compile the C of every target.

    cc: a compiler of this machine for this machine's own code, in place of zig.
    """
    compilers = compilers_for(board, cc)
    texts = {name: made.texts for name, made in emitted.sources.items()}
    # Flags are by file: the files of one core among several need its instruction set.
    flags: dict[str, tuple[str, ...]] = {}
    for made in emitted.sources.values():
        flags.update(made.flags)
    binaries = build(texts, CSRC, compilers, say, flags, emitted.link_flags)
    return Built(binaries, compilers)


def compilers_for(board: Board, cc: str | None) -> dict[str, Compiler]:
    """Return a compiler for each target of a board, and for this machine."""
    # Only this machine's own target can have the compiler of a person: zig alone compiles
    # for others.
    here = Board.load("host").targets[0]
    compilers = {}
    for target in targets_of(board):
        if target.name == here.name:
            compilers[target.name] = native_compiler(cc)
        else:
            zig = Compiler.zig(target.library, target.program, target.mcpu)
            compilers[target.name] = zig
    return compilers
