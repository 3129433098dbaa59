"""Budgets: every figure's value, unit and culprit, what is absent and why, and what a
typo is answered with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from edgec_devices.requirement import UNITS, Figure
from edgec_devices.throttling import Throttling
from edgec_runtime import Bundle, Summary, write_bundle
from edgec_runtime.session.meters import StageFigures, StreamFigures

from edgec.benching.figures import check_budgets, figures, parse_budgets
from edgec.benching.quantities import Absent
from edgec.benching.result import (
    EMULATOR,
    BenchReport,
    Check,
    DeviceReport,
    MemoryUse,
    OncePerLaunch,
    OpReport,
    SegmentReport,
    Series,
    Steadiness,
)
from edgec.errors import InputError
from tests.runtime import tiny_model


def once(*ms: float) -> OncePerLaunch:
    return OncePerLaunch(ms, False, "measured")


def series(*rounds: tuple[float, ...]) -> Series:
    return Series(rounds, False, "measured")


# Of the tiny model. Inferences take 11, 12, 13 and 24 ms in two launches.
CONV = OpReport("mix_0", "conv2d", "co\x1bnv1;bn/conv1;relu/conv1", "y", 480, 1.5)
ADD = OpReport("mix_1", "add", "", "z", 48, 0.25)
SHIFT = SegmentReport(
    "shift", "cpu", "c", series((1.0, 1.0), (1.0, 2.0)), ops_how="measured"
)
RELU = SegmentReport(
    "relu",
    "edgetpu",
    "delegate",
    series((8.0, 9.0), (10.0, 20.0)),
    {
        "invoke": 0.5,
        "input": 1.0,
        "output": 2.0,
        "code": 0.25,
        "compute": 3.0,
        "streamed": 0.75,
    },
)
MIX = SegmentReport(
    "mix", "cpu", "c", series((2.0, 2.0), (2.0, 2.0)), {}, (CONV, ADD), "measured"
)
REPORT = BenchReport(
    model="tiny",
    bundle_sha256="0" * 64,
    target="pi4+coral",
    when="2026-01-01T00:00:00+00:00",
    edgec="0.1.0",
    device=DeviceReport(
        "ssh://pi@attic",
        "pi4",
        "Cortex-A72",
        "Debian",
        "6.1",
        "linux-aarch64",
        False,
        "session",
    ),
    settings={},
    load=once(30.0, 50.0),
    first=once(25.0, 20.0),
    steadiness=Steadiness(True, 3, once(100.0, 120.0)),
    latency=series((11.0, 12.0), (13.0, 24.0)),
    segments=(SHIFT, RELU, MIX),
    profile_overhead=0.01,
    memory=MemoryUse(
        60_000_000,
        False,
        400_000,
        1_000_000,
        20_000,
        {"arena": 64, "tensors": 100, "constants": 900_000},
    ),
    vitals=Throttling(
        False,
        known=True,
        celsius_before=40.0,
        celsius_max=61.5,
        mhz_min=1500.0,
        mhz_max=1800.0,
    ),
)
STAGES = (
    "capture",
    "prepare",
    "inputs",
    "shift",
    "relu",
    "mix",
    "result",
    "picture",
    "out",
)
STREAM = StreamFigures(
    2.0,
    60,
    3,
    55,
    27.5,
    Summary.of([30.0, 40.0, 50.0]),
    2,
    3,
    tuple(
        StageFigures(n, 57, Summary.of([1.0 + i, 2.0 + i]), 0, {})
        for i, n in enumerate(STAGES)
    ),
    None,
)
ESTIMATED = replace(
    REPORT,
    load=OncePerLaunch((), True, "not estimated"),
    latency=Series(((12.0,),), True, "the sum of its segments"),
    segments=tuple(
        replace(s, backend=backend, latency=Series(((ms,),), True, "est."))
        for s, backend, ms in zip(
            REPORT.segments, ("c", "cost model", "c"), (1.0, 9.0, 2.0), strict=True
        )
    ),
    vitals=None,
)


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Bundle]:
    """The tiny model's, without code, with the list of its ops."""
    path = tmp_path / "tiny.edgec"
    manifest, files = tiny_model.parts()
    functions = {"shift": ["shift_0"], "relu": ["relu_0"], "mix": ["mix_0", "mix_1"]}
    rows = [
        {"name": n, "constants": 0, "functions": f, "est_parts": {}}
        for n, f in functions.items()
    ]
    write_bundle(
        path,
        manifest,
        {
            **files,
            "report/graph.json": json.dumps({"ops": [], "segments": rows}).encode(),
        },
    )
    with Bundle.open(path) as opened:
        yield opened


