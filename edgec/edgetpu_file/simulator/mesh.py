"""The units of a tile that copy words to its neighbours in the grid of 4 x 4 tiles."""

from __future__ import annotations

import numpy as np

from edgec.edgetpu_file.programs import NARROW_BYTES
from edgec.edgetpu_file.simulator.chip import (
    Array,
    Chip,
    Condition,
    NotUnderstoodError,
    Work,
)
from edgec.edgetpu_file.simulator.walks import Walk, needs_at, waits_of, within
from edgec.edgetpu_file.stream import Instruction

_SIDE = 4
_LEVELS = 4
_WORD = 4
_STEPS = {
    "mesh_south": (1, 0, "SOUTH", "NORTH"),
    "mesh_north": (-1, 0, "NORTH", "SOUTH"),
    "mesh_west": (0, -1, "WEST", "EAST"),
    "mesh_east": (0, 1, "EAST", "WEST"),
}
"""Rows and columns to the receiver; the sides on which a tile sends and receives."""
_WAITS = tuple(f"wait{record}" for record in range(5))


def mesh(chip: Chip, tile: int, i: Instruction) -> Work:
    """Send words to a neighbour and receive some from the opposite one, or a constant."""
    halves = list[Work]()
    if _used(i, "from"):
        halves.append(_send(chip, tile, i))
    if _used(i, "to"):
        halves.append(_receive(chip, tile, i))
    waiting: list[Condition | None] = [None] * len(halves)
    while halves:
        moved = False
        for k in range(len(halves) - 1, -1, -1):
            condition = waiting[k]
            if condition is not None and not condition():
                continue
            moved = True
            waiting[k] = next(halves[k], None)
            if waiting[k] is None:
                del halves[k], waiting[k]
        if not moved:
            conditions = tuple(c for c in waiting if c is not None)
            yield lambda conditions=conditions: any(c() for c in conditions)  # type: ignore[misc]


def _used(i: Instruction, half: str) -> bool:
    assert i.layout is not None
    names = [f.name for f in i.layout.fields if f.name.startswith(f"{half}.")]
    return any(i.value(name) for name in (half, *names))


def _walk(i: Instruction, half: str) -> tuple[Array, Array, Walk]:
    """Return the bytes of the words of a walk, which of them are used, and the walk."""
    ring = (_WORD * i.value(f"{half}.ring_rows"), i.value(f"{half}.ring_level"))
    walk = Walk.read(i, half, _LEVELS, (0, 0))
    if walk.base % _WORD:
        raise NotUnderstoodError(i, f"{half}={walk.base} is within a word")
    strides = tuple(_WORD * stride for stride in walk.strides)
    placed = Walk(walk.base, walk.counts, strides, *ring)
    addresses = within(i, half, placed.addresses(), _WORD, NARROW_BYTES)
    return addresses, walk.kept(), walk


def _send(chip: Chip, tile: int, i: Instruction) -> Work:
    down, right, side, _ = _STEPS[i.name]
    row, column = tile // _SIDE + down, tile % _SIDE + right
    if not (0 <= row < _SIDE and 0 <= column < _SIDE):
        raise NotUnderstoodError(i, f"tile {tile} has no neighbour there")
    link = chip.links[i.name, row * _SIDE + column]
    addresses, kept, walk = _walk(i, "from")
    waits = waits_of(i, [name for name in _WAITS if not i.value(f"{name}.of_to")])
    counted = walk.within(i.value("from.count_level"))
    for step, address in enumerate(addresses):
        needs = needs_at(waits, walk, step)
        if needs:
            yield chip.reached(tile, needs)
        if kept[step]:
            word = chip.narrow[tile, address : address + _WORD]
            link.append(int(word.view(np.uint32)[0]))
        if i.value("from.counts") and (step + 1) % counted == 0:
            chip.count(tile, f"MESH_{side}_OUT")


def _receive(chip: Chip, tile: int, i: Instruction) -> Work:
    side = _STEPS[i.name][3]
    link = chip.links[i.name, tile]
    addresses, kept, walk = _walk(i, "to")
    waits = waits_of(i, [name for name in _WAITS if i.value(f"{name}.of_to")])
    counted = walk.within(i.value("to.count_level"))
    for step, address in enumerate(addresses):
        needs = needs_at(waits, walk, step)
        if needs:
            yield chip.reached(tile, needs)
        if kept[step]:
            word = i.value("filling")
            if not i.value("fill"):
                yield lambda: bool(link)
                word = link.popleft()
            place = chip.narrow[tile, address : address + _WORD]
            place.view(np.uint32)[0] = word
        if i.value("to.counts") and (step + 1) % counted == 0:
            chip.count(tile, f"MESH_{side}_IN")
