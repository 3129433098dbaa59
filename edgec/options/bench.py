"""The options of `edgec bench`, on the command line or in edgec.toml."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgec_devices.measurement import MAX_RUNS
from edgec_devices.options import FilePath, LinkOptions, option
from edgec_runtime.bundle.manifest import MAX_THREADS

from edgec.errors import InputError
from edgec.options.declaration import ProgressOption
from edgec.options.devices import (
    SHARE,
    BundleArgument,
    OnOption,
    ThreadsOption,
)

MAX_REGRESS = 0.05
"""Default limit to a regression: 5 % slower."""
FRAMES = 250
"""Frames of a stream by default."""
MAX_FRAMES = 100_000
FILES = ("json", "junit", "markdown", "trace", "html", "share")
"""The fields of `BenchOptions` that are files to write."""
_SHARE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)\s*")


def share(value: str | float) -> float:
    """Return a limit to a regression, "5%", "0.05" or 0.05, as a part of the whole.

    Raises InputError for anything else, and for a bare 5, which is more likely to mean
    5 % than 500 %.
    """
    match = _SHARE.fullmatch(str(value))
    if match is None:
        raise InputError(
            f'"{value}" is not a percentage', hint="give for example 5% or 0.05"
        )
    number = float(match[1])
    if not match[2] and number >= 1:
        raise InputError(
            f'"{value}" is not a percentage: it could be {value}% or {100 * number:g}%',
            hint=f"write {value}%",
        )
    if match[2]:
        return number / 100
    return number


@dataclass(frozen=True, kw_only=True)
class BenchOptions(
    ProgressOption, LinkOptions, ThreadsOption, OnOption, BundleArgument
):
    """A bundle to bench, the device, and the requirements: the options of `edgec bench`.

    `edgec bench` of the command line fills it from edgec.toml, too. Raises InputError
    for a value out of its range.
    """

    budgets: Sequence[str] = field(
        default=(),
        metadata=option(
            "exit code 1 unless it holds: p95<=33ms, …",
            python='"p95<=33ms" and the like; a missed one is not an error but an entry '
            "of the report",
            flags=("--budget",),
            metavar="EXPR",
            multiple=True,
        ),
    )
    runs: int | None = field(
        default=None, metadata=option("so many timed inferences in all", metavar="N")
    )
    seconds: float | None = field(
        default=None,
        metadata=option(
            "timed inferences for so long in all (default: about 5)", metavar="S"
        ),
    )
    frames: int | None = field(
        default=None,
        metadata=option(
            "also so many as a stream, whose figures budgets can name", metavar="N"
        ),
    )
    source: str | None = field(
        default=None,
        metadata=option(
            "of these frames, as of edgec webcam (default: made ones)", metavar="WHAT"
        ),
    )
    compare: FilePath | None = field(
        default=None,
        metadata=option(
            "with an earlier --json: exit code 1 if it regressed",
            python="the `json` of an earlier run",
            metavar="OLD.json",
        ),
    )
    max_regress: float = field(
        default=MAX_REGRESS,
        metadata=option(
            "how much slower than that is too slow",
            python="how much slower than that is too slow; 0.05 is 5 %",
            metavar="5%",
            parse=share,
        ),
    )
    accept_estimates: bool = field(
        default=False, metadata=option("let estimates satisfy budgets")
    )
    accept_throttling: bool = field(
        default=False,
        metadata=option("let a run pass in which the device throttled"),
    )
    json: FilePath | None = field(
        default=None,
        metadata=option(
            "all figures and samples (docs/bench.schema.json)", metavar="FILE"
        ),
    )
    junit: FilePath | None = field(
        default=None,
        metadata=option("a test case for each verdict, for CI systems", metavar="FILE"),
    )
    markdown: FilePath | None = field(
        default=None,
        metadata=option("what the terminal shows, for CI systems", metavar="FILE"),
    )
    trace: FilePath | None = field(
        default=None,
        metadata=option("for chrome://tracing or ui.perfetto.dev", metavar="FILE"),
    )
    html: FilePath | None = field(
        default=None, metadata=option("a page to look at", metavar="FILE")
    )
    share: FilePath | None = field(default=None, metadata=SHARE)

    def __post_init__(self) -> None:
        """Check every field; raises InputError."""
        # Also for edgec.toml and Python, which have no types of the command line.
        self._check_numbers()
        self._check_stream()
        if not 0 < self.max_regress < 10:
            message = f"{self.max_regress:g} cannot limit a regression"
            raise InputError(
                message, hint="give more than 0 and less than 1000%, for example 5%"
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
                f"cannot run on {self.threads} threads",
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
        if self.streams and self.url.startswith("emulated:"):
            raise InputError(
                "an emulated board is estimated, and runs no stream of frames",
                at=self.url,
                hint="leave out --frames and --source, or --on",
            )
        # A path or a camera means another thing on a device, or nothing.
        if self.source is not None and not self.url.startswith("local:"):
            hint = (
                "leave it out for made frames; edgec webcam --on DEVICE --source … "
                "--json has a camera's figures"
            )
            raise InputError(
                "--source names a camera or file of this machine, and --on another one",
                at=self.url,
                hint=hint,
            )

    @property
    def streams(self) -> int:
        """Return the number of frames of the stream to run; 0 for none."""
        if self.frames:
            return self.frames
        return FRAMES if self.source is not None else 0
