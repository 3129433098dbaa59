"""The cost model of the Edge TPU: its fits, and how well they predict the times of sources
that they have not seen.

Markdown on the screen. It needs the data folder.

    python -m benchmarks.cost_table [--rows]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from edgec_devices.intervals import EDGETPU_ERROR
from edgec_partitioner import cost

from benchmarks.cost_fit import LINEAR, TimeFit
from benchmarks.cost_sizes import Compiled, compiled, fit_code, sizes
from benchmarks.data_folder import SHARED
from benchmarks.published import edgetpu_rows, published, unused
from benchmarks.tables import markdown

FIELDS = {
    "invoke": "invoke",
    "sent": "per_mb_sent",
    "received": "per_mb_received",
    "streamed": "per_mb_streamed",
}
"""The field of cost.Link of a coefficient."""


def coefficients(
    times: TimeFit, files: Sequence[Compiled]
) -> list[tuple[str, float, float]]:
    """Return the name of each coefficient, its fit, and its value in cost.py."""
    fit = times.all
    rows = []
    for name, x in zip(LINEAR[:-1], fit.linear, strict=False):
        link, what = name.removesuffix(", board").split(" ", 1)
        if what in FIELDS:
            slow = fit.controller if link == "usb2" and what != "invoke" else 1.0
            used = getattr(cost.LINKS[link], FIELDS[what])
            rows.append((f"{link} {what}", float(x) * slow, used))
    per_cycle = cost.PER_MCYCLE
    chip = {
        "moved_byte": fit.moved / per_cycle,
        "dense_byte": float(fit.linear[-1]) / per_cycle,
    }
    rows += [(f"cycles: {name}", chip[name], x) for name, x in cost.CYCLES.items()]
    code = fit_code(files).coefficients
    rows += [
        (f"code: {name}", float(x), used)
        for (name, used), x in zip(cost.CODE.items(), code, strict=True)
    ]
    rows.append(("error of unseen sources", times.rms, EDGETPU_ERROR))
    return rows


def _source_cells(times: TimeFit) -> Iterator[list[str]]:
    """Yield a row for each source and link."""
    for (source, link), errors in sorted(times.groups.items()):
        worst = errors[np.abs(errors).argmax()]
        median, rms = np.median(np.abs(errors)), np.sqrt((errors**2).mean())
        figures = [f"{median:.1%}", f"{rms:.1%}", f"{worst:+.0%}"]
        yield [source, link, str(len(errors)), *figures]


def _row_cells(times: TimeFit) -> Iterator[list[str]]:
    """Yield a row for each published time."""
    errors = times.errors()
    for p, ms, error in zip(times.rows, times.unseen, errors, strict=True):
        place = f"{p.link}, {p.host}, {p.clock} MHz"
        name = p.network.replace("|", "/")
        yield [p.source, name, place, f"{p.ms:.3g}", f"{ms:.3g}", f"{error:+.0%}"]


def main() -> None:
    """Print the tables."""
    times = TimeFit(tuple(published(SHARED)))
    files = compiled(SHARED)
    rows = [[name, f"{x:.4g}", f"{v:.4g}"] for name, x, v in coefficients(times, files)]
    print("## Coefficients\n", *markdown(("", "fitted", "in cost.py"), rows), sep="\n")
    others = [
        [name, f"{x:.4g}"]
        for name, x in zip(LINEAR, times.all.linear, strict=True)
        if "desktop" in name
    ]
    others.append(["USB 2 of a Raspberry Pi", f"{times.all.controller:.2f} x"])
    print("\n## Of other hosts\n", *markdown(("", "fitted"), others), sep="\n")
    print("\n## Published times, each source left out in turn\n")
    heads: Sequence[str] = ("source", "link", "rows", "median", "rms", "worst")
    print("\n".join(markdown(heads, _source_cells(times), texts=2)))
    errors = np.abs(times.errors())
    print(
        f"\nMedian of the {len(times.sources)} sources' medians "
        f"{np.median(times.medians()):.1%}, of all {len(errors)} rows "
        f"{np.median(errors):.1%}; root mean square {times.rms:.1%}, "
        "each source counting the same"
    )
    print("\n## Rows that are not used\n")
    counts = Counter(why for row in edgetpu_rows(SHARED) if (why := unused(row)))
    rows = [[why, str(count)] for why, count in counts.most_common()]
    print("\n".join(markdown(("why", "rows"), rows)))
    print("\n## Sizes estimated from a graph, each source left out in turn: factors\n")
    heads = ("", "files", "half", "three in four", "nine in ten")
    rows = [[name, str(n), *(f"{x:.2f}" for x in f)] for name, n, f in sizes(files)]
    print("\n".join(markdown(heads, rows)))
    if "--rows" in sys.argv[1:]:
        print("\n## Each time\n")
        heads = ("source", "network", "place", "ms", "predicted", "error")
        print("\n".join(markdown(heads, _row_cells(times), texts=3)))


if __name__ == "__main__":
    main()
