"""The cost model of the Edge TPU: its fits, how well they predict what they have not
seen, and published times.

Markdown on the screen, build/cost-table.json. Needs the data folder (EDGEC_SHARED,
default ../shared).

    python -m benchmarks.cost_table
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

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
from benchmarks.published import Prediction, predictions

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
LINK_FIELDS = ("invoke", "per_mb_in", "per_mb_out", "per_mb_sent")


def coefficients(
    times: TimeFit, files: Sequence[Compiled]
) -> list[tuple[str, float, float]]:
    """Name, what the fit gives, and what cost.py has."""
    rows = [
        (
            f"{link} {name}",
            float(x),
            float(getattr(cost.LINKS[link.removesuffix("_ms")], name)),
        )
        for link in TIMES
        for name, x in zip(LINK_FIELDS, times.link(link), strict=True)
    ]
    cycle, parameter = times.fitted.coefficients[-2:]
    rows += [
        ("ms per Mcycle", float(cycle), cost.PER_MCYCLE),
        ("ms per MB cached", float(parameter), cost.PER_MB_PARAMETERS),
    ]
    for what, fitted, table in (
        ("cycles", fit_cycles(files), cost.CYCLES),
        ("code", fit_code(files), cost.CODE),
        ("layout", fit_layout(files), cost.LAYOUT),
    ):
        rows += [
            (f"{what}: {n}", float(x), v)
            for (n, v), x in zip(table.items(), fitted.coefficients, strict=True)
        ]
    return rows


def sizes(files: Sequence[Compiled]) -> list[tuple[str, int, list[float]]]:
    """What is estimated from a graph, files, and the factor by which half, three in
    four and nine in ten are off.
    """
    fits = (
        ("cycles", fit_cycles(files)),
        ("instruction bytes", fit_code(files)),
        ("parameter bytes", fit_layout(files)),
    )
    return [(name, len(f.truth), f.factors(0.5, 0.75, 0.9)) for name, f in fits]


def main() -> None:
    times = fit_times(SHARED)
    files = compiled(SHARED)
    known = coefficients(times, files)
    _print(
        "Coefficients",
        ("", "fitted", "in cost.py"),
        ((n, f"{x:.4g}", f"{v:.4g}") for n, x, v in known),
    )
    _print(
        "Published times, each model left out in turn",
        ("model", "link", "ms", "estimate", "left out", "error"),
        (
            (
                n.split("/")[-1],
                link.removesuffix("_ms"),
                f"{t:.3f}",
                f"{e:.3f}",
                f"{h:.3f}",
                f"{h / t - 1:+.1%}",
            )
            for n, link, t, e, h in _points(times)
        ),
    )
    for link in TIMES:
        good, count = times.count(link)
        print(f"{link.removesuffix('_ms')}: {good} of {count} within 10 %\n")
    _print(
        "Sizes estimated from a graph, cross-validated: off by a factor of at most",
        ("", "files", "half", "three in four", "nine in ten"),
        ((n, str(k), *(f"{x:.2f}" for x in q)) for n, k, q in sizes(files)),
    )
    found = predictions()
    _print(
        "Published figures of boards",
        ("network", "where", "ms", "predicted", "error", "parts"),
        map(_row, found),
    )
    path = ROOT / "build" / "cost-table.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(_json(times, known, files, found), indent=1) + "\n")
    print(f"written to {path.relative_to(ROOT)}")


def _points(times: TimeFit) -> Iterable[tuple[str, str, float, float, float]]:
    f = times.fitted
    return zip(
        times.names,
        times.links,
        *(map(float, v) for v in (f.truth, f.estimate, f.held_out)),
        strict=True,
    )


def _row(p: Prediction) -> tuple[str, ...]:
    parts = ", ".join(f"{name} {ms:.1f}" for name, ms in p.parts.items() if ms >= 0.05)
    return (
        p.what,
        p.where,
        f"{p.published:g}",
        f"{p.predicted:.1f}",
        f"{p.error:+.0%}",
        parts,
    )


def _json(
    times: TimeFit,
    known: Sequence[tuple[str, float, float]],
    files: Sequence[Compiled],
    found: Iterable[Prediction],
) -> dict[str, Any]:
    return {
        "coefficients": {n: {"fitted": x, "used": v} for n, x, v in known},
        "points": [
            {"model": n, "link": link, "ms": t, "estimate": e, "left_out": h}
            for n, link, t, e, h in _points(times)
        ],
        "within_10_percent": {link: times.count(link) for link in TIMES},
        "sizes": {n: {"files": k, "factors": q} for n, k, q in sizes(files)},
        "published": [
            {
                "network": p.what,
                "where": p.where,
                "ms": p.published,
                "predicted": p.predicted,
                "parts": p.parts,
            }
            for p in found
        ],
    }


def _print(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"## {title}\n")
    for line in (header, ["---"] * len(header), *rows):
        print(f"| {' | '.join(line)} |")
    print()


if __name__ == "__main__":
    main()
