"""How far a long run of seeded cases is, kept in a file: it goes on where it was ended;
what failed runs first.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_SAVED_S = 20.0
"""Between two writings of the file, and two lines on the screen."""


@dataclass
class Progress:
    """next: the first case that did not run. failed: the cases that ended wrongly, and
    how. ends: how many ended how; reached: whatever else is counted.

    To run the same seed from its start again, remove the file.
    """

    path: Path
    next: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    reached: Counter[str] = field(default_factory=Counter)
    run: int = 0
    """Cases that this process ran."""

    @classmethod
    def at(cls, path: Path) -> Progress:
        """As the file says; a new one where there is none."""
        if not path.exists():
            return cls(path)
        kept = json.loads(path.read_text())
        failed = {int(case): why for case, why in kept["failed"].items()}
        return cls(
            path,
            kept["next"],
            failed,
            Counter(kept["ends"]),
            kept["slowest"],
            Counter(kept["reached"]),
        )

    def cases(self, total: int) -> Iterator[int]:
        """Those that failed, again, then the others up to `total`; the file is written
        while they run.
        """
        if self.next:
            again = f", the {len(self.failed)} that failed again" if self.failed else ""
            print(
                f"cases 0 to {self.next - 1} were run before (in {self.path}){again}",
                file=sys.stderr,
            )
        last = time.monotonic()
        began = last
        for case in [*self.failed, *range(self.next, total)]:
            if case in self.failed:
                self.ends[self.failed.pop(case)] -= 1
            yield case
            self.run, self.next = self.run + 1, max(self.next, case + 1)
            if time.monotonic() - last > _SAVED_S:
                last = time.monotonic()
                self.save()
                rate = self.run / (last - began)
                print(
                    f"{self.next} of {total}, {len(self.failed)} failed, {rate:.1f}/s",
                    file=sys.stderr,
                    flush=True,
                )
        self.save()

    def ended(self, case: int, how: str, failed: bool, seconds: float = 0.0) -> None:
        """How a case ended."""
        self.ends[how] += 1
        self.slowest = max(self.slowest, seconds)
        if failed:
            self.failed[case] = how

    def save(self) -> None:
        """The file, whole at any time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        kept = {
            "next": self.next,
            "failed": self.failed,
            "ends": +self.ends,
            "slowest": self.slowest,
            "reached": self.reached,
        }
        new.write_text(json.dumps(kept, indent=1) + "\n")
        new.replace(self.path)
