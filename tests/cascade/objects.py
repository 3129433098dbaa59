"""Objects that networks with weights set by hand find: a red and a green disc, joined by
nothing. Both networks measure where the colours are, so that every answer is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime import CascadeResult, Session
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, save

import edgec
from tests import builds

Array = NDArray[np.uint8]
DETECTOR = 96
"""Sides of the detector's input."""
POINTS = 64
"""Sides of the other network's input."""
_WINDOW = 32
_STEP = 8


@dataclass(frozen=True)
class Thing:
    """An object: x and y of its middle, its angle, and the distance of its discs."""

    x: float
    y: float
    angle: float = 0.0
    length: float = 20.0

    @property
    def points(self) -> NDArray[np.float64]:
        """The middles of the red and the green disc, [2, 2]."""
        half = (
            0.5 * self.length * np.array([math.cos(self.angle), math.sin(self.angle)])
        )
        middle = np.array([self.x, self.y])
        return np.stack([middle - half, middle + half])


def scene(*things: Thing, width: int = 192, height: int = 144) -> Array:
    """Return a frame with objects on dark blue, uint8 [height, width, 3]."""
    frame = np.zeros((height, width, 3), np.float64)
    frame[..., 2] = 60
    y, x = np.mgrid[:height, :width] + 0.5
    for thing in things:
        radius = thing.length / 4
        for channel, (cx, cy) in enumerate(thing.points):
            cover = np.clip(radius + 0.5 - np.hypot(x - cx, y - cy), 0, 1)
            frame *= 1 - cover[..., None]
            frame[..., channel] += 255 * cover
    return np.asarray(frame + 0.5, np.uint8)


CASCADE = """
objects = {objects}
every = {every}

[[networks]]
name = "thing"
model = "detector.onnx"
task = "detector.json"

[[networks]]
name = "discs"
model = "points.onnx"
task = "points.json"
after = "thing"

[networks.crop]
turn = [0, 1]
scale = 1.5

[networks.again]
points = [0, 1]
turn = [0, 1]
turned = true
scale = 3

[[networks]]
name = "mirror"
like = "discs"
after = "discs"

[networks.crop]
points = [0, 1]
circle = true
turn = [1, 0]
angle = 90
scale = 1.3
mirrored = true
"""
"""A cascade of both networks; the third one sees the same object otherwise."""

DETECTOR_TASK = """{"task": "detection", "boxes": "v_boxes", "scores": "v_scores",
 "transposed": true, "units": "pixels", "points": 2, "iou": 0.2, "labels": ["thing"],
 "preprocess": "0_1,letterbox=0"}"""
POINTS_TASK = """{"task": "landmarks", "output": "v_points", "score": "v_score",
 "preprocess": "0_1,letterbox=0"}"""


def write(folder: Path, objects: int = 2, every: int = 10) -> Path:
    """Write the networks and the cascade; return cascade.toml."""
    _detector(folder / "detector.onnx")
    _points(folder / "points.onnx")
    (folder / "detector.json").write_text(DETECTOR_TASK)
    (folder / "points.json").write_text(POINTS_TASK)
    path = folder / "cascade.toml"
    path.write_text(CASCADE.format(objects=objects, every=every))
    return path


def bundle(objects: int = 2, every: int = 10, target: str = "host") -> Path:
    """The cascade as a bundle, compiled once a run for two threads."""

    def make(folder: Path) -> None:
        file = write(folder, objects, every)
        edgec.compile(file, target, folder / "x.edgec", threads=2, allow_float=True)

    return builds.once(f"cascade {objects} {every} {target}", make) / "x.edgec"


def seen(session: Session, frame: Any) -> CascadeResult:
    """Return the objects of the next frame of a cascade's session."""
    result = session.result(frame)
    assert isinstance(result, CascadeResult)
    return result


def found(result: CascadeResult, network: str) -> dict[int, NDArray[np.float32]]:
    """Return the points that a network found, by the number of the object."""
    return {
        one.identity: one.results[network].points  # type: ignore[attr-defined]
        for one in result.objects
        if network in one.results
    }


