"""Generated C → libraries and programs for every target of a board."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from edgec.steps import COMPILE_C, Progress
from edgec.toolchain.cc import Compiler


@dataclass(frozen=True)
class Binaries:
    """One target's `lib/<target>/libmodel.so` and `bin/<target>/main`."""

    library: bytes
    program: bytes


def build(
    sources: Mapping[str, str], csrc: Path, compilers: Mapping[str, Compiler], progress: Progress = lambda text: None
) -> dict[str, Binaries]:
    """Compile `sources` (file name → C) for each target. model.c and main.c are compiled as the program wants them too.

    The same sources give the same bytes: nothing of the build directory gets into the objects.
    """
    with tempfile.TemporaryDirectory(prefix="edgec-build-") as tmp, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(tmp)
        for name, text in sources.items():
            (folder / name).write_text(text)
        made = dict[str, Binaries]()
        for target, cc in compilers.items():
            progress(f"{COMPILE_C} for {target}")
            made[target] = _build_one(folder / target, folder, sources, csrc, cc, pool)
        return made


def _build_one(
    out: Path, folder: Path, sources: Mapping[str, str], csrc: Path, cc: Compiler, pool: ThreadPoolExecutor
) -> Binaries:
    out.mkdir()
    prefix = [f"-ffile-prefix-map={folder}=.", f"-ffile-prefix-map={csrc}=."]

    def compile_(source: Path, name: str, extra: Sequence[str] = ()) -> Path:
        cc.compile(source, [csrc], out / name, [*prefix, *extra])
        return out / name

    jobs = [pool.submit(compile_, folder / n, Path(n).stem + ".o") for n in sources]
    jobs.append(pool.submit(compile_, folder / "model.c", "model_program.o", ["-DEK_PROGRAM"]))
    jobs.append(pool.submit(compile_, csrc / "main.c", "main.o"))
    done = {job.result().name: job.result() for job in jobs}
    segments = [path for name, path in done.items() if name not in ("model.o", "model_program.o", "main.o")]
    cc.link_library([*segments, done["model.o"]], out / "libmodel.so")
    cc.link_program([*segments, done["model_program.o"], done["main.o"]], out / "main")
    return Binaries((out / "libmodel.so").read_bytes(), (out / "main").read_bytes())
