"""The options of `edgec webcam`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgec_devices.options import FilePath, LinkOptions, argument, option, path_of
from edgec_runtime.webcam import LOOPBACK, PORT
from edgec_runtime.webcam.effects import EFFECTS, OVERLAY

from edgec.errors import InputError
from edgec.options.declaration import ProgressOption

MAX_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class WebcamOptions(ProgressOption, LinkOptions):
    """The options of `edgec webcam`. `progress` gets the page's address."""

    bundles: Sequence[FilePath] = field(
        default=(),
        kw_only=False,
        metadata=argument(
            ".edgec files with a task; the page switches between them",
            metavar="[BUNDLE]…",
            multiple=True,
        ),
    )
    source: str | None = field(
        default=None,
        kw_only=False,
        metadata=option(
            "/dev/video0, picamera, a video, a photo, a folder of photos, rtsp://… "
            "(default: camera)",
            metavar="WHAT",
        ),
    )
    effect: str = field(
        default=OVERLAY,
        metadata=option("of: " + ", ".join(EFFECTS), metavar="NAME", show_default=True),
    )
    smooth: bool = field(
        default=True,
        metadata=option(
            "masks, boxes and points over time", flags=("--smooth/--no-smooth",)
        ),
    )
    display: bool = field(
        default=True,
        metadata=option(
            "a page; without it a file is read once, as fast as it goes",
            flags=("--display/--no-display",),
        ),
    )
    host: str = field(
        default=LOOPBACK,
        metadata=option(
            "where the page is; 0.0.0.0: for others too", show_default=True
        ),
    )
    port: int = field(
        default=PORT, metadata=option("0: any that is free", show_default=True)
    )
    frames: int | None = field(
        default=None, metadata=option("end after so many", metavar="N")
    )
    out: FilePath | None = field(
        default=None,
        metadata=option("keep pictures, masks and results there", metavar="FOLDER"),
    )
    virtual_camera: str | None = field(
        default=None,
        metadata=option(
            "a V4L2 output: a camera for other programs", metavar="/dev/video9"
        ),
    )
    demo: bool = field(
        default=False,
        metadata=option(
            "a portrait moved by a face, or, without its networks, a cartoon; needs no "
            "camera"
        ),
    )
    yes: bool = field(
        default=False,
        metadata=option(
            "let the demo download its networks unasked", flags=("-y", "--yes")
        ),
    )
    on: str | None = field(
        default=None,
        metadata=option(
            "the device where it runs, with a --source of its own; the page comes "
            "through ssh",
            metavar="ssh://pi@host",
        ),
    )
    confirm: Callable[[str], bool] | None = field(
        default=None,
        metadata=option(
            "answers the question whether the demo may download its networks, where "
            "`yes` does not",
            python_only=True,
        ),
    )

    @property
    def paths(self) -> list[Path]:
        """The files of the bundles."""
        return [Path(bundle) for bundle in self.bundles]

    def may_fetch(self, question: str) -> bool:
        """Return whether the demo may download its networks."""
        return self.yes or (self.confirm is not None and self.confirm(question))

    def check(self) -> None:
        """Raise InputError for options that contradict each other."""
        # Nothing is opened before: a camera's light should not go on for an error.
        self._check_bundles()
        self._check_place()
        if self.frames is not None and self.frames < 1:
            raise InputError(
                f"--frames {self.frames} shows nothing", hint="give 1 or more"
            )
        if not 0 <= self.port <= MAX_PORT:
            raise InputError(
                f"{self.port} is not a port",
                "--port",
                f"give 0 to {MAX_PORT}; 0 is any that is free",
            )
        out = path_of(self.out)
        if out is not None and out.exists() and not out.is_dir():
            raise InputError(
                f"{out} is not a folder",
                "--out",
                "give a folder, or a name that is free",
            )

    def _check_bundles(self) -> None:
        """Raise InputError unless there are bundles, or the demo alone."""
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

    def _check_place(self) -> None:
        """Raise InputError for options of this machine beside --on."""
        local = {
            "--demo": self.demo,
            "--out": self.out is not None,
            "--host": self.host != LOOPBACK,
        }
        # The page is always here, but at this machine's own address.
        if self.on is not None and any(local.values()):
            option = next(name for name, is_given in local.items() if is_given)
            raise InputError(
                f"{option} is for this machine, and --on for another",
                hint=f"leave out {option}, or --on",
            )
