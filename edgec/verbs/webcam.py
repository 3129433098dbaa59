"""`webcam`: a live picture through a bundle, on a page of this machine, or without one
and as figures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from edgec_devices.device import TIMEOUT_S
from edgec_devices.showing import MAX_PICTURE_BYTES, show_on
from edgec_devices.temporary import temporary_folder
from edgec_runtime.device_end.disk import given
from edgec_runtime.session.meters import StreamFigures
from edgec_runtime.vision.tasks.segmentation import Segments
from edgec_runtime.webcam import LOOPBACK, PORT
from edgec_runtime.webcam.effects import OVERLAY
from edgec_runtime.webcam.playing import play
from edgec_runtime.webcam.show import Show, ShownFrame
from edgec_runtime.webcam.sources import Source, clip, open_source
from PIL import Image

from edgec.compiler.compile import compile_model
from edgec.compiler.options import CompileOptions
from edgec.errors import InputError
from edgec.verbs.demo import fixtures


@dataclass(frozen=True)
class WebcamRequest:
    """What to show, and where. bundles: the first is on at the start; the page switches
    to the others. source: default, the first camera. effect: see docs/webcam.md.
    smooth: results over time. display: a page at host and port; without, a file is read
    once and as fast as it goes. frames: after so many it ends. out: a folder for what
    was shown. virtual_camera: the V4L2 output that shows it as a camera. on: the URL of
    the device where it runs, with what --source and --virtual-camera name there; the
    page is here. timeout: seconds for which nothing may move on the way.
    """

    bundles: Sequence[Path] = ()
    source: str | None = None
    effect: str = OVERLAY
    smooth: bool = True
    display: bool = True
    host: str = LOOPBACK
    port: int = PORT
    frames: int | None = None
    demo: bool = False
    out: Path | None = None
    virtual_camera: str | None = None
    on: str | None = None
    timeout: float = TIMEOUT_S

    def check(self) -> None:
        """Raise InputError for what contradicts itself."""
        if self.demo and (self.bundles or self.source is not None):
            raise InputError(
                "--demo has a bundle and a clip of its own",
                hint="leave out BUNDLE and --source, or --demo",
            )
        if not self.demo and not self.bundles:
            raise InputError(
                "no bundle to show",
                hint="edgec webcam net.edgec, or edgec webcam --demo",
            )
        own = {
            "--demo": self.demo,
            "--out": self.out is not None,
            "--host": self.host != LOOPBACK,
        }
        if self.on is not None and any(own.values()):
            here = next(name for name, there in own.items() if there)
            raise InputError(
                f"{here} is for this machine, and --on for another",
                hint=f"leave out {here}, or --on",
            )
        if self.frames is not None and self.frames < 1:
            raise InputError(
                f"--frames {self.frames} shows nothing", hint="give 1 or more"
            )
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise InputError(
                f"{self.out} is no folder",
                "--out",
                "give a folder, or a name that is free",
            )


@dataclass(frozen=True)
class WebcamResult:
    """What was shown. found: of the last frame, as the task's result says it."""

    figures: StreamFigures
    lines: Sequence[str]
    found: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {**self.figures.as_dict(), "result": dict(self.found)}

    def text(self) -> str:
        """For a terminal."""
        f = self.figures
        if f.latency:
            late = f"latency {f.latency.p50:.1f} ms (p95 {f.latency.p95:.1f})"
        else:
            late = "no latency"
        rows = [
            f"{f.delivered} frames, {f.dropped} dropped, {f.fps:.1f} frames/s, {late}"
        ]
        for s in f.stages:
            on = f"  on {', '.join(s.backends)}" if s.backends else ""
            rows += (
                [f"  {s.name:12} {s.ms.p50:8.2f} ms  (p95 {s.ms.p95:.2f}){on}"]
                if s.ms
                else []
            )
        return "\n".join([*rows, *self.lines])


def run_webcam(wanted: WebcamRequest, say: Callable[[str], None]) -> WebcamResult:
    """Show until the source ends, so many frames were shown, or Ctrl-C. say: gets the
    page's address.
    """
    wanted.check()
    if wanted.on is not None:
        return _on_device(wanted, wanted.on, say)
    with _what(wanted) as (source, bundles):
        watched = wanted.display or wanted.virtual_camera is not None
        show = Show(source, bundles, wanted.effect, wanted.smooth, watched, watched)
        page = (wanted.host, wanted.port) if wanted.display else None
        keep = partial(_keep, wanted.out) if wanted.out is not None else None
        told = lambda url: say(f"watch at {url} (Ctrl-C ends it)")  # noqa: E731
        figures = play(show, page, wanted.frames, told, keep, wanted.virtual_camera)
    return WebcamResult(figures, *show.found())


def _on_device(
    wanted: WebcamRequest, url: str, say: Callable[[str], None]
) -> WebcamResult:
    fields = {
        name: getattr(wanted, name)
        for name in ("source", "effect", "smooth", "frames", "virtual_camera")
    }
    how, _, path = wanted.effect.partition("=")
    background = b""
    if how == "replace" and path:
        try:
            background = given(Path(path), MAX_PICTURE_BYTES)
        except OSError as e:
            raise InputError(
                f"cannot read {path}: {e.strerror}",
                "--effect",
                "give a photo of this machine",
            ) from e
    port = wanted.port if wanted.display else None
    told = show_on(url, wanted.bundles, fields, background, port, say, wanted.timeout)
    assert told.figures is not None
    return WebcamResult(told.figures, told.lines, told.result)


def _keep(folder: Path, shown: ShownFrame) -> None:
    """The picture, its result as JSON, and of a segmentation the mask (255, or the
    class of each pixel).
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{shown.number:05}"
    Image.fromarray(shown.after).save(place.with_suffix(".png"), compress_level=1)
    place.with_suffix(".json").write_text(
        json.dumps(shown.result.to_json(), indent=1) + "\n"
    )
    found = shown.result
    if isinstance(found, Segments):
        if found.classes is None:
            mask = found.within().astype(np.uint8) * 255
        else:
            mask = found.classes_of_frame()
        Image.fromarray(mask).save(place.with_suffix(".mask.png"))


@contextmanager
def _what(wanted: WebcamRequest) -> Iterator[tuple[Source, Mapping[str, str]]]:
    """The source, and bundles by the names that the page has for them."""
    if not wanted.demo:
        names = [p.stem for p in wanted.bundles]
        named = {
            p.stem if names.count(p.stem) == 1 else str(p): str(p)
            for p in wanted.bundles
        }
        yield open_source(wanted.source), named
        return
    with temporary_folder("webcam") as folder:
        bundle = folder / "cartoon.edgec"
        made = fixtures()
        options = CompileOptions(output=bundle, preprocess="0_1", task="image")
        compile_model(made / "cartoon" / "cartoon.onnx", options)
        yield clip(sorted((made / "photos").glob("*.jpg"))), {"cartoon": str(bundle)}
