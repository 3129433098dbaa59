"""Reports with everything in them, made by hand: the writers are tried on them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgec_devices.measurement import (
    Identity,
    Launch,
    Measurement,
    OpEstimate,
    OpProfile,
    SegmentEstimate,
)
from edgec_devices.requirement import JudgedInterval, Requirement
from edgec_devices.throttling import Throttling, judge

from edgec.benching.figures import check_budgets
from edgec.benching.result import (
    EMULATOR,
    BenchReport,
    Check,
    Compared,
    DeviceReport,
    MemoryUse,
    OncePerLaunch,
    OpReport,
    SegmentReport,
    Series,
    Steadiness,
)
from edgec.emit.graph_file import GraphFile, GraphOp, GraphSegment

ORIGIN = 86_400_000_000_000
"""The device's clock when the first program was started, ns: it has been up for a day."""

ERROR = 0.12
"""Relative error of the estimates."""
LAUNCHES = 6
WARMUP = 8
RUNS = 60
PROFILED = 5
HOSTILE = (
    "</script><script>alert(1)</script><!--DATA--> &amp; "
    "\"' | ` * _x_ "
    "[a](b) \x1b[31m \x00\u2028\ud800 <b>"
)

SETTINGS: Mapping[str, Any] = {
    "runs": None,
    "seconds": 5.0,
    "threads": 1,
    "accept_estimates": False,
    "accept_throttling": False,
    "launches": LAUNCHES,
    "frames": 0,
    "source": None,
}

_SEGMENT_NS = (3_000_000, 6_500_000, 2_400_000)
_OPS_NS: tuple[tuple[int, ...], ...] = (
    (400_000, 2_600_000),
    (),
    (1_500_000, 600_000, 300_000),
)
_TWIN_NS = (30_000_000, 28_000_000, 1_000_000)  # the ops of seg1, as C
_PARTS = {
    "invoke": 0.28,
    "input": 0.9,
    "output": 3.1,
    "code": 0.05,
    "compute": 1.2,
    "streamed": 0.0,
}
_BACKENDS = ("c", "delegate", "c")
_COLD = 1.6  # times as long: the first inference
_OPS: tuple[tuple[Any, ...], ...] = (
    # kind, source, type, macs, segment, place, call, reads
    ("quantize", "", "int8[1,192,192,3]", 0, "seg0", "cpu", 0, ()),
    ("conv2d", "stem/conv", "int8[1,96,96,24]", 8_000_000, "seg0", "cpu", 1, (0,)),
    (
        "conv2d",
        "body/conv1",
        "int8[1,96,96,24]",
        50_000_000,
        "seg1",
        "edgetpu",
        None,
        (1,),
    ),
    (
        "conv2d",
        "body/conv2",
        "int8[1,96,96,24]",
        47_000_000,
        "seg1",
        "edgetpu",
        None,
        (2,),
    ),
    ("add", "body/add", "int8[1,96,96,24]", 0, "seg1", "edgetpu", None, (2, 3)),
    ("reshape", "head/flatten", "int8[1,221184]", 0, "seg2", "cpu", None, (4,)),
    ("grid_sample", "flow/sample", "int8[1,96,96,24]", 400_000, "seg2", "cpu", 0, (5,)),
    ("tanh", "head/tanh", "int8[1,96,96,24]", 0, "seg2", "cpu", 1, (6,)),
    ("dequantize", "", "float32[1,96,96,24]", 0, "seg2", "cpu", 2, (7,)),
)
_KEYS = ("kind", "source", "type", "macs", "segment", "place", "call", "reads")
_FUNCTIONS = {
    "seg0": ("op0_quantize", "op1_conv2d"),
    "seg1": (),
    "seg2": ("op0_grid_sample", "op1_tanh", "op2_dequantize"),
}

GRAPH = GraphFile(
    tuple(
        GraphOp(index=i, output=f"t{i}", **dict(zip(_KEYS, row, strict=True)))
        for i, row in enumerate(_OPS)
    ),
    tuple(
        GraphSegment(n, 1000, functions, {} if functions else _PARTS)
        for n, functions in _FUNCTIONS.items()
    ),
)
"""A bundle's report/graph.json. `flatten` is a view: no function computes it."""


# ---- raw


