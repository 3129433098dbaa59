"""Sizes in compiled files of the Edge TPU, beside those estimated from a graph."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from edgec_partitioner.cost import (
    FREE,
    LARGE,
    OpWork,
    convolution,
    depthwise,
    fully_connected,
)

from benchmarks.least_squares import Fitted, Matrix, cross_validate, logarithmic


@dataclass(frozen=True)
class Compiled:
    """One compiled file.

    Attributes:
        source: where it was published
        ops: the work of the ops in its Edge TPU segment
        code: the size of its instructions, bytes
        parameters: the size of its parameters, bytes
    """

    source: str
    ops: tuple[OpWork, ...]
    code: int
    parameters: int


def compiled(shared: Path) -> list[Compiled]:
    """Return the files with one Edge TPU segment, without copies in one source."""
    files: dict[tuple[Any, ...], Compiled] = {}
    for m in json.loads((shared / "edgetpu" / "ground_truth.json").read_text()):
        if len(m["custom_ops"]) != 1:
            continue
        custom = m["custom_ops"][0]
        parts = custom["executables"]
        run = next(e for e in parts if e["type"] != "PARAMETER_CACHING")
        ops = tuple(record_work(op) for op in m["ops"] if op["mapped"])
        parameters = sum(e["param_bytes"] for e in parts)
        c = Compiled(m["source"], ops, run["instr_bytes"], parameters)
        key = (m["source"], m["n_ops"], c.code, run["est_cycles"])
        files.setdefault(key, c)
    return list(files.values())


def record_work(op: dict[str, Any]) -> OpWork:
    """Return the work of an operator by the records, like cost.op_work does by a graph."""
    shapes: list[list[int]] = [s or [] for s in op["in_shapes"]]
    constant = {i for i, known in enumerate(op["const_in"]) if known}
    read = sum(_size(s) for i, s in enumerate(shapes) if i not in constant)
    touched = read + sum(map(_size, op["out_shapes"]))
    code = op["opcode"]
    if code == "FULLY_CONNECTED":
        outputs, inputs = shapes[1]
        return fully_connected(inputs, outputs, touched)
    if code == "DEPTHWISE_CONV_2D":
        return depthwise(_size(shapes[1][1:3]), shapes[1][3], touched)
    if code in ("CONV_2D", "TRANSPOSE_CONV"):
        outputs, high, wide, depth = shapes[1]
        image = op["out_shapes"][0] if code == "CONV_2D" else shapes[2]
        positions = _size(image[:-1])
        return convolution(positions, high * wide, depth, outputs, touched)
    constants = sum(_size(shapes[i]) for i in constant)
    return OpWork(0.0, 0 if code.lower() in FREE else touched, constants)


def _size(shape: Sequence[int]) -> int:
    return math.prod(shape)  # 1 for a scalar, and for an absent bias


def fit_code(files: Sequence[Compiled]) -> Fitted:
    """Fit the size of the code to a segment, its operations, and its bytes above LARGE.

    The cross-validation leaves out all files of a source at once: they are alike.
    """
    a = [[1, len(c.ops), sum(max(0, o.touched - LARGE) for o in c.ops)] for c in files]
    truth = np.array([c.code for c in files], np.float64)
    return cross_validate(
        np.array(a, np.float64), truth, [c.source for c in files], logarithmic
    )


def factors(estimate: Matrix, truth: Matrix) -> list[float]:
    """Return the factors within which half, three in four, and nine in ten are."""
    spread = np.exp(np.abs(np.log(np.maximum(estimate, 1e-9) / truth)))
    return [float(np.quantile(spread, q)) for q in (0.5, 0.75, 0.9)]


def sizes(files: Sequence[Compiled]) -> list[tuple[str, int, list[float]]]:
    """Return for each size that is estimated from a graph the number of files, and the
    factors within which half, three in four and nine in ten estimates are.

    Small parameters are left out: most of their size is rounding.
    """
    code = fit_code(files)
    large = [c for c in files if c.parameters > 20_000]
    estimate = np.array([sum(o.parameters for o in c.ops) for c in large], np.float64)
    truth = np.array([c.parameters for c in large], np.float64)
    return [
        ("instruction bytes", len(files), factors(code.held_out, code.truth)),
        ("parameter bytes", len(large), factors(estimate, truth)),
    ]
