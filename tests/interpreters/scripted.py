"""The two scripts, with nothing changed but their imports and the files they are given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.interpreters import networks

SCRIPTS = Path(__file__).parent / "scripts"
NEW_IMPORTS = {
    "tflite_runtime": "edgec_runtime",
    "pycoral": "edgec_runtime.coral",
}


def ported(name: str, new: str | None = None) -> str:
    """The text of a script whose imports alone are changed, and it imports ours.

    new: the package to import in place of it.
    """
    text = (SCRIPTS / name).read_text()
    lines = []
    for line in text.splitlines():
        for old, ours in NEW_IMPORTS.items():
            if line.startswith(f"from {old}."):
                line = line.replace(old, new or ours, 1)
        lines.append(line)
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Given:
    """A folder with the scripts, their bundles and data; and the same as files of
    TFLite.
    """

    folder: Path

    TFLITE = ("classify_tflite.py", "classifier.edgec", "pictures.npy")
    CORAL = (
        "detect_coral.py",
        "heads.edgec",
        "classifier.edgec",
        "labels.txt",
        "picture.npy",
    )


def prepared(folder: Path, target: str) -> Given:
    """Fill a folder."""
    rng = np.random.default_rng(11)
    for name in ("classifier", "heads"):
        model, bundle = networks.compiled(name, target)
        for path in (model, bundle):
            (folder / path.name).write_bytes(path.read_bytes())
    np.save(folder / "pictures.npy", rng.integers(0, 256, (4, 16, 16, 3), np.uint8))
    np.save(folder / "picture.npy", rng.integers(0, 256, (30, 48, 3), np.uint8))
    (folder / "labels.txt").write_text("0 ant\n1:bee\n2  cat\n3 dog\n4 emu\n")
    for name in ("classify_tflite.py", "detect_coral.py"):
        (folder / name).write_text(ported(name))
    return Given(folder)
