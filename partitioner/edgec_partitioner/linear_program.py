"""A mixed-integer linear program, and its solution by HiGHS.

HiGHS: Huangfu and Hall, "Parallelizing the dual revised simplex method", Math. Prog.
Comp. 10, 2018.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import highspy
import numpy as np

GAP = 1e-6
"""The relative gap at which a solution counts as optimal."""


@dataclass
class LinearProgram:
    """A linear program under construction.

    Attributes:
        cost, low, high, whole: the cost, the bounds and the integrality of each column.
        row_low: the lower bound of each row; there is no upper one.
        starts, index, value: the rows, as a sparse matrix (CSR).
        offset: a constant term of the cost.
    """

    cost: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    row_low: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    offset: float = 0.0

    def column(
        self,
        cost: float = 0.0,
        low: float = 0.0,
        high: float = 1.0,
        whole: bool = False,
    ) -> int:
        """Add a column and return its number. whole: it is an integer."""
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.whole.append(whole)
        return len(self.cost) - 1

    def at_least(self, terms: Sequence[tuple[int, float]], low: float) -> None:
        """Add a row: the sum of coefficient * column is not below `low`.

        Several terms of one column are added up, as HiGHS takes one at most.
        """
        merged: dict[int, float] = {}
        for column, coefficient in terms:
            merged[column] = merged.get(column, 0.0) + coefficient
        self.starts.append(len(self.index))
        self.index += merged
        self.value += merged.values()
        self.row_low.append(low)

    def model(self) -> highspy.HighsLp:
        """Return the program in the form of HiGHS."""
        rows = len(self.row_low)
        lp = highspy.HighsLp()
        lp.num_col_ = len(self.cost)
        lp.col_cost_ = np.array(self.cost)
        lp.col_lower_ = np.array(self.low)
        lp.col_upper_ = np.array(self.high)
        lp.offset_ = self.offset

        lp.num_row_ = rows
        lp.row_lower_ = np.array(self.row_low)
        lp.row_upper_ = np.full(rows, highspy.kHighsInf)
        matrix = lp.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = np.array([*self.starts, len(self.index)])
        matrix.index_ = np.array(self.index)
        matrix.value_ = np.array(self.value)

        if any(self.whole):
            integer = highspy.HighsVarType.kInteger
            continuous = highspy.HighsVarType.kContinuous
            lp.integrality_ = [integer if w else continuous for w in self.whole]
        return lp


def _silent_solver() -> highspy.Highs:
    """Return a solver that has not printed and will not print.

    HiGHS 1.16 prints its version and licence to the process's standard output while the
    object is made, before any option can switch its output off.
    """
    with descriptors_silenced():
        solver = highspy.Highs()
    solver.silent()
    return solver


def solution_of(
    rows: LinearProgram, nodes: int, enough: float = -highspy.kHighsInf
) -> tuple[list[float] | None, float]:
    """Return the best values of the columns, and the proven lower bound.

    One thread and a fixed seed make it repeatable. The search ends when it has found
    values with a cost of at most `enough`. It starts without a known choice: HiGHS
    1.16.0 returns that one in place of a better one found by presolving alone.
    """
    if not rows.cost:
        return [], rows.offset
    solver = _silent_solver()
    options = {
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": GAP,
        "mip_max_nodes": nodes,
        "objective_target": enough,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(rows.model())
    solver.run()

    info = solver.getInfo()
    bound = info.objective_function_value
    if any(rows.whole):
        bound = info.mip_dual_bound
    feasible = highspy.SolutionStatus.kSolutionStatusFeasible
    if info.primal_solution_status != feasible:
        return None, bound
    return list(solver.getSolution().col_value), bound


_STANDARD_STREAMS = (1, 2)
"""The descriptors of standard output and standard error."""

FIRST_COPY = 3
"""Copies of descriptors get this number or a higher one: a closed standard output would
otherwise become a copy.
"""

_SWAP = threading.Lock()
"""Descriptors belong to the whole process: two threads that swapped them at a time
would restore the wrong ones.
"""


@contextmanager
def descriptors_silenced() -> Iterator[None]:
    """Point the descriptors 1 and 2 at /dev/null while the block runs.

    Python's sys.stdout cannot do this for C code, as C writes to the descriptors. The
    output of other threads is lost too, so the block should be short.
    """
    with _SWAP:
        _flush_c_streams()
        copies = {number: _copied(number) for number in _STANDARD_STREAMS}
        _point_at_null()
        try:
            yield
        finally:
            _flush_c_streams()
            for number, copy in copies.items():
                _restore(number, copy)


def _point_at_null() -> None:
    """Let both standard descriptors write to /dev/null."""
    null = os.open(os.devnull, os.O_WRONLY)
    for number in _STANDARD_STREAMS:
        if number != null:
            os.dup2(null, number)
    # If a standard descriptor was closed, /dev/null has taken its number.
    if null not in _STANDARD_STREAMS:
        os.close(null)


def _restore(number: int, copy: int | None) -> None:
    """Let a descriptor be again what `copy` is; close it if it was closed."""
    if copy is None:
        os.close(number)
        return
    os.dup2(copy, number)
    os.close(copy)


def _copied(number: int) -> int | None:
    """Return a copy of a descriptor.

    None if the process does not have it; a daemon may have closed it.
    """
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FIRST_COPY)
    except OSError:
        return None


def _flush_c_streams() -> None:
    """Write out the buffers of C.

    printf keeps text for a pipe until exit, when the descriptor is back.
    """
    ctypes.CDLL(None).fflush(None)
