"""Makes interpreters that use the Edge TPU, and lists Edge TPUs."""

from __future__ import annotations

import ctypes
import re
from typing import Any, Dict, List, Mapping, Optional, Union

import numpy as np

from ...device_end.facts import edgetpus_here
from ...interpreter import EdgeTpuDelegate, Interpreter, load_delegate
from ...interpreter.errors import InterpreterError
from ...model.interpreters import edgetpu_library
from ...session.edgetpu import EdgeTpuOptions
from ..adapters.common import input_tensor

_DEVICE = re.compile(r"(usb|pci)?(:\d+)?")
"""A kind of device, a number counted within the kind, or both."""


def load_edgetpu_delegate(
    options: Optional[Mapping[str, Any]] = None,
) -> EdgeTpuDelegate:
    """Return the delegate of the installed libedgetpu.

    Args:
        options: {"device": ...}, as of `make_interpreter`

    Raises:
        DelegateError: no libedgetpu can be loaded
    """
    return load_delegate(edgetpu_library(), options)


def make_interpreter(
    model_path_or_content: Union[str, bytes],
    device: Optional[str] = None,
    delegate: Optional[EdgeTpuDelegate] = None,
) -> Interpreter:
    """Return an interpreter of a bundle.

    Without device and delegate it uses an Edge TPU where there is one, and runs the
    same segments on the CPU otherwise; pycoral would fail there.

    Args:
        model_path_or_content: the .edgec file, or its content
        device: the Edge TPU that has to be there: ":N" (the number N of
            `list_edge_tpus`), "usb", "usb:N", "pci" or "pci:N"
        delegate: one from `load_edgetpu_delegate`; `device` is not used then

    Raises:
        InterpreterError: the bundle cannot be used, or the Edge TPU is not there
    """
    if delegate is None and device:
        if not _DEVICE.fullmatch(device):
            raise InterpreterError(
                f'there is no Edge TPU "{device}"',
                hint='give "usb", "pci", ":0", "usb:0" or "pci:0"',
            )
        delegate = load_edgetpu_delegate({"device": device})
    # A script that names no device runs as well on a board without a stick.
    if delegate is None:
        edgetpu = EdgeTpuOptions()
    else:
        edgetpu = EdgeTpuOptions("delegate", driver=delegate.open)
    if isinstance(model_path_or_content, bytes):
        return Interpreter(model_content=model_path_or_content, edgetpu=edgetpu)
    return Interpreter(model_path_or_content, edgetpu=edgetpu)


def list_edge_tpus() -> List[Dict[str, str]]:
    """Return "type" ("usb" or "pci") and "path" (its file in /dev) of each Edge TPU."""
    usb, pci = edgetpus_here()
    devices = [{"type": "usb", "path": str(facts["node"])} for facts in usb]
    devices += [{"type": "pci", "path": path} for path in pci]
    return devices


def get_runtime_version() -> str:
    """Return the version of the installed libedgetpu, as the library itself says it.

    Raises:
        DeviceError: no libedgetpu can be loaded
    """
    # edgetpu_c.h: const char* edgetpu_version()
    version = ctypes.CDLL(edgetpu_library()).edgetpu_version
    version.restype = ctypes.c_char_p
    text: bytes = version()
    return text.decode("utf-8", "replace")


def set_verbosity(verbosity: int) -> bool:
    """Return False: the level cannot be set.

    The library runs in a process of its own; its messages come as errors and warnings
    of the interpreter.
    """
    return False


def run_inference(interpreter: Interpreter, input_data: Any) -> None:
    """Run one inference on the raw bytes of the first input.

    Args:
        interpreter: the interpreter, allocated
        input_data: bytes, an array of one axis and one byte an element, or a pair of a
            ctypes.c_void_p and a size. More bytes than the input has are left out.

    Raises:
        InterpreterError: too few bytes
        TypeError: data of another kind, such as a Gst.Buffer
    """
    details = interpreter.get_input_details()[0]
    memory = interpreter.tensor(details["index"])()
    data = _bytes(input_data)
    if len(data) < memory.nbytes:
        raise InterpreterError(
            f"the data has {len(data)} bytes, the input {memory.nbytes}",
            hint="give the picture in the input's size: common.input_size(interpreter)",
        )
    # Cameras align rows, so that their buffers may be longer than the picture.
    flat = np.frombuffer(data, memory.dtype, count=memory.size)
    # The picture's rows, also where the input has a plane for each channel.
    is_picture = memory.ndim == 4 and len(memory) == 1
    picture = input_tensor(interpreter) if is_picture else memory
    np.copyto(picture, flat.reshape(picture.shape))
    interpreter.invoke()


def _bytes(data: Any) -> bytes:
    """Return the bytes of a kind of data that `run_inference` takes."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, np.ndarray):
        return data.tobytes()
    if isinstance(data, tuple) and isinstance(data[0], ctypes.c_void_p):
        pointer, size = data
        return ctypes.string_at(pointer, size)
    raise TypeError(
        f"run_inference takes no {type(data).__name__}: give bytes, such as "
        "buffer.extract_dup(0, buffer.get_size()) of a Gst.Buffer"
    )
