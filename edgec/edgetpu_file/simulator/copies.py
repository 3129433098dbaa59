"""The units of a tile that copy: between its memories, and to and from the ring."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgec.edgetpu_file.programs import (
    NARROW_BYTES,
    TILES,
    WIDE_BYTES,
    WIDE_UNIT,
    tiles_of,
)
from edgec.edgetpu_file.simulator.chip import (
    ROW,
    Array,
    Chip,
    NotUnderstoodError,
    Work,
)
from edgec.edgetpu_file.simulator.walks import Walk, needs_at, waits_of, within
from edgec.edgetpu_file.stream import Instruction

_UNITS_IN_ROW = ROW // WIDE_UNIT
_WORD = 4
"""Bytes of a word of narrow memory."""
_WORDS_IN_ROW = ROW // _WORD
_TILE_WAITS = tuple(f"wait{record}" for record in range(4))
_SCALING_STEPS = 32
"""Steps in which the biases or multipliers of 64 outputs are loaded."""


def rows_of(i: Instruction, name: str) -> Walk:
    """Return a walk through rows of wide memory; addresses stay in units of 64 bytes.

    The lowest two bits of an address are flags in the programs that cache parameters.
    """
    ring = (i.value(f"{name}.ring_rows"), i.value(f"{name}.ring_level"))
    walk = Walk.read(i, name, 4, ring)
    if walk.base % _UNITS_IN_ROW not in (0, 2):
        raise NotUnderstoodError(i, f"{name}={walk.base} is within a row")
    return walk


def row_addresses(i: Instruction, walk: Walk) -> Array:
    """Return the first byte of each row of a walk of an instruction."""
    rows = Walk(
        walk.base // _UNITS_IN_ROW,
        walk.counts,
        walk.strides,
        walk.entry,
        walk.ring_level,
    )
    return within(i, "a row", rows.addresses() * ROW, ROW, WIDE_BYTES)


def receive(chip: Chip, tile: int, i: Instruction) -> Work:
    """Write packets that come on the ring to rows of wide memory."""
    walk = rows_of(i, "to")
    addresses, kept = row_addresses(i, walk), walk.kept()
    entry = walk.within(walk.ring_level)
    waits = waits_of(i, ("wait",))
    packets = chip.packets[tile, i.name]
    counter = "RING_READ_A" if i.name == "receive_a" else "RING_READ_B"

    ahead = _ahead(i, walk)
    for step, address in enumerate(addresses):
        needs = needs_at(waits, walk, step)
        if needs:
            yield chip.reached(tile, needs)
        for row in ahead.get(step, ()):
            yield lambda: bool(packets)
            _write(chip, tile, row, packets.popleft())
        if kept[step]:
            yield lambda: bool(packets)
            _write(chip, tile, address, packets.popleft())
        if (step + 1) % entry == 0:
            chip.count(tile, counter)


def _ahead(i: Instruction, walk: Walk) -> dict[int, list[int]]:
    """Return the rows that are received before a step of the walk."""
    if not i.value("ahead"):
        return {}
    first, last = i.value("ahead.first"), i.value("ahead.last")
    within(i, "ahead", ROW * np.array([first, last]), ROW, WIDE_BYTES)
    level = i.value("ahead.level")
    if level == 0:
        each = i.value("ahead.rows_more") + 1
        if last - first + 1 != each or walk.iterations(1) != 1:
            raise NotUnderstoodError(i, "its rows ahead are in several parts")
        return {0: [ROW * (first + k) for k in range(each)]}
    if i.value("ahead.rows_more") or not 0 <= last - first <= 1:
        raise NotUnderstoodError(i, "its rows ahead are not a ring of two rows")
    steps = walk.within(level)
    return {
        steps * k: [ROW * (last if k % 2 else first)]
        for k in range(walk.iterations(level))
    }


def _write(chip: Chip, tile: int, address: int, data: bytes) -> None:
    chip.wide[tile, address : address + len(data)] = np.frombuffer(data, np.uint8)


def send(chip: Chip, tile: int, i: Instruction) -> Work:
    """Send rows of wide memory on the ring, as packets."""
    walk = rows_of(i, "from")
    addresses, kept = row_addresses(i, walk), walk.kept()
    entry = walk.within(walk.ring_level)
    waits = waits_of(i, ("wait0", "wait1", "wait2"))
    to_b = i.value("to_receive_b")
    unit = "receive_b" if to_b else "receive_a"
    queues = [chip.packets[to, unit] for to in tiles_of(i.value("to_tiles"))]
    if i.value("to_scalar_core"):
        queues.append(chip.packets_to_scalar_core)

    for step, address in enumerate(addresses):
        needs = needs_at(waits, walk, step)
        if needs:
            yield chip.reached(tile, needs)
        if kept[step]:
            data = chip.wide[tile, address : address + ROW].tobytes()
            for queue in queues:
                queue.append(data)
            # The scalar core counts the packets to the one unit, and the instructions
            # that send to the other.
            chip.sends[1] += to_b
        if (step + 1) % entry == 0:
            chip.count(tile, "RING_WRITE")
    to_a = i.value("to_scalar_core") or not to_b
    chip.sends[0] += to_a
    for other in range(TILES):
        chip.count(other, "RING_PRODUCER_A", to_a)
        chip.count(other, "RING_PRODUCER_B", to_b)


def narrow_to_wide(chip: Chip, tile: int, i: Instruction) -> Work:
    """Copy words of narrow memory to rows of wide memory."""
    walk = rows_of(i, "wide")
    rows = row_addresses(i, walk)
    narrow = Walk.read(i, "narrow", 6, (0, 0))
    words = _words(i, narrow)
    pieces = list(_pieces(words, narrow.within(i.value("row_levels"))))
    # Rows of a single word have one place each.
    positions = narrow.counts[0] if i.value("row_levels") else 1
    size = 2 if i.value("transpose_halves") else 1
    if i.value("transpose") and (
        positions * size > _WORD or any(len(piece) % positions for piece in pieces)
    ):
        raise NotUnderstoodError(i, f"it transposes {positions} places")
    if len(rows) != len(pieces):
        why = f"{len(pieces)} rows are copied to {len(rows)} places"
        raise NotUnderstoodError(i, why)
    entry = walk.within(i.value("count_level"))
    waits = waits_of(i, _TILE_WAITS)
    for step, (address, piece) in enumerate(zip(rows, pieces, strict=True)):
        needs = needs_at(waits, walk, step)
        if needs:
            yield chip.reached(tile, needs)
        data = chip.narrow[tile, piece[:, None] * _WORD + np.arange(_WORD)]
        if i.value("transpose"):
            # Places after each other become the bytes, or halves, of a column.
            data = data.reshape(-1, positions, _WORD // size, size)
            data = data.transpose(0, 2, 1, 3).reshape(-1, positions * size)
            at = _WORD * np.arange(len(data))[:, None] + np.arange(positions * size)
            chip.wide[tile, address + at] = data
        else:
            _write(chip, tile, address, data.tobytes())
        if i.value("counts") and (step + 1) % entry == 0:
            chip.count(tile, "NARROW_TO_WIDE")


def _words(i: Instruction, narrow: Walk) -> Array:
    """Return the numbers of the words of a walk through narrow memory."""
    return within(i, "narrow", narrow.addresses(), 1, NARROW_BYTES // _WORD)


def _pieces(words: Array, whole: int) -> Iterator[Array]:
    """Yield the words that each row gets: it ends when it is full, or `whole` words are."""
    for part in words.reshape(-1, whole):
        for start in range(0, whole, _WORDS_IN_ROW):
            yield part[start : start + _WORDS_IN_ROW]


def wide_to_narrow(chip: Chip, tile: int, i: Instruction) -> Work:
    """Copy rows of wide memory to words of narrow memory, or to the store of biases."""
    walk = rows_of(i, "wide")
    rows = row_addresses(i, walk)[walk.kept()]
    row_waits = waits_of(i, ("wait0",))
    if i.value("scaling"):
        return _to_scaling(chip, tile, i, rows)
    ring = i.value("narrow.ring") // 2
    level = i.value("narrow.ring_level")
    narrow = Walk.read(i, "narrow", 6, (ring if level else 0, level))
    words = _words(i, narrow)
    kept = narrow.kept()
    narrow_waits = waits_of(i, ("wait1",))
    skipped = i.value("skip_more") + 1 if i.value("skip") else 0

    def work() -> Work:
        row = -1
        position = skipped
        for step, word in enumerate(words):
            needs = needs_at(narrow_waits, narrow, step)
            if needs:
                yield chip.reached(tile, needs)
            if not kept[step]:
                continue
            while row < position // _WORDS_IN_ROW:
                row += 1
                if row >= len(rows):
                    raise NotUnderstoodError(
                        i, "it copies more words than its rows have"
                    )
                needs = needs_at(row_waits, walk, row)
                if needs:
                    yield chip.reached(tile, needs)
            at = rows[row] + position % _WORDS_IN_ROW * _WORD
            chip.narrow[tile, word * _WORD : (word + 1) * _WORD] = chip.wide[
                tile, at : at + _WORD
            ]
            position += 1
            chip.count(tile, "WIDE_TO_NARROW")

    return work()


def _to_scaling(chip: Chip, tile: int, i: Instruction, rows: Array) -> Work:
    """Load the biases or multipliers of the next 64 outputs."""
    narrow = Walk.read(i, "narrow", 6, (0, 0))
    waits = waits_of(i, ("wait0",))
    steps = narrow.counts[0]
    if steps > _SCALING_STEPS or narrow.iterations(1) != len(rows):
        raise NotUnderstoodError(
            i, "it loads more than 64 biases or multipliers of a row"
        )
    size = ROW * steps // _SCALING_STEPS
    for k, at in enumerate(rows):
        needs = needs_at(waits, narrow, steps * k)
        if needs:
            yield chip.reached(tile, needs)
        chip.scaling[tile, k % 2, :size] = chip.wide[tile, at : at + size]
        chip.count(tile, "WIDE_TO_SCALING")
