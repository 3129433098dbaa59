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
    """Least squares; as long as a coefficient is negative, the most negative one is
    left out.
    """
    active = list(range(a.shape[1]))
    while True:
        x = np.linalg.lstsq(a[:, active], b, rcond=None)[0]
        if (x >= 0).all():
            full = np.zeros(a.shape[1])
            full[active] = x
            return full
        active.pop(int(np.argmin(x)))


def relative(a: Matrix, t: Matrix) -> Matrix:
    """Least squares of the relative errors."""
    return nonnegative(a / t[:, None], np.ones(len(t)))


def logarithmic(a: Matrix, t: Matrix) -> Matrix:
    """Least squares of the errors' logarithms, by reweighting: for quantities that are
    known to a factor only.
    """
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
    """Coefficients, what they give for each row, and what those give that were fitted
    without the row's group.
    """

    coefficients: Matrix
    truth: Matrix
    estimate: Matrix
    held_out: Matrix

    def errors(self, held_out: bool = True) -> Matrix:
        """Relative errors."""
        return (self.held_out if held_out else self.estimate) / self.truth - 1

    def within(self, share: float) -> int:
        """How many rows are within this relative error, cross-validated."""
        return int((np.abs(self.errors()) <= share).sum())

    def factors(self, *quantiles: float) -> list[float]:
        """Quantiles of how many times too large or too small the cross-validated
        estimates are.
        """
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


# ---- times
# --------------------------------------------------------------------------------------
def points(shared: Path) -> list[dict[str, Any]]:
    """The published times with the sizes of the compiled files."""
    found: list[dict[str, Any]] = json.loads(
        (shared / "edgetpu" / "cost_points.json").read_text()
    )["points"]
    return found


@dataclass(frozen=True)
class TimeFit:
    """Both links fitted together, since the chip's own time is the same for both.

    The coefficients: USB 3's invoke, in, out and sent; USB 2's; ms for 1e6 cycles; ms
    for 1 MB of cached parameters.
    """

    names: tuple[str, ...]
    links: tuple[str, ...]
    fitted: Fitted

    def link(self, time: str) -> Matrix:
        """invoke, per_mb_in, per_mb_out, per_mb_sent."""
        i = TIMES.index(time)
        return self.fitted.coefficients[4 * i : 4 * i + 4]

    def count(self, time: str, share: float = 0.1) -> tuple[int, int]:
        """Rows of a link within a relative error, cross-validated, and all of them."""
        mine = np.array(self.links) == time
        return int((np.abs(self.fitted.errors()[mine]) <= share).sum()), int(mine.sum())


def fit_times(shared: Path) -> TimeFit:
    """Relative errors; a model is left out of both links at once."""
    rows = []
    times = []
    names = []
    links = []
    for i, link in enumerate(TIMES):
        for p in points(shared):
            if p[link] is None:
                continue
            sent = p["instr_bytes"] + p["streamed_param_bytes"]
            own = [
                1.0,
                *(n / 1e6 for n in (p["in_bytes"], p["out_bytes_padded"], sent)),
            ]
            rows.append(
                [0.0] * 4 * i
                + own
                + [0.0] * 4 * (1 - i)
                + [p["est_cycles"] / 1e6, p["cached_param_bytes"] / 1e6]
            )
            times.append(p[link])
            names.append(p["model"])
            links.append(link)
    fitted = cross_validate(np.array(rows), np.array(times), names, relative)
    return TimeFit(tuple(names), tuple(links), fitted)


# ---- sizes in compiled files
# --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Compiled:
    """One compiled file: the work of the ops in its Edge TPU segment, and what the
    compiler made of them.
    """

    source: str
    name: str
    ops: tuple[OpWork, ...]
    code: int
    cycles: int
    parameters: int


def compiled(shared: Path) -> list[Compiled]:
    """The files with one Edge TPU segment, those of one source that differ in nothing
    once.
    """
    found: dict[tuple[Any, ...], Compiled] = {}
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
        found.setdefault((m["source"], m["n_ops"], c.code, c.cycles), c)
    return list(found.values())


def record_work(op: dict[str, Any]) -> OpWork:
    """The work of an operator as the records give it; the same figures as cost.op_work."""
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
    """Segment, dense MAC, depthwise MAC, element; only old compilers write an estimate."""
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
