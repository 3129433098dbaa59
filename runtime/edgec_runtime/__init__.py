"""edgec_runtime: runs a bundle made by edgec.  numpy is its only hard dependency.

Session("model.edgec").run({"image": photo}) is all of it; Bundle and Manifest are for tools.
"""

from __future__ import annotations

from .bundle import Bundle, write_bundle
from .errors import BundleError, DeviceError, EdgecError, InputError, ToolError, UnsupportedError
from .inputs import noise_inputs
from .manifest import Contents, Manifest, SegmentInfo, StateInfo
from .meters import StageFigures, StreamFigures
from .photo import Placement, prepare, read_photo
from .preprocess import Preprocess
from .session import SegmentTime, Session
from .stats import Summary
from .stick import StickFacts
from .stream import Shot, Stream
from .tensors import Quant, TensorInfo
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
    "Quant",
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
