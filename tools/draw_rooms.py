"""Draws docs/rooms.svg: the rooms of the product, and which may import which.

A room stands above all that it imports; an arrow that follows from others is left out
(transitive reduction, Aho, Garey and Ullman 1972). The rooms that nearly every other
imports (errors, steps, version) are left out too.

    python tools/draw_rooms.py
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.house.test_arrows import TABLE  # noqa: E402

FILE = ROOT / "docs" / "rooms.svg"
SUBJECTS = {
    "edgec.cli": "the command line",
    "edgec": "the Python API",
    "edgec.verbs": "what verbs do",
    "edgec.compiler": "a compile, stage by stage",
    "edgec.report": "texts and pages",
    "edgec.benching": "latency reports",
    "edgec.comparing": "diff of two runs",
    "edgec.evaluation": "labelled pictures",
    "edgec.emit": "C and TFLite files",
    "edgec.toolchain": "compilers",
    "edgec.quantize": "float to int8",
    "edgec.schedule": "kernels for a core",
    "edgec_partitioner": "CPU or Edge TPU",
    "edgec.passes": "rewrites of graphs",
    "edgec.frontends": "model files",
    "edgec.analysis": "facts about graphs",
    "edgec.ops": "the operations",
    "edgec.ir": "graphs",
    "edgec_devices": "links, flash, boards",
    "edgec_runtime": "on the device",
}
"""The rooms of the picture, each with its subject."""
BOX_WIDTH = 168
BOX_HEIGHT = 44
GAP_X = 18
GAP_Y = 46
"""Sizes in pixels."""


def reach(room: str, imports: Mapping[str, set[str]]) -> set[str]:
    """Return the rooms that a room imports, directly or not."""
    reached: set[str] = set()
    waiting = [room]
    while waiting:
        for other in imports[waiting.pop()]:
            if other not in reached:
                reached.add(other)
                waiting.append(other)
    return reached


def floors(imports: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the floor of each room: one above the highest that it imports."""
    floor: dict[str, int] = {}
    while len(floor) < len(imports):
        for room, others in imports.items():
            if room not in floor and all(other in floor for other in others):
                below = [floor[other] for other in others]
                floor[room] = 1 + max(below, default=-1)
    return floor


def reduced(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports without those that follow from others."""
    arrows: dict[str, set[str]] = {}
    for room, others in imports.items():
        indirect: set[str] = set()
        for other in others:
            indirect |= reach(other, imports)
        arrows[room] = others - indirect
    return arrows


def picture(imports: Mapping[str, set[str]]) -> str:
    """Return the SVG."""
    floor = floors(imports)
    top = max(floor.values())
    rows = [[r for r in SUBJECTS if floor[r] == i] for i in range(top, -1, -1)]
    width = max(map(len, rows)) * (BOX_WIDTH + GAP_X) + GAP_X
    height = len(rows) * (BOX_HEIGHT + GAP_Y)

    corner: dict[str, tuple[float, float]] = {}
    for i, row in enumerate(rows):
        row_width = len(row) * (BOX_WIDTH + GAP_X) - GAP_X
        for j, room in enumerate(row):
            x = (width - row_width) / 2 + j * (BOX_WIDTH + GAP_X)
            corner[room] = (x, i * (BOX_HEIGHT + GAP_Y) + GAP_Y / 2)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for room, others in reduced(imports).items():
        for other in sorted(others):
            (x1, y1), (x2, y2) = corner[room], corner[other]
            start = f"{x1 + BOX_WIDTH / 2:.0f},{y1 + BOX_HEIGHT:.0f}"
            end = f"{x2 + BOX_WIDTH / 2:.0f},{y2:.0f}"
            bend = (y2 - y1 - BOX_HEIGHT) / 2
            control1 = f"{x1 + BOX_WIDTH / 2:.0f},{y1 + BOX_HEIGHT + bend:.0f}"
            control2 = f"{x2 + BOX_WIDTH / 2:.0f},{y2 - bend:.0f}"
            lines.append(
                f'<path d="M{start} C{control1} {control2} {end}" fill="none" '
                'stroke="#8a94a6"/>'
            )
    for room, (x, y) in corner.items():
        lines += [
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" '
            'rx="6" fill="#eef3fb" stroke="#3d5a80"/>',
            f'<text x="{x + BOX_WIDTH / 2:.0f}" y="{y + 18:.0f}" text-anchor="middle" '
            f'font-weight="bold">{room}</text>',
            f'<text x="{x + BOX_WIDTH / 2:.0f}" y="{y + 34:.0f}" text-anchor="middle" '
            f'fill="#44506a">{SUBJECTS[room]}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def rooms() -> dict[str, set[str]]:
    """Return the rooms of the picture with those among them that they may import."""
    return {room: (TABLE[room] & SUBJECTS.keys()) - {room} for room in SUBJECTS}


if __name__ == "__main__":
    FILE.write_text(picture(rooms()))
