"""Builds csrc/block_count.c, the plugin for QEMU, once per compiler and source."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from edgec_runtime import ToolError
from edgec_runtime.bundle.cache import cache_dir

SOURCE = Path(__file__).parent / "csrc" / "block_count.c"
FLAGS = ("-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")


def host_compilers() -> list[list[str]]:
    """Commands that compile C for this machine, the quickest first."""
    found = [[path] for name in ("cc", "gcc", "clang") if (path := shutil.which(name))]
    if importlib.util.find_spec("ziglang"):
        found.append([sys.executable, "-m", "ziglang", "cc"])
    return found


def block_count_plugin() -> Path:
    """The shared object, built if it is not in the cache yet.

    Raises ToolError with the compilers' last words.
    """
    text = SOURCE.read_bytes()
    path = (
        cache_dir(
            "plugins", hashlib.sha256(text + repr(FLAGS).encode()).hexdigest()[:16]
        )
        / "block_count.so"
    )
    if path.exists():
        return path
    said = "no C compiler was found"
    for compiler in host_compilers():
        env = {**os.environ}
        env.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache_dir("zig")))
        # A folder of its own: other threads and processes may be building it too.
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            built = Path(aside, path.name)
            # In a folder that is ours: Python looks for modules where it is started.
            done = subprocess.run(
                [*compiler, *FLAGS, str(SOURCE.absolute()), "-o", str(built)],
                cwd=aside,
                env=env,
                capture_output=True,
                text=True,
            )
            if done.returncode == 0:
                built.replace(path)
                return path
        said = f"{' '.join(compiler)}: {done.stderr.strip()[-200:]}"
    raise ToolError(
        f"the plugin for QEMU could not be built ({said})",
        hint="sudo apt-get install gcc",
    )
