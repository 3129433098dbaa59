"""ONNX's own backend node tests, which come with the onnx package: what edgec makes of
them, in any element type.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

from edgec.compiler.lower import lower
from edgec.emit.c import CSRC, segment_source
from edgec.errors import EdgecError
from edgec.frontends import read_model
from edgec.ir import Array, interp
from edgec.ir.opdef import by_name
from edgec.onnx_backend import in_eight_bits
from edgec.options.compile import CompileOptions

TYPES = (
    "float",
    "double",
    "float16",
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
)
"""Element types that every case is also tried with."""
_PRECISION = {"float16": 2e-3, "bfloat16": 1.6e-2}
"""edgec computes every float in float32: what ONNX has in a shorter type is equal to
that type's precision.
"""


@dataclass(frozen=True)
class Case:
    """A model of one node (or of its expansion) with inputs and outputs; `label` tells
    which inputs are constants.
    """

    name: str
    label: str
    model: ModelProto
    inputs: Sequence[Array]
    outputs: Sequence[Array]

    def __str__(self) -> str:
        return f"{self.name}-{self.label}"

    @property
    def known(self) -> bool:
        """Whether edgec reads all of its operators in some form."""
        return all(by_name("onnx", node.op_type) for node in self.model.graph.node)

    def feeds(self) -> dict[str, Array]:
        """The inputs by name."""
        return {
            v.name: a for v, a in zip(self.model.graph.input, self.inputs, strict=True)
        }

    def outcome(self) -> str:
        """ "equal", "refused: why", or "wrong: what" of edgec's outputs beside
        onnxruntime's, or else ONNX's own.
        """
        with tempfile.TemporaryDirectory() as tmp:
            path = Path(tmp) / "m.onnx"
            path.write_bytes(self.model.SerializeToString())
            try:
                graph = read_model(path)
            except EdgecError as e:
                return f"refused: {e.what}"
        feeds = self.feeds()
        with np.errstate(all="ignore"):
            inputs = {v.name: in_eight_bits(feeds[v.name]) for v in graph.inputs}
            got = interp(graph, inputs)
        differences = self._differences(got, self.outputs)
        if differences and self._differences(got, self._onnxruntime()):
            return f"wrong: {differences}"
        return "equal"

    def _differences(self, got: dict[str, Array], want: Sequence[Array] | None) -> str:
        if want is None:
            return "onnxruntime cannot run it"
        for v, w in zip(self.model.graph.output, want, strict=True):
            y = got[v.name]
            if y.shape != w.shape:
                return f"{v.name} has shape {y.shape}, not {w.shape}"
            if w.dtype.kind in "biu":
                if y.dtype.kind not in "biu" or (y != w).any():
                    return f"{v.name} differs"
                continue
            reals = w.astype(np.float64)
            tolerance = _PRECISION.get(str(w.dtype), 1e-5)
            scale = float(np.abs(reals[np.isfinite(reals)]).max(initial=1e-6))
            if not np.allclose(
                y, reals, rtol=tolerance, atol=tolerance * scale, equal_nan=True
            ):
                return f"{v.name} differs by up to {np.abs(y - reals).max()}"
        return ""

    def _onnxruntime(self) -> list[Array] | None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(
                self.model.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
            )
            return [np.asarray(a) for a in session.run(None, self.feeds())]
        except Exception:  # an operator, a type or an opset that it does not have
            return None

    def retyped(self, name: str) -> ModelProto:
        """The model with the type of its first input, and of all that has it, replaced:
        it may be no valid one.
        """
        model = _copy(self.model)
        new = TensorProto.DataType.Value(name.upper())
        old = model.graph.input[0].type.tensor_type.elem_type
        for v in (*model.graph.input, *model.graph.output):
            if v.type.tensor_type.elem_type == old:
                v.type.tensor_type.elem_type = new
        for tensor in model.graph.initializer:
            if tensor.data_type == old:
                with np.errstate(all="ignore"):
                    array = numpy_helper.to_array(tensor).astype(
                        helper.tensor_dtype_to_np_dtype(new)
                    )
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        return model


@cache
def cases() -> tuple[Case, ...]:
    """Every case of plain tensors: with all inputs given at run time, all but the
    first, and all but the second.
    """
    found: list[Case] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for test in load_model_tests(kind="node"):
            inputs, outputs = (_arrays(part) for part in test.data_sets[0])
            if inputs and outputs:
                found += _variants(
                    Case(test.name, "run_time", test.model, inputs, outputs)
                )
    return tuple(found)


def compiled(model: ModelProto, syntax: bool = False) -> str:
    """ "compiled", or "refused: why" with exit code 2; anything else is raised. syntax:
    ask gcc about the C, too.
    """
    with tempfile.TemporaryDirectory() as tmp, np.errstate(all="ignore"):
        path = Path(tmp) / "m.onnx"
        path.write_bytes(model.SerializeToString())
        try:
            segments = lower(path, CompileOptions()).partition.segments
            sources = [segment_source(s.graph, s.name).text for s in segments]
        except EdgecError as e:
            if e.exit_code != 2:
                raise
            return f"refused: {e.what}"
    for source in sources if syntax else ():
        _check_syntax(source)
    return "compiled"


_seen: set[str] = set()


def _check_syntax(source: str) -> None:
    """gcc takes the C without a warning; sources that differ in numbers alone are
    looked at once.
    """
    shape = re.sub(r"-?\d[\w.+-]*,", "", source)
    if shape not in _seen:
        _seen.add(shape)
        command = [
            "gcc",
            "-fsyntax-only",
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-I{CSRC}",
            "-xc",
            "-",
        ]
        done = subprocess.run(
            command, input=source, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr[:2000]


def _variants(case: Case) -> Iterator[Case]:
    yield case
    for keep, label in ((0, "first"), (1, "second")):
        if keep < len(case.inputs) > 1:
            model, names = _copy(case.model), [v.name for v in case.model.graph.input]
            for name, array in zip(names, case.inputs, strict=True):
                if name != names[keep]:
                    model.graph.initializer.append(numpy_helper.from_array(array, name))
            del model.graph.input[:]
            model.graph.input.append(case.model.graph.input[keep])
            yield Case(case.name, label, model, [case.inputs[keep]], case.outputs)


def _copy(model: ModelProto) -> ModelProto:
    twin = ModelProto()
    twin.CopyFrom(model)
    return twin


def _arrays(given: Sequence[Any]) -> list[Array]:
    """The tensors of a data set; none at all if there are others than numbers
    (sequences, texts, absent ones).
    """
    plain = all(isinstance(x, (np.ndarray, np.generic, TensorProto)) for x in given)
    arrays = [
        numpy_helper.to_array(x) if isinstance(x, TensorProto) else np.asarray(x)
        for x in given
        if plain
    ]
    return arrays if all(a.dtype.kind in "biufV" for a in arrays) else []
