"""Every verb takes the bundle of a cascade as any other."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from edgec_runtime import Bundle, read_photo
from PIL import Image

import edgec
from edgec.cli.main import cli
from edgec.errors import EdgecError
from tests.cascade import objects
from tests.cascade.objects import Thing, bundle, scene

pytestmark = [pytest.mark.cc, pytest.mark.slow]
THINGS = (Thing(45, 50, 0.3), Thing(145, 100, 2.0, 24))


@dataclass(frozen=True)
class Said:
    """What a command printed, its error included."""

    exit_code: int
    output: str
    stdout: str


def typed(*words: str | Path) -> Said:
    texts = [str(word) for word in words]
    result = CliRunner().invoke(cli, texts, standalone_mode=False)
    if not isinstance(result.exception, EdgecError):
        # A verb returns its exit code, or nothing.
        code = result.exit_code or result.return_value or 0
        return Said(code, result.output, result.stdout)
    # The program's own main prints it.
    text = f"{result.output}{result.exception}"
    return Said(result.exception.exit_code, text, result.stdout)


def said(*words: str | Path) -> Any:
    """Return the JSON on standard output."""
    result = typed(*words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.fromarray(scene(*THINGS)).save(path)
    return path


def test_compile_tells_of_each_network(tmp_path: Path) -> None:
    file = objects.write(tmp_path)
    output = tmp_path / "x.edgec"
    result = typed("compile", file, "-o", output, "--allow-float")
    assert result.exit_code == 0, result.output
    assert f"{output}: a cascade of thing, discs" in result.output
    assert "networks/discs.edgec: points for host" in result.output
    assert result.output.count("verified seg0") == 2
    assert result.output.count("MACs = ") == 1
    assert [p.name for p in tmp_path.glob("*.edgec")] == ["x.edgec"]


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    file = objects.write(tmp_path)
    first = tmp_path / "first" / "cascade.edgec"
    first.parent.mkdir()
    edgec.compile(file, "host", first, threads=2, allow_float=True)
    assert first.read_bytes() == bundle().read_bytes()


def test_the_verbs_of_edgec_take_cascades_as_its_commands_do(tmp_path: Path) -> None:
    file = objects.write(tmp_path)
    output = tmp_path / "x.edgec"
    done = edgec.compile(str(file), "host", output, threads=2, allow_float=True)
    assert [*done.networks] == ["thing", "discs"]
    assert output.read_bytes() == bundle().read_bytes()
    report = edgec.explain(file, "pi4", allow_float=True)
    assert [*report.networks] == ["thing", "discs"]
    bench = edgec.bench(output, runs=2, budgets=["fps.1>=0.001, discs.p95<=9s"])
    assert [check.what for check in bench.budgets] == ["fps.1>=0.001", "p95<=9s"]
    assert all(check.holds for check in bench.budgets)
    assert [*bench.networks] == ["thing", "discs"]
    # What is wrong with a cascade is said as of any model.
    with pytest.raises(EdgecError, match=r"none\.toml"):
        edgec.compile("none.toml")


def test_the_earlier_place_of_verbs_says_what_to_use() -> None:
    with pytest.raises(ImportError, match="explain and bench: they take"):
        from edgec import cascades  # noqa: F401


def test_run_finds_and_draws(photo: Path, tmp_path: Path) -> None:
    found = said("run", bundle(), "--input", photo, "--json")["objects"]
    assert [one["identity"] for one in found] == [1, 2]
    assert [*found[0]["results"]] == ["thing", "discs", "mirror"]
    places = sorted(one["results"]["discs"]["points"][0]["x"] for one in found)
    expected = sorted(thing.points[0][0] for thing in THINGS)
    assert places == pytest.approx(expected, abs=0.1)

    drawn = tmp_path / "drawn.png"
    result = typed("run", bundle(), "--input", photo, "--out", drawn)
    assert f"{drawn}: 2 objects (from local:)" in result.output
    assert (read_photo(drawn) != read_photo(photo)).any()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--raw",), "no outputs of its own"),
        (("--out", "x.npz"), "no outputs of its own"),
        (("--effect", "blur"), "blur is for a segmentation"),
    ],
)
def test_run_refuses_what_a_cascade_has_not(
    photo: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    with_picture = ("--out", tmp_path / "x.png") if "--effect" in words else ()
    result = typed("run", bundle(), "--input", photo, *words, *with_picture)
    assert result.exit_code == 2
    assert message in result.output


def test_run_takes_a_photo(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    result = typed("run", bundle(), "--input", tmp_path / "x.npz")
    assert "a cascade takes one" in result.output
    np.save(tmp_path / "x.npy", scene(*THINGS))
    assert "discs" in typed("run", bundle(), "--input", tmp_path / "x.npy").output


def test_bench_has_each_network_and_the_rates(photo: Path, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    result = typed(
        *("bench", bundle(), "--runs", "9", "--frames", "30", "--source", photo),
        *("--json", file),
    )
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text())
    assert [*report["networks"]] == ["thing", "discs"]
    rates = report["frames_per_second"]
    assert [*rates] == ["0", "1", "2"]
    assert rates["1"] > rates["2"]
    stages = {stage["name"]: stage["runs"] for stage in report["stream"]["stages"]}
    # A frame or two more were on their way when the stream was closed.
    assert report["stream"]["delivered"] == 30
    assert 60 <= stages["discs"] <= 68
    assert 3 <= stages["thing"] <= 4
    assert "Stream of 30 frames" in result.output


def test_bench_reckons_by_the_number_of_objects() -> None:
    done = edgec.bench(bundle(), runs=9)
    detector, discs, mirror = (share.latency for share in done.shares)
    assert detector is not None
    assert discs is not None
    # Two networks see each object, and the detector one frame in ten.
    assert mirror == discs
    assert done.ms(2) == pytest.approx(detector / 10 + 4 * discs)
    assert done.ms(0) == pytest.approx(detector)


def test_bench_judges_a_network_and_the_whole(tmp_path: Path) -> None:
    """Each budget has a verdict, each network a suite, a page and a process."""
    names = ("junit", "markdown", "trace", "html")
    files = {name: tmp_path / f"out.{name}" for name in names}
    words = [word for name in names for word in (f"--{name}", files[name])]
    budgets = "fps.1>=0.001, discs.p95<=0.000001ms"
    result = typed("bench", bundle(), "--runs", "9", "--budget", budgets, *words)
    assert result.exit_code == 1, result.output
    assert re.search(r"PASS +\| `fps.1>=0.001`", result.output)
    assert re.search(r"FAIL +\| `discs: p95<=0.000001ms`", result.output)

    root = ElementTree.parse(files["junit"]).getroot()
    assert [suite.get("name") for suite in root] == [
        "edgec bench cascade",
        "edgec bench cascade thing",
        "edgec bench cascade discs",
    ]
    assert root.get("failures") == "1"
    failed = [
        case.get("name")
        for case in root.iter("testcase")
        if len(case) and case[0].tag == "failure"
    ]
    assert failed == ["p95<=0.000001ms"]
    markdown = files["markdown"].read_text()
    assert "`discs: p95" in markdown
    assert markdown.count("## ") == 3
    # Both networks have the same terms.
    assert markdown.count("planned = ") == 1
    assert markdown.index("planned = ") > markdown.rindex("- bundle: ")
    assert 'href="out.discs.html"' in files["html"].read_text()
    assert (tmp_path / "out.thing.html").exists()
    events = json.loads(files["trace"].read_text())["traceEvents"]
    processes = {
        e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"
    }
    assert {name.partition(":")[0] for name in processes.values()} == {"thing", "discs"}


def test_bench_compares_each_network(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.json"
    assert typed("bench", bundle(), "--runs", "12", "--json", earlier).exit_code == 0
    compared = edgec.bench(bundle(), runs=12, compare=earlier, max_regress=9.0)
    for report in compared.networks.values():
        assert report.comparison is not None
        assert report.comparison.ratio > 0
    other = json.loads(earlier.read_text())
    del other["networks"]["discs"]
    earlier.write_text(json.dumps(other))
    result = typed("bench", bundle(), "--runs", "9", "--compare", earlier)
    assert result.exit_code == 2
    assert "the earlier run has no network discs, but thing" in result.output


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("p95<=33ms", "there is no figure p95"),
        ("fps.3>=1", "there is no figure fps.3"),
        ("fps>=25", "there is no figure fps"),
        ("mirror.p95<=1ms", "there is no figure mirror.p95"),
        ("discs.q95<=1ms", "there is no figure q95"),
    ],
)
def test_bench_names_what_budgets_can_name(budget: str, message: str) -> None:
    result = typed("bench", bundle(), "--budget", budget)
    assert result.exit_code == 2
    assert message in result.output
    assert "figures: " in result.output


def test_explain_has_a_report_for_each_network(tmp_path: Path) -> None:
    file = objects.write(tmp_path)
    report = said("explain", file, "--target", "pi4+coral", "--json")
    assert [*report["networks"]] == ["thing", "discs"]
    assert report["networks"]["discs"]["model"] == "points"
    text = typed("explain", file, "--target", "pi4+coral").output
    assert "network thing\n" in text
    assert text.count("MACs = ") == 1
    assert text.count("segment = ") == 1
    assert "op  kind" not in text
    assert text.endswith(")\n")


def test_explain_requires_of_each_network(tmp_path: Path) -> None:
    file = objects.write(tmp_path)
    page = tmp_path / "page.html"
    words = ("--target", "pi4+coral", "--require", "segments>=1, discs.cpu.ms<=0ms")
    result = typed("explain", file, *words, "--html", page)
    assert result.exit_code == 1, result.output
    assert "holds   thing: segments>=1" in result.output
    assert "MISSED  discs: cpu.ms<=0ms" in result.output
    assert 'href="page.thing.html"' in page.read_text()
    assert "<svg" in (tmp_path / "page.discs.html").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("tune", "BUNDLE"),
        ("package", "BUNDLE"),
        ("diff", "BUNDLE", "BUNDLE", "--inputs", "noise.npz"),
    ],
    ids=lambda words: words[0],
)
def test_verbs_for_one_network_say_so(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("noise.npz", x=np.zeros((1, 3, 8, 8), np.float32))
    result = typed(*(bundle() if word == "BUNDLE" else word for word in words))
    assert result.exit_code == 2, result.output
    assert "one network is needed; it has thing, discs, mirror" in result.output


def test_webcam_shows_it_on_this_machine(photo: Path, tmp_path: Path) -> None:
    folder = tmp_path / "clip"
    folder.mkdir()
    for i in range(5):
        moved = Thing(45 + i, 50, 0.3 + 0.05 * i)
        Image.fromarray(scene(moved, THINGS[1])).save(folder / f"{i}.png")
    out = tmp_path / "out"
    report = said(
        *("webcam", bundle(), "--source", folder, "--no-display", "--json"),
        *("--out", out),
    )
    assert report["delivered"] == 5
    assert [one["identity"] for one in report["result"]["objects"]] == [1, 2]
    names = [stage["name"] for stage in report["stages"]]
    assert names[-3:] == ["thing", "discs", "mirror"]
    assert len([*out.glob("*.png")]) == 5


def test_flash_puts_it_on_a_device(
    photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "device"))
    flashed = typed("flash", bundle(), "--on", "local:")
    assert flashed.exit_code == 0, flashed.output
    assert "cascade" in typed("status", "--on", "local:").output
    refused = typed("flash", bundle(), "--on", "local:", "--health", "p95<=40ms")
    assert "a cascade has no program of its own" in refused.output
    report = said(
        *("webcam", bundle(), "--on", "local:", "--source", photo),
        *("--no-display", "--json"),
    )
    assert len(report["result"]["objects"]) == 2


def test_flash_refuses_code_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "device"))
    result = typed("flash", bundle(target="pi4"), "--on", "local:")
    assert result.exit_code != 0
    assert (
        "the bundle has no code for linux-x86_64; it has linux-aarch64" in result.output
    )


@pytest.mark.arm
def test_a_board_runs_each_network(photo: Path) -> None:
    board = said(
        *("run", bundle(target="pi4"), "--on", "emulated:pi4", "--input", photo),
        "--json",
    )
    here = said("run", bundle(), "--input", photo, "--json")
    assert board == here


def test_a_signature_covers_all_networks(tmp_path: Path) -> None:
    copy = tmp_path / "x.edgec"
    copy.write_bytes(bundle().read_bytes())
    key = tmp_path / "key"
    assert typed("sign", "--new-key", key).exit_code == 0
    assert typed("sign", copy, "--key", key).exit_code == 0
    with Bundle.open(copy) as signed:
        assert signed.signature is not None
        assert signed.network("discs").manifest.task is not None
