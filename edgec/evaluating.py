"""`edgec.eval`, one of the verbs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgec_devices.device import TIMEOUT_S

from edgec.checking import checked

if TYPE_CHECKING:
    from edgec.evaluation.report import EvaluationReport


@checked
def eval(
    bundle: str | Path,
    data: str | Path,
    *,
    model: str | Path | None = None,
    on: str = "local:",
    budgets: Sequence[str] = (),
    pictures: str | Path | None = None,
    normalise: str | None = None,
    samples: int | None = None,
    worst: int = 12,
    resamples: int | None = None,
    fresh: bool = False,
    threads: int = 1,
    timeout: float = TIMEOUT_S,
    json: str | Path | None = None,
    junit: str | Path | None = None,
    html: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> EvaluationReport:
    """Judge a bundle on labelled pictures by the measure of its task, beside its float
    model and on a device.

    Args:
        bundle: the .edgec file.
        data: the labelled pictures (docs/eval.md).
        model: the float model that it was compiled from, or "models:NAME".
        on: a device that runs it too, as in `run`.
        budgets: "drop.top1<=1%" and the like; a missed one is no error but an entry of
            the report.
        pictures: the folder of pictures that a .csv or .json names.
        normalise: errors of points: "box", or two points, as "36,45".
        samples: at most so many pictures, spread over all.
        worst: so many of the worst pictures are in the report.
        resamples: draws of the bootstrap.
        fresh: every picture runs anew, also where an earlier evaluation has its result.
        threads, timeout: as in `run`.
        json, junit, html: files for all figures, a test case for each budget, and a
            page with the worst pictures.
        progress: as in `compile`.
    """
    # Imported at the call, so that `import edgec` stays fast.
    from edgec_devices.listing import resolve

    from edgec.compiler.options import path_of
    from edgec.evaluation.tasks import DataOptions
    from edgec.verbs.evaluate import EvaluationRequest, run_evaluation

    request = EvaluationRequest(
        Path(bundle),
        DataOptions(Path(data), path_of(pictures), normalise),
        model=path_of(model),
        on=resolve(on, Path.cwd()),
        budgets=tuple(budgets),
        samples=samples,
        worst=worst,
        resamples=resamples,
        fresh=fresh,
        threads=threads,
        timeout=timeout,
        json=path_of(json),
        junit=path_of(junit),
        html=path_of(html),
    )
    return run_evaluation(request, progress or (lambda text: None))
