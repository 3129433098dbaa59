"""The kinds of instructions of the Edge TPU and what their bits mean.

Positions and meanings: docs/isa/*.md in FrederikRogalski/tinycoral, which compared
thousands of programs of edgetpu_compiler and ran some on a chip; the scalar words are
those of geohot/edgetpuxray. docs/edgetpu-chip.md says which statements hold in the files
that were seen here, and which bits stay without a meaning.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgec.edgetpu_file.fields import WORD, Field, Kind, Layout, unknowns

_SIGNED, _MASK, _FLOAT = Kind.SIGNED, Kind.MASK, Kind.FLOAT

TILE_COUNTERS = (
    *("AVDATA", "PARAMETERS", "PARTIAL_SUMS"),
    *("MESH_NORTH_IN", "MESH_EAST_IN", "MESH_SOUTH_IN", "MESH_WEST_IN"),
    *("MESH_NORTH_OUT", "MESH_EAST_OUT", "MESH_SOUTH_OUT", "MESH_WEST_OUT"),
    *("WIDE_TO_NARROW", "WIDE_TO_SCALING", "NARROW_TO_WIDE"),
    *("RING_READ_A", "RING_READ_B", "RING_WRITE", "RING_PRODUCER_A", "RING_PRODUCER_B"),
)
"""The counters of a tile by which its units wait for each other, by their bits."""

_TILES = Field("tiles", 12, 16, _MASK)


def _order(width: int = 14) -> tuple[Field, Field]:
    """Return the tiles of a tile's instruction, and its number among all of these."""
    return _TILES, Field("number", 46, width)


def _loops(
    name: str, start: int, step: int, count: int, levels: int, pitch: int = 0
) -> Iterator[Field]:
    """Yield the loops of a walk through memory, the innermost first.

    Args:
        name: of the walk
        start: bit of the first step
        step, count: widths
        levels: number of loops
        pitch: bits from one loop to the next
    """
    pitch = pitch or step + count
    for level in range(levels):
        at = start + pitch * level
        yield Field(f"{name}.step{level}", at, step, _SIGNED)
        # One less than the number of iterations.
        yield Field(f"{name}.more{level}", at + step, count)


def _wait(name: str, start: int, level: int) -> Iterator[Field]:
    """Yield what a unit waits for: a counter of the tile.

    Iteration k of the loop `level` and those above it begins when the counter has reached
    value + k * step.

    Args:
        name: of the record
        start: bit of the counter
        level: width of the number of the loop
    """
    yield Field(f"{name}.counter", start, 5)
    yield Field(f"{name}.level", start + 5, level)
    yield Field(f"{name}.value", start + 5 + level, 16, _SIGNED)
    yield Field(f"{name}.step", start + 21 + level, 16)
    yield Field(f"{name}.on", start + 37 + level, 1)


def _operation() -> Iterator[Field]:
    """Yield the fields of the 17-word instructions that compute."""
    yield from _order(16)
    for level in range(8):
        yield Field(f"loop{level}", 62 + 14 * level, 14)
    for walk, at in (("in", 505), ("out", 888), ("parameters", 1203), ("sums", 1506)):
        # The loops whose step is not 0, and the one whose iterations are the entries of a
        # ring.
        yield Field(f"{walk}.moving", at, 8, _MASK)
        yield Field(f"{walk}.ring_level", at + 8, 2)
    # In bytes, both entries together.
    yield Field("in.ring", 515, 18)
    # Steps in narrow memory are in bytes, steps in wide memory in 64 bytes.
    yield Field("in", 191, 18)
    yield from _loops("in", 209, 19, 18, 8)
    yield Field("out", 574, 18)
    yield from _loops("out", 592, 19, 18, 8)
    yield Field("out.last_more", 918, 18)
    yield Field("out.last_skip", 941, 16)
    yield Field("parameters", 957, 14)
    yield from _loops("parameters", 971, 15, 14, 8)
    yield Field("parameters.ring_rows", 1216, 13)
    yield Field("sums", 1260, 14)
    yield from _loops("sums", 1274, 15, 14, 8)
    yield Field("sums.ring_rows", 1519, 13)
    yield from unknowns((1563, 9), (1843, 5))
    # AVDATA counts the iterations of this loop and those above it.
    yield Field("count_level", 1923, 3)
    for record in range(3):
        yield from _wait(f"wait{record}", 1578 + 41 * record, 3)
    # Whether an input is one byte that is multiplied by single bytes of a row.
    yield Field("bytewise", 1850, 3, _MASK)
    yield Field("zeros", 1853, 1)
    yield Field("zeros.last", 1884, 14)
    yield from unknowns((1898, 1))
    yield Field("zeros.first", 1908, 14)
    yield Field("weight_zero", 1854, 8)
    yield Field("in_zero", 1870, 8)
    yield Field("sum_over", 1926, 8, _MASK)
    yield Field("last_channels", 1934, 6)
    yield Field("channels", 1940, 6)
    # Whether the loaded curve is applied; whether to 1 to 4 alone, into which a positive
    # input is brought by a power of 4; whether outputs have 16 bits.
    yield Field("curve", 1946, 1)
    yield Field("powers", 1947, 1)
    yield Field("out_halves", 1948, 1)
    yield Field("multiplier", 1949, 32, _FLOAT)
    yield Field("most", 1981, 32, _FLOAT)
    yield Field("least", 2013, 32, _FLOAT)
    yield Field("offset", 2045, 32, _SIGNED)
    yield Field("out_zero", 2077, 8)
    yield Field("biases", 2093, 1)
    yield Field("multipliers", 2094, 1)


