"""What `edgec tune` tells at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgec.benching.tuning import TunedCall, Tuning
from edgec.report.tables import table

WORTH_SHOWING = 1.03
"""How many times as fast as the default."""

_SHOWN = 12


def to_text(tuning: Tuning) -> str:
    """Plain text, at most 120 columns."""
    return "\n".join(_lines(tuning))


def _lines(t: Tuning) -> Iterator[str]:
    new = [c for c in t.choices if c.new]
    est = "est. " if t.estimated else ""
    if len(new) < len(t.choices):
        known = f", {len(t.choices) - len(new)} were known"
    else:
        known = ""
    yield (
        f"{t.core} on {t.on}: {sum(c.tried for c in new)} ways tried for {len(new)} "
        f"kinds of calls{known}"
    )
    better = sorted(
        (c for c in t.choices if c.gain > WORTH_SHOWING), key=lambda c: -_saved(c)
    )
    yield (
        f"those calls take {est}{t.default_ms:.3f} ms of an inference by default, "
        f"{est}{t.ms:.3f} ms as found; "
        f"{len(better)} are more than {WORTH_SHOWING - 1:.0%} faster"
    )
    if better:
        yield ""
        yield table(
            ("function", "", "default", "found", "faster", "how"),
            list(map(_row, better[:_SHOWN])),
            "lrrrrl",
        )
    if len(better) > _SHOWN:
        yield f"and {len(better) - _SHOWN} more"
    yield f"\n{t.path} has them all; edgec compile --tuned {t.path} uses it"


def _saved(c: TunedCall) -> float:
    return (c.default_ms - c.ms) * len(c.functions)


def _row(c: TunedCall) -> Sequence[str]:
    times = f"x{len(c.functions)}" if len(c.functions) > 1 else ""
    values = " ".join(f"{k}={n}" for k, n in c.schedule.items())
    figures = f"{1e3 * c.default_ms:.1f} us", f"{1e3 * c.ms:.1f} us", f"{c.gain:.2f}x"
    return (c.functions[0], times, *figures, f"{c.what}: {c.variant} {values}")
