"""The fit of the Edge TPU's cost model to published times, and how well it predicts the
times of sources that it has not seen. numpy only.

Few coefficients have a meaning each. Two that are not linear are searched: the time for
moving a byte of activations, and how much slower USB 2 is on a Raspberry Pi 3 than on a
Jetson Nano.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from edgec_partitioner.cost import CLOCK_MHZ, LARGE, PARAMETER_CACHE, PER_MCYCLE

from benchmarks.least_squares import Matrix, nonnegative
from benchmarks.published import Published

LINEAR = (
    "usb3 invoke",
    "usb3 sent",
    "usb3 streamed",
    "usb3 received, board",
    "usb3 received, desktop",
    "usb2 invoke",
    "usb2 sent",
    "usb2 received",
    "pcie invoke, board",
    "pcie invoke, desktop",
    "pcie sent",
    "pcie received, board",
    "pcie received, desktop",
    "dense",
)
"""The coefficients: ms for a call and for a MB; `dense` is ms for a MB of parameters of
fully connected layers at CLOCK_MHZ. Outputs and calls take another time on a desktop;
over USB 2 no desktop was measured.
"""

MOVED = (0.02, 0.3)
"""Where the ms for moving a MB of activations is searched, at CLOCK_MHZ."""

CONTROLLER = (1.0, 2.0)
"""Where the factor of a Raspberry Pi's USB 2 is searched."""


class Stated(NamedTuple):
    """A rate that a source states, in place of a network's time.

    Attributes:
        source: who measured it
        column: the coefficient that it is of, in LINEAR
        ms: the time
    """

    source: str
    column: str
    ms: float


STATED = (
    # NOTES.md: device to host about 55 MB/s, host to device 300 to 360.
    Stated("tinycoral", "usb3 received, desktop", 1000 / 55),
    Stated("tinycoral", "usb3 sent", 1000 / 330),
    # RESULTS.md, 64 x 64: libedgetpu and TFLite 0.213 ms, its own driver 0.149. What
    # the software takes, over PCIe too.
    Stated("tinycoral", "pcie invoke, desktop", 0.213 - 0.149),
)
"""What sources say of rates."""


def is_tiled(p: Published) -> bool:
    """Whether parameters are streamed to operations in tiles, each of which reads them
    anew; the model has no term for that, and is not fitted to it.
    """
    dense = [o for o in p.ops if o.compute and o.parameters > LARGE / 2]
    return streamed(p) > 0 and any(o.touched > LARGE for o in dense)


def streamed(p: Published) -> int:
    """Return the bytes of parameters that go to the chip with each inference."""
    if p.streamed is not None:
        return p.streamed
    return max(0, p.work.parameters - PARAMETER_CACHE)


class Coefficients(NamedTuple):
    """A fit.

    Attributes:
        linear: of LINEAR
        moved: ms for moving a MB of activations
        controller: how many times longer transfers over USB 2 take on a Raspberry Pi
    """

    linear: Matrix
    moved: float
    controller: float


