"""Bands: pointwise and depthwise convolutions that follow each other, a few rows at a
time, so that what lies between them stays in the cache and out of the arena.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgec.ir import PART, PARTS, Graph, Kernel, KernelCall, Scratch, Struct, Value
from edgec.schedule.band_layers import CascadeLayer, depthwise, pointwise
from edgec.schedule.cores import Core
from edgec.schedule.fuse import FusedStep
from edgec.schedule.liveness import (
    ALIGNMENT,
    STACK_BYTES,
    Lifetime,
    aligned,
    lifetimes,
    peak,
    tensors,
)
from edgec.schedule.views import Places

_KERNEL = Kernel("row_bands", "ek_row_bands.h")

_ROWS = 4
"""Results of a band are no more rows, unless dilated taps lie farther apart."""

_WORTH = 0.95
"""Of the bytes that live at most, what is left at most where tensors that the cache
keeps are computed in bands.
"""

_TWICE = 1 / 8
"""Of the rows of an image that a thread expands, what others expand too at most."""

_SLACK = ALIGNMENT
"""Bytes behind a depthwise result that its reader may touch."""


@dataclass(frozen=True)
class _CascadeCandidate:
    """Steps that can be one, the values that are then no longer whole, and the call
    that does all.
    """

    steps: Sequence[FusedStep]
    between: Sequence[Value]
    call: KernelCall


def in_bands(
    graph: Graph, steps: Sequence[FusedStep], core: Core, where: Places
) -> list[FusedStep]:
    """Join scheduled steps of 1x1 → depthwise → 1x1 convolutions, or two of them, to
    one step each.

    Where what lies between them is more than the core's second cache keeps, but a band
    and the weights are less, it has no other reader, and no more bytes live then.
    """
    return _Bands(graph, steps, core, where).result


class _Bands:
    """The steps as they are joined."""

    def __init__(
        self, graph: Graph, steps: Sequence[FusedStep], core: Core, where: Places
    ) -> None:
        self.core = core
        self.where = where
        self.result = list(steps)
        self.border = {*graph.inputs, *graph.outputs}
        self.readers: dict[Value, list[FusedStep]] = {}
        self.writers: dict[Value, list[FusedStep]] = {}
        for step in steps:
            for call in step.calls:
                self.writers.setdefault(tensors([call])[-1], []).append(step)
            for v in dict.fromkeys(tensors(step.calls)[:-1]):
                self.readers.setdefault(v, []).append(step)
        deep = [
            (s, layer)
            for s in steps
            if len(s.calls) == 1 and (layer := depthwise(s.calls[0])) is not None
        ]
        for step, layer in sorted(deep, key=lambda one: -_around(one[1])):
            self._for_the_cache(step, layer)
        while any(self._for_the_arena(step, layer) for step, layer in deep):
            pass

    def _for_the_cache(self, step: FusedStep, deep: CascadeLayer) -> None:
        """Join a depthwise convolution with those around it, as many as pay."""
        for way in self._ways(step, deep):
            if sum(v.type.nbytes for v in way.between) > self.core.l2 // 2:
                joined = self._joined(way)
                if self._peak(joined) <= self._peak(self.result):
                    self.result = joined
                    return

    def _for_the_arena(self, step: FusedStep, deep: CascadeLayer) -> bool:
        """Join them where the second cache does not keep all that lives, and clearly
        fewer bytes do then; whether it did.
        """
        now = self._peak(self.result)
        at = self._highest()
        if now <= self.core.l2 // 2:
            return False
        for way in self._ways(step, deep):
            if any(s in way.steps for s in at):
                joined = self._joined(way)
                if self._peak(joined) < now * _WORTH:
                    self.result = joined
                    return True
        return False

    def _ways(self, step: FusedStep, deep: CascadeLayer) -> Iterator[_CascadeCandidate]:
        """To join a depthwise convolution with those around it, the most first, where
        the second cache keeps bands and weights.
        """
        if step not in self.result:
            return
        before = self._pointwise(self.writers.get(deep.x.value, []), deep.x.value)
        if deep.added is None:
            after = self._pointwise(self.readers.get(deep.y.value, []), deep.y.value)
        else:
            after = None
        if before is not None and (
            before[1].added is not None or self._twice(deep) > _TWICE
        ):
            before = None
        for first, last in ((before, after), (None, after), (before, None)):
            parts = [x for x in (first, (step, deep), last) if x is not None]
            if len(parts) > 1:
                call = _call(first and first[1], deep, last and last[1], self.core)
                bytes_ = sum(layer.weights for _, layer in parts)
                bytes_ += sum(x.nbytes for x in call.operands if isinstance(x, Scratch))
                if bytes_ <= self.core.l2 // 2:
                    yield _CascadeCandidate(
                        [s for s, _ in parts],
                        [layer.y.value for _, layer in parts[:-1]],
                        call,
                    )

    def _twice(self, deep: CascadeLayer) -> float:
        """Of the rows that a thread computes for its share of a depthwise convolution,
        what others compute too.
        """
        p = deep.p
        parts = self.core.threads
        own = p.number("n") * p.number("oh") * p.number("sh") / parts
        return (
            (parts - 1)
            / parts
            * max((p.number("kh") - 1) * p.number("dh") + 1 - p.number("sh"), 0)
            / own
        )

    def _pointwise(
        self, steps: Sequence[FusedStep], between: Value
    ) -> tuple[FusedStep, CascadeLayer] | None:
        """The step, if it is one, that is still one 1x1 convolution, where nothing else
        has to do with the value between: a concat has a writer for each of its parts.
        """
        if len(steps) != 1 or steps[0] not in self.result or len(steps[0].calls) != 1:
            return None
        if (
            between in self.border
            or len(self.readers[between]) != 1
            or len(self.writers[between]) != 1
        ):
            return None
        step = steps[0]
        if [
            v
            for v, place in self.where.items()
            if place.root is self.where[between].root
        ] != [between]:
            return None
        layer = pointwise(step.calls[0], between.type.shape[2])
        if layer is None or (layer.added is not None and layer.added.value is between):
            return None
        return step, layer

    def _joined(self, way: _CascadeCandidate) -> list[FusedStep]:
        ops = tuple(sorted(i for s in way.steps for i in s.ops))
        kept = [s for s in self.result if s not in way.steps]
        return sorted(
            [*kept, FusedStep(ops, (way.call,), way.steps[-1].at)], key=lambda s: s.at
        )

    def _peak(self, steps: Sequence[FusedStep]) -> int:
        """Bytes that live at most, scratch too."""
        return peak(self._lives(steps))

    def _highest(self) -> list[FusedStep]:
        """The steps at which most bytes live."""
        lives = self._lives(self.result)
        most = peak(lives)
        return [
            s
            for i, s in enumerate(self.result)
            if peak([b for b in lives if b.first <= i <= b.last]) == most
        ]

    def _lives(self, steps: Sequence[FusedStep]) -> list[Lifetime]:
        lives = lifetimes((tensors(s.calls) for s in steps), self.where, self.border)
        return [*lives, *_scratches(steps, self.core.threads)]


def _around(deep: CascadeLayer) -> int:
    """Bytes that a depthwise convolution reads and writes: where layers alternate, the
    largest tensors come first.
    """
    return deep.x.value.type.nbytes + deep.y.value.type.nbytes


def _scratches(steps: Sequence[FusedStep], threads: int) -> Iterator[Lifetime]:
    for i, step in enumerate(steps):
        for x in (
            x for call in step.calls for x in call.operands if isinstance(x, Scratch)
        ):
            yield Lifetime(
                "", x.nbytes * threads if x.nbytes > STACK_BYTES else 0, i, i
            )


def _call(
    before: CascadeLayer | None,
    deep: CascadeLayer,
    after: CascadeLayer | None,
    core: Core,
) -> KernelCall:
    """The call that does all."""
    names = ("n", "ih", "iw", "oh", "ow", "kh", "sh", "dh", "pt")
    shape = {name: deep.p.number(name) for name in names}
    wide, narrow = (_row(v) for v in (deep.x.value, deep.y.value))

    def room(rows: int) -> tuple[int, int, int]:
        """Rows that bands of so many rows keep, bytes of these and of the depthwise
        results.
        """
        if before:
            kept = min(
                (rows - 1) * shape["sh"] + (shape["kh"] - 1) * shape["dh"] + 1,
                shape["ih"],
            )
        else:
            kept = 0
        return (
            kept,
            aligned(kept * wide),
            aligned(rows * narrow) + _SLACK if after else 0,
        )

    unit = 2 * shape["dh"]
    fitting = [
        r
        for r in range(unit, max(unit, _ROWS) + 1, unit)
        if sum(room(r)[1:]) <= core.l2 // 4
    ]
    rows = max(fitting, default=unit)
    high, kept, between = room(rows)
    ring = high if "ring" in deep.p.fields else 0
    layers = {"before": before, "depthwise": deep, "after": after}
    told = {
        f"{name}_layer": layer.told(layer is (before or deep), layer is (after or deep))
        for name, layer in layers.items()
        if layer
    }
    functions = {name: layer.function for name, layer in layers.items() if layer}
    scratch = aligned(
        kept + between + max(layer.scratch for layer in layers.values() if layer)
    )
    first = before or deep
    last = after or deep
    p = Struct(
        "ek_row_bands_t",
        **shape,
        x_row=_row(first.x.value),
        wide_row=wide,
        y_row=_row(last.y.value),
        rows=rows,
        ring=ring,
        kept=kept,
        between=between,
        **functions,
        **told,
    )
    return KernelCall(
        _KERNEL,
        (first.x, last.added or 0, last.y, Scratch(scratch), p, PART, PARTS),
    )


def _row(v: Value) -> int:
    """Bytes of a row of images [n, h, w, c]."""
    return v.type.shape[2] * v.type.shape[3] * v.type.np_dtype.itemsize
