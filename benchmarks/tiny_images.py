"""Images for the tiny model of tests/runtime, with its outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from edgec.ir import Array
from tests.runtime import tiny_model


class TinyImages:
    """Images of which each number has one, again and again.

    Args:
        count: the number of different images
        seed: which images they are
    """

    def __init__(self, count: int = 16, seed: int = 0) -> None:
        self._images = [tiny_model.image(seed * count + i) for i in range(count)]
        self._outputs = [tiny_model.reference(x) for x in self._images]

    def image(self, number: int) -> Array:
        """Return the image of a number."""
        return self._images[number % len(self._images)]

    def stream(self, frames: int | None = None) -> Iterator[Array]:
        """Yield the images of the first numbers, or of all."""
        numbers = itertools.count() if frames is None else range(frames)
        return map(self.image, numbers)

    def is_right(self, number: int, outputs: Mapping[str, Array]) -> bool:
        """Return whether these are the outputs for the image of a number."""
        expected = self._outputs[number % len(self._outputs)]
        return all(np.array_equal(outputs[name], y) for name, y in expected.items())
