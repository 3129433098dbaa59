"""The project's errors as the built-in exceptions that scripts for TFLite catch.

LiteRT raises ValueError for wrong tensors and models, RuntimeError for a failed
inference, and ValueError or OSError for a delegate.
"""

from __future__ import annotations

from ..errors import DeviceError, EdgecError, InputError

# Each is an error of edgec as well: `except EdgecError` finds all of them.


class InterpreterError(InputError, ValueError):
    """A model, tensor or option must change; a ValueError, as in LiteRT."""


class InvokeError(DeviceError, RuntimeError):
    """An inference could not run; a RuntimeError, as in LiteRT."""


class DelegateError(DeviceError, OSError, ValueError):
    """The Edge TPU's library or device is missing; an OSError and a ValueError.

    The genuine `load_delegate` raises OSError for a library it cannot load, and
    ValueError for a library without a device.
    """


def as_value_error(error: EdgecError) -> InterpreterError:
    """Return the same three lines as a ValueError."""
    return InterpreterError(error.what, error.at, error.hint)
