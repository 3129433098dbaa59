"""Joins convolutions to cascades that run a few rows at a time (csrc/ek_row_bands.h).

A cascade is a 1x1 convolution, a depthwise one and a 1x1 one, or two of these, as in
the inverted residual blocks of MobileNetV2. A band of rows of the expanded image lies
in a rolling buffer in the cache, and the whole image never in the arena.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

from edgec.ir import PART, PARTS, Graph, Kernel, KernelCall, Scratch, Value
from edgec.ir.c_structs import (
    Dwconv2dF32Params,
    GemmF32Params,
    GemmS8Params,
    RowBandsParams,
)
from edgec.schedule.band_layers import (
    CascadeLayer,
    DepthwiseLayer,
    DepthwiseParams,
    P,
    PointwiseLayer,
    depthwise,
    pointwise,
)
from edgec.schedule.cores import Core
from edgec.schedule.fuse import FusedStep
from edgec.schedule.liveness import (
    ALIGNMENT,
    Lifetime,
    aligned,
    peak,
    scratches,
    step_lifetimes,
    tensors,
)
from edgec.schedule.views import Places

_KERNEL = Kernel("row_bands", "ek_row_bands.h")

MAX_BAND_ROWS = 4
"""Rows of results in a band, unless dilated taps lie further apart."""

MAX_PEAK_RATIO = 0.95
"""A cascade of tensors that the cache keeps has to leave at most this share of the
peak of live bytes.
"""

MAX_RECOMPUTED_SHARE = 1 / 8
"""The most rows that several threads may expand, as a share of a thread's rows."""

SLACK_BYTES = ALIGNMENT
"""Bytes behind a depthwise result that its reader may touch."""


@dataclass(frozen=True)
class _CascadePart(Generic[P]):
    """A scheduled step that is one convolution.

    Attributes:
        step: the step
        layer: its convolution
    """

    step: FusedStep
    layer: CascadeLayer[P]


_PointwisePart = _CascadePart[GemmF32Params | GemmS8Params]
_DepthwisePart = _CascadePart[DepthwiseParams]
_Layer = PointwiseLayer | DepthwiseLayer


@dataclass(frozen=True)
class _CascadeCandidate:
    """Steps that can be one cascade.

    Attributes:
        steps: the steps
        between: the values that are then never whole
        call: the call that computes all
    """

    steps: Sequence[FusedStep]
    between: Sequence[Value]
    call: KernelCall


def join_cascades(
    graph: Graph, steps: Sequence[FusedStep], core: Core, where: Places
) -> list[FusedStep]:
    """Join scheduled steps of 1x1, depthwise and 1x1 convolutions to one step each.

    They are joined where the values between them have no other reader, a band and the
    weights fit the core's second cache, and no more bytes live than before. It has to
    be worth it, too: the values between do not fit that cache, or the peak of live
    bytes does not and clearly falls.
    """
    joiner = _CascadeJoiner(graph, steps, core, where)
    joiner.run()
    return joiner.steps


