"""Starts, watches and ends a webcam on the device for a host (docs/protocol.md).

The program is edgec_runtime.webcam of the application's wheels, with slots that are
verified right before the start.  Its page is on a socket in a folder that only this user
may enter, or on a port of the loopback address.

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Dict, List, Optional

from edgec_runtime.device_end.bundles import MODEL
from edgec_runtime.device_end.disk import Disk, Refused
from edgec_runtime.device_end.programs import RunningProgram
from edgec_runtime.device_end.reception import App
from edgec_runtime.device_end.requests import ShowBundle, ShowRequest, ShowState
from edgec_runtime.device_end.wheels import WheelSite

END_S = 10.0  # time that the program has to end by itself
MOST_BYTES = 1 << 18  # limit of its standard output
ERROR_BYTES = 2000  # length of the end of its standard error that is reported

_NAME = re.compile(r"[0-9a-f]{32}")
_LABEL = re.compile(r"[^-=\x00][^=\x00]{0,200}")
_TEXT_OPTIONS = ("source", "effect", "virtual_camera")


def page_folder(name: str) -> str:
    """Return the folder of the page's socket.

    Args:
        name: 32 hex digits that the host has drawn

    Raises:
        Refused: it is another name
    """
    if not _NAME.fullmatch(name):
        raise Refused("input", f"{name!r:.40} is not a name of a show", "update edgec")
    return f"/tmp/edgec-{name}"


def page_socket(name: str) -> str:
    """Return the path of the page's socket."""
    return os.path.join(page_folder(name), "page")


class Showing:
    """A webcam, which locks its applications until it ends."""

    def __init__(
        self, root: str, disk: Disk, request: ShowRequest, files: bytes
    ) -> None:
        """Start the webcam.

        Args:
            root: the folder of applications, ~/.edgec
            disk: changes the file system
            request: the request for it
            files: the effect's picture, followed by its points as JSON; may be empty

        Raises:
            Refused: the request is impossible, or a slot is damaged
        """
        self._apps: List[App] = []
        self._output = b""
        self._errors = b""
        self._folder = page_folder(request.name)
        os.mkdir(self._folder, 0o700)  # fails if another user has made it
        try:
            bundles = [
                self._bundle(App(root, bundle.app, disk), bundle)
                for bundle in request.bundles
            ]
            if not bundles:
                raise Refused("input", "no bundle is given to show", "update edgec")
            site = WheelSite(self._apps[0])
            if not site.active():
                what = f"{self._apps[0].name} has no runtime on the device"
                raise Refused("input", what, "edgec flash --with-runtime")
            command = [
                sys.executable,
                "-m",
                "edgec_runtime.webcam",
                *bundles,
                *self._options(request, files),
            ]
            environment = site.environment(site.active())
            self._program = RunningProgram(
                command, self._folder, environment, subprocess.PIPE
            )
        except BaseException:
            self._release()
            raise
        for pipe in (self._program.process.stdout, self._program.process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def _bundle(self, app: App, bundle: ShowBundle) -> str:
        """Lock and verify a slot; return its argument for the program, name=path."""
        self._apps.append(app)
        name = _label(bundle.name)
        app.lock()
        app.verified(bundle.slot)
        return f"{name}={app.at(bundle.slot, MODEL)}"

    def _options(self, request: ShowRequest, files: bytes) -> List[str]:
        """Return the options for the program.

        Each is one word, --name=value, so that no value can be taken for an option.
        """
        values: Dict[str, str] = {}
        for name in _TEXT_OPTIONS:
            value = getattr(request, name)
            if value is not None:
                values[name] = value
        for name in ("source", "virtual_camera"):
            if _is_path(values.get(name, "")):
                # A path on the device is relative to the home folder.
                home = os.path.expanduser("~")
                values[name] = os.path.join(home, os.path.expanduser(values[name]))
        if files:
            values["effect"] = self._with_files(
                values.get("effect", ""), request.points, files
            )

        options = [
            f"--{name.replace('_', '-')}={value}" for name, value in values.items()
        ]
        if not request.smooth:
            options.append("--no-smooth")
        if request.frames is not None:
            options.append(f"--frames={request.frames}")
        if request.page == "socket":
            options.append("--page=" + os.path.join(self._folder, "page"))
        elif request.page is not None:
            options.append(f"--page={int(request.page)}")
        return options

    def _with_files(self, effect: str, points: int, files: bytes) -> str:
        """Write the files of an effect; return the effect with their path here."""
        end = len(files) - min(max(points, 0), len(files))
        # The reader tells the format of a picture by its content, not by its name.
        path = os.path.join(self._folder, "picture")
        with open(path, "wb") as f:
            f.write(files[:end])
        if end < len(files):
            with open(f"{path}.json", "wb") as f:
                f.write(files[end:])
        return f"{effect.partition('=')[0]}={path}"

    def state(self) -> ShowState:
        """Return its output so far, and its status if it has ended."""
        ended = self._program.process.poll()
        self._read()
        output, errors = (
            b.decode(errors="replace") for b in (self._output, self._errors)
        )
        return ShowState(output, ended, errors)

    def finish(self) -> ShowState:
        """End the program, by force if it does not end by itself; return its last state."""
        process = self._program.process
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        until = time.monotonic() + END_S
        while process.poll() is None and time.monotonic() < until:
            self._read()
            time.sleep(0.02)
        state = self.state()
        self.end()
        return state

    def end(self) -> None:
        """End the webcam at once, and unlock its applications."""
        self._program.end()
        self._release()

    def _release(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for app in self._apps:
            app.close()

    def _read(self) -> None:
        process = self._program.process
        assert process.stdout is not None
        assert process.stderr is not None
        self._output += _all(process.stdout.fileno())
        self._errors = (self._errors + _all(process.stderr.fileno()))[-ERROR_BYTES:]
        if len(self._output) > MOST_BYTES:
            raise Refused(
                "device",
                f"the webcam wrote more than {MOST_BYTES >> 10} KB",
                "report it",
            )


def _is_path(source: str) -> bool:
    """Return whether a source or a video device is a path, not a URL or a number."""
    return bool(source) and "://" not in source and not source.isdigit()


def _label(name: str) -> str:
    """Return the name of a bundle on the page.

    It begins an argument, name=path, which must not look like an option.
    """
    if not _LABEL.fullmatch(name):
        raise Refused(
            "input", f"{name!r:.80} is not a name for a bundle", "give it a plain name"
        )
    return name


def _all(fd: int) -> bytes:
    """Return the bytes that a non-blocking pipe has now."""
    parts: List[bytes] = []
    while True:
        data: Optional[bytes] = None
        with contextlib.suppress(BlockingIOError):
            data = os.read(fd, 1 << 16)
        if not data:
            return b"".join(parts)
        parts.append(data)
