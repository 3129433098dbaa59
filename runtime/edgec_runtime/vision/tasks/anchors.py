"""Anchors: where a detector's boxes are counted from."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

import numpy as np

from ...bundle.arrays import read_array
from ...errors import InputError
from ...rows import said
from .base import Array, Size

MAX_BOXES = 1 << 20
"""Rows of an output, and anchors."""


@dataclass(frozen=True)
class Anchors:
    """Where boxes are counted from: x and y of a centre, width and height, each 0…1 of
    the input.
    """

    file: Optional[str] = said("a file with float32 [N,4]; instead of the rest", None)
    strides: Tuple[int, ...] = said(
        "pixels of the input from cell to cell, for each grid in turn",
        (),
        low=1,
        high=4096,
    )
    sizes: Tuple[Tuple[Tuple[float, ...], ...], ...] = said(
        "for each grid the [width, height] in pixels of a cell's anchors; default: "
        "one of the cell's size",
        (),
        low=0,
        high=65536,
    )
    offset: float = said(
        "where in its cell a centre is: 0.5 the middle, 0 its top left",
        0.5,
        low=0,
        high=1,
    )

    def made(self, image: Size, files: Mapping[str, bytes]) -> Array:
        """float32 [N,4].  Raises InputError for a file or sizes that cannot be."""
        if self.file is not None:
            return _read(files[self.file], self.file)
        if not self.strides or len(self.sizes) not in (0, len(self.strides)):
            raise InputError(
                "anchors want a file, or strides and as many sizes",
                "anchors",
                "see docs/tasks.md",
            )
        grids = []
        for i, stride in enumerate(self.strides):
            sizes = self.sizes[i] if self.sizes else ((stride, stride),)
            if not sizes or any(len(size) != 2 for size in sizes):
                raise InputError(
                    f"anchors of stride {stride} have no [width, height]",
                    "anchors.sizes",
                )
            columns = -(-image[0] // stride)
            rows = -(-image[1] // stride)
            y, x = np.meshgrid(
                np.arange(rows) + self.offset,
                np.arange(columns) + self.offset,
                indexing="ij",
            )
            centres = np.stack(
                [x * stride / image[0], y * stride / image[1]], -1
            ).reshape(-1, 1, 2)
            own = np.array(sizes, np.float64) / np.array(image)
            pairs = [
                np.broadcast_to(a, (len(centres), len(own), 2)) for a in (centres, own)
            ]
            grids.append(np.concatenate(pairs, -1).reshape(-1, 4))
        return np.concatenate(grids).astype(np.float32)


def _read(data: bytes, name: str) -> Array:
    try:
        array = read_array(io.BytesIO(data))
    except ValueError as e:
        raise InputError(
            f"the anchors cannot be read: {e}", at=name, hint="compile the model again"
        ) from e
    if (
        array.ndim != 2
        or array.shape[1] != 4
        or array.dtype != np.float32
        or len(array) > MAX_BOXES
    ):
        what = f"anchors are float32 [N,4], not {array.dtype} {list(array.shape)}"
        raise InputError(
            what,
            at=name,
            hint="x and y of a centre, width and height, each 0…1 of the input",
        )
    if not np.isfinite(array).all():
        raise InputError("the anchors have numbers that are not finite", at=name)
    return np.asarray(array)