class _CascadeJoiner:
    """The joining of steps to cascades.

    Attributes:
        steps: the steps as joined so far
        readers: the original steps that read each value
        writers: the original steps that write each value, once for each call
    """

    def __init__(
        self, graph: Graph, steps: Sequence[FusedStep], core: Core, where: Places
    ) -> None:
        self.core = core
        self.where = where
        self.steps = list(steps)
        self.border = {*graph.inputs, *graph.outputs}
        self.readers: dict[Value, list[FusedStep]] = {}
        self.writers: dict[Value, list[FusedStep]] = {}

        # The last tensor of a call is its result.
        for step in steps:
            for call in step.calls:
                result = tensors([call])[-1]
                self.writers.setdefault(result, []).append(step)
            read = tensors(step.calls)[:-1]
            for v in dict.fromkeys(read):
                self.readers.setdefault(v, []).append(step)

    def run(self) -> None:
        """Join neighbouring layers into cascades wherever that saves time or memory."""
        parts: list[_DepthwisePart] = []
        for step in self.steps:
            layer = depthwise(step.calls[0]) if len(step.calls) == 1 else None
            if layer is not None:
                parts.append(_CascadePart(step, layer))

        # Two depthwise convolutions may want the 1x1 one between them.
        for part in sorted(parts, key=_surrounding_bytes, reverse=True):
            self._join_for_cache(part)

        # Each cascade can move the peak to other steps.
        while any(self._join_for_arena(part) for part in parts):
            pass

    def _join_for_cache(self, deep: _DepthwisePart) -> None:
        """Join a depthwise convolution with its neighbours where that spares the cache.

        The second cache does not keep the values between them.
        """
        for candidate in self._candidates(deep):
            between_bytes = sum(v.type.nbytes for v in candidate.between)
            if between_bytes <= self.core.l2 // 2:
                continue
            joined = self._joined(candidate)
            if self._peak(joined) <= self._peak(self.steps):
                self.steps = joined
                return

    def _join_for_arena(self, deep: _DepthwisePart) -> bool:
        """Join it where that clearly lowers a peak beyond the second cache.

        Return whether it did.
        """
        present = self._peak(self.steps)
        peak_steps = self._peak_steps()
        if present <= self.core.l2 // 2:
            return False
        for candidate in self._candidates(deep):
            # Only a cascade of steps at the peak can lower it.
            if not any(s in candidate.steps for s in peak_steps):
                continue
            joined = self._joined(candidate)
            if self._peak(joined) < present * MAX_PEAK_RATIO:
                self.steps = joined
                return True
        return False

    def _candidates(self, deep: _DepthwisePart) -> Iterator[_CascadeCandidate]:
        """Yield the cascades around a depthwise convolution, the longest first.

        The second cache keeps their bands and weights.
        """
        if deep.step not in self.steps:
            return
        before = self._expansion(deep)
        after = self._projection(deep)
        for first, last in ((before, after), (None, after), (before, None)):
            if first is None and last is None:
                continue
            candidate = self._candidate(first, deep, last)
            if candidate is not None:
                yield candidate

    def _candidate(
        self,
        first: _PointwisePart | None,
        deep: _DepthwisePart,
        last: _PointwisePart | None,
    ) -> _CascadeCandidate | None:
        """Return the cascade of these convolutions, unless it exceeds the cache."""
        before = first.layer if first else None
        after = last.layer if last else None
        call = _cascade_call(before, deep.layer, after, self.core)

        # Every band passes all weights, so both have to stay in the cache.
        parts = [part for part in (first, deep, last) if part is not None]
        cached_bytes = sum(part.layer.weights for part in parts)
        cached_bytes += sum(scratch.nbytes for scratch in scratches([call]))
        if cached_bytes > self.core.l2 // 2:
            return None

        steps = [part.step for part in parts]
        between = [part.layer.y.value for part in parts[:-1]]
        return _CascadeCandidate(steps, between, call)

    def _expansion(self, deep: _DepthwisePart) -> _PointwisePart | None:
        """Return the 1x1 convolution that writes the input of a depthwise one."""
        between = deep.layer.x.value
        writers = self.writers.get(between, [])
        before = self._pointwise(writers, between)
        if before is None:
            return None

        # The kernel has no address of a tensor to add to expanded rows.
        if before.layer.added is not None:
            return None
        if self._recomputed_share(deep.layer) > MAX_RECOMPUTED_SHARE:
            return None
        return before

    def _projection(self, deep: _DepthwisePart) -> _PointwisePart | None:
        """Return the 1x1 convolution that reads the result of a depthwise one."""
        # The kernel adds a tensor to the last result only.
        if deep.layer.added is not None:
            return None
        between = deep.layer.y.value
        return self._pointwise(self.readers.get(between, []), between)

    def _recomputed_share(self, deep: DepthwiseLayer) -> float:
        """Return the share of a thread's expanded rows that another expands, too.

        Threads share the rows of the result, and the windows of the first rows of a
        share overlap those of the share before it.
        """
        p = deep.p
        threads = self.core.threads
        image_rows = p.n * p.oh * p.sh
        own_rows = image_rows / threads
        window_rows = (p.kh - 1) * p.dh + 1
        overlap = max(window_rows - p.sh, 0)

        # The first share has no share before it.
        return (threads - 1) / threads * overlap / own_rows

    def _pointwise(
        self, steps: Sequence[FusedStep], between: Value
    ) -> _PointwisePart | None:
        """Return the only step of `steps` if it is a 1x1 convolution still alone.

        Nothing else may have to do with the value between: a concat has a writer for
        each of its parts, and other values may lie in its bytes.
        """
        if len(steps) != 1:
            return None
        step = steps[0]
        if step not in self.steps or len(step.calls) != 1:
            return None
        if not self._is_private(between):
            return None
        layer = pointwise(step.calls[0], between.type.shape[2])
        if layer is None:
            return None
        if layer.added is not None and layer.added.value is between:
            return None
        return _CascadePart(step, layer)

    def _is_private(self, between: Value) -> bool:
        """Return whether a value has one writer, one reader and bytes of its own."""
        if between in self.border:
            return False
        if len(self.readers[between]) != 1:
            return False
        if len(self.writers[between]) != 1:
            return False

        # A view of the value would read bytes that are never written.
        root = self.where[between].root
        residents: list[Value] = []
        for v, place in self.where.items():
            if place.root is root:
                residents.append(v)
        return residents == [between]

    def _joined(self, candidate: _CascadeCandidate) -> list[FusedStep]:
        """Return the steps with those of a candidate as one."""
        ops = sorted(i for s in candidate.steps for i in s.ops)

        # In the turn of the last step all that the cascade reads has been computed.
        turn = candidate.steps[-1].at
        cascade = FusedStep(tuple(ops), (candidate.call,), turn)

        others = [s for s in self.steps if s not in candidate.steps]
        return sorted([*others, cascade], key=lambda s: s.at)

    def _peak(self, steps: Sequence[FusedStep]) -> int:
        """Return the most bytes that live at any step, scratch included."""
        return peak(self._lifetimes(steps))

    def _peak_steps(self) -> list[FusedStep]:
        """Return the steps at which the most bytes live."""
        lives = self._lifetimes(self.steps)
        most = peak(lives)

        # Several steps may share the peak, and any of their cascades may help.
        at_peak: list[FusedStep] = []
        for i, step in enumerate(self.steps):
            living = [b for b in lives if b.first <= i <= b.last]
            if peak(living) == most:
                at_peak.append(step)

        return at_peak

    def _lifetimes(self, steps: Sequence[FusedStep]) -> list[Lifetime]:
        """Return the lifetimes of all buffers and of the scratch in the arena."""
        calls = [s.calls for s in steps]
        return step_lifetimes(calls, self.where, self.border, self.core.threads)


