"""Runs two networks on the same inputs and sums the differences of common values.

For each value there is the whole difference, and the part that its own layer adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgec.comparing.changes import change_of
from edgec.comparing.channels import STEPS_ACROSS, ChannelSums
from edgec.comparing.side import Sample, Side, ops_of, values_of
from edgec.comparing.tasks import Meaning, TaskFigures
from edgec.comparing.value_pairs import Twin, limits, reals, rounded, twins
from edgec.ir import Array, Op, TensorType, Value
from edgec.ir.interp import run_op
from edgec.measure.agreement import Tally
from edgec.measure.distance import distance
from edgec.steps import Progress

BINS = 48
"""Bins of the histogram of a value."""
FLOAT_LAW = 1e-3
"""A float kernel further from the reference interpreter than this share of the result's
range computes something else.
"""
FLOAT16_LAW = 2e-2
"""The same of a float16 kernel, whose sums are rounded to float16 after 32 terms at most:
a sum of n terms is off by about sqrt(n) units of its last place.
"""


def rounding(ops: Sequence[Op], want: Array) -> float:
    """Return how far ops may be from the reference on the very same inputs.

    The unit is that of `distance`. Integers must agree, but for one step if floats
    enter them: the last bit of a float may differ.
    """
    if want.dtype == np.float16:
        return FLOAT16_LAW
    if want.dtype.kind == "f":
        return FLOAT_LAW
    values = [v for op in ops for v in (*op.inputs, *op.outputs)]
    return float(any(v.type.dtype == "float32" for v in values))


@dataclass
class ReferenceCheck:
    """Compares a layer with the reference of its op on the very same inputs.

    Attributes:
        error: largest difference, in the unit of `distance`
        share: share of the elements that differ
        allowed: largest difference that rounding explains
        samples: number of samples
    """

    error: float = 0.0
    share: float = 0.0
    allowed: float = 0.0
    samples: int = 0

    @property
    def broken(self) -> bool:
        """Return whether the layer computes something else."""
        return self.error > self.allowed

    def add(self, ops: Sequence[Op], want: Array, actual: Array) -> None:
        """Add a sample of the result of ops that run together."""
        self.allowed = rounding(ops, want)
        self.error = max(self.error, distance(actual, want))
        differing = float((actual != want).mean()) if want.size else 0.0
        # A running mean, since the samples themselves are not kept.
        total = self.share * self.samples + differing
        self.share = total / (self.samples + 1)
        self.samples += 1


@dataclass
class Spread:
    """The distribution of the reals of a value.

    Attributes:
        low: smallest element of A
        high: largest element of A
        edges: edges of the bins of the histograms
        a: elements of A in each bin
        b: elements of B in each bin
    """

    low: float = np.inf
    high: float = -np.inf
    edges: Array = field(default_factory=lambda: np.zeros(0))
    a: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    b: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    _clipped: int = 0
    _elements: int = 0

    def add(self, v: Value, want: Array, actual: Array) -> None:
        """Add a sample; the first one determines the bins.

        The outer bins include everything beyond them.
        """
        finite = want[np.isfinite(want)]
        low = float(finite.min(initial=np.inf))
        high = float(finite.max(initial=-np.inf))
        held = limits(v.type)
        if not len(self.edges):
            ends = [*(held or ())]
            if finite.size:
                ends += [low, high]
            self.edges = _bin_edges(ends or [0.0, 1.0])

        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self.a += self._counts(finite)
        self.b += self._counts(actual[np.isfinite(actual)])
        if held is not None:
            # A value rounds to an end of the range from half a step beyond it.
            half_step = (held[1] - held[0]) / (2 * STEPS_ACROSS)
            beyond = (finite < held[0] - half_step) | (finite > held[1] + half_step)
            self._clipped += int(beyond.sum())
        self._elements += want.size

    def _counts(self, elements: Array) -> Array:
        """Return the number of elements in each bin."""
        within = np.clip(elements, self.edges[0], self.edges[-1])
        counts, _ = np.histogram(within, self.edges)
        return counts

    def clipped(self, v: Value) -> float | None:
        """Return the share of A's elements beyond B's range; None in float."""
        if limits(v.type) is None:
            return None

        # Without any element, nothing is clipped.
        return self._clipped / max(1, self._elements)

    def used(self, v: Value) -> float | None:
        """Return the part of B's range that A's elements use; None in float."""
        held = limits(v.type)
        if held is None or self.high < self.low:
            return None

        low, high = held
        if high <= low:
            return None
        # The range of a type always includes zero.
        extent = max(self.high, 0.0) - min(self.low, 0.0)
        return extent / (high - low)


def _bin_edges(ends: Sequence[float]) -> Array:
    """Return edges of equal bins between the smallest and the largest of `ends`."""

    start = min(ends)
    end = max(ends)
    # A constant value would make bins without width.
    if end <= start:
        end = start + 1.0
    return np.linspace(start, end, BINS + 1)


@dataclass
class ValueRecord:
    """The measures of one value of B.

    Attributes:
        index: position of the op in the graph; -1 for an input
        value: the value
        op: its producer; None for an input
        part: name of the segment
        twin: its twin in A
        channels: sums over the channels, of the layer's own error
        other: the producer of the twin; None if its weights cannot be compared
        type: type of the twin
        whole: the value against A
        own: the value against A if the layer reads A's values
        inherited: the effect of the differences of the layer's inputs
        spread: distribution of the elements
        law: the layer against the reference of its op
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
    law: ReferenceCheck = field(default_factory=ReferenceCheck)


