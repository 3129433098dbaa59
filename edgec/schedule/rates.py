"""Rates of kernels on a core: cycles for each part of the work of an op.

A file beside each core's table has the rates of every kernel that `make cpu-table`
measured: cycles of a call, of a multiply-accumulate, and of each byte that it writes,
that it reads, and that it reads of constants. A name that begins with a plus sign is a
plain kernel that is fused with the call before it; its rate is for each byte of the
result of that call.

    cycles(op) = rates(kernels of op) · work(op)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np
from edgec_devices.cores import cycles_file

from edgec.errors import UnsupportedError
from edgec.ir import Array, KernelCall, Op
from edgec.ir.c_structs import PoolParams
from edgec.ir.float16 import has_float16
from edgec.ir.verify import wants_scales
from edgec.schedule.cores import Core
from edgec.schedule.variant import choice, variants

Rates = Mapping[str, Array]
"""The cycles for each part of `work`, by the names of kernels joined by "+"."""

OTHER = "other"
"""The name for kernels that were not measured."""

NOT_IN_C = (UnsupportedError, NotImplementedError, ValueError)
"""The errors of an op that cannot be written as C: it has no kernel, or its scale is no
number.
"""

THEN = "+"
"""The beginning of the names of fused kernels."""

WRITTEN_BYTES = 2
"""The position of the bytes that are written in `work`."""


def is_known(name: str) -> bool:
    """Return whether a core, by its compiler's name, was measured."""
    return cycles_file(name).is_file()


def chosen_names(calls: Iterable[KernelCall], on: Core) -> tuple[str, ...]:
    """Return the names of the kernels that compute calls on a core, each once."""
    names: list[str] = []
    for call in calls:
        way = choice(call, on)
        names.append(call.kernel.name if way is None else way[0].name)

    return tuple(dict.fromkeys(names))


def work(op: Op) -> Array:
    """Return the work of an op, in the order of the rates.

    It consists of calls, multiply-accumulates, bytes that are written, read, and read
    of constants. Each element of a pool's window counts as a multiply-accumulate.
    """
    nbytes = {value: value.type.nbytes for value in op.inputs}
    constants = sum(n for value, n in nbytes.items() if value.const is not None)
    written = sum(value.type.nbytes for value in op.outputs)
    macs = float(op.spec.macs(op))
    if not macs:
        results = sum(value.type.size for value in op.outputs[:1])
        macs = results * _taps(op)

    # The rates are those of float32, of which vectors hold half as many.
    if has_float16(value.type for value in op.outputs):
        macs /= 2

    read = sum(nbytes.values()) - constants
    return np.array([1, macs, written, read, constants], np.float64)


def _taps(op: Op) -> int:
    """Return the elements of a pooling's window; 0 for all other ops."""
    for call in calls_in_c(op) or ():
        p = call.optional_struct(PoolParams)
        if p is not None:
            return p.kh * p.kw

    return 0


def step_cycles(
    ops: Sequence[Op], calls: Sequence[KernelCall], on: Core
) -> list[float]:
    """Return the cycles of each op of a step on a measured core.

    ops: the ops, the first with those that are fused with it.
    calls: the step's calls of plain kernels.
    """
    head = ops[0]
    table = rates(on.name)

    # Some calls of a concat may be part of the steps that write its operands.
    share = len(calls) / len(head.calls())
    names = chosen_names(calls, on)
    cycles = [share * float(rate(table, names) @ work(head))]

    nbytes = head.outputs[0].type.nbytes
    for call in calls[0].then:
        cycles.append(following(table, call.kernel.name) * nbytes)
    return cycles


def following(table: Rates, plain: str) -> float:
    """Return the cycles of a fused call for each byte of the result before it.

    plain: the name of its plain kernel.
    """
    per_work = table.get(THEN + plain, table[THEN + OTHER])
    return float(per_work[WRITTEN_BYTES])


def rate(table: Rates, names: Sequence[str]) -> Array:
    """Return the rates of kernels.

    A kernel that was not measured is taken to be as fast as the first measured one for
    the calls of the same plain kernel.
    """
    key = "+".join(names)
    if key in table:
        return table[key]

    candidates = [names[0]]
    for plain, plain_variants in variants().items():
        variant_names = [variant.name for variant in plain_variants]
        if names[0] in (plain.name, *variant_names):
            candidates += (*variant_names, plain.name)

    for name in candidates:
        if name in table:
            return table[name]

    return table[OTHER]


@cache
def rates(name: str) -> Rates:
    """Return the rates of a measured core."""
    table: dict[str, list[float]] = json.loads(cycles_file(name).read_text())
    return {kernel: np.array(per_work) for kernel, per_work in table.items()}


def calls_in_c(op: Op) -> Sequence[KernelCall] | None:
    """Return the calls of an op; None where it cannot be written as C."""
    if not has_scales(op):
        return None

    try:
        return op.calls()
    except NOT_IN_C:
        return None


def has_scales(op: Op) -> bool:
    """Return whether an op has the scales that it needs.

    Graphs that are only looked at may lack them.
    """
    if not wants_scales(op):
        return True

    values = (*op.inputs, *op.outputs)
    return not any(value.type.is_plain_int8 for value in values)
