"""Writes systemd units that run a bundle's application, and installs them on a device
(docs/packages.md).

This is part of the device end, see wire.py.  The host writes the unit of a Debian
package with it too.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import sys
from typing import Callable, List, Optional, Sequence

from edgec_runtime.device_end.bundles import program_path
from edgec_runtime.device_end.disk import Disk, Refused, make_folder, replace
from edgec_runtime.device_end.requests import ServiceAnswer

RESTART_S = 5
LIMIT_S = 60.0
RUNS = 50  # inferences of the bundle's program, unless COMMAND names another program
VERIFIER = ".device_end.py"  # no name of an application begins with a dot
Execute = Callable[..., "subprocess.CompletedProcess[bytes]"]

_APP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_WORD = re.compile(r"[A-Za-z0-9_./+@-]+")
_NO_SYSTEMD = (
    "flash without --service, and start the program as this device starts others"
)
_NO_MANAGER = (
    "the user has no systemd of its own: flash as root, or install `edgec package`"
)


def unit_name(app: str) -> str:
    """Return the file name of an application's unit.

    Raises Refused for a name with characters that systemd would interpret.
    """
    if not _APP.fullmatch(app):
        raise Refused(
            "input",
            f'"{app:.80}" cannot be the name of a service',
            "give one of A-Z a-z 0-9 _ . - with --app",
        )
    return f"edgec-{app}.service"


def unit_text(
    app: str,
    folder: str,
    command: Sequence[str],
    settings: Optional[str],
    user: bool = False,
    extra: str = "",
) -> str:
    """Return the text of a systemd unit that runs an application.

    Raises Refused for a path that would have to be quoted.

    Args:
        app: the application's name
        folder: the folder with model.edgec, in which the program runs
        command: what runs: a path and plain words
        settings: a file that may set another COMMAND; None for none
        user: whether the unit is for a user's manager, not the system's
        extra: more lines of [Service]
    """
    for path in (folder, command[0], *([settings] if settings else [])):
        _check_path(path)
    for word in command[1:]:
        _check_word(word)
    about = file = ""
    if settings:
        about = f"# What runs is set in {settings}\n"
        file = f"EnvironmentFile=-{settings}\n"
    return f"""# Written by edgec, and again when it is flashed or upgraded.
{about}[Unit]
Description=edgec: {unit_name(app)[6:-8]}
Documentation=file:{settings or folder}

