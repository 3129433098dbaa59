"""edgec.toml's benches: what they become, which of them are meant, and what a mistake
in them is answered with.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from edgec_devices.listing import resolve
from edgec_runtime import write_bundle
from hypothesis import given
from hypothesis import strategies as st

from edgec.benching.config import benches
from edgec.errors import InputError
from edgec.options.bench import BenchOptions, share
from tests.runtime import tiny_model

DEVICES = (
    '[devices]\nattic = "ssh://pi@attic"\ncellar = '
    '"serial:///dev/ttyUSB0?baud=115200"\n'
)
WHOLE = (
    DEVICES
    + """
[[bench]]
bundle = "out/tiny.edgec"
on = "attic"
budgets = ["p95<=33ms", "rss<=80MB, mix<=20ms"]
runs = 500
frames = 300
seconds = 2
threads = 1
compare = "bench/attic.json"
max-regress = "5%"
accept-estimates = true
accept-throttling = true
json = "a.json"
junit = "a.xml"
markdown = "a.md"
trace = "a.trace.json"
html = "a.html"
share = "a.share.json"

[[bench]]
bundle = "out/tiny.edgec"
on = "emulated:pi4"
max-regress = 0.1

[[bench]]
bundle = "other.edgec"
"""
)


def bundle(path: Path, name: str = "tiny", target: str = "pi4+coral") -> Path:
    manifest, files = tiny_model.parts()
    path.parent.mkdir(exist_ok=True)
    write_bundle(path, manifest | {"name": name, "target": target}, files)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With edgec.toml and the bundles that it names."""
    (tmp_path / "edgec.toml").write_text(WHOLE)
    bundle(tmp_path / "out" / "tiny.edgec")
    bundle(tmp_path / "other.edgec", "other")
    return tmp_path


def test_every_key_becomes_a_field(folder: Path) -> None:
    first, second, third = benches(folder)
    assert first == BenchOptions(
        bundle=folder / "out" / "tiny.edgec",
        on="ssh://pi@attic",
        budgets=("p95<=33ms", "rss<=80MB, mix<=20ms"),
        runs=500,
        seconds=2.0,
        threads=1,
        compare=folder / "bench" / "attic.json",
        max_regress=0.05,
        accept_estimates=True,
        accept_throttling=True,
        json=folder / "a.json",
        junit=folder / "a.xml",
        markdown=folder / "a.md",
        trace=folder / "a.trace.json",
        html=folder / "a.html",
        share=folder / "a.share.json",
        frames=300,
    )
    defaults = BenchOptions(Path("x"))
    same = {
        f.name
        for f in fields(BenchOptions)
        if getattr(first, f.name) == getattr(defaults, f.name)
    }
    assert same == {"threads", "timeout", "max_regress", "source", "progress"}, (
        "a key that is not read would leave its field as it is"
    )
    assert second == BenchOptions(
        folder / "out" / "tiny.edgec", "emulated:pi4", max_regress=0.1
    )
    assert third == BenchOptions(folder / "other.edgec", "local:")


def test_no_file_and_no_entries(tmp_path: Path) -> None:
    assert benches(tmp_path) == []
    (tmp_path / "edgec.toml").write_text(DEVICES)
    assert benches(tmp_path) == []
    assert benches(tmp_path, tmp_path / "any.edgec", "attic") == []


