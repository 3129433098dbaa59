"""What `edgec tune` tells at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgec.report.tables import table

WORTH_SHOWING = 1.03
"""How many times as fast as the default."""

_SHOWN = 12


@dataclass(frozen=True)
class Choice:
    """The best way to compute one kind of call. functions: of the bundle, that make such a call. what: its tensors.

    ms, default_ms: of one call, as found and as analysis prefers. tried: ways. new: found by this search.
    """

    functions: tuple[str, ...]
    what: str
    variant: str
    schedule: Mapping[str, int]
    ms: float
    default_ms: float
    tried: int
    new: bool

    @property
    def gain(self) -> float:
        """How many times as fast as the default."""
        return self.default_ms / self.ms if self.ms > 0 else 1.0


@dataclass(frozen=True)
class Tuning:
    """A search that has ended. path: the database. on: the device's URL. core: as the compiler calls it."""

    path: Path
    on: str
    estimated: bool
    core: str
    choices: tuple[Choice, ...]

    @property
    def ms(self) -> float:
        """Of all calls of one inference, as found."""
        return sum(c.ms * len(c.functions) for c in self.choices)

    @property
    def default_ms(self) -> float:
        """Of the same calls as analysis prefers."""
        return sum(c.default_ms * len(c.functions) for c in self.choices)

    def summary(self) -> str:
        """Plain text, at most 120 columns."""
        return "\n".join(_lines(self))


def _lines(t: Tuning) -> Iterator[str]:
    new, est = [c for c in t.choices if c.new], "est. " if t.estimated else ""
    known = f", {len(t.choices) - len(new)} were known" if len(new) < len(t.choices) else ""
    yield f"{t.core} on {t.on}: {sum(c.tried for c in new)} ways tried for {len(new)} kinds of calls{known}"
    better = sorted((c for c in t.choices if c.gain > WORTH_SHOWING), key=lambda c: -_saved(c))
    yield (
        f"those calls take {est}{t.default_ms:.3f} ms of an inference by default, {est}{t.ms:.3f} ms as found; "
        f"{len(better)} are more than {WORTH_SHOWING - 1:.0%} faster"
    )
    if better:
        yield ""
        yield table(("function", "", "default", "found", "faster", "how"), list(map(_row, better[:_SHOWN])), "lrrrrl")
    if len(better) > _SHOWN:
        yield f"and {len(better) - _SHOWN} more"
    yield f"\n{t.path} has them all; edgec compile --tuned {t.path} uses it"


def _saved(c: Choice) -> float:
    return (c.default_ms - c.ms) * len(c.functions)


def _row(c: Choice) -> Sequence[str]:
    times = f"x{len(c.functions)}" if len(c.functions) > 1 else ""
    values = " ".join(f"{k}={n}" for k, n in c.schedule.items())
    figures = f"{1e3 * c.default_ms:.1f} us", f"{1e3 * c.ms:.1f} us", f"{c.gain:.2f}x"
    return (c.functions[0], times, *figures, f"{c.what}: {c.variant} {values}")
