"""report/anchors.npy of a bundle: the anchors of a network that picks its boxes itself.

`edgec export --frigate` writes the operator that picks them into a .tflite file. The
bundle has them in its weights, too, where only its C finds them.
"""

from __future__ import annotations

import io

import numpy as np

from edgec.ir import Graph
from edgec.ops.detection import Detections

ANCHORS_FILE = "report/anchors.npy"
"""The file's name in a bundle: float32 [N, 4], centre y, x and height, width."""


def anchors_file(graph: Graph) -> dict[str, bytes]:
    """Return the file of a network with such an operation; {} for others."""
    for op in graph.ops:
        if isinstance(op.spec, Detections) and op.inputs[2].const is not None:
            data = io.BytesIO()
            np.save(data, np.asarray(op.inputs[2].const, np.float32))
            return {ANCHORS_FILE: data.getvalue()}
    return {}
