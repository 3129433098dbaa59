"""`edgec run`: what an output means without a stated task, and the classes of pixels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from tests.cli.verbs import edgec

SIDE = 8
COLORS = ((250, 10, 10), (10, 250, 10), (10, 10, 250))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with networks that tell the strongest colour, of a picture or a pixel.

    The picture is of three stripes: red, green, and blue, the broadest.
    """
    folder = tmp_path_factory.mktemp("run")
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [1], [20.0])
    scaled = helper.make_node("Mul", ["image", "scale"], ["scaled"])
    mean = helper.make_node("GlobalAveragePool", ["scaled"], ["mean"])
    flat = helper.make_node("Flatten", ["mean"], ["flat"])
    networks = {
        "classes": ([scaled, mean, flat, _softmax("flat")], [1, 3]),
        "pixels": ([scaled, _softmax("scaled")], [1, 3, SIDE, SIDE]),
        # As many numbers, but none of a softmax.
        "numbers": (
            [scaled, mean, helper.make_node("Flatten", ["mean"], ["y"])],
            [1, 3],
        ),
    }
    for name, (nodes, shape) in networks.items():
        image = helper.make_tensor_value_info(
            "image", TensorProto.FLOAT, [1, 3, SIDE, SIDE]
        )
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        graph = helper.make_graph(nodes, name, [image], [output], [scale])
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        )
        onnx.save(model, str(folder / f"{name}.onnx"))
    pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
    for columns, color in zip(((0, 2), (2, 4), (4, 8)), COLORS, strict=True):
        pixels[:, slice(*columns)] = color
    Image.fromarray(pixels).save(folder / "stripes.png")
    for name, options in {
        "classes": [],
        "numbers": [],
        "pixels": ["--task", "segmentation"],
    }.items():
        done = edgec("compile", f"{name}.onnx", *options, cwd=folder)
        assert done.code == 0, done.err
    return folder


def _softmax(name: str) -> onnx.NodeProto:
    return helper.make_node("Softmax", [name], ["y"], axis=1)


def test_a_softmax_without_a_task_tells_classes(folder: Path) -> None:
    run = ["run", "classes.edgec", "--input", "stripes.png"]
    told = edgec(*run, cwd=folder)
    assert told.code == 0
    first = told.out.splitlines()[1].split(maxsplit=1)
    assert first[1] == "class 2"
    assert float(first[0].rstrip("%")) > 50
    assert "--task" not in told.out

    found = json.loads(edgec(*run, "--json", cwd=folder).out)
    assert next(c["class"] for c in found["classes"]) == 2

    drawn = edgec(*run, "--out", "drawn.png", cwd=folder)
    assert drawn.code == 0
    assert "classification" in drawn.out
    assert Image.open(folder / "drawn.png").size == (SIDE, SIDE)

    raw = json.loads(edgec(*run, "--raw", "--json", cwd=folder).out)
    assert raw["outputs"]["y"]["shape"] == [1, 3]


def test_numbers_without_a_task_name_the_option(folder: Path) -> None:
    told = edgec("run", "numbers.edgec", "--input", "stripes.png", cwd=folder)
    assert told.code == 0
    assert "class " not in told.out
    assert "--task of compile does, and for a classifier --labels too" in told.out
    shown = edgec("inspect", "numbers.edgec", cwd=folder)
    assert "compile --task, or --labels for a classifier" in " ".join(shown.out.split())
    live = ["webcam", "numbers.edgec", "--source", "stripes.png", "--port", "0"]
    refused = edgec(*live, cwd=folder)
    assert refused.code == 2
    assert "--task classification (or --labels FILE)" in refused.err


def test_a_folder_is_no_input(folder: Path) -> None:
    told = edgec("run", "classes.edgec", "--input", ".", cwd=folder)
    assert told.code == 2
    assert "the input . is a folder" in told.err


