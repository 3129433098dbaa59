"""One small case per thing a person can get wrong: the message, the exit code, and
nothing left behind.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgec_runtime.interpreter import Interpreter
from onnx import TensorProto, helper

from tests.cli.verbs import Result, edgec
from tests.frontends.tflite_operators import Given, model_of, packed

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
PHOTO = ROOT / "fixtures" / "photos" / "astronaut.jpg"


def refused(result: Result, *texts: str, code: int = 2) -> None:
    """The house shape: `error:` first, one `hint:`, the exit code, no traceback."""
    assert result.code == code, result
    # On a busy machine a step that takes a second is said before.
    message = re.sub(r"^(?!error: ).*: \d+\.\d s\n", "", result.err, flags=re.MULTILINE)
    assert message.startswith("error: "), result.err
    assert result.err.count("\n  hint: ") == 1, result.err
    assert "Traceback" not in result.err + result.out
    for text in texts:
        assert text in result.err, result.err


def onnx_model(
    path: Path, op: str = "Relu", shape: tuple[object, ...] = (1, 3, 8, 8)
) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], name="the_node")], "g", [x], [y]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path
    )
    return path


def test_missing_model(tmp_path: Path) -> None:
    refused(
        edgec("compile", "nosuch.onnx", cwd=tmp_path), "no such model file: nosuch.onnx"
    )


def test_a_function_of_another_operator_set(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.onnx", "Own")
    model = onnx.load(path)
    softmax = [helper.make_node("Softmax", ["x"], ["y"])]
    imports = [helper.make_opsetid("", 11)]
    model.functions.append(
        helper.make_function("mine", "Own", ["x"], ["y"], softmax, imports)
    )
    model.graph.node[0].domain = "mine"
    model.opset_import.append(helper.make_opsetid("mine", 1))
    onnx.save(model, path)
    refused(
        edgec("explain", path, cwd=tmp_path),
        "the function Own is of operator set 11 and its caller of 17",
        f"at: function Own, {path}",
        "hint: export the model with one operator set",
    )


def test_the_program_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edgec", "compile", "nosuch.onnx"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    refused(
        Result(done.returncode, done.stdout, done.stderr),
        "no such model file: nosuch.onnx",
    )


def test_neither_onnx_nor_tflite(tmp_path: Path) -> None:
    (tmp_path / "model.h5").write_bytes(b"x")
    refused(
        edgec("compile", "model.h5", cwd=tmp_path),
        "model.h5 is not one of .onnx, .tflite, .pt2",
    )


def test_a_picture_in_the_place_of_a_model(tmp_path: Path) -> None:
    refused(
        edgec("compile", PHOTO, cwd=tmp_path),
        f"{Path(PHOTO).name} is a picture",
        "edgec run BUNDLE --input PICTURE",
    )


def test_a_bundle_in_the_place_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "net.edgec").write_bytes(b"x")
    refused(
        edgec("explain", "net.edgec", cwd=tmp_path),
        "net.edgec is a bundle",
        "edgec inspect net.edgec",
    )


def test_a_mistyped_bundle(tmp_path: Path) -> None:
    (tmp_path / "net.edgec").write_bytes(b"x")
    for verb in ("inspect", "bench"):
        refused(edgec(verb, "net.edgc", cwd=tmp_path), 'did you mean "net.edgec"?')


def test_a_missing_option_is_explained(tmp_path: Path) -> None:
    refused(
        edgec("run", "net.edgec", cwd=tmp_path),
        "Missing option '--input'",
        "--input PATH: .npz by input name, .npy, or a photo",
        "run --help",
    )


@pytest.mark.parametrize("cut", [0, 6, 100, 0.5, 0.9, 0.99])
def test_truncated_tflite(tmp_path: Path, cut: float) -> None:
    from edgec.emit.tflite import write_tflite
    from tests.emit.test_c import residual_int8

    data = write_tflite(residual_int8())
    size = cut if cut > 1 else int(cut * len(data))
    (tmp_path / "model.tflite").write_bytes(data[: int(size)])
    refused(edgec("compile", "model.tflite", cwd=tmp_path), "model.tflite")
    assert list(tmp_path.iterdir()) == [tmp_path / "model.tflite"]


@pytest.mark.parametrize("cut", [0, 40, 0.3, 0.8])
def test_truncated_onnx(tmp_path: Path, cut: float) -> None:
    data = DIGITS.read_bytes()
    (tmp_path / "model.onnx").write_bytes(
        data[: int(cut if cut > 1 else cut * len(data))]
    )
    refused(edgec("compile", "model.onnx", cwd=tmp_path), "model.onnx")
    assert list(tmp_path.iterdir()) == [tmp_path / "model.onnx"]


def test_unknown_op(tmp_path: Path) -> None:
    model = onnx_model(tmp_path / "m.onnx", "RandomNormalLike")
    refused(
        edgec("compile", model, cwd=tmp_path), "RandomNormalLike", "the_node", "m.onnx"
    )


def test_dynamic_shape_that_is_not_frozen(tmp_path: Path) -> None:
    model = onnx_model(tmp_path / "m.onnx", shape=(1, 3, "height", "width"))
    refused(edgec("compile", model, cwd=tmp_path), "x", "height", "--input-shape x=")


@pytest.mark.parametrize("text", ["x", "x=", "=1x2", "x=1x-3", "x=1xa"])
def test_malformed_input_shape(tmp_path: Path, text: str) -> None:
    refused(
        edgec("compile", DIGITS, "--input-shape", text, cwd=tmp_path),
        f"--input-shape {text}",
    )


@pytest.mark.parametrize("text", ["sr", "sr=", "=1", "sr=1,a"])
def test_malformed_fixed_input(tmp_path: Path, text: str) -> None:
    refused(
        edgec("compile", DIGITS, "--fix", text, cwd=tmp_path),
        f"--fix {text}",
        "one number",
    )


@pytest.mark.parametrize("text", ["h", "h=", "=hn"])
def test_malformed_state(tmp_path: Path, text: str) -> None:
    refused(
        edgec("compile", DIGITS, "--state", text, cwd=tmp_path),
        f"--state {text}",
        "INPUT=OUTPUT",
    )


def test_state_of_no_input(tmp_path: Path) -> None:
    refused(
        edgec("compile", DIGITS, "--state", "imput=output", cwd=tmp_path),
        "imput",
        "--state",
    )


@pytest.mark.parametrize("threads", ["0", "5", "-1"])
def test_threads_that_no_code_is_for(tmp_path: Path, threads: str) -> None:
    refused(
        edgec("compile", DIGITS, "--threads", threads, cwd=tmp_path),
        f"{threads} threads",
        "give 1 to 4",
    )


def test_input_shape_of_no_input(tmp_path: Path) -> None:
    refused(
        edgec("compile", DIGITS, "--input-shape", "imput=1x1x32x32", cwd=tmp_path),
        "imput",
        "input",
    )


def test_calibration_folder_without_images(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    result = edgec(
        "compile",
        DIGITS,
        "--calibrate",
        "photos",
        "--target",
        "pi4+coral",
        cwd=tmp_path,
    )
    refused(result, "calibration folder holds no photo", "photos")
    assert not list(tmp_path.glob("*.edgec"))


def test_calibration_that_is_not_there(tmp_path: Path) -> None:
    refused(edgec("compile", DIGITS, "--calibrate", "nosuch", cwd=tmp_path), "nosuch")


def test_calibration_of_the_wrong_shape(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", input=np.zeros((4, 3, 9, 9), np.float32))
    refused(
        edgec("compile", DIGITS, "--calibrate", "c.npz", cwd=tmp_path), "[4, 3, 9, 9]"
    )


@pytest.mark.parametrize(
    ("target", "guess"),
    [("pi44", "pi4"), ("pi4+corral", "coral"), ("pi4coral", '"pi4+coral"')],
)
def test_unknown_target(tmp_path: Path, target: str, guess: str) -> None:
    refused(
        edgec("compile", DIGITS, "--target", target, cwd=tmp_path),
        target.split("+")[-1],
        guess,
    )


def test_unknown_share_of_the_edge_tpu(tmp_path: Path) -> None:
    refused(
        edgec("compile", DIGITS, "--edgetpu", "most", cwd=tmp_path),
        "most",
        "--edgetpu",
        "auto or all",
    )


def test_unknown_pass(tmp_path: Path) -> None:
    refused(
        edgec("compile", DIGITS, "--disable-pass", "dead_cod", cwd=tmp_path),
        "dead_cod",
        "dead_code",
    )


def test_unknown_preprocessing(tmp_path: Path) -> None:
    refused(edgec("explain", DIGITS, "--preprocess", "0..1", cwd=tmp_path), "0..1")


def test_output_that_is_a_folder(tmp_path: Path) -> None:
    refused(edgec("compile", DIGITS, "-o", ".", cwd=tmp_path), "is a folder")


def test_a_cosine_that_cannot_be(tmp_path: Path) -> None:
    for value in ("1.1", "nan"):
        refused(
            edgec("compile", DIGITS, "--min-cosine", value, cwd=tmp_path),
            "no cosine can be",
        )


def test_output_folder_that_is_not_there(tmp_path: Path) -> None:
    refused(
        edgec("compile", DIGITS, "-o", "a/b.edgec", cwd=tmp_path),
        "folder a does not exist",
        "hint: mkdir -p a\n",
    )
    refused(
        edgec("compile", DIGITS, "-o", "my nets/b.edgec", cwd=tmp_path),
        "hint: mkdir -p 'my nets'\n",
    )


def test_output_below_a_file(tmp_path: Path) -> None:
    """`mkdir -p` would fail."""
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to("gone")
    for folder in ("file", "file/a", "nowhere", "nowhere/a"):
        part = folder.partition("/")[0]
        refused(
            edgec("compile", DIGITS, "-o", f"{folder}/b.edgec", cwd=tmp_path),
            f"error: {part} is not a folder\n",
            "hint: give another path",
        )


def test_unknown_verb_and_option(tmp_path: Path) -> None:
    refused(edgec("compil", cwd=tmp_path), 'did you mean "compile"?')
    refused(edgec("compile", DIGITS, "--tarbet", "pi4", cwd=tmp_path), "--tarbet")


def test_help_shows_whole_summaries(tmp_path: Path) -> None:
    """click itself ends them with "..." after one line."""
    for group in ([], ["devices"], ["models"]):
        text = edgec(*group, "--help", cwd=tmp_path).out
        assert "Commands:" in text
        assert "..." not in text.split("Commands:")[1]


def test_a_host_as_ssh_takes_it(tmp_path: Path) -> None:
    refused(
        edgec("doctor", "--on", "pi@raspberrypi", cwd=tmp_path),
        'did you mean "ssh://pi@raspberrypi"?',
    )


def test_a_bundle_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.edgec").write_bytes(b"not a zip")
    refused(edgec("bench", "x.edgec", cwd=tmp_path), "x.edgec")
    refused(
        edgec(
            "run", "nosuch.edgec", "--input", PHOTO, "--output", "y.npz", cwd=tmp_path
        ),
        "nosuch.edgec",
    )


def _compiled_by_google() -> bytes:
    image = Given(np.zeros((1, 4, 4, 3), np.uint8), quant=([0.1], [128], 0))
    return packed(model_of("edgetpu-custom-op", b"code", [image], [((1, 4), "uint8")]))


def _check_already_compiled(path: Path, cwd: Path) -> None:
    texts = (
        "the file is already compiled by edgetpu_compiler",
        f"at: {path}",
        "hint: give the .tflite that it was made from",
    )
    for verb in ("compile", "explain", "bench"):
        refused(edgec(verb, path, cwd=cwd), *texts)
    run = edgec("run", path, "--input", PHOTO, "--output", "y.npz", cwd=cwd)
    refused(run, *texts)
    with pytest.raises(ValueError, match=texts[0]):
        Interpreter(path)
    with pytest.raises(ValueError, match=texts[0]):
        Interpreter(model_content=path.read_bytes())
    assert list(cwd.iterdir()) == []


@pytest.mark.parametrize("metadata", [False, True])
def test_a_file_of_edgetpu_compiler(tmp_path: Path, metadata: bool) -> None:
    path = tmp_path / "m_edgetpu.tflite"
    path.write_bytes(_compiled_by_google())
    if metadata:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("labels.txt", "cat\n")
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    _check_already_compiled(path, cwd)
    # It has the operator's name, and no programs.
    refused(edgec("inspect", path, cwd=cwd), "the file cannot be read", f"at: {path}")


@pytest.mark.shared
def test_files_of_edgetpu_compiler(tmp_path: Path, shared: Path) -> None:
    paths = sorted((shared / "edgetpu" / "compiled").rglob("*_edgetpu.tflite"))
    assert paths
    for path in paths[:: len(paths) // 4]:
        _check_already_compiled(path, tmp_path)


def test_a_tflite_in_the_place_of_a_bundle(tmp_path: Path) -> None:
    x = Given(np.zeros((1, 4), np.float32))
    path = tmp_path / "m.tflite"
    path.write_bytes(packed(model_of("RELU", None, [x], [((1, 4), np.float32)])))
    for verb in ("inspect", "bench"):
        refused(
            edgec(verb, path, cwd=tmp_path),
            "the file is a .tflite, which has to be compiled first",
            "edgec compile",
        )


@pytest.mark.slow
def test_running_with_wrong_files(tmp_path: Path) -> None:
    assert edgec("compile", DIGITS, "-o", "d.edgec", cwd=tmp_path).code == 0
    run = ("run", "d.edgec", "--output", "y.npz", "--input")
    refused(edgec(*run, "nosuch.npz", cwd=tmp_path), "nosuch.npz")
    np.savez(
        tmp_path / "x.npz", inpt=np.zeros((1, 1, 32, 32), np.float32), other=np.zeros(3)
    )
    refused(edgec(*run, "x.npz", cwd=tmp_path), "none of them an input")
    np.savez(tmp_path / "x.npz", input=np.zeros((1, 1, 32, 32), np.float64))
    refused(edgec(*run, "x.npz", cwd=tmp_path), "float32, not float64")
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04")
    refused(edgec(*run, "x.npz", cwd=tmp_path), "x.npz cannot be read")
    np.savez(tmp_path / "x.npz", input=np.zeros((1, 1, 32, 32), np.float32))
    refused(edgec(*run, "x.npz", "--on", "emulated:pi9", cwd=tmp_path), "pi9")
    refused(
        edgec("run", "d.edgec", "--input", "x.npz", "--output", "y.gif", cwd=tmp_path),
        "cannot write .gif",
    )
    assert not (tmp_path / "y.npz").exists()


@pytest.mark.parametrize(
    ("words", "completed"),
    [("edgec fla", "plain,flash"), ("edgec flash --hea", "plain,--health")],
)
def test_the_shell_completes(words: str, completed: str) -> None:
    settings = {
        "_EDGEC_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    start = [
        sys.executable,
        "-c",
        "import sys; sys.argv = ['edgec']; from edgec.cli.main import main; main()",
    ]
    done = subprocess.run(
        start, capture_output=True, text=True, env={**os.environ, **settings}
    )
    assert completed in done.stdout.splitlines()


def test_reuse(tmp_path: Path) -> None:
    """`--reuse` needs an Edge TPU, a file of edgetpu_compiler, and not the program."""
    model = onnx_model(tmp_path / "m.onnx")
    (tmp_path / "old.tflite").write_bytes(b"no such file")
    coral = ("--target", "pi4+coral")
    given = ("compile", model, "--reuse", "old.tflite")
    refused(edgec(*given, "--target", "pi4", cwd=tmp_path), "pi4 has no Edge TPU")
    both = edgec(*given, *coral, "--edgetpu-compiler", "none", cwd=tmp_path)
    refused(both, "re-used without edgetpu_compiler")
    missing = edgec("compile", model, "--reuse", "none.tflite", *coral, cwd=tmp_path)
    refused(missing, "cannot read none.tflite")


def test_inspect_of_other_files(tmp_path: Path) -> None:
    """Files that edgetpu_compiler has not written, texts, and options that do not fit."""
    other = tmp_path / "other.tflite"
    other.write_bytes(_compiled_by_google())
    refused(
        edgec("inspect", other, "--key", "k.pub", cwd=tmp_path), "bundles are signed"
    )
    refused(
        edgec("inspect", other, "--assemble", "made.tflite", cwd=tmp_path), str(other)
    )
    refused(edgec("inspect", "none.tflite", cwd=tmp_path), "none.tflite")
    assert not (tmp_path / "made.tflite").exists()
