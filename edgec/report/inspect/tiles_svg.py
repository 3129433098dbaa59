"""Draws the memories of the 16 tiles of an Edge TPU, and what a file puts into them."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from edgec.edgetpu_file.programs import (
    NARROW_BYTES,
    TILES,
    WIDE_BYTES,
    Piece,
    tiles_of,
)
from edgec.inspecting.compiled_facts import InspectedPackage
from edgec.report.markup import html, joined
from edgec.report.wording import size

COLUMNS = 4
"""Tiles in a row of the chip."""
BAR = 220.0
"""Width of a memory, px."""
HIGH = 22
"""Height of a memory, px."""
TILE = (BAR + 24, 96)
"""Width and height of a tile with its margin, px."""


def tiles_picture(package: InspectedPackage) -> Markup:
    """Return an `<svg>` element with a box for each tile, its wide memory above its
    narrow one."""
    width, height = COLUMNS * TILE[0], TILES // COLUMNS * TILE[1]
    return html(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="memory of the 16 tiles">{}</svg>',
        width,
        height,
        joined(_tile(package, tile) for tile in range(TILES)),
    )


def _tile(package: InspectedPackage, tile: int) -> Markup:
    x = tile % COLUMNS * TILE[0] + 8
    y = tile // COLUMNS * TILE[1] + 8
    pieces = [p for p in package.pieces if tile in tiles_of(p.tiles)]
    parameters = sum(piece.memory for piece in pieces)
    narrow = max(program.narrow for program in package.programs)
    shapes = [
        html(
            '<text x="{}" y="{}">tile {}: {}</text>', x, y + 11, tile, size(parameters)
        ),
        _bar(x, y + 18),
        *(_piece(piece, x, y + 18) for piece in pieces),
        *_buffers(package, x, y + 18),
        _bar(x, y + 48),
        _part(
            x, y + 48, (0, narrow, NARROW_BYTES), "io", f"{size(narrow)} activations"
        ),
    ]
    return html("<g>{}</g>", joined(shapes))


def _piece(piece: Piece, x: float, y: float) -> Markup:
    about = (
        f"{size(piece.size)} of parameters from byte {piece.offset}, at byte "
        f"{piece.start} of the wide memory"
    )
    return _part(x, y, (piece.start, piece.memory, WIDE_BYTES), "edgetpu", about)


def _buffers(package: InspectedPackage, x: float, y: float) -> Iterator[Markup]:
    for program in package.programs:
        if program.buffers is not None and program.tiles:
            place = (program.buffers, WIDE_BYTES - program.buffers, WIDE_BYTES)
            yield _part(x, y, place, "cpu", f"buffers from byte {program.buffers}")


def _bar(x: float, y: float) -> Markup:
    return html(
        '<rect class="all" x="{}" y="{}" width="{}" height="{}"/>', x, y, BAR, HIGH
    )


def _part(
    x: float, y: float, place: tuple[int, int, int], kind: str, about: str
) -> Markup:
    """Return a part of a memory; place: its first byte, its size, the memory's size."""
    start, length, whole = place
    return html(
        '<rect class="{}" x="{:.2f}" y="{}" width="{:.2f}" height="{}">'
        "<title>{}</title></rect>",
        kind,
        x + BAR * min(1.0, start / whole),
        y,
        BAR * min(1.0, length / whole),
        HIGH,
        about,
    )
