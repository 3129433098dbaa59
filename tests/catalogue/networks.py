"""Networks of the catalogue for tests: fetched, compiled, and run beside LiteRT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Session
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.tasks.base import Result

import edgec
from edgec.catalogue.entries import ready_cascades
from edgec.errors import ToolError
from edgec.ir import Array
from tests import builds


def fetched(name: str) -> Path:
    """A file of the catalogue, of a cascade that of its first network; the test is
    skipped where there is no way to it.
    """
    try:
        listed, *_ = edgec.models([name])
    except ToolError as e:
        if "no connection" in e.what:
            pytest.skip(f"models:{name} is not in the cache, and {e.what}")
        raise
    assert listed.path is not None
    return listed.path


def bundle(name: str) -> Path:
    """The bundle of a network, or of a cascade, for this machine."""
    fetched(name)

    def make(folder: Path) -> None:
        output = folder / "net.edgec"
        if name in ready_cascades():
            edgec.compile(f"models:{name}", output=output)
        else:
            edgec.compile(f"models:{name}", output=output)

    return builds.once(f"models {name}", make) / "net.edgec"


def found(name: str, photo: Array) -> tuple[Result, list[Array], Session]:
    """edgec's result of a photo, what LiteRT makes of the same input, and the closed
    session for what it knows.
    """
    frame = CameraFrame.of(np.ascontiguousarray(photo))
    with Session(bundle(name)) as session:
        inputs = session.vision.prepare(frame)
        result = session.vision.result(session.run(inputs), frame.size)
    (array,) = inputs.values()
    return result, litert(fetched(name), array), session


def litert(model: Path, array: Array) -> list[Array]:
    """The outputs of a .tflite file."""
    module: Any = pytest.importorskip("ai_edge_litert.interpreter")
    kind = module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = module.Interpreter(str(model), experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    (detail,) = interpreter.get_input_details()
    interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [
        interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()
    ]