def test_entries_of_a_bundle_and_of_a_device(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(
        bundle: str | Path | None = None, on: str | None = None
    ) -> list[tuple[str, str]]:
        chosen = benches(folder, None if bundle is None else Path(bundle), on)
        return [(Path(b.bundle).name, b.on) for b in chosen]

    tiny = [("tiny.edgec", "ssh://pi@attic"), ("tiny.edgec", "emulated:pi4")]
    assert found(folder / "out" / ".." / "out" / "tiny.edgec") == tiny
    assert found("tiny") == tiny, "by the model's name"
    assert found("other") == [("other.edgec", "local:")]
    assert found("nosuch") == []
    assert found(on="attic") == found("tiny", "ssh://pi@attic") == tiny[:1]
    assert found(on="local") == [("other.edgec", "local:")], (
        "local and local: are one device"
    )
    assert found(on="cellar") == []
    monkeypatch.chdir(folder / "out")
    assert found("tiny.edgec") == tiny, "a path is of the working directory"


def test_another_file_of_the_same_model_keeps_to_its_budgets(
    folder: Path, tmp_path: Path
) -> None:
    build = bundle(tmp_path / "build" / "new.edgec")
    first, second = benches(folder, build)
    assert (first.bundle, first.budgets, second.bundle) == (
        build,
        ("p95<=33ms", "rss<=80MB, mix<=20ms"),
        build,
    )
    for_other_board = bundle(tmp_path / "build" / "pi5.edgec", target="pi5")
    assert benches(folder, for_other_board) == []
    (folder / "other.edgec").unlink()
    assert len(benches(folder, build)) == 2, (
        "a bundle that is not asked for may be missing"
    )


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (
            "budget = ['p95<=1s']",
            'there is no key budget; did you mean "budgets"?',
            "keys: bundle, on, budgets",
        ),
        (
            "max_regress = '5%'",
            'there is no key max_regress; did you mean "max-regress"?',
            "keys: ",
        ),
        (
            "on = 'atic'",
            '"atic" is not a device; did you mean "attic"?',
            "there are attic, cellar",
        ),
        (
            "on = 'shs://pi@attic'",
            '"shs://pi@attic" is not a device; did you mean "ssh"?',
            "use emulated:<board>",
        ),
        ("on = 'emulated:pi44'", "pi44", "pi4"),
        (
            "on = 'ssh://pi@attic/home'",
            "on = 'ssh://pi@attic/home': this names no host",
            "ssh://",
        ),
        ("on = 5", "on = 5 is not a text", "quotes"),
        (
            "budgets = 'p95<=1s'",
            "budgets = 'p95<=1s' is not a list of texts",
            '["p95<=33ms"]',
        ),
        ("budgets = [5]", "is not a list of texts", '["p95<=33ms"]'),
        ("budgets = ['p96<=1s']", "there is no figure p96", "figures: min, p50"),
        ("budgets = ['p95<=1MB']", "p95 has no MB", "it is a time"),
        ("budgets = ['fast']", "is not a requirement", "for example p95<=33ms"),
        ("runs = 0", "cannot time 0 runs", "1 to 1000000"),
        ("runs = 1000001", "cannot time 1000001 runs", "1 to 1000000"),
        ("runs = 1.5", "runs = 1.5 is not a whole number", "a whole number"),
        ("runs = true", "runs = True is not a whole number", "a whole number"),
        ("runs = '5'", "runs = '5' is not a whole number", "a whole number"),
        ("seconds = 0", "cannot time for 0 seconds", "above 0"),
        ("seconds = inf", "cannot time for inf seconds", "above 0"),
        ("seconds = nan", "cannot time for nan seconds", "above 0"),
        (f"seconds = 1{'0' * 400}", "is not a number", "a number"),
        ("seconds = '1s'", "seconds = '1s' is not a number", "a number"),
        ("threads = 0", "0 threads", "give 1"),
        ("threads = 5", "5 threads", "give 1 to 4"),
        (
            "max-regress = '5'",
            '"5" is not a percentage: it could be 5% or 500%',
            "write 5%",
        ),
        (
            "max-regress = 5",
            '"5" is not a percentage: it could be 5% or 500%',
            "write 5%",
        ),
        ("max-regress = -0.1", '"-0.1" is not a percentage', "5% or 0.05"),
        ("max-regress = nan", '"nan" is not a percentage', "5% or 0.05"),
        ("max-regress = '0%'", "0 cannot limit a regression", "for example 5%"),
        ("max-regress = '1000%'", "10 cannot limit a regression", "for example 5%"),
        ("max-regress = true", "max-regress = True is not a number", "a number"),
        (
            "accept-estimates = 1",
            "accept-estimates = 1 is not true or false",
            "true or false",
        ),
        ("json = ''", "json = '' is not a path", "quotes"),
        ("json = 5", "json = 5 is not a path", "quotes"),
        ('html = "a\\u0000b"', "is not a path", "quotes"),
    ],
)
def test_mistakes_in_an_entry(folder: Path, line: str, message: str, hint: str) -> None:
    good = DEVICES + "[[bench]]\nbundle = 'other.edgec'\n"
    (folder / "edgec.toml").write_text(
        f"{good}[[bench]]\nbundle = 'out/tiny.edgec'\n{line}\n"
    )
    with pytest.raises(InputError) as e:
        benches(folder)
    assert message in e.value.what
    assert hint in (e.value.hint or "")
    assert re.fullmatch(
        rf"{re.escape(str(folder))}/edgec\.toml, \[\[bench\]\] 2( \(out/tiny\.edgec\))?",
        str(e.value.at),
    )


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("[[bench]]\non = 'local:'", "it has no bundle", ", [[bench]] 1"),
        ("[[bench]]\nbundle = 5", "bundle = 5 is not a path", ", [[bench]] 1"),
        (
            "[[bench]]\nbundle = 'no.edgec'",
            "there is no bundle",
            ", [[bench]] 1 (no.edgec)",
        ),
        ("[[bench]]\nbundle = 'out'", "there is no bundle", ", [[bench]] 1 (out)"),
        (
            "[[bench]]\nbundle = 'edgec.toml'",
            "this is not a bundle",
            ", [[bench]] 1 (edgec.toml)",
        ),
        ("[bench]\nbundle = 'other.edgec'", "bench is not a list of tables", ""),
        ("bench = [1]", "bench is not a list of tables", ""),
        (
            "[[benches]]\nbundle = 'other.edgec'",
            'there is no table [benches]; did you mean "bench"?',
            "",
        ),
        (
            "[[bench]]\nbundle = other.edgec",
            "cannot read edgec.toml: Invalid value (at line 2",
            "",
        ),
        (
            "[[bench]]\nbundle = 'other.edgec'\non = 'x'\n[devices]\nx = 5",
            "[devices] is not names and URLs",
            None,
        ),
        (
            "[[bench]]\nbundle = 'other.edgec'\non = 'x'\n[devices]\nx = 'nosuch:'",
            '"nosuch:" is not a device',
            None,
        ),
    ],
)
def test_mistakes_in_the_file(
    folder: Path, text: str, message: str, at: str | None
) -> None:
    (folder / "edgec.toml").write_text(text)
    with pytest.raises(InputError) as e:
        benches(folder)
    assert message in e.value.what
    assert str(folder / "edgec.toml") in str(e.value.at)
    assert at is None or e.value.at == f"{folder / 'edgec.toml'}{at}"
    assert e.value.hint


