"""What benchmarks of the boards' cores have found out, kept in the user's cache until
what it depends on changes.
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

REMEMBERED_BYTES = 64 << 20


@cache
def memory() -> Store:
    """The part of the cache that they have."""
    return Store(cache_dir("bench-arm", "results"), REMEMBERED_BYTES)


def recall(key: str) -> Any:
    """What was remembered under a key that says all that it depends on; None if nothing
    was.
    """
    data = memory().get(hashlib.sha256(key.encode()).hexdigest())
    return None if data is None else json.loads(data)


def remember(key: str, value: Any) -> None:
    """Keeps a value for later runs."""
    memory().put(hashlib.sha256(key.encode()).hexdigest(), json.dumps(value).encode())


@cache
def file_digest(path: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def tool() -> Picycles | None:
    """None where there is none: then edgec's own model takes its place."""
    return None if missing() else Picycles(cache_dir("bench-arm", "armlab"))


def how() -> str:
    """What estimates the cycles, for the keys of what is remembered."""
    if missing():
        return "pipeline"
    return "picycles " + " ".join(
        file_digest(LAB / n) for n in ("picycles", "armlab.py", "picycles_plugin.c")
    )
