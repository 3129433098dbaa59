"""Shows a webcam of a device on a page of this machine.

Bundles and the runtime are put on the device; its page comes through the link.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgec_runtime import DeviceError, EdgecError, InputError
from edgec_runtime.device_end.requests import (
    SHOW,
    SHOWN,
    ShowBundle,
    ShowRequest,
    ShowState,
    ShowStateRequest,
)
from edgec_runtime.session.meters import StreamFigures
from edgec_runtime.webcam import LOOPBACK
from msgspec import Struct

from edgec_devices.decoding import from_json
from edgec_devices.device import TIMEOUT_S
from edgec_devices.protocol import KINDS, Connection
from edgec_devices.stream import stream_for
from edgec_devices.transfer import Assembly, send
from edgec_devices.wheel_transfer import has_runtime, push

STARTS = 4
"""A page may take this many timeouts of the link to appear, on a slow board."""
POLL_S = 0.3
"""Interval between two requests for the program's lines, s."""
END_S = 60.0
"""Limit of ending the webcam, s."""
VERIFY_S = 300.0
"""Limit of starting the webcam, s."""
STOPPED_STATUS = 130
"""Exit status of a webcam that a Ctrl-C ended before its first frame."""
MAX_TEXT_BYTES = 1 << 20
"""Bytes of lines in an answer."""
MAX_PICTURE_BYTES = 32 << 20
"""Bytes of an effect's picture, which has to fit into a message."""
MAX_POINTS_BYTES = 1 << 20
"""Bytes of the file beside it."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,64}")
_NONSENSE = "update edgec on both ends: edgec flash --with-runtime"


class EffectFiles(Struct, frozen=True):
    """The files that an effect reads: they are sent along.

    Attributes:
        picture: the content of its picture; empty: it reads none
        points: the content of the JSON beside that; empty: there is none
    """

    picture: bytes = b""
    points: bytes = b""


class ShowError(Struct, frozen=True):
    """An error of the device's runtime."""

    kind: str
    what: str
    hint: str | None = None


class ProgramLine(Struct, frozen=True):
    """One line of the program's JSON.

    It has the address of the page, an error, or at the end the result.
    """

    url: str | None = None
    error: ShowError | None = None
    figures: StreamFigures | None = None
    lines: tuple[str, ...] = ()
    result: dict[str, Any] = {}


NO_FILES = EffectFiles()


@dataclass(frozen=True)
class RemoteShow:
    """A show of bundles on a device.

    Attributes:
        bundles: the bundles
        fields: source, effect, smooth, frames and virtual_camera, for the runtime
        files: what the effect reads
        port: port of the page on this machine's loopback address, 0 for any free port;
            None for no page
    """

    bundles: Sequence[Path]
    fields: Mapping[str, Any]
    files: EffectFiles = NO_FILES
    port: int | None = None


def show_on(
    url: str,
    show: RemoteShow,
    say: Callable[[str], None],
    timeout: float = TIMEOUT_S,
) -> ProgramLine:
    """Show bundles on a device until the source or the frames end, or until Ctrl-C.

    Ctrl-C ends the webcam on the device too. Raises the errors of the device, and
    DeviceError if it or the link fails.

    Args:
        url: URL of the device
        show: the show
        say: receives the address of the page
        timeout: time without progress after which the device is given up, s
    """
    stream = stream_for(url, timeout=timeout)
    # Ctrl-C ends only this program, which then tells the device to end.
    stream.deaf = True
    recipes = [Assembly.of(path) for path in show.bundles]
    apps = [r.app for r in recipes]
    # Two bundles of one name would share a folder on the device.
    if len({*apps}) < len(apps):
        raise InputError(
            f"two bundles are of one name: {', '.join(apps)}",
            hint="compile one under another name",
        )
    port = show.port or (None if show.port is None else _free_port())
    page = None if port is None else stream.carry_page(port)
    with Connection(stream) as connection:
        slots = [send(connection, recipe, scratch=True).slot for recipe in recipes]
        # A device that has a runtime keeps it: another version may be wanted there.
        if not has_runtime(connection, apps[0]):
            say(f"the device gets {push(connection, apps[0], ())}")
        request = ShowRequest(
            name=page.name if page else secrets.token_hex(16),
            bundles=[
                ShowBundle(app, slot, app)
                for app, slot in zip(apps, slots, strict=True)
            ],
            page=page.place if page else None,
            points=len(show.files.points),
            **show.fields,
        )
        files = show.files.picture + show.files.points
        connection.ask(SHOW, request, files, VERIFY_S)
        return _watched(connection, port, say)


