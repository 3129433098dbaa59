"""A detector of circles, squares and triangles, being served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Session
from edgec_runtime.serve.detector import Detector
from edgec_runtime.vision.tasks.instances import Box, Boxes
from numpy.typing import NDArray

from fixtures.shapes.pictures import scenes
from tests.shapes import bundle

Picture = NDArray[np.uint8]
Detect = Callable[[Picture], tuple[Box, ...]]


@pytest.fixture(scope="session")
def shapes() -> Path:
    """The bundle of the fixture's network."""
    return bundle()


@pytest.fixture(scope="session")
def pictures() -> list[Picture]:
    """Pictures with objects, uint8 [96, 96, 3]."""
    return [scene.picture for scene in scenes(12, seed=5)]


@pytest.fixture(scope="session")
def detect(shapes: Path) -> Iterator[Detect]:
    """Gives the boxes of a picture as a Session has them."""
    with Session(shapes) as session:

        def boxes(picture: Picture) -> tuple[Box, ...]:
            result = session.result(picture)
            assert isinstance(result, Boxes)
            return result.boxes

        yield boxes


@pytest.fixture
def detector(shapes: Path) -> Iterator[Detector]:
    """The detector, in its own thread."""
    with ExitStack() as stack:
        session = stack.enter_context(Session(shapes))
        yield stack.enter_context(Detector(session, places=32))
