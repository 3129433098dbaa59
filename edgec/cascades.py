"""The verbs whose results for a cascade (docs/cascades.md) are those of several networks.

    from edgec import cascades
    cascades.compile("cascade.toml", "pi4+coral", "faces.edgec").networks

`edgec.compile`, `explain` and `bench` do the same; type checkers know the results of
these. All other verbs of `edgec` take the bundle of a cascade as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgec_devices.device import TIMEOUT_S

from edgec.checking import checked
from edgec.compiler.options import CompileCall, Options, path_of
from edgec.declared import takes

if TYPE_CHECKING:
    from edgec.benching.cascade_report import CascadeBench
    from edgec.compiler.cascade import CompiledCascade
    from edgec.verbs.explain_cascade import ExplainedCascade

__all__ = ["bench", "compile", "explain"]


@takes(CompileCall)
def compile(file: str | Path, options: CompileCall) -> CompiledCascade:
    """Compile the networks of a cascade into one verified bundle.

    Args:
        file: a cascade.toml, or "models:NAME" of a ready one.
    """
    from edgec.catalogue.fetching import local_file
    from edgec.compiler.cascade import compile_cascade

    say = options.progress or _silent
    return compile_cascade(local_file(Path(file), say), options, say)


@takes(Options)
def explain(file: str | Path, options: Options) -> ExplainedCascade:
    """Explain for each operation of each network where it runs, and why.

    Args:
        file: a cascade.toml, or "models:NAME" of a ready one.
    """
    from edgec.catalogue.fetching import local_file
    from edgec.verbs.explain_cascade import explain_cascade

    return explain_cascade(local_file(Path(file)), options)


@checked
def bench(
    bundle: str | Path,
    on: str = "local:",
    *,
    budgets: Sequence[str] = (),
    runs: int | None = None,
    seconds: float | None = None,
    threads: int = 1,
    timeout: float = TIMEOUT_S,
    compare: str | Path | None = None,
    max_regress: float = 0.05,
    accept_estimates: bool = False,
    accept_throttling: bool = False,
    json: str | Path | None = None,
    junit: str | Path | None = None,
    markdown: str | Path | None = None,
    trace: str | Path | None = None,
    html: str | Path | None = None,
    frames: int | None = None,
    source: str | None = None,
) -> CascadeBench:
    """Latencies of each network of a cascade on a device, and frames per second by the
    number of objects.

    Args:
        bundle: the .edgec file of a cascade.
        budgets: "mesh.p95<=9ms" of a network, "fps.1>=25" of all with one object.
        html: a page of the whole; each network's page is beside it.
        on, runs, seconds, threads, timeout, frames, source: as of `edgec.bench`.
        compare, max_regress, accept_estimates, accept_throttling: as of `edgec.bench`.
        json, junit, markdown, trace: as of `edgec.bench`.
    """
    from edgec_devices.listing import resolve

    from edgec.benching.request import Bench
    from edgec.verbs.bench_cascade import run_cascade_bench

    request = Bench(
        Path(bundle),
        resolve(on, Path.cwd()),
        tuple(budgets),
        runs=runs,
        seconds=seconds,
        threads=threads,
        timeout=timeout,
        compare=path_of(compare),
        max_regress=max_regress,
        accept_estimates=accept_estimates,
        accept_throttling=accept_throttling,
        json=path_of(json),
        junit=path_of(junit),
        markdown=path_of(markdown),
        trace=path_of(trace),
        html=path_of(html),
        frames=frames,
        source=source,
    )
    return run_cascade_bench(request)


def _silent(*what: Any) -> None:
    """Take progress of any form, and do nothing."""
