"""Shows the gain of channel pruning, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgec.quantize.float_ops.pruning import Pruned, Pruning
from edgec.report.tables import table
from edgec.report.wording import count, percent


def taken_out(pruned: Pruned, here: Sequence[float]) -> Iterator[str]:
    """Yield the verdict, and a table of the variants that were compared.

    `here` is the latency before and after, measured on this machine (ms), or empty.
    """
    plural = "s" if pruned.samples != 1 else ""
    where = f"on {pruned.samples} sample{plural} held back"
    if pruned.kept is None:
        if pruned.most is not None:
            why = "what may go is no faster without"
        else:
            why = "every channel says more than may be lost"
        yield f"pruning: no gain: {why}, {where}"
    else:
        pruning = pruned.kept
        saved = 1 - pruning.price.ms / pruned.before.price.ms
        yield (
            f"pruning: {pruning.channels} of {pruning.of} channels taken out, "
            f"{saved:.1%} "
            f"less time estimated, {where}:"
        )

    if here:
        yield (
            f"measured on this machine, int8: {here[0]:.3g} ms before, "
            f"{here[1]:.3g} ms after"
        )

    variants = {
        "before": pruned.before,
        "all that may go": pruned.most,
        "kept": pruned.kept,
    }
    # A variant that was not reached has no row.
    rows = [_row(name, p) for name, p in variants.items() if p is not None]
    yield table(("", "channels", "MACs", "ms", "SQNR", "top-1"), rows, "lrrrrr")


def _row(name: str, pruning: Pruning) -> tuple[str, ...]:
    """Return a row of the table; SQNR and top-1 are of the worst output."""
    agreements = pruning.outputs.values()
    # The worst output, since pruning must not ruin one for the others.
    ratio = min(a.sqnr_db for a in agreements)

    shares = [a.top1 for a in agreements if a.top1 is not None]
    top1 = percent(min(shares)) if shares else ""
    return (
        name,
        str(pruning.of - pruning.channels),
        count(pruning.macs),
        f"{pruning.price.ms:.2f}",
        f"{ratio:.1f}",
        top1,
    )
