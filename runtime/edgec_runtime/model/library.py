"""Loads a bundle's library, after its headers and its record were compared with the
manifest.

The C trusts its arguments: with a smaller arena or another shape it would write to other
memory. So the manifest must agree with the record that the compiler wrote into the
library.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any, Dict, Optional

from ..bundle.archive import Bundle
from ..bundle.extraction import extract
from ..bundle.manifest import Manifest
from ..device_end.elf import fault
from ..errors import BundleError, DeviceError

_HINT = "compile the model again"


def load_library(bundle: Bundle, target: str) -> ctypes.CDLL:
    """Return the library for a target, which must be that of this machine.

    Raises:
        BundleError: it is not code for the target, or its record differs from the
            manifest
        DeviceError: this machine cannot load it
    """
    path = extract(bundle, bundle.manifest.libraries[target])
    reason = fault(str(path), target, library=True)
    if reason is not None:
        raise BundleError(
            f"the bundle's library {reason}", at=str(bundle.path), hint=_HINT
        )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as e:
        what = f"cannot load the bundle's library: {e}"
        raise DeviceError(
            what, at=str(path), hint="`edgec doctor` shows this machine's libc"
        ) from e
    difference = _lie(_record(library), bundle, target)
    if difference is not None:
        raise BundleError(
            f"the bundle's library was made for something else: {difference}",
            at=str(bundle.path),
            hint=_HINT,
        )
    return library


def _record(library: ctypes.CDLL) -> Dict[str, Any]:
    """Return the record in a library; {} if it has none."""
    try:
        text = ctypes.string_at(
            ctypes.addressof(ctypes.c_char.in_dll(library, "edgec_made_for"))
        )

        record = json.loads(text.decode())
    # ctypes raises ValueError for a missing symbol, and json for other text.
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _lie(record: Dict[str, Any], bundle: Bundle, target: str) -> Optional[str]:
    """Return the first difference of a record from the manifest; None without one."""
    m = bundle.manifest
    weights = m.weights.get(target)
    size, crc = (
        (m.files[weights].bytes, bundle.crc32(weights))
        if weights is not None
        else (0, 0)
    )
    expected = {
        "inputs": list(m.inputs),
        "outputs": list(m.outputs),
        "tensors": {n: [t.dtype, list(t.shape)] for n, t in m.tensors.items()},
        "weights": [size, crc],
        "graph": m.graph,
        "state": [[s.input, s.output] for s in m.state],
    }

    # These are types of JSON, since a tuple never equals a list.
    for key, value in expected.items():
        if record.get(key) != value:
            return f"its {key} are {record.get(key)!r:.200}, the manifest says {value!r:.200}"

    # The arena would be too small for more threads than the code is for.
    if type(record.get("threads")) is not int or record["threads"] < m.threads:
        return (
            f"it is for {record.get('threads')!r:.20} threads, "
            f"the manifest says {m.threads}"
        )
    return _segments_lie(record.get("segments"), m)


def _segments_lie(record: Any, m: Manifest) -> Optional[str]:
    """Return the first difference of the segments; None without one.

    The manifest's arena is enough for every target, so that a library may need less.
    """
    if not isinstance(record, dict) or list(record) != [s.name for s in m.segments]:
        return "it has other segments than the manifest"
    for s in m.segments:
        arena, inputs, outputs = record[s.name]
        if [inputs, outputs] != [list(s.inputs), list(s.outputs)]:
            return (
                f"segment {s.name} has other inputs or outputs than the manifest says"
            )

        # The session allocates the arena of the manifest.
        if arena > s.arena:
            return (
                f"segment {s.name} needs {arena} bytes of scratch, "
                f"the manifest says {s.arena}"
            )
    return None
