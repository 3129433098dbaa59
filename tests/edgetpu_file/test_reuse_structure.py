"""A compiled file is not re-used for a network whose tensors go other ways, though its
operators have the same sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from edgec.edgetpu_file.reuse.file import reused
from edgec.errors import InputError
from tests.conftest import SHARED

pytestmark = pytest.mark.shared
OTHERS = "ricardodeazambuja+LibrEdgeTPU"
NETWORKS = {
    "bright_16x16": "tracker_templates_bright_16x16",
    "gabor_64x64_p4": "optical_flow_templates_gabor_64x64_p4",
}
Network = Any
"""A network in the classes that flatc makes of TFLite's schema, which have no types."""


def changed(name: str, change: Callable[[Network], None]) -> tuple[bytes, bytes]:
    """Return a compiled file, and the network that it was made of after a change."""
    folder = SHARED / "edgetpu"
    source = folder / "models" / OTHERS / f"libredgetpu_{NETWORKS[name]}.tflite"
    model = schema.ModelT.InitFromPackedBuf(source.read_bytes(), 0)
    change(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    compiled = folder / "compiled" / OTHERS / f"{name}_edgetpu.tflite"
    return compiled.read_bytes(), bytes(builder.Output())


def operators(model: Network, kind: int) -> list[Network]:
    """Return the operators of a kind, a number of the schema."""
    return [
        operator
        for operator in model.subgraphs[0].operators
        if model.operatorCodes[operator.opcodeIndex].builtinCode == kind
    ]


CONCATENATION = schema.BuiltinOperator.CONCATENATION
DENSE = schema.BuiltinOperator.FULLY_CONNECTED


def swap_joined(model: Network) -> None:
    """Join the two coordinates of a spot in the other order."""
    (joined,) = operators(model, CONCATENATION)
    joined.inputs = joined.inputs[::-1].copy()


def join_one_twice(model: Network) -> None:
    (joined,) = operators(model, CONCATENATION)
    joined.inputs = np.full(2, joined.inputs[0], np.int32)


def swap_operators(model: Network) -> None:
    """Compute the second coordinate first."""
    first, second = operators(model, DENSE)
    names = ("inputs", "outputs")
    values = [getattr(first, name) for name in names]
    for name, value in zip(names, values, strict=True):
        setattr(first, name, getattr(second, name))
        setattr(second, name, value)


def pass_by_softmax(model: Network) -> None:
    (softmax,) = operators(model, schema.BuiltinOperator.SOFTMAX)
    for dense in operators(model, DENSE):
        dense.inputs = np.array([softmax.inputs[0], *dense.inputs[1:]], np.int32)


def set_options(kind: int, **values: float) -> Callable[[Network], None]:
    """Return a change of options of the only operator of a kind."""

    def change(model: Network) -> None:
        (operator,) = operators(model, kind)
        for name, value in values.items():
            assert hasattr(operator.builtinOptions, name)
            setattr(operator.builtinOptions, name, value)

    return change


DEPTHWISE = schema.BuiltinOperator.DEPTHWISE_CONV_2D
POOL = schema.BuiltinOperator.AVERAGE_POOL_2D


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bright_16x16", swap_joined, "order in memory"),
        ("bright_16x16", join_one_twice, "order in memory"),
        ("bright_16x16", swap_operators, "order in memory"),
        ("bright_16x16", pass_by_softmax, "not what was written last"),
        (
            "bright_16x16",
            set_options(schema.BuiltinOperator.SOFTMAX, beta=-1.0),
            "the factor -1.0",
        ),
        (
            "gabor_64x64_p4",
            set_options(DEPTHWISE, dilationHFactor=2),
            "other distances in y than in x",
        ),
        (
            "gabor_64x64_p4",
            set_options(DEPTHWISE, strideH=2, strideW=2),
            "another stride or dilation",
        ),
        (
            "gabor_64x64_p4",
            set_options(POOL, filterHeight=8, filterWidth=2),
            "beyond the image",
        ),
        (
            "gabor_64x64_p4",
            set_options(POOL, filterHeight=2, filterWidth=8, strideH=2, strideW=2),
            "other windows",
        ),
    ],
)
def test_refusals(name: str, change: Callable[[Network], None], message: str) -> None:
    """Another way of the data, or through an image, is refused by name."""
    compiled, network = changed(name, change)
    with pytest.raises(InputError, match=message):
        reused(compiled, network, "old", "new")


def test_what_is_only_packed_again() -> None:
    """The same network, written by another program, is taken."""
    for name in NETWORKS:
        compiled, network = changed(name, lambda _: None)
        assert len(reused(compiled, network, name, name)) == len(compiled)
