"""One TFLite operator in two ways: read by edgec and interpreted, and run by LiteRT's
reference kernels.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from edgec.frontends.tflite import read_tflite
from edgec.ir import Array, Graph, interp
from tests.harness import assert_agree

Scale = tuple[float, int]


@dataclass(frozen=True)
class Operator:
    """Inputs in order, run-time arrays and constants (by `constants`' places), the
    types and scales of the outputs.
    """

    name: str
    inputs: Sequence[Array]
    constants: Sequence[int] = ()
    outputs: Sequence[str] = ("float32",)
    options: tuple[str, Mapping[str, Any]] | None = None
    scales: Mapping[int, Scale] = field(default_factory=dict)
    output_scale: Scale | None = None
    version: int = 1

    def __str__(self) -> str:
        options = "-".join(
            f"{k}={v}" for k, v in (self.options[1] if self.options else {}).items()
        )
        return f"{self.name}-{self.inputs[0].dtype}-{options}"

    def model(self, shapes: Sequence[Sequence[int]]) -> bytes:
        """The file of the operator alone, whose outputs are declared to have these
        shapes.
        """
        model = schema.ModelT()
        sub = schema.SubGraphT()
        op = schema.OperatorT()
        code = schema.OperatorCodeT()
        model.buffers = [schema.BufferT()]
        sub.tensors = []
        for i, array in enumerate(self.inputs):
            data = array if i in self.constants else None
            sub.tensors.append(
                _tensor(
                    model,
                    f"i{i}",
                    array.shape,
                    str(array.dtype),
                    self.scales.get(i),
                    data,
                )
            )
        for i, (shape, dtype) in enumerate(zip(shapes, self.outputs, strict=True)):
            scale = self.output_scale if "int8" in dtype else None
            sub.tensors.append(_tensor(model, f"y{i}", shape, dtype, scale, None))
        n = len(self.inputs)
        op.inputs = list(range(n))
        op.outputs = list(range(n, n + len(shapes)))
        sub.inputs = [i for i in range(n) if i not in self.constants]
        sub.outputs = op.outputs
        sub.operators = [op]
        code.builtinCode = getattr(schema.BuiltinOperator, self.name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = self.version
        if self.options is not None:
            op.builtinOptionsType = getattr(schema.BuiltinOptions, self.options[0])
            op.builtinOptions = getattr(schema, self.options[0] + "T")()
            for key, value in self.options[1].items():
                setattr(op.builtinOptions, key, value)
        model.version = 3
        model.operatorCodes = [code]
        model.subgraphs = [sub]
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def feeds(self) -> dict[str, Array]:
        """The run-time arrays by name."""
        return {
            f"i{i}": a for i, a in enumerate(self.inputs) if i not in self.constants
        }

    def expected(self) -> list[Array]:
        """As the reference kernel computes it, whatever shapes the file declares."""
        content = self.model([[]] * len(self.outputs))
        interpreter = Interpreter(
            model_content=content,
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        )
        interpreter.allocate_tensors()
        for detail, array in zip(
            interpreter.get_input_details(), self.feeds().values(), strict=True
        ):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [
            np.array(interpreter.get_tensor(d["index"]))
            for d in interpreter.get_output_details()
        ]

    def graph(self, shapes: Sequence[Sequence[int]]) -> Graph:
        """As edgec reads it."""
        with tempfile.TemporaryDirectory() as tmp:
            path = Path(tmp) / "node.tflite"
            path.write_bytes(self.model(shapes))
            return read_tflite(path, {})

    def check(self) -> None:
        """Both agree, integers bit for bit."""
        want = self.expected()
        got = interp(self.graph([y.shape for y in want]), self.feeds())
        assert_agree(got, {f"y{i}": y for i, y in enumerate(want)})


def _tensor(
    model: Any,
    name: str,
    shape: Sequence[int],
    dtype: str,
    scale: Scale | None,
    data: Array | None,
) -> schema.TensorT:
    t = schema.TensorT()
    t.name = name
    t.shape = [int(d) for d in shape]
    t.type = getattr(schema.TensorType, dtype.upper())
    t.buffer = 0
    if data is not None:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        model.buffers.append(buffer)
        t.buffer = len(model.buffers) - 1
    if scale is not None:
        t.quantization = schema.QuantizationParametersT()
        t.quantization.scale = np.array(scale[:1], np.float32)
        t.quantization.zeroPoint = np.array(scale[1:], np.int64)
    return t
