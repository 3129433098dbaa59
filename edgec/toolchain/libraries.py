"""Builds zig's C libraries, which it makes when it first links for a CPU.

    python -m edgec.toolchain.libraries      # `make setup`: for this machine and 64-bit Arm

That takes a minute or two for each architecture, once for each version of zig; a
compile that needs them for the first time says so.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgec_devices.boards import Board, boards
from edgec_devices.temporary import temporary_folder
from edgec_runtime.device_end.printable import printable

from edgec.steps import Progress
from edgec.toolchain.cc import Compiler, zig_libraries

_SOURCE = (
    "#include <math.h>\nint main(int argc, char **argv) { return (int)sqrt(argc "
    "+ (argv == 0)); }\n"
)
"""A program that links the C library and the mathematical one."""


def build_libraries(compiler: Compiler, target: str, say: Progress) -> None:
    """Make zig build the C libraries of a compiler, unless it did so before.

    `target` is their target, for the message. Nothing is done for a compiler other than
    zig.
    """
    if not compiler.builds_libraries:
        return
    marker = _marker(compiler)
    if marker.exists():
        return
    # zig builds them silently at the first link: a person would wonder what takes so
    # long in compiling a small model.
    say(f"build zig's C library for {target}: a minute or two, once")
    with temporary_folder("zig") as folder:
        source = folder / "empty.c"
        source.write_text(_SOURCE)
        compiler.compile(source, [], folder / "empty.o")
        compiler.link_library([folder / "empty.o"], folder / "libempty.so")
        compiler.link_program([folder / "empty.o"], folder / "empty")
    # Last, so that an interrupted build is tried again.
    marker.touch()


def _marker(compiler: Compiler) -> Path:
    """Return the file that marks the libraries of a zig and its targets as built."""
    # Flags for objects do not change the libraries.
    linked = (compiler.version(), *compiler.library, *compiler.program)
    digest = hashlib.sha256(repr(linked).encode()).hexdigest()
    return zig_libraries() / f"edgec-{digest[:16]}"


def main() -> None:
    """Build the libraries of the targets of every board and of this machine."""
    for board in boards():
        for t in Board.load(board).targets:
            build_libraries(
                Compiler.zig(t.library, t.program, t.mcpu),
                t.name,
                lambda text: print(printable(text), flush=True),
            )


if __name__ == "__main__":
    main()
