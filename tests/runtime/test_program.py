"""csrc/main.c: results, inputs it takes and refuses, its two kinds of output.

Built with -Wall -Wextra -Werror.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import noise_inputs
from edgec_runtime.bundle.manifest import SCHEMA, check_manifest
from edgec_runtime.model.stats import Summary

from tests.runtime import tiny_model

pytestmark = pytest.mark.cc


def call(program: Path, *args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, args)], capture_output=True, text=True, timeout=60
    )


def outputs(folder: Path) -> dict[str, tiny_model.Array]:
    return {
        "out": np.load(folder / "output0.npy"),
        "sums": np.load(folder / "output1.npy"),
    }


def same(found: dict[str, tiny_model.Array], image: tiny_model.Array) -> None:
    for name, array in tiny_model.reference(image).items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@pytest.mark.parametrize("kind", ["npy", "raw", "npy2"])
def test_right_numbers(program: Path, tmp_path: Path, kind: str) -> None:
    image = tiny_model.image(7)
    path = tmp_path / "input"
    with path.open("wb") as f:
        if kind == "raw":
            f.write(image.tobytes())
        else:
            np.lib.format.write_array(
                f, image, version=(1, 0) if kind == "npy" else (2, 0)
            )
    done = call(program, "--input", path, "--output", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    same(outputs(tmp_path / "out"), image)


def test_noise_is_what_python_makes(program: Path, tmp_path: Path) -> None:
    call(program, "--output", tmp_path)
    image = noise_inputs(
        check_manifest({**tiny_model.manifest(), "schema": SCHEMA, "files": {}})
    )["image"]
    same(outputs(tmp_path), image)


def test_json_has_every_inference(program: Path) -> None:
    found = json.loads(call(program, "--runs", "5", "--json").stdout)
    assert found["name"] == "tiny"
    assert (found["warmup"], found["unit"]) == (1, "ns")
    assert [
        (s["name"], s["place"], s["backend"], len(s["ns"])) for s in found["segments"]
    ] == [
        ("shift", "cpu", "c", 6),
        ("relu", "edgetpu", "c", 6),
        ("mix", "cpu", "c", 6),
    ]
    assert [sum(s["ns"][i] for s in found["segments"]) for i in range(6)] == found[
        "total"
    ]
    assert all(
        0 <= waited <= total
        for waited, total in zip(found["waited"], found["total"], strict=True)
    )
    assert all(
        at + ns <= after
        for at, ns, after in zip(
            found["at"], found["total"], found["at"][1:], strict=False
        )
    )
    assert 1000 < found["rss"] < 1 << 24
    assert "load" not in found
    assert "profile" not in found


def test_warming_up_and_stopping_by_the_clock(program: Path) -> None:
    """By bounds that hold wherever the program is interrupted.

    A phase begins by reading the clock, and goes on while not much has passed, so all
    but the last inference of it have ended in time; the next phase begins after all of
    it.
    """
    start = time.monotonic_ns()
    warm = 0.01e9
    limit = 0.02e9
    options = (
        "--runs",
        "40000",
        "--seconds",
        "0.02",
        "--warmup",
        "0.01",
        "--launched",
        str(start),
    )
    found = json.loads(call(program, *options, "--json").stdout)
    over = time.monotonic_ns()
    k = found["warmup"]
    at = found["at"]
    end = [a + ns for a, ns in zip(at, found["total"], strict=True)]
    assert start + found["load"] <= at[0]
    assert k == 1 or end[k - 2] - at[0] < warm, "it warmed up for longer"
    assert at[k] >= start + found["load"] + warm, "it warmed up for less"
    assert len(at) - k == 3 or end[-2] - at[k] < limit, "it ran for longer"
    assert len(at) - k == 40000 or over >= end[k - 1] + limit, "it ran for less"
    assert len(at) - k >= 3
    assert len(found["yardstick"]) >= 1


def test_at_least_three_runs(program: Path) -> None:
    found = json.loads(
        call(program, "--runs", "10", "--seconds", "1e-9", "--json").stdout
    )
    assert len(found["total"]) - found["warmup"] == 3


def test_the_profile_is_of_other_inferences(program: Path, tmp_path: Path) -> None:
    done = call(
        program, "--runs", "0", "--profile", "4", "--json", "--output", tmp_path
    )
    found = json.loads(done.stdout)
    assert len(found["total"]) == found["warmup"] == 1
    profile = found["profile"]
    assert [len(profile[k]) for k in ("at", "total", "plain")] == [4, 4, 4]
    # shift and relu have no second entry point: they run, without a time per op
    assert [[len(op) for op in ops] for ops in profile["ops"]] == [[], [], [4, 4]]
    for i, total in enumerate(profile["total"]):
        assert sum(op[i] for op in profile["ops"][2]) <= total
    image = noise_inputs(
        check_manifest({**tiny_model.manifest(), "schema": SCHEMA, "files": {}})
    )["image"]
    same(outputs(tmp_path), image)


def test_table(program: Path) -> None:
    lines = call(program, "--runs", "20").stdout.splitlines()
    assert lines[0] == "tiny: 20 runs after a warm-up, ms"
    assert lines[1].split() == [
        "segment",
        "place",
        "min",
        "p50",
        "p90",
        "p95",
        "p99",
        "max",
    ]
    assert [line.split()[0] for line in lines[2:]] == ["shift", "relu", "mix", "total"]
    figures = [float(x) for x in lines[-1].split()[1:]]
    assert figures == sorted(figures)


def save(path: Path, array: tiny_model.Array) -> Path:
    np.save(path, array)
    return path


def test_bad_inputs(program: Path, tmp_path: Path) -> None:
    image = tiny_model.image()
    good = save(tmp_path / "good.npy", image)
    (tmp_path / "short").write_bytes(image.tobytes()[:-1])
    (tmp_path / "long").write_bytes(image.tobytes() + b"x")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "cut.npy").write_bytes(good.read_bytes()[:60])
    (tmp_path / "cut2.npy").write_bytes(good.read_bytes()[:-1])
    (tmp_path / "version.npy").write_bytes(b"\x93NUMPY\x09\x00" + bytes(64))
    save(tmp_path / "type.npy", image.astype(np.float32))
    save(tmp_path / "shape.npy", image.transpose(0, 3, 1, 2).copy())
    save(tmp_path / "rank.npy", image[0])
    save(tmp_path / "longer.npy", image[..., None])
    save(tmp_path / "order.npy", np.asfortranarray(image))
    for name, what in {
        "none": "No such file",
        ".": "cannot read",
        "short": 'fewer bytes than input "image" |u1 (1, 4, 4, 3): 48',
        "long": "more bytes",
        "empty": "fewer bytes",
        "cut.npy": "ends in its .npy header",
        "cut2.npy": "fewer bytes",
        "version.npy": "broken .npy header",
        "type.npy": "wants |u1: {'descr': '<f4'",
        "shape.npy": "wants (1, 4, 4, 3): {",
        "rank.npy": "another shape",
        "longer.npy": "another shape",
        "order.npy": "Fortran",
    }.items():
        done = call(program, "--input", tmp_path / name)
        assert done.returncode == 2, name
        assert done.stdout == ""
        assert what in done.stderr, name
        assert done.stderr.startswith("error: ")
        assert "\n  hint: " in done.stderr


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--runs", "0"], "--runs 0 leaves nothing to show"),
        (["--runs", "-1"], '--runs "-1" is not a number'),
        (["--seconds", "soon"], '--seconds "soon" is not a time'),
        (["--warmup", "-1"], '--warmup "-1" is not a time'),
        (["--warmup", "nan"], '--warmup "nan" is not a time'),
        (["--profile", "5000"], "--profile 5000 is more than this program can keep"),
        (["--runs", "x"], '--runs "x" is not a number'),
        (["--runs", "99999999999999999999"], "is not a number"),
        (["--runs", "200000"], "more than this program can keep: 43689"),
        (["--runs"], "--runs lacks a value"),
        (["--wrong", "x"], "--wrong is not an option"),
        (["x"], "x is not an option"),
        (["--input", "a", "b"], "2 input files, but the model has 1 inputs"),
        (["--output", "/none/none"], "cannot make the folder /none/none"),
    ],
)
def test_bad_use(program: Path, args: list[str], what: str) -> None:
    done = call(program, *args)
    assert done.returncode == 2
    assert what in done.stderr
    assert "  hint: " in done.stderr


def test_weights_are_found_beside_the_program_wherever_it_is_started(
    program: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy(program, folder / "main")
    done = call(folder / "main")
    assert done.returncode == 2
    assert f"cannot read the weights, {folder}/weights.bin: No such file" in done.stderr
    assert (
        "hint: put the bundle's weights.bin beside the program, "
        "or say where it is with --weights FILE" in done.stderr
    )
    other = tmp_path / "w"
    other.write_bytes(tiny_model.WEIGHTS)
    assert call(folder / "main", "--weights", other).returncode == 0
    shutil.copy(other, folder / "weights.bin")
    (tmp_path / "link").symlink_to(folder / "main")
    for how in (folder / "main", tmp_path / "link"):
        assert call(how, "--output", tmp_path / "out").returncode == 0
    manifest = check_manifest({**tiny_model.manifest(), "schema": SCHEMA, "files": {}})
    same(outputs(tmp_path / "out"), noise_inputs(manifest)["image"])


def test_weights_of_another_model_or_damaged_are_refused(
    program: Path, tmp_path: Path
) -> None:
    good = tiny_model.WEIGHTS
    (tmp_path / "folder").mkdir()
    for name, content in {
        "short": good[:-1],
        "long": good + b"x",
        "empty": b"",
        "flipped": bytes([good[0] ^ 1]) + good[1:],
        "last": good[:-1] + bytes([good[-1] ^ 128]),
    }.items():
        (tmp_path / name).write_bytes(content)
    for name, what in {
        "short": "have 64 bytes; this program wants 65",
        "long": "have 66 bytes; this program wants 65",
        "empty": "have 0 bytes; this program wants 65",
        "flipped": "of another model: their CRC-32 is "
        f"{zlib.crc32((tmp_path / 'flipped').read_bytes()):08x}, not",
        "last": f"not {zlib.crc32(good):08x}",
        "folder": "are not a file",
        "none": "No such file",
        "none/none": "No such file",
    }.items():
        done = call(program, "--weights", tmp_path / name)
        assert done.returncode == 2, name
        assert done.stdout == ""
        assert what in done.stderr, done.stderr
        assert done.stderr.startswith("error: ")
        assert "\n  hint: " in done.stderr
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDWR), "wb"):
        assert "are not a file" in call(program, "--weights", tmp_path / "pipe").stderr


def test_help(program: Path) -> None:
    done = call(program, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: main [--runs N]")


def test_a_failing_segment(program: Path, tmp_path: Path) -> None:
    path = save(tmp_path / "white.npy", np.full(tiny_model.SHAPE, 255, np.uint8))
    done = call(program, "--input", path)
    assert done.returncode == 1
    assert 'segment "mix" failed with code 7' in done.stderr


def test_output_that_cannot_be_written(program: Path, tmp_path: Path) -> None:
    (tmp_path / "output0.npy").mkdir()
    done = call(program, "--output", tmp_path)
    assert done.returncode == 2
    assert "cannot write" in done.stderr


def test_no_allocation(program: Path) -> None:
    symbols = subprocess.run(
        ["nm", "-u", program], capture_output=True, text=True
    ).stdout
    assert not {"malloc", "calloc", "realloc"} & {
        s.split("@")[0].split()[-1] for s in symbols.splitlines() if s.strip()
    }


def test_percentiles_are_numpys() -> None:
    samples = np.random.default_rng(0).uniform(0, 9, 37).tolist()
    s = Summary.of(samples)
    np.testing.assert_allclose(
        [s.p50, s.p90, s.p95, s.p99], np.percentile(samples, [50, 90, 95, 99])
    )
    assert (s.n, s.min, s.max) == (37, min(samples), max(samples))
    assert Summary.of([2.0]).p99 == 2.0
    with pytest.raises(ValueError, match="no samples"):
        Summary.of([])
