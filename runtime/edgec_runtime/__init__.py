"""edgec_runtime: runs a bundle made by edgec.  numpy is its only hard dependency.

Session("model.edgec").run({"image": photo}) is all of it; Bundle and Manifest are for
tools.

A name is imported from its module when it is first used: a program that only needs an
error class does not wait for numpy and the rest (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bundle import Bundle, write_bundle
    from .errors import (
        BundleError,
        DeviceError,
        EdgecError,
        InputError,
        ToolError,
        UnsupportedError,
    )
    from .inputs import noise_inputs
    from .manifest import Contents, Manifest, SegmentInfo, StateInfo
    from .meters import StageFigures, StreamFigures
    from .photo import Placement, prepare, read_photo
    from .preprocess import Preprocess
    from .session import SegmentTime, Session
    from .stats import Summary
    from .stick import StickFacts
    from .stream import Shot, Stream
    from .tensors import QuantInfo, TensorInfo
    from .timing import Times

__version__ = "0.1.0"

__all__ = [
    "Bundle",
    "BundleError",
    "Contents",
    "DeviceError",
    "EdgecError",
    "InputError",
    "Manifest",
    "Placement",
    "Preprocess",
    "QuantInfo",
    "SegmentInfo",
    "SegmentTime",
    "Session",
    "Shot",
    "StageFigures",
    "StateInfo",
    "StickFacts",
    "Stream",
    "StreamFigures",
    "Summary",
    "TensorInfo",
    "Times",
    "ToolError",
    "UnsupportedError",
    "noise_inputs",
    "prepare",
    "read_photo",
    "write_bundle",
]

_NAMES_OF_MODULE = {
    "bundle": ("Bundle", "write_bundle"),
    "errors": (
        "BundleError",
        "DeviceError",
        "EdgecError",
        "InputError",
        "ToolError",
        "UnsupportedError",
    ),
    "inputs": ("noise_inputs",),
    "manifest": ("Contents", "Manifest", "SegmentInfo", "StateInfo"),
    "meters": ("StageFigures", "StreamFigures"),
    "photo": ("Placement", "prepare", "read_photo"),
    "preprocess": ("Preprocess",),
    "session": ("SegmentTime", "Session"),
    "stats": ("Summary",),
    "stick": ("StickFacts",),
    "stream": ("Shot", "Stream"),
    "tensors": ("QuantInfo", "TensorInfo"),
    "timing": ("Times",),
}
_MODULE_OF_NAME = {
    name: module for module, names in _NAMES_OF_MODULE.items() for name in names
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module, once: the module keeps it afterwards."""
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(
        importlib.import_module(f".{_MODULE_OF_NAME[name]}", __name__), name
    )
    globals()[name] = value
    return value
