"""A webcam on a device, watched from here: bundles and runtime are put there, its page
comes through the link.
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
from pathlib import Path
from typing import Any

from edgec_runtime import DeviceError, EdgecError, InputError
from edgec_runtime.session.meters import StreamFigures
from edgec_runtime.webcam import LOOPBACK
from msgspec import Struct

from edgec_devices import answers
from edgec_devices.decoding import from_json
from edgec_devices.device import TIMEOUT_S
from edgec_devices.protocol import KINDS, Connection
from edgec_devices.pushing import has_runtime, push
from edgec_devices.stream import stream_for
from edgec_devices.transfer import Assembly, send

# so often what the link tolerates may pass until its page is there, on a slow board
STARTS = 4
_POLL_S = 0.3
_END_S = 60.0
_VERIFY_S = 300.0
_STOPPED = 130  # the status of a webcam that a Ctrl-C ended before its first frame
_MOST_BYTES = 1 << 20
MAX_PICTURE_BYTES = 32 << 20
"""Of a background, which has to fit into a message."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,64}")
_NONSENSE = "update edgec on both ends: edgec flash --with-runtime"


class ShowError(Struct, frozen=True):
    """An error of the device's runtime."""

    kind: str
    what: str
    hint: str | None = None


class ProgramLine(Struct, frozen=True):
    """What the program says, in one line of JSON: the page's address, an error, or at
    its end what was shown.
    """

    url: str | None = None
    error: ShowError | None = None
    figures: StreamFigures | None = None
    lines: tuple[str, ...] = ()
    result: dict[str, Any] = {}


def show_on(
    url: str,
    bundles: Sequence[Path],
    wanted: Mapping[str, Any],
    background: bytes,
    port: int | None,
    say: Callable[[str], None],
    timeout: float = TIMEOUT_S,
) -> ProgramLine:
    """Shows bundles on a device until its source ends, so many frames were shown, or
    Ctrl-C, which ends it there too.

    wanted: source, effect, smooth, frames, virtual_camera, as the runtime takes them.
    background: the picture of --effect replace, or empty.  port: of this machine's
    loopback address, where its page is to be, 0 for any; None for no page.  say: told
    of the address.  Raises what the device says, and DeviceError where it, or the link,
    does not do its part.
    """
    stream = stream_for(url, timeout=timeout)
    stream.deaf = True  # Ctrl-C is for us, who tell the device
    recipes = [Assembly.of(path) for path in bundles]
    apps = [r.app for r in recipes]
    if len({*apps}) < len(apps):
        raise InputError(
            f"two bundles are of one name: {', '.join(apps)}",
            hint="compile one under another name",
        )
    port = port or (None if port is None else _free_port())
    page = None if port is None else stream.carry_page(port)
    with Connection(stream) as connection:
        slots = [send(connection, recipe, scratch=True).slot for recipe in recipes]
        if not has_runtime(connection, apps[0]):
            say(f"the device gets {push(connection, apps[0], ())}")
        connection.ask(
            "show",
            answers.Done,
            background,
            _VERIFY_S,
            name=page.name if page else secrets.token_hex(16),
            bundles=[
                {"app": a, "slot": s, "name": a}
                for a, s in zip(apps, slots, strict=True)
            ],
            page=page.place if page else None,
            **wanted,
        )
        return _watched(connection, port, say)


def _watched(
    connection: Connection, port: int | None, say: Callable[[str], None]
) -> ProgramLine:
    """Until it has ended."""
    url = connection.stream.url
    until = time.monotonic() + STARTS * connection.stream.timeout
    waits = port is not None
    with _ctrl_c() as pressed:
        while not pressed:
            state, _ = connection.ask("shown", answers.ShowAnswer)
            told = _lines(state.said, url)
            token = next(
                (_token(line.url, url) for line in told if line.url is not None), None
            )
            if state.status is not None:
                return _last(state, told, url)
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
                    f"there was no page within {waited:g} s",
                    at=url,
                    hint="give a longer --timeout",
                )
            time.sleep(_POLL_S)
        state, _ = connection.ask("shown", answers.ShowAnswer, limit=_END_S, end=True)
        return _last(state, _lines(state.said, url), url)


@contextlib.contextmanager
def _ctrl_c() -> Iterator[list[int]]:
    """Holds something once Ctrl-C was pressed, so that no conversation breaks off in
    its middle; the second one does what it always does.
    """
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def hear(number: int, frame: object) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _lines(said: str, url: str) -> list[ProgramLine]:
    """All that are whole."""
    if len(said) > _MOST_BYTES:
        raise DeviceError(
            f"the device says {len(said)} bytes of a webcam", at=url, hint=_NONSENSE
        )
    whole = said.split("\n")[:-1]
    return [
        from_json(
            line.encode(),
            ProgramLine,
            "what the webcam says",
            url,
            _NONSENSE,
            DeviceError,
        )
        for line in whole
    ]


def _token(address: str, url: str) -> str:
    token = address.rpartition("token=")[2]
    if not _TOKEN.fullmatch(token):
        raise DeviceError(
            f"the device says {address!r:.80} where its page is", at=url, hint=_NONSENSE
        )
    return token


def _last(
    state: answers.ShowAnswer, told: Sequence[ProgramLine], url: str
) -> ProgramLine:
    """What was shown.

    Raises what went wrong; KeyboardInterrupt after a Ctrl-C that came before the first
    frame.
    """
    if state.status == _STOPPED:
        raise KeyboardInterrupt
    if told and told[-1].error is not None:
        error = told[-1].error
        kind: type[EdgecError] = KINDS.get(error.kind, DeviceError)
        raise kind(error.what, at=url, hint=error.hint)
    if told and told[-1].figures is not None:
        return told[-1]
    said = state.error_output.strip().splitlines()[-1:] or ["no message"]
    if "No module named" in said[0]:
        hint = "it has no runtime that can: edgec flash --with-runtime"
    else:
        hint = "try again"
    raise DeviceError(
        f"the webcam ended with status {state.status}: {said[0]:.300}",
        at=url,
        hint=hint,
    )


def _check(port: int, token: str, url: str) -> None:
    """Whether the page comes through the link.  Raises DeviceError."""
    asked = http.client.HTTPConnection(LOOPBACK, port, timeout=TIMEOUT_S)
    with contextlib.closing(asked):
        try:
            asked.request("GET", f"/figures?token={token}")
            status = asked.getresponse().status
            why = f"it answers with {status}" if status != 200 else ""
        except (OSError, http.client.HTTPException) as e:
            why = str(e) or type(e).__name__
    if why:
        hint = "the device's sshd has to let it through: AllowStreamLocalForwarding yes"
        raise DeviceError(
            f"the page does not come through the link: {why}", at=url, hint=hint
        )


def _free_port() -> int:
    with socket.socket() as s:
        s.bind((LOOPBACK, 0))
        port: int = s.getsockname()[1]
        return port
