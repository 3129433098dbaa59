"""Compiles generated C to libraries and programs for every target of a board.

Objects, libraries and programs are cached by everything that they depend on: the
compiler and its version, the flags, the text, and the headers that it includes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from edgec_devices.temporary import temporary_folder
from edgec_runtime.bundle.cache import cache_dir, only_ours

from edgec.steps import COMPILE_C, Progress
from edgec.toolchain.cc import FLAGS, Compiler
from edgec.toolchain.includes import included
from edgec.toolchain.libraries import build_libraries

CACHED_BYTES = 512 << 20
"""Size of the cache of objects, libraries and programs: of some fifty models."""

CACHE_FORMAT = "1"
"""Changes when the same key no longer stands for the same bytes."""


@dataclass(frozen=True)
class Binaries:
    """The `lib/<target>/libmodel.so` and `bin/<target>/main` of a target."""

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
    """Compile the sources of each target with its compiler.

    model.c is compiled twice, for the library and for the program, and main.c of csrc
    for the program. The same sources give the same bytes: nothing of the build
    directory gets into the objects.

    Args:
        sources: C text by target and file name
        csrc: folder of the runtime's C
        compilers: compiler of each target
        progress: receives the steps
        flags: additional flags of the files of a name
        link: additional flags of the linker
    """
    # Threads are enough: each waits for a compiler, which is a process of its own.
    store = objects()
    with temporary_folder("build") as tmp, ThreadPoolExecutor(os.cpu_count()) as pool:
        binaries = dict[str, Binaries]()
        for target, texts in sources.items():
            build_libraries(compilers[target], target, progress)
            progress(f"{COMPILE_C} for {target}")
            build_target = _Target(tmp / target, csrc, compilers[target], store)
            binaries[target] = _build_one(build_target, texts, flags or {}, link, pool)
    store.trim()
    return binaries


def build_library(
    text: str, csrc: Path, compiler: Compiler, extra: Sequence[str] = ()
) -> bytes:
    """Return a library of one C text."""
    store = objects()
    with temporary_folder("build") as tmp:
        target = _Target(tmp / "one", csrc, compiler, store)

        model = target.compile("model.c", text, extra)
        library = target.link("libmodel.so", {"model.o": model})
    store.trim()
    return library


def objects() -> Store:
    """Return the user's cache of objects, libraries and programs."""
    return Store(cache_dir("objects"), CACHED_BYTES)


def _build_one(
    target: _Target,
    texts: Mapping[str, str],
    flags: Mapping[str, Sequence[str]],
    link: Sequence[str],
    pool: ThreadPoolExecutor,
) -> Binaries:
    """Compile and link the sources of one target in parallel."""
    jobs = {}
    for name, text in texts.items():
        file_flags = flags.get(name, ())
        jobs[f"{Path(name).stem}.o"] = pool.submit(
            target.compile, name, text, file_flags
        )

    jobs["model_program.o"] = pool.submit(
        target.compile, "model.c", texts["model.c"], ["-DEK_PROGRAM"]
    )
    # main.c is the same for all models, and mostly comes from the cache.
    main = (target.csrc / "main.c").read_text()
    jobs["main.o"] = pool.submit(target.compile, "main.c", main)
    objects = {name: job.result() for name, job in jobs.items()}

    # The order of the objects is part of the cache's key.
    model = objects.pop("model.o")
    model_program = objects.pop("model_program.o")
    main_object = objects.pop("main.o")
    library_objects = {**objects, "model.o": model}
    library = pool.submit(target.link, "libmodel.so", library_objects, link)
    program_objects = {
        **objects,
        "model_program.o": model_program,
        "main.o": main_object,
    }
    program = target.link("main", program_objects, link)
    return Binaries(library.result(), program)


