"""What this process has: memory, descriptors, threads, children; and a bundle of the
tiny model to have them with.
"""

from __future__ import annotations

import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime import write_bundle

from tests.runtime import tiny_model
from tests.runtime.tiny_tflite import relu_tflite

IN_FLIGHT = 8  # frames of the tiny model, at most: one for each stage
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Resources:
    """megabytes: resident."""

    megabytes: float
    descriptors: int
    threads: int
    children: int

    @classmethod
    def now(cls) -> Resources:
        """After a collection."""
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return cls(
            resident / 1e6,
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            len(children),
        )

    def beyond(
        self, before: Resources, frames: int = 0, megabytes: float = 1.0
    ) -> list[str]:
        """What there is more of than before.  frames: so many may have been added, each
        with a descriptor.
        """
        found = []
        if self.megabytes - before.megabytes > megabytes:
            found.append(
                f"memory grew from {before.megabytes:.1f} to {self.megabytes:.1f} MB"
            )
        for name, more in (("descriptors", frames), ("threads", 0), ("children", 0)):
            was = getattr(before, name)
            now = getattr(self, name)
            if now > was + more:
                found.append(f"{name} grew from {was} to {now}")
        return found


def tiny_bundle(folder: Path) -> Path:
    """The tiny model for this machine, with its Edge TPU segment "compiled"."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest, files = tiny_model.parts(tiny_model.build_library(folder))
    manifest["segments"][1]["tflite"] = "segments/relu.tflite"
    manifest["segments"][1]["edgetpu"] = "segments/relu_edgetpu.tflite"
    files["segments/relu.tflite"] = files["segments/relu_edgetpu.tflite"] = (
        relu_tflite()
    )
    path = folder / "tiny.edgec"
    write_bundle(path, manifest, files)
    return path


def stick_bundle(folder: Path, shape: tuple[int, ...] = tiny_model.SHAPE) -> Path:
    """Its Edge TPU segment alone.  shape: of its tensors; the C twin is for
    tiny_model.SHAPE.
    """
    manifest = tiny_model.manifest()
    manifest.update(
        inputs=["q"], outputs=["r"], preprocess={}, segments=[manifest["segments"][1]]
    )
    manifest["tensors"] = {
        name: manifest["tensors"][name] | {"shape": list(shape)} for name in "qr"
    }
    library, files = tiny_model.parts(tiny_model.build_library(folder, manifest))
    manifest |= {key: library[key] for key in ("libraries", "weights")}
    manifest["segments"][0].update(
        edgetpu="segments/relu.tflite", tflite="segments/relu.tflite"
    )
    files["segments/relu.tflite"] = relu_tflite()
    path = folder / "stick.edgec"
    write_bundle(path, manifest, files)
    return path
