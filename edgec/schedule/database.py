"""What searches found: for a core and a call, by its signature, the best schedule
(docs/tune.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from edgec_runtime.device_end.disk import given

from edgec.errors import InputError

_LARGEST = 64 << 20  # bytes of such a file
FORMAT = "edgec-tune/1"
SHIPPED = Path(__file__).parent / "tuned"
"""A file for each core that analysis is wrong about somewhere."""


@dataclass(frozen=True)
class TunedSchedule:
    """The best way to compute a call. ms, default_ms: of it, and of what analysis
    prefers. what: the call, for people.

    tried: how many ways there were. device: the URL that it was found on, by which
    edgec. estimated: not measured.
    """

    variant: str
    schedule: Mapping[str, int]
    ms: float
    default_ms: float
    tried: int
    device: str
    estimated: bool
    edgec: str
    what: str = ""


Table = Mapping[str, TunedSchedule]
"""By signature."""


@dataclass(frozen=True)
class Database:
    """By the name of a core, then by signature."""

    format: str = FORMAT
    cores: Mapping[str, Table] = field(default_factory=dict)

    def of(self, core: str) -> Table:
        """What is known of a core."""
        return self.cores.get(core, {})

    def with_entry(self, core: str, signature: str, found: TunedSchedule) -> Database:
        """One more, in place of what was known."""
        return Database(
            self.format, {**self.cores, core: {**self.of(core), signature: found}}
        )

    def to_json(self) -> dict[str, Any]:
        """The file."""
        cores = {
            name: dict(sorted(table.items()))
            for name, table in sorted(self.cores.items())
        }
        return asdict(Database(self.format, cores))

    @classmethod
    def load(cls, path: Path) -> Database:
        """Raises InputError for a file that cannot be read, or is none."""
        hint = "edgec tune writes such files; remove it to begin a new one"
        try:
            read = msgspec.json.decode(given(path, _LARGEST), type=cls)
        except OSError as e:
            raise InputError(
                f"cannot read what was tuned: {e.strerror}",
                at=str(path),
                hint="check the path",
            ) from e
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise InputError(
                f"the database of schedules is damaged: {e}", at=str(path), hint=hint
            ) from e
        figures = [
            ms
            for table in read.cores.values()
            for f in table.values()
            for ms in (f.ms, f.default_ms)
        ]
        if read.format != FORMAT or not all(
            math.isfinite(ms) and ms >= 0 for ms in figures
        ):
            raise InputError(
                f"the file is no database of schedules ({FORMAT})",
                at=str(path),
                hint=hint,
            )
        return read


@cache
def shipped(core: str) -> Table:
    """What comes with edgec."""
    path = SHIPPED / f"{core}.json"
    return Database.load(path).of(core) if path.is_file() else {}
