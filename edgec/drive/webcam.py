"""`webcam`: a live picture through a bundle, on a page of this machine, or without one and as figures."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from edgec_runtime.meters import StreamFigures
from edgec_runtime.webcam.server import LOOPBACK, Server
from edgec_runtime.webcam.show import Show
from edgec_runtime.webcam.sources import Source, clip, open_source

from edgec.drive.compile import compile_model
from edgec.drive.demo import fixtures
from edgec.drive.lower import Options
from edgec.errors import InputError

PORT = 8080


@dataclass(frozen=True)
class Wanted:
    """What to show, and where. bundles: the first is on at the start; the page switches to the others. source: default,
    the first camera. effect: see docs/webcam.md. smooth: results over time. display: a page at host and port; without,
    a file is read once and as fast as it goes. frames: after so many it ends.
    """

    bundles: Sequence[Path] = ()
    source: str | None = None
    effect: str = "overlay"
    smooth: bool = True
    display: bool = True
    host: str = LOOPBACK
    port: int = PORT
    frames: int | None = None
    demo: bool = False

    def check(self) -> None:
        """Raise InputError for what contradicts itself."""
        if self.demo and (self.bundles or self.source is not None):
            raise InputError(
                "--demo has a bundle and a clip of its own", hint="leave out BUNDLE and --source, or --demo"
            )
        if not self.demo and not self.bundles:
            raise InputError("no bundle to show", hint="edgec webcam net.edgec, or edgec webcam --demo")
        if self.frames is not None and self.frames < 1:
            raise InputError(f"--frames {self.frames} shows nothing", hint="give 1 or more")


@dataclass(frozen=True)
class Shown:
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
        late = f"latency {f.latency.p50:.1f} ms (p95 {f.latency.p95:.1f})" if f.latency else "no latency"
        rows = [f"{f.delivered} frames, {f.dropped} dropped, {f.fps:.1f} frames/s, {late}"]
        for s in f.stages:
            on = f"  on {', '.join(s.backends)}" if s.backends else ""
            rows += [f"  {s.name:12} {s.ms.p50:8.2f} ms  (p95 {s.ms.p95:.2f}){on}"] if s.ms else []
        return "\n".join([*rows, *self.lines])


def run_webcam(wanted: Wanted, say: Callable[[str], None]) -> Shown:
    """Show until the source ends, so many frames were shown, or Ctrl-C. say: gets the page's address."""
    wanted.check()
    with _what(wanted) as (source, bundles):
        show = Show(source, bundles, wanted.effect, wanted.smooth, wanted.display, wanted.display)
        try:
            with Server(show, wanted.host, wanted.port) if wanted.display else nullcontext() as server:
                if server is not None:
                    say(f"watch at {server.url} (Ctrl-C ends it)")
                for _ in islice(show, wanted.frames):
                    pass
        except KeyboardInterrupt:
            pass
        finally:
            show.stop()
    figures = show.figures()
    if figures is None or not figures.delivered:
        raise InputError("there was no frame to show", at=source.name, hint="check the source")
    return Shown(figures, *show.found())


@contextmanager
def _what(wanted: Wanted) -> Iterator[tuple[Source, Mapping[str, str]]]:
    """The source, and bundles by the names that the page has for them."""
    if not wanted.demo:
        names = [p.stem for p in wanted.bundles]
        named = {p.stem if names.count(p.stem) == 1 else str(p): str(p) for p in wanted.bundles}
        yield open_source(wanted.source), named
        return
    with tempfile.TemporaryDirectory(prefix="edgec-webcam-") as folder:
        bundle, made = Path(folder) / "cartoon.edgec", fixtures()
        compile_model(made / "cartoon" / "cartoon.onnx", output=bundle, options=Options(preprocess="0_1"), task="image")
        yield clip(sorted((made / "photos").glob("*.jpg"))), {"cartoon": str(bundle)}
