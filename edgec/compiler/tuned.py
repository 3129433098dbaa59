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
    """path: of a person's file, if there is one. own: what it has. shipped: whether
    edgec's own count too.
    """

    path: Path | None
    own: Database
    shipped: bool

    @classmethod
    def of(cls, option: str | None) -> TuningDatabases:
        """option: a file, "none", or None for the default file where there is one.

        Raises InputError.
        """
        path = default_path() if option is None else Path(option)
        if option == NONE or (option is None and not path.is_file()):
            return cls(None, Database(), option != NONE)
        return cls(path, Database.load(path), True)

    def cores(self, cores: Sequence[Core]) -> tuple[Core, ...]:
        """The same with what searches found."""
        return tuple(
            replace(
                c, tuned={**(c.tuned if self.shipped else {}), **self.own.of(c.name)}
            )
            for c in cores
        )

    def told(self, sources: Mapping[str, TargetSources]) -> Iterator[str]:
        """What there is to say of a person's file after a compile."""
        known = [
            tuned(call, core) is not None
            for made in sources.values()
            for core, segments in made.cores.items()
            for call in {
                signature(c): c for s in segments.values() for _, c in s.asked
            }.values()
            if signature(call) in self.own.of(core.name)
        ]
        if sum(known):
            yield f"tuned: {sum(known)} kinds of calls run as {self.path} says"
        if len(known) > sum(known):
            what = (
                f"{len(known) - sum(known)} schedules of {self.path} are no longer "
                "legal and were ignored"
            )
            yield f"note: {what}: edgec tune finds new ones"
