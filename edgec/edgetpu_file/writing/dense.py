"""Programs for chains of fully connected layers.

As edgetpu_compiler 16 does it, see docs/edgetpu-chip.md: the input's bytes go to the
tiles in pieces of 64; each tile sends its piece to all that compute, which then have the
whole input in narrow memory; each computes up to 64 outputs. In a chain the outputs of a
layer are the pieces of the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgec_runtime.edgetpu_file.executable import AddressOf

from edgec.edgetpu_file.programs import TILES, WIDE_BYTES, WIDE_UNIT
from edgec.edgetpu_file.reuse.packing import GROUP, up
from edgec.edgetpu_file.simulator.chip import COUNTERS, ROW
from edgec.edgetpu_file.writing.layers import DenseLayer
from edgec.edgetpu_file.writing.scalar import (
    TILE_COUNTERS,
    begin,
    begin_output,
    end,
    end_output,
    fence,
    send_input,
    send_parameters,
    take_output,
    want_input,
    want_output,
    want_parameters,
)
from edgec.edgetpu_file.writing.words import Values, Words, flags, loops

PIECE = 64
"""Bytes of an input that a tile gets."""
MOST = PIECE * TILES
"""Inputs and outputs of the largest layer."""
_UNITS_IN_ROW = ROW // WIDE_UNIT
_END = WIDE_BYTES // WIDE_UNIT
_RECEIVED, _TO_SEND = _END - 8, _END - 24
"""Rings of two rows in wide memory, in units of 64 bytes."""
LARGEST_ROWS = _TO_SEND // _UNITS_IN_ROW
_GROUP_OF_TILES = 4
"""Tiles that get the same packet of an input, of which each takes its piece."""
_UNIT = 8
_WORD = 4
_RESERVED = 512
"""Bytes between the space of an input and its pieces: what edgetpu_compiler leaves."""


def caching_program(layers: Sequence[DenseLayer]) -> Words:
    """Return the program that puts the parameters into the tiles, once."""
    words = Words()
    begin(words, caching=True)
    want_parameters(words, sum(len(layer.parameters) for layer in layers))
    row = 0
    for layer in layers:
        for tile in range(layer.tiles):
            _receive_parameters(words, layer, tile, row)
        row += layer.rows
    first = 0
    for layer in layers:
        units = len(layer.parameters) // layer.tiles // WIDE_UNIT
        for tile in range(layer.tiles):
            send_parameters(words, first, units, tile, layer.lanes)
            first += units
    end(words, caching=True)
    return words


def _receive_parameters(words: Words, layer: DenseLayer, tile: int, row: int) -> None:
    values = loops("to", [layer.steps], [1], 4)
    values |= {
        "tiles": 1 << tile,
        # The lowest bits are 2 in all programs that cache parameters.
        "to": _UNITS_IN_ROW * (row + layer.heads) + 2,
        "to.moving": int(layer.steps > 1),
    }
    if layer.heads:
        last = row + layer.heads - 1
        values |= {"ahead": 1, "ahead.first": row, "ahead.last": last}
        if layer.heads == 1:
            values["ahead.ring"] = 1
        else:
            values |= {"ahead.rows_more": layer.heads - 1, "?319": 1}
    words.add("receive_a", values)


def executing_program(layers: Sequence[DenseLayer]) -> Words:
    """Return the program of one inference."""
    words = Words()
    begin(words, caching=False)
    words.address(AddressOf.SCRATCH, 3, upper=False)
    words.address(AddressOf.SCRATCH, 2, upper=True)
    size = up(layers[0].inputs, _UNIT)
    pieces, *outs = _places(layers)
    _scatter(words, size, pieces)

    row = sends = 0
    for k, (layer, out) in enumerate(zip(layers, outs, strict=True)):
        parts = _parts(size if k == 0 else layer.inputs)
        _gather(words, parts, pieces, (1 << layer.tiles) - 1, sends)
        sends += len(parts)
        _compute(words, layer, row, out)
        row += layer.rows
        pieces = out
    _output(words, layers[-1], pieces, sends)
    return words


def narrow_bytes(layers: Sequence[DenseLayer]) -> int:
    """Return the narrow memory that a chain uses in each tile."""
    return max(_places(layers)) + PIECE


def _places(layers: Sequence[DenseLayer]) -> list[int]:
    """Return where the pieces of the input stand, and of each layer's output.

    The inputs of each layer stand at 0, before its outputs.
    """
    places = [up(layers[0].inputs, ROW) + _RESERVED]
    for k, layer in enumerate(layers):
        following = layers[k + 1].inputs if k + 1 < len(layers) else 0
        places.append(up(max(layer.inputs, following), _WORD))
    return places


def _parts(size: int) -> list[int]:
    """Return the bytes of each piece."""
    return [min(PIECE, size - at) for at in range(0, size, PIECE)]


def _scatter(words: Words, size: int, pieces: int) -> None:
    """Send the input to the tiles, and a piece of it to narrow memory of each."""
    want_input(words, size)
    packets = -(-size // ROW)
    slot = _END - 8 * packets
    parts = _parts(size)
    masks = dict[tuple[int, int], int]()
    for tile, part in enumerate(parts):
        key = tile % _GROUP_OF_TILES, part
        masks[key] = masks.get(key, 0) | 1 << tile
    for (place, part), tiles in masks.items():
        words.add("wide_to_narrow", _take_piece(place, part, tiles, slot, pieces))
    for first in range(0, len(parts), _GROUP_OF_TILES):
        count = min(_GROUP_OF_TILES, len(parts) - first)
        tiles = ((1 << count) - 1) << first
        values = _receive(packets, -ROW // _WORD * packets)
        values |= {"tiles": tiles, "to": slot, "to.moving": int(packets > 1)}
        words.add("receive_a", values)
        begin_unit = PIECE * first // _UNIT
        units = sum(parts[first : first + count]) // _UNIT
        send_input(words, begin_unit, units, tiles)
    fence(words)
    fence(words, TILE_COUNTERS)
    fence(words, signal=True)


def _take_piece(place: int, part: int, tiles: int, slot: int, pieces: int) -> Values:
    """Return the copy of a piece out of a packet, of which it is the place-th."""
    count = -(-part // _WORD)
    at = pieces // _WORD
    values = loops("wide", [], [1], 4) | loops("narrow", [count], [1], 6)
    values |= flags(698) | {"counts": 1}
    values |= {
        "tiles": tiles,
        "wide": slot,
        "narrow": at,
        "narrow.moving": 1,
        "narrow.ring_level": 1,
        "narrow.ring": 2 * ROW // _WORD,
        **_wait("wait0", "RING_READ_A", 1, 1),
        **_wait("wait1", "AVDATA", 1, -1),
    }
    # A walk of one row goes from it to the next, not back.
    values |= {f"wide.step{level}": 0 for level in (1, 2, 3)}
    if not place:
        return values | flags(870)
    skipped = place * PIECE // _WORD - 1
    values |= {"skip": 1, "skip_base": at, "skip_more": skipped}
    values |= {"skip_end": at + skipped}
    return values | flags(543, 871)


def _wait(name: str, counter: str, level: int, value: int, step: int = 1) -> Values:
    return {
        f"{name}.counter": COUNTERS[counter],
        f"{name}.level": level,
        f"{name}.value": value,
        f"{name}.step": step,
        f"{name}.on": 1,
    }


def _receive(rows: int, value: int) -> Values:
    """Return a receipt of packets into a ring."""
    words_in_entry = ROW // _WORD * rows
    return {
        "to.step0": 1,
        "to.ring_level": 1,
        "to.ring_rows": rows,
        "?335": 3,
        **_wait("wait", "WIDE_TO_NARROW", 1, value, words_in_entry),
        "?379": 1,
    }


def _gather(
    words: Words, parts: Sequence[int], pieces: int, tiles: int, sends: int
) -> None:
    """Have each tile with a piece send it to all that compute, one after the other."""
    read = 0
    for tile, part in enumerate(parts):
        count = -(-part // _WORD)
        values = loops("wide", [], [1], 4) | loops("narrow", [count], [1], 6)
        values |= {f"wide.step{level}": 0 for level in (1, 2, 3)}
        values |= flags(870) | {"counts": 1}
        values |= {
            "tiles": tiles,
            "wide": _RECEIVED,
            "wide.ring_level": 1,
            "wide.ring_rows": 1,
            "narrow": read,
            "narrow.moving": int(count > 1),
            **_wait("wait0", "RING_READ_A", 1, tile + 1),
        }
        words.add("wide_to_narrow", values)
        value = read - ROW // _WORD
        words.add("receive_a", _receive(1, value) | {"tiles": tiles, "to": _RECEIVED})
        _send(words, tile, _TO_SEND, sends + tile, {"to_tiles": tiles})
        _to_ring(words, 1 << tile, pieces, count, _TO_SEND)
        read += count
    fence(words, signal=True)
    fence(words, TILE_COUNTERS)
    words.add("scalar_fence", {"units": 0xC})
    fence(words, TILE_COUNTERS)


def _send(words: Words, tile: int, source: int, order: int, to: Values) -> None:
    """Send a row, when `order` rows have been sent before."""
    words.add(
        "send",
        {
            "tiles": 1 << tile,
            "from": source,
            "from.step0": 1,
            "from.moving": 1,
            "from.ring_level": 1,
            "from.ring_rows": 1,
            "?335": 3,
            "?337": 0x14,
            **_wait("wait0", "RING_PRODUCER_A", 2, order),
            **_wait("wait1", "NARROW_TO_WIDE", 1, 1),
            **to,
        },
    )


def _to_ring(words: Words, tiles: int, at: int, count: int, wide: int) -> None:
    """Copy so many words of narrow memory to the row that is sent."""
    values = loops("narrow", [count], [1], 6) | flags(588)
    values |= {"counts": 1, "count_level": 1}
    values |= {
        "tiles": tiles,
        "narrow": at // _WORD,
        "narrow.moving": int(count > 1),
        "wide": wide,
        "wide.step0": 1,
        "wide.ring_level": 1,
        "wide.ring_rows": 1,
        **_wait("wait0", "RING_WRITE", 1, -1),
        "row_levels": 1,
    }
    words.add("narrow_to_wide", values)


def _compute(words: Words, layer: DenseLayer, row: int, out: int) -> None:
    """Compute a layer whose parameters begin at a row of wide memory."""
    tiles = (1 << layer.tiles) - 1
    if layer.heads:
        values = loops("wide", [], [1], 4) | loops("narrow", [32, 1], [1, 64], 6)
        values |= {f"wide.step{level}": 0 for level in (1, 2, 3)}
        values |= flags(656, 870) | {"counts": 1, "count_level": 2}
        values |= {
            "tiles": tiles,
            "wide": _UNITS_IN_ROW * row,
            "wide.moving": 1,
            "narrow.moving": 3,
            "narrow.ring_level": 2,
            "narrow.ring": 64,
            **_wait("wait0", "AVDATA", 2, -1),
            "scaling": 1,
        }
        words.add("wide_to_narrow", values)
    for channels, mask in _by_channels(layer).items():
        words.add("compute", _operation(layer, row, out, channels) | {"tiles": mask})
    fence(words, TILE_COUNTERS)
    fence(words, TILE_COUNTERS, signal=True)


def _by_channels(layer: DenseLayer) -> dict[int, int]:
    """Return the tiles that have so many channels, a bit each."""
    masks = dict[int, int]()
    for tile in range(layer.tiles):
        channels = layer.channels(tile)
        masks[channels] = masks.get(channels, 0) | 1 << tile
    return masks


def _operation(layer: DenseLayer, row: int, out: int, channels: int) -> Values:
    """Return the fields of the instruction that computes."""
    steps, width = layer.steps, channels // _WORD
    whole, part = _WORD * steps, _WORD * width
    first = row + layer.heads
    values = loops("in", [steps, 1, 1], [_WORD, whole, whole], 8)
    values |= loops("out", [width, 1, 1], [_WORD, part, part], 8)
    values |= loops("parameters", [steps], [_UNITS_IN_ROW], 8)
    values |= {
        "loop0": steps - 1,
        "in.moving": 0x7,
        "out": out,
        "out.moving": 0x7,
        "parameters": _UNITS_IN_ROW * first,
        "parameters.moving": 0x1,
        "sums.more0": steps - 1,
        "?1563": 0x65,
        "?1843": 0x7,
        "count_level": 1,
        "weight_zero": layer.weight_zero,
        "in_zero": layer.in_zero,
        "out_zero": layer.out_zero,
        "sum_over": 0x1,
        "channels": channels - 1,
        "last_channels": channels - 1,
        "multiplier": layer.multiplier,
        "most": layer.clamps.most,
        "least": layer.clamps.least,
    }
    if layer.heads:
        values |= _wait("wait0", "WIDE_TO_SCALING", 1, 1)
    if layer.biases:
        values["biases"] = 1
    elif layer.heads:
        zeros = _UNITS_IN_ROW * (row + 1)
        values |= {"multipliers": 1, "zeros": 1, "weight_zero": 0, "?1898": 1}
        values |= {"zeros.first": zeros, "zeros.last": zeros}
    return values


def _output(words: Words, layer: DenseLayer, at: int, sends: int) -> None:
    """Send the outputs to the host."""
    begin_output(words)
    for channels, tiles in _by_channels(layer).items():
        _to_ring(words, tiles, at, channels // _WORD, _RECEIVED)
    sizes = [
        up(min(GROUP, layer.outputs - first), _UNIT)
        for first in range(0, layer.outputs, GROUP)
    ]
    want_output(words, sum(sizes))
    for tile, size in enumerate(sizes):
        take_output(words, size // _UNIT)
        _send(words, tile, _RECEIVED, sends + tile, {"to_scalar_core": 1})
    end_output(words, sends + len(sizes))
    end(words, caching=False)
