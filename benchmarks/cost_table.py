"""The cost model of the Edge TPU: its fits, how well they predict what they were not fitted
to, and published times.

Markdown on the screen. It needs the data folder.

    python -m benchmarks.cost_table
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgec_partitioner import cost

from benchmarks.cost_fit import (
    TIMES,
    Compiled,
    TimeFit,
    compiled,
    fit_code,
    fit_cycles,
    fit_layout,
    fit_times,
)
from benchmarks.data_folder import SHARED
from benchmarks.published import Prediction, predictions
from benchmarks.tables import markdown

LINK_FIELDS = ("invoke", "per_mb_in", "per_mb_out", "per_mb_sent")


def coefficients(
    times: TimeFit, files: Sequence[Compiled]
) -> list[tuple[str, float, float]]:
    """Return the name of each coefficient, its fit, and its value in cost.py."""
    rows = []
    for link in TIMES:
        values = cost.LINKS[link.removesuffix("_ms")]
        for name, x in zip(LINK_FIELDS, times.link(link), strict=True):
            rows.append((f"{link} {name}", float(x), float(getattr(values, name))))
    cycle, parameter = times.fitted.coefficients[-2:]
    rows.append(("ms per Mcycle", float(cycle), cost.PER_MCYCLE))
    rows.append(("ms per MB cached", float(parameter), cost.PER_MB_PARAMETERS))
    for kind, fit, table in (
        ("cycles", fit_cycles(files), cost.CYCLES),
        ("code", fit_code(files), cost.CODE),
        ("layout", fit_layout(files), cost.LAYOUT),
    ):
        for (name, value), x in zip(table.items(), fit.coefficients, strict=True):
            rows.append((f"{kind}: {name}", float(x), value))
    return rows


def sizes(files: Sequence[Compiled]) -> list[tuple[str, int, list[float]]]:
    """Return for each size that is estimated from a graph the number of files, and the
    factors within which half, three in four and nine in ten estimates are.
    """
    fits = {
        "cycles": fit_cycles(files),
        "instruction bytes": fit_code(files),
        "parameter bytes": fit_layout(files),
    }
    quantiles = (0.5, 0.75, 0.9)
    return [(name, len(f.truth), f.factors(*quantiles)) for name, f in fits.items()]


def _time_cells(times: TimeFit) -> Iterator[list[str]]:
    f = times.fitted
    columns = (times.names, times.links, f.truth, f.estimate, f.held_out)
    for model, link, ms, estimate, left_out in zip(*columns, strict=True):
        name = [model.split("/")[-1], link.removesuffix("_ms")]
        figures = [f"{x:.3f}" for x in (ms, estimate, left_out)]
        yield [*name, *figures, f"{left_out / ms - 1:+.1%}"]


def _prediction_cells(p: Prediction) -> list[str]:
    parts = ", ".join(f"{name} {ms:.1f}" for name, ms in p.parts.items() if ms >= 0.05)
    times = [f"{p.published:g}", f"{p.predicted:.1f}", f"{p.error:+.0%}"]
    return [p.network, p.place, parts, *times]


def main() -> None:
    """Print the tables."""
    times = fit_times(SHARED)
    files = compiled(SHARED)
    rows = [[name, f"{x:.4g}", f"{v:.4g}"] for name, x, v in coefficients(times, files)]
    print("## Coefficients\n", *markdown(("", "fitted", "in cost.py"), rows), sep="\n")
    print("\n## Published times, each model left out in turn\n")
    heads: Sequence[str] = ("model", "link", "ms", "estimate", "left out", "error")
    print("\n".join(markdown(heads, _time_cells(times), texts=2)))
    for link in TIMES:
        near, count = times.count(link)
        print(f"\n{link.removesuffix('_ms')}: {near} of {count} within 10 %")
    print("\n## Sizes estimated from a graph, each source left out in turn: factors\n")
    heads = ("", "files", "half", "three in four", "nine in ten")
    rows = [[name, str(n), *(f"{x:.2f}" for x in f)] for name, n, f in sizes(files)]
    print("\n".join(markdown(heads, rows)))
    print("\n## Published times on boards\n")
    heads = ("network", "place", "parts, ms", "ms", "predicted", "error")
    print("\n".join(markdown(heads, map(_prediction_cells, predictions()), texts=3)))


if __name__ == "__main__":
    main()
