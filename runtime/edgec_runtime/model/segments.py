"""Runs segments in this process: those on C, and a .tflite on an interpreter."""

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
    """A segment that is a function of the bundle's library.

    Any number of threads may run it, each with its own frame and scratch.
    """

    def __init__(
        self,
        info: SegmentInfo,
        library: ctypes.CDLL,
        weights: Optional[Array],
        shared: bool,
        at: str,
    ) -> None:
        """Look the function up.

        Args:
            info: the segment
            library: the bundle's library
            weights: the weights, uint8 [N]; None if the model has none
            shared: whether the scratch's threads share the larger ops
            at: the bundle's path, for messages

        Raises:
            DeviceError: the library does not have the function
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
        self._weights_array = weights  # the reference keeps the memory alive
        self._weights = None if weights is None else weights.ctypes.data

    def run(self, frame: Inference, scratch: ExecutionContext) -> None:
        """Run the segment; raise DeviceError if its code reports a fault."""
        inputs, outputs = frame.ports[self._info.name]
        arguments = (
            scratch.arena if self._info.arena else None,
            self._weights,
            inputs,
            outputs,
        )
        if self._shared:
            code = self._function(scratch.pool, *arguments, None, None)
        else:
            code = self._function(*arguments)
        if code:
            raise DeviceError(
                f"the segment's C returned {code}",
                at=self._info.name,
                hint="compile the model again, or report this",
            )


class InterpreterSegment:
    """A segment that is a .tflite on an interpreter, which runs one frame at a time.

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
        interpreter.invoke()  # the first run loads the weights into the Edge TPU

    def _ports(
        self, details: List[Mapping[str, Any]], names: Tuple[str, ...]
    ) -> Dict[str, int]:
        """Return the interpreter's index of each tensor, by name."""
        ports = match_ports(details, names)
        for name, d in zip(names, ports or []):
            info = self._tensors[name]
            if (
                np.dtype(d["dtype"]) != info.numpy_dtype
                or tuple(int(n) for n in d["shape"]) != info.shape
            ):
                ports = None
                break
        if ports is None:
            present = ", ".join(
                f"{d['name']} {np.dtype(d['dtype']).str} {tuple(d['shape'])}"
                for d in details
            )
            expected = ", ".join(str(self._tensors[n]) for n in names)
            raise EdgecError(
                f"the segment's .tflite has the tensors {present}, "
                f"the manifest {expected}",
                at=self._info.name,
                hint="compile the model again",
            )
        return {n: int(d["index"]) for n, d in zip(names, ports)}

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run the segment on arrays, by name.

        The interpreter's memory is looked up each time, since a run may move it.
        """
        for name, index in self._inputs.items():
            np.copyto(self._interpreter.tensor(index)(), arrays[name])
        self._interpreter.invoke()
        for name, index in self._outputs.items():
            np.copyto(arrays[name], self._interpreter.tensor(index)())
