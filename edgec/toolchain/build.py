"""Generated C → libraries and programs for every target of a board.

What was compiled or linked once is taken from the user's cache, by all that it depends
on: the compiler and its version, the flags, the text, and the headers that it includes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from edgec_devices.temporary import temporary_folder
from edgec_runtime.bundle.cache import cache_dir

from edgec.steps import COMPILE_C, Progress
from edgec.toolchain.cc import FLAGS, Compiler
from edgec.toolchain.includes import included
from edgec.toolchain.libraries import build_libraries
from edgec.toolchain.store import Store

CACHED_BYTES = 512 << 20
"""What the cache of objects, libraries and programs may take: those of some fifty
models.
"""

_FORMAT = "1"
"""Changes when the same key no longer stands for the same bytes."""


@dataclass(frozen=True)
class Binaries:
    """One target's `lib/<target>/libmodel.so` and `bin/<target>/main`."""

    library: bytes
    program: bytes


def build(
    sources: Mapping[str, Mapping[str, str]],
    csrc: Path,
    compilers: Mapping[str, Compiler],
    progress: Progress = lambda text: None,
    flags: Mapping[str, Sequence[str]] | None = None,
    link: Sequence[str] = (),
) -> dict[str, Binaries]:
    """Compile each target's sources (target → file name → C) with its compiler.

    flags: what a file of this name takes beside; link: what the linker does. model.c
    and main.c (of csrc) are compiled as the program wants them too. The same sources
    give the same bytes: nothing of the build directory gets into the objects.
    """
    store = objects()
    with temporary_folder("build") as tmp, ThreadPoolExecutor(os.cpu_count()) as pool:
        made = dict[str, Binaries]()
        for target, texts in sources.items():
            build_libraries(compilers[target], target, progress)
            progress(f"{COMPILE_C} for {target}")
            place = _Target(tmp / target, csrc, compilers[target], store)
            made[target] = _build_one(place, texts, flags or {}, link, pool)
    store.trim()
    return made


def build_library(
    text: str, csrc: Path, compiler: Compiler, extra: Sequence[str] = ()
) -> bytes:
    """A library of one C text."""
    store = objects()
    with temporary_folder("build") as tmp:
        target = _Target(tmp / "one", csrc, compiler, store)
        made = target.link(
            "libmodel.so", {"model.o": target.compile("model.c", text, extra)}
        )
    store.trim()
    return made


def objects() -> Store:
    """What was compiled and linked before, by this user."""
    return Store(cache_dir("objects"), CACHED_BYTES)


def _build_one(
    target: _Target,
    texts: Mapping[str, str],
    flags: Mapping[str, Sequence[str]],
    link: Sequence[str],
    pool: ThreadPoolExecutor,
) -> Binaries:
    jobs = {
        f"{Path(n).stem}.o": pool.submit(target.compile, n, text, flags.get(n, ()))
        for n, text in texts.items()
    }
    jobs["model_program.o"] = pool.submit(
        target.compile, "model.c", texts["model.c"], ["-DEK_PROGRAM"]
    )
    jobs["main.o"] = pool.submit(
        target.compile, "main.c", (target.csrc / "main.c").read_text()
    )
    done = {name: job.result() for name, job in jobs.items()}
    ours = {
        name: data
        for name, data in done.items()
        if name not in ("model.o", "model_program.o", "main.o")
    }
    library = pool.submit(
        target.link, "libmodel.so", {**ours, "model.o": done["model.o"]}, link
    )
    program = target.link(
        "main", {**ours, **{n: done[n] for n in ("model_program.o", "main.o")}}, link
    )
    return Binaries(library.result(), program)


class _Target:
    """One compiler at work, in a folder of its own."""

    def __init__(self, folder: Path, csrc: Path, cc: Compiler, store: Store) -> None:
        self.csrc = csrc
        self._folder = folder
        self._cc = cc
        self._store = store
        self._version = cc.version()
        folder.mkdir()

    def compile(self, name: str, text: str, extra: Sequence[str] = ()) -> bytes:
        """The object file of one C text that includes what csrc has."""
        flags = [*self._cc.command, *self._cc.objects, *FLAGS, *extra]
        headers = included([text], self.csrc)
        key = self._key("object", flags, name, text, *headers, *headers.values())

        def make(folder: Path) -> Path:
            (folder / name).write_text(text)
            prefix = [
                f"-ffile-prefix-map={folder}=.",
                f"-ffile-prefix-map={self.csrc}=.",
            ]
            self._cc.compile(
                folder / name, [self.csrc], folder / "made.o", [*prefix, *extra]
            )
            return folder / "made.o"

        return self._made(key, make)

    def link(
        self, name: str, parts: Mapping[str, bytes], extra: Sequence[str] = ()
    ) -> bytes:
        """A library if its name ends in .so, else a program."""
        library = name.endswith(".so")
        flags = [
            *self._cc.command,
            *(self._cc.library if library else self._cc.program),
            *extra,
        ]
        key = self._key(
            name, flags, *(hashlib.sha256(data).hexdigest() for data in parts.values())
        )

        def make(folder: Path) -> Path:
            for part, data in parts.items():
                (folder / part).write_bytes(data)
            link = self._cc.link_library if library else self._cc.link_program
            link([folder / p for p in parts], folder / name, extra)
            return folder / name

        return self._made(key, make)

    def _made(self, key: str, make: Callable[[Path], Path]) -> bytes:
        data = self._store.get(key)
        if data is None:
            folder = self._folder / key[:16]
            # no parents: a thread that a signal cut loose brings nothing removed back
            folder.mkdir(exist_ok=True)
            data = make(folder).read_bytes()
            self._store.put(key, data)
        return data

    def _key(self, what: str, flags: Sequence[str], *content: str) -> str:
        return hashlib.sha256(
            json.dumps([_FORMAT, what, self._version, flags, content]).encode()
        ).hexdigest()
