"""Bands: pointwise and depthwise convolutions that follow each other, a few rows at a time, so that what lies between
them stays in the cache and out of the arena."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgec.ir import PART, PARTS, Graph, KernelCall, Pointer, Scratch, Struct, Table, Value
from edgec.ir.kernel import Operand
from edgec.schedule.cores import Core
from edgec.schedule.fuse import Step
from edgec.schedule.liveness import STACK_BYTES, Lifetime, aligned, lifetimes, peak, tensors
from edgec.schedule.views import Places

_GEMM, _DEPTHWISE = "ek_gemm_f32_simd", "ek_dwconv2d_f32_simd"
_ROWS = 8
"""Results of a band are no more rows, unless dilated taps lie farther apart."""


@dataclass(frozen=True)
class _Part:
    """A scheduled call of one of the kernels. p: its struct. names: of its tiles."""

    call: KernelCall
    p: Struct
    x: Pointer
    y: Pointer
    added: Pointer | None
    constants: tuple[Operand, Operand, Operand]
    names: tuple[Operand, ...]

    def fields(self, prefix: str) -> dict[str, object]:
        """What a struct of C has of it: before each name its place."""
        w, bias, slope = self.constants
        names = dict(zip(("tile", "tail"), self.names, strict=False))
        struct = {f"p.{name}": value for name, value in self.p.fields.items()}
        own = {**struct, "p.touch": 0, "w": w, "bias": bias, "slope": slope, **names}
        return {prefix + name: value for name, value in own.items()}


def in_bands(graph: Graph, steps: Sequence[Step], core: Core, where: Places) -> list[Step]:
    """Join scheduled steps of 1x1 → depthwise → 1x1 convolutions, or two of them, to one step each.

    Where what lies between them is more than the core's second cache keeps, but a band and the weights are less, it has
    no other reader, and no more bytes live then.
    """
    return _Bands(graph, steps, core, where).result


class _Bands:
    """The steps as they are joined."""

    def __init__(self, graph: Graph, steps: Sequence[Step], core: Core, where: Places) -> None:
        self.core, self.where, self.result = core, where, list(steps)
        self.border = {*graph.inputs, *graph.outputs}
        self.readers: dict[Value, list[Step]] = {}
        self.writer: dict[Value, Step] = {}
        for step in steps:
            *reads, y = tensors(step.calls)
            self.writer[y] = step
            for v in dict.fromkeys(reads):
                self.readers.setdefault(v, []).append(step)
        for step in steps:
            part = _part(step, _DEPTHWISE)
            if part is not None:
                self._join(step, part)

    def _join(self, step: Step, dw: _Part) -> None:
        """Join a depthwise convolution with those around it, as many as pay."""
        before = self._pointwise(self.writer.get(dw.x.value), dw.x.value)
        readers = self.readers.get(dw.y.value, [])
        after = self._pointwise(readers[0], dw.y.value) if len(readers) == 1 and dw.added is None else None
        if before is not None and before[1].added is not None:
            before = None
        for first, last in ((before, after), (None, after), (before, None)):
            parts = [x for x in (first, (step, dw), last) if x is not None]
            between = sum(part.y.value.type.nbytes for _, part in parts[:-1])
            weights = sum(c.array.nbytes for _, part in parts for c in part.constants if isinstance(c, Table))
            call = _call(first and first[1], dw, last and last[1], self.core)
            scratch = sum(x.nbytes for x in call.operands if isinstance(x, Scratch))
            if between > self.core.l2 // 2 and weights + scratch <= self.core.l2 // 2:
                joined = self._joined([s for s, _ in parts], call)
                if self._peak(joined) <= self._peak(self.result):
                    self.result = joined
                    return

    def _pointwise(self, step: Step | None, between: Value) -> tuple[Step, _Part] | None:
        """A step that is still one 1x1 convolution, where nothing else has to do with the value between."""
        part = _part(step, _GEMM) if step is not None and step in self.result else None
        if step is None or part is None or between in self.border or len(self.readers[between]) != 1:
            return None
        if [v for v, place in self.where.items() if place.root is self.where[between].root] != [between]:
            return None
        if part.added is not None and part.added.value is between:
            return None
        flat = all(part.p.number(name) == 1 for name in ("kh", "kw", "sh", "sw", "n", "ih", "oh"))
        return (step, part) if flat and part.p.number("group_ic") == part.p.number("ic") else None

    def _joined(self, old: Sequence[Step], call: KernelCall) -> list[Step]:
        ops = tuple(sorted(i for s in old for i in s.ops))
        kept = [s for s in self.result if s not in old]
        return sorted([*kept, Step(ops, (call,), old[-1].at)], key=lambda s: s.at)

    def _peak(self, steps: Sequence[Step]) -> int:
        """Bytes that live at most, scratch too."""
        lives = lifetimes((tensors(s.calls) for s in steps), self.where, self.border)
        return peak([*lives, *_scratches(steps, self.core.threads)])


def _scratches(steps: Sequence[Step], threads: int) -> Iterator[Lifetime]:
    for i, step in enumerate(steps):
        for x in (x for call in step.calls for x in call.operands if isinstance(x, Scratch)):
            yield Lifetime("", x.nbytes * threads if x.nbytes > STACK_BYTES else 0, i, i)


def _part(step: Step, kernel: str) -> _Part | None:
    """The one call of a step, where it is of this kernel and reads and writes whole tensors."""
    if len(step.calls) != 1 or step.calls[0].kernel != kernel:
        return None
    x, w, bias, slope, added, y, _, p, *rest = step.calls[0].operands
    if not (isinstance(x, Pointer) and isinstance(y, Pointer) and isinstance(p, Struct)) or x.offset or y.offset:
        return None
    if p.number("yx") != y.value.type.shape[-1]:
        return None
    other = added if isinstance(added, Pointer) else None
    return _Part(step.calls[0], p, x, y, other, (w, bias, slope), tuple(rest[:-2]))


def _call(before: _Part | None, dw: _Part, after: _Part | None, core: Core) -> KernelCall:
    """The call that does all."""
    number = dw.p.number
    wide, narrow = number("iw") * number("c"), number("ow") * number("c")

    def floats(rows: int) -> tuple[int, int]:
        """Kept rows and depthwise results of bands of so many rows."""
        high = min((rows - 1) * number("sh") + (number("kh") - 1) * number("dh") + 1, number("ih"))
        kept, between = (high * wide if before else 0), (rows * narrow if after else 0)
        return aligned(4 * kept) // 4, aligned(4 * between) // 4

    unit = 2 * number("dh")
    fitting = [r for r in range(unit, max(unit, _ROWS) + 1, unit) if 4 * sum(floats(r)) <= core.l2 // 4]
    rows = max(fitting, default=unit)
    kept, between = floats(rows)
    patches = (x.p.number("tile") * x.p.number("ic") for x in (before, after) if x)
    nbytes = aligned(4 * (kept + between + max(number("c"), *patches, 0)))
    around = {
        name: value
        for prefix, part in (("before.", before), ("after.", after))
        if part
        for name, value in part.fields(prefix).items()
    }
    p = Struct("ek_row_bands_f32_t", **around, **dw.fields(""), rows=rows, kept=kept, between=between)
    last = after or dw
    return KernelCall(
        "ek_row_bands_f32_simd", ((before or dw).x, last.added or 0, last.y, Scratch(nbytes), p, PART, PARTS)
    )