def _watched(
    connection: Connection, port: int | None, say: Callable[[str], None]
) -> ProgramLine:
    """Return the last line of the webcam once it has ended."""
    url = connection.stream.url
    until = time.monotonic() + STARTS * connection.stream.timeout
    waits = port is not None
    with _ctrl_c() as pressed:
        while not pressed:
            state, _ = connection.ask(SHOWN, ShowStateRequest())
            lines = _lines(state.said, url)
            addresses = [line.url for line in lines if line.url is not None]
            token = _token(addresses[0], url) if addresses else None
            # The program may have ended with an address, before anybody looked.
            if state.status is not None:
                return _last(state, lines, url)
            if waits and token is not None:
                assert port is not None
                _check(port, token, url)
                say(
                    f"watch at http://{LOOPBACK}:{port}/?token={token} (Ctrl-C ends it)"
                )
                waits = False
            if waits and time.monotonic() > until:
                waited = STARTS * connection.stream.timeout
                raise DeviceError(
                    f"the webcam's page did not start within {waited:g} s",
                    at=url,
                    hint="give a longer --timeout",
                )
            time.sleep(POLL_S)
        state, _ = connection.ask(SHOWN, ShowStateRequest(end=True), limit=END_S)
        return _last(state, _lines(state.said, url), url)


@contextlib.contextmanager
def _ctrl_c() -> Iterator[list[int]]:
    """Provide a list that is not empty once Ctrl-C was pressed.

    No conversation breaks off in its middle then. A second Ctrl-C has its usual effect.
    """
    pressed: list[int] = []
    # Python lets only the main thread set signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def hear(number: int, frame: object) -> None:
        # Only noted: an exception here could tear a message on the line apart.
        pressed.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _lines(output: str, url: str) -> list[ProgramLine]:
    """Return the complete lines; raises DeviceError for too much text."""
    if len(output) > MAX_TEXT_BYTES:
        raise DeviceError(
            f"the device says {len(output)} bytes of a webcam", at=url, hint=_NONSENSE
        )
    message = "what the webcam says"
    lines = []
    # The text behind the last line break is not complete yet.
    for text in output.split("\n")[:-1]:
        data = text.encode()
        lines.append(from_json(data, ProgramLine, message, url, _NONSENSE, DeviceError))
    return lines


def _token(address: str, url: str) -> str:
    """Return the token in the page's address; raises DeviceError without one."""
    token = address.rpartition("token=")[2]
    if not _TOKEN.fullmatch(token):
        raise DeviceError(
            f"the device says {address!r:.80} where its page is", at=url, hint=_NONSENSE
        )
    return token


def _last(state: ShowState, lines: Sequence[ProgramLine], url: str) -> ProgramLine:
    """Return the result of a webcam; raises its error.

    Raises KeyboardInterrupt if a Ctrl-C came before the first frame.
    """
    if state.status == STOPPED_STATUS:
        raise KeyboardInterrupt
    if lines and lines[-1].error is not None:
        error = lines[-1].error
        kind: type[EdgecError] = KINDS.get(error.kind, DeviceError)
        raise kind(error.what, at=url, hint=error.hint)
    if lines and lines[-1].figures is not None:
        return lines[-1]
    # Python prints the exception last, below its traceback.
    messages = state.error_output.strip().splitlines() or ["no message"]
    message = messages[-1]
    if "No module named" in message:
        hint = "it has no runtime that can: edgec flash --with-runtime"
    else:
        hint = "try again"
    raise DeviceError(
        f"the webcam ended with status {state.status}: {message:.300}",
        at=url,
        hint=hint,
    )


def _check(port: int, token: str, url: str) -> None:
    """Raise DeviceError if the page does not come through the link."""
    request = http.client.HTTPConnection(LOOPBACK, port, timeout=TIMEOUT_S)
    with contextlib.closing(request):
        try:
            request.request("GET", f"/figures?token={token}")
            status = request.getresponse().status
            why = f"it answers with {status}" if status != 200 else ""
        except (OSError, http.client.HTTPException) as e:
            why = str(e) or type(e).__name__
    if why:
        hint = "the device's sshd has to let it through: AllowStreamLocalForwarding yes"
        raise DeviceError(
            f"the page does not come through the link: {why}", at=url, hint=hint
        )


def _free_port() -> int:
    """Return a free port of the loopback address."""
    with socket.socket() as s:
        # Port 0 lets the system choose; it is hardly taken again in the meantime.
        s.bind((LOOPBACK, 0))
        port: int = s.getsockname()[1]
        return port