def _curve() -> Iterator[Field]:
    """Yield the fields of the load of a curve of eight polynomials."""
    yield from _order(16)
    for k in range(40):
        yield Field(f"piece{k // 5}.x{k % 5}", 62 + 32 * k, 32, _FLOAT)
    for k in range(7):
        yield Field(f"border{k}", 62 + 32 * (40 + k), 32, _FLOAT)
    yield from unknowns((1566, 32), (1598, 32), (1630, 32))


def _walk(name: str, start: int) -> Iterator[Field]:
    """Yield an address and four loops of a unit that moves data between tiles."""
    yield Field(name, start, 18)
    yield from _loops(name, start + 18, 17, 16, 4)
    yield from _moves(name, start + 150, 4)
    # The last iteration of the loop last_level has fewer iterations of the innermost one.
    yield Field(f"{name}.last_more", start + 173, 16)
    yield Field(f"{name}.last_level", start + 189, 2)
    yield Field(f"{name}.last_skip", start + 191, 14, _SIGNED)


def _moves(name: str, start: int, levels: int) -> Iterator[Field]:
    """Yield which loops of a walk have a step, and the ring in wide memory that it is in.

    A ring has two entries; the loop `ring_level` goes from one to the other.
    """
    yield Field(f"{name}.moving", start, levels, _MASK)
    yield Field(f"{name}.ring_level", start + levels, 2)
    yield Field(f"{name}.ring_rows", start + levels + 2, 11)


def _send() -> Iterator[Field]:
    yield from _order()
    yield from _walk("from", 60)
    yield from unknowns((335, 2), (337, 6))
    for record in range(3):
        at = 343 + 41 * record
        yield from _wait(f"wait{record}", at, 2)
        yield from unknowns((at + 40, 1))
    yield Field("to_receive_b", 466, 1)
    yield Field("to_tiles", 467, 16, _MASK)
    yield Field("to_scalar_core", 483, 1)


def _receive() -> Iterator[Field]:
    yield from _order()
    yield from _walk("to", 60)
    # Rows of biases, multipliers or zero points that come before those of the walk.
    yield Field("ahead", 267, 1)
    yield Field("ahead.level", 268, 2)
    yield Field("ahead.first", 270, 16)
    yield Field("ahead.rows_more", 286, 14)
    yield Field("ahead.last", 302, 16)
    yield Field("ahead.ring", 318, 1)
    yield from unknowns((319, 16), (335, 2), (379, 1))
    yield from _wait("wait", 339, 2)


