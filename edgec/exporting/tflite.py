"""Segments for the Edge TPU as .tflite files, and the whole model where the bundle has it
(compile --keep-tflite).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from edgec_runtime import Bundle

from edgec.emit.tflite import MODEL_TFLITE
from edgec.errors import InputError
from edgec.exporting._sources import tensors_text


def write(bundle: Bundle, folder: Path) -> Sequence[str]:
    """Write the .tflite file of each segment, the one that edgetpu_compiler made, and
    the whole model's.

    Raises InputError for a bundle without any of them.
    """
    # A session passes tensors from one segment to the next in this order.
    paths = []
    for segment in bundle.manifest.segments:
        paths += [
            path for path in (segment.tflite, segment.edgetpu) if path is not None
        ]
    if MODEL_TFLITE in bundle.names:
        paths.append(MODEL_TFLITE)
    if not paths:
        hint = "compile the model with --keep-tflite, or for a board with an Edge TPU"
        if bundle.manifest.target.endswith("+coral"):
            # It would have taken longer there, by the estimate.
            hint = "compile the model with --edgetpu all, or with --keep-tflite"
        raise InputError(
            "the bundle has no .tflite file: nothing in it is for the Edge TPU",
            at=str(bundle.path),
            hint=hint,
        )

    names = []
    for path in paths:
        name = PurePosixPath(path).name
        (folder / name).write_bytes(bundle.read(path))
        names.append(name)
    return _lines(bundle, names)


def _lines(bundle: Bundle, names: Sequence[str]) -> Sequence[str]:
    """Return the lines of the README."""
    # Where edgetpu_compiler ran, its files are the ones that run.
    compiled = [name for name in names if name.endswith("_edgetpu.tflite")]
    has_model = MODEL_TFLITE in names
    message = f"Of {bundle.path.name}, int8: {', '.join(names)}"
    if has_model:
        message += f"; {MODEL_TFLITE} is the whole model, the others parts of it"
    if compiled:
        how = f"Load {', '.join(compiled)} with the delegate of libedgetpu."
    else:
        how = f"Compile them for the Edge TPU: `edgetpu_compiler {' '.join(names)}`."
    return (
        f"{message}.",
        how,
        f"Of the model, {tensors_text(bundle)}",
    )
