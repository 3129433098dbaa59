"""What int8 costs on data with labels: the accuracy of float and int8 on 1,000 images
or more that none calibrated on.

mnist     a convolution net trained here on half of the data folder's 2,000 digits, on the other half
mnist8    the data folder's own network for them, on all but those that calibrate
digits    the fixture network, on scikit-learn's digits but those that it was calibrated on (it was trained on
          most of them, which float and int8 have in common)

python -m benchmarks.accuracy_labels [--ways best,fast]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edgec_runtime import Bundle, Session
from PIL import Image

from benchmarks.accuracy_rows import COMPILE, ROOT, SHARED, WORK, child
from benchmarks.small_net import train
from edgec.ir import Array

ALLOWED = 0.3
"""Points of accuracy that int8 may lose."""
CALIBRATE = 64


@dataclass(frozen=True)
class Labelled:
    """A network, samples to calibrate with [n, …] and others to judge on with their
    classes [n].
    """

    model: Path
    calibrate: Array
    x: Array
    y: Array


@dataclass(frozen=True)
class Scored:
    """Images; how many of them are right."""

    name: str
    way: str
    images: int
    floats: int
    int8: int

    @property
    def lost(self) -> float:
        """Points."""
        return 100 * (self.floats - self.int8) / self.images


# ---- data
# --------------------------------------------------------------------------------------


def mnist(folder: Path) -> Labelled:
    """Needs the data folder; trains for some seconds."""
    x, y = _mnist()
    x = x / np.float32(255)
    half = len(x) // 2
    train(x[:half], y[:half], folder / "mnist.onnx")
    return Labelled(folder / "mnist.onnx", x[:CALIBRATE], x[half:], y[half:])


def mnist8(folder: Path) -> Labelled:
    """Needs the data folder."""
    x, y = _mnist()
    return Labelled(
        SHARED / "models" / "mnist8" / "mnist8.onnx",
        x[:CALIBRATE],
        x[CALIBRATE:],
        y[CALIBRATE:],
    )


def digits(folder: Path) -> Labelled:
    """Needs scikit-learn.

    Enlarged as the fixture network was trained (fixtures/digits/make.py).
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    pixels = [
        Image.fromarray((i / 16 * 255).round().astype(np.uint8)) for i in data.images
    ]
    large = np.stack(
        [np.asarray(p.resize((32, 32), Image.Resampling.BILINEAR)) for p in pixels]
    )[:, None]
    x = large.astype(np.float32) / np.float32(255)
    y = data.target.astype(np.int64)
    fixtures = ROOT / "fixtures" / "digits"
    with np.load(fixtures / "digits_calibration.npz") as kept:
        seen = kept["input"]
    other = np.array([not np.any(np.all(seen == one, (1, 2, 3))) for one in x])
    return Labelled(fixtures / "digits.onnx", seen, x[other], y[other])


def _mnist() -> tuple[Array, Array]:
    """0..255, in an order drawn by a seed."""
    with np.load(SHARED / "data" / "mnist_2000.npz") as data:
        images = data["images"]
        labels = data["labels"]
    order = np.random.default_rng(0).permutation(len(images))
    return images[order][:, None].astype(np.float32), labels[order].astype(np.int64)


SETS: Mapping[str, Callable[[Path], Labelled]] = {
    "mnist": mnist,
    "mnist8": mnist8,
    "digits": digits,
}


# ---- judging
# --------------------------------------------------------------------------------------


def scored(name: str, ways: Sequence[str], folder: Path) -> Iterator[Scored]:
    """A set by each way. Raises RuntimeError when a compile fails."""
    data = SETS[name](folder)
    calibrate = folder / f"{name}-calibrate.npz"
    np.savez(
        calibrate,
        x=data.calibrate[:, None]
        if data.calibrate.ndim == data.x.ndim
        else data.calibrate,
    )
    floats = _right(data, folder / f"{name}-float.edgec", "--allow-float")
    for way in ways:
        made = folder / f"{name}-{way}.edgec"
        right = _right(data, made, "--calibrate", calibrate, "--quantize", way)
        yield Scored(name, way, len(data.y), floats, right)


def _right(data: Labelled, bundle: Path, *options: str | Path) -> int:
    child(*COMPILE, data.model, "-q", "-o", bundle, *options)
    with Bundle.open(bundle) as opened, Session(opened) as session:
        (name,) = opened.manifest.inputs
        results = (next(iter(session.run({name: x[None]}).values())) for x in data.x)
        return sum(int(np.argmax(r)) == y for r, y in zip(results, data.y, strict=True))


def table(ways: Sequence[str], folder: Path = WORK) -> Iterator[str]:
    """Markdown, line by line as it is found."""
    folder.mkdir(parents=True, exist_ok=True)
    yield "| labels | images | float, % | way | int8, % | lost, points | at most |"
    yield "| --- | --: | --: | --- | --: | --: | --: |"
    for name in SETS:
        try:
            for row in scored(name, ways, folder):
                first = f"{row.images} | {100 * row.floats / row.images:.2f}"
                second = (
                    f"{100 * row.int8 / row.images:.2f} | {row.lost:+.2f} | {ALLOWED}"
                )
                yield f"| {name} | {first} | {row.way} | {second} |"
        except (RuntimeError, OSError, ImportError) as e:
            yield f"| {name} | | | | | | failed: {e} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ways", default="best,fast")
    for line in table(parser.parse_args().ways.split(",")):
        print(line, flush=True)


if __name__ == "__main__":
    main()
