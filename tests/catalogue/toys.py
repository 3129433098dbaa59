"""A catalogue of two files, and an index with their wheel, in folders of a test."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgec.catalogue import entries
from edgec.emit.tflite import write_tflite
from edgec.ir import Builder, TensorType
from edgec.ops.unary import Relu

WHEEL = "toy_nets-1.5-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl"
MODEL = "toy_nets/models/net.tflite"
PHOTO = "toy_nets/data/photo.png"


def network() -> bytes:
    """A network whose output is its input of 4 x 4 pixels."""
    build = Builder("net")
    x = build.input("x", TensorType((1, 4, 4, 3)))
    build.graph.outputs = [build.add(Relu(), [x], "y")]
    return write_tflite(build.graph)


def photo() -> bytes:
    """A picture that no compressor makes small."""
    pixels = np.random.default_rng(0).integers(0, 256, (400, 400, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


@dataclass
class Toys:
    """Attributes: the folder of the catalogue, and the folder that pip takes for the
    index; the files of the wheel; what the catalogue says in place of the truth.
    """

    catalogue: Path
    index: Path
    files: dict[str, bytes] = field(
        default_factory=lambda: {MODEL: network(), PHOTO: photo()}
    )
    said: dict[str, str] = field(default_factory=dict)

    def write(self) -> None:
        """The wheel and the rows."""
        wheel = self._wheel()
        path = self.index / WHEEL
        path.write_bytes(wheel)
        hashes = {
            "wheel": hashlib.sha256(wheel).hexdigest(),
            MODEL: hashlib.sha256(self.files[MODEL]).hexdigest(),
            PHOTO: hashlib.sha256(self.files[PHOTO]).hexdigest(),
            **self.said,
        }
        (self.catalogue / "toy.toml").write_text(f"""
[wheel]
name = "{WHEEL}"
sha256 = "{hashes["wheel"]}"
bytes = {len(wheel)}
license = "MIT"
license_text = "LICENSE"

[[entries]]
name = "toy"
path = "{self.said.get("path", MODEL)}"
sha256 = "{hashes[MODEL]}"
purpose = "a picture"
macs = 1
task = {{ format = "style", preprocess = "0_255,bgr" }}

[[entries]]
name = "toy-photo"
kind = "photo"
path = "{PHOTO}"
sha256 = "{hashes[PHOTO]}"
purpose = "noise"
license = "CC0-1.0"
""")
        entries.catalogue.cache_clear()
        entries.ready_cascades.cache_clear()

    def _wheel(self) -> bytes:
        info = "toy_nets-1.5.dist-info"
        files = {
            **self.files,
            f"{info}/METADATA": b"Metadata-Version: 2.1\nName: toy-nets\nVersion: 1.5\n"
            b"Requires-Dist: nowhere-to-be-seen\n",
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n",
            f"{info}/RECORD": b"",
        }
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for path, data in files.items():
                archive.writestr(path, data)
        return made.getvalue()


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toys]:
    """The only catalogue and the only index, an empty cache and a folder for temporary
    files.
    """
    made = Toys(tmp_path / "catalogue", tmp_path / "index")
    for folder in (made.catalogue, made.index, tmp_path / "tmp"):
        folder.mkdir()
    monkeypatch.setattr(entries, "FOLDER", made.catalogue)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.index))
    made.write()
    yield made
    entries.catalogue.cache_clear()
    entries.ready_cascades.cache_clear()
