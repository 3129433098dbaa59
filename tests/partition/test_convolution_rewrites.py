"""What the rewrites of convolutions and matrix products bring to the Edge TPU, on real
models.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest
from edgec_partitioner.legalize import legalize
from edgec_partitioner.verdicts import verdicts

from edgec.frontends import read_model
from edgec.passes.pipeline import optimize
from edgec.quantize.change.convert import assumed
from tests.conftest import SHARED

pytestmark = pytest.mark.shared


def mapped_macs(
    file: str, off: Collection[str] = (), passes_off: Collection[str] = ()
) -> float:
    """The share of the multiply-accumulates that maps, of a float model with assumed
    scales.
    """
    path = SHARED / "models" / file
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    graph, _ = legalize(
        optimize(read_model(path, {}), passes_off), exact=False, disabled=off
    )
    keep = {*passes_off, "recognize_activations"}
    graph = optimize(assumed(optimize(graph, keep)), keep)
    graph, _ = legalize(graph, exact=True, disabled=off)
    judged = verdicts(graph)
    macs = {op: op.spec.macs(op) for op in graph.ops}
    return sum(n for op, n in macs.items() if judged[op].place() == "edgetpu") / sum(
        macs.values()
    )


@pytest.mark.parametrize(
    ("file", "rewrite", "gained", "mapped"),
    [
        ("sinet_portrait_onnx/sinet_portrait_onnx.onnx", "grouped_conv", 0.10, 0.999),
        (
            "fns_udnie_std_256/fns_udnie_std_256.onnx",
            "transpose_conv_pads",
            0.04,
            0.999,
        ),
        (
            "fns_udnie_std_256/fns_udnie_std_256.onnx",
            "transpose_conv_channels",
            0.04,
            0.999,
        ),
        ("vittrack/vittrack.onnx", "fully_connected_rows", 0.30, 0.65),
    ],
)
def test_the_rewrite_maps_what_was_refused(
    file: str, rewrite: str, gained: float, mapped: float
) -> None:
    share = mapped_macs(file)
    assert share >= mapped
    assert share - mapped_macs(file, off={rewrite}) > gained


def test_dilated_convolutions_in_blocks_map() -> None:
    file = "ultraface_rfb320_tflite/ultraface_rfb320_tflite.tflite"
    assert mapped_macs(file, passes_off={"recognize_dilated_conv"}) < 0.98
    assert mapped_macs(file) >= 0.999