def _mesh() -> Iterator[Field]:
    yield from _order()
    yield from _walk("from", 60)
    yield from _walk("to", 265)
    # Whether a counter counts what is sent, or received, by the iterations of a loop.
    yield Field("from.counts", 473, 1)
    yield Field("from.count_level", 474, 3)
    yield Field("to.counts", 477, 1)
    yield Field("to.count_level", 478, 2)
    for record in range(5):
        at = 481 + 41 * record
        yield from _wait(f"wait{record}", at, 2)
        # Whether it is what is received, and not what is sent, that waits.
        yield Field(f"wait{record}.of_to", at + 40, 1)
    yield Field("fill", 727, 1)
    yield Field("filling", 728, 32, _MASK)


def _waits_within_tile(at: int) -> Iterator[Field]:
    """Yield the counters that a copy between the memories of a tile waits for."""
    # Whether the unit's counter counts the iterations of a loop of what is written.
    yield Field("counts", at, 1)
    yield Field("count_level", at + 1, 3)
    for record in range(4):
        yield from _wait(f"wait{record}", at + 4 + 42 * record, 3)
        yield from unknowns((at + 45 + 42 * record, 1))


def _narrow_to_wide() -> Iterator[Field]:
    yield from _order()
    # Addresses and steps in narrow memory are in 4 bytes, addresses in wide memory in 64
    # and steps there in 256.
    yield Field("narrow", 62, 16)
    yield from _loops("narrow", 78, 17, 16, 6)
    yield Field("narrow.moving", 276, 6, _MASK)
    yield Field("wide", 335, 14)
    yield from _loops("wide", 353, 17, 16, 4)
    yield from _moves("wide", 485, 4)
    yield from _waits_within_tile(543)
    yield Field("transpose", 799, 1)
    # Whether it is numbers of 16 bits that are transposed.
    yield Field("transpose_halves", 800, 1)
    # A row of wide memory ends when so many of the inner loops have.
    yield Field("row_levels", 801, 3)


def _wide_to_narrow() -> Iterator[Field]:
    yield from _order()
    yield Field("wide", 60, 14)
    yield from _loops("wide", 78, 17, 16, 4)
    yield from _moves("wide", 210, 4)
    yield Field("wide.last_more", 233, 16)
    yield Field("wide.last_level", 249, 2)
    yield Field("wide.last_skip", 251, 16, _SIGNED)
    yield Field("narrow", 267, 16)
    yield from _loops("narrow", 283, 17, 16, 6)
    yield Field("narrow.moving", 481, 6, _MASK)
    # In steps of 4 bytes, both entries together.
    yield Field("narrow.ring_level", 487, 2)
    yield Field("narrow.ring", 489, 18)
    yield Field("narrow.last_more", 507, 16)
    yield Field("narrow.last_level", 523, 3)
    yield Field("skip", 542, 1)
    yield from unknowns((543, 1), (544, 1), (545, 1))
    yield Field("narrow.last_skip", 526, 16, _SIGNED)
    yield Field("skip_base", 546, 16)
    yield Field("skip_more", 562, 16)
    yield Field("skip_end", 578, 16)
    yield from _waits_within_tile(611)
    # Into the store of biases and multipliers, not to narrow memory.
    yield Field("scaling", 867, 1)
    yield from unknowns((870, 1), (871, 1))


def _scalar() -> Iterator[Field]:
    """Yield the slots of a word of the scalar core; several act at the same time."""
    yield Field("load", 12, 2)
    yield Field("load.to", 14, 5)
    yield Field("load.address", 19, 12, _MASK)
    yield Field("act", 31, 5, _MASK)
    yield Field("act.at", 36, 8)
    yield from unknowns((44, 5), (110, 18))
    yield Field("act.register", 49, 5)
    yield Field("alu", 54, 6, _MASK)
    yield Field("alu.to", 60, 5)
    yield Field("alu.from", 65, 5)
    yield Field("immediate", 70, 32, _MASK)
    yield Field("function", 102, 3)
    yield Field("function.from", 105, 5)


def _tile_fence() -> Iterator[Field]:
    yield _TILES
    yield Field("number", 28, 15)
    yield from unknowns((43, 1))
    yield Field("counters", 44, 19, _MASK)
    yield Field("count", 63, 16)
    yield Field("units", 79, 10, _MASK)
    yield Field("signal", 107, 1)
    yield from unknowns((109, 2))


