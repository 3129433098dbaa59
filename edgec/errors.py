"""The errors for people: one family for the compiler, devices and the runtime."""

from edgec_runtime.errors import (
    BundleError,
    DeviceError,
    EdgecError,
    EdgecWarning,
    InputError,
    ToolError,
    UnsupportedError,
    did_you_mean,
)


class InternalError(AssertionError):
    """A bug of edgec: exit code 70 and a request to report it."""

    # Not an EdgecError: a caller that catches those must not hide a bug.


__all__ = [
    "BundleError",
    "DeviceError",
    "EdgecError",
    "EdgecWarning",
    "InputError",
    "InternalError",
    "ToolError",
    "UnsupportedError",
    "did_you_mean",
]
