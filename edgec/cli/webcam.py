"""Defines `edgec webcam`, which shows a live picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from edgec_runtime.webcam import LOOPBACK, PORT
from edgec_runtime.webcam.effects import EFFECTS, OVERLAY

from edgec.cli.echo import echo
from edgec.cli.reach import TIMEOUT, on_one, resolved


@click.command()
@click.argument(
    "bundles", nargs=-1, type=click.Path(path_type=Path), metavar="[BUNDLE]…"
)
@click.option(
    "--source",
    metavar="WHAT",
    help="/dev/video0, picamera, a video, a photo, a folder of photos, "
    "rtsp://… (default: camera)",
)
@click.option(
    "--effect",
    default=OVERLAY,
    show_default=True,
    metavar="NAME",
    help="of: " + ", ".join(EFFECTS),
)
@click.option(
    "--smooth/--no-smooth", default=True, help="masks, boxes and points over time"
)
@click.option(
    "--display/--no-display",
    default=True,
    help="a page; without it a file is read once, as fast as it goes",
)
@click.option(
    "--host",
    default=LOOPBACK,
    show_default=True,
    help="where the page is; 0.0.0.0: for others too",
)
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0: any that is free",
)
@click.option("--frames", type=int, metavar="N", help="end after so many")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="keep pictures, masks and results there",
)
@click.option(
    "--virtual-camera",
    metavar="/dev/video9",
    help="a V4L2 output: a camera for other programs",
)
@click.option(
    "--demo",
    is_flag=True,
    help="a portrait moved by a face, or, without its networks, a cartoon; needs no "
    "camera",
)
@click.option(
    "-y", "--yes", is_flag=True, help="let the demo download its networks unasked"
)
@on_one(
    "on",
    metavar="ssh://pi@host",
    help="the device where it runs, with a --source of its own; the page comes through ssh",
)
@TIMEOUT
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="the figures machine-readable, to standard output",
)
def webcam(as_json: bool, yes: bool, on: str | None, **options: Any) -> None:
    """Show a live picture that a BUNDLE changes, before and after; the page switches
    between several.
    """
    from edgec.verbs.webcam import WebcamRequest, run_webcam

    def say(text: str) -> None:
        # Standard output is for the JSON alone.
        echo(text, err=as_json)

    def may_fetch(question: str) -> bool:
        if yes:
            return True
        # A script has nobody who could answer.
        return sys.stdin.isatty() and click.confirm(question, default=True, err=True)

    # Without a device the pictures are processed here, and not through `local:`.
    url = resolved(on) if on else None
    shown = run_webcam(WebcamRequest(on=url, **options), say, may_fetch)
    if as_json:
        echo(json.dumps(shown.to_json(), indent=1))
    else:
        echo(shown.text())