[Service]
WorkingDirectory={folder}
Environment=EDGEC_BUNDLE={folder}/model.edgec
Environment="COMMAND={" ".join(command)}"
{file}ExecStart=/bin/sh -c 'eval "exec $$COMMAND"'
Restart=on-failure
RestartSec={RESTART_S}
{extra}
[Install]
WantedBy={"default.target" if user else "multi-user.target"}
"""


def _check_path(path: str) -> None:
    _check_word(path if path.startswith("/") else "")


def _check_word(word: str) -> None:
    if not _WORD.fullmatch(word):
        raise Refused(
            "device",
            f'"{word:.80}" cannot be written in a unit',
            "set EDGEC_ROOT to a plain path",
        )


class Units:
    """The units of a device.

    Args:
        root: the folder of applications, ~/.edgec
        disk: writes the files
        execute: starts systemctl and loginctl
        folder: the folder of units; by default the one of systemd's manager
        source: text of the device end (single_file.py), which is kept on the device so
            that each start of a service verifies its program first
    """

    def __init__(
        self,
        root: str,
        disk: Disk,
        execute: Execute = subprocess.run,
        folder: Optional[str] = None,
        source: str = "",
    ) -> None:
        self.root = root
        self.disk = disk
        self.execute = execute
        self.source = source
        self.user = os.geteuid() != 0
        self.folder = folder or os.environ.get("EDGEC_UNITS") or self._manager_folder()

    def _manager_folder(self) -> str:
        if not self.user:
            return "/etc/systemd/system"
        config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        return os.path.join(config, "systemd", "user")

    def path(self, app: str) -> str:
        """Return the path of an application's unit."""
        return os.path.join(self.folder, unit_name(app))

    def check(self, app: str) -> None:
        """Raise Refused if this application cannot become a service; change nothing."""
        self._text(app)
        if shutil.which("systemctl") is None:
            raise Refused(
                "device", "there is no systemd on the device: no systemctl", _NO_SYSTEMD
            )
        hint = _NO_MANAGER if self.user else _NO_SYSTEMD
        self._systemctl("show", "--property=Version", hint=hint)

    def install(self, app: str, serves: bool = False) -> ServiceAnswer:
        """Write a unit that starts the active slot at boot and after a failure.

        serves: whether it starts edgec_runtime.serve, not the slot's program
        """
        self.check(app)
        text = self._text(app, serves).encode()
        path = self.path(app)
        self._keep_source()
        make_folder(self.disk, self.folder)
        replace(self.disk, path, text)
        self._systemctl("daemon-reload")
        self._systemctl("enable", unit_name(app))
        self._systemctl("restart", unit_name(app))
        return ServiceAnswer(path, self._linger())

    def refresh(self, app: str) -> Optional[str]:
        """Restart the service, if there is one, after a switch of slots.

        Return the reason if it cannot be restarted.
        """
        try:
            if _APP.fullmatch(app) and os.path.exists(self.path(app)):
                self._keep_source()
                self._systemctl("try-restart", unit_name(app))
        except Refused as e:
            return e.what
        return None

    def _text(self, app: str, serves: bool = False) -> str:
        current = os.path.join(self.root, app, "current")
        settings: Optional[str] = os.path.join(self.root, app, "service.conf")
        command = [
            os.path.join(current, program_path()),
            *("--runs", str(RUNS), "--json"),
        ]
        if serves:
            # The options of the server have a file of their own (serving.py).
            settings = None
            end = ("-I", "-S", self._verifier(), "serve", self.root, app)
            command = [sys.executable, *end]
        verification = ""
        # A server verifies by itself what it is about to serve.
        if self.source and not serves:
            for path in (sys.executable, self._verifier()):
                _check_path(path)
            verification = (
                f"ExecStartPre={sys.executable} -I -S {self._verifier()} verify "
                f"{self.root} {app}\n"
            )
        return unit_text(
            app,
            current,
            command,
            settings,
            self.user,
            verification,
        )

    def _verifier(self) -> str:
        return os.path.join(self.root, VERIFIER)

    def _keep_source(self) -> None:
        if self.source:
            make_folder(self.disk, self.root)
            replace(self.disk, self._verifier(), self.source.encode())

    def _systemctl(
        self, *words: str, hint: str = "look at it on the device: journalctl -e"
    ) -> None:
        command = ["systemctl", *(["--user"] if self.user else []), *words]
        status, errors = self._run(command)
        if status:
            reason = errors.splitlines()[-1] if errors else f"status {status}"
            raise Refused("device", f"{' '.join(command)} failed: {reason}", hint)

    def _linger(self) -> bool:
        """Return whether the service starts at boot and outlives the user's logout.

        A user's manager does so only after `loginctl enable-linger`.
        """
        if not self.user:
            return True
        enable = ["loginctl", "enable-linger", getpass.getuser()]
        commands: List[List[str]] = [enable[:2], ["sudo", "-n", *enable]]
        return any(self._run(command)[0] == 0 for command in commands)

    def _run(self, command: List[str]) -> "tuple[int, str]":
        """Run a command; return its exit status and standard error."""
        env = {**os.environ, "LC_ALL": "C"}
        if self.user:
            env.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
        try:
            process = self.execute(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIMIT_S,
                env=env,
            )
        except OSError as e:
            return 127, f"{command[0]}: {e.strerror}"
        except subprocess.TimeoutExpired:
            return 124, f"no answer in {LIMIT_S:.0f} s"
        return process.returncode, (process.stderr or b"").decode(
            errors="replace"
        ).strip()
