"""What lies beside a model: task files, labels, anchors, found schedules; whole ones,
and their readers.
"""

from __future__ import annotations

import io
import json
import random
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.fuzzing.driver import FIXTURE, Call, guarded, verb
from benchmarks.fuzzing.mutations import flipped, regrown, retyped

_TASKS = (
    {
        "task": "classification",
        "labels": ["a", "b"],
        "preprocess": "0_1,gray",
        "top": 2,
    },
    {
        "format": "yolox",
        "threshold": 0.25,
        "iou": 0.5,
        "labels": "names.txt",
        "preprocess": "0_255,letterbox",
    },
    {
        "task": "detection",
        "order": "xyxy",
        "anchors": {"file": "a.csv"},
        "labels": "names.txt",
    },
    {"task": "detection", "anchors": {"strides": [8, 16, 32]}},
    {"task": "landmarks", "lines": [[0, 1], [1, 2]], "threshold": 0.5},
    {"task": "segmentation", "labels": ["background", "person"]},
    {"task": "pose"},
    {"task": "image"},
    {"task": "text-detection", "input_shapes": {"x": [1, 3, 32, 32]}, "unclip": 1.6},
    {"task": "text-recognition", "labels": ["a", "b"], "blank": 0},
    {"format": "iris", "count": 3},
)
_TOML = b"""format = "yolox"
threshold = 0.25
labels = "names.txt"
preprocess = "0_255,letterbox"
[anchors]
file = "a.npy"
"""


@cache
def besides() -> list[bytes]:
    """Return JSON, TOML, .npy, rows of numbers and lines of text."""
    from edgec.schedule.database import SHIPPED

    anchors = io.BytesIO()
    np.save(anchors, np.full((3, 4), 0.5, np.float32))
    found = json.loads((SHIPPED / "cortex_a53.json").read_text())
    found["cores"] = {"x86_64_v3": dict(list(found["cores"]["cortex_a53"].items())[:3])}
    rows = b"0.5,0.5,1,1\n0.25,0.5,1,2\n"
    tasks = [json.dumps(t).encode() for t in _TASKS]
    return [
        *tasks,
        _TOML,
        _TOML,
        anchors.getvalue(),
        rows,
        b"cat\ndog\n",
        *[json.dumps(found).encode()] * 3,
    ]


def damaged_beside(rng: random.Random, data: bytes) -> bytes:
    """Return the damaged content of a file that lies beside a model."""
    if data.startswith(b"{") and rng.random() < 0.7:
        return json.dumps(regrown(rng, json.loads(data))).encode()
    return flipped(rng, data) if data.startswith(b"\x93") else retyped(rng, data)


def read_beside(rng: random.Random, data: bytes, folder: Path) -> Call:
    """Read it by the function for it, or sometimes by a whole compile."""
    from edgec.compiler.tuning_databases import TuningDatabases
    from edgec.frontends.task_file import task_file

    whole = {
        ".csv": b"0.5,0.5,1,1\n",
        ".txt": b"cat\ndog\n",
        ".npy": besides()[len(_TASKS) + 2],
    }
    for suffix, name in ((".csv", "a.csv"), (".txt", "names.txt"), (".npy", "a.npy")):
        (folder / name).write_bytes(whole[suffix])
    compiled = rng.random() < 0.05
    out = ("--cc", "gcc", "--allow-float", "-o", folder / "m.edgec")
    if b"edgec-tune" in data:
        (folder / "tuned.json").write_bytes(data)
        if compiled:
            return verb("compile", FIXTURE, *out, "--tuned", folder / "tuned.json")
        return guarded(lambda: TuningDatabases.of(str(folder / "tuned.json")))
    names = {
        b"{": "m.edgec-task.json",
        b"f": "m.edgec-task.toml",
        b"\x93": "a.npy",
        b"0": "a.csv",
    }
    name = names.get(data[:1], "names.txt")
    (folder / name).write_bytes(data)
    if name in ("a.npy", "a.csv"):
        (folder / "m.edgec-task.json").write_text(
            json.dumps({"task": "detection", "anchors": {"file": name}})
        )
    if name == "names.txt":
        (folder / "m.edgec-task.json").write_bytes(json.dumps(_TASKS[1]).encode())
    if compiled:
        task = next(folder.glob("m.edgec-task.*"))
        return verb("compile", FIXTURE, *out, "--task", task)
    return guarded(lambda: task_file(folder / "m.onnx"))
