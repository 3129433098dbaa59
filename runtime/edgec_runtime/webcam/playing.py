"""Plays a show from its first frame to its end, with its page and virtual camera."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from itertools import islice
from typing import Callable, Optional, Tuple

from ..errors import DeviceError, InputError
from ..session.meters import StreamFigures
from .server import Server
from .show import Show, ShownFrame
from .video_output import SteadyOutput, VideoOutput


def play(
    show: Show,
    page: Optional[Tuple[str, int]],
    frames: Optional[int],
    say: Callable[[str], None],
    seen: Optional[Callable[[ShownFrame], None]] = None,
    virtual: Optional[str] = None,
) -> StreamFigures:
    """Play a show until its source ends, or until Ctrl-C; return its figures.

    Args:
        show: the show
        page: host and port of the page (see Server); None for no page
        frames: number of frames to show; None for all
        say: is called with the URL of the page
        seen: is called with each picture
        virtual: the path of a V4L2 output, a camera for other programs, to which each
            picture is written

    Raises:
        InputError: there was no frame
        DeviceError: the path is not an output
        KeyboardInterrupt: Ctrl-C came before the first frame
    """
    stopped = False
    try:
        with ExitStack() as stack:
            if virtual is not None:
                camera = stack.enter_context(SteadyOutput(virtual_camera(virtual)))
            else:
                camera = None
            if page is not None:
                say(stack.enter_context(Server(show, *page)).url)
            for picture in islice(show, frames):
                if seen is not None:
                    seen(picture)
                if camera is not None:
                    camera.show(picture.after)
    except KeyboardInterrupt:
        stopped = True
    finally:
        show.stop()
    figures = show.figures()
    # Without a frame there are no figures: it was stopped early, or the source is bad.
    if figures is None or not figures.delivered:
        if stopped:
            raise KeyboardInterrupt
        raise InputError(
            "there was no frame to show", at=show.source.name, hint="check the source"
        )
    return figures


def virtual_camera(path: str) -> VideoOutput:
    """Open a V4L2 output, a camera for other programs.

    Raises:
        DeviceError: there is none; the hint says how to make one
    """
    try:
        return VideoOutput(path)
    except DeviceError as e:
        # The device exists and only permission is missing: a driver would not help.
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
            raise
        # The driver takes the next free number unless it is given one.
        number = re.search("[0-9]+$", path)
        load = "sudo modprobe v4l2loopback exclusive_caps=1" + (
            f" video_nr={number[0]}" if number else ""
        )
        raise DeviceError(
            e.what,
            at="--virtual-camera",
            hint=f"sudo apt install v4l2loopback-dkms && {load}",
        ) from e
