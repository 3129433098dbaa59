"""One ONNX node in two ways: read by edgec and interpreted, and run by onnxruntime."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from edgec.frontends.onnx import read_onnx
from edgec.ir import Array, Graph, interp
from tests.harness import assert_agree


@dataclass(frozen=True)
class Node:
    """A node: its inputs in order, run-time arrays and constants (None: absent), and
    its attributes.
    """

    op_type: str
    opset: int
    inputs: Sequence[Array | None]
    constants: Sequence[Array | None] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def __str__(self) -> str:
        attrs = "-".join(f"{k}={v}" for k, v in self.attrs.items())
        shapes = "-".join(
            "x".join(map(str, a.shape)) for a in self.inputs if a is not None
        )
        return f"{self.op_type}{self.opset}-{shapes}-{attrs}".replace(" ", "")[:100]

    def model(self) -> bytes:
        """The file of the node alone."""
        arrays = [*self.inputs, *self.constants]
        names = [f"i{i}" if a is not None else "" for i, a in enumerate(arrays)]
        run_time = len(self.inputs)
        node = helper.make_node(
            self.op_type, names, [f"y{i}" for i in range(self.outputs)], **self.attrs
        )
        inputs = [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
            )
            for n, a in zip(names, self.inputs, strict=False)
            if a is not None
        ]
        weights = [
            numpy_helper.from_array(a, n)
            for n, a in zip(names[run_time:], self.constants, strict=True)
            if a is not None
        ]
        results = [
            helper.make_tensor_value_info(f"y{i}", TensorProto.UNDEFINED, None)
            for i in range(self.outputs)
        ]
        graph = helper.make_graph([node], "node", inputs, results, weights)
        opset = helper.make_opsetid("", self.opset)
        model = helper.make_model(
            graph, opset_imports=[opset], ir_version=4 if self.opset < 11 else 8
        )
        model = onnx.shape_inference.infer_shapes(model)
        # operators that are functions have no inference of their own
        for result in model.graph.output:
            result.type.tensor_type.elem_type = (
                result.type.tensor_type.elem_type or TensorProto.FLOAT
            )
        return bytes(model.SerializeToString())

    def feeds(self) -> dict[str, Array]:
        """The run-time arrays by name."""
        return {f"i{i}": a for i, a in enumerate(self.inputs) if a is not None}

    def graph(self) -> Graph:
        """As edgec reads it."""
        with tempfile.TemporaryDirectory() as tmp:
            path = Path(tmp) / "node.onnx"
            path.write_bytes(self.model())
            return read_onnx(path, {})

    def expected(self) -> dict[str, Array]:
        """As onnxruntime computes it."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            self.model(), options, providers=["CPUExecutionProvider"]
        )
        return dict(
            zip(
                [o.name for o in session.get_outputs()],
                session.run(None, self.feeds()),
                strict=True,
            )
        )

    def check(self, tolerance: float = 1e-5) -> None:
        """Both agree."""
        graph = self.graph()
        got = interp(graph, {v.name: self.feeds()[v.name] for v in graph.inputs})
        assert_agree(
            got, {k: np.asarray(v) for k, v in self.expected().items()}, tolerance
        )
