"""The compiled files that others published."""

from __future__ import annotations

import json
from functools import cache

from tests.conftest import SHARED


@cache
def files() -> dict[str, bytes]:
    """Return the compiled files by their paths."""
    index = json.loads((SHARED / "edgetpu/compiled/index.json").read_text())
    return {
        e["compiled"]: (SHARED / "edgetpu" / e["compiled"]).read_bytes() for e in index
    }


def smallest() -> bytes:
    """Return the smallest of them."""
    return min(files().values(), key=len)
