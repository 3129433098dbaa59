"""Holds raw times by a device's monotonic clock, or the estimates of an absent board.

A program (csrc/main.c or edgec_runtime's __main__) is launched several times; each
launch reports all its inferences in order. edgec.benching evaluates these numbers.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from edgec_runtime import Bundle, DeviceError, InputError
from edgec_runtime.session.meters import StreamFigures
from msgspec import Meta, Struct, convert

from edgec_devices.decoding import from_json

MAX_RUNS = 1_000_000
"""Timed inferences of all launches."""
MOST_RUNS = 250_000
"""Timed inferences of one launch; main.c has room for so many, and stops then."""
WARMUP_S = 0.3
"""Time of the warm-up by default, s."""
_MESSAGE = re.compile(r"^error: (?P<what>.+)(\n  at: .+)?\n  hint: (?P<hint>.+)", re.M)


@dataclass(frozen=True)
class MeasuringPlan:
    """How much to measure. A launch ends at its runs or its seconds, after three runs.

    Attributes:
        rounds: number of launches
        runs: timed inferences of each launch
        seconds: time of the timed inferences of each launch, s
        warmup: time of the warm-up, s; at least one inference
        profiled: inferences of each launch with times per op, after the runs
        threads: threads of the CPU
        frames: frames of a stream at the end; 0 for none
        source: source of the frames, as of a webcam; None for synthetic ones
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
        """Return a plan of so many runs or seconds in all, or the default plan.

        Raises InputError for too few or too many runs.
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
        # A launch has at least three runs, since a median of fewer says little.
        rounds = min(plan.rounds, max(1, runs // 3))
        each = None if seconds is None else seconds / rounds
        return replace(plan, rounds=rounds, runs=-(-runs // rounds), seconds=each)

    def options(self, runs: bool = True, profile: bool = True) -> tuple[str, ...]:
        """Return the options of the program for one launch.

        `runs` and `profile` say whether to time whole inferences and ops. Without `runs`,
        this one launch times the ops, as often as all launches together would.
        """
        times: tuple[str, ...] = ("--warmup", str(self.warmup))
        if self.seconds is not None:
            times += ("--seconds", str(self.seconds))
        times += on_threads(self.threads)
        # One launch with all profiles: a start of the program is the expensive part.
        if not runs:
            inferences = str(self.profiled * self.rounds)
            return ("--runs", "0", "--profile", inferences, *times)
        options = ("--runs", str(self.runs), *times)
        if profile:
            options += ("--profile", str(self.profiled))
        return options


def on_threads(threads: int) -> tuple[str, ...]:
    """Return the options of the program for a number of threads."""
    return ("--threads", str(threads)) if threads > 1 else ()


@dataclass(frozen=True)
class OpProfile:
    """Profiled inferences, alternating with plain ones; times in ns.

    Attributes:
        plain: time of each plain inference
        at: start of each profiled inference
        total: time of each profiled inference
        ops: times by segment, op and inference; no ops for a segment that did not run
            as C
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
    """The profile of a program's --json."""

    plain: tuple[Count, ...]
    at: tuple[Count, ...]
    total: tuple[Count, ...]
    ops: tuple[tuple[tuple[Count, ...], ...], ...]

    def __post_init__(self) -> None:
        # Times are compared by index, so a missing one would shift all others.
        lengths = {len(self.plain), len(self.at)}
        for segment in self.ops:
            lengths |= {len(op) for op in segment}
        if lengths != {len(self.total)}:
            raise ValueError("the profile's series are not of one length")


class _Report(Struct):
    """The parts of a program's --json that become a Launch."""

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
    """The latencies of a program's --json for `flash --health`, ns."""

    warmup: Count
    total: tuple[Count, ...]