def vitals(ns: int, hot: bool = False) -> dict[str, Any]:
    """Of a launch that began then: before, twice meanwhile, after. hot: it throttles in
    the middle.
    """

    def sample(at: int, khz: int, celsius: float, word: int) -> dict[str, Any]:
        told = {
            "throttled": word,
            "throttled_by": "vcgencmd",
            "undervoltage": None,
            "cooling": 0,
        }
        return {"ns": ns + at, "khz": [khz, khz], "celsius": celsius, **told}

    rest = {
        "governor": "ondemand",
        "max_khz": 1_800_000,
        "throttle_count": None,
        "load1": 0.2,
    }
    if hot:
        middle = sample(600_000_000, 600_000, 82.5, 0x40004)
    else:
        middle = sample(600_000_000, 1_800_000, 56.5, 0)
    return {
        "before": {**sample(-20_000_000, 1_800_000, 52.0, 0), **rest},
        "during": [sample(100_000_000, 1_800_000, 54.0, 0), middle],
        "after": {
            **sample(1_200_000_000, 1_800_000, 55.0, middle["throttled"] & 0xF0000),
            **rest,
        },
    }


def measurement(hot: bool = False) -> Measurement:
    """On a Pi 4 with a Coral: six launches of a Session, and one of the program, which
    profiles all segments as C.
    """
    draw = random.Random(7)
    launches = []
    for i in range(LAUNCHES + 1):
        start = ORIGIN + i * 1_500_000_000
        timed = i < LAUNCHES
        rows = [
            _inference(draw, n, hot and n > 40)
            for n in range(WARMUP + (RUNS if timed else 0))
        ]
        at = _starts(start + 31_000_000, [sum(r) for r in rows])
        launches.append(
            Launch(
                backends=_BACKENDS if timed else ("c", "c", "c"),
                load=30_000_000 + i * 200_000,
                warmup=WARMUP,
                at=tuple(at),
                total=tuple(map(sum, rows)),
                segments=tuple(zip(*rows, strict=True)),
                waited=(0,) * len(rows),
                rss=41_000_000 + i * 4096,
                yardstick=(30_000, 30_100, 30_050),
                profile=None if timed else _profile(draw, at[-1] + 50_000_000),
                vitals=vitals(start, hot),
            )
        )
    board = "Raspberry Pi 4 Model B Rev 1.4"
    os = "Debian GNU/Linux 12"
    kernel = "6.6.31+rpt-rpi-v8"
    identity = Identity(
        "ssh://pi@attic", board, "Cortex-A72", os, kernel, "linux-aarch64", False
    )
    return Measurement(identity, "session", _BACKENDS, launches=tuple(launches))


def estimate() -> Measurement:
    """Of a Pi 4 that is not there."""
    identity = Identity(
        "emulated:pi4", "pi4", "Cortex-A72", "", "", "linux-aarch64", True
    )
    segments = tuple(
        SegmentEstimate(
            _SEGMENT_NS[i] / 1e6,
            "by instructions and the pipeline model" if ops else "by the cost model",
            tuple(
                OpEstimate(ns / 1e6, f"{ns} instructions, {ns * 1.8:.0f} cycles")
                for ns in ops
            ),
            ERROR,
        )
        for i, ops in enumerate(_OPS_NS)
    )
    return Measurement(
        identity,
        "program",
        ("c", "cost model", "c"),
        estimates=segments,
        between_ms=0.02,
        error=ERROR,
    )


def _inference(draw: random.Random, n: int, slow: bool) -> list[int]:
    cold = 1 + (_COLD - 1) * 0.5**n + 0.7 * slow
    times = [int(ns * cold * (1 + abs(draw.gauss(0, 0.01)))) for ns in _SEGMENT_NS]
    times[1] += 4_000_000 if draw.random() < 0.02 else 0
    return times


def _starts(first: int, totals: Sequence[int]) -> list[int]:
    """Each inference begins 5 us after the one before."""
    at = [first]
    for ns in totals[:-1]:
        at.append(at[-1] + ns + 5_000)
    return at


