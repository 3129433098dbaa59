"""`edgec export`: each kind of parts is what its README says, and a folder is there as a
whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from click.testing import CliRunner
from edgec_runtime import Bundle, Session, noise_inputs, write_bundle
from edgec_runtime.device_end.bundles import machine_target

import edgec
from edgec.cli.main import cli
from edgec.errors import InputError
from edgec.exporting import kinds
from tests import builds
from tests.cascade import objects
from tests.cli.verbs import edgec as verb
from tests.frontends.tflite_state import stateful
from tests.runtime import tiny_model

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits"

pytestmark = pytest.mark.cc


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A bundle that nobody compiled, with a segment for the Edge TPU."""
    manifest, files = tiny_model.parts()
    manifest["segments"][1]["tflite"] = "segments/relu.tflite"
    files["segments/relu.tflite"] = b"no real file"
    write_bundle(tmp_path / "tiny.edgec", manifest, files)
    return tmp_path / "tiny.edgec"


def _digits(to: Path) -> None:
    edgec.compile(
        DIGITS / "digits.onnx",
        "pi4+coral",
        to / "digits.edgec",
        also=["host"],
        keep_tflite=True,
        calibrate=DIGITS / "digits_calibration.npz",
        quantize="fast",
    )


def _cartoon(to: Path) -> None:
    edgec.compile(
        ROOT / "fixtures" / "cartoon" / "cartoon.onnx",
        "pi4+coral",
        to / "cartoon.edgec",
        calibrate=ROOT / "fixtures" / "photos",
        quantize="fast",
        preprocess="0_1",
        task="image",
        # The C and LiteRT give the same integers.
        rounding="tflite",
    )


@pytest.fixture
def cartoon() -> Path:
    """One with segments for the Edge TPU."""
    return builds.once("export cartoon", _cartoon) / "cartoon.edgec"


@pytest.fixture
def digits() -> Path:
    """A real one, for this machine too."""
    return builds.once("export digits", _digits) / "digits.edgec"


def test_each_file_of_the_room_is_an_option_with_its_first_sentence() -> None:
    shown = CliRunner().invoke(cli, ["export", "--help"]).output
    assert {"c", "cmake", "tflite"} <= kinds().keys()
    for kind, text in kinds().items():
        assert f"--{kind} DIR" in shown
        assert " ".join(text.split()[:5]) in " ".join(shown.split())


def test_nothing_to_export_and_unknown_kinds_name_the_kinds(tiny: Path) -> None:
    with pytest.raises(InputError, match="nothing to export") as e:
        edgec.export(tiny)
    assert "--tflite DIR" in str(e.value.hint)
    with pytest.raises(InputError, match='did you mean "cmake"'):
        edgec.export(tiny, cmak=tiny.with_name("out"))


