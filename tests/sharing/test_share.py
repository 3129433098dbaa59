"""`--share`: every field that leaves a machine is listed, and whatever is put into a
report, nothing personal comes out.
"""

from __future__ import annotations

import getpass
import json
import platform
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from edgec_devices.decoding import from_json
from edgec_devices.machine import Machine
from edgec_devices.measurement import Identity
from edgec_runtime.bundle.manifest import check_manifest
from edgec_runtime.device_end.facts import collect

import edgec
from edgec.benching.result import BenchReport
from edgec.emit.graph_file import GraphFile, GraphOp, GraphSegment
from edgec.errors import InputError
from edgec.sharing.bench_facts import latency_row, network_row
from edgec.sharing.machine import board_row, machine_row
from edgec.sharing.rules import MAX_ROWS
from edgec.sharing.schema import REPORT
from edgec.verbs.sharing import shared_text
from tests import builds
from tests.benching import example
from tests.cli.verbs import edgec as verb
from tests.devices.test_doctor import Pi
from tests.runtime import tiny_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "measured.md"
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"

POISON = (
    "/home/alice/secret.onnx",
    "alice@example.org",
    "192.168.7.23",
    "10.0.0.1",
    "fe80::1ff:fe23:4567:890a",
    "b8:27:eb:12:34:56",
    "10000000abcdef01",
    "alices-laptop.local",
    "SHA256:abcdefg",
    "<script>",
)
TRACES = (
    "alice",
    "secret",
    "example.org",
    "192.168",
    "168.7",
    "10.0.0",
    "fe80",
    "b8:27",
    "abcdef",
    "laptop",
    "SHA256",
    "script",
    "/",
)
"""Pieces by which a value would be known; the only "/" that may be is Debian's own."""
HUGE = (0x10000000ABCDEF01, 0xB827EB123456, -1e300, float("nan"))


def traces(text: str) -> list[str]:
    found = text.replace("GNU/Linux", "")
    return [trace for trace in TRACES if trace.lower() in found.lower()]


