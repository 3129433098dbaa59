"""A webcam that runs on the device while the host watches it: started, asked after,
ended (docs/protocol.md).

The program is edgec_runtime.webcam of the application's wheels, with slots that were
verified right before.  Its page is on a socket in a folder that only this user may
enter, or on a port of the loopback address.

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

END_S = 10.0  # that it may take to end by itself
MOST_BYTES = 1 << 18  # of its standard output
ERROR_BYTES = 2000  # of its standard error, the last ones

_NAME = re.compile(r"[0-9a-f]{32}")
_LABEL = re.compile(r"[^-=\x00][^=\x00]{0,200}")
_WORDS = ("source", "effect", "virtual_camera")


def page_folder(name: str) -> str:
    """Return the path of the page's socket.

    Args:
        name: 32 hex digits drawn by the host

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
    """One webcam.  Its applications are locked until it ends."""

    def __init__(
        self, root: str, disk: Disk, request: ShowRequest, files: bytes
    ) -> None:
        """files: what its effect reads, the picture first; or empty.

        Raises Refused.
        """
        self._apps: List[App] = []
        self._output = b""
        self._errors = b""
        self._folder = page_folder(request.name)
        os.mkdir(self._folder, 0o700)  # nobody's but ours, or there is none
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
                *self._words(request, files),
            ]
            environment = site.environment(site.active())
            self._started = RunningProgram(
                command, self._folder, environment, subprocess.PIPE
            )
        except BaseException:
            self._let_go()
            raise
        for pipe in (self._started.process.stdout, self._started.process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def _bundle(self, app: App, bundle: ShowBundle) -> str:
        """Verified, and nobody else's until the end."""
        self._apps.append(app)
        name = _label(bundle.name)
        app.lock()
        app.verified(bundle.slot)
        return f"{name}={app.at(bundle.slot, MODEL)}"

    def _words(self, request: ShowRequest, files: bytes) -> List[str]:
        """Return the options for the program.

        A value is one word with its option, so that none can be another option.
        """
        given: Dict[str, str] = {}
        for name in _WORDS:
            value = getattr(request, name)
            if value is not None:
                given[name] = value
        for name in ("source", "virtual_camera"):
            if _is_path(given.get(name, "")):
                # A path on the device is relative to the home folder.
                home = os.path.expanduser("~")
                given[name] = os.path.join(home, os.path.expanduser(given[name]))
        if files:
            given["effect"] = self._with_files(
                given.get("effect", ""), request.points, files
            )

        words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        if not request.smooth:
            words.append("--no-smooth")
        if request.frames is not None:
            words.append(f"--frames={request.frames}")
        if request.page == "socket":
            words.append("--page=" + os.path.join(self._folder, "page"))
        elif request.page is not None:
            words.append(f"--page={int(request.page)}")
        return words

    def _with_files(self, effect: str, points: int, files: bytes) -> str:
        """Write the files of an effect, and return it with their place here."""
        end = len(files) - min(max(points, 0), len(files))
        # The reader knows a picture by its content, not by its name's ending.
        path = os.path.join(self._folder, "picture")
        with open(path, "wb") as f:
            f.write(files[:end])
        if end < len(files):
            with open(f"{path}.json", "wb") as f:
                f.write(files[end:])
        return f"{effect.partition('=')[0]}={path}"

    def state(self) -> ShowState:
        """Return its output so far, and its status if it has ended."""
        ended = self._started.process.poll()
        self._read()
        said, errors = (
            b.decode(errors="replace") for b in (self._output, self._errors)
        )
        return ShowState(said, ended, errors)

    def finish(self) -> ShowState:
        """Tell the program to end, and end it if it does not; return its last output."""
        process = self._started.process
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        until = time.monotonic() + END_S
        while process.poll() is None and time.monotonic() < until:
            self._read()
            time.sleep(0.02)
        found = self.state()
        self.end()
        return found

    def end(self) -> None:
        """End the webcam at once, and unlock its applications."""
        self._started.end()
        self._let_go()

    def _let_go(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for app in self._apps:
            app.close()

    def _read(self) -> None:
        process = self._started.process
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


def _is_path(place: str) -> bool:
    """Return whether a source or a camera is a path, not a URL or a number."""
    return bool(place) and "://" not in place and not place.isdigit()


def _label(name: str) -> str:
    """Return the name of a bundle on the page.

    It stands before "=" and a path in a word, which must not be an option.
    """
    if not _LABEL.fullmatch(name):
        raise Refused(
            "input", f"{name!r:.80} is not a name for a bundle", "give it a plain name"
        )
    return name


def _all(fd: int) -> bytes:
    """Return the present bytes of a pipe that does not block."""
    parts: List[bytes] = []
    while True:
        data: Optional[bytes] = None
        with contextlib.suppress(BlockingIOError):
            data = os.read(fd, 1 << 16)
        if not data:
            return b"".join(parts)
        parts.append(data)