@dataclass(frozen=True)
class Measured:
    """The result of both runs.

    Attributes:
        seen: records of the compared values, in the order of B's graph
        only_a: values of A without a twin
        only_b: values of B without a twin
        outputs: sums of each output, by B's names
        tops: of each output that is one row, the samples whose largest element differs:
            (sample, index in A, index in B)
        images: outputs of the first sample, the reals of A and B
        samples: number of samples
        task: figures of the task, if it is known
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
    """Run both sides on every pair of inputs.

    Args:
        a: the reference
        b: the side that is compared with it
        pairs: the inputs of A and of B
        exact: number of samples on which B is compared with the reference of each op
        say: receives the progress
        meaning: decodes the outputs of either side
    """
    run = _Runs(a, b, len(pairs), meaning)
    for i, (inputs_a, inputs_b) in enumerate(pairs):
        say(f"compare {i + 1}/{len(pairs)}")
        run.add(inputs_a, inputs_b, i < exact)
    return run.measured()


class _Runs:
    """Runs both sides sample by sample.

    Memory holds A's compared values of one sample, and sums over all samples.
    """

    def __init__(
        self, a: Side, b: Side, samples: int, meaning: Meaning | None = None
    ) -> None:
        self.a = a
        self.b = b
        self.samples = 0
        self._expected_samples = samples

        values_b = values_of(b)
        values_a = {}
        for name, value in values_of(a).items():
            # A part of channels in A has no twin: B has the whole.
            if _twin_channels(a, name) is None:
                values_a[name] = value
        self.twins = _match(a, b, values_a, values_b)
        self.twin_names = {twin.name for twin in self.twins.values()}
        self.only_a = [name for name in values_a if name not in self.twin_names]
        self.only_b = [name for name in values_b if name not in self.twins]

        self.producers_b = {placed.op.output.name: placed for placed in ops_of(b)}
        self.producers_a: dict[str, Op] = {}
        if a.complete:
            self.producers_a = {
                placed.op.output.name: placed.op for placed in ops_of(a)
            }
        self.types_a = {name: v.type for name, v in values_a.items()}
        self.output_names = _output_names(a, b, self.twins)

        self.records: dict[str, ValueRecord] = {}
        self.outputs: dict[str, Tally] = {}
        self.tops: dict[str, list[tuple[int, int, int]]] = {}
        self.images: dict[str, tuple[Array, Array]] = {}
        self._task: TaskFigures | None = None
        if meaning is not None:
            self._task = TaskFigures(meaning, self.output_names)

    def add(self, inputs_a: Sample, inputs_b: Sample, exact: bool) -> None:
        """Add a pair of inputs; `exact` compares B with the reference of each op."""
        reals_a = self._run_a(inputs_a)
        arrays_b = dict[str, Array]()
        # Code that cannot be forced is checked on the values of the free run.
        check_free = exact and not self.b.same_code

        def see(v: Value, array: Array) -> None:
            if v.name in self.twins or check_free:
                # A side may compute later values in the same memory.
                arrays_b[v.name] = array.copy()

        outputs_b = self.b.run(inputs_b, see)
        expected = self._compare(reals_a, arrays_b)
        self._compare_outputs(reals_a, expected, outputs_b)
        self._force(inputs_b, expected, arrays_b, exact)
        if check_free and self.b.complete:
            self._check_all(arrays_b)
        self.samples += 1

    def _run_a(self, sample: Sample) -> dict[str, Array]:
        """Return the reals of A's compared values and outputs, by A's names."""
        compared: dict[str, Array] = {}

        def see(v: Value, array: Array) -> None:
            if v.name in self.twin_names:
                compared[v.name] = np.array(reals(array, v.type))

        outputs = self.a.run(sample, see)

        result = {}
        for value in self.a.outputs:
            if value.name in outputs:
                result[value.name] = reals(outputs[value.name], value.type)
        # What A computes is in the order of its own recipe: back to the original's.
        for name, real in compared.items():
            change = change_of(self.a.changes, name)
            if change is not None:
                real = change.undone(real).astype(np.float32)
            result[name] = real
        return result

    def _compare(
        self, reals_a: Mapping[str, Array], arrays_b: Mapping[str, Array]
    ) -> dict[str, Array | None]:
        """Compare the values of a free run, and return A's reals by B's names."""
        values = values_of(self.b)

        expected = {}
        for name, array in arrays_b.items():
            if name not in self.twins:
                continue
            value = values[name]

            real_b = reals(array, value.type)
            real_a = self._expected(name, reals_a, real_b)

            expected[name] = real_a
            if real_a is not None:
                record = self._record(value)
                record.whole.add(real_a, real_b)
                record.spread.add(value, real_a, real_b)
        return expected

    def _expected(
        self, name: str, reals_a: Mapping[str, Array], actual: Array
    ) -> Array | None:
        """Return A's reals for a value of B, in B's layout; None if A does not show it.

        If several layouts are possible, the nearest on the first sample is taken.
        """
        twin = self.twins[name]
        real = reals_a.get(twin.name)
        if real is None:
            return None

        change = change_of(self.b.changes, name)

        def as_b(perm: tuple[int, ...]) -> Array:
            moved = real.transpose(perm)
            return moved if change is None else change.done(moved).astype(np.float32)

        if len(twin.perms) > 1:
            errors = []
            for perm in twin.perms:
                difference = np.nan_to_num(as_b(perm) - actual)
                errors.append(float(np.square(difference).sum()))
            # Once for all samples, since a layout does not depend on the input.
            nearest = twin.perms[int(np.argmin(errors))]
            twin = Twin(twin.name, (nearest,))
            self.twins[name] = twin
        return np.ascontiguousarray(as_b(twin.perms[0]))

    def _record(self, v: Value) -> ValueRecord:
        """Return the record of a value, a new one if it has none."""
        if v.name in self.records:
            return self.records[v.name]
        axis = -1 if self.b.channels_last or v.type.rank < 3 else 1
        twin = self.twins[v.name]
        record = ValueRecord(
            index=0,
            value=v,
            op=None,
            part="",
            twin=twin,
            channels=ChannelSums(axis, self._expected_samples, limits(v.type)),
            other=self.producers_a.get(twin.name),
            type=self.types_a.get(twin.name),
        )
        producer = self.producers_b.get(v.name)
        if producer is not None:
            record.op = producer.op
            record.part = producer.part
            # Weights in another order cannot be compared one by one.
            if self._is_reordered(producer.op):
                record.other = None
        self.records[v.name] = record
        return record

    def _is_reordered(self, op: Op) -> bool:
        """Return whether channels around an op are in another order than A's."""
        for value in (*op.inputs, *op.outputs):
            if value.const is not None:
                continue
            # Either side may have been reordered.
            for side in (self.a, self.b):
                change = change_of(side.changes, value.name)
                if change is not None and change.order is not None:
                    return True
        return False

    def _force(
        self,
        sample: Sample,
        expected: Mapping[str, Array | None],
        arrays_b: Mapping[str, Array],
        exact: bool,
    ) -> None:
        """Run B with A's values, rounded as B stores them, as the inputs of each layer.

        What differs then is the layer's own error.
        """
        check = exact and self.b.same_code and self.b.complete
        inputs: dict[str, Array] = {}

        def see(v: Value, array: Array) -> Array | None:
            if check:
                self._check(v.name, inputs, array)
            real_a = expected.get(v.name)
            if real_a is None:
                inputs[v.name] = array.copy() if check else array
                return None

            record = self._record(v)
            real_b = reals(array, v.type)
            record.own.add(real_a, real_b)
            record.channels.add(real_a, real_b)
            record.inherited.add(real_b, reals(arrays_b[v.name], v.type))
            quantized_a = rounded(real_a, v.type)
            record.channels.hold(real_a, reals(quantized_a, v.type))
            if check:
                inputs[v.name] = quantized_a
            return quantized_a

        self.b.force(sample, see)

    def _check_all(self, arrays: Mapping[str, Array]) -> None:
        """Compare the layers of a free run with the references of their ops."""

        for name in self.producers_b:
            if name in arrays:
                self._check(name, arrays, arrays[name])

    def _check(self, name: str, arrays: Mapping[str, Array], actual: Array) -> None:
        """Compare a result with the reference of its op, if its inputs are known."""
        producer = self.producers_b.get(name)
        if producer is None or name not in self.twins:
            return
        op = producer.op
        inputs = [v for v in op.inputs if v.const is None]
        if any(v.name not in arrays for v in inputs):
            return
        reference = run_op(op, {v: arrays[v.name] for v in inputs})
        self._record(op.output).law.add([op], reference[0], actual)

    def _compare_outputs(
        self,
        reals_a: Mapping[str, Array],
        expected: Mapping[str, Array | None],
        outputs_b: Mapping[str, Array],
    ) -> None:
        """Compare the outputs, the classes they choose and the results of the task."""
        pairs = dict[str, tuple[Array, Array]]()
        for v in self.b.outputs:
            array_b = outputs_b[v.name]
            real_a = expected.get(v.name)
            if real_a is None:
                real_a = reals_a.get(self.output_names.get(v.name, ""))
            if real_a is None or real_a.size != array_b.size:
                continue

            pair = (real_a.reshape(array_b.shape), reals(array_b, v.type))
            pairs[v.name] = pair
            self.outputs.setdefault(v.name, Tally()).add(*pair)
            self.images.setdefault(v.name, pair)
            self._compare_top(v, *pair)
        if self._task is not None:
            self._task.add(pairs)

    def _compare_top(self, output: Value, a: Array, b: Array) -> None:
        """Record a sample whose largest element differs, if the output is one row."""
        t = output.type
        is_row = t.rank > 0 and t.size == t.shape[-1] > 1
        if not is_row:
            return
        changed = self.tops.setdefault(output.name, [])
        top_a = int(a.reshape(-1).argmax())
        top_b = int(b.reshape(-1).argmax())
        if top_a != top_b:
            changed.append((self.samples, top_a, top_b))

    def measured(self) -> Measured:
        """Return the result over all samples, values in the order of their ops."""
        order = {name: i for i, name in enumerate(values_of(self.b))}
        positions = {id(placed.op): i for i, placed in enumerate(ops_of(self.b))}

        records = list(self.records.values())
        for record in records:
            record.index = -1
            if record.op is not None:
                record.index = positions[id(record.op)]
        records.sort(key=lambda record: (record.index, order[record.value.name]))
        return Measured(
            seen=records,
            only_a=self.only_a,
            only_b=self.only_b,
            outputs=self.outputs,
            tops={name: tuple(changed) for name, changed in self.tops.items()},
            images=self.images,
            samples=self.samples,
            task=self._task.means() if self._task is not None else {},
        )


