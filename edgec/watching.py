"""`webcam`, as Python has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgec_devices.device import TIMEOUT_S
from edgec_runtime.webcam import LOOPBACK, PORT
from edgec_runtime.webcam.effects import OVERLAY

from edgec.checking import checked

if TYPE_CHECKING:
    from edgec.verbs.webcam import WebcamResult


@checked
def webcam(
    bundles: Sequence[str | Path] = (),
    source: str | None = None,
    *,
    effect: str = OVERLAY,
    smooth: bool = True,
    display: bool = True,
    host: str = LOOPBACK,
    port: int = PORT,
    frames: int | None = None,
    demo: bool = False,
    yes: bool = False,
    out: str | Path | None = None,
    virtual_camera: str | None = None,
    on: str | None = None,
    timeout: float = TIMEOUT_S,
    progress: Callable[[str], None] | None = None,
) -> WebcamResult:
    """Show a live picture that a bundle changes, on a page of this machine
    (docs/webcam.md), until it ends.

    Args:
        bundles: .edgec files with a task; the page switches between them. demo:
            bundles and a clip of edgec's own, for which it may download networks with
            `yes`.
        source: a camera, a video, a photo, a folder of photos or a URL; default: the
            first camera.
        effect: "overlay", "blur", "avatar=FILE" or another (docs/webcam.md). smooth:
            results over time.
        display: a page at `host` and `port`; without, a file is read once, as fast as
            it goes.
        frames: after so many it ends. out: a folder for the pictures, masks and
            results.
        virtual_camera: a V4L2 output, such as "/dev/video9", that shows the picture to
            other programs as a camera.
        progress: gets the page's address.
        on: the device where it runs, "ssh://pi@host" or a name of edgec.toml, with a
            source of its own; the page is here all the same. timeout: seconds for which
            nothing may move on the way to it.
    """
    # Imported at the call, so that `import edgec` stays fast.
    from edgec_devices.listing import resolve

    from edgec.verbs.webcam import WebcamRequest, run_webcam

    paths = [Path(b) for b in bundles]
    # A name of edgec.toml is looked up here: the device has another one, or none.
    url = resolve(on, Path.cwd()) if on is not None else None
    return run_webcam(
        WebcamRequest(
            bundles=paths,
            source=source,
            effect=effect,
            smooth=smooth,
            display=display,
            host=host,
            port=port,
            frames=frames,
            demo=demo,
            out=Path(out) if out else None,
            virtual_camera=virtual_camera,
            on=url,
            timeout=timeout,
        ),
        progress or (lambda text: None),
        lambda question: yes,
    )
