"""Copies: transposes of floats by vectors, and others of which threads share the rows.

One thread uses the plain kernels for the others.
"""

from __future__ import annotations

from collections.abc import Callable
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

_EVENS = Kernel("gather_evens", "simd/ek_gather_f32_simd.h", "f32", isa="simd")
"""Copies every second float."""

MIN_TURNED = 16
"""The least size of both dimensions for it, the lanes of the longest vectors: of fewer
elements too many are moved twice.
"""


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


def _is_turned(call: KernelCall) -> bool:
    """Return whether a call transposes whole squares of vectors."""
    p = call.struct(GatherParams)
    if p.stride[-1] == 1:
        return False

    # The innermost dimension that lies side by side in the operand.
    rows = 0
    for size, stride in zip(p.dim[:-1], p.stride[:-1], strict=True):
        if stride == 1 and size >= MIN_TURNED:
            rows = size

    return min(rows, p.dim[-1]) >= MIN_TURNED


def _is_evens(call: KernelCall) -> bool:
    """Return whether a call copies every second float of one long row."""
    p = call.struct(GatherParams)
    return p.stride[-1] == 2 and max(p.dim[:-1]) == 1 and p.dim[-1] >= MIN_TURNED


def _turning(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    """Return the call that transposes by vectors."""
    return KernelCall.of(_TRANSPOSE, *call.operands, *WHOLE)


def _halving(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    """Return the call that copies every second float by vectors."""
    x, y, p = call.operands
    assert isinstance(p, GatherParams)
    return KernelCall.of(_EVENS, x, y, p.dim[-1], *WHOLE)


def _by_vectors(
    kernel: Kernel,
    is_for: Callable[[KernelCall], bool],
    apply: Callable[[KernelCall, Core, Schedule], KernelCall],
) -> list[Variant]:
    """Return the variants of gathers that a kernel for vectors of floats computes."""

    def schedules(call: KernelCall, core: Core) -> list[Schedule]:
        # A copy of halves is no arithmetic, but its vectors are those of float16.
        is_half = call.kernel == GATHER.of("f16")
        if not core.computing(is_half).isa or not is_for(call):
            return []

        # There is nothing to choose.
        return [{}]

    # The C names the kernel for float16 (`KernelCall.is_float16`).
    return [
        Variant(GATHER.of(dtype), kernel.name, isa, schedules, apply)
        for dtype in ("f32", "f16")
        for isa in ISAS
    ]


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
    *_by_vectors(_TRANSPOSE, _is_turned, _turning),
    *_by_vectors(_EVENS, _is_evens, _halving),
    _variant(CONCAT, _of_concat),
    *(_variant(kernel, _of_gather) for kernel in GATHER.kernels()),
]