def test_a_link_is_no_new_folder(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for name, to in {"link": "real", "nothing": "gone", "loop": "loop"}.items():
        (tmp_path / name).symlink_to(to)
        done = verb("export", tiny, "--tflite", name, cwd=tmp_path)
        assert done.code == 2
        assert f"error: {name} is a link\n" in done.err
        assert (tmp_path / name).is_symlink()


def test_a_folder_with_files_is_refused_before_anything_is_written(
    tiny: Path, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").touch()
    done = verb("export", tiny, "--tflite", "new", "--c", full, cwd=tmp_path)
    assert done.code == 2
    assert f"the folder {full} is not empty" in done.err
    assert "at: --c" in done.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full", "tiny.edgec"]


@pytest.mark.parametrize("kind", ["file", "no/parent"])
def test_other_places_are_refused(kind: str, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError) as e:
        edgec.export(tiny, c=tmp_path / kind)
    assert e.value.at == "--c"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_nobody_may_write_to(tiny: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(0o500)
    with pytest.raises(InputError, match="cannot write"):
        edgec.export(tiny, tflite=locked / "out")


def test_a_kind_that_fails_leaves_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(bundle: Bundle, folder: Path) -> list[str]:
        (folder / "half").touch()
        raise InputError("no", hint="none")

    monkeypatch.setattr("edgec.exporting.tflite.write", fail)
    with pytest.raises(InputError):
        edgec.export(tiny, tflite=tmp_path / "out")
    assert list(tmp_path.iterdir()) == [tiny]


@pytest.mark.parametrize("late", ["kind", "place"])
def test_two_folders_are_there_both_or_neither(
    late: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one fails when it is made, or when it is put into its place."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()

    def write(bundle: Bundle, folder: Path) -> list[str]:
        if late == "kind":
            raise InputError("no", hint="none")
        second.mkdir()
        (second / "mine").touch()
        return []

    monkeypatch.setattr("edgec.exporting.c.write", write)
    with pytest.raises(InputError):
        edgec.export(tiny, tflite=first, c=second)
    left = [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")]
    theirs = ["second", "second/mine"] if late == "place" else []
    assert sorted(left) == ["first", *theirs, "tiny.edgec"]


@pytest.mark.parametrize("second", ["out", "./sub/../out"])
def test_a_folder_for_two_kinds(second: str, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(InputError, match="is also the folder of --c") as e:
        edgec.export(tiny, tflite=tmp_path / "out", c=tmp_path / second)
    assert e.value.at == "--tflite"
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_is_filled_and_has_the_usual_permissions(
    tiny: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert edgec.export(tiny, tflite=out) == (out,)
    usual = tmp_path / "usual"
    usual.mkdir()
    assert stat.S_IMODE(out.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)
    readme = (out / "README.md").read_text().split("\n\n")
    assert len(readme) == 4, "a title and three lines"


def test_a_bundle_without_the_parts_says_so(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no C") as e:
        edgec.export(tiny, cmake=tmp_path / "out")
    assert e.value.at == str(tiny)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("target", "action"), [("pi4", "with an Edge TPU"), ("pi4+coral", "--edgetpu all")]
)
def test_a_bundle_without_a_segment_names_what_makes_one(
    target: str, action: str, tmp_path: Path
) -> None:
    manifest, files = tiny_model.parts()
    manifest["target"] = target
    write_bundle(tmp_path / "tiny.edgec", manifest, files)
    with pytest.raises(InputError, match=r"no \.tflite file") as e:
        edgec.export(tmp_path / "tiny.edgec", tflite=tmp_path / "out")
    assert action in (e.value.hint or "")


@pytest.mark.slow
def test_the_segments_of_a_model_compute_what_its_session_does(
    cartoon: Path, tmp_path: Path
) -> None:
    edgec.export(cartoon, tflite=tmp_path / "out")
    with Bundle.open(cartoon) as bundle, Session(bundle) as session:
        session.run(noise_inputs(bundle.manifest))
        segments = [s for s in bundle.manifest.segments if s.place == "edgetpu"]
        assert segments
        for segment in segments:
            interpreter = Interpreter(
                str(tmp_path / "out" / f"{segment.name}.tflite"),
                experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
            )
            interpreter.allocate_tensors()
            rows = interpreter.get_input_details()
            for row, name in zip(rows, segment.inputs, strict=True):
                interpreter.set_tensor(row["index"], session.tensor(name))
            interpreter.invoke()
            rows = interpreter.get_output_details()
            for row, name in zip(rows, segment.outputs, strict=True):
                got = interpreter.get_tensor(row["index"])
                np.testing.assert_array_equal(got, session.tensor(name))


@pytest.mark.slow
def test_the_whole_model_is_one_file(digits: Path, tmp_path: Path) -> None:
    edgec.export(digits, tflite=tmp_path / "out")
    data = np.load(DIGITS / "digits_test.npz")["x"]
    interpreter = Interpreter(
        str(tmp_path / "out" / "model.tflite"),
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    (returned,) = interpreter.get_output_details()
    with Session(digits) as session:
        for x in data[:20]:
            (want,) = session.run({"input": x[None]}).values()
            interpreter.set_tensor(given["index"], x[None])
            interpreter.invoke()
            got = interpreter.get_tensor(returned["index"])
            np.testing.assert_array_equal(got, want)
    assert (
        "model.tflite is the whole model"
        in (tmp_path / "out" / "README.md").read_text()
    )


def test_a_float_model_is_no_int8_file(tmp_path: Path) -> None:
    done = verb("compile", DIGITS / "digits.onnx", "--keep-tflite", cwd=tmp_path)
    assert done.code == 2
    assert "is in float, so the model is not an int8 .tflite" in done.err
    assert "at: --keep-tflite" in done.err
    assert not list(tmp_path.iterdir())


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def check_program(program: Path, digits: Path, folder: Path) -> None:
    """A program that was built of an export gives what a session gives."""
    with Bundle.open(digits) as bundle, Session(bundle) as session:
        inputs = noise_inputs(bundle.manifest)
        want = session.run(inputs)
    names = []
    for i, array in enumerate(inputs.values()):
        np.save(folder / f"in{i}.npy", array)
        names.append(f"in{i}.npy")
    (folder / "results").mkdir()
    run(folder, str(program), "--input", *names, "--output", "results")
    for i, array in enumerate(want.values()):
        got = np.load(folder / "results" / f"output{i}.npy")
        np.testing.assert_array_equal(got, array)


@pytest.mark.slow
def test_the_c_is_built_by_make(digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    edgec.export(digits, c=out)
    run(out, "make", f"CC={shutil.which('gcc')}", f"MODEL_TARGET={machine_target()}")
    check_program(out / "main", digits, tmp_path)


@pytest.mark.slow
def test_the_c_is_built_by_cmake(digits: Path, tmp_path: Path) -> None:
    if not shutil.which("cmake"):
        pytest.skip("no cmake: install cmake")
    out = tmp_path / "out"
    edgec.export(digits, cmake=out)
    run(out, "cmake", "-B", "build")
    run(out, "cmake", "--build", "build")
    check_program(out / "build" / "main", digits, tmp_path)


@pytest.mark.slow
def test_each_network_of_a_cascade_has_a_folder(tmp_path: Path) -> None:
    edgec.export(objects.bundle(), c=tmp_path / "out")
    folders = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert folders == ["discs", "thing"], "mirror is like discs"
    out = tmp_path / "out" / "discs"
    assert "`frame` is float32 1x3x64x64" in (out / "README.md").read_text()
    run(out, "make", f"CC={shutil.which('gcc')}")
    run(out, "./main", "--runs", "1")


@pytest.mark.slow
def test_state_begins_as_in_a_session(tmp_path: Path) -> None:
    """The program's first inference has the values that the model begins with."""
    (tmp_path / "m.tflite").write_bytes(stateful())
    bundle = tmp_path / "m.edgec"
    edgec.compile(tmp_path / "m.tflite", "host", bundle)
    edgec.export(bundle, c=tmp_path / "out")
    run(tmp_path / "out", "make", f"CC={shutil.which('gcc')}")
    check_program(tmp_path / "out" / "main", bundle, tmp_path)


ZIG_AS_GCC = """#!{python}
import os
import sys

sys.path.insert(0, {source!r})
from edgec.toolchain.libraries import zig_libraries

words = []
for word in sys.argv[1:]:
    if word.startswith("-mcpu="):
        # zig calls cores by other names than gcc does.
        word = "-mcpu=" + word[len("-mcpu=") :].replace("-", "_")
    elif word.startswith("-I"):
        word = "-I" + os.path.abspath(word[2:])
    elif not word.startswith("-"):
        word = os.path.abspath(word)
    # Only shared libraries need it, and zig has libraries of its own for each option.
    if word != "-rdynamic":
        words.append(word)
if "-c" not in words:
    # Its C library is there for this core and these flags already, and for this folder.
    words += ["-mcpu=cortex_a53", "-static", "-s"]
folder = zig_libraries()
os.chdir(folder)
os.environ["ZIG_GLOBAL_CACHE_DIR"] = str(folder)
command = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl"]
os.execv(sys.executable, [*command, *words])
"""
"""A cross compiler that every machine with edgec has."""


def zig_as_gcc(folder: Path) -> Path:
    """Write the cross compiler into a folder."""
    compiler = folder / "zig-as-gcc"
    compiler.write_text(ZIG_AS_GCC.format(python=sys.executable, source=str(ROOT)))
    compiler.chmod(0o755)
    return compiler


def on_the_board(program: Path, folder: Path) -> Path:
    """Write a script that runs a program as on the board."""
    emulated = folder / "on-the-board"
    emulated.write_text(
        f'#!/bin/sh\nexec qemu-aarch64 -cpu cortex-a72 {program} "$@"\n'
    )
    emulated.chmod(0o755)
    return emulated


@pytest.mark.arm
@pytest.mark.slow
def test_two_compilers_in_one_folder_do_not_mix_objects(
    digits: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    edgec.export(digits, c=out)
    exported = sorted(out.rglob("*"))
    here = ["make", f"CC={shutil.which('gcc')}", f"MODEL_TARGET={machine_target()}"]
    there = ["make", f"CC={zig_as_gcc(tmp_path)}", "MODEL_TARGET=linux-aarch64"]
    programs = ((here, out / "main"), (there, on_the_board(out / "main", tmp_path)))
    for command, program in (*programs, programs[0]):
        run(out, *command)
        # Nothing is left to do, as long as the flags are the same.
        run(out, *command, "--question")
        changed = [*command, "--question", "CFLAGS=-g"]
        assert subprocess.run(changed, cwd=out).returncode == 1
        check_program(program, digits, tmp_path)
        shutil.rmtree(tmp_path / "results")
    run(out, *here, "clean")
    assert sorted(out.rglob("*")) == exported


def test_make_names_a_compiler_for_another_machine(
    digits: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    edgec.export(digits, c=out)

    def warnings(target: str) -> str:
        make = ["make", "CC=gcc", f"MODEL_TARGET={target}", "--dry-run"]
        return subprocess.run(make, cwd=out, capture_output=True, text=True).stderr

    # The README's commands are those of the targets that they name.
    readme = (out / "README.md").read_text()
    default = (out / "Makefile").read_text().split("MODEL_TARGET ?= ")[1].split("\n")[0]
    assert f"Build it with `make` for {default}, " in readme
    others = {"linux-aarch64", "linux-x86_64"} - {machine_target()}
    for target in {path.name for path in (out / "src").glob("linux-*")} - {default}:
        assert f"`make MODEL_TARGET={target}` for {target}" in readme
    assert warnings(machine_target()) == ""
    for target in others & {path.name for path in (out / "src").iterdir()}:
        assert f"and this is for {target.removeprefix('linux-')}: say CC=" in warnings(
            target
        )


@pytest.mark.arm
@pytest.mark.slow
def test_the_c_is_built_for_the_board_by_the_toolchain_file(
    digits: Path, tmp_path: Path
) -> None:
    """With Debian's cross compiler, which the file names, or else zig; run as on the
    board.
    """
    if not shutil.which("cmake"):
        pytest.skip("no cmake: install cmake")
    out = tmp_path / "out"
    edgec.export(digits, cmake=out)
    options = [
        f"-DCMAKE_TOOLCHAIN_FILE={out}/linux-aarch64.cmake",
        "-DCMAKE_EXE_LINKER_FLAGS=-static",
    ]
    if not shutil.which("aarch64-linux-gnu-gcc"):
        options.append(f"-DCMAKE_C_COMPILER={zig_as_gcc(tmp_path)}")
    run(out, "cmake", "-B", "build", *options)
    run(out, "cmake", "--build", "build")
    check_program(on_the_board(out / "build" / "main", tmp_path), digits, tmp_path)
