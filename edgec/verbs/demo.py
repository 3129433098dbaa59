"""`demo`: takes the cartoon network from a file to a picture on an emulated board.

Every step is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PIL import Image

from edgec.compiler.compile import compile_model
from edgec.compiler.samples import FIXTURES
from edgec.errors import InputError
from edgec.options.bench import BenchOptions
from edgec.options.compile import CompileOptions
from edgec.options.run import RunOptions
from edgec.report.bench.text import to_markdown
from edgec.report.explain.text import to_text
from edgec.verbs.bench import run_bench
from edgec.verbs.explain import report
from edgec.verbs.run import run_bundle

GAP_PIXELS = 8
"""The gap between the two pictures of before_after.png."""


def run_demo(
    target: str, out: Path, photo: Path | None, say: Callable[[str], None]
) -> None:
    """Compile for `target`, explain, run and time on that board emulated.

    out: the folder for the results.
    photo: the photo to run on; None: one of the fixtures.
    say: prints.
    """
    folder = fixtures()
    photo = photo or folder / "photos" / "astronaut.jpg"
    if not photo.is_file():
        raise InputError(f"no such photo: {photo}", hint="check the path")

    out.mkdir(parents=True, exist_ok=True)
    model = folder / "cartoon" / "cartoon.onnx"
    bundle = out / "cartoon.edgec"
    say(f"1. compile {model.name} for {target}, calibrated on {folder.name}/photos\n")
    # The fast recipe: a demo should not take a minute before it shows anything.
    options = CompileOptions(
        target,
        bundle,
        calibrate=folder / "photos",
        preprocess="0_1",
        quantize="fast",
    )
    compiled = compile_model(model, options)
    say(compiled.summary())

    say("\n2. what runs where, and why\n")
    lowered = compiled.network.lowered
    say(to_text(report(lowered)))

    device = f"emulated:{lowered.target.board.name}"
    after = out / "after.png"
    say(f"\n3. run it on {device}: the generated C, executed as that board's code\n")
    say(run_bundle(RunOptions(bundle, photo, device, output=after)).text())
    pictures = out / "before_after.png"
    _side_by_side(photo, after, pictures)

    say("\n4. latency, segment by segment (a board that is not there is estimated)\n")
    # Both stand on one page, and readers would compare them.
    say(
        "The CPU's segments are estimated by counting the instructions of their C; the "
        "estimate of 2. is\nby the mean rates of kernels, before there is any C.\n"
    )
    say(to_markdown(run_bench(BenchOptions(bundle, device))))
    say(f"\nbefore and after: {pictures}\nthe bundle: {bundle}")
    say("next: edgec webcam --demo")


def fixtures() -> Path:
    """Return the folder with the demo's network and photos.

    Raises InputError where it is not installed.
    """
    for place in FIXTURES:
        if (place / "cartoon" / "cartoon.onnx").is_file():
            return place

    raise InputError(
        "the demo's network is not installed",
        hint="run it from a checkout of edgec: make demo",
    )


def _side_by_side(before: Path, after: Path, path: Path) -> None:
    """Write both pictures as one, each at the size of the network's."""
    with Image.open(after) as right, Image.open(before) as photo:
        left = photo.convert("RGB").resize(right.size, Image.Resampling.BILINEAR)
        size = (2 * right.width + GAP_PIXELS, right.height)
        both = Image.new("RGB", size, "white")
        both.paste(left, (0, 0))
        both.paste(right.convert("RGB"), (right.width + GAP_PIXELS, 0))
    both.save(path)
