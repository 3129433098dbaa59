"""Defines the terms of the reports once; a report explains the terms that it uses."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

TERMS: Mapping[str, str] = {
    "MACs": "multiply-accumulates, the work of convolutions and matrix products",
    "uncertain": "public logs do not tell whether the Edge TPU takes it, "
    "so it stays on the CPU without --optimistic",
    "estimated": "by models of the Edge TPU, its link and the CPU, nothing was run",
    "segment": "operations that run together in one place, "
    "between segments tensors cross the link",
    "rewritten": "edgec put it into a form that the Edge TPU takes, with the same result",
    "folded away": "computed by the compiler, or part of another operation",
    "parameters": "weights and biases",
    "of 8 MB": "of the Edge TPU's on-chip memory for parameters",
    "invoke": "the fixed cost of a call",
    "input": "tensors sent to the Edge TPU",
    "output": "tensors read back",
    "code": "instructions sent to the Edge TPU",
    "compute": "its own work",
    "streamed": "parameters that do not fit on the chip, sent with every inference",
    "arena": "scratch memory of a segment, for tensors between its operations",
    "above bound": "how much larger the arena is than all tensors that are alive at "
    "once, which no plan can go below",
    "p50, p95": "half, and 95 %, of the inferences took no longer",
    "share": "of the median latency",
    "est.": "estimated by models of the board's parts, nothing was run on that hardware",
    "emulator's": "by the clock of an emulated machine, nothing follows from it for a "
    "board",
    "cost model": "the estimate of a segment on the Edge TPU, fitted to published times",
    "delegate": "run by a real Edge TPU",
    "c": "the generated C",
    "CPU, for Edge TPU": "a segment meant for the Edge TPU, run as C, "
    "with the same results",
    "planned": "what the compiler counted on",
    "own": "signal to noise where the layer reads what A has, rounded as B holds it, "
    "about the mean",
    "inherited": "the same of what its inputs' noise changes",
    "whole": "of the value as it is, own and inherited",
    "centred": "the same about the mean of each channel, which is easily kept",
    "SQNR": "signal to quantization noise ratio: each 6 dB halve the noise; networks that "
    "quantize well have 20 to 45 dB",
    "cosine": "how alike both outputs are as vectors, 1 is equal",
    "the reference": "edgec's definition of each operation, computed with numpy",
    "tensors": "what crosses from segment to segment",
}


def legend(names: Iterable[str], width: int = 120) -> str:
    """Return a paragraph for a terminal that explains terms; "" for no names.

    `width` is the longest line, in characters.
    """
    text = "; ".join(f"{name} = {TERMS[name]}" for name in names)
    if not text:
        return ""
    return textwrap.fill(
        f"({text})", width, subsequent_indent=" ", break_on_hyphens=False
    )


def explained(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of a term and its meaning, for a page."""
    return [(name, TERMS[name]) for name in names]
