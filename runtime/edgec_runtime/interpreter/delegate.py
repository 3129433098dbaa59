"""The Edge TPU's delegate, loaded with the call of tflite_runtime and LiteRT."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Mapping, Optional

from ..model.interpreters import EdgeTpuDelegate
from ..session.edgetpu import EdgeTpuOptions
from .errors import DelegateError, InterpreterError

_NAME = "libedgetpu"
"""The beginning of the library's file name, with or without a version behind it."""


def load_delegate(
    library: str, options: Optional[Mapping[str, Any]] = None
) -> EdgeTpuDelegate:
    """Return the delegate for `Interpreter(experimental_delegates=[...])`.

    Args:
        library: the name or path of libedgetpu, for example "libedgetpu.so.1"
        options: the library's options as text, for example {"device": "usb:0"}

    Raises:
        DelegateError: the library cannot be loaded
        InterpreterError: the library is another delegate
    """
    # GPU, NNAPI and XNNPACK delegates exist as well.
    if not os.path.basename(library).startswith(_NAME):
        raise InterpreterError(
            f'the delegate "{library}" is not one for an Edge TPU',
            hint="leave the delegate out: a bundle's own code runs on the CPU",
        )
    # The genuine call fails here, too, and scripts fall back to the CPU where it does.
    try:
        ctypes.CDLL(library)
    except OSError as e:
        raise DelegateError(
            f"the Edge TPU's library cannot be loaded: {e}",
            hint="install libedgetpu; `edgec doctor` says from where",
        ) from None
    pairs = tuple((str(name), str(value)) for name, value in (options or {}).items())
    return EdgeTpuDelegate(library, pairs)


def edgetpu_options(delegates: Any) -> EdgeTpuOptions:
    """Return how a session runs with these delegates: on the CPU without any.

    Raises:
        InterpreterError: a delegate is not from `load_delegate`, or there are several
    """
    # Without a delegate LiteRT uses no Edge TPU either, so no stick is looked for.
    items = list(delegates or ())
    if not items:
        return EdgeTpuOptions(tpu="c")
    for delegate in items:
        if not isinstance(delegate, EdgeTpuDelegate):
            raise InterpreterError(
                f"a bundle cannot run on a {type(delegate).__name__} as delegate",
                hint="import load_delegate from edgec_runtime.interpreter, or leave "
                "the delegate out",
            )
    if len(items) > 1:
        raise InterpreterError(
            f"a bundle runs on one Edge TPU, not on {len(items)} delegates",
            hint="give one delegate",
        )
    return EdgeTpuOptions(tpu="delegate", driver=items[0].open)
