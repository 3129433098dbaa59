"""`webcam`: runs a bundle on a live picture.

The picture is on a page of this machine, or it is left out and figures remain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from edgec_devices.remote_show import (
    MAX_PICTURE_BYTES,
    MAX_POINTS_BYTES,
    EffectFiles,
    RemoteShow,
    show_on,
)
from edgec_runtime.device_end.disk import given
from edgec_runtime.session.meters import StreamFigures
from edgec_runtime.vision.tasks.segmentation import Segments
from edgec_runtime.webcam.effects import file_of
from edgec_runtime.webcam.playing import play
from edgec_runtime.webcam.show import ONCE, WATCHED, Show, ShownFrame
from edgec_runtime.webcam.sources import open_source
from PIL import Image

from edgec.catalogue.entries import PREFIX
from edgec.catalogue.fetching import local_file
from edgec.errors import InputError
from edgec.options.devices import device_url
from edgec.options.webcam import WebcamOptions
from edgec.verbs.webcam_demo import WebcamSubject, demo_subject

WHITE = 255
"""The pixels of a mask that belong to the object."""
DEVICE_FIELDS = ("source", "effect", "smooth", "frames", "virtual_camera")
"""The fields of a request that a device is told."""


@dataclass(frozen=True)
class WebcamResult:
    """What was shown.

    Attributes:
        figures: frames, times and latencies.
        lines: remarks for people.
        found: the last frame's result, as its task has it in JSON.
    """

    figures: StreamFigures
    lines: Sequence[str]
    found: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the figures and the last result for machines."""
        return {**self.figures.as_dict(), "result": dict(self.found)}

    def text(self) -> str:
        """Return the figures for a terminal."""
        f = self.figures
        latency = "no latency"
        if f.latency:
            latency = f"latency {f.latency.p50:.1f} ms (p95 {f.latency.p95:.1f})"
        rows = [
            f"{f.delivered} frames, {f.dropped} dropped, {f.fps:.1f} frames/s, "
            f"{latency}"
        ]
        for s in f.stages:
            # A stage that no frame went through has no times.
            if not s.ms:
                continue
            on = f"  on {', '.join(s.backends)}" if s.backends else ""
            rows.append(f"  {s.name:12} {s.ms.p50:8.2f} ms  (p95 {s.ms.p95:.2f}){on}")

        return "\n".join([*rows, *self.lines])


def run_webcam(request: WebcamOptions) -> WebcamResult:
    """Show pictures until the source ends, the last frame was shown, or Ctrl-C."""
    request.check()
    if request.on is not None:
        # A name of edgec.toml is looked up here: the device has another one, or none.
        return _on_device(request, device_url(request.on))

    with _subject(request) as subject:
        # Where someone watches, a file begins anew at its end, and goes at its own rate.
        is_watched = request.display or request.virtual_camera is not None
        show = Show(
            subject.source,
            subject.bundles,
            subject.effect,
            request.smooth,
            WATCHED if is_watched else ONCE,
        )
        page = (request.host, request.port) if request.display else None
        keep = partial(_keep, Path(request.out)) if request.out is not None else None

        def say_address(url: str) -> None:
            request.say(f"watch at {url} (Ctrl-C ends it)")

        figures = play(
            show, page, request.frames, say_address, keep, request.virtual_camera
        )

    return WebcamResult(figures, *show.found())


def _on_device(request: WebcamOptions, url: str) -> WebcamResult:
    """Show pictures of a device, on a page of this machine."""
    fields = {name: getattr(request, name) for name in DEVICE_FIELDS}
    files = _effect_files(request.effect)
    port = request.port if request.display else None
    show = RemoteShow(request.paths, fields, files, port)
    end = show_on(url, show, request.say, request.timeout)
    assert end.figures is not None

    return WebcamResult(end.figures, end.lines, end.result)


def _effect_files(effect: str) -> EffectFiles:
    """Return the files that an effect reads, which the device does not have.

    Raises InputError where they cannot be read.
    """
    name = file_of(effect)
    if not name:
        return EffectFiles()
    picture = Path(name)
    points = picture.with_suffix(".json")
    try:
        return EffectFiles(
            picture=given(picture, MAX_PICTURE_BYTES),
            points=given(points, MAX_POINTS_BYTES) if points.exists() else b"",
        )
    except OSError as e:
        raise InputError(
            f"cannot read {e.filename or name}: {e.strerror}",
            "--effect",
            "give a photo of this machine",
        ) from e


def _keep(folder: Path, frame: ShownFrame) -> None:
    """Write a picture and its result, and the mask of a segmentation.

    A mask is 255 inside the object, or the class of each pixel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{frame.number:05}"
    # Fast compression: pictures come as fast as the network runs.
    Image.fromarray(frame.after).save(place.with_suffix(".png"), compress_level=1)
    text = json.dumps(frame.result.to_json(), indent=1) + "\n"
    place.with_suffix(".json").write_text(text)

    result = frame.result
    if isinstance(result, Segments):
        if result.classes is None:
            mask = result.within().astype(np.uint8) * WHITE
        else:
            mask = result.classes_of_frame()
        Image.fromarray(mask).save(place.with_suffix(".mask.png"))


@contextmanager
def _subject(request: WebcamOptions) -> Iterator[WebcamSubject]:
    """Yield what is shown."""
    if not request.demo:
        stems = [path.stem for path in request.paths]
        named = {}
        for path in request.paths:
            # Two bundles of one name are told apart by their paths.
            name = path.stem if stems.count(path.stem) == 1 else str(path)
            named[name] = str(path)
        source = open_source(_local_source(request.source))
        yield WebcamSubject(source, named, request.effect)
        return

    with demo_subject(request.effect, request.may_fetch, request.say) as subject:
        yield subject


def _local_source(source: str | None) -> str | None:
    """Return a source of this machine; a photo of the catalogue is its file."""
    # Other sources are not always paths: a URL would lose one of its slashes.
    if source is None or not source.startswith(PREFIX):
        return source
    return str(local_file(Path(source)))