def value(name: str, report: BenchReport = REPORT) -> float:
    figure = figures(report)[name]
    assert isinstance(figure, Figure), figure
    return figure.value


@pytest.mark.parametrize(
    ("name", "expected", "unit"),
    [
        ("min", 11, "ms"),
        ("p50", 12.5, "ms"),
        ("max", 24, "ms"),
        ("mean", 15, "ms"),
        ("p95", 13 + 0.85 * 11, "ms"),
        ("spread", 13 + 0.85 * 11 - 12.5, "ms"),
        ("fps", 1000 / 15, "fps"),
        ("load", 50, "ms"),
        ("first", 25, "ms"),
        ("warmup", 120, "ms"),
        ("tpu", 9.5, "ms"),
        ("tpu.transfer", 4, "ms"),
        ("tpu.invoke", 0.5, "ms"),
        ("tpu.compute", 3, "ms"),
        (
            "cpu",
            3,
            "ms",
        ),  # of 3, 3, 3 and 4: the segments of one inference are added, then the median is taken
        ("shift", 1, "ms"),
        ("relu.max", 20, "ms"),
        ("mix.mean", 2, "ms"),
        ("mix.op0", 1.5, "ms"),
        ("mix.op1", 0.25, "ms"),
        ("rss", 60e6, "B"),
        ("arena", 64, "B"),
        ("code", 400_000, "B"),
        ("constants", 1e6, "B"),
        ("data", 20_000, "B"),
        ("celsius", 61.5, "C"),
        ("mhz", 1500, "MHz"),
        ("throttled", 0, ""),
    ],
)
def test_values(name: str, expected: float, unit: str) -> None:
    figure = figures(REPORT)[name]
    assert isinstance(figure, Figure)
    assert figure.value == pytest.approx(expected)
    assert figure.unit == unit
    assert figure.estimated is name.startswith("tpu.")


def test_a_segment_whose_name_is_taken_does_not_hide_the_whole() -> None:
    names = tuple(
        replace(s, name=n)
        for s, n in zip(REPORT.segments, ("p95", "rss", "x"), strict=True)
    )
    assert value("p95", replace(REPORT, segments=names)) == value("p95")
    assert value("rss", replace(REPORT, segments=names)) == value("rss")
    assert value("p95.max", replace(REPORT, segments=names)) == value("shift.max")


def test_figures_of_a_stream(bundle: Bundle) -> None:
    streamed = replace(REPORT, stream=STREAM)
    expected = {
        "fps": 27.5,
        "latency": 40.0,
        "latency.max": 50.0,
        "stage.capture": 1.5,
        "stage.out.max": 10.0,
        "dropped": 3,
    }
    assert {name: value(name, streamed) for name in expected} == expected
    joined = replace(STREAM, stages=(replace(STREAM.stages[3], name="shift+relu+mix"),))
    assert value("stage.shift", replace(REPORT, stream=joined)) == 4.5
    found = figures(replace(REPORT, stream=joined))["stage.relu"]
    assert found == Absent("the stream has no stage relu, but shift+relu+mix")
    (slow,) = check_budgets(parse_budgets(["fps>=30"], bundle), streamed)
    assert (slow.holds, slow.why) == (False, "stage out, 9.5 ms")
    emulated = replace(streamed, latency=replace(REPORT.latency, how=EMULATOR))
    (never,) = check_budgets(
        parse_budgets(["fps>=1"], bundle), emulated, accept_estimates=True
    )
    assert never.holds is False


