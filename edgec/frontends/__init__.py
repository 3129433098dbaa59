"""Readers of model files: each returns a Graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgec_runtime.vision.photo import PHOTO_SUFFIXES

from edgec.errors import InputError, shell_word
from edgec.frontends import pt2
from edgec.frontends.input_requests import fix, keep_state
from edgec.frontends.onnx import read_onnx
from edgec.frontends.tflite import read_tflite
from edgec.ir import Graph, verify
from edgec.ir.verify import VerifyError

SUFFIXES = (".onnx", ".tflite", pt2.SUFFIX)
"""The suffixes of the files that edgec reads."""

MAX_MODEL_BYTES = 2 << 30
"""The largest size of a file; neither ONNX nor TFLite can have more."""
MAX_TENSOR_BYTES = 1 << 30
"""The largest tensor: no board that edgec compiles for could hold more."""


def read_model(
    path: Path,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    opaque: bool = False,
    fixed: Mapping[str, Sequence[float]] | None = None,
    state: Mapping[str, str] | None = None,
    outputs: Sequence[str] = (),
) -> Graph:
    """Return the graph of a .onnx, .tflite or .pt2 file.

    input_shapes: shapes for dynamic inputs, by name. opaque: operators of a .tflite
    file that edgec cannot read become opaque ones (see ops/opaque.py). fixed: inputs
    that become constants, by name: one number, or one for each element. state: inputs
    with the value, at each call, of these outputs at the call before. outputs: tensors
    of an .onnx file that become its outputs in place of its own. Raises InputError.
    """
    _check_file(path)
    # The suffix decides, as the contents of a damaged file may be anything.
    suffix = path.suffix.lower()
    if suffix in (".onnx", pt2.SUFFIX):
        graph = read_onnx(path, input_shapes or {}, fixed or {}, outputs)
    elif suffix == ".tflite":
        # ONNX fixes inputs before it reads nodes: an If may depend on them.
        graph = read_tflite(path, input_shapes or {}, opaque=opaque)
        fix(graph, fixed or {})
    elif suffix in pt2.OTHERS:
        message = (
            f"{path.name} has no graph with shapes: it is of torch.save or torch.jit"
        )
        raise InputError(message, str(path), pt2.EXPORT)
    else:
        message = f"{path.name} is not one of {', '.join(SUFFIXES)}"
        hint = "export the model to one of them"
        if suffix in PHOTO_SUFFIXES:
            message = f"{path.name} is a picture, and no model"
            hint = "give it to a bundle: edgec run BUNDLE --input PICTURE"
        if suffix == ".edgec":
            message = f"{path.name} is a bundle, which was compiled already"
            hint = f"edgec inspect {shell_word(path)}; or give the model file"
        raise InputError(message, str(path), hint)

    keep_state(graph, state or {})
    _check_interface(graph, path)
    return checked(graph, path)


def _check_file(path: Path) -> None:
    """Raise InputError if the file is absent or too large."""
    if path.is_dir():
        raise InputError(
            f"{path} is a folder, and no model", hint="give a model file in it"
        )
    if not path.is_file():
        raise InputError(f"no such model file: {path}", hint="check the path")
    size = path.stat().st_size
    if size > MAX_MODEL_BYTES:
        message = f"{path.name} has {size} bytes, more than {MAX_MODEL_BYTES}"
        hint = "export the model to a file without its training state"
        raise InputError(message, str(path), hint)


def _check_interface(graph: Graph, path: Path) -> None:
    """Raise InputError for an input or output without elements."""
    for v in (*graph.inputs, *graph.outputs):
        if v.type.size:
            continue
        message = f"{v.name} has the shape {list(v.type.shape)}, without an element"
        hint = (
            "leave it out, or give it elements (--input-shape): "
            "a bundle's inputs and outputs have some"
        )
        raise InputError(message, str(path), hint)


def checked(graph: Graph, path: Path) -> Graph:
    """Return the graph if it can be compiled.

    Raises InputError for impossible shapes and for a graph that contradicts itself.
    """
    for v in graph.values():
        if min(v.type.shape, default=0) < 0 or v.type.nbytes > MAX_TENSOR_BYTES:
            message = f"tensor {v.name} has the impossible shape {list(v.type.shape)}"
            hint = "the file is damaged, or the model too large for a small board"
            raise InputError(message, str(path), hint)
    try:
        # A file may be well-formed and yet state impossible shapes or types.
        verify(graph, "imported")
    except VerifyError as e:
        message = f"the model is inconsistent: {e}"
        hint = "report it, if other tools can run the file"
        raise InputError(message, str(path), hint) from e
    return graph
