"""C compilers: zig (the PyPI package `ziglang`) for every target by default, any gcc or
clang by name.
"""

from __future__ import annotations

import os
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
"""What the generated C is meant to be compiled with, by anyone."""

FLAGS = (
    *CODE_FLAGS,
    "-g0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-fvisibility=hidden",
)


_LINKED_FOR = {"aarch64": "cortex_a53", "arm": "cortex_a53"}
"""zig builds the C library for each CPU that it links for, which takes a minute or two:
all boards of an architecture share that of their oldest core. Our own objects are
compiled for the board's.
"""


def zig_libraries() -> Path:
    """Where zig keeps the libraries that it builds: the user's cache, unless zig's own
    variable names a folder.
    """
    named = os.environ.get("ZIG_GLOBAL_CACHE_DIR")
    return Path(named) if named else cache_dir("zig")


@dataclass(frozen=True)
class Compiler:
    """A C compiler with the flags of one target.

    `objects` compiles for the CPU; `library` and `program` name what each is linked
    for.
    """

    command: tuple[str, ...]
    objects: tuple[str, ...] = ()
    library: tuple[str, ...] = ()
    program: tuple[str, ...] = ()

    @classmethod
    def zig(cls, library_triple: str, program_triple: str, cpu: str) -> Compiler:
        """zig cc for a library against glibc and a static program against musl.

        Objects are compiled once, against musl's headers: they call nothing but mem*
        and float functions, which both libraries have.
        """
        linked = _LINKED_FOR.get(program_triple.split("-")[0], cpu)
        return cls(
            (sys.executable, "-m", "ziglang", "cc"),
            ("-target", program_triple, f"-mcpu={cpu}", "-fno-sanitize=all"),
            ("-target", library_triple, f"-mcpu={linked}"),
            ("-target", program_triple, f"-mcpu={linked}", "-static"),
        )

    @classmethod
    def native(cls, name: str = "cc") -> Compiler:
        """A compiler of this machine, by name."""
        found = shutil.which(name)
        if found is None:
            raise ToolError(
                f"no C compiler called {name} is on the PATH",
                hint="install one, or leave out --cc: zig is used",
            )
        return cls((found,))

    @property
    def builds_libraries(self) -> bool:
        """Whether it is zig, which builds the C library itself when it first links for
        a CPU.
        """
        return "ziglang" in self.command

    def version(self) -> str:
        """Its name and version, for the manifest."""
        if self.builds_libraries:
            return f"ziglang {metadata.version('ziglang')}"
        done = subprocess.run(
            [*self.command, "--version"], capture_output=True, text=True
        )
        return (done.stdout.splitlines() or [self.command[0]])[0]

    def compile(
        self,
        source: Path,
        include: Sequence[Path],
        output: Path,
        extra: Sequence[str] = (),
    ) -> None:
        """One .c file to an object file.

        Generated C that does not compile is our bug.
        """
        includes = [f"-I{p.absolute()}" for p in include]
        self._run(
            [*self.objects, *FLAGS, *extra, *includes, "-c"],
            [source],
            output,
            source.name,
        )

    def link_library(
        self, objects: Sequence[Path], output: Path, extra: Sequence[str] = ()
    ) -> None:
        """A shared library that needs the C library alone."""
        name = f"-Wl,-soname,{output.name}"
        self._run(
            [*self.library, "-shared", name],
            objects,
            output,
            output.name,
            ["-lm", "-s", *extra],
        )

    def link_program(
        self, objects: Sequence[Path], output: Path, extra: Sequence[str] = ()
    ) -> None:
        """An executable (static where the target says so)."""
        self._run(self.program, objects, output, output.name, ["-lm", "-s", *extra])

    def _run(
        self,
        args: Sequence[str],
        files: Sequence[Path],
        output: Path,
        what: str,
        libraries: Sequence[str] = (),
    ) -> None:
        # zig's own libraries, which are built once, go to the global folder; what is
        # ours, beside the output. It runs in a folder that is ours, always the same:
        # Python looks for modules where it is started, and zig builds its libraries
        # anew where its path from there is another.
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
            done = subprocess.run(
                command, cwd=libs, env=env, capture_output=True, text=True, timeout=1800
            )
        except OSError as e:
            raise ToolError(
                f"cannot run the C compiler {self.command[0]}: {e}",
                hint="pip install ziglang",
            ) from e
        if done.returncode:
            raise InternalError(f"{what} does not compile:\n{done.stderr[-4000:]}")
