"""What other runtimes take for an ONNX file on a board's core: ncnn, MNN and
onnxruntime, each as a person has it from the package index, under armlab's `picycles`.

ncnn computes in float16 by itself on cores that can; its float32 is a peer of its own.
MNN does so with `precision: low`. The arm64 wheels are of `armlab/setup.sh user peers`;
converters run on this machine, in environments of their own below build/.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks.peer_env import environment
from benchmarks.picycles import LAB, Picycles

GUESTS = Path(__file__).parent / "arm_guests"
PNNX = ("--no-deps", "pnnx==20261020")
"""Its program needs no torch, which the package asks for."""
MNN = ("MNN==3.6.1", "numpy<3")
LIMIT_S = 900


@dataclass(frozen=True)
class Peer:
    """A runtime.

    Attributes:
        site: its wheels, of armlab/setup.sh.
        command: returns the guest's program and words for a model, in a folder for what
            it is converted to; raises CalledProcessError where that is refused.
    """

    site: str
    command: Callable[[Path, Path], Sequence[str | Path]]


def _shape(model: Path) -> str:
    """Of the only input: 1x3x224x224."""
    (value,) = onnx.load(model, load_external_data=False).graph.input
    return "x".join(str(d.dim_value) for d in value.type.tensor_type.shape.dim)


def _onnxruntime(model: Path, folder: Path) -> Sequence[str | Path]:
    return [GUESTS / "run_onnxruntime.py", model]


def _ncnn(model: Path, folder: Path) -> Sequence[str | Path]:
    copy = folder / "model.onnx"
    shutil.copy(model, copy)
    python = environment("pnnx", PNNX)
    (program,) = python.parents[1].glob("lib/python*/site-packages/pnnx/pnnx")
    program.chmod(0o700)
    _run([program, copy.name], folder)
    return [LAB / "guest_ncnn.py", folder / "model", _shape(model)]


def _ncnn_f32(model: Path, folder: Path) -> Sequence[str | Path]:
    return [*_ncnn(model, folder), "0"]


def _mnn(model: Path, folder: Path) -> Sequence[str | Path]:
    # The package's own script of this name installs a program that reports its use.
    python = environment("mnn", MNN)
    words = ["mnnconvert", "-f", "ONNX", "--modelFile", str(model)]
    words += ["--MNNModel", "model.mnn", "--bizCode", "edgec"]
    _run([python, "-c", f"import _tools; _tools.mnnconvert({words!r})"], folder)
    return [GUESTS / "run_mnn.py", folder / "model.mnn", _shape(model)]


def _mnn_low(model: Path, folder: Path) -> Sequence[str | Path]:
    return [*_mnn(model, folder), "low"]


def _run(command: Sequence[str | Path], folder: Path) -> None:
    subprocess.run(
        command, cwd=folder, check=True, capture_output=True, timeout=LIMIT_S
    )


PEERS: Mapping[str, Peer] = {
    "ncnn": Peer("ncnn", _ncnn),
    "ncnn f32": Peer("ncnn", _ncnn_f32),
    "MNN": Peer("mnn", _mnn),
    "MNN low": Peer("mnn", _mnn_low),
    "onnxruntime": Peer("ort", _onnxruntime),
}


def cycles(tool: Picycles, peer: Peer, model: Path, board: str) -> float | None:
    """Of one inference; None where the peer is not there, or refuses the model."""
    with tempfile.TemporaryDirectory(prefix="edgec-") as name:
        try:
            command = peer.command(model, Path(name))
        except (subprocess.SubprocessError, RuntimeError):
            return None
        return tool.guest(board, peer.site, command)


def digest(peer: str) -> str:
    """Of the peer's programs here: what is remembered of another one is forgotten."""
    texts = [Path(__file__).read_bytes(), peer.encode()]
    texts += [path.read_bytes() for path in sorted(GUESTS.glob("*.py"))]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()
