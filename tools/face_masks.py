"""Draws the masks that come with edgec into runtime/edgec_runtime/face/masks: glasses,
whiskers with ears, and paint; each with the points that pin it to a face.

They are drawn upon the layout, so that the points are where the layout has them.

    python tools/face_masks.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from edgec_runtime.face.landmarks import face_layout
from edgec_runtime.face.point_file import NAMES
from PIL import Image, ImageDraw

FOLDER = Path(__file__).parents[1] / "runtime" / "edgec_runtime" / "face" / "masks"
SIDE = 512
"""Width and height of a mask."""
UNIT = 190
"""Pixels for the distance of the eyes."""
MIDDLE = (256, 306)
"""Where the origin of the layout is."""
SAMPLES = 4
"""Samples of a pixel in a row and a column, for smooth edges."""

Color = tuple[int, int, int, int]
Place = tuple[float, float]


class Canvas:
    """A picture on which shapes are drawn in the frame of the layout."""

    def __init__(self) -> None:
        """Begin with a transparent picture."""
        side = SIDE * SAMPLES
        self.picture = Image.new("RGBA", (side, side))
        self.draw = ImageDraw.Draw(self.picture)

    def at(self, place: Place) -> Place:
        """Return a place of the layout on the canvas."""
        x = MIDDLE[0] + place[0] * UNIT
        y = MIDDLE[1] + place[1] * UNIT
        return x * SAMPLES, y * SAMPLES

    def size(self, length: float) -> int:
        """Return a length of the layout on the canvas."""
        return round(length * UNIT * SAMPLES)

    def shape(self, places: Sequence[Place], color: Color) -> None:
        """Draw a filled outline."""
        self.draw.polygon([self.at(p) for p in places], fill=color)

    def line(self, places: Sequence[Place], width: float, color: Color) -> None:
        """Draw a line with round ends."""
        points = [self.at(p) for p in places]
        wide = self.size(width)
        self.draw.line(points, fill=color, width=wide, joint="curve")
        for x, y in points:
            r = wide / 2
            self.draw.ellipse([x - r, y - r, x + r, y + r], fill=color)

    def save(self, name: str) -> None:
        """Write the picture and its points."""
        small = self.picture.resize((SIDE, SIDE), Image.Resampling.BOX)
        pixels = np.asarray(small).reshape(-1, 4)
        palette, indices = np.unique(pixels, axis=0, return_inverse=True)
        # Less than half as long with a palette, and a serial line sends it to a device.
        numbers = indices.reshape(SIDE, SIDE).astype(np.uint8)
        picture = Image.fromarray(numbers, "P")
        picture.putpalette(palette.tobytes(), "RGBA")
        picture.save(FOLDER / f"{name}.png", optimize=True)
        layout = face_layout().points
        rows = []
        for number in NAMES.values():
            x, y = layout[number, :2]
            rows.append(
                [round(MIDDLE[0] + x * UNIT, 1), round(MIDDLE[1] + y * UNIT, 1), number]
            )
        text = json.dumps({"points": rows}, indent=1).replace("\n   ", " ")
        (FOLDER / f"{name}.json").write_text(text.replace("\n  ]", " ]") + "\n")


def ellipse(middle: Place, radii: Place, power: float = 2.0) -> list[Place]:
    """Return a superellipse: |x/a|^p + |y/b|^p = 1."""
    angles = np.linspace(0, 2 * np.pi, 181)
    c, s = np.cos(angles), np.sin(angles)
    x = middle[0] + radii[0] * np.sign(c) * np.abs(c) ** (2 / power)
    y = middle[1] + radii[1] * np.sign(s) * np.abs(s) ** (2 / power)
    return list(zip(x.tolist(), y.tolist(), strict=True))


def curve(a: Place, b: Place, c: Place) -> list[Place]:
    """Return a parabola from a to c that b draws to itself (Bézier)."""
    t = np.linspace(0, 1, 33)[:, None]
    points = (1 - t) ** 2 * np.array(a) + 2 * t * (1 - t) * np.array(b)
    points = points + t**2 * np.array(c)
    return [(float(x), float(y)) for x, y in points]


def eye(side: int) -> Place:
    """Return the middle of an eye; side: -1 left, 1 right."""
    numbers = (33, 133) if side < 0 else (362, 263)
    x, y = face_layout().points[list(numbers), :2].mean(axis=0)
    return float(x), float(y)


def glasses() -> Canvas:
    """Return round glasses with a dark frame."""
    canvas = Canvas()
    frame = (38, 30, 44, 255)
    for side in (-1, 1):
        x, y = eye(side)
        middle = (x, y + 0.02)
        canvas.shape(ellipse(middle, (0.315, 0.265), 2.6), frame)
        # The glass is drawn in place of the frame, not over it.
        canvas.shape(ellipse(middle, (0.272, 0.222), 2.6), (120, 150, 190, 46))
        shine = [(x - 0.12, y + 0.1), (x + 0.02, y - 0.14), (x + 0.07, y - 0.14)]
        canvas.shape([*shine, (x - 0.07, y + 0.1)], (235, 245, 255, 90))
        canvas.line([(x + side * 0.3, y - 0.05), (side * 0.86, y - 0.07)], 0.045, frame)
    y = eye(1)[1]
    canvas.line(curve((-0.09, y), (0, y - 0.07), (0.09, y)), 0.045, frame)
    return canvas


def whiskers() -> Canvas:
    """Return the ears, the nose and the whiskers of a cat."""
    canvas = Canvas()
    fur = (74, 58, 52, 255)
    pink = (228, 150, 158, 255)
    layout = face_layout().points
    nose_x, nose_y = layout[4, :2]
    for side in (-1, 1):
        # Upon the hair: a head ends about 0.9 above the eyes.
        outer = [(side * 0.2, -0.92), (side * 0.6, -1.42), (side * 0.82, -0.66)]
        inner = [(side * 0.35, -0.94), (side * 0.59, -1.26), (side * 0.72, -0.78)]
        canvas.shape(outer, fur)
        canvas.shape(inner, pink)
        for row in (-1, 0, 1):
            begin = (nose_x + side * 0.22, nose_y + 0.13 + row * 0.035)
            bend = (nose_x + side * 0.55, nose_y + 0.07 + row * 0.1)
            end = (nose_x + side * 0.92, nose_y + 0.16 + row * 0.17)
            canvas.line(curve(begin, bend, end), 0.014, (250, 250, 250, 235))
    tip = [(nose_x - 0.11, nose_y - 0.05), (nose_x + 0.11, nose_y - 0.05)]
    canvas.shape([*tip, (nose_x, nose_y + 0.09)], pink)
    canvas.line([(nose_x, nose_y + 0.09), (nose_x, nose_y + 0.2)], 0.014, fur)
    return canvas


def paint() -> Canvas:
    """Return stripes on the cheeks and a sun on the forehead."""
    canvas = Canvas()
    layout = face_layout().points
    for side, number in ((-1, 50), (1, 280)):
        x, y = layout[number, :2]
        for i, color in enumerate(((214, 62, 52), (244, 196, 48), (40, 122, 186))):
            low = y - 0.06 + i * 0.09
            stripe = curve(
                (x - side * 0.13, low + 0.03),
                (x + side * 0.08, low - 0.01),
                (x + side * 0.24, low - 0.1),
            )
            canvas.line(stripe, 0.055, (*color, 175))
    x, y = layout[151, :2]
    for i in range(12):
        angle = np.pi * i / 6
        c, s = float(np.cos(angle)), float(np.sin(angle))
        ray = [(x + 0.085 * c, y + 0.085 * s), (x + 0.14 * c, y + 0.14 * s)]
        canvas.line(ray, 0.022, (244, 160, 40, 190))
    canvas.shape(ellipse((x, y), (0.065, 0.065)), (250, 205, 60, 190))
    return canvas


def main() -> None:
    """Write all masks."""
    FOLDER.mkdir(exist_ok=True)
    for draw in (glasses, whiskers, paint):
        draw().save(draw.__name__)


if __name__ == "__main__":
    main()
