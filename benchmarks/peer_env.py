"""A Python environment under build/ for each peer of a table, made once by pip from the
configured index.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.data_folder import BUILD

LIMIT_S = 1800
REQUIREMENTS: Mapping[str, Sequence[str]] = {
    "onnxruntime": ("onnxruntime==1.32.0", "onnx==1.23.2"),
    "aimet": ("aimet-onnx==2.42.0", "onnxruntime==1.32.0", "torch==2.13.0"),
    "esp-ppq": ("esp-ppq==1.3.12", "onnxruntime==1.32.0", "torch==2.13.0"),
    "tf2onnx": ("tf2onnx==1.17.0", "tensorflow-cpu==2.21.0"),
}
"""The newest versions of the peers; of torch one that has wheels without CUDA."""


def version(peer: str) -> str:
    """Return a peer's name with its version."""
    return REQUIREMENTS[peer][0].replace("==", " ")


def environment(peer: str, requirements: Sequence[str] | None = None) -> Path:
    """Return the Python of a peer's environment.

    Raises RuntimeError with pip's reason if it cannot be made.
    """
    packages = requirements or REQUIREMENTS[peer]
    folder = BUILD / f"venv-{peer}"
    python = folder / "bin" / "python"
    installed = folder / "installed.txt"
    text = "\n".join(packages)
    if not installed.exists() or installed.read_text() != text:
        _run(peer, sys.executable, "-m", "venv", folder)
        _run(peer, python, "-m", "pip", "install", "--quiet", *packages)
        installed.write_text(text)
    return python


def _run(peer: str, *command: str | Path) -> None:
    words = [str(word) for word in command]
    try:
        process = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as e:
        reason = f"no end after {LIMIT_S} s"
        raise RuntimeError(f"{peer} cannot be installed: {reason}") from e
    if process.returncode:
        lines = process.stderr.splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        raise RuntimeError(f"{peer} cannot be installed: {' '.join(errors)[:200]}")
