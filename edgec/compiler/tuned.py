"""The schedules of searches that a compile goes by: those that come with edgec, and
those of this person's file.
"""

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
"""What --tuned says for analysis alone."""


def default_path() -> Path:
    """Where `edgec tune` puts what it finds, and a compile looks for it."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "edgec" / "tune.json"


@dataclass(frozen=True)
class TuningDatabases:
    """The schedules that searches found.

    Attributes:
        path: a person's file, if there is one.
        own: the schedules of that file.
        shipped: whether the schedules that edgec comes with count too.
    """

    path: Path | None
    own: Database
    shipped: bool

    @classmethod
    def of(cls, option: str | None) -> TuningDatabases:
        """Read the databases that an option names.

        option: a file, "none", or None for the default file where there is one.

        Raises InputError for a file that cannot be read.
        """
        path = default_path() if option is None else Path(option)
        if option == NONE or (option is None and not path.is_file()):
            return cls(None, Database(), option != NONE)
        return cls(path, Database.load(path), True)

    def cores(self, cores: Sequence[Core]) -> tuple[Core, ...]:
        """Return the cores with the schedules that were found for them.

        A person's own schedule takes the place of a shipped one.
        """
        with_schedules = []
        for core in cores:
            shipped = core.tuned if self.shipped else {}
            schedules = {**shipped, **self.own.of(core.name)}
            with_schedules.append(replace(core, tuned=schedules))
        return tuple(with_schedules)

    def notes(self, sources: Mapping[str, TargetSources]) -> Iterator[str]:
        """Yield what became of a person's schedules in a compile."""
        followed = 0
        illegal = 0
        for made in sources.values():
            for core, segments in made.cores.items():
                own = self.own.of(core.name)
                calls = {signature(c): c for s in segments.values() for _, c in s.asked}
                for name, call in calls.items():
                    if name not in own:
                        continue
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
