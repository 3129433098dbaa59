"""The unit of a tile that computes."""

from __future__ import annotations

import math

import numpy as np

from edgec.edgetpu_file.fields import bits_float
from edgec.edgetpu_file.programs import NARROW_BYTES, WIDE_BYTES, WIDE_UNIT
from edgec.edgetpu_file.simulator.chip import (
    COUNTERS,
    ROW,
    Array,
    Chip,
    NotUnderstoodError,
    Work,
)
from edgec.edgetpu_file.simulator.understood import arithmetic_of
from edgec.edgetpu_file.simulator.walks import (
    LARGEST,
    Walk,
    needs_at,
    waits_of,
    within,
)
from edgec.edgetpu_file.stream import Instruction

_LEVELS = 8
_WORD = 4
_SUM_END = 1 << 31
_LARGEST = 1 << 14
"""Steps that are computed at a time."""


def compute(chip: Chip, tile: int, i: Instruction) -> Work:
    """Multiply and add, scale, clamp and round; write the outputs to narrow memory."""
    operation = Operation(i)
    sums = np.zeros((operation.outputs, operation.channels), np.int64)
    done = np.zeros(operation.outputs, np.int64)
    written = 0
    for begin, end in operation.parts():
        needs = operation.needs(begin)
        if needs:
            yield chip.reached(tile, needs)
        operation.add(chip, tile, slice(begin, end), sums)
        np.add.at(done, operation.output[begin:end], 1)
        ready = written
        while ready < operation.outputs and done[ready] == operation.per_output:
            ready += 1
        operation.write(chip, tile, slice(written, ready), sums[written:ready])
        written = ready
        for counter, size in operation.counts:
            chip.count(tile, counter, end // size - begin // size)


class Operation:
    """A computing instruction, taken apart.

    Attributes:
        steps: how many there are
        output: the output of each step, a group of up to 64 channels [steps]
        outputs: how many outputs there are
        per_output: steps of each
        channels: channels of an output
        counts: counters that the instruction counts, and after how many steps each
    """

    def __init__(self, i: Instruction) -> None:
        """Read the fields."""
        self._i = i
        counts = tuple(i.value(f"loop{k}") + 1 for k in range(_LEVELS))
        self._loops = Walk(0, counts, (0,) * _LEVELS)
        self.steps = math.prod(counts)
        if self.steps > LARGEST:
            raise NotUnderstoodError(i, f"it has {self.steps} steps")
        self._does = arithmetic_of(i)
        self._out_bytes = 2 if i.value("out_halves") else 1
        self._read_walks(i)
        self._waits = waits_of(i, ("wait0", "wait1", "wait2"))
        self._read_outputs(i)
        self.counts = [("AVDATA", self._loops.within(i.value("count_level")))]
        if self._rows.entry:
            self.counts.append(("PARAMETERS", self._rows.within(self._rows.ring_level)))
        self._scaling = next(
            (w for w in self._waits if w.counter == COUNTERS["WIDE_TO_SCALING"]), None
        )
        if self._scaling is not None:
            self.counts.append(
                ("PARTIAL_SUMS", self._loops.within(self._scaling.level))
            )

    def _read_walks(self, i: Instruction) -> None:
        ring = (i.value("in.ring") // 2, i.value("in.ring_level"))
        self._in = Walk.read(i, "in", _LEVELS, ring)
        entry = ROW // WIDE_UNIT * i.value("parameters.ring_rows")
        ring = (entry, i.value("parameters.ring_level"))
        self._rows = Walk.read(i, "parameters", _LEVELS, ring)
        steps = math.prod(self._in.counts) if self._does.input_bytes else self.steps
        if not steps == math.prod(self._rows.counts) == self.steps:
            raise NotUnderstoodError(i, f"its walks have other than {self.steps} steps")
        size = self._does.numbers * self._does.input_bytes
        self._in_addresses = within(i, "in", self._in.addresses(), size, NARROW_BYTES)
        rows = self._rows.addresses()
        # Whole rows are read, also where a row is addressed by the byte of its columns.
        end = WIDE_BYTES // WIDE_UNIT
        self._row_addresses = within(i, "parameters", rows, 1, end)
        size = self._does.numbers * self._does.parameter_bytes
        if (self._row_addresses % _WORD + size > _WORD).any():
            raise NotUnderstoodError(i, "it reads parameters from two columns")

    def _read_outputs(self, i: Instruction) -> None:
        mask = i.value("sum_over") | self._does.packs
        counts = self._loops.counts
        index = np.zeros(1, np.int64)
        for k in range(_LEVELS - 1, -1, -1):
            if mask >> k & 1:
                index = np.repeat(index, counts[k])
            else:
                index = (index[:, None] * counts[k] + np.arange(counts[k])).reshape(-1)
        self.output = index
        self.per_output = math.prod(c for k, c in enumerate(counts) if mask >> k & 1)
        self.outputs = self.steps // self.per_output
        self.channels = i.value("channels") + 1
        if self.channels % _WORD or i.value("last_channels") != i.value("channels"):
            raise NotUnderstoodError(i, f"it has outputs of {self.channels} channels")
        out = Walk.read(i, "out", _LEVELS, (0, 0))
        words = math.prod(out.counts)
        if words * _WORD != self.outputs * self.channels * self._out_bytes:
            raise NotUnderstoodError(i, f"it writes {words} words")
        places = within(i, "out", out.addresses(), _WORD, NARROW_BYTES)
        self._words = places.reshape(self.outputs, -1)
        self._kept = out.kept().reshape(self.outputs, -1)

    def parts(self) -> list[tuple[int, int]]:
        """Return the steps between which it waits, as begins and ends.

        What it counts meanwhile no other unit sees before it waits again.
        """
        sizes = {self._loops.within(w.level) for w in self._waits} | {_LARGEST}
        borders = sorted({k for n in sizes for k in range(0, self.steps, n)})
        return [*zip(borders, [*borders[1:], self.steps], strict=True)]

    def needs(self, step: int) -> list[tuple[int, int]]:
        """Return the counters, and what they must have reached before a step."""
        return needs_at(self._waits, self._loops, step)

    def add(self, chip: Chip, tile: int, part: slice, sums: Array) -> None:
        """Add the products of some steps to the sums [outputs, channels]."""
        w = self._numbers(chip, tile, part)
        output = self.output[part]
        if self._does.most:
            np.maximum.at(sums, output, w[:, :, 0])
            return
        if not self._does.input_bytes:
            np.add.at(sums, output, w.sum(2))
            return
        size = np.arange(self._does.numbers * self._does.input_bytes)
        at = self._in_addresses[part, None] + size
        x = chip.narrow[tile, at].view(f"u{self._does.input_bytes}").astype(w.dtype)
        products = np.einsum("sk,sck->sc", x - self._i.value("in_zero"), w)
        np.add.at(sums, output, products)

    def _numbers(self, chip: Chip, tile: int, part: slice) -> Array:
        """Return the parameters of some steps [steps, channels, numbers of a step]."""
        size = self._does.parameter_bytes
        rows = self._row_addresses[part]
        lanes = np.arange(self._does.numbers * size)
        columns = _WORD * np.arange(self.channels)[:, None] + lanes
        place = rows // _WORD * ROW + rows % _WORD
        stored = chip.wide[tile, place[:, None, None] + columns].view(f"u{size}")
        # Products of 16 bits do not fit 32.
        kind = np.int64 if self._does.input_bytes > 1 else np.int32
        w: Array = stored.astype(kind)
        w -= self._zeros(chip, tile, part)
        return w

    def _zeros(self, chip: Chip, tile: int, part: slice) -> Array:
        """Return the zero points of the weights of some steps [steps or 1, channels, 1]."""
        i = self._i
        if not i.value("zeros"):
            return np.array([[[i.value("weight_zero")]]], np.int32)
        row = i.value("zeros.first") * WIDE_UNIT
        within(i, "zeros.first", np.array([row]), ROW, WIDE_BYTES)
        if self.outputs and self._groups() > 1:
            raise NotUnderstoodError(i, "several groups of outputs have zero points")
        data = chip.wide[tile, row : row + _WORD * self.channels]
        return data.view(np.int32)[None, :, None]

    def _groups(self) -> int:
        """Return how many groups of biases, multipliers and zero points there are."""
        if self._scaling is not None:
            return self._loops.iterations(self._scaling.level)
        return self._rows.iterations(self._rows.ring_level) if self._rows.entry else 1

    def write(self, chip: Chip, tile: int, outputs: slice, sums: Array) -> None:
        """Scale, clamp and round sums [outputs, channels]; write them."""
        if not len(sums):
            return
        i = self._i
        scale, least, most = (
            np.float32(bits_float(i.value(name)))
            for name in ("multiplier", "least", "most")
        )
        scales: Array = np.array(scale)
        if self._does.keeps_sums:
            self._keep(chip, tile, sums)
        total = sums + i.value("offset")
        if i.value("biases") or i.value("multipliers"):
            stored = chip.scaling[tile, self._entry(outputs), : _WORD * self.channels]
            if i.value("biases"):
                total = total + np.ascontiguousarray(stored).view(np.int32)
            else:
                scales = np.ascontiguousarray(stored).view(np.float32) * scale
        if np.abs(total).max() >= _SUM_END:
            raise NotUnderstoodError(i, "a sum does not fit 32 bits")
        with np.errstate(over="ignore", invalid="ignore"):
            real = (total.astype(np.float32) * scales).astype(np.float32)
        real = np.clip(real, least, most)
        if i.value("curve"):
            real = chip.curves[tile].of(i, real)
        bounded = np.rint(real) + i.value("out_zero")
        # A "not a number" is not in the range either.
        if not ((bounded >= 0) & (bounded < 1 << 8 * self._out_bytes)).all():
            raise NotUnderstoodError(
                i, f"a result does not fit {self._out_bytes} bytes"
            )
        data = bounded.astype(f"u{self._out_bytes}").view(np.uint8)
        values = data.reshape(len(sums), -1, _WORD)
        kept = self._kept[outputs]
        at = self._words[outputs][kept]
        chip.narrow[tile, at[:, None] + np.arange(_WORD)] = values[kept]

    def _keep(self, chip: Chip, tile: int, sums: Array) -> None:
        """Write the sums of the only output to a row of wide memory."""
        i = self._i
        walk = Walk.read(i, "sums", _LEVELS, (0, 0))
        if self.outputs > 1 or math.prod(walk.counts) > 1:
            raise NotUnderstoodError(i, "it keeps the sums of several outputs")
        (at,) = within(i, "sums", walk.addresses() * WIDE_UNIT, ROW, WIDE_BYTES)
        data = sums.astype(np.int32).reshape(-1).view(np.uint8)
        chip.wide[tile, at : at + len(data)] = data

    def _entry(self, outputs: slice) -> Array:
        """Return the entries of the store of biases that outputs have [outputs]."""
        if self._scaling is None:
            why = "it has biases or multipliers, and does not wait for them"
            raise NotUnderstoodError(self._i, why)
        size = self._loops.within(self._scaling.level)
        # Biases are those of the step that ends an output.
        first = np.zeros(self.outputs, np.int64)
        first[self.output] = np.arange(self.steps) // size % 2
        chosen: Array = first[outputs]
        return chosen
