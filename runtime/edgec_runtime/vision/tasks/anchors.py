"""Anchors: the positions and sizes to which a detector's boxes are relative."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import List, Mapping, Optional, Tuple

import numpy as np

from ...bundle.arrays import read_array
from ...errors import InputError
from ...rows import parameter
from .base import Array, Size

MAX_BOXES = 1 << 20
"""Largest number of rows of an output, and of anchors."""


@dataclass(frozen=True)
class Anchors:
    """The parameters of anchors: a file, or a grid of cells for each stride.

    An anchor has x and y of its centre, width and height, each 0…1 of the input. The
    texts of the fields describe them.
    """

    file: Optional[str] = parameter(
        "a file with float32 [N,4]; instead of the rest", None
    )
    strides: Tuple[int, ...] = parameter(
        "pixels of the input from cell to cell, for each grid in turn",
        (),
        low=1,
        high=4096,
    )
    sizes: Tuple[Tuple[Tuple[float, ...], ...], ...] = parameter(
        "for each grid the [width, height] in pixels of a cell's anchors; default: "
        "one of the cell's size",
        (),
        low=0,
        high=65536,
    )
    offset: float = parameter(
        "where in its cell a centre is: 0.5 the middle, 0 its top left",
        0.5,
        low=0,
        high=1,
    )

    def made(self, image: Size, files: Mapping[str, bytes]) -> Array:
        """Return the anchors, float32 [N, 4].

        Args:
            image: width and height of the input
            files: the bundle's files by path

        Raises:
            InputError: the file is damaged, or the parameters do not fit together
        """
        if self.file is not None:
            return _read(files[self.file], self.file)
        if not self.strides or len(self.sizes) not in (0, len(self.strides)):
            raise InputError(
                "anchors need a file, or strides and as many sizes",
                "anchors",
                "see docs/tasks.md",
            )
        grids: List[Array] = []
        for i, stride in enumerate(self.strides):
            sizes = self.sizes[i] if self.sizes else ((stride, stride),)
            if not sizes or any(len(size) != 2 for size in sizes):
                raise InputError(
                    f"anchors of stride {stride} have no [width, height]",
                    "anchors.sizes",
                    "give each stride a list of sizes: [[[10, 13], [16, 30]], …]",
                )
            centres = self._centres(stride, image)

            extents = np.array(sizes, np.float64) / np.array(image)

            # The anchors of a cell are adjacent, as in the network's output.
            shape = (len(centres), len(extents), 2)
            pairs = [
                np.broadcast_to(centres[:, None], shape),
                np.broadcast_to(extents, shape),
            ]
            grids.append(np.concatenate(pairs, -1).reshape(-1, 4))
        return np.concatenate(grids).astype(np.float32)

    def _centres(self, stride: int, image: Size) -> Array:
        """Return the centres of a grid's cells, row by row, [cells, 2]."""
        # A cell at the border may be partly outside the image.
        columns = -(-image[0] // stride)
        rows = -(-image[1] // stride)

        y, x = np.meshgrid(
            np.arange(rows) + self.offset,
            np.arange(columns) + self.offset,
            indexing="ij",
        )

        relative = np.stack([x * stride / image[0], y * stride / image[1]], -1)
        return relative.reshape(-1, 2)


def _read(data: bytes, name: str) -> Array:
    """Return the anchors of a file.

    Args:
        data: its bytes
        name: its path in the bundle
    """
    try:
        array = read_array(io.BytesIO(data))
    except ValueError as e:
        raise InputError(
            f"the anchors cannot be read: {e}", at=name, hint="compile the model again"
        ) from e

    is_table = array.ndim == 2 and array.shape[1] == 4
    if not is_table or array.dtype != np.float32 or len(array) > MAX_BOXES:
        what = f"anchors are float32 [N,4], not {array.dtype} {list(array.shape)}"
        raise InputError(
            what,
            at=name,
            hint="give x and y of each centre, width and height, as parts of the input",
        )

    # An infinite anchor would make every overlap of its box NaN.
    if not np.isfinite(array).all():
        raise InputError(
            "the anchors have numbers that are not finite",
            at=name,
            hint="export them again",
        )
    return np.asarray(array)
