"""Makes the file of `--share` of what was collected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgec.sharing.schema import REPORT, SCHEMA
from edgec.version import VERSION


def shared_text(of: str, day: str, parts: Mapping[str, Any]) -> str:
    """Return the JSON of a file.

    Args:
        of: "bench" or "doctor".
        day: YYYY-MM-DD; the time of day is nobody's business.
        parts: "machine", and for a bench "network" and "latency".
    """
    collected = {
        "share_schema": SCHEMA,
        "of": of,
        "edgec": VERSION,
        "date": day,
        **parts,
    }
    # Nothing is written that did not go through the list of fields.
    return f"{json.dumps(REPORT.clean(collected), indent=1)}\n"
