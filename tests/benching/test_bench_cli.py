"""`edgec bench`: exit codes and texts of budgets, comparisons and mistakes; the same
shape of report everywhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from edgec_devices.links.local import Local
from edgec_devices.measurement import Measurement
from edgec_runtime import write_bundle
from edgec_runtime.device_end.bundles import machine_target

import edgec
from edgec.benching.result import EMULATOR
from edgec.cli.main import cli
from edgec.errors import EdgecError, InputError
from tests.conftest import ROOT
from tests.runtime import tiny_model

pytestmark = pytest.mark.cc

QUICK = ("--runs", "24", "--seconds", "0.1")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with programs for this machine and for a Pi."""
    programs = {
        t: tiny_model.build_program(tmp_path_factory.mktemp(t), t)
        for t in ("linux-aarch64",)
    }
    programs[machine_target()] = tiny_model.build_program(
        tmp_path_factory.mktemp("here")
    )
    path = tmp_path_factory.mktemp("bundle") / "tiny.edgec"
    write_bundle(path, *tiny_model.parts(programs=programs))
    return path


@pytest.fixture
def bundle(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.edgec").symlink_to(built)
    return Path("tiny.edgec")


def run(*args: object) -> tuple[int, str]:
    """The exit code and what was printed; errors as main() prints them."""
    result: Result = CliRunner().invoke(
        cli, ["bench", *map(str, args)], standalone_mode=False
    )
    if isinstance(result.exception, EdgecError):
        return result.exception.exit_code, str(result.exception)
    assert result.exception is None, result.exception
    return int(result.return_value or 0), result.output


def test_budgets_that_hold(bundle: Path) -> None:
    code, said = run(
        bundle,
        *QUICK,
        "--budget",
        "p95<=5s",
        "--budget",
        "rss<=80MB, fps>=0.1",
        "--budget",
        "load<=5s",
    )
    assert code == 0, said
    for budget in ("p95<=5s", "rss<=80MB", "fps>=0.1", "load<=5s"):
        (line,) = [line for line in said.splitlines() if f"`{budget}`" in line]
        assert "PASS" in line
    assert "tiny on local:" in said.splitlines()[0]


def test_a_budget_that_is_missed(bundle: Path) -> None:
    code, said = run(
        bundle,
        *QUICK,
        "--budget",
        "p95<=5s",
        "--budget",
        "p50<=1ns",
        "--junit",
        "j.xml",
        "-q",
    )
    assert code == 1
    held, missed, *_ = said.splitlines()
    assert held.startswith("PASS")
    assert missed.startswith("FAIL")
    assert "p50<=1ns" in missed
    assert " ns" in missed, "the measured value and the margin"
    suite = ElementTree.parse("j.xml").getroot()
    failed = [
        case.get("name")
        for case in suite.iter("testcase")
        if case.find("failure") is not None
    ]
    assert failed == ["p50<=1ns"]


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("p59<=33ms", 'there is no figure p59; did you mean "p99"?'),
        ("p95<=33mb", "MB"),
        ("p95<=33MB", "ms"),
        ("p95=<33ms", "is not a requirement"),
        ("shift.p59<=1ms", "did you mean"),
        ("", "is not a requirement"),
    ],
)
def test_a_budget_with_a_typo(
    bundle: Path, budget: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: Any, **__: Any) -> None:
        raise AssertionError("something was measured")

    monkeypatch.setattr("edgec_devices.links.local.Local.measure", nothing)
    code, text = run(bundle, "--budget", budget, "--json", "r.json")
    assert code == 2
    assert said in text
    assert "\n  hint: " in text
    assert not Path("r.json").exists()


def test_a_figure_that_is_not_there_holds_nothing(bundle: Path) -> None:
    code, said = run(bundle, *QUICK, "--budget", "tpu.transfer<=4ms", "-q")
    assert code == 1
    assert "relu ran as c" in said


@pytest.mark.arm
def test_an_estimate_holds_nothing_unless_it_is_accepted(bundle: Path) -> None:
    budgets = ("--budget", "p95<=33ms", "--budget", "tpu<=1s")
    code, said = run(bundle, "--on", "emulated:pi4", *budgets)
    assert code == 1
    assert "would hold; give --accept-estimates" in said
    assert "--on ssh://USER@HOST to measure" in said
    assert "est. " in said.splitlines()[0]
    code, said = run(bundle, "--on", "emulated:pi4", *budgets, "--accept-estimates")
    assert code == 0, said


