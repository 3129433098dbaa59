"""The attacks by data that a person's own machine reads: frames and arrays for C, labels
of pictures, names in files for other programs, cascades, the cache's folder.

What a process may not survive runs in one of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import yaml
from edgec_devices.package import package
from edgec_runtime import Bundle, BundleError, EdgecError, InputError, TensorInfo
from edgec_runtime import write_bundle as write
from edgec_runtime.bundle.cache import cache_dir
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.disk import Refused
from edgec_runtime.device_end.units import unit_name, unit_text
from edgec_runtime.interpreter import Interpreter
from edgec_runtime.model import native
from edgec_runtime.session.vision import Vision
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.preprocess import bind
from edgec_runtime.vision.tasks.detection import Detection
from PIL import Image

from edgec.emit.program import ModelTable, SegmentEntry
from edgec.evaluation import coco_file
from edgec.evaluation.boxes import BoxPrecision
from edgec.evaluation.class_names import ClassNames
from edgec.exporting import export, frigate
from edgec.frontends.cascade_file import read_cascade
from edgec.ir import Array, TensorType
from tests import builds
from tests.cascade import objects
from tests.conftest import ROOT
from tests.devices.attack_files import Case, Host
from tests.devices.test_package import members, untar
from tests.runtime import tiny_model
from tests.tasks.vision import frame_inputs

FRAME = "a frame's planes"
ARRAY = "arrays for C"
VISION = "arrays of a bundle's tensors"
MASK = "a label's mask"
LENGTH = "the length of a run"
OBJECT = "a label's box, area and points"
FILE = "the file of a name"
NUMBER = "the number of a class"
YAML = "quotes of YAML"
COMMENT = "the end of a comment"
FIELD = "the line of a field"
PATH = "a path in a unit"
WHOLE = "all folders or none"
BOARD = "the board of a network"
OURS = "that the cache is ours"
INDEX = "the number of a tensor"

IN_PROCESSES: Mapping[str, tuple[Any, str, Any]] = {
    FRAME: (CameraFrame, "check", lambda self: None),
    ARRAY: (native, "_address", lambda array, *_, **__: array.ctypes.data),
    MASK: (coco_file, "mask_fault", lambda *_: ""),
}
"""Checks that are taken out in the attack's own process: the object, the name and what
stands there instead.
"""
taken_out = ""
"""The one of IN_PROCESSES that the attack's process goes without; "": none."""

MOST_BYTES = 2 << 30
"""Memory of an attack's process."""
LONGEST_S = 60.0
_REFUSED = 9
_INPUT = TensorInfo("a", (1, 36, 64, 3), "<f4")


def data() -> Iterator[Case]:
    """All of them."""
    for name in FRAMES:
        yield Case(f"a frame: {name}", (FRAME,), partial(_apart, "frame", name))
    for name in ARRAYS:
        yield Case(f"memory for C: {name}", (ARRAY,), partial(_apart, "array", name))
    for name in MASKS:
        yield Case(f"a mask: {name}", (MASK,), partial(_apart, "mask", name))
    yield Case("an input's memory of three bytes", (VISION,), _input_memory)
    run = {"size": [24, 32], "counts": "o" * 2**20}
    yield Case(
        "a mask: one length of a megabyte",
        (LENGTH,),
        partial(_labels, {"segmentation": run}, {}),
    )
    for what, changes in OBJECTS.items():
        yield Case(f"a label with {what}", (OBJECT,), partial(_labels, changes, {}))
    yield Case(
        "a picture whose name no file has",
        (FILE,),
        partial(_labels, {}, {"images": [{"id": 7, "file_name": "a" * 5000}]}),
    )
    yield Case(
        "a class called by 5,000 digits",
        (NUMBER,),
        partial(_labels, {}, {"categories": [{"id": 5, "name": "7" * 5000}]}),
    )
    yield from _names()
    yield Case("two folders, of which the second fails", (WHOLE,), _half_exported)
    for field in ("target", "board"):
        yield Case(f"a network of another {field}", (BOARD,), partial(_network, field))
    for name in ("a link to another folder", "a folder that all may write to"):
        yield Case(f"a cache that is {name}", (OURS,), partial(_cache, name))
    for number in (1.5, None):
        yield Case(f"the tensor {number}", (INDEX,), partial(_tensor, number))


