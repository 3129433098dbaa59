"""edgec: trained vision models onto a Raspberry Pi, with or without a Coral Edge TPU.

import edgec
edgec.compile("model.onnx", target="pi4+coral", calibrate="photos/", output="out.edgec")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from edgec_partitioner.explain import Report

    from edgec.compiler import Compiled
    from edgec.lowering import Options

PathLike = str | Path


def compile(
    model: PathLike,
    target: str = "host",
    output: PathLike | None = None,
    *,
    calibrate: PathLike | None = None,
    preprocess: str | None = None,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    disable: Sequence[str] = (),
    labels: PathLike | None = None,
    cc: str | None = None,
) -> Compiled:
    """Compile a .onnx or .tflite file into one verified bundle, as `edgec compile`. Raises errors.EdgecError."""
    from edgec.compiler import compile_model

    return compile_model(
        Path(model),
        output=Path(output) if output is not None else None,
        options=_options(target, calibrate, preprocess, input_shapes, disable),
        labels=Path(labels) if labels is not None else None,
        cc=cc,
    )


def explain(
    model: PathLike,
    target: str = "host",
    *,
    calibrate: PathLike | None = None,
    preprocess: str | None = None,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    disable: Sequence[str] = (),
) -> Report:
    """Where each operation runs, and why; see `edgec explain --help`."""
    from edgec.explain import explain_model

    return explain_model(Path(model), _options(target, calibrate, preprocess, input_shapes, disable))


def _options(
    target: str,
    calibrate: PathLike | None,
    preprocess: str | None,
    input_shapes: Mapping[str, tuple[int, ...]] | None,
    disable: Sequence[str],
) -> Options:
    from edgec.lowering import Options

    data = Path(calibrate) if calibrate is not None else None
    return Options(target, data, preprocess, dict(input_shapes or {}), tuple(disable))
