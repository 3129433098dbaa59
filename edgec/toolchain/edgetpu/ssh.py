"""Runs edgetpu_compiler on another machine by ssh: one connection, tar in, tar out.

It uses the system's OpenSSH with the user's configuration, and never asks a question
(BatchMode). The other machine needs sh, tar, mktemp and the program.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from edgec.errors import InputError, ToolError
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.runners import (
    SKIP,
    TIMEOUT_S,
    Answer,
    answer,
    arguments,
    kill_group,
)

CONNECT_S = 15
GRACE_S = 60.0
"""Time for the transfers beyond the program's own time, s."""
_MARK = b"edgec: results follow\n"
"""Line before the results: login scripts may print before it."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*")
_MISSING = 97
"""Exit code of the script if the program is missing."""

_HINTS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "if that is expected, remove the old key: ssh-keygen -R {host}",
    ),
    (
        "Host key verification failed",
        "connect once by hand to accept its key: ssh {to}",
    ),
    ("Permission denied", "set up a key, since no password is asked: ssh-copy-id {to}"),
    ("Connection refused", "start its ssh server, or give the port: ssh://{host}:PORT"),
    ("Could not resolve hostname", "check the name: ssh {to}"),
    ("timed out", "check that it is on and reachable: ssh {to}"),
    ("No route to host", "check that it is on and reachable: ssh {to}"),
)


class SshRunner:
    """Runs the program on another machine.

    `url` has the form ssh://[user@]host[:port][/path/of/edgetpu_compiler].
    """

    def __init__(self, url: str, timeout: float = TIMEOUT_S) -> None:
        """Parse the URL; raises InputError if it is no address."""
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            user = parts.username
            port = parts.port
        except ValueError:
            host = ""
            user = None
            port = None
        # A host or user that begins with a dash would be an option of ssh.
        if not _NAME.fullmatch(host) or (
            user is not None and not _NAME.fullmatch(user)
        ):
            raise InputError(
                f"{url} is not an address",
                "--edgetpu-compiler",
                "write ssh://[user@]host[:port]",
            )
        self.name = url
        self._timeout = timeout
        self._host = host
        self._program = parts.path if len(parts.path) > 1 else PROGRAM
        self._to = f"{user}@{host}" if user else host
        self._port = [] if port is None else ["-p", str(port)]

    def compile(self, models: Mapping[str, bytes]) -> Answer:
        """Compile the models and remove the files on the other machine, see Runner."""
        script = _script(self._program, models, self._timeout)
        options = [
            "-o",
            "BatchMode=yes",
            "-o",
            f"ConnectTimeout={CONNECT_S}",
            "-o",
            "ServerAliveInterval=15",
        ]
        command = ["ssh", "-T", *options, *self._port, "--", self._to, script]
        files = self._exchange(command, _pack(models))
        text = files.pop("edgec.out", b"").decode("utf-8", "replace")
        return answer(text, models, files)

    def _exchange(self, command: list[str], data: bytes) -> dict[str, bytes]:
        """Send an archive to a command, and return the files of its answer.

        Raises ToolError without a result.
        """
        # The other machine stops the program itself: this limit is for a dead connection.
        timeout = self._timeout + CONNECT_S + GRACE_S
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as e:
            raise ToolError(
                f"cannot run ssh: {e.strerror}", self.name, "install OpenSSH"
            ) from e
        try:
            out, err = process.communicate(data, timeout=timeout)
        except subprocess.TimeoutExpired as e:
            kill_group(process)
            raise ToolError(
                f"no result after {timeout:g} s",
                self.name,
                f"check the machine; {SKIP}",
            ) from e
        except BaseException:
            kill_group(process)
            raise

        # Login scripts may have printed text before.
        before, mark, packed = out.partition(_MARK)
        if not mark:
            errors = err.decode("utf-8", "replace")
            text = before.decode("utf-8", "replace")
            raise self._error(process.returncode, errors, text)
        return self._unpack(packed)

    def _error(self, code: int, err: str, out: str) -> ToolError:
        """Return the error of a connection without results, with a remedy."""
        if code == _MISSING:
            hint = f"install it there, or name it: ssh://{self._to}/path/of/{PROGRAM}"
            return ToolError(
                f"there is no {self._program} on {self._host}", self.name, hint
            )
        for message, hint in _HINTS:
            if message in err:
                remedy = hint.format(to=self._to, host=self._host)
                return ToolError(_last(err), self.name, remedy)
        last = _last(err) or _last(out) or "nothing was said"
        return ToolError(
            f"ssh ended with exit code {code}: {last}",
            self.name,
            f"try: ssh {self._to} {PROGRAM} --version",
        )

    def _unpack(self, packed: bytes) -> dict[str, bytes]:
        """Return the files of an archive by name; raises ToolError if it is damaged."""
        files: dict[str, bytes] = {}
        try:
            with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
                for member in archive:
                    # Nothing is written to this disk, so no name can do harm.
                    content = archive.extractfile(member) if member.isfile() else None
                    if content is not None:
                        name = member.name.removeprefix("./")
                        files[name] = content.read()
        except tarfile.TarError as e:
            hint = f"check that tar works there, and the free space: ssh {self._to}"
            raise ToolError(
                f"the results came back damaged: {e}", self.name, hint
            ) from e
        return files


def _script(program: str, models: Iterable[str], timeout: float) -> str:
    """Return one sh command, for any login shell of the other machine.

    The results come as a tar archive on its output.
    """
    p = shlex.quote(program)
    limit = f"{timeout:g}"
    # Login shells differ, and sh is everywhere. `timeout` is missing on some systems.
    lines = [
        f"command -v {p} >/dev/null 2>&1 || exit {_MISSING}",
        "d=$(mktemp -d) || exit 1; trap 'rm -rf \"$d\"' EXIT; "
        'trap "exit 1" HUP INT TERM; cd "$d" || exit 1',
        "tar xf - || exit 1",
        f"set -- {p} {' '.join(map(shlex.quote, arguments(models)))}",
        f'if command -v timeout >/dev/null 2>&1; then set -- timeout -k 5 {limit} "$@"; fi',
        '"$@" >edgec.out 2>&1 </dev/null; code=$?',
        f'if [ $code = 124 ]; then echo "no result after {limit} s" >edgec.out; '
        'elif [ $code != 0 ] && [ ! -s edgec.out ]; then echo "it ended with exit code '
        '$code" >edgec.out; fi',
        f"echo {shlex.quote(_MARK.decode().strip())}",
        "tar cf - edgec.out $(ls | grep '_edgetpu\\.')",
    ]
    return f"sh -c {shlex.quote('; '.join(lines))}"


def _pack(models: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of the models."""
    packed = io.BytesIO()
    with tarfile.open(
        fileobj=packed, mode="w:", format=tarfile.USTAR_FORMAT
    ) as archive:
        for name, data in models.items():
            info = tarfile.TarInfo(f"{name}.tflite")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def _last(text: str) -> str:
    """Return the last line that is not blank, or ""."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