def _surrounding_bytes(deep: _DepthwisePart) -> int:
    """Return the bytes that a depthwise convolution reads and writes."""
    return deep.layer.x.value.type.nbytes + deep.layer.y.value.type.nbytes


@dataclass(frozen=True)
class _Band:
    """The sizes of a band.

    Attributes:
        rows: rows of depthwise results
        kept: expanded rows in the rolling buffer
        kept_bytes: bytes of that buffer
        between_bytes: bytes of the depthwise results
    """

    rows: int
    kept: int
    kept_bytes: int
    between_bytes: int


def _cascade_call(
    before: PointwiseLayer | None,
    deep: DepthwiseLayer,
    after: PointwiseLayer | None,
    core: Core,
) -> KernelCall:
    """Return the call that computes a cascade.

    Args:
        before: the 1x1 convolution that expands the channels
        deep: the depthwise convolution
        after: the 1x1 convolution that projects the channels
        core: the core that runs it
    """
    band = _largest_band(deep, before is not None, after is not None, core)

    first: _Layer = before or deep
    last: _Layer = after or deep
    candidates: tuple[_Layer | None, ...] = (before, deep, after)
    layers = [layer for layer in candidates if layer is not None]

    # The other layers read or write a band, which is in the cache already.
    parameters = {
        layer: layer.parameters(layer is first, layer is last) for layer in layers
    }

    # Layers run one after the other, so they share their scratch.
    layer_scratch = max(layer.scratch for layer in layers)
    p = RowBandsParams(
        n=deep.p.n,
        ih=deep.p.ih,
        iw=deep.p.iw,
        oh=deep.p.oh,
        ow=deep.p.ow,
        kh=deep.p.kh,
        sh=deep.p.sh,
        dh=deep.p.dh,
        pt=deep.p.pt,
        x_row=_row_bytes(first.x.value),
        wide_row=_row_bytes(deep.x.value),
        y_row=_row_bytes(last.y.value),
        rows=band.rows,
        ring=band.kept if isinstance(deep.p, Dwconv2dF32Params) else 0,
        kept=band.kept_bytes,
        between=band.between_bytes,
        before=None if before is None else before.function,
        depthwise=deep.function,
        after=None if after is None else after.function,
        before_layer=None if before is None else parameters[before],
        depthwise_layer=parameters[deep],
        after_layer=None if after is None else parameters[after],
    )
    scratch = Scratch(aligned(band.kept_bytes + band.between_bytes + layer_scratch))
    operands = (first.x, last.added or 0, last.y, scratch, p, PART, PARTS)
    return KernelCall(_KERNEL, operands)


def _largest_band(
    deep: DepthwiseLayer, expands: bool, projects: bool, core: Core
) -> _Band:
    """Return the largest band whose buffers fit a quarter of the second cache.

    The rest is for the weights, the image and the result.
    """
    # Only rows `dh` apart read the same image rows: a band has at least two of each.
    unit = 2 * deep.p.dh
    best = _band(deep, unit, expands, projects)
    for rows in range(unit, max(unit, MAX_BAND_ROWS) + 1, unit):
        band = _band(deep, rows, expands, projects)
        if band.kept_bytes + band.between_bytes <= core.l2 // 4:
            best = band
    return best


def _band(deep: DepthwiseLayer, rows: int, expands: bool, projects: bool) -> _Band:
    """Return the sizes of a band of `rows` rows of a depthwise convolution.

    Args:
        deep: the depthwise convolution
        rows: rows of its result
        expands: whether a 1x1 convolution writes its input
        projects: whether a 1x1 convolution reads its result
    """
    p = deep.p
    overlap = 0
    if expands:
        window_rows = (p.kh - 1) * p.dh + 1
        overlap = min((rows - 1) * p.sh + window_rows, p.ih)
    between_bytes = 0
    if projects:
        between_bytes = aligned(rows * _row_bytes(deep.y.value)) + SLACK_BYTES
    kept_bytes = aligned(overlap * _row_bytes(deep.x.value))
    return _Band(rows, overlap, kept_bytes, between_bytes)


def _row_bytes(v: Value) -> int:
    """Return the bytes of a row of images [n, h, w, c]."""
    return v.type.shape[2] * v.type.shape[3] * v.type.np_dtype.itemsize