def _scalar_fence() -> Iterator[Field]:
    yield _TILES
    yield Field("counters", 32, 9, _MASK)
    yield Field("value", 43, 13)
    yield Field("wait_for_signal", 57, 1)
    yield Field("signal_tiles", 73, 16, _MASK)
    for counter in range(9):
        yield Field(f"threshold{counter}", 93 + 16 * counter, 16)
    yield Field("wait", 237, 9, _MASK)
    yield Field("units", 246, 5, _MASK)


def _pop() -> Iterator[Field]:
    yield Field("activations", 12, 1)
    yield from _loops("buffer", 28, 16, 15, 3)
    yield from unknowns((121, 1), (124, 1), (136, 1), (140, 1), (157, 1), (174, 1))
    yield from unknowns((177, 1), (178, 1), (183, 1), (184, 15), (199, 1), (215, 1))
    yield Field("last_more", 142, 14)
    yield Field("last_negative", 159, 14)


def _infeed() -> Iterator[Field]:
    yield Field("activations", 12, 1)
    # From what an outfeed has put into the buffer of parameters.
    yield Field("outfed", 13, 1)
    yield Field("buffer", 14, 20)
    yield from _loops("buffer", 34, 21, 20, 3)
    yield from unknowns((157, 1), (160, 1), (172, 1), (176, 1), (203, 1), (311, 1))
    yield from unknowns((314, 1), (336, 1), (352, 1), (392, 1))
    # Words of 4 bytes that a lane of a packet has.
    yield Field("words_more", 434, 4)
    yield Field("last_more", 183, 14)
    yield Field("last_negative", 205, 14)
    yield Field("wait", 320, 16)
    yield Field("to_tiles", 409, 16, _MASK)
    yield Field("lanes_more", 438, 2)


def _outfeed() -> Iterator[Field]:
    yield Field("scalar_memory", 12, 15)
    yield from _loops("units", 27, 16, 15, 3)
    # 3 for the host, 1 for an infeed, 0 for the scalar core's memory.
    yield Field("to", 173, 2)
    yield from unknowns((120, 16), (175, 8), (183, 15), (198, 24), (222, 7))


_LENGTH = (Field("bits", 19, 32),)
_TABLE = (
    ("compute", 0x01, 17, _operation()),
    ("compute_most", 0x02, 17, _operation()),
    ("compute_sum", 0x03, 17, _operation()),
    ("compute_5", 0x05, 17, _operation()),
    ("send", 0x10, 4, _send()),
    ("receive_a", 0x11, 4, _receive()),
    ("receive_b", 0x12, 4, _receive()),
    ("narrow_to_wide", 0x13, 7, _narrow_to_wide()),
    ("wide_to_narrow", 0x14, 7, _wide_to_narrow()),
    ("mesh_south", 0x15, 6, _mesh()),
    ("mesh_west", 0x16, 6, _mesh()),
    ("mesh_north", 0x17, 6, _mesh()),
    ("mesh_east", 0x18, 6, _mesh()),
    ("curve", 0x19, 13, _curve()),
    ("tile_fence", 0x1A, 1, _tile_fence()),
    ("scalar", 0x20, 1, _scalar()),
    ("halt", 0x21, 1, unknowns((14, 5))),
    ("branch", 0x22, 1, (*unknowns((12, 5)), Field("words", 17, 15, _SIGNED))),
    ("repeat", 0x23, 1, (Field("times", 12, 16), Field("words", 28, 10))),
    ("scalar_fence", 0x24, 2, _scalar_fence()),
    ("pop", 0x25, 2, _pop()),
    ("infeed", 0x26, 4, _infeed()),
    ("outfeed", 0x27, 2, _outfeed()),
    ("start", 0x3E, 1, _LENGTH),
    ("end", 0x3F, 1, _LENGTH),
)

LAYOUTS = {code: Layout.new(name, code, n, f) for name, code, n, f in _TABLE}
"""The layouts by their opcodes."""
BY_NAME = {layout.name: layout for layout in LAYOUTS.values()}
"""The layouts by their mnemonics."""
COMPUTE = frozenset((0x01, 0x02, 0x03, 0x05))
"""Opcodes of instructions that compute."""
CURVE, TILE_FENCE, INFEED, OUTFEED, RECEIVE = 0x19, 0x1A, 0x26, 0x27, 0x11
DATA_BITS = 8 * WORD
