"""The schedules that searches found: the best one for a core and a call (docs/tune.md)."""

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

MAX_FILE_BYTES = 64 << 20
"""A larger file is no database."""
FORMAT = "edgec-tune/1"
"""Name and version of the format of the files."""
SHIPPED = Path(__file__).parent / "tuned"
"""A file for each core for which the estimates are wrong somewhere."""


@dataclass(frozen=True)
class TunedSchedule:
    """The best way to compute a call.

    Attributes:
        variant: the kernel variant
        schedule: its parameters
        ms: the time that it takes
        default_ms: the time of the schedule that the estimate prefers
        tried: how many schedules the search tried
        device: URL of the device that it ran on
        estimated: whether the times are estimates rather than measurements
        edgec: the version of edgec that found it
        what: the call, for people
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
"""Schedules by the signature of their calls."""


@dataclass(frozen=True)
class Database:
    """A file of schedules.

    Attributes:
        format: `FORMAT`
        cores: tables by the names of cores
    """

    format: str = FORMAT
    cores: Mapping[str, Table] = field(default_factory=dict)

    def of(self, core: str) -> Table:
        """Return the table of a core."""
        return self.cores.get(core, {})

    def with_entry(self, core: str, signature: str, tuned: TunedSchedule) -> Database:
        """Return the database with one more schedule, which replaces a former one."""
        table = {**self.of(core), signature: tuned}
        return Database(self.format, {**self.cores, core: table})

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        # Sorted, so that a search changes few lines of a file under version control.
        cores: dict[str, Table] = {}
        for name, table in sorted(self.cores.items()):
            entries = sorted(table.items())
            cores[name] = dict(entries)
        return asdict(Database(self.format, cores))

    @classmethod
    def load(cls, path: Path) -> Database:
        """Read a file.

        Raises:
            InputError: the file cannot be read, or is no database
        """
        hint = "edgec tune writes such files; remove it to begin a new one"
        try:
            database = msgspec.json.decode(given(path, MAX_FILE_BYTES), type=cls)
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
        if database.format != FORMAT or not database._has_valid_times():
            raise InputError(
                f"the file is not a database of schedules ({FORMAT})",
                at=str(path),
                hint=hint,
            )
        return database

    def _has_valid_times(self) -> bool:
        """Return whether all times are finite and not negative."""
        times: list[float] = []
        for table in self.cores.values():
            for entry in table.values():
                times.append(entry.ms)
                times.append(entry.default_ms)

        # JSON has no NaN, but a large number becomes infinite.
        return all(math.isfinite(ms) and ms >= 0 for ms in times)


@cache
def shipped(core: str) -> Table:
    """Return the schedules of a core that come with edgec."""
    path = SHIPPED / f"{core}.json"
    return Database.load(path).of(core) if path.is_file() else {}
