"""What a .tflite file given for a model or a bundle is refused for."""

from __future__ import annotations

from typing import NoReturn, Type

from ..errors import BundleError, EdgecError, InputError

_IDENTIFIER = b"TFL3"
"""The identifier of a TFLite file, at its bytes 4 to 7."""

EDGETPU_OPERATOR = "edgetpu-custom-op"
"""The name of the operator that edgetpu_compiler writes."""
# A string of a flatbuffer: its length, its characters and a NUL.
_OPERATOR_IN_FILE = (
    len(EDGETPU_OPERATOR).to_bytes(4, "little") + EDGETPU_OPERATOR.encode() + b"\0"
)


def is_tflite(start: bytes) -> bool:
    """Return whether a file is of TFLite, from its first 8 bytes or more."""
    return start[4:8] == _IDENTIFIER


def is_compiled(data: bytes) -> bool:
    """Return whether a whole file is one that edgetpu_compiler has written."""
    return is_tflite(data) and _OPERATOR_IN_FILE in data


def check_not_compiled(
    data: bytes, where: str, error: Type[EdgecError] = InputError
) -> None:
    """Raise an error for a .tflite file that edgetpu_compiler has written.

    Its operators hold machine code of the Edge TPU, from which no operators can be
    read.

    Args:
        data: the file, whole
        where: its path, for the message
        error: the class of the error
    """
    if is_compiled(data):
        raise error(
            "the file is already compiled by edgetpu_compiler",
            at=where,
            hint="give the .tflite that it was made from",
        )


def refuse_as_bundle(data: bytes, where: str) -> NoReturn:
    """Raise BundleError for a .tflite file in the place of a bundle.

    Args:
        data: the file, whole
        where: its path, for the message
    """
    check_not_compiled(data, where, BundleError)
    raise BundleError(
        "the file is a .tflite, which has to be compiled first",
        at=where,
        hint="edgec compile model.tflite --target pi4 -o model.edgec; then give "
        "model.edgec",
    )
