"""Results of the benchmarks of the boards' cores, kept in the user's cache.

A key says all that a result depends on.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from edgec_runtime.bundle.cache import cache_dir

from benchmarks.picycles import LAB, Picycles, missing
from edgec.toolchain.build import Store

LIMIT_BYTES = 64 << 20


@cache
def results() -> Store:
    """Return the store of all results."""
    return Store(cache_dir("bench-arm", "results"), LIMIT_BYTES)


def recall(key: str) -> Any:
    """Return the result of a key; None if there is none."""
    data = results().get(hashlib.sha256(key.encode()).hexdigest())
    return None if data is None else json.loads(data)


def remember(key: str, value: Any) -> None:
    """Keep a result for later runs."""
    data = json.dumps(value).encode()
    results().put(hashlib.sha256(key.encode()).hexdigest(), data)


@cache
def file_digest(path: Path) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def picycles() -> Picycles | None:
    """Return picycles; None if it cannot run here."""
    return None if missing() else Picycles(cache_dir("bench-arm", "armlab"))


def estimator() -> str:
    """Return what estimates the cycles, as a part of a key."""
    if missing():
        return "pipeline"
    names = ("picycles", "armlab.py", "picycles_plugin.c")
    return " ".join(["picycles", *(file_digest(LAB / name) for name in names)])