def _match(
    a: Side, b: Side, values_a: Mapping[str, Value], values_b: Mapping[str, Value]
) -> dict[str, Twin]:
    """Return the twins in A of B's values."""
    counts = {}
    for name in values_b:
        count = _twin_channels(b, name)
        if count is not None:
            counts[name] = count
    relaid = a.channels_last is not b.channels_last

    matches = twins(values_b, values_a, relaid, counts)

    # Inputs without a twin by name are matched by their position.
    for input_b, input_a in zip(b.inputs, a.inputs, strict=False):
        if input_b.type.shape == input_a.type.shape:
            same_layout = tuple(range(input_b.type.rank))
            matches.setdefault(input_b.name, Twin(input_a.name, (same_layout,)))
    return matches


def _twin_channels(side: Side, name: str) -> int | None:
    """Return the channels of the original of a value that has only some of them.

    It is None for all other values.
    """
    change = change_of(side.changes, name)
    return None if change is None else change.count


def _output_names(a: Side, b: Side, matches: Mapping[str, Twin]) -> dict[str, str]:
    """Return A's name of each output of B.

    Outputs are matched by name, or by position if there are as many in both.
    """
    outputs_a = {v.name for v in a.outputs}

    names = {}
    for v in b.outputs:
        if v.name in matches and matches[v.name].name in outputs_a:
            names[v.name] = matches[v.name].name
    if len(names) == len(b.outputs) or len(a.outputs) != len(b.outputs):
        return names

    by_position = {}
    for output_b, output_a in zip(b.outputs, a.outputs, strict=True):
        if output_b.type.size == output_a.type.size:
            by_position[output_b.name] = output_a.name
    return by_position
