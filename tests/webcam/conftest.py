from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.webcam.server import Server
from edgec_runtime.webcam.show import WATCHED, Show
from edgec_runtime.webcam.sources import open_source
from onnx import TensorProto, helper, save
from PIL import Image

import edgec
from tests.waiting import LIMIT_S


def compiled(
    folder: Path,
    name: str,
    kind: str,
    output: tuple[int, ...],
    task: str,
    target: str = "host",
) -> Path:
    """One operator on x [1,3,24,32] as a bundle."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 24, 32))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    attributes = {"axes": [1]} if kind == "ReduceMax" else {}
    node = helper.make_node(kind, ["x"], ["y"], name="n", **attributes)
    model = helper.make_model(
        helper.make_graph([node], "g", [x], [y]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    save(model, folder / f"{name}.onnx")
    edgec.compile(
        folder / f"{name}.onnx",
        target,
        output=folder / f"{name}.edgec",
        task=task,
        preprocess="0_1",
    )
    return folder / f"{name}.edgec"


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An image task that changes nothing, a segmentation of what is bright, and a
    bundle without a task.
    """
    folder = tmp_path_factory.mktemp("bundles")
    same = compiled(folder, "same", "Relu", (1, 3, 24, 32), "image")
    bright = compiled(folder, "bright", "ReduceMax", (1, 1, 24, 32), "segmentation")
    silent = folder / "silent.edgec"
    edgec.compile(folder / "same.onnx", output=silent)
    return [same, bright, silent]


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine photos, each brighter than the one before."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(9):
        Image.fromarray(np.full((48, 64, 3), 20 + 20 * i, np.uint8)).save(
            folder / f"{i}.png"
        )
    return folder


@pytest.fixture(scope="session")
def dark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image task that makes all of it black."""
    return compiled(
        tmp_path_factory.mktemp("dark"), "dark", "Neg", (1, 3, 24, 32), "image"
    )


@pytest.fixture
def show(bundles: list[Path], photos: Path) -> Iterator[Show]:
    show = Show(
        open_source(str(photos)),
        {p.stem: str(p) for p in bundles[:2]},
        playback=WATCHED,
    )
    thread = threading.Thread(target=lambda: [None for _ in show])
    thread.start()
    yield show
    show.stop()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


@pytest.fixture
def server(show: Show) -> Iterator[Server]:
    with Server(show) as server:
        yield server
