"""What a bench on a device gives: raw times of the device's own monotonic clock, or an
estimate of an absent board.

A program (csrc/main.c or edgec_runtime's __main__) is launched several times; each
launch reports all its inferences in order. What is made of these numbers is not decided
here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from edgec_runtime import Bundle, DeviceError, InputError
from edgec_runtime.session.meters import StreamFigures
from msgspec import Meta, Struct, convert

from edgec_devices.decoding import from_json

MAX_RUNS = 1_000_000
MOST_RUNS = 250_000
"""Of one launch; main.c has room for that many numbers, and stops when it is full."""
WARMUP_S = 0.3
_MESSAGE = re.compile(r"^error: (?P<what>.+)(\n  at: .+)?\n  hint: (?P<hint>.+)", re.M)


@dataclass(frozen=True)
class MeasuringPlan:
    """How much to measure. rounds: launches. runs, seconds: of each launch; it ends
    with what comes first, but not before three runs. warmup: seconds, at least one
    inference. profiled: inferences of each launch, after the runs, with times per op.
    threads: of the CPU. frames: so many as a stream, after all that; 0: none. source:
    of these, as of a webcam; None: made ones.
    """

    rounds: int = 10
    runs: int = 20_000
    seconds: float | None = 0.5
    warmup: float = WARMUP_S
    profiled: int = 3
    threads: int = 1
    frames: int = 0
    source: str | None = None

    @staticmethod
    def of(
        runs: int | None = None, seconds: float | None = None, threads: int = 1
    ) -> MeasuringPlan:
        """So many runs, or seconds, in all; the defaults where neither is given.

        Raises InputError.
        """
        plan = MeasuringPlan(threads=threads)
        if runs is not None and not 1 <= runs <= MAX_RUNS:
            raise InputError(
                f"cannot time {runs} runs", hint=f"give runs from 1 to {MAX_RUNS}"
            )
        if runs is None:
            if seconds is None:
                return plan
            return replace(plan, runs=MOST_RUNS, seconds=seconds / plan.rounds)
        rounds = min(plan.rounds, max(1, runs // 3))
        each = None if seconds is None else seconds / rounds
        return replace(plan, rounds=rounds, runs=-(-runs // rounds), seconds=each)

    def options(self, runs: bool = True, profile: bool = True) -> tuple[str, ...]:
        """Of the program, for one launch.  runs, profile: whether to time runs, and
        ops.  Without runs, ops alone are timed: as many of them as in all launches.
        """
        times = (
            "--warmup",
            str(self.warmup),
            *(() if self.seconds is None else ("--seconds", str(self.seconds))),
        )
        times += on_threads(self.threads)
        if not runs:
            return (
                "--runs",
                "0",
                "--profile",
                str(self.profiled * self.rounds),
                *times,
            )
        return (
            "--runs",
            str(self.runs),
            *times,
            *(("--profile", str(self.profiled)) if profile else ()),
        )


def on_threads(threads: int) -> tuple[str, ...]:
    """Options of the program, for so many."""
    return ("--threads", str(threads)) if threads > 1 else ()


@dataclass(frozen=True)
class OpProfile:
    """Inferences with times per op, alternating with plain ones. ns. plain, total: of
    whole inferences, by run. at: when each profiled one began. ops: by segment, op and
    run; no ops for a segment that did not run as C.
    """

    plain: tuple[int, ...]
    at: tuple[int, ...]
    total: tuple[int, ...]
    ops: tuple[tuple[tuple[int, ...], ...], ...]


Count = Annotated[int, Meta(ge=0, le=2**62)]


class _Timed(Struct):
    """A segment of a program's --json."""

    ns: tuple[Count, ...]
    backend: str = "c"


class _Profile(Struct):
    """The profile there."""

    plain: tuple[Count, ...]
    at: tuple[Count, ...]
    total: tuple[Count, ...]
    ops: tuple[tuple[tuple[Count, ...], ...], ...]

    def __post_init__(self) -> None:
        if {
            len(self.plain),
            len(self.at),
            *(len(op) for s in self.ops for op in s),
        } != {len(self.total)}:
            raise ValueError("the profile's series are not of one length")


class _Report(Struct):
    """What a Launch is made of, as the program has it."""

    segments: tuple[_Timed, ...]
    warmup: Count
    at: tuple[Count, ...]
    total: tuple[Count, ...]
    load: Count | None = None
    rss: Count | None = None
    waited: tuple[Count, ...] = ()
    yardstick: tuple[Count, ...] = ()
    profile: _Profile | None = None


class Latencies(Struct):
    """What `flash --health` looks at of a program's --json, ns."""

    warmup: Count
    total: tuple[Count, ...]


