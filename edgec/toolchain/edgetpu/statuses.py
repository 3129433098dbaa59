"""What edgetpu_compiler says of an operator in its table, and what to do about it.

The wordings are those of versions 1.0 to 16.0, from logs and issue threads; a wording
that is not here is passed on as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

MAPPED = "Mapped to Edge TPU"
ONE_SUBGRAPH = "More than one subgraph is not supported"
UNKNOWN_FIX = "none known: edgec compiles it to C for the CPU"


@dataclass(frozen=True)
class CompilerStatus:
    """One wording. meaning: what was wrong with the operator. fix: what would get it
    onto the Edge TPU.

    own: whether the operator itself was refused; else it was left out only because of
    another one.
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
    """What a wording means; one that is not known counts as a refusal of the operator
    itself.
    """
    plain = " ".join(text.split()).rstrip(".")
    return _BY_TEXT.get(plain.casefold()) or CompilerStatus(plain, plain, UNKNOWN_FIX)


def known() -> tuple[CompilerStatus, ...]:
    """Every wording with a known meaning."""
    return _KNOWN
