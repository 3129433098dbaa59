"""Runs C compilers: zig (the PyPI package `ziglang`) by default, or any gcc or clang.

zig compiles for every target.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from edgec_runtime.bundle.cache import cache_dir

from edgec.errors import InternalError, ToolError

CODE_FLAGS = (
    "-std=c11",
    "-O3",
    # The arena's bytes are floats now and integers later.
    "-fno-strict-aliasing",
    # The same float32 results on every ISA: no fused multiply-add that nobody wrote.
    "-ffp-contract=off",
    # Square roots and rounding become instructions; no result changes.
    "-fno-math-errno",
)
"""Flags for the generated C, in edgec and in any other build."""

FLAGS = (
    *CODE_FLAGS,
    "-g0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-fvisibility=hidden",
)
TIMEOUT_S = 1800
"""Limit of one call; zig may build the C library in it."""
MAX_MESSAGE = 4000
"""Characters of a compiler's messages in an error."""
_UNKNOWN_TARGET = re.compile(
    r"^error: (unknown CPU: .*|unable to parse target query .*)$", re.MULTILINE
)
"""What zig says of a CPU or a triple that it does not know."""
_LINKED_FOR = {"aarch64": "cortex_a53", "arm": "cortex_a53"}
"""The CPU that an architecture's C library is built for.

zig builds the C library for each CPU that it links for, which takes a minute or two:
all boards of an architecture share the one of their oldest core. edgec's own objects
are compiled for the CPU of the board.
"""


def zig_libraries() -> Path:
    """Return the folder of the libraries that zig builds.

    It is in the user's cache, unless zig's own variable names a folder.
    """
    folder = os.environ.get("ZIG_GLOBAL_CACHE_DIR")
    return Path(folder) if folder else cache_dir("zig")


@dataclass(frozen=True)
class Compiler:
    """A C compiler with the flags of one target.

    Attributes:
        command: the program and its first arguments
        objects: flags that compile for the CPU
        library: flags that link a library
        program: flags that link a program
    """

    command: tuple[str, ...]
    objects: tuple[str, ...] = ()
    library: tuple[str, ...] = ()
    program: tuple[str, ...] = ()

    @classmethod
    def zig(cls, library_triple: str, program_triple: str, cpu: str) -> Compiler:
        """Return zig for a library against glibc and a static program against musl.

        Objects are compiled once, against musl's headers: they call nothing but mem*
        and float functions, which both libraries have.
        """
        # An architecture outside of the table has a single CPU, that of this machine.
        linked = _LINKED_FOR.get(program_triple.split("-")[0], cpu)
        return cls(
            (sys.executable, "-m", "ziglang", "cc"),
            ("-target", program_triple, f"-mcpu={cpu}", "-fno-sanitize=all"),
            ("-target", library_triple, f"-mcpu={linked}"),
            ("-target", program_triple, f"-mcpu={linked}", "-static"),
        )

    @classmethod
    def native(cls, name: str = "cc") -> Compiler:
        """Return a compiler of this machine, by name; raises ToolError without it."""
        path = shutil.which(name)
        if path is None:
            raise ToolError(
                f"no C compiler called {name} is on the PATH",
                hint="install one, or leave out --cc: zig is used",
            )
        return cls((path,))

    @property
    def builds_libraries(self) -> bool:
        """Return whether this compiler is zig, whose first link builds the C library."""
        return "ziglang" in self.command

    def version(self) -> str:
        """Return its name and version, for the manifest."""
        if self.builds_libraries:
            return f"ziglang {metadata.version('ziglang')}"
        # The first line of gcc and clang has name and version, then comes the licence.
        result = subprocess.run(
            [*self.command, "--version"], capture_output=True, text=True
        )
        lines = result.stdout.splitlines()
        return lines[0] if lines else self.command[0]

    def compile(
        self,
        source: Path,
        include: Sequence[Path],
        output: Path,
        extra: Sequence[str] = (),
    ) -> None:
        """Compile a C file to an object file.

        Raises InternalError if it does not compile: generated C is edgec's own. Raises
        ToolError for a target that zig does not know.
        """
        # Absolute, since the compiler runs in a folder of its own (`_run`).
        includes = [f"-I{folder.absolute()}" for folder in include]
        flags = [*self.objects, *FLAGS, *extra, *includes, "-c"]
        self._run(flags, [source], output, source.name)

    def link_library(
        self, objects: Sequence[Path], output: Path, extra: Sequence[str] = ()
    ) -> None:
        """Link a shared library that needs only the C library."""
        # Without a soname, a program linked to the library would look for its path here.
        name = f"-Wl,-soname,{output.name}"
        flags = [*self.library, "-shared", name]
        self._run(flags, objects, output, output.name, ["-lm", "-s", *extra])

    def link_program(
        self, objects: Sequence[Path], output: Path, extra: Sequence[str] = ()
    ) -> None:
        """Link a program, statically if the target does."""
        libraries = ["-lm", "-s", *extra]
        self._run(self.program, objects, output, output.name, libraries)

    def _run(
        self,
        args: Sequence[str],
        files: Sequence[Path],
        output: Path,
        what: str,
        libraries: Sequence[str] = (),
    ) -> None:
        """Run the compiler; `what` is its subject, for messages."""
        # zig's own libraries, which are built once, go to the global folder; its other
        # files, beside the output. It always runs in the same folder, which belongs to
        # the user: Python imports modules from the folder where it is started, and zig
        # builds its libraries anew if its path from there has changed.
        libs = zig_libraries()
        local = output.parent.absolute() / ".zig-cache"
        env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(libs)}
        env.setdefault("ZIG_LOCAL_CACHE_DIR", str(local))
        paths = [str(f.absolute()) for f in files]
        command = [
            *self.command,
            *args,
            *paths,
            *libraries,
            "-o",
            str(output.absolute()),
        ]
        try:
            result = subprocess.run(
                command,
                cwd=libs,
                env=env,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
        except OSError as e:
            raise ToolError(
                f"cannot run the C compiler {self.command[0]}: {e}",
                hint="pip install ziglang",
            ) from e
        if result.returncode:
            unknown = _UNKNOWN_TARGET.search(result.stderr)
            if unknown is not None:
                raise ToolError(
                    f"zig cannot compile for the board: {unknown[1]}",
                    hint="correct the targets of its profile (docs/boards.md)",
                )
            messages = result.stderr[-MAX_MESSAGE:]
            if os.strerror(errno.ENOSPC) in messages:
                raise ToolError(
                    f"the disk is full: the C compiler cannot write {what}",
                    f"{libs} or {local}",
                    "free some space, or set EDGEC_CACHE to a folder on another disk",
                )
            if result.returncode < 0:
                raise ToolError(
                    f"signal {-result.returncode} ended the C compiler of {what}",
                    hint="free some memory: the system ends programs when it has none",
                )
            raise InternalError(f"{what} does not compile:\n{messages}")