def test_more_threads_than_the_code_has(folder: Path) -> None:
    (folder / "edgec.toml").write_text(
        "[[bench]]\nbundle = 'other.edgec'\nthreads = 4\n"
    )
    with pytest.raises(
        InputError, match="4 threads: the bundle's code is for one thread"
    ) as e:
        benches(folder)
    assert e.value.at == f"{folder / 'edgec.toml'}, [[bench]] 1 (other.edgec)"
    assert e.value.hint == "compile it with --threads 4"


def test_devices_by_name_and_by_url(folder: Path) -> None:
    assert resolve("attic", folder) == "ssh://pi@attic"
    assert resolve(" cellar ", folder).startswith("serial:///dev/ttyUSB0")
    assert resolve("emulated:pi4", folder) == "emulated:pi4"
    assert resolve("local:", folder / "nowhere") == "local:"
    for name, what in (
        ("atik", 'did you mean "attic"'),
        ("locl:", 'did you mean "local"'),
        ("pi4", 'did you mean "emulated:pi4"'),
        ("raspberrypi.local", 'did you mean "ssh://pi@raspberrypi.local"'),
        ("ann@shed", 'did you mean "ssh://ann@shed"'),
        ("", "is not a device"),
    ):
        with pytest.raises(InputError, match=what) as e:
            resolve(name, folder)
        assert "attic, cellar" in str(e.value.hint)
    (folder / "edgec.toml").write_text('[devices]\nbad = "ssh://"\n')
    with pytest.raises(InputError) as e:
        resolve("bad", folder)
    assert (e.value.what, e.value.at) == (
        '"ssh://": this names no host',
        f"{folder / 'edgec.toml'}, [devices] bad",
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5%", 0.05),
        (" 12.5 % ", 0.125),
        ("0.05", 0.05),
        (".5", 0.5),
        (0.1, 0.1),
        ("150%", 1.5),
    ],
)
def test_shares(value: str | float, expected: float) -> None:
    assert share(value) == pytest.approx(expected)


@given(st.text(max_size=12) | st.floats() | st.integers())
def test_a_share_is_read_or_refused(value: str | float) -> None:
    try:
        found = share(value)
    except InputError:
        return
    assert found >= 0