def test_every_figure_of_a_run_can_be_asked_for_and_the_other_way_round(
    bundle: Bundle,
) -> None:
    listed = replace(SHIFT, ops=(ADD,)), replace(RELU, ops=(ADD,)), MIX
    report = replace(REPORT, segments=listed, stream=STREAM)
    there = figures(report)
    for name, figure in there.items():
        assert isinstance(figure, Figure)
        assert figure.unit in UNITS
        (budget,) = parse_budgets([f"{name}>=0"], bundle)
        (check,) = check_budgets([budget], report, accept_estimates=True)
        assert check.holds
        assert check.measured == pytest.approx(figure.value)
    with pytest.raises(InputError) as e:
        parse_budgets(["x<=1"], bundle)
    known = (e.value.hint or "").removeprefix("figures: ").split(", ")
    assert set(known) >= {n for n in there if "." not in n}


def checked(
    bundle: Bundle, text: str, report: BenchReport = REPORT, accept: bool = False
) -> Check:
    (check,) = check_budgets(parse_budgets([text], bundle), report, accept)
    return check


@pytest.mark.parametrize(
    ("text", "holds", "measured", "unit", "margin"),
    [
        ("p95<=33ms", True, 22.35, "ms", 10.65),
        ("first<=500ms", True, 25, "ms", 475),
        ("load <= 2 s", True, 0.05, "s", 1.95),
        ("rss<=80MB", True, 60, "MB", 20),
        ("fps>=30", True, 1000 / 15, "fps", 1000 / 15 - 30),
        ("throttled==0", True, 0, "", 0),
        ("celsius<=60C", False, 61.5, "C", -1.5),
        ("mhz>=1.8GHz", False, 1.5, "GHz", -0.3),
        ("shift<=8%", True, 8, "%", 0),
        ("spread<=10%", False, 78.8, "%", -68.8),
        ("cpu<3", False, 3, "ms", 0),
    ],
)
def test_budgets(
    bundle: Bundle, text: str, holds: bool, measured: float, unit: str, margin: float
) -> None:
    check = checked(bundle, text)
    assert (check.what, check.holds, check.unit, check.estimated) == (
        text,
        holds,
        unit,
        False,
    )
    assert check.measured == pytest.approx(measured)
    assert check.margin == pytest.approx(margin)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("p95<=5ms", "relu on the Edge TPU, 18.5 ms"),
        ("fps>=100", "relu on the Edge TPU, 11.75 ms"),
        ("cpu<=1ms", "mix on the CPU, 2 ms, slowest op0 conv2d (co nv1) 1.5 ms"),
        ("mix<=1ms", "mix on the CPU, 2 ms, slowest op0 conv2d (co nv1) 1.5 ms"),
        ("mix.op0<=1ms", "conv2d (co nv1)"),
        ("mix.op1<=0.2ms", "add"),
        ("relu.max<=19ms", "relu on the Edge TPU, 20 ms"),
        ("spread<=1ms", "relu on the Edge TPU, 9 ms"),
        ("rss<=1MB", "constants, 1 MB"),
    ],
)
def test_a_missed_budget_says_what_is_in_the_way(
    bundle: Bundle, text: str, why: str
) -> None:
    check = checked(bundle, text)
    assert not check.holds
    assert check.why == why


def test_a_device_that_throttles_says_why(bundle: Bundle) -> None:
    hot = replace(
        REPORT,
        vitals=Throttling(
            True, ("the firmware throttled the CPU at 85.1 °C",), known=True
        ),
    )
    assert checked(bundle, "throttled==0", hot) == Check(
        "throttled==0",
        False,
        1.0,
        "",
        -1.0,
        False,
        "the firmware throttled the CPU at 85.1 °C",
    )


