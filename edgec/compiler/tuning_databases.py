"""The schedules of searches: those of edgec itself, and those of a person's file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgec.emit.sources import TargetSources
from edgec.schedule.cores import Core
from edgec.schedule.database import Database
from edgec.schedule.records import signature
from edgec.schedule.variant import tuned

NONE = "none"
"""The value of --tuned for schedules by analysis alone."""


def default_path() -> Path:
    """Return the default file of `edgec tune`, and of a compile without --tuned."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "edgec" / "tune.json"


@dataclass(frozen=True)
class TuningDatabases:
    """The schedules of searches for a compile.

    Attributes:
        path: a person's file, if there is one.
        own: the schedules of this file.
        shipped: whether the schedules of edgec itself count too.
    """

    path: Path | None
    own: Database
    shipped: bool

    @classmethod
    def of(cls, option: str | None) -> TuningDatabases:
        """Read the databases of an option.

        option: a file, "none", or None for the default file where there is one.

        Raises InputError for a file that cannot be read.
        """
        # Only the default file may be missing.
        path = default_path() if option is None else Path(option)
        if option == NONE or (option is None and not path.is_file()):
            return cls(None, Database(), option != NONE)
        return cls(path, Database.load(path), True)

    def cores(self, cores: Sequence[Core]) -> tuple[Core, ...]:
        """Return the cores with the schedules of searches on them."""
        # A person's own schedule is of the very machine, so it replaces a shipped one.
        with_schedules = []
        for core in cores:
            shipped = core.tuned if self.shipped else {}
            schedules = {**shipped, **self.own.of(core.name)}
            with_schedules.append(replace(core, tuned=schedules))
        return tuple(with_schedules)

    def notes(self, sources: Mapping[str, TargetSources]) -> Iterator[str]:
        """Yield the lines on a person's schedules in a compile."""
        followed = 0
        illegal = 0
        for made in sources.values():
            for core, segments in made.cores.items():
                own = self.own.of(core.name)
                # Calls of one signature share a schedule, and are counted once.
                calls = {
                    signature(c): c for s in segments.values() for _, c in s.plain_calls
                }
                for name, call in calls.items():
                    if name not in own:
                        continue
                    # A newer edgec may have other limits for the same kernel.
                    if tuned(call, core) is not None:
                        followed += 1
                    else:
                        illegal += 1
        if followed:
            yield f"tuned: {followed} kinds of calls run as {self.path} says"
        if illegal:
            what = (
                f"{illegal} schedules of {self.path} are no longer "
                "legal and were ignored"
            )
            yield f"note: {what}: edgec tune finds new ones"
