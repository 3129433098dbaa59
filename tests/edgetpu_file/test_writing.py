"""Programs that edgec writes itself: those of edgetpu_compiler, and run by the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_partitioner.rounding import as_chip
from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from numpy.typing import NDArray

from edgec.edgetpu_file.simulator.simulator import Simulator
from edgec.edgetpu_file.writing.file import written
from edgec.errors import InputError
from edgec.frontends.tflite import read_tflite
from edgec.ir.interp import interp
from tests.conftest import SHARED
from tests.edgetpu_file.simulated import SimulatedNetwork, compiled
from tests.edgetpu_file.tokens import without_tokens

MODELS = SHARED / "edgetpu/models/ricardodeazambuja+LibrEdgeTPU"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["dense_256", "dense_1024"])
def test_files_of_edgetpu_compiler(name: str) -> None:
    """The whole file is the same, but for the token, and no part of it is stored."""
    network = (MODELS / f"libredgetpu_templates_{name}.tflite").read_bytes()
    theirs = compiled(name).data
    mine = written(network, name)
    assert without_tokens(mine) == without_tokens(theirs)
    assert mine != theirs
