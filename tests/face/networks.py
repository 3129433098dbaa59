"""A network that says of any picture where the face of the layout would be in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

import edgec
from tests.face.faces import SIZE, points

INPUT = (32, 24)
"""Width and height of the network's input."""


def face_bundle(folder: Path) -> Path:
    """A bundle for landmarks: 468 points in the middle of any picture, moved to the
    right by up to an eighth of it as the picture is bright.
    """
    face = points() / SIZE[0] * INPUT[0]
    rest = face.astype(np.float32).reshape(1, -1)
    aside = np.zeros((1, 468, 3), np.float32)
    aside[..., 0] = INPUT[0] / 8
    constants = {"rest": rest, "aside": aside.reshape(1, -1)}
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Reshape", ["mean", "shape"], ["one"]),
        helper.make_node("Mul", ["one", "aside"], ["moved"]),
        helper.make_node("Add", ["moved", "rest"], ["points"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, *INPUT[::-1]))
    y = helper.make_tensor_value_info("points", TensorProto.FLOAT, rest.shape)
    stored = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    stored.append(numpy_helper.from_array(np.array([1, 1], np.int64), "shape"))
    graph = helper.make_graph(nodes, "faces", [x], [y], stored)
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset), folder / "faces.onnx")
    task = folder / "faces.toml"
    task.write_text('task = "landmarks"\ncolumns = ["x", "y", "z"]\n')
    bundle = folder / "faces.edgec"
    edgec.compile(
        folder / "faces.onnx", output=bundle, task=str(task), preprocess="0_1"
    )
    return bundle
