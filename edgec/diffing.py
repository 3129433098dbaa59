"""`edgec.diff`, one of the verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgec.checking import checked

if TYPE_CHECKING:
    from edgec.comparing.result import Diff


@checked
def diff(
    a: str | Path,
    b: str | Path,
    inputs: str | Path,
    *,
    preprocess: str | None = None,
    calibrate: str | Path | None = None,
    quantize: str | Path = "fast",
    samples: int = 8,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    fix: Mapping[str, float | Sequence[float]] | None = None,
    state: Mapping[str, str] | None = None,
    cc: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Diff:
    """Two ways to run a network beside each other, layer by layer: what differs, where
    it comes from, what would help.

    Args:
        a: a model or a bundle, perhaps after what is to run it: "net.onnx",
            "litert:net.tflite" (docs/diff.md).
        b: the other; it is the one whose layers are judged.
        inputs: photos, or an .npz, as for `compile(calibrate=)`.
        preprocess: how photos become inputs, as in `compile` (default: as the bundle,
            or the file, has it).
        calibrate: for "int8:", data to quantize with (default: the inputs).
        quantize: for "int8:", as in `compile`.
        samples: at most so many of the inputs, spread over all.
        input_shapes, fix, state: of a model's inputs, as in `compile`.
        cc: a compiler of this machine.
        progress: as in `compile`.
    """
    # Imported at the call, so that `import edgec` stays fast.
    from edgec.compiler.options import InputOptions, path_of
    from edgec.verbs.diff import Request, diff

    model_inputs = InputOptions(
        preprocess=preprocess,
        input_shapes=input_shapes or {},
        fix=fix or {},
        state=state or {},
    )
    request = Request(
        str(a),
        str(b),
        Path(inputs),
        model_inputs,
        calibrate=path_of(calibrate),
        quantize=str(quantize),
        samples=samples,
        cc=cc,
    )
    return diff(request, progress or (lambda text: None))