def poisoned(value: Any, poison: Any, how: str) -> Any:
    """A value with poison in place of each text and number, or before or after it."""
    if isinstance(value, dict):
        made = {key: poisoned(one, poison, how) for key, one in value.items()}
        return {**made, f"x-{poison}": poison}
    if isinstance(value, list):
        return [*(poisoned(one, poison, how) for one in value), poison]
    if isinstance(value, str) and isinstance(poison, str) and how != "instead":
        return f"{value} {poison}" if how == "after" else f"{poison} {value}"
    return poison


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a Raspberry Pi with a stick."""
    folder = tmp_path_factory.mktemp("pi")
    return collect(str(folder), str(Pi(folder / "pi").root))


@pytest.mark.parametrize("how", ["instead", "before", "after"])
@pytest.mark.parametrize("poison", [*POISON, *HUGE, ["/home/alice"], {"a": "alice"}])
def test_poisoned_facts_come_out_clean(
    poison: Any, how: str, facts: dict[str, Any]
) -> None:
    row = machine_row(poisoned(facts, poison, how))
    text = shared_text("doctor", "2026-11-27", {"machine": row, f"x{poison}": poison})
    assert traces(text) == []
    assert not [n for n in _numbers(json.loads(text)) if abs(n) > 1e13]


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _numbers(one)
    elif isinstance(value, list):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, (int, float)):
        yield value


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("poison", POISON)
def test_a_poisoned_bench_comes_out_clean(poison: str, how: str) -> None:
    """Names of the bundle, of its tensors and operations, of the device."""
    data = json.loads(json.dumps(example.measured().to_json()))
    report = from_json(
        json.dumps(_texts_poisoned(data, poison, how)).encode(),
        BenchReport,
        "the report",
        "here",
        "none",
    )
    manifest = tiny_model.manifest()
    manifest["name"] = manifest["target"] = manifest["board"] = poison
    manifest["labels"] = [poison]
    manifest["toolchain"] = {poison: poison}
    manifest |= {"schema": 3, "files": {}}
    op = GraphOp(0, poison, poison, poison, poison, 7, "relu", "cpu", 0, ())
    graph = GraphFile((op,), (GraphSegment("relu", 3, (poison,), {}),))
    parts = {
        "machine": board_row(report.device),
        "network": network_row(check_manifest(manifest), graph, report, report),
        "latency": latency_row(report, report),
    }
    assert traces(shared_text("bench", report.when[:10], parts)) == []


def _texts_poisoned(value: Any, poison: str, how: str) -> Any:
    """All texts poisoned, but for the numbers that a report cannot do without."""
    if isinstance(value, dict):
        return {key: _texts_poisoned(one, poison, how) for key, one in value.items()}
    if isinstance(value, list):
        return [_texts_poisoned(one, poison, how) for one in value]
    if isinstance(value, str):
        return f"{value} {poison}" if how == "after" else f"{poison} {value}"
    return value


def test_what_a_maintainer_needs_of_a_pi_is_there(facts: dict[str, Any]) -> None:
    facts = {**facts, "cpu": "Cortex-A76", "kernel": "6.12.47+rpt-rpi-2712-alice"}
    text = shared_text("doctor", "2026-11-27", {"machine": machine_row(facts)})
    row = json.loads(text)["machine"]
    assert row["board"] == "Raspberry Pi 5 Model B Rev 1.0"
    assert row["cores"] == ["Cortex-A76"]
    assert row["kernel"] == "6.12.47+rpt-rpi-2712"
    assert row["os"] == "Debian GNU/Linux 12"
    assert row["libedgetpu"] == "16.0tf2.19.1"
    assert row["edgetpu_usb_mbps"] == [5000]
    assert (row["governor"], row["khz"], row["max_khz"]) == (
        "ondemand",
        1_500_000,
        2_400_000,
    )
    assert (row["celsius"], row["throttled"]) == (48.2, 0)


@pytest.mark.parametrize(
    "board",
    [
        "Raspberry Pi 4 Model B Rev 1.4",
        "Raspberry Pi 3 Model B Plus Rev 1.3",
        "Raspberry Pi Zero 2 W Rev 1.0",
        "Raspberry Pi 400 Rev 1.0",
        "Raspberry Pi Compute Module 4 Rev 1.1",
        "Raspberry Pi Compute Module 5 Lite Rev 1.0",
        "Raspberry Pi 500 Rev 1.0",
        "Raspberry Pi 500 Plus Rev 1.0",
        "Radxa ROCK 5B",
        "Radxa ROCK3 Model A",
        "Radxa ZERO 3",
        "Xunlong Orange Pi 5",
        "Orange Pi 5 Plus",
        "FriendlyElec NanoPi R5S",
    ],
)
def test_boards_keep_their_names(board: str) -> None:
    device = Identity("ssh://alice@attic", board, "Cortex-A72", "", "", "", False)
    parts = {"machine": board_row(device)}
    assert json.loads(shared_text("bench", "", parts))["machine"]["board"] == board


def test_all_that_is_collected_is_listed(facts: dict[str, Any]) -> None:
    """A new fact needs a rule, or it would be dropped without a word."""
    report = example.measured()
    manifest = check_manifest({**tiny_model.manifest(), "schema": 3, "files": {}})
    op = GraphOp(0, "relu", "", "", "", 7, "relu", "cpu", 0, ())
    rows = {
        "machine": machine_row(facts),
        "network": network_row(manifest, GraphFile((op,)), report, report),
        "latency": latency_row(report, report),
    }
    assert REPORT.clean(rows).keys() == rows.keys()  # type: ignore[union-attr]
    listed = {path for path, _ in REPORT.paths()}
    assert set(_paths(rows)) <= listed


def _paths(value: dict[str, Any], before: str = "") -> Iterator[str]:
    for key, one in value.items():
        if isinstance(one, dict):
            yield from _paths(one, f"{before}{key}.")
        elif isinstance(one, list) and one and isinstance(one[0], dict):
            yield from _paths(one[0], f"{before}{key}[].")
        else:
            yield f"{before}{key}"


def test_the_page_lists_every_field(request: pytest.FixtureRequest) -> None:
    rows = [f"| `{path}` | {about} |" for path, about in REPORT.paths()]
    fields = "\n".join(["| field | what it is |", "| --- | --- |", *rows])
    _check_part("fields", fields, request)


def test_the_page_has_the_boards_that_were_sent(request: pytest.FixtureRequest) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "measured_table.py"))
    _check_part("measured", tool["table"](tool["reports"]()), request)


def _check_part(name: str, fresh: str, request: pytest.FixtureRequest) -> None:
    """Compare the part of the page between two marks, or write it."""
    text = PAGE.read_text()
    head, rest = text.split(f"<!-- {name} -->\n")
    tail = rest.split(f"<!-- /{name} -->")[1]
    made = f"{head}<!-- {name} -->\n\n{fresh}\n\n<!-- /{name} -->{tail}"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made, "run pytest --update-golden tests/sharing"


def test_files_that_were_sent_have_listed_fields_alone() -> None:
    for path in (PAGE.parent / "measured").glob("*.json"):
        data = json.loads(path.read_text())
        assert REPORT.clean(data) == data, path


def test_the_table_takes_boards_and_no_estimates(tmp_path: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "measured_table.py"))
    report = example.measured()
    device = Identity("", "Raspberry Pi 4 Model B Rev 1.4", "", "", "", "", False)
    for name, bench in {"a": report, "b": example.estimated()}.items():
        parts = {
            "machine": board_row(device),
            "network": {"target": "pi4", "macs": 3_000_000, "threads": 1},
            "latency": latency_row(bench, None),
        }
        text = shared_text("bench", "2026-11-27", parts)
        (tmp_path / f"{name}.json").write_text(text)
    lines = tool["table"](tool["reports"](tmp_path)).splitlines()
    assert len(lines) == 3
    summary = report.latency.summary()
    assert summary is not None
    assert f"| {summary.p50:.2f} |" in lines[2]
    assert "Raspberry Pi 4 Model B Rev 1.4" in lines[2]


def test_long_lists_are_cut() -> None:
    parts = {"network": {"segments": [{"place": "cpu"}] * 9999}}
    shared = json.loads(shared_text("bench", "", parts))
    assert len(shared["network"]["segments"]) == MAX_ROWS


def personal() -> list[str]:
    """What is known of the person and the machine that run this test."""
    home = str(Path.home())
    names = [getpass.getuser(), platform.node(), home, str(ROOT)]
    return [name for name in names if len(name) > 2]


def test_doctor_of_this_machine(tmp_path: Path) -> None:
    done = verb("doctor", "--share", "here.json", cwd=tmp_path)
    assert done.code in (0, 1), done.err
    text = (tmp_path / "here.json").read_text()
    data = json.loads(text)
    assert data["of"] == "doctor"
    assert REPORT.clean(data) == data
    version = ".".join(platform.python_version_tuple()[:2])
    assert data["machine"]["python"].startswith(version)
    assert data["machine"]["memory_mb"] > 100
    assert not [name for name in personal() if name in text]


def test_a_place_where_nothing_can_be_written_is_refused_first(tmp_path: Path) -> None:
    done = verb("doctor", "--share", "no/such/file.json", cwd=tmp_path)
    assert done.code == 2
    assert "at: --share" in done.err
    assert done.out == ""
    with pytest.raises(InputError):
        edgec.doctor("local:", share=tmp_path)


def _secret(to: Path) -> None:
    edgec.compile(DIGITS, "host", to / "alices_secret.edgec")


@pytest.mark.cc
@pytest.mark.slow
def test_bench_of_this_machine(tmp_path: Path) -> None:
    path = builds.once("share bench", _secret) / "alices_secret.edgec"
    done = verb("bench", path, "--runs", "20", "--share", "here.json", cwd=tmp_path)
    assert done.code == 0, done.err
    text = (tmp_path / "here.json").read_text()
    data = json.loads(text)
    assert REPORT.clean(data) == data
    kinds = {row["kind"]: row for row in data["network"]["kinds"]}
    assert kinds["conv2d"]["count"] == 3
    assert sum(row["macs"] for row in kinds.values()) == data["network"]["macs"]
    latency = data["latency"]
    assert latency["origin"] == "measured"
    assert 0 < latency["min_ms"] <= latency["p50_ms"] <= latency["p95_ms"]
    assert "digits" not in text
    assert traces(text) == []
    assert not [name for name in personal() if name in text]


@pytest.mark.cc
@pytest.mark.arm
@pytest.mark.slow
def test_bench_of_an_emulated_board_is_marked_as_such(tmp_path: Path) -> None:
    edgec.compile(DIGITS, "pi4", tmp_path / "digits.edgec")
    file = tmp_path / "x.json"
    edgec.bench(tmp_path / "digits.edgec", "emulated:pi4", share=file)
    data = json.loads(file.read_text())
    assert data["machine"]["emulated"] is True
    assert data["machine"]["board"] == "Raspberry Pi 4 Model B"
    assert data["latency"]["origin"] == "estimate"
    tool = runpy.run_path(str(ROOT / "tools" / "measured_table.py"))
    assert tool["reports"](tmp_path) == []


@pytest.mark.pi
@pytest.mark.slow
def test_doctor_and_bench_of_a_device(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over ssh, of a whole emulated board: nothing of the link is in the file."""
    monkeypatch.setenv("EDGEC_SSH_CONFIG", str(machine.ssh_config))
    doctor = tmp_path / "doctor.json"
    edgec.doctor(machine.ssh_url, share=doctor)
    row = json.loads(doctor.read_text())["machine"]
    assert row["board"].startswith("Raspberry Pi 4 Model B")
    assert row["cores"] == ["Cortex-A72"]
    assert row["memory_mb"] > 300
    assert re.match(r"\d+\.\d+\.\d+", row["kernel"])
    assert row["emulated"] is True

    edgec.compile(DIGITS, "pi4", tmp_path / "alices_secret.edgec")
    bench = tmp_path / "bench.json"
    edgec.bench(tmp_path / "alices_secret.edgec", machine.ssh_url, runs=10, share=bench)
    text = bench.read_text()
    data = json.loads(text)
    for key in ("board", "cores", "memory_mb", "kernel", "python", "emulated"):
        assert data["machine"][key] == row[key]
    assert data["latency"]["origin"] == "emulator"
    assert data["latency"]["estimate_ms"] > 0
    assert traces(text) == []
    for name in (machine.alias, "ssh", "attic", *personal()):
        assert name not in text
