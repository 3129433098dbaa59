"""Segments for the Edge TPU as .tflite files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from edgec_runtime import Bundle

from edgec.errors import InputError


def write(bundle: Bundle, folder: Path) -> Sequence[str]:
    """Write the .tflite file of each segment, and the one that edgetpu_compiler made.

    Raises InputError for a bundle without a segment for the Edge TPU.
    """
    # A session passes tensors from one segment to the next in this order.
    written = []
    for segment in bundle.manifest.segments:
        for path in (segment.tflite, segment.edgetpu):
            if path is not None:
                name = PurePosixPath(path).name
                (folder / name).write_bytes(bundle.read(path))
                written.append(name)
    if not written:
        raise InputError(
            "the bundle has no segment for the Edge TPU",
            at=str(bundle.path),
            hint="compile the model for a board with one: --target pi4+coral",
        )
    return _lines(bundle, written)


def _lines(bundle: Bundle, written: Sequence[str]) -> Sequence[str]:
    """Return the lines of the README."""
    # Where edgetpu_compiler ran, its files are the ones that run.
    compiled = [name for name in written if name.endswith("_edgetpu.tflite")]
    if compiled:
        how = f"Load {', '.join(compiled)} with the delegate of libedgetpu."
    else:
        how = f"Compile them for the Edge TPU: edgetpu_compiler {' '.join(written)}"
    return (
        f"The segments of {bundle.path.name} that run on the Edge TPU, int8.",
        how,
        "Inputs and outputs of each are tensors of the model (edgec inspect).",
    )
