"""From raw times to a report: what is steady, what is an estimate, what a reader must
know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from edgec_devices.measurement import (
    Identity,
    Launch,
    Measurement,
    OpEstimate,
    OpProfile,
    SegmentEstimate,
)
from edgec_runtime import Bundle, DeviceError, write_bundle

from edgec.benching.build import build_report, read_graph
from edgec.benching.memory import sections
from edgec.benching.result import EMULATOR, BenchReport
from edgec.errors import InputError
from tests import builds
from tests.runtime import tiny_model

HERE = Identity(
    "local:", "Raspberry Pi 4", "Cortex-A72", "Debian", "6.1", "linux-aarch64", False
)
GRAPH: dict[str, Any] = {
    "ops": [
        {
            "index": 0,
            "kind": "add",
            "source": "a",
            "output": "q",
            "type": "int8[48]",
            "macs": 3,
            "segment": "mix",
            "place": "cpu",
            "call": 1,
            "reads": [],
        },
    ],
    "segments": [
        {"name": "shift", "constants": 8, "functions": [], "est_parts": {}},
        {
            "name": "relu",
            "constants": 0,
            "functions": [],
            "est_parts": {"input": 0.1, "compute": 0.15},
        },
        {
            "name": "mix",
            "constants": 4,
            "functions": ["op0_cast", "op1_add"],
            "est_parts": {},
        },
    ],
}


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Bundle]:
    manifest, files = tiny_model.parts()
    write_bundle(
        tmp_path / "m",
        manifest,
        {**files, "report/graph.json": json.dumps(GRAPH).encode()},
    )
    with Bundle.open(tmp_path / "m") as opened:
        yield opened


def launch(ms: list[float], warmup: int = 2, waited: float = 0.0) -> Launch:
    """Segments that take half, a quarter and a quarter."""
    total = tuple(round(m * 1e6) for m in ms)
    parts = tuple(tuple(ns // k for ns in total) for k in (2, 4, 4))
    at = tuple(10**9 + sum(total[:i]) for i in range(len(total)))
    slow = tuple(round(waited * ns) for ns in total)
    return Launch(("c", "c", "c"), 700_000, warmup, at, total, parts, 2_000_000, slow)


def measured(*launches: Launch) -> Measurement:
    return Measurement(HERE, "program", ("c", "c", "c"), launches)


def test_warming_up_is_apart(bundle: Bundle) -> None:
    series = [9.0, 6.0, 5.0, *[2.0] * 40]
    r = build_report(bundle, measured(*[launch(series)] * 5), {})
    assert r.first.ms == (9.0,) * 5
    assert r.load.ms == (0.7,) * 5
    assert (r.steadiness.reached, r.steadiness.warmup_runs) == (True, 3), (
        "it took longer than the program warmed up"
    )
    assert r.steadiness.warmup.ms == (20.0,) * 5
    assert r.latency.rounds == ((2.0,) * 40,) * 5
    assert [s.latency.rounds[0][0] for s in r.segments] == [1.0, 0.5, 0.5]
    assert not r.estimated


def test_what_never_becomes_steady_says_so(bundle: Bundle) -> None:
    r = build_report(
        bundle, measured(*[launch([2.0 + i / 10 for i in range(60)])] * 5), {}
    )
    assert not r.steadiness.reached
    assert len(r.latency.rounds[0]) == 58, "all but the warm-up"


def test_a_twin_is_no_edge_tpu(bundle: Bundle) -> None:
    r = build_report(bundle, measured(launch([2.0] * 20)), {})
    assert r.segments[1].parts == {}
    assert "relu ran as C on the CPU, not on an Edge TPU." in r.notes
    on_tpu = replace(measured(launch([2.0] * 20)), backends=("c", "delegate", "c"))
    r = build_report(bundle, on_tpu, {})
    assert r.segments[1].parts == {"input": 0.1, "compute": 0.15}
    assert r.notes == ()


def test_waiting_for_the_processor_is_told(bundle: Bundle) -> None:
    r = build_report(bundle, measured(launch([2.0] * 20, waited=0.25)), {})
    assert r.waited == ((0.5,) * 18,)
    assert any(note.startswith("25% of the time") for note in r.notes)


def test_ops_are_medians_of_all_launches(bundle: Bundle) -> None:
    def profiled(ns: int) -> Launch:
        profile = OpProfile(
            (100, 200), (1, 2), (102, 208), ((), (), ((ns, ns + 2), (1000, 3000)))
        )
        return replace(launch([2.0] * 20), profile=profile)

    r = build_report(bundle, measured(profiled(10), profiled(14), profiled(200)), {})
    assert r.profile_overhead == pytest.approx(0.03)
    cast, add = r.segments[2].ops
    assert (cast.name, cast.kind, cast.ms) == ("op0_cast", "", 15e-6)
    assert (add.name, add.kind, add.source, add.output, add.macs) == (
        "op1_add",
        "add",
        "a",
        "int8[48]",
        3,
    )
    assert add.ms == 2e-3
    assert r.segments[0].ops == ()


def test_an_emulated_machine_measures_nothing(bundle: Bundle) -> None:
    there = replace(measured(launch([2.0] * 20)), device=replace(HERE, emulated=True))
    r = build_report(bundle, there, {})
    assert r.estimated
    assert r.first.estimated
    assert all(s.latency.estimated and s.latency.how == EMULATOR for s in r.segments)
    assert r.emulated
    assert not build_report(bundle, measured(launch([2.0] * 20)), {}).emulated


def test_estimates(bundle: Bundle) -> None:
    e = (
        SegmentEstimate(1.0, "from cycles", ()),
        SegmentEstimate(0.25, "by the cost model", error=0.2),
        SegmentEstimate(0.5, "from cycles", (OpEstimate(0.2, ""), OpEstimate(0.3, ""))),
    )
    m = Measurement(
        HERE,
        "program",
        ("c", "cost model", "c"),
        (),
        e,
        0.125,
        ("a note",),
        error=0.1,
    )
    r = build_report(bundle, m, {})
    assert r.latency.rounds == ((1.875,),)
    assert (r.latency.error, r.segments[1].latency.error) == (0.1, 0.2)
    assert r.to_json()["latency"]["interval"] == pytest.approx([1.6875, 2.0625])
    assert r.estimated
    assert r.first.ms == r.load.ms == ()
    assert [op.ms for op in r.segments[2].ops] == [0.2, 0.3]
    assert r.segments[1].parts == {"input": 0.1, "compute": 0.15}
    assert r.notes == ("a note",)
    assert r.memory.rss_estimated
    unknown = replace(m, estimates=(SegmentEstimate(None, "no plugin"), *e[1:]))
    assert build_report(bundle, unknown, {}).latency.rounds == ()


TOO_EARLY = json.dumps({"ops": [{**GRAPH["ops"][0], "reads": [0]}]})


@pytest.mark.parametrize(
    "damage", ["[]", '{"ops": 3}', '{"ops": [{"index": "0"}]}', TOO_EARLY]
)
def test_a_graph_file_that_lies(damage: str, tmp_path: Path) -> None:
    manifest, files = tiny_model.parts()
    write_bundle(
        tmp_path / "m", manifest, {**files, "report/graph.json": damage.encode()}
    )
    with (
        Bundle.open(tmp_path / "m") as opened,
        pytest.raises(InputError, match=r"report/graph.json is damaged"),
    ):
        read_graph(opened)


def test_reports_are_read_back(bundle: Bundle, tmp_path: Path) -> None:
    r = build_report(bundle, measured(*[launch([9.0, *[2.0] * 30])] * 4), {"runs": 3})
    path = tmp_path / "r.json"
    path.write_text(json.dumps(r.to_json()))
    assert BenchReport.load_file(path) == r
    wrong: list[tuple[str, object]] = [
        ("comparison", 67),
        ("memory", "x"),
        ("latency", []),
    ]
    damaged = [json.dumps({**r.to_json(), name: value}) for name, value in wrong]
    deep = "[" * 200_000 + "]" * 200_000
    for damage in (
        '{"schema": 1',
        "[]",
        '{"schema": 2}',
        '{"schema": 1, "model": 3}',
        '{"schema": 1}',
        deep,
        *damaged,
    ):
        path.write_text(damage)
        with pytest.raises(InputError) as e:
            BenchReport.load_file(path)
        assert e.value.hint == "give what edgec bench --json wrote"
    with pytest.raises(InputError, match="cannot read the earlier run"):
        BenchReport.load_file(tmp_path / "none")


def test_a_strange_report_of_a_program() -> None:
    good = {"warmup": 1, "at": [1, 2], "total": [1, 1], "segments": [{"ns": [1, 1]}]}
    assert Launch.parse(good, 1, "x").total == (1, 1)
    for bad in (
        {**good, "warmup": -1},
        {**good, "at": [1]},
        {**good, "total": [1, "2"]},
        {**good, "segments": 3},
        {**good, "segments": []},
        {**good, "waited": [1]},
        {**good, "profile": {"ops": []}},
        {},
    ):
        with pytest.raises(DeviceError) as e:
            Launch.parse(bad, 1, "x")
        assert e.value.at == "x"


@pytest.mark.cc
def test_sections_of_a_program(tmp_path: Path) -> None:
    source = tmp_path / "p.c"
    source.write_text(
        "const char text[50000] = {1}; char zeros[70000]; "
        "int main(void) { return text[0] + zeros[1]; }"
    )
    for target in ("x86_64-linux-musl", "arm-linux-musleabihf"):
        builds.program(
            [*builds.ZIG, "-target", target, "-O0"], [source], tmp_path / "p"
        )
        code, constants, data = sections((tmp_path / "p").read_bytes())
        assert 500 < code < 1_000_000
        assert 50_000 <= constants < 1_000_000
        assert 70_000 <= data < 1_000_000
    assert sections(b"") == sections(b"\x7fELF") == sections(bytes(100)) == (0, 0, 0)
