"""`webcam`, as Python has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgec.checking import checked

if TYPE_CHECKING:
    from edgec.drive.webcam import Shown


@checked
def webcam(
    bundles: Sequence[str | Path] = (),
    source: str | None = None,
    *,
    effect: str = "overlay",
    smooth: bool = True,
    display: bool = True,
    host: str = "127.0.0.1",
    port: int = 8080,
    frames: int | None = None,
    demo: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Shown:
    """Show a live picture that a bundle changes, on a page of this machine (docs/webcam.md), until it ends.

    Args:
        bundles: .edgec files with a task; the page switches between them. demo: a bundle and a clip of edgec's own.
        source: a camera, a video, a photo, a folder of photos or a URL; default: the first camera.
        effect: "overlay", "blur" or "replace=FILE". smooth: results over time.
        display: a page at `host` and `port`; without, a file is read once, as fast as it goes.
        frames: after so many it ends. progress: gets the page's address.
    """
    from edgec.drive.webcam import Wanted, run_webcam

    paths = [Path(b) for b in bundles]
    return run_webcam(
        Wanted(paths, source, effect, smooth, display, host, port, frames, demo), progress or (lambda text: None)
    )
