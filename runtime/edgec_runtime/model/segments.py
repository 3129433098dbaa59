"""The kinds of segments in this process: C, and a .tflite on an interpreter."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ..bundle.manifest import SegmentInfo
from ..errors import DeviceError, EdgecError
from ..tensors import TensorInfo
from .inference import ExecutionContext, Inference
from .interpreters import TfliteInterpreter, match_ports

Array = NDArray[Any]


class CSegment:
    """A function of the bundle's library.

    Any number of threads may run it, each with a frame and a scratch.
    """

    def __init__(
        self,
        info: SegmentInfo,
        library: ctypes.CDLL,
        weights: Optional[Array],
        shared: bool,
        at: str,
    ) -> None:
        """shared: the larger ops are, with the scratch's threads.  at: the bundle.

        DeviceError where it is missing.
        """
        symbol = f"{info.symbol}_on" if shared else info.symbol
        try:
            self._function = getattr(library, symbol)
        except AttributeError:
            raise DeviceError(
                f"the bundle's library lacks {info.symbol}",
                at=at,
                hint="compile the model again",
            ) from None
        self._function.restype = ctypes.c_int
        self._function.argtypes = [ctypes.c_void_p] * (7 if shared else 4)
        self._info = info
        self._shared = shared
        self._keep = weights
        self._weights = None if weights is None else weights.ctypes.data

    def run(self, frame: Inference, scratch: ExecutionContext) -> None:
        """Raise DeviceError if the code reports a fault."""
        read, written = frame.ports[self._info.name]
        given = (
            scratch.arena if self._info.arena else None,
            self._weights,
            read,
            written,
        )
        if self._shared:
            code = self._function(scratch.pool, *given, None, None)
        else:
            code = self._function(*given)
        if code:
            raise DeviceError(
                f"the segment's C returned {code}",
                at=self._info.name,
                hint="compile the model again, or report this",
            )


class InterpreterSegment:
    """A .tflite on an interpreter with one set of tensors: one run at a time.

    Raises:
        EdgecError: its tensors are not those of the manifest
    """

    def __init__(
        self,
        info: SegmentInfo,
        tensors: Mapping[str, TensorInfo],
        interpreter: TfliteInterpreter,
    ) -> None:
        self._info = info
        self._tensors = tensors
        self._interpreter = interpreter
        interpreter.allocate_tensors()
        self._inputs = self._ports(interpreter.get_input_details(), info.inputs)
        self._outputs = self._ports(interpreter.get_output_details(), info.outputs)
        interpreter.invoke()  # once, untimed: the Edge TPU takes the weights

    def _ports(
        self, details: List[Mapping[str, Any]], names: Tuple[str, ...]
    ) -> Dict[str, int]:
        """Tensor name → the interpreter's index."""
        matched = match_ports(details, names)
        for name, d in zip(names, matched or []):
            info = self._tensors[name]
            if (
                np.dtype(d["dtype"]) != info.numpy_dtype
                or tuple(int(n) for n in d["shape"]) != info.shape
            ):
                matched = None
                break
        if matched is None:
            seen = ", ".join(
                f"{d['name']} {np.dtype(d['dtype']).str} {tuple(d['shape'])}"
                for d in details
            )
            wanted = ", ".join(str(self._tensors[n]) for n in names)
            raise EdgecError(
                f"the segment's .tflite has the tensors {seen}, the manifest {wanted}",
                at=self._info.name,
                hint="compile the model again",
            )
        return {n: int(d["index"]) for n, d in zip(names, matched)}

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Reads and writes these, by name.

        Its own memory is looked up each time: an invoke may move it.
        """
        for name, index in self._inputs.items():
            np.copyto(self._interpreter.tensor(index)(), arrays[name])
        self._interpreter.invoke()
        for name, index in self._outputs.items():
            np.copyto(arrays[name], self._interpreter.tensor(index)())