def _refused_only(attack: Callable[[], object]) -> None:
    """Raise what an attack is refused with; any other end of it is none."""
    try:
        attack()
    except EdgecError:
        raise
    except Refused as e:
        raise InputError(e.what, hint=e.hint) from None
    except Exception:
        # A traceback in the place of a message: the attack has succeeded.
        return


def _kept(name: str) -> InputError:
    """Return the end of an attack by a name that stayed a name."""
    return InputError(f"{name!r} is a name and nothing more", hint="none")


# ---- in a process of its own
# --------------------------------------------------------------------------------------


def _planes(*shapes: tuple[int, ...], dtype: str = "uint8") -> tuple[Array, ...]:
    return tuple(np.zeros(shape, dtype) for shape in shapes)


FRAMES: dict[str, tuple[str, Callable[[], tuple[Array, ...]]]] = {
    "nv12 of one plane": ("nv12", lambda: _planes((4, 4))),
    "nv12 with few colours": ("nv12", lambda: _planes((400, 400), (1, 2))),
    "rgba of three channels": ("rgba", lambda: _planes((400, 400, 3))),
    "rgb of two": ("rgb", lambda: _planes((400, 400, 2))),
    "odd yuyv": ("yuyv", lambda: _planes((5, 5, 2))),
    "floats": ("rgb", lambda: _planes((4, 4, 3), dtype="float32")),
    "rows without end": (
        "gray",
        lambda: (np.broadcast_to(np.uint8(0), (1 << 32, 4)),),
    ),
}
"""Format and planes."""

ARRAYS: dict[str, Callable[[], Array]] = {
    "too small": lambda: np.empty(3, np.float32),
    "of another type": lambda: np.empty(_INPUT.shape, np.uint8),
    "with gaps": lambda: np.empty((1, 36, 64, 6), np.float32)[..., ::2],
    "that may only be read": lambda: np.broadcast_to(np.float32(0), _INPUT.shape),
}

MASKS: dict[str, Any] = {
    "a corner 1e9 pixels away": [[0, 0, 1e9, 0, 0, 1e9]],
    "a corner of 400 digits": [[0, 0, 10**400, 0, 0, 9]],
    "an outline to and fro": [[0, 0, 64, 48] * 500_000],
    "runs of another picture": {"size": [24, 32], "counts": [10**9]},
}