@dataclass(frozen=True)
class Launch:
    """One start of the program, ns.

    backends: what ran each segment. load: from before it was started until its first
    inference could begin, None where nobody looked. at: when each inference began.
    total: how long it took. segments: by segment and inference. warmup: how many of
    them, the first of all included, only warm up. waited: how long of each its thread
    waited for a processor that others had; none where nobody knows. rss: bytes, the
    highest resident size. yardstick: a fixed loop of main.c, timed now and then.
    vitals: as edgec_runtime.device_end.vitals has them.
    """

    backends: tuple[str, ...]
    load: int | None
    warmup: int
    at: tuple[int, ...]
    total: tuple[int, ...]
    segments: tuple[tuple[int, ...], ...]
    rss: int | None
    waited: tuple[int, ...] = ()
    yardstick: tuple[int, ...] = ()
    profile: OpProfile | None = None
    vitals: Mapping[str, Any] | None = None

    @staticmethod
    def parse(report: Mapping[str, Any], segments: int, at: str) -> Launch:
        """A program's --json. at: the device, for messages.

        Raises DeviceError when it is not of that form.
        """
        try:
            seen: _Report = convert(report, _Report)
        except ValueError as e:
            raise DeviceError(
                f"the program's report is strange: {e}",
                at=at,
                hint="compile the model again",
            ) from e
        p = seen.profile
        launch = Launch(
            backends=tuple(s.backend for s in seen.segments),
            load=seen.load,
            warmup=seen.warmup,
            at=seen.at,
            total=seen.total,
            segments=tuple(s.ns for s in seen.segments),
            rss=seen.rss or None,
            waited=seen.waited,
            yardstick=seen.yardstick,
            profile=None if p is None else OpProfile(p.plain, p.at, p.total, p.ops),
        )
        runs = len(launch.total)
        lengths = {
            len(launch.at),
            *map(len, launch.segments),
            *([len(launch.waited)] if launch.waited else []),
        }
        if len(launch.segments) != segments or lengths != {runs}:
            raise DeviceError(
                "the program's report does not fit the bundle",
                at=at,
                hint="compile the model again",
            )
        return launch

    def seen_with(self, vitals: Mapping[str, Any] | None) -> Launch:
        """The same, with what was read of the device meanwhile."""
        return replace(self, vitals=vitals)


@dataclass(frozen=True)
class OpEstimate:
    """ms of one op of a segment's C; how: for example "1204 instructions, 903 cycles"."""

    ms: float
    how: str


@dataclass(frozen=True)
class SegmentEstimate:
    """ms is None where there is no estimate; how says why, or where it is from."""

    ms: float | None
    how: str
    ops: tuple[OpEstimate, ...] = ()


@dataclass(frozen=True)
class Identity:
    """Of the device that ran it, "" where unknown. board: as its profile or its device
    tree names it. cpu: its cores. target: kind of code. emulated: an emulator of any
    kind executes it.
    """

    url: str
    board: str
    cpu: str
    os: str
    kernel: str
    target: str
    emulated: bool


@dataclass(frozen=True)
class Measurement:
    """Launches on a device; or, where there is no such hardware, estimates.

    runner: "program" or "session". backends: what ran each segment. between_ms: of an
    estimate, outside of segments. stream: of the plan's frames.
    """

    device: Identity
    runner: str
    backends: tuple[str, ...]
    launches: tuple[Launch, ...] = ()
    estimates: tuple[SegmentEstimate, ...] = ()
    between_ms: float = 0.0
    notes: tuple[str, ...] = ()
    stream: StreamFigures | None = None

    @property
    def timed(self) -> tuple[Launch, ...]:
        """The launches with runs."""
        return tuple(one for one in self.launches if len(one.total) > one.warmup)

    @property
    def profiles(self) -> tuple[OpProfile, ...]:
        """Times per op, launch by launch."""
        return tuple(one.profile for one in self.launches if one.profile is not None)


def program_report(status: int, output: str, errors: str, at: str) -> dict[str, Any]:
    """The --json of a program that has ended.  at: the device.

    Raises InputError for what the program says must change, and DeviceError when it
    failed.
    """
    said = _MESSAGE.search(errors)
    if status != 0 and said:
        kind = InputError if status == InputError.exit_code else DeviceError
        raise kind(
            f"the program ended with status {status}: {said['what']}",
            at=at,
            hint=said["hint"],
        )
    if status != 0:
        last = errors.strip().replace("\n", "; ")[-400:]
        what = f"the program ended with status {status}: {last or 'no message'}"
        raise DeviceError(
            what,
            at=at,
            hint="run it on emulated: as well; if that works, look at the device: dmesg",
        )
    what = "the program's report"
    hint = "compile the model again"
    return from_json(
        output.encode(errors="replace"), dict[str, Any], what, at, hint, DeviceError
    )


Launcher = Callable[[bool, tuple[str, ...]], tuple[dict[str, Any], Any]]
"""Starts the program, or where the first argument says so a Session, with these
options: its report, and vitals.
"""


def measured(
    plan: MeasuringPlan,
    bundle: Bundle,
    at: str,
    session: bool,
    launch: Launcher,
    say: Callable[[str], None],
) -> tuple[Launch, ...]:
    """The launches of a plan. session: runs are a Session's; the ops of C segments are
    the program's all the same.
    """
    wanted = [(session, plan.options(profile=not session))] * plan.rounds
    if session and plan.profiled:
        wanted.append((False, plan.options(runs=False)))
    found = []
    for i, (by_session, options) in enumerate(wanted):
        say(f"{bundle.manifest.name} on {at}: launch {i + 1} of {len(wanted)}")
        report, vitals = launch(by_session, options)
        found.append(
            Launch.parse(report, len(bundle.manifest.segments), at).seen_with(vitals)
        )
    return tuple(found)


class _Streamed(Struct):
    """What a Session's program reports of a stream."""

    stream: StreamFigures


def streamed(
    plan: MeasuringPlan,
    bundle: Bundle,
    at: str,
    launcher: Launcher,
    say: Callable[[str], None],
) -> StreamFigures | None:
    """The figures of the plan's frames, None where it has none."""
    if not plan.frames:
        return None
    say(f"{bundle.manifest.name} on {at}: a stream of {plan.frames} frames")
    source = () if plan.source is None else ("--source", plan.source)
    report, _ = launcher(True, ("--stream", str(plan.frames), *source))
    try:
        return convert(report, _Streamed).stream
    except ValueError as e:
        hint = "update edgec on both ends: edgec flash --with-runtime"
        raise DeviceError(
            f"the stream's figures are strange: {e}", at=at, hint=hint
        ) from e
