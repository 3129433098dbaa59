"""Fits of the cost model to published times and to sizes in compiled files, with
cross-validation. numpy only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from edgec_partitioner.cost import LARGE, OpWork

Matrix = npt.NDArray[np.float64]
Fit = Callable[[Matrix, Matrix], Matrix]

TIMES = ("usb3_ms", "usb2_ms")


def nonnegative(a: Matrix, b: Matrix) -> Matrix:
    """Fit by least squares; while a coefficient is negative, leave out the most negative."""
    active = list(range(a.shape[1]))
    while True:
        x = np.linalg.lstsq(a[:, active], b, rcond=None)[0]
        if (x >= 0).all():
            full = np.zeros(a.shape[1])
            full[active] = x
            return full
        active.pop(int(np.argmin(x)))


def relative(a: Matrix, t: Matrix) -> Matrix:
    """Fit by least squares of the relative errors."""
    return nonnegative(a / t[:, None], np.ones(len(t)))


def logarithmic(a: Matrix, t: Matrix) -> Matrix:
    """Fit by least squares of the errors' logarithms, for what is known to a factor only."""
    x = relative(a, t)
    for _ in range(100):
        error = a @ x / t - 1
        weight = (
            np.where(
                np.abs(error) > 1e-6,
                np.log1p(error) / np.where(error == 0, 1, error),
                1.0,
            )
            / t
        )
        x = (x + nonnegative(a * weight[:, None], t * weight)) / 2
    return x


@dataclass(frozen=True)
class Fitted:
    """The result of a fit.

    Attributes:
        coefficients: of all rows
        truth: the value of each row
        estimate: the estimate of each row
        held_out: the estimate of each row by a fit without its group
    """

    coefficients: Matrix
    truth: Matrix
    estimate: Matrix
    held_out: Matrix

    def errors(self, held_out: bool = True) -> Matrix:
        """Return the relative errors, cross-validated or of the fit to all rows."""
        return (self.held_out if held_out else self.estimate) / self.truth - 1

    def within(self, share: float) -> int:
        """Return how many cross-validated estimates have at most this relative error."""
        return int((np.abs(self.errors()) <= share).sum())

    def factors(self, *quantiles: float) -> list[float]:
        """Return quantiles of the factors by which cross-validated estimates are off."""
        spread = np.exp(np.abs(np.log(np.maximum(self.held_out, 1e-9) / self.truth)))
        return [float(np.quantile(spread, q)) for q in quantiles]


def cross_validate(a: Matrix, t: Matrix, groups: Sequence[str], fit: Fit) -> Fitted:
    """Fit, and fit again without each group in turn."""
    names = np.array(groups)
    held_out = np.empty(len(t))
    for name in dict.fromkeys(groups):
        out = names == name
        held_out[out] = a[out] @ fit(a[~out], t[~out])
    x = fit(a, t)
    return Fitted(x, t, a @ x, held_out)


def points(shared: Path) -> list[dict[str, Any]]:
    """Return the published times with the sizes of the compiled files."""
    file = shared / "edgetpu" / "cost_points.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text())["points"]
    return rows


@dataclass(frozen=True)
class TimeFit:
    """A fit of the times of both links together, since the chip's time is in both.

    The coefficients are invoke, in, out and sent of USB 3, the same of USB 2, ms for 1e6
    cycles, and ms for 1 MB of cached parameters.

    Attributes:
        names: the model of each row
        links: the link of each row, of TIMES
        fitted: the fit
    """

    names: tuple[str, ...]
    links: tuple[str, ...]
    fitted: Fitted

    def link(self, time: str) -> Matrix:
        """Return invoke, per_mb_in, per_mb_out and per_mb_sent of a link."""
        i = TIMES.index(time)
        return self.fitted.coefficients[4 * i : 4 * i + 4]

    def count(self, time: str, share: float = 0.1) -> tuple[int, int]:
        """Return how many rows of a link have at most this error, and how many there are."""
        mine = np.array(self.links) == time
        return int((np.abs(self.fitted.errors()[mine]) <= share).sum()), int(mine.sum())