def _apart(kind: str, name: str, h: Host) -> None:
    """Run an attack in a process; raises BundleError where that refused it."""
    folder = h.root.parent.parent if kind == "mask" else _library()
    words = (sys.executable, "-m", "tests.devices.attack_data", kind, name, taken_out)
    done = subprocess.run(
        [*words, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    if done.returncode == _REFUSED:
        raise BundleError(done.stdout.strip(), hint="give what it is to be")


def _library() -> Path:
    """Return the folder with a library that makes an input of frames."""

    def make(folder: Path) -> None:
        frame_inputs([_INPUT], {_INPUT.name: bind(_INPUT)}, folder)

    return builds.once("attacks by frames", make)


def _frame(name: str, folder: Path) -> None:
    format, planes = FRAMES[name]
    _make_input(
        CameraFrame(format, planes()), np.empty(_INPUT.shape, np.float32), folder
    )


def _array(name: str, folder: Path) -> None:
    _make_input(CameraFrame.of(np.zeros((8, 8, 3), np.uint8)), ARRAYS[name](), folder)


def _make_input(frame: CameraFrame, out: Array, folder: Path) -> None:
    library = ctypes.CDLL(str(folder / "vision.so"))
    call = native.function(library, "edgec_frame_0")
    how = bind(_INPUT)
    native.FrameInput(call, _INPUT, (64, 36), how.fit, how.filter)(frame, out)


def _mask(name: str, folder: Path) -> None:
    _read_labels(folder, {"segmentation": MASKS[name]}, {})


def _main(kind: str, name: str, check: str, folder: str) -> int:
    """Run an attack without a check; its exit code says whether it was refused."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    acts = {"frame": _frame, "array": _array, "mask": _mask}
    if check:
        mock.patch.object(*IN_PROCESSES[check]).start()
    try:
        acts[kind](name, Path(folder))
    except EdgecError as e:
        print(e.what)
        return _REFUSED
    return 0


# ---- labels
# --------------------------------------------------------------------------------------

OBJECTS: dict[str, dict[str, Any]] = {
    "a box 1e300 pixels wide": {"bbox": [0, 0, 1e300, 4]},
    "an area of -1": {"area": -1},
    "a point 1e300 pixels away": {"keypoints": [1, 2, 2] * 16 + [1e300, 2, 2]},
}


def _labels(changes: dict[str, Any], keys: dict[str, Any], h: Host) -> None:
    _refused_only(lambda: _read_labels(h.root.parent.parent, changes, keys))


def _read_labels(folder: Path, changes: dict[str, Any], keys: dict[str, Any]) -> None:
    """Read a data set of one picture, and what its label shows.

    Args:
        folder: for the data set
        changes: of the picture's label
        keys: of the file, in place of its own
    """
    Image.new("RGB", (32, 24)).save(folder / "a.png")
    box = {"id": 1, "image_id": 7, "category_id": 5, "bbox": [1, 2, 10, 8], **changes}
    labels: dict[str, Any] = {
        "images": [{"id": 7, "file_name": "a.png"}],
        "categories": [{"id": 5, "name": "dog"}],
        "annotations": [box],
    }
    path = folder / "labels.json"
    path.write_text(json.dumps({**labels, **keys}))
    task = replace(Detection(), mask_column=-32, points=17)
    measure = BoxPrecision(ClassNames(1, ("dog",)), task)
    (found,) = measure.read(path)
    measure.truth(found, np.zeros((24, 32, 3), np.uint8))


# ---- names
# --------------------------------------------------------------------------------------


def _names() -> Iterator[Case]:
    """Names in files that other programs read."""
    for name in (
        "net\nmodel:\n  path: /etc/shadow",
        "net: &a [*a",
        'a" # b',
        "net\u2028k: v",
    ):
        yield Case(f"YAML of {name!r}", (YAML,), partial(_in_yaml, name))
    for name in ("*/ int evil; /*", "*/"):
        yield Case(f"C of {name!r}", (COMMENT,), partial(_in_c, name))
    for name in ("net\x1b]0;evil\x07", "net\u202eevil"):
        yield Case(f"a package of {name!r}", (FIELD,), partial(_in_control, name))
    for name in ("x\nExecStart=/bin/evil", "x %h", 'x" y'):
        yield Case(f"a unit in /srv/{name!r}", (PATH,), partial(_in_unit, name))


def _in_yaml(name: str, h: Host) -> None:
    info = TensorInfo("x", (1, 8, 8, 3), "|u1")
    picture = frigate.DetectorInput(name, info, bind(info), (8, 8))

    def attack() -> None:
        loaded = yaml.safe_load(frigate._configuration(picture, "cpu", "ssd"))
        if loaded["model"]["path"] == f"{frigate.PLACE}/{name}/cpu.tflite":
            raise _kept(name)

    _refused_only(attack)


def _in_c(name: str, h: Host) -> None:
    tensors = {"x": TensorType((1,))}
    segment = SegmentEntry("s", "cpu", ("x",), ("x",), 0, 1, ())
    text = ModelTable(
        name, tensors, [segment], ("x",), ("x",), b"", 1, (), "0" * 64
    ).source()
    if re.fullmatch(r"/\*((?!\*/|/\*).)*\*/", text.splitlines()[0]):
        raise _kept(name)


def _in_control(name: str, h: Host) -> None:
    program = h.root.parent.parent / "program"
    program.write_bytes(h.files.evil)
    manifest, files = tiny_model.parts(programs={machine_target(): program})
    manifest["name"] = name
    path = h.root.parent.parent / "named.edgec"
    write(path, manifest, files)
    control = untar(members(package(path, app="net").data)["control.tar.gz"])
    if all(line.isprintable() for line in control["./control"][1].decode().split("\n")):
        raise _kept(name)


def _in_unit(name: str, h: Host) -> None:
    assert unit_name("app")
    _refused_only(
        lambda: unit_text("app", f"/srv/{name}", ["/srv/main"], "/etc/default/app")
    )


# ---- folders, cascades, the cache, the interpreter
# --------------------------------------------------------------------------------------


def _bundle(h: Host) -> Path:
    manifest, files = tiny_model.parts()
    manifest["segments"][1]["tflite"] = "segments/relu.tflite"
    files["segments/relu.tflite"] = b"no real file"
    path = h.root.parent.parent / "tiny.edgec"
    write(path, manifest, files)
    return path


def _half_exported(h: Host) -> None:
    """The bundle has a .tflite, but no C. The first folder is no rest of a failure."""
    path = _bundle(h)
    first = h.root.parent.parent / "first"
    try:
        export(path, {"tflite": first, "c": h.root.parent.parent / "second"})
    except InputError:
        if not first.exists():
            raise


def _network(field: str, h: Host) -> None:
    """A cascade for one board, with networks for another."""
    folder = h.root.parent.parent / "cascade"
    folder.mkdir(exist_ok=True)
    inner = _bundle(h)
    cascade = read_cascade(objects.write(folder)).cascade()
    with Bundle.open(inner) as bundle:
        fields = bundle.manifest_fields()
        row = replace(bundle.manifest, cascade=cascade).to_json()["cascade"]
    # Of a cascade all of this is in its networks.
    fields.update({key: [] for key in ("inputs", "outputs", "segments", "state")})
    fields.update({key: {} for key in ("tensors", "preprocess", "libraries")})
    fields.update({"labels": None, "graph": "", "cascade": row, field: "pi5"})
    networks = {one.path: inner.read_bytes() for one in cascade.networks}
    write(folder / "x.edgec", fields, networks)
    with Bundle.open(folder / "x.edgec") as made:
        made.network(cascade.networks[0].name)


def _cache(name: str, h: Host) -> None:
    theirs = h.root.parent.parent / "theirs"
    theirs.mkdir(exist_ok=True)
    theirs.chmod(0o777)
    place = theirs
    if name == "a link to another folder":
        place = h.root.parent.parent / "link"
        place.unlink(missing_ok=True)
        place.symlink_to(theirs)
    try:
        with mock.patch.dict(os.environ, {"EDGEC_CACHE": str(place)}):
            cache_dir("files")
    except EdgecError as e:
        # A hint that deletes would be worse than the attack.
        if "rm " not in str(e.hint):
            raise


def _tensor(number: Any, h: Host) -> None:
    path = h.root.parent.parent / "code.edgec"
    write(path, *tiny_model.parts(tiny_model.build_library(path.parent)))
    cache = {"EDGEC_CACHE": str(path.with_name("cache"))}
    with mock.patch.dict(os.environ, cache):
        interpreter = Interpreter(path)
    interpreter.allocate_tensors()
    _refused_only(lambda: interpreter.get_tensor(number))


def _input_memory(h: Host) -> None:
    with Bundle.open(_bundle(h)) as bundle:
        (name,) = bundle.manifest.inputs
        photo = np.zeros((8, 8, 3), np.uint8)
        out = {name: np.zeros(3, np.uint8)}
        _refused_only(lambda: Vision(bundle).prepare(photo, out))


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
