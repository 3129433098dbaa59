"""Holds the request for a bench, from options of `edgec bench` or from edgec.toml."""

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
"""Default limit to a regression: 5 % slower."""
FRAMES = 250
"""Frames of a stream by default."""
MAX_FRAMES = 100_000
FILES = ("json", "junit", "markdown", "trace", "html", "share")
"""The fields of a Bench that are files to write."""
_SHARE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)\s*")


@dataclass(frozen=True)
class Bench:
    """A bundle to bench, the device, and the requirements.

    The fields are the options of `edgec bench`. Raises InputError for a value out of
    its range.

    Attributes:
        bundle: path of the bundle
        on: URL of the device
        budgets: expressions, not yet parsed (see figures.parse_budgets)
        runs: timed inferences in all; None for the default
        seconds: time of the timed inferences in all, s; None for the default
        threads: threads of the CPU
        timeout: time without any progress after which the device is given up, s
        compare: the --json of an earlier run
        max_regress: how much slower than the earlier run is too slow, 0.05 is 5 %
        accept_estimates: whether an estimate may satisfy a budget
        accept_throttling: whether a run that throttled may pass
        json, junit, markdown, trace, html, share: files to write
        frames: frames of a stream that is run too; with a source FRAMES by default
        source: source of the frames on this machine, as of edgec webcam
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
    share: Path | None = None
    frames: int | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        """Check every field; raises InputError."""
        # Also for edgec.toml and Python, which have no types of the command line.
        self._check_numbers()
        self._check_stream()
        if not 0 < self.max_regress < 10:
            what = f"{self.max_regress:g} cannot limit a regression"
            raise InputError(
                what, hint="give more than 0 and less than 1000%, for example 5%"
            )

    def _check_numbers(self) -> None:
        """Check counts and times; raises InputError."""
        if self.runs is not None and not 1 <= self.runs <= MAX_RUNS:
            raise InputError(
                f"cannot time {self.runs} runs", hint=f"give runs from 1 to {MAX_RUNS}"
            )
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise InputError(
                f"cannot time for {self.seconds:g} seconds", hint="give seconds above 0"
            )
        if not 1 <= self.threads <= MAX_THREADS:
            raise InputError(
                f"nothing runs on {self.threads} threads",
                hint=f"give 1 to {MAX_THREADS}",
            )
        # NaN fails this comparison too.
        if not 1 <= self.timeout < math.inf:
            raise InputError(
                f"cannot wait for {self.timeout:g} seconds",
                hint="give a timeout of 1 or more",
            )

    def _check_stream(self) -> None:
        """Check the options of a stream; raises InputError."""
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
        # A path or a camera means another thing on a device, or nothing.
        if self.source is not None and not self.on.startswith("local:"):
            hint = (
                "leave it out for made frames; edgec webcam --on DEVICE --source … "
                "--json has a camera's figures"
            )
            raise InputError("--source is of this machine", at=self.on, hint=hint)

    @property
    def streams(self) -> int:
        """Return the number of frames of the stream to run; 0 for none."""
        if self.frames:
            return self.frames
        return FRAMES if self.source is not None else 0


def share(value: str | float) -> float:
    """Return a limit to a regression, "5%", "0.05" or 0.05, as a part of the whole.

    Raises InputError for anything else, and for a bare 5, which is more likely to mean
    5 % than 500 %.
    """
    match = _SHARE.fullmatch(str(value))
    if match is None:
        raise InputError(
            f'"{value}" is not a share', hint="give for example 5% or 0.05"
        )
    number = float(match[1])
    if not match[2] and number >= 1:
        raise InputError(
            f'"{value}" is not a share: it could be {value}% or {100 * number:g}%',
            hint=f"write {value}%",
        )
    if match[2]:
        return number / 100
    return number
