"""Builds csrc/block_count.c, the plugin for QEMU that counts how often each block of code
runs, for estimates of boards; it is cached by its source and flags.
"""

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
    """Return commands that compile C for this machine, the fastest first."""
    commands = []
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path:
            commands.append([path])
    if importlib.util.find_spec("ziglang"):
        commands.append([sys.executable, "-m", "ziglang", "cc"])
    return commands


def block_count_plugin() -> Path:
    """Return the shared object, which is built if it is not in the cache yet.

    Raises ToolError with the last compiler's message.
    """
    inputs = SOURCE.read_bytes() + repr(FLAGS).encode()
    digest = hashlib.sha256(inputs).hexdigest()[:16]
    path = cache_dir("plugins", digest) / "block_count.so"
    if path.exists():
        return path
    problem = "no C compiler was found"
    for compiler in host_compilers():
        env = {**os.environ}
        env.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache_dir("zig")))
        # A folder of its own: other threads and processes may be building it too.
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            built = Path(aside, path.name)
            # In a private folder: Python imports modules from where it is started.
            result = subprocess.run(
                [*compiler, *FLAGS, str(SOURCE.absolute()), "-o", str(built)],
                cwd=aside,
                env=env,
                capture_output=True,
                text=True,
            )
            if result.returncode == 0:
                built.replace(path)
                return path
        problem = f"{' '.join(compiler)}: {result.stderr.strip()[-200:]}"
    raise ToolError(
        f"the plugin for QEMU could not be built ({problem})",
        hint="sudo apt-get install gcc",
    )