@dataclass(frozen=True)
class TimeFit:
    """The fits to published times.

    Attributes:
        rows: the times
    """

    rows: tuple[Published, ...]

    @cached_property
    def truth(self) -> Matrix:
        """The published times."""
        return np.array([p.ms for p in self.rows])

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The sources, each once."""
        return tuple(dict.fromkeys(p.source for p in self.rows))

    @cached_property
    def all(self) -> Coefficients:
        """The fit to all sources."""
        return self._fit("")

    @cached_property
    def estimate(self) -> Matrix:
        """Each row by the fit to all sources."""
        return self._estimate(self.all)

    @cached_property
    def unseen(self) -> Matrix:
        """Each row by a fit without its source."""
        ms = np.empty(len(self.rows))
        for source in self.sources:
            mine = np.array([p.source == source for p in self.rows])
            ms[mine] = self._estimate(self._fit(source))[mine]
        return ms

    def errors(self, ms: Matrix | None = None) -> Matrix:
        """Return the relative errors of estimates, by default of unseen sources."""
        return (self.unseen if ms is None else ms) / self.truth - 1

    @cached_property
    def groups(self) -> dict[tuple[str, str], Matrix]:
        """The errors of unseen sources by source and link."""
        keys = [(p.source, p.link) for p in self.rows]
        errors = self.errors()
        return {
            key: errors[np.array([k == key for k in keys])]
            for key in dict.fromkeys(keys)
        }

    @property
    def rms(self) -> float:
        """The root mean square of the errors of unseen sources, each counting the same."""
        errors = self.errors()
        squares = [
            (errors[np.array([p.source == s for p in self.rows])] ** 2).mean()
            for s in self.sources
        ]
        return float(np.sqrt(np.mean(squares)))

    def medians(self) -> list[float]:
        """Return the median error of each unseen source."""
        errors = np.abs(self.errors())
        return [
            float(np.median(errors[np.array([p.source == s for p in self.rows])]))
            for s in self.sources
        ]

    def _estimate(self, c: Coefficients) -> Matrix:
        ms: Matrix = self._columns(c.controller) @ c.linear + self._fixed(c.moved)
        return ms

    def _fit(self, without: str) -> Coefficients:
        """Fit to all sources but one, by least squares of relative errors."""
        use = np.array([p.source != without and not is_tiled(p) for p in self.rows])
        sources = [p.source for p, used in zip(self.rows, use, strict=True) if used]
        stated = [s for s in STATED if s.source != without]
        # A source counts as the square root of its rows.
        weight = np.array([sources.count(s) ** -0.25 for s in sources])
        weight_stated = [sources.count(s.source) ** -0.25 for s in stated]
        identity = np.eye(len(LINEAR))
        rows_stated = np.array(
            [
                w / s.ms * identity[LINEAR.index(s.column)]
                for s, w in zip(stated, weight_stated, strict=True)
            ]
        ).reshape(-1, len(LINEAR))
        truth = self.truth[use]

        def solve(moved: float, controller: float) -> tuple[float, Matrix]:
            a = self._columns(controller)[use] * (weight / truth)[:, None]
            b = (truth - self._fixed(moved)[use]) * weight / truth
            a, b = np.vstack([a, rows_stated]), np.concatenate([b, weight_stated])
            x = nonnegative(a, b)
            return float(((a @ x - b) ** 2).sum()), x

        def loss(controller: float, moved: float) -> float:
            return solve(moved, controller)[0]

        moved, controller = sum(MOVED) / 2, CONTROLLER[0]
        for _ in range(3):
            controller = _least(partial(loss, moved=moved), CONTROLLER)
            moved = _least(partial(loss, controller), MOVED)
        return Coefficients(solve(moved, controller)[1], moved, controller)

    @cached_property
    def _plain(self) -> Matrix:
        """What each of LINEAR is multiplied with, of each row, over any USB 2 alike."""
        return np.array([_row(p) for p in self.rows])

    @cached_property
    def _slow(self) -> Matrix:
        """Whether an element of _plain is of transfers over a Raspberry Pi's USB 2."""
        rows = np.array([p.link == "usb2" and p.host != "nano" for p in self.rows])
        return np.outer(rows, [name != "usb2 invoke" for name in LINEAR])

    def _columns(self, controller: float) -> Matrix:
        return np.where(self._slow, controller * self._plain, self._plain)

    @cached_property
    def _ops(self) -> tuple[Matrix, Matrix, Matrix]:
        """The row, the ms of computing and the MB of activations of each operation."""
        flat = [
            (i, PER_MCYCLE * o.compute * CLOCK_MHZ / p.clock / 1e6, o.touched / 1e6)
            for i, p in enumerate(self.rows)
            for o in p.ops
        ]
        row, computing, touched = np.array(flat).T
        clocks = np.array([CLOCK_MHZ / p.clock for p in self.rows])
        return row.astype(np.int64), computing, touched * clocks[row.astype(np.int64)]

    def _fixed(self, moved: float) -> Matrix:
        """Return the ms of each row that no linear coefficient is of."""
        row, computing, touched = self._ops
        chip = np.bincount(
            row, np.maximum(computing, moved * touched), minlength=len(self.rows)
        )
        return np.array([p.cpu_ms for p in self.rows]) + chip


def _row(p: Published) -> list[float]:
    where = "desktop" if p.is_desktop else "board"
    sent = (p.work.bytes_in + p.work.code) / 1e6
    again = streamed(p) / 1e6
    received = p.work.bytes_out / 1e6
    values = {
        "invoke": 1.0,
        f"invoke, {where}": 1.0,
        "sent": sent if p.link == "usb3" else sent + again,
        "streamed": again,
        "received": received,
        f"received, {where}": received,
    }
    names = [name.split(" ", 1) for name in LINEAR[:-1]]
    row = [values.get(what, 0.0) * (link == p.link) for link, what in names]
    return [*row, sum(o.dense for o in p.ops) / 1e6 * CLOCK_MHZ / p.clock]


def _least(f: Callable[[float], float], between: tuple[float, float]) -> float:
    """Return where a function with one minimum is least, by golden sections; the lower
    bound where it is flat.
    """
    low, high = between
    ratio = (5**0.5 - 1) / 2
    while high - low > 1e-4:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if f(left) <= f(right) * (1 + 1e-9):
            high = right
        else:
            low = left
    return (low + high) / 2