@pytest.mark.arm
def test_an_emulated_machines_clock_holds_nothing_and_the_board_is_estimated(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Local.measure

    def emulated(*args: Any, **options: Any) -> Measurement:
        m = there(*args, **options)
        return replace(m, device=replace(m.device, emulated=True))

    monkeypatch.setattr(Local, "measure", emulated)
    code, said = run(
        bundle,
        *QUICK,
        "--budget",
        "p95<=60s,fps>=0.001,rss<=1GB",
        "--accept-estimates",
        "--html",
        "p.html",
    )
    assert code == 1, "not even where estimates count"
    head = said.splitlines()[0]
    assert "nothing follows" in head
    assert not re.search(r"\d (ms|fps)", head)
    verdicts = {
        row: said[said.index(f"`{row}`") :].splitlines()[0]
        for row in ("p95<=60s", "fps>=0.001")
    }
    assert all(
        EMULATOR in line and "--on emulated:pi4" in line for line in verdicts.values()
    )
    assert re.search(r"\| PASS +\| `rss<=1GB`", said), "bytes are bytes"
    assert re.search(
        r"The board itself: est\. [\d.]+ to [\d.]+ ms, more by edgec bench .+ --on emulated:pi4",
        said,
    )
    assert EMULATOR in unescape(Path("p.html").read_text())


@pytest.mark.arm
def test_reports_of_all_devices_have_one_shape(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "root"))
    run(bundle, *QUICK, "--json", "local.json")
    run(bundle, "--on", "emulated:pi4", "--json", "emulated.json")
    local, emulated = (
        json.loads(Path(f"{name}.json").read_text()) for name in ("local", "emulated")
    )
    assert shape(local) == shape(emulated)
    schema = json.loads((ROOT / "docs" / "bench.schema.json").read_text())
    for report in (local, emulated):
        pytest.importorskip("jsonschema").validate(report, schema)
    assert not local["latency"]["estimated"]
    assert emulated["latency"]["estimated"]
    assert emulated["first"]["ms"] == [], "an emulator's wall time is no figure"


def shape(value: Any) -> Any:
    """Keys all the way down; lists by their first element, if any."""
    if isinstance(value, dict):
        free = {"parts", "settings"}
        return {
            k: None if k in free or v is None else shape(v)
            for k, v in value.items()
            if k not in OPTIONAL
        }
    return [] if isinstance(value, list) else None


OPTIONAL = {"vitals", "summary", "interval"}


@pytest.mark.slow
def test_all_files_are_written(bundle: Path) -> None:
    files = (
        "--json",
        "r.json",
        "--junit",
        "r.xml",
        "--markdown",
        "r.md",
        "--trace",
        "r.trace",
        "--html",
        "r.html",
    )
    code, _ = run(bundle, *QUICK, *files)
    assert code == 0
    assert {p.name for p in Path().iterdir() if p.suffix != ".edgec"} == set(
        files[1::2]
    )
    assert Path("r.md").read_text().startswith("## tiny on ")
    assert json.loads(Path("r.trace").read_text())["traceEvents"]
    assert Path("r.html").read_text().startswith("<!")


@pytest.mark.parametrize("option", ["--json", "--junit", "--html"])
def test_a_place_that_cannot_be_written_is_found_first(
    bundle: Path, option: str
) -> None:
    code, said = run(bundle, option, "none/r")
    assert code == 2
    assert "the folder none does not exist" in said


@pytest.mark.slow
def test_comparison_with_itself_and_with_others(bundle: Path) -> None:
    code, _ = run(bundle, "--runs", "60", "--json", "old.json")
    assert code == 0
    code, said = run(
        bundle, "--runs", "60", "--compare", "old.json", "--max-regress", "400%", "-q"
    )
    assert code == 0, said
    assert "against old.json" in said
    old = json.loads(Path("old.json").read_text())
    for change, what in (
        (
            ("device", {**old["device"], "board": "Raspberry Pi 9"}),
            "board was Raspberry Pi 9",
        ),
        (("device", {**old["device"], "cpu": "Cortex-A7"}), "cpu was Cortex-A7"),
        (("device", {**old["device"], "runner": "session"}), "runner was session"),
        (("model", "other"), "is of the model other"),
        (
            ("latency", {**old["latency"], "estimated": True}),
            "was estimated, this one is measured",
        ),
    ):
        Path("changed.json").write_text(json.dumps({**old, change[0]: change[1]}))
        code, said = run(
            bundle, *QUICK, "--compare", "changed.json", "--json", "new.json"
        )
        assert (code, what in said) == (2, True), said
        assert not Path("new.json").exists()