def fit_times(shared: Path) -> TimeFit:
    """Fit the published times; the cross-validation leaves a model out of both links."""
    rows = []
    pairs = [(p, link) for link in TIMES for p in points(shared) if p[link] is not None]
    for p, link in pairs:
        sent = p["instr_bytes"] + p["streamed_param_bytes"]
        megabytes = [n / 1e6 for n in (p["in_bytes"], p["out_bytes_padded"], sent)]
        both = [[0.0] * 4, [0.0] * 4]
        both[TIMES.index(link)] = [1.0, *megabytes]
        chip = [p["est_cycles"] / 1e6, p["cached_param_bytes"] / 1e6]
        rows.append([*both[0], *both[1], *chip])
    times = np.array([p[link] for p, link in pairs])
    names = tuple(p["model"] for p, _ in pairs)
    fitted = cross_validate(np.array(rows), times, names, relative)
    return TimeFit(names, tuple(link for _, link in pairs), fitted)


@dataclass(frozen=True)
class Compiled:
    """One compiled file.

    Attributes:
        source: where it was published
        name: its name
        ops: the work of the ops in its Edge TPU segment
        code: the size of its instructions, bytes
        cycles: the compiler's estimate
        parameters: the size of its parameters, bytes
    """

    source: str
    name: str
    ops: tuple[OpWork, ...]
    code: int
    cycles: int
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
        c = Compiled(
            m["source"],
            m["compiled"],
            ops,
            run["instr_bytes"],
            run["est_cycles"],
            sum(e["param_bytes"] for e in parts),
        )
        files.setdefault((m["source"], m["n_ops"], c.code, c.cycles), c)
    return list(files.values())


def record_work(op: dict[str, Any]) -> OpWork:
    """Return the work of an operator by the records, like cost.op_work does by a graph."""
    shapes = [s or () for s in op["in_shapes"]]
    constant = {i for i, known in enumerate(op["const_in"]) if known}
    written = sum(map(_size, op["out_shapes"]))
    read = sum(_size(s) for i, s in enumerate(shapes) if i not in constant)
    dense = deep = 0
    if op["opcode"] == "CONV_2D":
        dense = written * _size(shapes[1][1:])
    elif op["opcode"] == "DEPTHWISE_CONV_2D":
        deep = written * _size(shapes[1][1:3])
    elif op["opcode"] == "TRANSPOSE_CONV":
        dense = _size(shapes[2]) * _size(shapes[1][:3])
    if op["opcode"] in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        bias = {2}
    else:
        bias = set()
    constants = sum(_size(shapes[i]) * (4 if i in bias else 1) for i in constant)
    return OpWork(dense, deep, written, read + written, constants)


def _size(shape: Sequence[int]) -> int:
    return math.prod(shape)  # 1 for a scalar, and for an absent bias


def fit_cycles(files: Sequence[Compiled]) -> Fitted:
    """Fit the cycles of a segment, dense MAC, depthwise MAC and element.

    Files of new compilers, which write no estimate, are left out.
    """
    rows = [c for c in files if c.cycles > 1000]
    a = [
        [
            1,
            *(
                sum(getattr(o, f) for o in c.ops)
                for f in ("dense_macs", "depthwise_macs", "elements")
            ),
        ]
        for c in rows
    ]
    truth = np.array([c.cycles for c in rows], np.float64)
    return cross_validate(
        np.array(a, np.float64), truth, [c.name for c in rows], relative
    )


def fit_code(files: Sequence[Compiled]) -> Fitted:
    """Fit the size of the code to a segment, its operations, and its bytes above LARGE.

    The cross-validation leaves out all files of a source at once: they are alike.
    """
    a = [[1, len(c.ops), sum(max(0, o.touched - LARGE) for o in c.ops)] for c in files]
    truth = np.array([c.code for c in files], np.float64)
    return cross_validate(
        np.array(a, np.float64), truth, [c.source for c in files], logarithmic
    )


def fit_layout(files: Sequence[Compiled]) -> Fitted:
    """Fit the size of the parameters to the constants of depthwise convolutions and of
    other operations, in bytes.

    Small files are left out: most of their size is rounding.
    """
    rows = [c for c in files if c.parameters > 20_000]
    a = [
        [
            sum(o.constants for o in c.ops if bool(o.depthwise_macs) is deep)
            for deep in (False, True)
        ]
        for c in rows
    ]
    truth = np.array([c.parameters for c in rows], np.float64)
    return cross_validate(
        np.array(a, np.float64), truth, [c.source for c in rows], relative
    )