class _Target:
    """The build of one target, with its compiler and a temporary folder."""

    def __init__(self, folder: Path, csrc: Path, cc: Compiler, store: Store) -> None:
        self.csrc = csrc
        self._folder = folder
        self._cc = cc
        self._store = store
        self._version = cc.version()
        folder.mkdir()

    def compile(self, name: str, text: str, extra: Sequence[str] = ()) -> bytes:
        """Return the object file of a C text, which may include headers of csrc."""
        flags = [*self._cc.command, *self._cc.objects, *FLAGS, *extra]

        # By the text of headers instead of times: a checkout or another installation
        # has the same objects.
        headers = included([text], self.csrc)
        key = self._key("object", flags, name, text, *headers, *headers.values())

        def make(folder: Path) -> Path:
            (folder / name).write_text(text)
            # Paths of the build directory stay out of the object.
            prefix = [
                f"-ffile-prefix-map={folder}=.",
                f"-ffile-prefix-map={self.csrc}=.",
            ]
            output = folder / "made.o"
            self._cc.compile(folder / name, [self.csrc], output, [*prefix, *extra])
            return output

        return self._cached(key, make)

    def link(
        self, name: str, parts: Mapping[str, bytes], extra: Sequence[str] = ()
    ) -> bytes:
        """Return a library if its name ends in .so, else a program."""
        library = name.endswith(".so")
        kind_flags = self._cc.library if library else self._cc.program
        flags = [*self._cc.command, *kind_flags, *extra]

        # Objects are megabytes; their hashes are enough for a key.
        digests = [hashlib.sha256(data).hexdigest() for data in parts.values()]
        key = self._key(name, flags, *digests)

        def make(folder: Path) -> Path:
            paths = []
            for part, data in parts.items():
                path = folder / part
                path.write_bytes(data)
                paths.append(path)
            link = self._cc.link_library if library else self._cc.link_program
            link(paths, folder / name, extra)
            return folder / name

        return self._cached(key, make)

    def _cached(self, key: str, make: Callable[[Path], Path]) -> bytes:
        """Return the bytes of a key, from the cache or from `make`."""
        data = self._store.get(key)
        if data is None:
            folder = self._folder / key[:16]
            # No parents: a thread that goes on after an interrupt must not bring back
            # the folder that was removed meanwhile.
            folder.mkdir(exist_ok=True)
            data = make(folder).read_bytes()
            self._store.put(key, data)
        return data

    def _key(self, what: str, flags: Sequence[str], *content: str) -> str:
        """Return the cache's key of a file with these inputs."""
        inputs = [CACHE_FORMAT, what, self._version, flags, content]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


SUM_BYTES = hashlib.sha256().digest_size
_KEY = re.compile(r"[0-9a-f]{64}")


class Store:
    """A cache of bytes by key, which removes the least recently used beyond a limit.

    Any number of processes may use it.

    A file is a SHA-256 of its key and its content, and then the content. A damaged file
    counts as missing. A file that cannot be written, on a full or read-only disk, is
    not cached: a store only saves time.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        # Its files are executed, so nobody else may write them.
        only_ours(folder)

    def get(self, key: str) -> bytes | None:
        """Return the bytes of a key, or None."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        # Damaged, for example by a power cut: it is made again.
        if _sum(key, data[SUM_BYTES:]) != data[:SUM_BYTES]:
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            # The time of the last use, by which `trim` sorts.
            os.utime(path)
        return data[SUM_BYTES:]

    def put(self, key: str, data: bytes) -> None:
        """Store the bytes of a key. A reader sees all of them or none."""
        path = self._path(key)
        temporary = None
        try:
            handle, temporary = tempfile.mkstemp(dir=self._folder, suffix=".part")
            with os.fdopen(handle, "wb") as f:
                f.write(_sum(key, data) + data)
            # Writers of the same key have the same bytes: the last one may win.
            os.replace(temporary, path)
        except OSError:
            if temporary is not None:
                _remove(Path(temporary))

    def trim(self) -> None:
        """Remove the least recently used files beyond the limit."""
        files = []
        for entry in os.scandir(self._folder):
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                # Another process removed it meanwhile.
                continue
            files.append((info.st_mtime_ns, info.st_size, entry.path))

        total = sum(size for _, size, _ in files)
        # Oldest use first.
        for _, size, path in sorted(files):
            if total <= self._limit:
                break
            _remove(Path(path))
            total -= size

    def _path(self, key: str) -> Path:
        """Return the file of a key."""
        assert _KEY.fullmatch(key)
        return self._folder / key


def _sum(key: str, data: bytes) -> bytes:
    """Return the checksum of a file."""
    # With the key, so that a file renamed to another key counts as damaged.
    return hashlib.sha256(key.encode() + data).digest()


def _remove(path: Path) -> None:
    """Remove a file, unless it is gone or belongs to somebody else."""
    with contextlib.suppress(OSError):
        path.unlink()
