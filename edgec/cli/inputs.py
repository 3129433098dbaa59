"""Defines the options about a model's inputs, and parses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edgec_runtime.vision.preprocess import COLORS, FILTERS, PRESETS, RESIZES

from edgec.cli.sections import option
from edgec.errors import InputError

INPUTS = "What its inputs are"
"""Title of the section of these options in --help."""
_PREPROCESS_HELP = (
    "how photos become inputs, for example imagenet,crop=0.875 or 0_255,bgr,letterbox=114: "
    f"{', '.join(PRESETS)} or mean=…,std=…; {', '.join(COLORS)}; {', '.join(RESIZES)}; "
    f"{', '.join(FILTERS)} "
    "(docs/preprocessing.md; default: what the file states, else 0_1, "
    "or raw for integer inputs)"
)


def input_options() -> list[Callable[..., Any]]:
    """Return the options about the model's inputs."""
    return [
        option("--preprocess", section=INPUTS, metavar="SPEC", help=_PREPROCESS_HELP),
        option(
            "--input-shape",
            section=INPUTS,
            multiple=True,
            metavar="NAME=1x3x224x224",
            help="freeze a dynamic input",
        ),
        option(
            "--fix",
            multiple=True,
            metavar="NAME=16000",
            help="an input that is a constant",
        ),
        option(
            "--state",
            multiple=True,
            metavar="INPUT=OUTPUT",
            help="an input that is, at each call, what this output was at the last "
            "one; zeros at first",
        ),
    ]


def about_inputs(
    input_shape: Sequence[str], fix: Sequence[str], state: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the values of `input_options` without --preprocess, as fields of Options.

    Raises InputError for a value of another form.
    """
    return {
        "input_shapes": dict(map(_parse_shape, input_shape)),
        "fix": dict(map(_parse_fixed, fix)),
        "state": dict(map(_parse_state, state)),
    }


def _parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse NAME=1x3x224x224."""
    # Names of inputs may have "=" in them, sizes have not.
    name, equals, dims = text.rpartition("=")
    try:
        shape = tuple(int(d) for d in dims.split("x"))
    except ValueError:
        shape = ()
    if not equals or not name or not shape or min(shape) < 1:
        raise InputError(
            f"--input-shape {text} is not NAME=1x3x224x224",
            hint="give positive sizes separated by x",
        )
    return name, shape


def _parse_fixed(text: str) -> tuple[str, tuple[float, ...]]:
    """Parse NAME=16000 or NAME=1,2,3."""
    name, equals, numbers = text.rpartition("=")
    try:
        values = tuple(float(n) for n in numbers.split(","))
    except ValueError:
        values = ()
    if not equals or not name or not values:
        raise InputError(
            f"--fix {text} is not NAME=16000",
            hint="give one number, or one for each element: 1,2,3",
        )
    return name, values


def _parse_state(text: str) -> tuple[str, str]:
    """Parse INPUT=OUTPUT."""
    name, equals, output = text.partition("=")
    if not equals or not name or not output:
        raise InputError(
            f"--state {text} is not INPUT=OUTPUT",
            hint="name an input and the output that comes back",
        )
    return name, output
