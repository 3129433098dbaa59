"""Writes what a compile checked: the code against the reference, and the accuracy."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from edgec.quantize.observe.layers import LayerNoise
from edgec.quantize.observe.verification import Verification

FEW = 6
"""A warning says so where calibration had fewer samples: less than what is left of
`AMPLE` when a quarter is held back.
"""
AMPLE = 8
"""The samples that ranges and corrections want."""
CLEAR_DB = 40.0
"""No operation is blamed where every output has this ratio: nobody sees that noise, and
an operation of which little reaches the outputs may have any.
"""
MAX_NAMES = 6
"""Longer lists of segments are written as their first and last."""


def checks(verification: Verification) -> Iterator[str]:
    """Yield whether the code does what the reference interpreter does.

    This is independent of the accuracy of the model. All segments that are exact share
    a line for each executor; every other segment has its own.
    """
    # A network may have dozens of segments, and exact ones leave nothing to say.
    exact: dict[tuple[str, int], list[str]] = {}
    for check in verification.segments:
        if not check.error:
            exact.setdefault((check.how, check.samples), []).append(check.segment)
    for (how, samples), names in exact.items():
        if len(names) <= MAX_NAMES:
            segments = ", ".join(names)
        else:
            segments = f"{len(names)} segments, {names[0]} to {names[-1]}"
        runs = "it runs" if len(names) == 1 else "they run"
        yield (
            f"verified {segments}: as {how} {runs} as the reference does, "
            f"bit for bit ({sample_count(samples)})"
        )

    for check in verification.segments:
        if check.error:
            near = f"within {check.error:.2g} of the reference"
            yield (
                f"verified {check.segment}: as {check.how} it runs {near} "
                f"({check.limit:.2g} allowed; {sample_count(check.samples)})"
            )

    for line in verification.float16:
        yield from wrapped(f"warning: in float16, {line}")
    if verification.not_finite:
        where = f"on {verification.source}: first {verification.not_finite}"
        yield from textwrap.wrap(f"warning: outputs are not finite {where}", 120)
    if verification.not_run:
        yield from wrapped(f"not run here {verification.not_run}")


def accuracy(verification: Verification) -> Iterator[str]:
    """Yield how near the outputs are to the original model's."""
    basis = f"{sample_count(verification.samples)} of {verification.source}"
    if verification.calibrated:
        yield f"calibrated on {sample_count(verification.calibrated)}"
        if verification.calibrated < FEW:
            yield (
                f"warning: that is few: give {AMPLE} samples or more, "
                "of different things"
            )
        yield f"accuracy against the float model, on {basis}:"
    else:
        yield f"agreement with the model, on {basis}:"

    low = verification.low()
    for name, agreement in verification.whole.items():
        remark = ": low" if name in low else ""
        yield f"  output {name}: {agreement}{remark}"
    is_clear = all(a.sqnr_db >= CLEAR_DB for a in verification.whole.values())
    if verification.worst is not None and not is_clear:
        yield from _worst_layer(verification.worst)
    for name, misses in low.items():
        yield f"warning: low accuracy: output {name}: {'; '.join(misses)}"


def _worst_layer(layer: LayerNoise) -> Iterator[str]:
    """Yield the op whose own quantization noise is largest, and its source nodes."""
    yield (
        f"  largest loss in one op: {layer.kind} {layer.value} in {layer.part}, "
        f"SQNR {layer.own_sqnr_db:.1f} dB by itself"
    )
    if layer.source:
        # Spaces let a long list of fused nodes be shortened between two names.
        nodes = layer.source.replace("+", " + ")
        yield textwrap.shorten(
            f"from {nodes}", 110, placeholder=" …", initial_indent="    "
        )


def sample_count(count: int) -> str:
    """Return "1 sample", "2 samples" and so on."""
    plural = "s" if count != 1 else ""
    return f"{count} sample{plural}"


def wrapped(text: str) -> list[str]:
    """Wrap text at 120 columns, names of files and options unbroken."""
    # A broken path or option could not be copied into a command.
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)
