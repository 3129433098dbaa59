"""edgec_runtime: runs a bundle of edgec; numpy is its only hard dependency.

Session("model.edgec").run({"image": photo}) runs a model; Bundle and Manifest are for
tools.

A name is imported from its module when it is first used: a program that only needs an
error class does not wait for numpy and the rest (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bundle.archive import Bundle, write_bundle
    from .bundle.manifest import Contents, Manifest, SegmentInfo, StateInfo
    from .cascade.result import CascadeObject, CascadeResult
    from .errors import (
        BundleError,
        DeviceError,
        EdgecError,
        InputError,
        ToolError,
        UnsupportedError,
    )
    from .model.inputs import noise_inputs
    from .model.stats import Summary
    from .model.timing import Times
    from .session.meters import StageFigures, StreamFigures
    from .session.session import SegmentTime, Session
    from .session.stream import Shot, Stream
    from .session.vision import Vision
    from .stick.stick import StickFacts
    from .tensors import QuantInfo, TensorInfo
    from .vision.camera import CameraFrame
    from .vision.photo import Placement, prepare, read_photo
    from .vision.preprocess import Preprocess
    from .vision.smoothing import Smoother
    from .webcam.effects import Painter

__version__ = "0.1.0"

__all__ = [
    "Bundle",
    "BundleError",
    "CameraFrame",
    "CascadeObject",
    "CascadeResult",
    "Contents",
    "DeviceError",
    "EdgecError",
    "InputError",
    "Manifest",
    "Painter",
    "Placement",
    "Preprocess",
    "QuantInfo",
    "SegmentInfo",
    "SegmentTime",
    "Session",
    "Shot",
    "Smoother",
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
    "Vision",
    "noise_inputs",
    "prepare",
    "read_photo",
    "write_bundle",
]

_NAMES_OF_MODULE = {
    "bundle.archive": ("Bundle", "write_bundle"),
    "bundle.manifest": ("Contents", "Manifest", "SegmentInfo", "StateInfo"),
    "cascade.result": ("CascadeObject", "CascadeResult"),
    "errors": (
        "BundleError",
        "DeviceError",
        "EdgecError",
        "InputError",
        "ToolError",
        "UnsupportedError",
    ),
    "model.inputs": ("noise_inputs",),
    "model.stats": ("Summary",),
    "model.timing": ("Times",),
    "session.meters": ("StageFigures", "StreamFigures"),
    "session.session": ("SegmentTime", "Session"),
    "session.stream": ("Shot", "Stream"),
    "session.vision": ("Vision",),
    "stick.stick": ("StickFacts",),
    "tensors": ("QuantInfo", "TensorInfo"),
    "vision.camera": ("CameraFrame",),
    "vision.photo": ("Placement", "prepare", "read_photo"),
    "vision.preprocess": ("Preprocess",),
    "vision.smoothing": ("Smoother",),
    "webcam.effects": ("Painter",),
}
_MODULE_OF_NAME = {
    name: module for module, names in _NAMES_OF_MODULE.items() for name in names
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module, once: the module keeps it afterwards."""
    if name == "CascadeSession":
        raise ImportError("use Session: its `result` takes the frames of a cascade")
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_MODULE_OF_NAME[name]}", __name__)
    value = getattr(module, name)
    # The next use finds it without this function.
    globals()[name] = value
    return value