def test_a_slower_build_regresses(bundle: Path) -> None:
    run(bundle, "--runs", "60", "--json", "old.json")
    old = json.loads(Path("old.json").read_text())
    old["latency"]["rounds"] = [
        [ms / 10 for ms in one] for one in old["latency"]["rounds"]
    ]
    old["waited"] = [[ms / 10 for ms in one] for one in old["waited"]]
    Path("old.json").write_text(json.dumps(old))
    code, said = run(
        bundle, "--runs", "60", "--compare", "old.json", "--junit", "j.xml"
    )
    assert code == 1
    assert "FAIL" in said
    assert ElementTree.parse("j.xml").getroot().find(".//failure") is not None


@pytest.mark.arm
def test_estimates_compare_exactly(bundle: Path) -> None:
    run(bundle, "--on", "emulated:pi4", "--json", "old.json")
    code, said = run(bundle, "--on", "emulated:pi4", "--compare", "old.json", "-q")
    assert code == 0, said
    assert "1.000" in said


def test_edgec_toml_alone(bundle: Path) -> None:
    entry = (
        '[[bench]]\nbundle = "tiny.edgec"\non = "here"\nruns = 24\nbudgets = '
        '["p95<=5s"]\njson = "r.json"\n'
    )
    config = f'[devices]\nhere = "local:"\n\n{entry}'
    Path("edgec.toml").write_text(config)
    code, said = run("-q")
    assert code == 0, said
    assert "p95<=5s" in said
    assert Path("r.json").is_file()
    Path("edgec.toml").write_text(config.replace("p95<=5s", "p95<=1ns"))
    assert run("-q")[0] == 1, "exit code 1 of one bench is that of all"
    assert run(bundle, "--on", "here", "-q")[0] == 1, (
        "its budgets hold for the bundle by name, too"
    )
    Path("edgec.toml").write_text(config.replace("p95<=5s", "q95<=5s"))
    code, said = run("-q")
    assert (code, "q95" in said, "edgec.toml" in said) == (2, True, True), said


def test_one_device_that_fails_does_not_hide_the_others(bundle: Path) -> None:
    entry = '[[bench]]\nbundle = "tiny.edgec"\nruns = 24\n'
    gone = f'{entry}on = "serial:///dev/none"\n'
    Path("edgec.toml").write_text(
        f'{gone}\n{entry}on = "local:"\nbudgets = ["p95<=5s"]\n'
    )
    code, said = run("-q")
    assert code == 2, "the largest of all"
    assert "/dev/none" in said
    assert "PASS    p95<=5s" in said
    code, said = run("--json", "r.json")
    assert code == 2
    assert "2 benches of edgec.toml would write the same --json file" in said


def test_nothing_to_bench(bundle: Path) -> None:
    code, said = run()
    assert code == 2
    assert "edgec.toml" in said


def test_two_reports_in_one_file(bundle: Path) -> None:
    code, said = run(bundle, "--json", "r", "--html", "r")
    assert (code, "--json and --html name one file" in said) == (2, True), said


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("--runs", "0"), "cannot time 0 runs"),
        (("--seconds", "nan"), "nan seconds"),
        (("--threads", "2"), "2 threads: the bundle's code is for one thread"),
        (("--max-regress", "5 percent"), "is not a percentage"),
        (("--compare", "none.json"), "cannot read the earlier run"),
        (("--on", "emulate:pi4"), 'did you mean "emulated"'),
    ],
)
def test_bad_use(bundle: Path, args: Sequence[str], what: str) -> None:
    code, said = run(bundle, *args)
    assert code == 2
    assert what in said


def test_from_python(bundle: Path) -> None:
    report = edgec.bench(bundle, runs=24, budgets=("p95<=5s",))
    assert report.budgets[0].holds
    with pytest.raises(InputError, match="no figure p59"):
        edgec.bench(bundle, runs=24, budgets=("p59<=5s",))


def test_a_bundle_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = run("none.edgec")
    assert code == 2
    assert "none.edgec" in said


def test_a_full_disk_leaves_no_half_file(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., int] = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.name.startswith(".r."):
            real(self, data[:100])
            raise OSError(28, os.strerror(28))
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    code, said = run(bundle, *QUICK, "--json", "r.json")
    assert code == 2
    assert "No space left" in said
    assert not [p for p in Path().iterdir() if "r.json" in p.name]
