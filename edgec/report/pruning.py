"""What pruning gained, or that it gains nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgec.quantize.pruning import Pruned, Pruning
from edgec.report.tables import table
from edgec.report.wording import count, percent


def taken_out(pruned: Pruned, here: Sequence[float]) -> Iterator[str]:
    """A verdict, and the ways that were tried. here: ms before and after, measured on
    this machine; or none.
    """
    before = pruned.before
    kept = pruned.kept
    most = pruned.most
    where = f"on {pruned.samples} sample{'s' * (pruned.samples != 1)} held back"
    if kept is None:
        if most is not None:
            why = "what may go is no faster without"
        else:
            why = "every channel says more than may be lost"
        yield f"pruning: no gain: {why}, {where}"
    else:
        saved = 1 - kept.price.ms / before.price.ms
        yield (
            f"pruning: {kept.channels} of {kept.of} channels taken out, "
            f"{saved:.1%} "
            f"less time estimated, {where}:"
        )
    if here:
        yield (
            f"measured on this machine, int8: {here[0]:.3g} ms before, "
            f"{here[1]:.3g} ms after"
        )
    rows = {"before": before, "all that may go": most, "kept": kept}
    yield table(
        ("", "channels", "MACs", "ms", "SQNR", "top-1"),
        [_row(name, p) for name, p in rows.items() if p is not None],
        "lrrrrr",
    )


def _row(name: str, p: Pruning) -> tuple[str, ...]:
    tops = [a.top1 for a in p.outputs.values() if a.top1 is not None]
    ratio = min(a.sqnr_db for a in p.outputs.values())
    top1 = percent(min(tops)) if tops else ""
    return (
        name,
        str(p.of - p.channels),
        count(p.macs),
        f"{p.price.ms:.2f}",
        f"{ratio:.1f}",
        top1,
    )
