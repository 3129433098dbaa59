"""Copies: transposes of floats by vectors, and others of which threads share the rows.

One thread uses the plain kernels for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from edgec.ir import Kernel, KernelCall
from edgec.ir.c_structs import GatherParams
from edgec.ops.concat import CONCAT
from edgec.ops.shape import GATHER
from edgec.schedule.cores import Core
from edgec.schedule.simd import ISAS, WHOLE
from edgec.schedule.variant import Schedule, Variant

TILES = (4, 8, 16)
"""Elements that a transpose takes from adjacent places at once."""

_PART = "part"
"""The end of the names of the kernels that compute a share."""

CONCAT_PART = replace(CONCAT, isa=_PART)
"""Joins rows of which threads have a share each."""

_TRANSPOSE = Kernel("gather", "simd/ek_gather_f32_simd.h", "f32", isa="simd")
"""Transposes squares of floats in registers."""

MIN_TURNED = 16
"""The least size of both dimensions for it: of fewer elements too many are moved twice."""


def _of_concat(call: KernelCall) -> KernelCall | None:
    """Return the call that copies a share of the rows; None for a single row."""
    rows = call.operands[2]
    if rows == 1:
        return None
    return KernelCall.of(CONCAT_PART, *call.operands, *WHOLE)


def _of_gather(call: KernelCall) -> KernelCall | None:
    """Return the call that copies a share of steps of the outermost dimension.

    Sizes stay literals, without which compilers do not vectorize a copy.
    """
    p = call.struct(GatherParams)
    longer = [i for i, size in enumerate(p.dim) if size > 1]

    # Behind it lies what is adjacent in the result, so that a step is adjacent too.
    if not longer or longer[0] == len(p.dim) - 1:
        return None
    along = longer[0]
    size = _step(p, along)
    if size == p.dim[along]:
        return None

    dim = list(p.dim)
    dim[along] = size
    steps = p.dim[along] // size
    from_step = size * p.stride[along]
    to_step = prod(dim)
    one = replace(p, dim=tuple(dim))
    kernel = replace(call.kernel, isa=_PART)
    x, y, _ = call.operands
    return KernelCall.of(kernel, x, y, one, steps, from_step, to_step, *WHOLE)


def _turned(call: KernelCall, core: Core) -> bool:
    """Return whether a call transposes whole squares of vectors."""
    p = call.struct(GatherParams)
    if p.stride[-1] == 1:
        return False

    # The innermost dimension that lies side by side in the operand.
    rows = 0
    for size, stride in zip(p.dim[:-1], p.stride[:-1], strict=True):
        if stride == 1 and size >= MIN_TURNED:
            rows = size

    lanes = core.vector // 4
    return min(rows, p.dim[-1]) >= max(MIN_TURNED, lanes)


def _turning(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    """Return the call that transposes by vectors."""
    return KernelCall.of(_TRANSPOSE, *call.operands, *WHOLE)


def _turns(call: KernelCall, core: Core) -> Sequence[Schedule]:
    """Return the one schedule of the kernel for transposes; none for other calls."""
    return [{}] if _turned(call, core) else []


def _step(p: GatherParams, along: int) -> int:
    """Return the size of a step along a dimension, which divides that of the whole."""
    # A transpose across it goes by lines of the cache (ek_gather_across of ek_shape.h).
    if p.stride[along] != 1:
        return 1
    fitting = [n for n in TILES if p.dim[along] % n == 0]
    return max(fitting, default=p.dim[along])


def _variant(of: Kernel, rewrite: Callable[[KernelCall], KernelCall | None]) -> Variant:
    """Return the variant of a plain kernel for several threads."""

    def schedules(call: KernelCall, core: Core) -> list[Schedule]:
        # The division costs a thread that is alone more than nothing.
        if core.threads == 1 or rewrite(call) is None:
            return []
        return [{}]

    def apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
        rewritten = rewrite(call)
        assert rewritten is not None, f"{call} is not divisible"
        return rewritten

    return Variant(of, f"{of.name}_{_PART}", frozenset(), schedules, apply)


VARIANTS: list[Variant] = [
    *(
        Variant(GATHER.of("f32"), _TRANSPOSE.name, isa, _turns, _turning)
        for isa in ISAS
    ),
    _variant(CONCAT, _of_concat),
    *(_variant(kernel, _of_gather) for kernel in GATHER.kernels()),
]
