"""An environment of its own for each peer of a table: made by pip from the configured
index, once, under build/.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 1800

REQUIREMENTS: Mapping[str, Sequence[str]] = {
    "onnxruntime": ("onnxruntime==1.32.0", "onnx==1.23.2"),
    "aimet": ("aimet-onnx==2.42.0", "onnxruntime==1.32.0", "torch==2.13.0"),
    "esp-ppq": ("esp-ppq==1.3.12", "onnxruntime==1.32.0", "torch==2.13.0"),
    "tf2onnx": (
        "tf2onnx==1.17.0",
        "tensorflow-cpu==2.21.0",
    ),  # for peers that read no .tflite
    "published": ("ai-edge-litert==2.3.0", "numpy"),
}
"""What is compared, as of its writing: the peers' newest, and torch by a version that
wheels without CUDA exist of.
"""


def version(peer: str) -> str:
    """What the table says of it."""
    return REQUIREMENTS[peer][0].replace("==", " ")


def environment(peer: str, requirements: Sequence[str] | None = None) -> Path:
    """The Python of a peer's environment.

    Raises RuntimeError with pip's own reason when there is none to be had.
    """
    wanted = requirements or REQUIREMENTS[peer]
    folder = ROOT / "build" / f"venv-{peer}"
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    digest = sha256("\n".join(wanted).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return python
    _run(peer, sys.executable, "-m", "venv", folder)
    _run(peer, python, "-m", "pip", "install", "--quiet", *wanted)
    stamp.write_text(digest)
    return python


def _run(peer: str, *command: str | Path) -> None:
    try:
        done = subprocess.run(
            [str(c) for c in command], capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as e:
        raise RuntimeError(
            f"{peer} cannot be installed: no end after {LIMIT_S} s"
        ) from e
    if done.returncode:
        said = [
            s for s in done.stderr.splitlines() if s.startswith("ERROR")
        ] or done.stderr.splitlines()[-1:]
        raise RuntimeError(f"{peer} cannot be installed: {' '.join(said)[:200]}")