@dataclass(frozen=True)
class Launch:
    """One start of the program; times in ns.

    Attributes:
        backends: executor of each segment
        load: time from the start until the first inference could begin; None if it was
            not measured
        warmup: number of inferences that only warm up, the first one included
        at: start of each inference
        total: time of each inference
        segments: times by segment and inference
        rss: highest resident size, bytes
        waited: time of each inference without a processor; empty if it is not known
        yardstick: times of a fixed loop of main.c
        profile: profiled inferences
        vitals: vitals of edgec_runtime.device_end.vitals
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
        """Parse a program's --json; `at` is the device, for messages.

        Raises DeviceError for another form.
        """
        try:
            parsed: _Report = convert(report, _Report)
        except ValueError as e:
            raise DeviceError(
                f"the program's report is not valid: {e}",
                at=at,
                hint="compile the model again",
            ) from e
        p = parsed.profile
        launch = Launch(
            backends=tuple(s.backend for s in parsed.segments),
            load=parsed.load,
            warmup=parsed.warmup,
            at=parsed.at,
            total=parsed.total,
            segments=tuple(s.ns for s in parsed.segments),
            # 0 stands for a system that does not tell.
            rss=parsed.rss or None,
            waited=parsed.waited,
            yardstick=parsed.yardstick,
            profile=None if p is None else OpProfile(p.plain, p.at, p.total, p.ops),
        )

        # Every series has an entry for each inference.
        lengths = {len(launch.at), *map(len, launch.segments)}
        if launch.waited:
            lengths.add(len(launch.waited))
        if len(launch.segments) != segments or lengths != {len(launch.total)}:
            raise DeviceError(
                "the program's report does not fit the bundle",
                at=at,
                hint="compile the model again",
            )
        return launch

    def seen_with(self, vitals: Mapping[str, Any] | None) -> Launch:
        """Return the launch with the vitals read during it."""
        return replace(self, vitals=vitals)


@dataclass(frozen=True)
class OpEstimate:
    """The estimate of one op of a segment's C, ms.

    `how` is, for example, "1204 instructions, 903 cycles".
    """

    ms: float
    how: str


@dataclass(frozen=True)
class SegmentEstimate:
    """The estimate of a segment, ms; None without an estimate.

    `how` is its origin, or the reason why there is none; `error` is its relative error,
    which its ops have too (edgec_devices.intervals).
    """

    ms: float | None
    how: str
    ops: tuple[OpEstimate, ...] = ()
    error: float | None = None


@dataclass(frozen=True)
class Identity:
    """The device of a measurement; unknown texts are "".

    Attributes:
        url: URL of the device
        board: name in its profile or device tree
        cpu: cores
        os: operating system
        kernel: version of the kernel
        target: kind of code
        emulated: whether an emulator of any kind executes the code
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
    """Launches on a device, or estimates of hardware that is not there.

    Attributes:
        device: the device
        runner: "program" or "session"
        backends: executor of each segment
        launches: the launches; none for an estimate
        estimates: estimate of each segment
        between_ms: estimated time outside of segments, ms
        notes: remarks
        stream: figures of the plan's frames
        error: relative error of the estimate of the whole
    """

    device: Identity
    runner: str
    backends: tuple[str, ...]
    launches: tuple[Launch, ...] = ()
    estimates: tuple[SegmentEstimate, ...] = ()
    between_ms: float = 0.0
    notes: tuple[str, ...] = ()
    stream: StreamFigures | None = None
    error: float | None = None

    @property
    def timed(self) -> tuple[Launch, ...]:
        """Return the launches with timed inferences."""
        return tuple(one for one in self.launches if len(one.total) > one.warmup)

    @property
    def profiles(self) -> tuple[OpProfile, ...]:
        """Return the profile of each launch that has one."""
        return tuple(one.profile for one in self.launches if one.profile is not None)


def program_report(status: int, output: str, errors: str, at: str) -> dict[str, Any]:
    """Return the --json of a program that has ended; `at` is the device.

    Raises InputError if the program asks for a change of its input, and DeviceError if
    it failed.
    """
    message = _MESSAGE.search(errors)
    # The program's own message has a hint, and its status tells whose fault it is.
    if status != 0 and message:
        kind = InputError if status == InputError.exit_code else DeviceError
        raise kind(
            f"the program ended with status {status}: {message['what']}",
            at=at,
            hint=message["hint"],
        )
    if status in (-signal.SIGILL, 128 + signal.SIGILL):
        raise DeviceError(
            "the program uses an instruction that the CPU of the device lacks",
            at=at,
            hint="compile it again for that board: edgec status says which it is",
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
"""Starts the program, or a Session if the first argument is true, with options; returns
its report and vitals.
"""


def measured(
    plan: MeasuringPlan,
    bundle: Bundle,
    at: str,
    session: bool,
    launch: Launcher,
    say: Callable[[str], None],
) -> tuple[Launch, ...]:
    """Return the launches of a plan.

    With `session`, a Session runs the inferences; only the program profiles the ops of
    C segments, in a launch of its own.
    """
    # A Session sees whole segments only, so the profile is a launch of the program.
    planned = [(session, plan.options(profile=not session))] * plan.rounds
    if session and plan.profiled:
        planned.append((False, plan.options(runs=False)))
    segments = len(bundle.manifest.segments)
    launches = []
    for i, (by_session, options) in enumerate(planned):
        say(f"{bundle.manifest.name} on {at}: launch {i + 1}/{len(planned)}")
        report, vitals = launch(by_session, options)
        parsed = Launch.parse(report, segments, at)
        launches.append(parsed.seen_with(vitals))
    return tuple(launches)


class _Streamed(Struct):
    """The part of a Session's report about a stream."""

    stream: StreamFigures


def streamed(
    plan: MeasuringPlan,
    bundle: Bundle,
    at: str,
    launcher: Launcher,
    say: Callable[[str], None],
) -> StreamFigures | None:
    """Return the figures of a stream of the plan's frames; None without frames."""
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
            f"the stream's figures are not valid: {e}", at=at, hint=hint
        ) from e
