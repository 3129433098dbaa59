"""Memory does not grow with the folder of photos, whatever steps go through it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow

CHILD = """
import resource, sys
from pathlib import Path
from edgec.compiler.native import HostRunners, native_compiler
from edgec.ops.conv import Conv2D
from edgec.quantize.observe import calibration
from edgec.quantize.change.recipe import Recipe
from edgec.quantize.select.apply import apply_recipe
from tests.quantize.nets import Net

calibration.CACHE_BYTES = 8 << 20
net = Net("large", 1)
x = net.input(1, 256, 256, 3)
y = net.op(Conv2D((2, 2), (0, 1, 0, 1)), x, net.const(8, 3, 3, 3))
graph = net.done(net.op(Conv2D((4, 4), (1, 1, 1, 1)), y, net.const(4, 3, 3, 8)))
photos = calibration.load_calibration(Path(sys.argv[1]), graph.inputs)[: int(sys.argv[2])]
assert len(photos) == int(sys.argv[2])
rows = [["lower", "minmax"], ["lower", "choose", "gptq", "bias"]]
recipe = Recipe.of({"candidate": [{"name": str(i), "steps": s} for i, s in enumerate(rows)]}, "two")
apply_recipe(recipe, graph, photos, HostRunners(native_compiler(None)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def test_a_folder_of_any_size_takes_the_same_memory(tmp_path: Path) -> None:
    """A sample is 0.8 MB: the 60 more of the large folder would be 48 MB.

    Those of the other are more than any step runs at once.
    """
    rng = np.random.default_rng(0)
    for i in range(120):
        Image.fromarray(rng.integers(0, 256, (256, 256, 3), np.uint8)).save(
            tmp_path / f"{i:03}.bmp"
        )

    def peak(count: int) -> int:
        command = [sys.executable, "-c", CHILD, str(tmp_path), str(count)]
        return int(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )

    assert peak(120) - peak(60) < 20
