"""The errors that a person sees; the same family as the device side's."""

from edgec_runtime.errors import (
    BundleError,
    DeviceError,
    EdgecError,
    InputError,
    ToolError,
    UnsupportedError,
    did_you_mean,
)


class InternalError(AssertionError):
    """A bug of edgec: exit code 70 and a request to report it."""


__all__ = [
    "BundleError",
    "DeviceError",
    "EdgecError",
    "InputError",
    "InternalError",
    "ToolError",
    "UnsupportedError",
    "did_you_mean",
]
