"""`edgec inspect`: every kind of bundle as text, JSON and page; a damaged one ends in a
message.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from edgec_runtime import Bundle, write_bundle
from edgec_runtime.device_end.bundles import machine_target

import edgec
from edgec.catalogue.entries import Entry, catalogue
from edgec.catalogue.listing import license_of
from edgec.errors import BundleError, InputError
from edgec.inspecting.facts import Inspection
from edgec.report.inspect.page import page
from edgec.report.inspect.text import to_text
from tests import builds
from tests.cascade import objects
from tests.cli.verbs import edgec as verb
from tests.frontends.tflite_state import stateful
from tests.runtime import tiny_model

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"


def _inspected(path: Path, key: Path | None = None) -> Inspection:
    inspection = edgec.inspect(path, key=key)
    assert isinstance(inspection, Inspection)
    return inspection


def tiny(path: Path, change: Callable[[dict[str, Any]], None] = lambda m: None) -> Path:
    """A bundle that nobody compiled, after a change of its manifest."""
    manifest, files = tiny_model.parts()
    manifest["segments"][1]["tflite"] = "segments/relu.tflite"
    files["segments/relu.tflite"] = b"no real file"
    change(manifest)
    write_bundle(path, manifest, files)
    return path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return tiny(tmp_path / "tiny.edgec")


def section(text: str, title: str) -> str:
    """The lines below a title of the page."""
    return text.split(f"\n{title}\n")[1].split("\n\n")[0]


def test_the_page_answers_a_stranger(bundle: Path) -> None:
    text = to_text(_inspected(bundle))
    assert text.startswith(f"{bundle}: tiny, a network for pi4+coral")
    assert "for Raspberry Pi 4 Model B with a Coral Edge TPU" in text
    does = section(text, "What it does")
    assert "input          image: uint8, 1 x 4 x 4 x 3" in does
    assert "output         sums: int32, 1" in does
    assert "a photo becomes it by raw" in does
    runs = section(text, "Where it runs")
    assert re.search(r"relu +Edge TPU, to be compiled .* 0\.20 to 0\.30", runs)
    assert "edgetpu_compiler" in runs
    assert "does not say what was checked" in section(text, "How accurate it is")
    assert "not known to edgec" in section(text, "Licences")
    assert "nobody" in section(text, "Who signed it")


def test_parts_add_up_to_the_file(bundle: Path) -> None:
    found = _inspected(bundle)
    assert sum(part.bytes for part in found.parts) == bundle.stat().st_size
    names = [part.name for part in found.parts]
    assert {"segments/", "src/", "manifest.json", "zip"} <= set(names)


def test_json_says_the_same(bundle: Path, tmp_path: Path) -> None:
    done = verb("inspect", bundle, "--json", "--html", "page.html", cwd=tmp_path)
    assert done.code == 0, done.err
    data = json.loads(done.out)
    (network,) = data["networks"]
    assert data["inspect_schema"] == 1
    assert network["segments"][1]["est_ms"] == 0.25
    assert network["inputs"][0]["shape"] == [1, 4, 4, 3]
    assert "<title>tiny for pi4+coral</title>" in (tmp_path / "page.html").read_text()


def test_names_of_a_bundle_are_only_text(tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["name"] = "<script>alert(1)</script>\x1b[31m"
        manifest["license"] = {"name": "<em>\x1b]0;title\x07", "source": "x"}
        manifest["toolchain"] = {"<i>": {"deep": ["\x1b"]}}
        manifest["labels"] = ["<u>"] * 9

    found = _inspected(tiny(tmp_path / "tiny.edgec", change))
    shown = page(found)
    for tag in ("<script>alert", "<em>", "<i>", "<u>"):
        assert tag not in shown
    assert "\x1b" not in to_text(found)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut off": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "empty": lambda p: p.write_bytes(b""),
    "a changed byte": lambda p: _change_byte(p, b"no real file"),
    "no zip": lambda p: p.write_text("no zip"),
    "no manifest": lambda p: _rezip(p, {"readme.txt": b"x"}),
    "no JSON": lambda p: _rezip(p, {"manifest.json": b"{"}),
    "another version": lambda p: _rezip(p, {"manifest.json": b'{"schema": 99}'}),
    "a folder": lambda p: _become_folder(p),
    "missing": lambda p: p.unlink(),
}


def _change_byte(path: Path, content: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(content)] ^= 1
    path.write_bytes(data)


def _become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _rezip(path: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for name, data in files.items():
            z.writestr(name, data)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bundle_ends_in_one_message(
    damage: str, bundle: Path, tmp_path: Path
) -> None:
    DAMAGES[damage](bundle)
    done = verb("inspect", bundle, "--html", "page.html", cwd=tmp_path)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("hint: ") == 1
    assert str(bundle) in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "verification",
    [
        {"samples": "many"},
        {"samples": 1, "segments": 3},
        {"samples": 1, "whole": {"out": {"cosine": "x"}}},
    ],
)
def test_checks_of_a_wrong_type_are_damage(
    verification: dict[str, Any], tmp_path: Path
) -> None:
    path = tiny(tmp_path / "t.edgec", lambda m: m.update(verification=verification))
    with pytest.raises(BundleError, match="verification"):
        _inspected(path)


@pytest.mark.parametrize("key", ["toolchain", "quantization"])
def test_facts_for_people_may_be_anything(key: str, tmp_path: Path) -> None:
    """Older and newer compilers put there what they like."""
    odd = {"recipe": [1], "kept": {"a": 1}, "x": None}
    path = tiny(tmp_path / "t.edgec", lambda m: m.update({key: odd}))
    assert to_text(_inspected(path))


def test_a_signature_and_its_key(bundle: Path, tmp_path: Path) -> None:
    edgec.sign(new_key=tmp_path / "key")
    edgec.sign(new_key=tmp_path / "other")
    edgec.sign(bundle, key=tmp_path / "key", app="attic", counter=7)

    mine = _inspected(bundle, key=tmp_path / "key.pub").signature
    assert mine is not None
    assert (mine.valid, mine.app, mine.counter) == (True, "attic", 7)
    assert mine.trusted is not None
    text = section(
        to_text(_inspected(bundle, key=tmp_path / "other.pub")), "Who signed it"
    )
    assert " ".join(text.split()).endswith("the key is NOT the one that is known here")


def test_keys_that_this_machine_trusts_are_compared(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "root"))
    edgec.sign(bundle, new_key=tmp_path / "key")
    unknown = _inspected(bundle).signature
    edgec.trust(tmp_path / "key.pub", "local:")
    known = _inspected(bundle).signature
    assert unknown is not None
    assert known is not None
    assert (unknown.trusted, unknown.compared) == (None, 0)
    assert (known.trusted is not None, known.compared) == (True, 1)


def test_a_bundle_that_was_changed_after_its_signature_says_so(
    bundle: Path, tmp_path: Path
) -> None:
    edgec.sign(bundle, new_key=tmp_path / "key")
    with zipfile.ZipFile(bundle) as z:
        files = {name: z.read(name) for name in z.namelist()}
    # The same facts, and so a bundle that opens.
    files["manifest.json"] += b"\n"
    _rezip(bundle, files)
    found = _inspected(bundle)
    assert found.signature is not None
    assert not found.signature.valid
    assert "NOT VALID" in to_text(found)
    assert 'class="warning"' in page(found)


def test_a_key_that_cannot_be_read(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the key"):
        _inspected(bundle, key=tmp_path / "none.pub")


def _int8(to: Path) -> None:
    model = onnx.load(DIGITS)
    entry = model.metadata_props.add()
    entry.key = "license"
    entry.value = "CC-BY-4.0, by\nme"
    onnx.save(model, to / "digits.onnx")
    edgec.compile(
        to / "digits.onnx",
        "pi4+coral",
        to / "digits.edgec",
        calibrate=DIGITS.with_name("digits_calibration.npz"),
        quantize="fast",
        also=["host"],
    )


@pytest.mark.cc
@pytest.mark.slow
def test_accuracy_is_what_the_compile_said(tmp_path: Path) -> None:
    """And a licence that the model's file states."""
    path = builds.once("inspect digits", _int8) / "digits.edgec"
    found = _inspected(path)
    text = to_text(found)
    with Bundle.open(path) as opened:
        recorded = opened.manifest.verification
        assert opened.manifest.license["name"] == "CC-BY-4.0, by me"
    (network,) = found.networks
    assert network.checks is not None
    again = network.checks.to_json()
    # JSON has null for infinity, and lists for tuples.
    assert json.loads(json.dumps(again)) == recorded
    (agreement,) = recorded["whole"].values()
    assert f"SQNR {agreement['sqnr_db']:.1f} dB" in section(text, "How accurate it is")
    assert "quantized to int8 by the recipe fast" in text
    assert "CC-BY-4.0, by me (the model file's metadata)" in text
    here = [row for row in network.memory if row.target == "linux-aarch64"]
    assert here[0].all > here[0].constants > 10_000


