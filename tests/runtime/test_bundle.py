"""Writing: the same bytes, all or nothing.

Reading: everything that is wrong is found before anything is used.
"""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Bundle, BundleError, write_bundle
from edgec_runtime.bundle import archive as bundle_module
from edgec_runtime.bundle.cache import cache_dir
from edgec_runtime.bundle.extraction import extract
from edgec_runtime.bundle.manifest import parse_manifest

from tests.runtime import tiny_model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    manifest, files = tiny_model.parts()
    files["segments/a.tflite"] = b"model"
    manifest["segments"][1]["tflite"] = "segments/a.tflite"
    write_bundle(tmp_path / "m.edgec", manifest, files)
    return tmp_path / "m.edgec"


def rezip(
    path: Path,
    change: Callable[[dict[str, bytes], zipfile.ZipFile], object],
    compression: int = zipfile.ZIP_STORED,
) -> None:
    """Writes the bundle again with other contents, by hand, as a hostile tool would."""
    with zipfile.ZipFile(path) as z:
        files = {n: z.read(n) for n in z.namelist()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as z:
        change(files, z)
        for name, data in files.items():
            z.writestr(zipfile.ZipInfo(name), data, compress_type=compression)
    path.write_bytes(out.getvalue())


def edit_manifest(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    def edit(files: dict[str, bytes], _: zipfile.ZipFile) -> None:
        manifest = json.loads(files["manifest.json"])
        change(manifest)
        files["manifest.json"] = json.dumps(manifest).encode()

    rezip(path, edit)


def _raw(**changes: object) -> dict[str, object]:
    return {**tiny_model.RAW, **changes}


def refused(path: Path) -> str:
    with pytest.raises(BundleError) as e:
        Bundle.open(path)
    assert e.value.exit_code == 2
    assert e.value.hint
    assert str(path) in str(e.value)
    return e.value.what


def test_round_trip(path: Path) -> None:
    with Bundle.open(path) as b:
        assert b.manifest.name == "tiny"
        assert b.manifest.segments[1].est_ms == 0.25
        assert b.manifest.tensors["q"].quant is not None
        assert b.manifest.tensors["out"].nbytes == 192
        assert str(b.manifest.preprocess["image"]) == "raw,rgb,stretch,bilinear,nhwc"
        assert b.manifest.preprocess["image"].to_json() == tiny_model.RAW
        assert set(b.names) == {"src/mix.c", "segments/a.tflite"}
        assert b.read("segments/a.tflite") == b"model"
        with pytest.raises(BundleError, match="no file"):
            b.read("src/none.c")


def test_same_inputs_same_bytes(tmp_path: Path) -> None:
    manifest, files = tiny_model.parts()
    files["src/a.c"] = b"x"
    write_bundle(tmp_path / "1", manifest, files)
    mask = os.umask(0o077)
    try:
        backwards = dict(reversed(manifest.items()))
        write_bundle(tmp_path / "2", backwards, dict(reversed(files.items())))
    finally:
        os.umask(mask)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    with zipfile.ZipFile(tmp_path / "1") as z:
        assert z.namelist() == ["manifest.json", "src/a.c", "src/mix.c"]
        assert {i.date_time for i in z.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_numpy_values_in_the_manifest(tmp_path: Path) -> None:
    manifest, files = tiny_model.parts()
    manifest["verification"] = {
        "cosine": np.float32(0.5),
        "counts": np.arange(2),
        "shape": (1, 2),
    }
    m = write_bundle(tmp_path / "m", manifest, files)
    assert m.verification == {"cosine": 0.5, "counts": [0, 1], "shape": [1, 2]}


def test_a_failed_write_leaves_the_old_bundle(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_bundle(path, *tiny_model.parts())
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_permissions_follow_the_umask(path: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/../b", "a//b", "a\\b", "C:x", ".x", "a/", "", "x\n", "é"]
)
def test_unsafe_names_are_neither_written_nor_read(path: Path, name: str) -> None:
    manifest, files = tiny_model.parts()
    with pytest.raises(BundleError, match="unsafe name"):
        write_bundle(path, manifest, {**files, name: b""})
    if name and name != "a/":
        rezip(path, lambda f, _: f.update({name: b""}))
        assert "unsafe name" in refused(path)


def test_twins(path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        rezip(path, lambda f, z: z.writestr("src/mix.c", b""))
    assert "two files" in refused(path)


def test_twins_that_differ_in_case(path: Path) -> None:
    rezip(path, lambda f, _: f.update({"SRC/MIX.C": b""}))
    assert "two files" in refused(path)


def test_file_inside_a_file(path: Path) -> None:
    rezip(path, lambda f, _: f.update({"src/mix.c/x": b""}))
    assert "inside a file" in refused(path)


def test_symbolic_link(path: Path) -> None:
    def link(files: dict[str, bytes], z: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo("src/link")
        info.create_system = 3
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        z.writestr(info, b"/etc/passwd")

    rezip(path, link)
    assert "link" in refused(path)


def test_tampered_content(path: Path) -> None:
    rezip(path, lambda f, _: f.update({"segments/a.tflite": b"madel"}))
    assert "sha256" in refused(path)


def test_damaged_content(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"model", b"madel"))
    assert "damaged" in refused(path)


def test_changed_while_open(path: Path) -> None:
    manifest, files = tiny_model.parts()
    # larger than the reader's buffer
    write_bundle(path, manifest, {**files, "src/large.c": b"a" * 100_000})
    with Bundle.open(path) as b:
        data = path.read_bytes()
        with path.open("r+b") as f:
            f.write(data.replace(b"aaaa", b"bbbb"))
        with pytest.raises(BundleError, match=r"damaged|changed"):
            b.read("src/large.c")


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9, 0.999])
def test_truncated(path: Path, part: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    assert ("cut off" if part else "not a bundle") in refused(path)


def test_compressed_bomb(path: Path) -> None:
    rezip(
        path,
        lambda f, _: f.update({"src/zeros": bytes(1 << 20)}),
        compression=zipfile.ZIP_DEFLATED,
    )
    assert "compressed" in refused(path)


def test_sizes_that_lie(path: Path) -> None:
    with zipfile.ZipFile(path) as z:
        info = z.getinfo("segments/a.tflite")
        size = info.file_size.to_bytes(4, "little") * 2
    data = path.read_bytes()
    at = data.rindex(b"segments/a.tflite") - 46 + 20
    assert data[at : at + 8] == size
    path.write_bytes(
        data[:at] + (0x7FFFFFFF).to_bytes(4, "little") * 2 + data[at + 8 :]
    )
    assert "more than the bundle can hold" in refused(path)


def test_overlapping_files(path: Path) -> None:
    """The directory's second entry points into the first: small file, large sum."""
    data = path.read_bytes()
    with zipfile.ZipFile(path) as z:
        offset = z.getinfo("src/mix.c").header_offset
    at = data.rindex(b"src/mix.c") - 46 + 42
    assert int.from_bytes(data[at : at + 4], "little") == offset
    path.write_bytes(data[:at] + (4).to_bytes(4, "little") + data[at + 4 :])
    assert "more than the bundle can hold" in refused(path)


def test_limits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_module, "MAX_MANIFEST_BYTES", 10)
    assert "manifest is larger" in refused(path)
    monkeypatch.setattr(bundle_module, "MAX_FILES", 1)
    assert "3 files" in refused(path)
    monkeypatch.setattr(bundle_module, "MAX_BUNDLE_BYTES", 100)
    assert "more than 100" in refused(path)


def test_other_files(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.edgec")
    assert "not a file" in refused(tmp_path)
    (tmp_path / "text").write_text("hello")
    assert "not a bundle" in refused(tmp_path / "text")
    with zipfile.ZipFile(tmp_path / "zip", "w") as z:
        z.writestr("a", b"")
    assert "not a bundle" in refused(tmp_path / "zip")


def test_files_that_the_manifest_does_not_know_or_lacks(path: Path) -> None:
    rezip(path, lambda f, _: f.update({"src/more.c": b""}))
    assert "does not list" in refused(path)
    rezip(path, lambda f, _: (f.pop("src/more.c"), f.pop("src/mix.c")))
    assert "lacks the file" in refused(path)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda m: m.update(schema=1), "schema 1, this runtime reads 3"),
        (lambda m: m.pop("name"), 'no "name"'),
        (lambda m: m.update(name=3), 'impossible "name": 3'),
        (lambda m: m.update(inputs=["nope"]), "does not describe: 'nope'"),
        (lambda m: m.update(inputs="image"), 'impossible "inputs"'),
        (lambda m: m.update(segments={}), 'impossible "segments"'),
        (lambda m: m["segments"].reverse(), "before it is written"),
        (
            lambda m: m["segments"].append(dict(m["segments"][0], name="b")),
            "a second time",
        ),
        (lambda m: m["segments"].append(m["segments"][0]), "two segments"),
        (lambda m: m["segments"][0].update(name="a-b"), "C identifier"),
        (lambda m: m["segments"][0].update(place="gpu"), "neither cpu nor edgetpu"),
        (lambda m: m["segments"][0].update(arena=-1), 'impossible "arena"'),
        (lambda m: m["segments"][0].update(arena=True), 'impossible "arena"'),
        (
            lambda m: m["segments"][1].update(tflite="../../x"),
            "does not have: '../../x'",
        ),
        (lambda m: m["segments"][1].update(est_ms=-1), 'impossible "est_ms"'),
        (lambda m: m["segments"].pop(), "output that nothing writes"),
        (
            lambda m: m["libraries"].update(x="lib/none.so"),
            "does not have: 'lib/none.so'",
        ),
        (lambda m: m["weights"].update(x="none.bin"), "does not have: 'none.bin'"),
        (lambda m: m["weights"].update(x=3), 'impossible "weights"'),
        (lambda m: m.update(threads=0), 'impossible "threads": 0'),
        (lambda m: m.update(threads=5), 'impossible "threads": 5'),
        (lambda m: m.update(threads="2"), 'impossible "threads"'),
        (
            lambda m: m["tensors"]["q"].update(dtype="object"),
            '"dtype" that is not one of',
        ),
        (lambda m: m["tensors"]["q"].update(shape=[1, 0]), 'impossible "shape"'),
        (lambda m: m["tensors"]["q"].update(shape=[1] * 9), 'impossible "shape"'),
        (lambda m: m["tensors"]["q"].update(shape=[1 << 29, 1 << 29]), "larger than"),
        (lambda m: m["tensors"]["q"]["quant"].update(scale=[0]), 'impossible "scale"'),
        (lambda m: m["tensors"]["q"]["quant"].update(axis=3), "do not fit"),
        (lambda m: m.update(preprocess=[]), 'impossible "preprocess"'),
        (
            lambda m: m.update(preprocess={"image": "0_1"}),
            'preprocess "image" is not an object',
        ),
        (
            lambda m: m.update(preprocess={"q": _raw()}),
            'preprocess "q" is for no input',
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(range="0_2")}),
            "a range is raw, 0_1, 0_255",
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(range="0_1", std=[0])}),
            "std=0 is not above 0",
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(mean=[1, 2])}),
            "one number, or three",
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(mean=["1"])}),
            'impossible "mean"',
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(mean=[1e999])}),
            "Infinity is not a number",
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(crop=0)}),
            "crop=0 is not in 0…1",
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(fill=[256])}),
            "not one number of 0…255",
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(color="cmyk")}),
            "a colour order is rgb, bgr, gray",
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(layout="nchw")}),
            "is not an image with 1 or 3 channels in nchw",
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(filter=None)}),
            'impossible "filter"',
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(given="\x1b[31m")}),
            'impossible "given"',
        ),
        (
            lambda m: m.update(preprocess={"image": _raw(given="0_1")}),
            "it is not 0_1, as it says it should be",
        ),
        (lambda m: m["preprocess"]["image"].pop("resize"), 'no "resize"'),
        (lambda m: m["files"]["src/mix.c"].update(sha256="x"), "hexadecimal"),
        (lambda m: m["files"]["src/mix.c"].update(bytes=1), "the manifest says 1"),
    ],
)
def test_manifests_that_lie(
    path: Path, change: Callable[[dict[str, Any]], object], what: str
) -> None:
    edit_manifest(path, change)
    assert what in refused(path)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b"\xff", b'{"schema": NaN}', b'{"a": 1, "a": 2}', b"[" * 99999],
)
def test_manifests_that_are_not_one(path: Path, text: bytes) -> None:
    rezip(path, lambda f, _: f.update({"manifest.json": text}))
    assert "manifest" in refused(path)


def test_extract_is_private_verified_and_done_once(path: Path) -> None:
    with Bundle.open(path) as b:
        file = extract(b, "src/mix.c")
        assert file.read_bytes() == b.read("src/mix.c")
        assert stat.S_IMODE(file.stat().st_mode) == 0o400
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        inode = file.stat().st_ino
        assert extract(b, "src/mix.c").stat().st_ino == inode
        file.chmod(0o700)
        file.write_bytes(b"evil")
        assert extract(b, "src/mix.c").read_bytes() == b.read("src/mix.c")
        file.parent.chmod(0o777)
        with pytest.raises(Exception, match="changed by others"):
            extract(b, "src/mix.c")


def test_a_cache_named_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in it is started elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEC_CACHE", "here")
    assert cache_dir("files") == tmp_path / "here" / "files"


@pytest.mark.parametrize("text", [r"\ud800", r"\uD83D x"])
def test_half_a_surrogate_pair_is_no_text(text: str) -> None:
    with pytest.raises(
        BundleError, match=r"the manifest is not JSON: .* surrogates not allowed"
    ):
        parse_manifest(f'{{"name": "{text}"}}'.encode())
