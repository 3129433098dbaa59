"""edgec: trained vision models onto a Raspberry Pi, with or without a Coral Edge TPU.

import edgec
edgec.compile("model.onnx", target="pi4+coral", calibrate="photos/", output="out.edgec")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgec.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from edgec_devices.findings import Report as Findings
    from edgec_partitioner.explain import Report

    from edgec.benching.result import BenchReport
    from edgec.drive.compile import Compiled
    from edgec.drive.lower import Options
    from edgec.ir import Array

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
    edgetpu_compiler: str | None = None,
) -> Compiled:
    """Compile a .onnx or .tflite file into one verified bundle, as `edgec compile`. Raises errors.EdgecError."""
    from edgec.drive.compile import compile_model

    return compile_model(
        Path(model),
        output=Path(output) if output is not None else None,
        options=_options(target, calibrate, preprocess, input_shapes, disable),
        labels=Path(labels) if labels is not None else None,
        cc=cc,
        edgetpu_compiler=edgetpu_compiler,
    )


def finish(folder: PathLike) -> Compiled:
    """Go on with a hand-off folder on which edgetpu_compiler has run, as `edgec finish`. Raises errors.EdgecError."""
    from edgec.drive.compile import finish

    return finish(Path(folder))


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
    from edgec.drive.explain import explain_model

    return explain_model(Path(model), _options(target, calibrate, preprocess, input_shapes, disable))


def run(bundle: PathLike, inputs: Mapping[str, Array], on: str = "local:") -> dict[str, Array]:
    """One inference of a bundle on a device ("local:", "emulated:pi4", …): outputs by name."""
    from edgec_devices import device_for
    from edgec_runtime import Bundle

    with Bundle.open(bundle) as opened:
        return device_for(on).run(opened, inputs)


def bench(
    bundle: PathLike, on: str = "local:", runs: int | None = None, seconds: float | None = None, **wishes: Any
) -> BenchReport:
    """Latencies of a bundle on a device, and whether its budgets hold; estimates are marked as such.

    runs, seconds: of timed inferences in all. wishes: as edgec.benching.request.Bench has them (budgets, compare, …).
    Raises errors.EdgecError; a missed budget is no error but an entry of the report.
    """
    from edgec.benching.request import Bench
    from edgec.drive.bench import run_bench

    return run_bench(Bench(Path(bundle), on, runs=runs, seconds=seconds, **wishes))


def doctor(on: str | None = None, ask: bool = False) -> Findings:
    """What this machine, or a device ("ssh://pi@host", …), has and lacks, with a command to type for each finding.

    ask: a person is there to type a password.  Raises errors.EdgecError when the device cannot be reached.
    """
    from edgec_devices.doctor import examine

    return examine(on, ask)


def _options(
    target: str,
    calibrate: PathLike | None,
    preprocess: str | None,
    input_shapes: Mapping[str, tuple[int, ...]] | None,
    disable: Sequence[str],
) -> Options:
    from edgec.drive.lower import Options

    data = Path(calibrate) if calibrate is not None else None
    return Options(target, data, preprocess, dict(input_shapes or {}), tuple(disable))