@pytest.mark.parametrize(
    ("text", "report", "why"),
    [
        ("load<=1s", ESTIMATED, "it was not measured on this device"),
        (
            "throttled==0",
            ESTIMATED,
            "nothing was read of the device's clock, temperature and throttling",
        ),
        (
            "celsius<=80C",
            replace(REPORT, vitals=Throttling(False)),
            "the device does not tell its temperature",
        ),
        (
            "mhz>=1",
            replace(REPORT, vitals=Throttling(False)),
            "the device does not tell its clock",
        ),
        (
            "throttled==0",
            replace(REPORT, vitals=Throttling(False, known=False)),
            "the device does not tell whether it throttles",
        ),
        (
            "rss<=1GB",
            replace(REPORT, memory=replace(REPORT.memory, rss=None)),
            "the resident size was not measured",
        ),
        (
            "code<=1GB",
            replace(REPORT, memory=MemoryUse(1, False, 0, 0, 0, {})),
            "the sections of the program's file are",
        ),
        (
            "arena<=1GB",
            replace(REPORT, memory=MemoryUse(1, False, 0, 0, 0, {})),
            "the plan does not say",
        ),
        ("p95<=1s", replace(REPORT, latency=series()), "no inference was timed"),
        (
            "shift<=50%",
            replace(REPORT, latency=series()),
            "no median latency for it to be a share of",
        ),
        ("relu.op0<=1s", REPORT, "relu ran on the Edge TPU, which has no times per op"),
        ("shift.op0<=1s", REPORT, "shift was not profiled per op"),
        (
            "tpu<=1s",
            replace(REPORT, segments=(SHIFT, replace(RELU, backend="c"), MIX)),
            "nothing ran on the Edge TPU: relu ran as c",
        ),
        (
            "tpu.transfer<=1s",
            replace(REPORT, segments=(SHIFT, MIX)),
            "nothing ran on the Edge TPU: no segment of this model is for it",
        ),
        (
            "tpu.transfer<=1s",
            replace(REPORT, segments=(SHIFT, replace(RELU, parts={}), MIX)),
            "the bundle does not hold the cost model's parts",
        ),
        ("cpu<=1s", replace(REPORT, segments=(RELU,)), "nothing ran on the CPU"),
        (
            "p50<=1s",
            replace(
                REPORT,
                latency=series(),
                segments=(
                    SHIFT,
                    replace(RELU, latency=Series((), True, "not counted")),
                    MIX,
                ),
            ),
            "relu has no latency: not counted",
        ),
    ],
)
def test_a_figure_that_is_not_there_never_holds(
    bundle: Bundle, text: str, report: BenchReport, why: str
) -> None:
    for accept in (False, True):
        check = checked(bundle, text, report, accept)
        assert (check.holds, check.measured, check.margin, check.estimated) == (
            False,
            None,
            None,
            False,
        )
        assert why in check.why


def test_an_estimate_holds_only_where_estimates_count(bundle: Bundle) -> None:
    check = checked(bundle, "p95<=33ms", ESTIMATED)
    assert (check.holds, check.measured, check.margin, check.estimated) == (
        False,
        12.0,
        21.0,
        True,
    )
    assert check.why == (
        "the estimate would hold; give --accept-estimates to let estimates count, "
        "or --on ssh://USER@HOST to measure"
    )
    check = checked(bundle, "p95<=33ms", ESTIMATED, accept=True)
    assert (check.holds, check.estimated, check.why) == (True, True, "")
    for accept in (False, True):
        missed = checked(bundle, "p95<=3ms", ESTIMATED, accept)
        assert (missed.holds, missed.estimated) == (False, True)
        assert missed.why == "relu on the Edge TPU, est. 9 ms"
    # what is planned and not timed is no estimate
    assert checked(bundle, "arena<=1kB", ESTIMATED).holds