class _Graph:
    """Nodes of a network; each method adds one and returns its output's name."""

    def __init__(self) -> None:
        self.nodes: list[object] = []
        self.constants: list[object] = []

    def add(self, kind: str, *inputs: str, out: str = "", **attributes: object) -> str:
        name = out or f"v{len(self.nodes)}"
        node = helper.make_node(kind, list(inputs), [name], name=name, **attributes)
        self.nodes.append(node)
        return name

    def constant(self, value: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        array: NDArray[np.generic] = np.asarray(value, dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def channel(self, x: str, i: int) -> str:
        """Return channel i of a tensor [1, C, H, W]."""
        bounds = (self.constant([n], np.int64) for n in (i, i + 1, 1))
        return self.add("Slice", x, *bounds)

    def sums(self, side: int) -> str:
        """Return how red and how green pixels are, alone and times x and y."""
        # How much redder than green, and greener than red, in one convolution.
        weights = [[[[1.0]], [[-1.0]], [[0.0]]], [[[-1.0]], [[1.0]], [[0.0]]]]
        conv = self.add("Conv", "frame", self.constant(weights), out="colours")
        more = self.add("Relu", conv, out="more")
        y, x = np.mgrid[:side, :side] + 0.5
        parts: list[str] = []
        for i in (0, 1):
            mass = self.channel(more, i)
            parts.append(mass)
            for place in (x, y):
                parts.append(self.add("Mul", mass, self.constant(place[None, None])))
        return self.add("Concat", *parts, axis=1)

    def middles(self, means: str) -> tuple[list[str], str]:
        """Return x and y of both colours, and the mass of the rarer one."""
        places: list[str] = []
        masses: list[str] = []
        for first in (0, 3):
            mass = self.channel(means, first)
            some = self.add("Add", mass, self.constant(1e-6))
            masses.append(mass)
            for i in (1, 2):
                places.append(self.add("Div", self.channel(means, first + i), some))
        return places, self.add("Min", *masses)

    def certainty(self, mass: str, least: float, out: str = "") -> str:
        above = self.add("Sub", mass, self.constant(least))
        steep = self.add("Mul", above, self.constant(2000.0))
        return self.add("Sigmoid", steep, out=out)

    def save(self, path: Path, side: int, outputs: dict[str, tuple[int, ...]]) -> None:
        def info(name: str, shape: tuple[int, ...]) -> object:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [info("frame", (1, 3, side, side))],
            [info(name, shape) for name, shape in outputs.items()],
            self.constants,
        )
        opset = helper.make_opsetid("", 17)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
        save(model, path)


def _points(path: Path) -> None:
    """A network [1, 3, 64, 64] → points [1, 4], score [1, 1]."""
    g = _Graph()
    means = g.add("GlobalAveragePool", g.sums(POINTS))
    places, mass = g.middles(means)
    joined = g.add("Concat", *places, axis=1)
    shape = g.constant([1, 4], np.int64)
    g.add("Reshape", joined, shape, out="v_points")
    sure = g.certainty(mass, 0.01)
    g.add("Reshape", sure, g.constant([1, 1], np.int64), out="v_score")
    g.save(path, POINTS, {"v_points": (1, 4), "v_score": (1, 1)})


def _detector(path: Path) -> None:
    """A network [1, 3, 96, 96] → boxes [1, 8, 169], scores [1, 1, 169].

    Each of 13 x 13 windows measures what it sees; the one in whose middle an object
    lies is the surest.
    """
    g = _Graph()
    pad = _WINDOW // 2
    means = g.add(
        "AveragePool",
        g.sums(DETECTOR),
        kernel_shape=[_WINDOW, _WINDOW],
        strides=[_STEP, _STEP],
        pads=[pad] * 4,
        count_include_pad=1,
    )
    (rx, ry, gx, gy), mass = g.middles(means)
    half = g.constant(0.5)
    x = g.add("Mul", g.add("Add", rx, gx), half)
    y = g.add("Mul", g.add("Add", ry, gy), half)
    dx = g.add("Sub", gx, rx)
    dy = g.add("Sub", gy, ry)
    squares = g.add("Add", g.add("Mul", dx, dx), g.add("Mul", dy, dy))
    side = g.add("Mul", g.add("Sqrt", squares), g.constant(2.0))

    cells = DETECTOR // _STEP + 1
    cy, cx = np.mgrid[:cells, :cells] * float(_STEP)
    ox = g.add("Sub", x, g.constant(cx[None, None]))
    oy = g.add("Sub", y, g.constant(cy[None, None]))
    off = g.add("Add", g.add("Mul", ox, ox), g.add("Mul", oy, oy))
    near = g.add("Exp", g.add("Mul", off, g.constant(-0.005)))
    sure = g.add("Mul", g.certainty(mass, 0.003), near)

    columns = g.add("Concat", x, y, side, side, rx, ry, gx, gy, axis=1)
    count = cells * cells
    g.add("Reshape", columns, g.constant([1, 8, count], np.int64), out="v_boxes")
    g.add("Reshape", sure, g.constant([1, 1, count], np.int64), out="v_scores")
    g.save(path, DETECTOR, {"v_boxes": (1, 8, count), "v_scores": (1, 1, count)})