def test_a_mask_has_the_class_of_each_pixel(folder: Path) -> None:
    run = ["run", "pixels.edgec", "--input", "stripes.png", "--mask"]
    done = edgec(*run, "--out", "mask.png", cwd=folder)
    assert done.code == 0, done.err
    image = Image.open(folder / "mask.png")
    # Numbers for programs, colours for people.
    assert image.mode == "P"
    assert len(image.convert("RGB").getcolors() or []) == 3
    columns = np.asarray(image)[0]
    assert columns.tolist() == [0, 0, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("bundle", "options", "what"),
    [
        ("pixels", ["--out", "mask.jpg"], ".png file"),
        ("pixels", [], ".png file"),
        ("classes", ["--out", "mask.png"], "no segmentation"),
    ],
)
def test_no_mask_says_why(
    folder: Path, bundle: str, options: list[str], what: str
) -> None:
    run = ["run", f"{bundle}.edgec", "--input", "stripes.png", "--mask"]
    done = edgec(*run, *options, cwd=folder)
    assert done.code != 0
    assert what in done.err
    assert not [*folder.glob("mask.jpg")]


def test_a_message_names_the_file_that_was_given(folder: Path) -> None:
    run = ["run", "numbers.edgec", "--input", "stripes.png", "--out", "shown.png"]
    done = edgec(*run, cwd=folder)
    assert done.code != 0
    assert "at: shown.png" in done.err
    assert "--task" in done.err
    assert not (folder / "shown.png").exists()


def test_a_compile_tells_the_task_and_the_next_command(folder: Path) -> None:
    done = edgec("compile", "pixels.onnx", "--task", "segmentation", cwd=folder)
    assert "its outputs are taken for segmentation" in done.out
    assert done.out.splitlines()[-1] == (
        "next: edgec run pixels.edgec --input photo.jpg"
    )

    (folder / "colours.txt").write_text("red\ngreen\nblue\n")
    labels = ["--labels", "colours.txt", "--task", "classification"]
    more = ["-o", "named.edgec", "--target", "pi4"]
    done = edgec("compile", "classes.onnx", *labels, *more, cwd=folder)
    assert "classification, 3 labels: red, green, blue" in done.out
    assert done.out.splitlines()[-1] == (
        "next: edgec run named.edgec --on emulated:pi4 --input photo.jpg"
    )


def test_labels_of_a_row_make_a_classifier(folder: Path) -> None:
    (folder / "rgb.txt").write_text("red\ngreen\nblue\n")
    options = ["--labels", "rgb.txt", "-o", "labelled.edgec"]
    done = edgec("compile", "classes.onnx", *options, cwd=folder)
    assert "classification, 3 labels: red, green, blue" in done.out

    # Its other verbs say the same.
    assert "classification" in edgec("inspect", "labelled.edgec", cwd=folder).out
    frames = ["--source", "stripes.png", "--no-display", "--frames", "1"]
    assert edgec("webcam", "labelled.edgec", *frames, cwd=folder).code == 0


def test_the_next_command_is_one_for_the_shell(folder: Path) -> None:
    done = edgec("compile", "numbers.onnx", "-o", "my net.edgec", cwd=folder)
    assert "edgec run 'my net.edgec' --input" in done.out.splitlines()[-1]
    shown = edgec("inspect", "my net.edgec", cwd=folder).out
    assert "edgec export 'my net.edgec' --c folder/" in shown
    done = edgec("compile", "numbers.onnx", "-o", "-x.edgec", cwd=folder)
    command = done.out.splitlines()[-1].removeprefix("next: edgec ")
    assert command == "run ./-x.edgec --input photo.jpg"
    ran = edgec(*command.replace("photo.jpg", "stripes.png").split(), cwd=folder)
    assert ran.code == 0


def test_the_first_line_of_a_compile_is_one_line(folder: Path) -> None:
    name = "a\n[Unit].onnx"
    shutil.copy(folder / "numbers.onnx", folder / name)
    done = edgec("compile", name, "-o", "lines.edgec", cwd=folder)
    assert done.out.startswith("lines.edgec: a [Unit] for host")


@pytest.mark.parametrize(
    ("model", "task"),
    [
        ("classes.onnx", ["--task", "classification"]),
        ("classes.onnx", []),
        ("pixels.onnx", ["--task", "segmentation"]),
    ],
)
def test_labels_of_the_wrong_number_are_refused(
    folder: Path, model: str, task: list[str]
) -> None:
    (folder / "two.txt").write_text("red\ngreen\n")
    options = ["--labels", "two.txt", *task, "-o", "two.edgec"]
    done = edgec("compile", model, *options, cwd=folder)
    assert done.code != 0
    assert "there are 2 labels for 3 classes" in done.err
    assert "background" in done.err
    assert not (folder / "two.edgec").exists()
