"""What int8 costs on images with labels: the accuracy of the float and the int8 model on
1,000 images or more that neither was calibrated on.

    mnist8  the data folder's network, on its 2,000 digits but those that calibrate
    digits  the fixture network, on scikit-learn's digits but those that calibrate (it was
            trained on most of them, which serves float and int8 alike)

    python -m benchmarks.accuracy_labels [--ways best,fast]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.accuracy_rows import COMPILE, WORK, bundle_outputs, run
from benchmarks.data_folder import ROOT, SHARED, model_file
from benchmarks.tables import markdown, names
from edgec.ir import Array

ALLOWED = 0.3
"""Points of accuracy that int8 may lose."""
CALIBRATION_IMAGES = 64


@dataclass(frozen=True)
class LabelledImages:
    """A network and its images.

    Attributes:
        model: the network's file
        calibrate: images to calibrate with, float32 [N, 1, H, W]
        images: images to judge by, float32 [N, 1, H, W]
        labels: their classes, int64 [N]
    """

    model: Path
    calibrate: Array
    images: Array
    labels: Array


@dataclass(frozen=True)
class Score:
    """How many images a network classifies correctly.

    Attributes:
        name: the set of images
        way: the recipe
        images: the number of images
        floats: the correct ones of the float model
        int8: the correct ones of the int8 model
    """

    name: str
    way: str
    images: int
    floats: int
    int8: int

    @property
    def lost(self) -> float:
        """The points of accuracy that int8 loses."""
        return 100 * (self.floats - self.int8) / self.images


def mnist8() -> LabelledImages:
    """Return the data folder's digits in an order drawn by a seed."""
    with np.load(SHARED / "data" / "mnist_2000.npz") as data:
        images = data["images"][:, None].astype(np.float32)
        labels = data["labels"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(images))
    calibrate, test = np.split(order, [CALIBRATION_IMAGES])
    model = model_file("mnist8")
    return LabelledImages(model, images[calibrate], images[test], labels[test])


def digits() -> LabelledImages:
    """Return scikit-learn's digits, enlarged as fixtures/digits/make.py does."""
    from sklearn.datasets import load_digits

    data = load_digits()
    enlarged = []
    for image in data.images:
        picture = Image.fromarray((image / 16 * 255).round().astype(np.uint8))
        enlarged.append(np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR)))
    images = np.stack(enlarged)[:, None].astype(np.float32) / np.float32(255)
    folder = ROOT / "fixtures" / "digits"
    with np.load(folder / "digits_calibration.npz") as arrays:
        calibrate = arrays["input"]
    is_test = np.array([not np.any(np.all(calibrate == x, (1, 2, 3))) for x in images])
    labels = data.target.astype(np.int64)
    model = folder / "digits.onnx"
    return LabelledImages(model, calibrate, images[is_test], labels[is_test])


SETS: Mapping[str, Callable[[], LabelledImages]] = {"mnist8": mnist8, "digits": digits}


def scores(name: str, ways: Sequence[str], folder: Path) -> Iterator[Score]:
    """Yield the score of a set for each recipe; raise RuntimeError if a compile fails."""
    data = SETS[name]()
    calibrate = folder / f"{name}-calibrate.npz"
    np.savez(calibrate, x=data.calibrate[:, None])
    floats = _correct(data, folder / f"{name}-float.edgec", "--allow-float")
    for way in ways:
        bundle = folder / f"{name}-{way}.edgec"
        int8 = _correct(data, bundle, "--calibrate", calibrate, "--quantize", way)
        yield Score(name, way, len(data.labels), floats, int8)


def _correct(data: LabelledImages, bundle: Path, *options: str | Path) -> int:
    """Compile the network, and return how many images it classifies correctly."""
    run(*COMPILE, data.model, "-o", bundle, *options)
    outputs = bundle_outputs(bundle, data.images[:, None])
    classes = [int(np.argmax(y[0])) for y in outputs]
    return int(np.sum(np.array(classes) == data.labels))


def table(ways: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    WORK.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in SETS:
        for score in scores(name, ways, WORK):
            accuracies = [100 * n / score.images for n in (score.floats, score.int8)]
            figures = (*(f"{a:.2f}" for a in accuracies), f"{score.lost:+.2f}", ALLOWED)
            rows.append((name, score.way, score.images, *figures))
    heads = (
        "labels",
        "way",
        "images",
        "float, %",
        "int8, %",
        "lost, points",
        "at most",
    )
    yield from markdown(heads, rows, texts=2)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ways", type=names, default=["best", "fast"])
    print("\n".join(table(parser.parse_args().ways)))


if __name__ == "__main__":
    main()
