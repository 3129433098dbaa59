"""One bench as it is asked for: by options of `edgec bench`, or by an entry of
edgec.toml.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from edgec_devices.device import TIMEOUT_S
from edgec_devices.measurement import MAX_RUNS
from edgec_runtime.bundle.manifest import MAX_THREADS

from edgec.errors import InputError

MAX_REGRESS = 0.05
FRAMES = 250
MAX_FRAMES = 100_000
FILES = ("json", "junit", "markdown", "trace", "html")
"""The fields of a Bench that are files to write."""
_SHARE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)\s*")


@dataclass(frozen=True)
class Bench:
    """What to bench, where, and what must hold; the fields are the options of `edgec
    bench`.

    on: a URL. budgets: expressions, not yet read (figures.parse_budgets). runs,
    seconds: of timed inferences in all; None: as many as the defaults say. timeout:
    seconds for which nothing may move on the way to the device. compare: the --json of
    an earlier run. max_regress: how much slower than that is too slow, 0.05 is 5 %.
    accept_estimates: an estimate may satisfy a budget. accept_throttling: a run that
    throttled may pass. json, junit, markdown, trace, html: files to write.

    threads: of the CPU. frames: so many as a stream too; with a source alone FRAMES.
    source: of these, on this machine, as of edgec webcam.

    Raises InputError for a value out of its range.
    """

    bundle: Path
    on: str = "local:"
    budgets: tuple[str, ...] = ()
    runs: int | None = None
    seconds: float | None = None
    threads: int = 1
    timeout: float = TIMEOUT_S
    compare: Path | None = None
    max_regress: float = MAX_REGRESS
    accept_estimates: bool = False
    accept_throttling: bool = False
    json: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None
    trace: Path | None = None
    html: Path | None = None
    frames: int | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if self.runs is not None and not 1 <= self.runs <= MAX_RUNS:
            raise InputError(
                f"cannot time {self.runs} runs", hint=f"give runs from 1 to {MAX_RUNS}"
            )
        if self.seconds is not None and not (
            math.isfinite(self.seconds) and self.seconds > 0
        ):
            raise InputError(
                f"cannot time for {self.seconds:g} seconds", hint="give seconds above 0"
            )
        if not 1 <= self.threads <= MAX_THREADS:
            raise InputError(
                f"nothing runs on {self.threads} threads",
                hint=f"give 1 to {MAX_THREADS}",
            )
        if not (math.isfinite(self.timeout) and self.timeout >= 1):
            raise InputError(
                f"cannot wait for {self.timeout:g} seconds",
                hint="give a timeout of 1 or more",
            )
        if self.frames is not None and not 2 <= self.frames <= MAX_FRAMES:
            raise InputError(
                f"cannot time a stream of {self.frames} frames",
                hint=f"give 2 to {MAX_FRAMES}",
            )
        if self.streams and self.on.startswith("emulated:"):
            raise InputError(
                "an estimate has no stream",
                at=self.on,
                hint="leave out --frames and --source, or --on",
            )
        if self.source is not None and not self.on.startswith("local:"):
            hint = (
                "leave it out for made frames; edgec webcam --on DEVICE --source … "
                "--json has a camera's figures"
            )
            raise InputError("--source is of this machine", at=self.on, hint=hint)
        if not 0 < self.max_regress < 10:
            what = f"{self.max_regress:g} is no limit to a regression"
            raise InputError(
                what, hint="give more than 0 and less than 1000%, for example 5%"
            )

    @property
    def streams(self) -> int:
        """How many frames of a stream are wanted."""
        return self.frames or (FRAMES if self.source is not None else 0)


def share(value: str | float) -> float:
    """A limit to a regression as people write it, "5%", "0.05" or 0.05, as a part of
    the whole.

    Raises InputError for anything else, and for a bare 5, which is more likely to mean
    5 % than 500 %.
    """
    match = _SHARE.fullmatch(str(value))
    if match is None:
        raise InputError(f'"{value}" is no share', hint="give for example 5% or 0.05")
    number = float(match[1])
    if not match[2] and number >= 1:
        raise InputError(
            f'"{value}" is no share: it could be {value}% or {100 * number:g}%',
            hint=f"write {value}%",
        )
    return number / 100 if match[2] else number
