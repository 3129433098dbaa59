"""Both networks run on the same inputs; for every value that both have, what differs,
and what its own layer adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgec.comparing.changes import change_of
from edgec.comparing.channels import ChannelSums
from edgec.comparing.distance import distance
from edgec.comparing.side import Placed, Sample, Side, ops_of, values_of
from edgec.comparing.tasks import Meaning, TaskFigures
from edgec.comparing.twins import Twin, limits, reals, rounded, twins
from edgec.ir import Array, Op, TensorType, Value
from edgec.ir.interp import run_op
from edgec.quantize.accuracy import Tally
from edgec.steps import Progress

BINS = 48
FLOAT_LAW = 1e-3
"""Of a float result's range: a kernel that is further from `interp` computes something
else.
"""


def rounding(ops: Sequence[Op], want: Array) -> float:
    """How far ops may be from their meaning on the very same inputs, as `distance` has
    it: integers not at all, but one step where they come from floats, whose last bit
    may differ.
    """
    if want.dtype.kind == "f":
        return FLOAT_LAW
    return float(
        any(v.type.dtype == "float32" for op in ops for v in (*op.inputs, *op.outputs))
    )


@dataclass
class Law:
    """A layer as it runs against the meaning of its op, on the very same inputs. error:
    the largest difference, in steps for integers, else as a part of the range. share:
    of the elements that differ. allowed: the largest error that is rounding.
    """

    error: float = 0.0
    share: float = 0.0
    allowed: float = 0.0
    samples: int = 0

    @property
    def broken(self) -> bool:
        """Whether it computes something else."""
        return self.error > self.allowed

    def add(self, ops: Sequence[Op], want: Array, got: Array) -> None:
        """One sample of what ops compute together."""
        self.allowed = rounding(ops, want)
        self.error = max(self.error, distance(got, want))
        differing = float((got != want).mean()) if want.size else 0.0
        self.share = (self.share * self.samples + differing) / (self.samples + 1)
        self.samples += 1


@dataclass
class Spread:
    """Where the reals of a value lie. a, b: counts in bins between low and high.
    clipped: the share of A's elements that B's type cannot hold; used: the part of what
    it can hold that they use; None in float.
    """

    low: float = np.inf
    high: float = -np.inf
    edges: Array = field(default_factory=lambda: np.zeros(0))
    a: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    b: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    _clipped: int = 0
    _elements: int = 0

    def add(self, v: Value, want: Array, got: Array) -> None:
        """One sample; the first decides the bins, whose last ones take what lies
        beyond.
        """
        seen = want[np.isfinite(want)]
        low = float(seen.min(initial=np.inf))
        high = float(seen.max(initial=-np.inf))
        held = limits(v.type)
        if not len(self.edges):
            ends = [low, high, *(held or ())] if seen.size else [*(held or (0.0, 1.0))]
            start = min(ends)
            end = max(ends)
            self.edges = np.linspace(
                start, end if end > start else start + 1.0, BINS + 1
            )
        self.low, self.high = min(self.low, low), max(self.high, high)
        for counts, array in ((self.a, seen), (self.b, got[np.isfinite(got)])):
            counts += np.histogram(
                np.clip(array, self.edges[0], self.edges[-1]), self.edges
            )[0]
        if held is not None:
            half = (held[1] - held[0]) / 510
            self._clipped += int(
                ((seen < held[0] - half) | (seen > held[1] + half)).sum()
            )
        self._elements += want.size

    def clipped(self, v: Value) -> float | None:
        """See above."""
        if limits(v.type) is None:
            return None
        return self._clipped / max(1, self._elements)

    def used(self, v: Value) -> float | None:
        """See above; of a range with zero, as a type's always is."""
        held = limits(v.type)
        if held is None or held[1] <= held[0] or self.high < self.low:
            return None
        return (max(self.high, 0.0) - min(self.low, 0.0)) / (held[1] - held[0])


@dataclass
class ValueRecord:
    """All that is known of one value of B. op: that wrote it, None for an input; other:
    what wrote A's; type: A's. whole: against A; own: the same where the layers before
    it gave what A has; inherited: what the rest changes.
    """

    index: int
    value: Value
    op: Op | None
    part: str
    twin: Twin
    channels: ChannelSums
    other: Op | None = None
    type: TensorType | None = None
    whole: Tally = field(default_factory=Tally)
    own: Tally = field(default_factory=Tally)
    inherited: Tally = field(default_factory=Tally)
    spread: Spread = field(default_factory=Spread)
    law: Law = field(default_factory=Law)


@dataclass(frozen=True)
class Measured:
    """What both runs gave. seen: in the order of B's graph. only_a, only_b: values that
    have no twin, not compared. outputs: by B's names. tops: of those that are one row,
    the samples whose largest element is another one, with A's and B's. images: the
    first sample's outputs, A's and B's reals. task: figures, where the meaning is
    known.
    """

    seen: Sequence[ValueRecord]
    only_a: Sequence[str]
    only_b: Sequence[str]
    outputs: Mapping[str, Tally]
    tops: Mapping[str, tuple[tuple[int, int, int], ...]]
    images: Mapping[str, tuple[Array, Array]]
    samples: int
    task: Mapping[str, float] = field(default_factory=dict)