def test_transfers_are_estimates_on_a_measured_run_too(bundle: Bundle) -> None:
    assert not checked(bundle, "tpu.transfer<=4ms").holds
    assert checked(bundle, "tpu.transfer<=4.8ms", accept=True).holds
    missed = checked(bundle, "tpu.transfer<=4ms", accept=True)
    assert (missed.holds, missed.why) == (False, "relu, output est. 1.6 to 2.4 ms")


@pytest.mark.parametrize(
    ("text", "judged", "margin"),
    [
        ("p95<=13ms", "upper", -0.2),
        ("p95<=14ms", "upper", 0.8),
        ("p95>=11ms", "lower", -0.2),
        ("p95==12ms", "neither", 0.0),
        ("fps>=90", "lower", 1000 / 13.2 - 90),
        ("relu<=10ms", "upper", -0.8),
        ("relu.p95<=0.011s", "upper", 0.0002),
        ("tpu<=10ms", "upper", -0.8),
    ],
)
def test_an_estimate_is_judged_by_the_worse_end(
    bundle: Bundle, text: str, judged: str, margin: float
) -> None:
    check = checked(bundle, text, with_error(ESTIMATED, 0.1, 0.2), accept=True)
    assert check.holds == (margin >= 0)
    assert check.margin == pytest.approx(margin)
    assert check.interval is not None
    assert check.interval.judged == judged
    assert check.interval.low < (check.measured or 0.0) < check.interval.high


def test_a_share_of_an_estimate_has_no_interval(bundle: Bundle) -> None:
    """The errors of a part and of the whole mostly cancel."""
    check = checked(bundle, "relu<=75%", with_error(ESTIMATED, 0.1, 0.2), accept=True)
    assert (check.holds, check.measured, check.interval) == (True, 75.0, None)


def with_error(r: BenchReport, whole: float, segment: float) -> BenchReport:
    """Return a report with relative errors of its estimates; of all segments one."""
    segments = tuple(
        replace(s, latency=replace(s.latency, error=segment)) for s in r.segments
    )
    return replace(r, latency=replace(r.latency, error=whole), segments=segments)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "p96<=3ms",
            'there is no figure p96; did you mean "p9',
            "figures: min, p50, p90",
        ),
        ("tpu.transfers<=3ms", 'did you mean "tpu.transfer"?', "figures: "),
        (
            "mix.op2<=3ms",
            'there is no figure mix.op2; did you mean "mix.op',
            "mix.op0 to mix.op1",
        ),
        (
            "seg9<=3ms",
            "there is no figure seg9",
            "shift, shift.min to shift.mean, shift.op0, relu",
        ),
        ("rss<=3ms", "rss has no ms", "it is a size in B; use B, kB, MB"),
        ("first<=80MB", "first has no MB", "it is a time in ms"),
        ("rss<=80%", "rss has no %", "it is a size"),
        ("p95<33ms;max<40ms", "there is no unit ms;max<40ms", "it is a time"),
    ],
)
def test_typos(bundle: Bundle, text: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as e:
        parse_budgets(["p95<=1s", text], bundle)
    assert message in e.value.what
    assert hint in (e.value.hint or "")
    assert e.value.at == "--budget"


def test_a_bundle_without_a_list_of_its_ops_has_segments_at_least(
    tmp_path: Path,
) -> None:
    write_bundle(tmp_path / "old.edgec", *tiny_model.parts())
    with Bundle.open(tmp_path / "old.edgec") as opened:
        assert [b.figure for b in parse_budgets(["mix<=1ms,mix.p95<=2ms"], opened)] == [
            "mix",
            "mix.p95",
        ]
        with pytest.raises(InputError, match=r"there is no figure mix\.op0"):
            parse_budgets(["mix.op0<=1ms"], opened)


def test_absent_is_not_zero() -> None:
    assert figures(ESTIMATED)["throttled"] == Absent(
        "nothing was read of the device's clock, temperature and throttling"
    )