def _profile(draw: random.Random, start: int) -> OpProfile:
    ops = tuple(
        tuple(
            tuple(int(ns * (1 + abs(draw.gauss(0, 0.01)))) for _ in range(PROFILED))
            for ns in segment
        )
        for segment in (_OPS_NS[0], _TWIN_NS, _OPS_NS[2])
    )
    total = tuple(
        sum(op[run] for segment in ops for op in segment) + 20_000
        for run in range(PROFILED)
    )
    at = tuple(_starts(start, [2 * ns for ns in total]))
    return OpProfile(tuple(ns - 90_000 for ns in total), at, total, ops)


# ---- reports


def measured(m: Measurement | None = None) -> BenchReport:
    """The report of `measurement()`, with budgets that hold and an earlier run that was
    the same.
    """
    m = m or measurement()
    profile = m.launches[-1].profile
    assert profile is not None
    segments = tuple(
        SegmentReport(
            name=name,
            place="cpu" if functions else "edgetpu",
            backend=m.backends[i],
            latency=Series(
                _rounds([one.segments[i] for one in m.timed]), False, "measured"
            ),
            parts={} if functions else _PARTS,
            ops=tuple(
                _op(name, call, sorted(ns)[len(ns) // 2] / 1e6)
                for call, ns in enumerate(profile.ops[i] if functions else ())
            ),
            ops_how="measured" if functions else "",
        )
        for i, (name, functions) in enumerate(_FUNCTIONS.items())
    )
    plan = {"arena": 522_304, "tensors": 442_368, "constants": 64_900}
    return BenchReport(
        model="cartoon",
        bundle_sha256="5e" * 32,
        target="pi4+coral",
        when="2026-03-01T12:00:00+00:00",
        edgec="0.1.0",
        device=DeviceReport(**vars(m.device), runner=m.runner),
        settings=SETTINGS,
        load=_once([one.load or 0 for one in m.timed]),
        first=_once([one.total[0] for one in m.timed]),
        steadiness=Steadiness(
            True, WARMUP, _once([sum(one.total[:WARMUP]) for one in m.timed])
        ),
        latency=Series(_rounds([one.total for one in m.timed]), False, "measured"),
        segments=segments,
        profile_overhead=0.0073,
        memory=MemoryUse(41_020_480, False, 184_320, 65_536, 24_000, plan),
        vitals=judge([one.vitals for one in m.launches if one.vitals]),
        waited=tuple((0.0,) * RUNS for _ in m.timed),
        yardstick=tuple(tuple(ns / 1e6 for ns in one.yardstick) for one in m.timed),
        budgets=(
            Check("p95<=33ms", True, 12.3, "ms", 20.7, False),
            Check("rss<=80MB", True, 41.02, "MB", 38.98, False),
        ),
        comparison=_compared(
            "same",
            1.004,
            0.007,
            "the same within 5 %: 0.3 % faster to 1.1 % slower (95 % sure)",
        ),
        notes=("the load average was 0.2",),
    )


def throttled() -> BenchReport:
    """The clock fell to 600 MHz in the middle."""
    r = measured(measurement(hot=True))
    return replace(r, steadiness=replace(r.steadiness, reached=False), comparison=None)


def missed() -> BenchReport:
    """Budgets that do not hold or have no figure, and a regression."""
    return replace(
        measured(),
        budgets=(
            Check(
                "p95<=11ms",
                False,
                12.3,
                "ms",
                -1.3,
                False,
                "seg1 on the Edge TPU, 6.5 ms",
            ),
            Check(
                "tpu.transfer<=3ms",
                False,
                4.05,
                "ms",
                -1.536,
                True,
                "seg1, output est. 2.7 to 3.5 ms",
                JudgedInterval(3.564, 4.536, "upper"),
            ),
            Check("rss<=80MB", True, 41.02, "MB", 38.98, False),
            Check(
                "celsius<=50C",
                False,
                None,
                "C",
                None,
                False,
                "the device does not tell its temperature",
            ),
        ),
        comparison=_compared(
            "regress",
            1.12,
            0.02,
            "slower by 12 % (10 % to 14 %, 95 % sure): more than 5 %",
        ),
    )


def unsure() -> BenchReport:
    """An earlier run that it cannot be told from."""
    said = "cannot tell: 5 % faster to 11 % slower (95 % sure); about 9,000 runs would tell"
    return replace(
        measured(),
        comparison=replace(
            _compared("cannot tell", 1.03, 0.08, said), runs_needed=9_000
        ),
    )


def estimated() -> BenchReport:
    """The report of `estimate()`; a budget that would hold."""
    m = estimate()
    r = measured()
    nothing = OncePerLaunch((), True, "not estimated")
    segments = tuple(
        replace(
            s,
            backend=m.backends[i],
            latency=Series(((e.ms or 0.0,),), True, e.how, e.error),
            ops=tuple(
                replace(op, ms=found.ms) for op, found in zip(s.ops, e.ops, strict=True)
            ),
            ops_how=e.how,
        )
        for i, (s, e) in enumerate(zip(r.segments, m.estimates, strict=True))
    )
    r = replace(
        r,
        device=DeviceReport(**vars(m.device), runner=m.runner),
        load=nothing,
        first=nothing,
        steadiness=Steadiness(True, 0, nothing),
        latency=Series(((11.92,),), True, "the sum of its segments", m.error),
        segments=segments,
        profile_overhead=None,
        memory=replace(r.memory, rss=1_214_528, rss_estimated=True),
        vitals=None,
        waited=(),
        yardstick=(),
        comparison=None,
        notes=(),
    )
    budget = Requirement("p95<=33ms", "p95", "<=", 33.0, "ms")
    return replace(r, budgets=check_budgets([budget], r))


def emulated() -> BenchReport:
    """Of `measurement()` on a board that is emulated as a whole; a budget that would
    hold.
    """
    r = measured()

    def by_its_clock(series: Series) -> Series:
        return replace(series, estimated=True, how=EMULATOR)

    segments = tuple(
        replace(
            s, backend="c", parts={}, latency=by_its_clock(s.latency), ops_how=EMULATOR
        )
        for s in r.segments
    )
    once = [
        replace(one, estimated=True, how=EMULATOR)
        for one in (r.load, r.first, r.steadiness.warmup)
    ]
    there = replace(r.device, url="ssh://emulated-pi4", emulated=True)
    r = replace(
        r,
        device=there,
        load=once[0],
        first=once[1],
        steadiness=replace(r.steadiness, warmup=once[2]),
        latency=by_its_clock(r.latency),
        segments=segments,
        comparison=None,
        notes=(
            "The board itself: est. 21 to 27 ms, more by edgec bench cartoon.edgec --on "
            "emulated:pi4.",
        ),
    )
    wanted = (
        Requirement("p95<=33s", "p95", "<=", 33.0, "s"),
        Requirement("rss<=80MB", "rss", "<=", 80.0, "MB"),
    )
    return replace(r, budgets=check_budgets(wanted, r, accept_estimates=True))


def hostile() -> BenchReport:
    """Names that are made to break out of where they are written."""
    r = missed()
    segments = tuple(
        replace(
            s,
            name=f"{HOSTILE}{i}",
            ops=tuple(
                replace(op, name=HOSTILE, kind=HOSTILE, source=HOSTILE) for op in s.ops
            ),
        )
        for i, s in enumerate(r.segments)
    )
    return replace(
        r,
        model=HOSTILE,
        device=replace(r.device, board=HOSTILE, url=HOSTILE, cpu=HOSTILE),
        segments=segments,
        budgets=tuple(replace(c, why=HOSTILE) for c in r.budgets),
        vitals=Throttling(True, (HOSTILE,), (HOSTILE,), True, HOSTILE),
        notes=(HOSTILE,),
    )


EXAMPLES = {
    "measured": measured,
    "estimated": estimated,
    "emulated": emulated,
    "throttled": throttled,
    "missed": missed,
    "unsure": unsure,
    "hostile": hostile,
}


def _once(ns: Sequence[int]) -> OncePerLaunch:
    return OncePerLaunch(tuple(one / 1e6 for one in ns), False, "measured")


def _rounds(series: Sequence[Sequence[int]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(ns / 1e6 for ns in one[WARMUP:]) for one in series)


def _op(segment: str, call: int, ms: float) -> OpReport:
    (op,) = (op for op in GRAPH.ops if (op.segment, op.call) == (segment, call))
    return OpReport(_FUNCTIONS[segment][call], op.kind, op.source, op.type, op.macs, ms)


def _compared(verdict: str, ratio: float, half: float, sentence: str) -> Compared:
    return Compared(
        "bench/attic.json",
        "p50",
        verdict,
        ratio,
        ratio - half,
        ratio + half,
        0.95,
        0.05,
        None,
        sentence,
    )
