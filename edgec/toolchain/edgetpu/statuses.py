"""Explains the statuses of operators in edgetpu_compiler's table, with remedies.

The statuses are of versions 1.0 to 16.0, from logs and issue threads; others are passed
on as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

MAPPED = "Mapped to Edge TPU"
ONE_SUBGRAPH = "More than one subgraph is not supported"
UNKNOWN_FIX = "none known: edgec compiles it to C for the CPU"


@dataclass(frozen=True)
class CompilerStatus:
    """A status of an operator.

    Attributes:
        text: the status, as it is printed
        meaning: the problem of the operator
        fix: a change that gets it onto the Edge TPU
        own: whether the operator itself was refused; otherwise it was left out only
            because of another operator
    """

    text: str
    meaning: str
    fix: str
    own: bool = True


_KNOWN = (
    CompilerStatus(
        MAPPED, "the operator runs on the Edge TPU", "none needed", own=False
    ),
    CompilerStatus(
        ONE_SUBGRAPH,
        "the operator comes after one that the compiler refused, "
        "and it compiles one piece of a file only",
        "look at the operators that were refused for another reason",
        own=False,
    ),
    CompilerStatus(
        "Operation not supported",
        "the Edge TPU has no such operation",
        "replace it by operations that the Edge TPU has (docs/supported-ops.md)",
    ),
    CompilerStatus(
        "Operation version not supported",
        "the operator's version is newer than the compiler",
        "use a newer edgetpu_compiler, or convert the model with an older TensorFlow",
    ),
    CompilerStatus(
        "Operation is working on an unsupported data type",
        "the operator reads or writes a type other than int8 or uint8",
        "quantize it: give calibration data, and end the model before float or int32 "
        "operations",
    ),
    CompilerStatus(
        "Tensor has unsupported rank (up to 3 innermost dimensions mapped)",
        "only the three innermost dimensions of a tensor may be larger than 1",
        "use a batch of 1 and reshape to three dimensions",
    ),
    CompilerStatus(
        "Operation is otherwise supported, but not mapped due to some unspecified "
        "limitation",
        "the Edge TPU has the operation, but not for these sizes or options",
        "make the tensor smaller, or split it",
    ),
    CompilerStatus(
        "Only Strided-Slice with unitary strides supported",
        "every stride of a slice must be 1",
        "use SPACE_TO_DEPTH or a convolution with that stride",
    ),
    CompilerStatus(
        "Filter, bias, or other param is not constant at compile-time",
        "weights and parameters must be constants of the model",
        "make the weights constants",
    ),
    CompilerStatus(
        "For example, a fully-connected or softmax layer with 2D output",
        "the output may have one row only",
        "write it as a 1x1 convolution",
    ),
    CompilerStatus(
        "Image-interpolation layer won't run precisely enough on Edge TPU",
        "the resize would lose too much precision",
        "resize in smaller steps, to the nearest neighbour, or on the CPU",
    ),
)
_BY_TEXT = {s.text.casefold(): s for s in _KNOWN}


def status(text: str) -> CompilerStatus:
    """Return the status of a text; unknown ones are refusals of the operator."""
    # Logs differ in spaces, in the final period and in capitals.
    plain = " ".join(text.split()).rstrip(".")

    known_status = _BY_TEXT.get(plain.casefold())
    if known_status is not None:
        return known_status
    return CompilerStatus(plain, plain, UNKNOWN_FIX)


def known() -> tuple[CompilerStatus, ...]:
    """Return every status with a known meaning."""
    return _KNOWN
