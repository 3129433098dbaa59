"""Loads a bundle's library after its headers and its own record fit the manifest.

The C trusts its arguments: an arena that is too small, or another shape, would let it
write over other memory. So a number of the manifest reaches it only if the library,
which the compiler wrote together with the C, has the same.
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
        BundleError: it is no such code, or was made for something else than the
            manifest
        DeviceError: this machine cannot load it
    """
    path = extract(bundle, bundle.manifest.libraries[target])
    found = fault(str(path), target, library=True)
    if found is not None:
        raise BundleError(
            f"the bundle's library {found}", at=str(bundle.path), hint=_HINT
        )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as e:
        what = f"cannot load the bundle's library: {e}"
        raise DeviceError(
            what, at=str(path), hint="`edgec doctor` shows this machine's libc"
        ) from e
    lie = _lie(_made_for(library), bundle, target)
    if lie is not None:
        raise BundleError(
            f"the bundle's library was made for something else: {lie}",
            at=str(bundle.path),
            hint=_HINT,
        )
    return library


def _made_for(library: ctypes.CDLL) -> Dict[str, Any]:
    """Return the record in a library; {} if it has none."""
    try:
        text = ctypes.string_at(
            ctypes.addressof(ctypes.c_char.in_dll(library, "edgec_made_for"))
        )

        found = json.loads(text.decode())
    except (ValueError, RecursionError):  # ctypes' for a missing symbol, json's
        return {}
    return found if isinstance(found, dict) else {}


def _lie(said: Dict[str, Any], bundle: Bundle, target: str) -> Optional[str]:
    """Return the first difference of the manifest; None if there is none."""
    m = bundle.manifest
    weights = m.weights.get(target)
    size, crc = (
        (m.files[weights].bytes, bundle.crc32(weights))
        if weights is not None
        else (0, 0)
    )
    wanted = {
        "inputs": list(m.inputs),
        "outputs": list(m.outputs),
        "tensors": {n: [t.dtype, list(t.shape)] for n, t in m.tensors.items()},
        "weights": [size, crc],
        "graph": m.graph,
        "state": [[s.input, s.output] for s in m.state],
    }

    # In JSON's types: a tuple would never equal a list.
    for key, value in wanted.items():
        if said.get(key) != value:
            return f"its {key} are {said.get(key)!r:.200}, the manifest says {value!r:.200}"

    # More threads than the code is for would share an arena that is too small.
    if type(said.get("threads")) is not int or said["threads"] < m.threads:
        return (
            f"it is for {said.get('threads')!r:.20} threads, "
            f"the manifest says {m.threads}"
        )
    return _segments_lie(said.get("segments"), m)


def _segments_lie(said: Any, m: Manifest) -> Optional[str]:
    """The manifest's arena is enough for every target, so a library may want less."""
    if not isinstance(said, dict) or list(said) != [s.name for s in m.segments]:
        return "it has other segments than the manifest"
    for s in m.segments:
        arena, inputs, outputs = said[s.name]
        if [inputs, outputs] != [list(s.inputs), list(s.outputs)]:
            return (
                f"segment {s.name} has other inputs or outputs than the manifest says"
            )

        # The session allocates what the manifest says.
        if arena > s.arena:
            return (
                f"segment {s.name} needs {arena} bytes of scratch, "
                f"the manifest says {s.arena}"
            )
    return None