def measure(
    a: Side,
    b: Side,
    pairs: Sequence[tuple[Sample, Sample]],
    exact: int,
    say: Progress = lambda text: None,
    meaning: Meaning | None = None,
) -> Measured:
    """Run both on every pair of inputs. exact: on how many of them B is compared with
    its own law, where it has one. meaning: of the outputs of either.
    """
    run = _Runs(a, b, len(pairs), meaning)
    for i, (mine, theirs) in enumerate(pairs):
        say(f"compare {i + 1}/{len(pairs)}")
        run.add(mine, theirs, i < exact)
    return run.measured()


class _Runs:
    """The two, sample by sample.

    Of one sample, A's compared values are in memory; of all, sums.
    """

    def __init__(
        self, a: Side, b: Side, samples: int, meaning: Meaning | None = None
    ) -> None:
        self.a = a
        self.b = b
        self.samples = 0
        mine = values_of(b)
        theirs = {n: v for n, v in values_of(a).items() if not _is_part(a, n)}
        self.relaid = a.channels_last is not b.channels_last
        counts = {
            n: c.count
            for n in mine
            if (c := change_of(b.changes, n)) is not None and c.count is not None
        }
        self.twins = twins(mine, theirs, self.relaid, counts)
        for v, other in zip(b.inputs, a.inputs, strict=False):
            if v.type.shape == other.type.shape:
                self.twins.setdefault(
                    v.name, Twin(other.name, (tuple(range(v.type.rank)),))
                )
        self.placed = {p.op.output.name: p for p in ops_of(b)}
        self.others = {p.op.output.name: p.op for p in ops_of(a)} if a.complete else {}
        self.types = {name: v.type for name, v in theirs.items()}
        self.wanted = {t.name for t in self.twins.values()}
        self.called = _ends(a, b, self.twins)
        self.seen: dict[str, ValueRecord] = {}
        self.only = (
            [n for n in theirs if n not in self.wanted],
            [n for n in mine if n not in self.twins],
        )
        self.outputs: dict[str, Tally] = {}
        self.tops: dict[str, list[tuple[int, int, int]]] = {}
        self.images: dict[str, tuple[Array, Array]] = {}
        self._expect = samples
        self._judge = TaskFigures(meaning, self.called) if meaning is not None else None

    def add(self, mine: Sample, theirs: Sample, exact: bool) -> None:
        """One pair of inputs."""
        floats = self._a(mine)
        free = dict[str, Array]()
        values = values_of(self.b)
        env = dict[str, Array]()

        def see(v: Value, array: Array) -> None:
            if v.name in self.twins or (exact and not self.b.same_code):
                free[v.name] = array.copy()

        got = self.b.run(theirs, see)
        wants = {
            n: self._twin(n, floats, reals(y, values[n].type))
            for n, y in free.items()
            if n in self.twins
        }
        for name, want in wants.items():
            if want is not None:
                one = self._of(values[name])
                y = reals(free[name], values[name].type)
                one.whole.add(want, y)
                one.spread.add(values[name], want, y)
        self._outputs(floats, wants, got)
        self._forced(theirs, wants, free, env, exact)
        if exact and self.b.complete and not self.b.same_code:
            for name, placed in self.placed.items():
                if name in free and all(
                    v.name in free for v in placed.op.inputs if v.const is None
                ):
                    self._law(placed, free, free[name])
        self.samples += 1

    def _a(self, sample: Sample) -> dict[str, Array]:
        """A's reals, by its names."""
        found: dict[str, Array] = {}

        def see(v: Value, array: Array) -> None:
            if v.name in self.wanted:
                found[v.name] = np.array(reals(array, v.type))

        last = self.a.run(sample, see)
        types = {v.name: v.type for v in self.a.outputs}
        for name, real in found.items():
            if (change := change_of(self.a.changes, name)) is not None:
                found[name] = change.undone(real).astype(np.float32)
        return {
            **{n: reals(y, types[n]) for n, y in last.items() if n in types},
            **found,
        }

    def _twin(self, name: str, floats: Mapping[str, Array], got: Array) -> Array | None:
        """What A has for a value of B, laid out as B's; of several ways the one that
        fits at first is kept.
        """
        twin = self.twins[name]
        real = floats.get(twin.name)
        if real is None:
            return None
        change = change_of(self.b.changes, name)

        def changed(x: Array) -> Array:
            return x if change is None else change.done(x).astype(np.float32)

        if len(twin.perms) > 1:
            errors = [
                float(np.square(np.nan_to_num(changed(real.transpose(p)) - got)).sum())
                for p in twin.perms
            ]
            twin = Twin(twin.name, (twin.perms[int(np.argmin(errors))],))
            self.twins[name] = twin
        return np.ascontiguousarray(changed(real.transpose(twin.perms[0])))

    def _of(self, v: Value) -> ValueRecord:
        if v.name not in self.seen:
            placed = self.placed.get(v.name)
            axis = -1 if self.b.channels_last or v.type.rank < 3 else 1
            channels = ChannelSums(axis, self._expect, limits(v.type))
            op, part = (placed.op, placed.part) if placed is not None else (None, "")
            twin = self.twins[v.name]
            if op is None or not self._reordered(op):
                other = self.others.get(twin.name)
            else:
                other = None
            self.seen[v.name] = ValueRecord(
                0, v, op, part, twin, channels, other, self.types.get(twin.name)
            )
        return self.seen[v.name]

    def _reordered(self, op: Op) -> bool:
        """Whether it has channels in another order than A, so that weights cannot be
        compared one by one.
        """
        around = (v for v in (*op.inputs, *op.outputs) if v.const is None)
        changes = [
            change_of(side.changes, v.name) for v in around for side in (self.a, self.b)
        ]
        return any(c is not None and c.order is not None for c in changes)

    def _forced(
        self,
        sample: Sample,
        wants: Mapping[str, Array | None],
        free: Mapping[str, Array],
        env: dict[str, Array],
        exact: bool,
    ) -> None:
        """B once more, every layer on what A has, as B rounds it."""
        check = exact and self.b.same_code and self.b.complete

        def see(v: Value, array: Array) -> Array | None:
            placed = self.placed.get(v.name)
            want = wants.get(v.name)
            if (
                check
                and placed is not None
                and all(i.name in env for i in placed.op.inputs if i.const is None)
            ):
                self._law(placed, env, array)
            if want is None:
                env[v.name] = array.copy() if check else array
                return None
            one = self._of(v)
            own = reals(array, v.type)
            one.own.add(want, own)
            one.channels.add(want, own)
            one.inherited.add(own, reals(free[v.name], v.type))
            held = rounded(want, v.type)
            one.channels.hold(want, reals(held, v.type))
            if check:
                env[v.name] = held
            return held

        self.b.force(sample, see)

    def _law(self, placed: Placed, env: Mapping[str, Array], got: Array) -> None:
        name = placed.op.output.name
        if name in self.twins:
            inputs = {v: env[v.name] for v in placed.op.inputs if v.const is None}
            self._of(placed.op.output).law.add(
                [placed.op], run_op(placed.op, inputs)[0], got
            )

    def _outputs(
        self,
        floats: Mapping[str, Array],
        wants: Mapping[str, Array | None],
        got: Mapping[str, Array],
    ) -> None:
        pairs = dict[str, tuple[Array, Array]]()
        for v in self.b.outputs:
            want = wants.get(v.name)
            if want is None:
                want = floats.get(self.called.get(v.name, ""))
            if want is None or want.size != got[v.name].size:
                continue
            pairs[v.name] = pair = (
                want.reshape(got[v.name].shape),
                reals(got[v.name], v.type),
            )
            self.outputs.setdefault(v.name, Tally()).add(*pair)
            self.images.setdefault(v.name, pair)
            if v.type.rank and v.type.size == v.type.shape[-1] > 1:
                one, other = (int(x.reshape(-1).argmax()) for x in pair)
                found = self.tops.setdefault(v.name, [])
                found += [(self.samples, one, other)] if one != other else []
        if self._judge is not None:
            self._judge.add(pairs)

    def measured(self) -> Measured:
        """Of all samples."""
        order = {n: i for i, n in enumerate(values_of(self.b))}
        ops = {id(p.op): i for i, p in enumerate(ops_of(self.b))}
        found = sorted(self.seen.values(), key=lambda s: order[s.value.name])
        for one in found:
            one.index = ops[id(one.op)] if one.op is not None else -1
        found = sorted(found, key=lambda s: s.index)
        tops = {n: tuple(some) for n, some in self.tops.items()}
        task = self._judge.means() if self._judge is not None else {}
        return Measured(
            found, *self.only, self.outputs, tops, self.images, self.samples, task
        )


def _is_part(side: Side, name: str) -> bool:
    """Whether a value is some channels of what the model had."""
    change = change_of(side.changes, name)
    return change is not None and change.count is not None


def _ends(a: Side, b: Side, found: Mapping[str, Twin]) -> dict[str, str]:
    """Which output of A each of B is: by name, else, where both have as many, in order."""
    theirs = {v.name: v for v in a.outputs}
    named = {
        v.name: found[v.name].name
        for v in b.outputs
        if v.name in found and found[v.name].name in theirs
    }
    if len(named) < len(b.outputs) and len(a.outputs) == len(b.outputs):
        pairs: Iterator[tuple[Value, Value]] = zip(b.outputs, a.outputs, strict=True)
        return {v.name: o.name for v, o in pairs if v.type.size == o.type.size}
    return named