@pytest.mark.cc
@pytest.mark.slow
def test_a_cascade_has_a_part_for_each_network() -> None:
    found = _inspected(objects.bundle())
    text = to_text(found)
    assert [n.name for n in found.networks] == ["thing", "discs", "mirror"]
    assert "== thing: sees whole frames ==" in text
    assert "around each object of thing" in text
    assert "the same network as discs" in text
    assert text.count("What it does") == 2, "mirror is like discs"
    assert "for at most 2 objects at a time" in " ".join(text.split())
    assert page(found).count('<article class="network">') == 3


def _stateful(to: Path) -> None:
    (to / "m.tflite").write_bytes(stateful())
    edgec.compile(to / "m.tflite", "host", to / "m.edgec")


@pytest.mark.cc
@pytest.mark.slow
def test_state_is_shown_apart_from_inputs() -> None:
    found = _inspected(builds.once("stateful", _stateful) / "m.edgec")
    (network,) = found.networks
    assert f"machines like the one that compiled it ({machine_target()})" in " ".join(
        to_text(found).split()
    )
    assert [t.name for t in network.inputs] == ["x"]
    begins = {state.input: state.begins for state in network.state}
    assert begins["old"] == "zeros"
    assert "kept from one call to the next" in to_text(found)


def test_the_catalogue_knows_its_files_by_their_hash() -> None:
    wheel = catalogue()[0].wheel
    entry: Entry = catalogue()[0].entries[0]
    found = license_of(entry.sha256)
    assert found is not None
    assert found[0] == (entry.license or wheel.license)
    assert wheel.version in found[1]
    assert license_of("0" * 64) is None


def test_a_bundle_is_only_read(bundle: Path, tmp_path: Path) -> None:
    before = bundle.read_bytes()
    shutil.copy(bundle, tmp_path / "copy.edgec")
    _inspected(bundle)
    assert bundle.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.edgec", "tiny.edgec"]
