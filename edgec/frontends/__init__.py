"""Model files in, a Graph out, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgec.errors import InputError
from edgec.frontends import pt2
from edgec.frontends.asked import fix, keep_state
from edgec.frontends.onnx import read_onnx
from edgec.frontends.tflite import read_tflite
from edgec.ir import Graph, verify
from edgec.ir.verify import VerifyError

SUFFIXES = (".onnx", ".tflite", pt2.SUFFIX)
"""Of the files that are read."""

MAX_MODEL_BYTES = 2 << 30
"""Of a file; neither ONNX nor TFLite can have more."""
MAX_TENSOR_BYTES = 1 << 30
"""No board that edgec compiles for could hold more in one tensor."""


def read_model(
    path: Path,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    opaque: bool = False,
    fixed: Mapping[str, Sequence[float]] | None = None,
    state: Mapping[str, str] | None = None,
    outputs: Sequence[str] = (),
) -> Graph:
    """The graph of a .onnx, .tflite or .pt2 file; `input_shapes` freezes dynamic inputs
    by name.

    opaque: operators of a .tflite file that edgec cannot read become opaque ones (see
    ops/opaque.py). fixed: inputs that are constants, by name: one number, or one for
    each element. state: inputs that are, at each call, what these outputs were at the
    call before. outputs: tensors of an .onnx file that are its outputs in place of its
    own.
    """
    if not path.is_file():
        raise InputError(f"no such model file: {path}", hint="check the path")
    if path.stat().st_size > MAX_MODEL_BYTES:
        what = (
            f"{path.name} has {path.stat().st_size} bytes, more than {MAX_MODEL_BYTES}"
        )
        raise InputError(
            what, str(path), "export the model to a file without its training state"
        )
    suffix = path.suffix.lower()
    if suffix in (".onnx", pt2.SUFFIX):
        graph = read_onnx(path, input_shapes or {}, fixed or {}, outputs)
    elif suffix == ".tflite":
        graph = read_tflite(path, input_shapes or {}, opaque=opaque)
        fix(graph, fixed or {})
    elif suffix in pt2.OTHERS:
        raise InputError(
            f"{path.name} has no graph with shapes: it is of torch.save or torch.jit",
            str(path),
            pt2.EXPORT,
        )
    else:
        raise InputError(
            f"{path.name} is none of {', '.join(SUFFIXES)}",
            str(path),
            "export the model to one of them",
        )
    keep_state(graph, state or {})
    for v in (*graph.inputs, *graph.outputs):
        if not v.type.size:
            hint = (
                "leave it out, or give it elements (--input-shape): "
                "a bundle's "
                "inputs and outputs have some"
            )
            raise InputError(
                f"{v.name} has the shape {list(v.type.shape)}, without an element",
                str(path),
                hint,
            )
    return checked(graph, path)


def checked(graph: Graph, path: Path) -> Graph:
    """The graph, if it is one that can be compiled. Raises InputError."""
    for v in graph.values():
        if min(v.type.shape, default=0) < 0 or v.type.nbytes > MAX_TENSOR_BYTES:
            what = f"tensor {v.name} has the impossible shape {list(v.type.shape)}"
            raise InputError(
                what,
                str(path),
                "the file is damaged, or the model too large for a small board",
            )
    try:
        verify(graph, "imported")
    except VerifyError as e:
        raise InputError(
            f"the model contradicts itself: {e}",
            str(path),
            "report it if others run this file",
        ) from e
    return graph
