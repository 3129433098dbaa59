"""Starts, restarts and ends whole emulated machines.

Each machine has a folder, and is found again by its name.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from edgec_runtime import DeviceError, InputError
from edgec_runtime.bundle.cache import cache_dir

from edgec_devices.boards import Board
from edgec_devices.decoding import from_json

from . import accounts, disk, keys, line
from .debian import RELEASES
from .image import Image, image
from .processes import alone, end, runs
from .programs import program, require
from .qemu import STICK_SOCKET, Hardware, launch

BOOT_S = 240.0
"""Limit of a boot, s."""
PASSWORD = accounts.PASSWORD
USER = accounts.USER
STICK_PROGRAM = "edgec_devices.stick"
_DISK = "disk.ext4"
_STATE = "state.json"
_SERIAL = "serial"

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class Settings:
    """The settings of a machine.

    Attributes:
        board: the emulated board
        baud: speed of its serial line; None for no limit
        icount: whether the guest's clock advances a nanosecond an instruction, so that
            latencies measured in the guest repeat
        memory: MiB
        cameras: whether it has Debian's full kernel with drivers of virtual cameras,
            and the packages of a webcam
        release: release of Debian, one of RELEASES; None for the disk's, or the newest
            without a disk
        stick: bundles, compiled files and folders of these, whose programs its Coral
            stick knows; None for a machine without a stick
    """

    board: str = "pi4"
    baud: int | None = None
    icount: bool = False
    memory: int = 512
    cameras: bool = False
    release: str | None = None
    stick: tuple[str, ...] | None = None


@dataclass(frozen=True)
class MachineState:
    """The state of a machine that was switched on, in state.json.

    `line_pid` is the process of line.py, `stick_pid` that of the stick. `release` is
    the release of Debian that it was started from.
    """

    settings: Settings
    pid: int
    line_pid: int | None
    port: int
    boot_seconds: float | None = None
    release: str | None = None
    stick_pid: int | None = None


def stick_error(said: str) -> InputError:
    """Return the error for a stick that does not start, from what its program printed."""
    what, *more = said.splitlines() or ["no message"]
    files = [line.strip() for line in more if line.startswith("  at: ")]
    return InputError(
        f"the stick does not start: {what.removeprefix('error: ')}",
        at=files[0].removeprefix("at: ") if files else None,
        hint="give bundles or files that the Edge TPU's compiler wrote",
    )


class Machine:
    """A machine, on or off, with its disk in its folder.

    Only its own processes are ended.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder.resolve()
        self.settings = settings
        self.alias = f"emulated-{self.folder.name}"
        self._cpu, self._model = _hardware(settings.board)

    # ---- where it is

    @property
    def ssh_url(self) -> str:
        """Return the URL for a link that uses `ssh_config`."""
        return f"ssh://{self.alias}"

    @property
    def ssh_config(self) -> Path:
        """Return OpenSSH's configuration for this machine.

        It is for ssh -F, EDGEC_SSH_CONFIG, or Include in ~/.ssh/config.
        """
        return self.folder / keys.CONFIG

    @property
    def serial_url(self) -> str:
        """Return the URL of the console, which is the same after each start."""
        return f"serial://{self.folder / _SERIAL}?baud={self.settings.baud or 115200}"

    @property
    def console_log(self) -> Path:
        """Return the file of the console's text since the machine was switched on."""
        return self.folder / "console.log"

    @property
    def state(self) -> MachineState | None:
        """Return the state, or None if it was never started or was stopped."""
        try:
            return from_json(
                (self.folder / _STATE).read_bytes(),
                MachineState,
                _STATE,
                str(self.folder),
                "boot it again",
            )
        except (OSError, InputError):
            # A damaged state is of a machine that is off: booting writes a new one.
            return None

    @property
    def running(self) -> bool:
        """Return whether it is on."""
        state = self.state
        return state is not None and runs(state.pid, self._mark)

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """Return the ways to reach it, for people and programs."""
        state = self.state
        return {
            "name": self.folder.name,
            "model": self._model,
            "release": self._release(fresh=False),
            "running": self.running,
            "pid": state.pid if state else None,
            "boot_seconds": state.boot_seconds if state else None,
            "serial_url": self.serial_url,
            "ssh_url": self.ssh_url,
            "ssh_port": state.port if state else None,
            "ssh_config": str(self.ssh_config),
            "ssh_key": str(self.folder / keys.USER_KEY),
            "console_log": str(self.console_log),
        }

    @property
    def _mark(self) -> str:
        return str(self.folder / _DISK)

    # ---- on and off

    def start(self, fresh: bool = False, progress: Progress = _silent) -> None:
        """Switch it on and wait until a login is possible.

        With `fresh` it gets a new disk. Raises ToolError for a missing program or
        package, and DeviceError if it does not come up.
        """
        require("qemu-system-aarch64", "ssh", "ssh-keygen", "debugfs")
        with alone(self.folder):
            if self.running:
                raise InputError(
                    f"{self.alias} is on", at=str(self.folder), hint="stop it first"
                )
            release = self._release(fresh)
            machine_image = image(
                release,
                progress,
                full=self.settings.cameras or self.settings.stick is not None,
            )
            if fresh or not (self.folder / _DISK).exists():
                self._make_disk(machine_image.disk)
            # The port of the last time is tried again.
            before = self.state
            # line.py may be left of the last time.
            self.cut()
            began = time.monotonic()
            try:
                self._switch_on(machine_image, before.port if before else None)
                progress("booting")
                self._wait_for_login()
            except BaseException:
                self.cut()
                raise
            state = self.state
            assert state is not None
            self._save(replace(state, boot_seconds=round(time.monotonic() - began, 1)))

    def power_cut(self) -> None:
        """Cut the power: data that the guest has not written to its disk is lost.

        start() boots it again.
        """
        state = self.state
        if state is None or not end(state.pid, self._mark):
            raise InputError(f"{self.alias} is off", hint="start it first")
        self.cut()

    def reboot(self) -> None:
        """Restart the guest, which writes all data first, and wait for a login."""
        # sshd answers for a while after the order: only another boot id tells.
        before = self._boot_id()
        with contextlib.suppress(DeviceError):
            # The connection may end before the answer.
            self.run("sudo systemctl reboot")
        self._wait_for_login(lambda: self._boot_id() != before)

    def stop(self) -> None:
        """Write unwritten data, end its processes and remove its state."""
        # Killing QEMU is a power cut, so the guest writes its data first.
        if self.running:
            with contextlib.suppress(DeviceError):
                self.run("sudo sync", timeout=20)
        self.cut()
        for name in (_STATE, _SERIAL):
            (self.folder / name).unlink(missing_ok=True)

    def cut(self) -> None:
        """End its processes at once, if there are any."""
        state = self.state
        if state:
            end(state.pid, self._mark)
            end(state.line_pid, self._mark)
            end(state.stick_pid, self._mark)

    def plug_in(self) -> None:
        """Plug its stick in, which has no firmware then.

        Raises InputError for files that the stick cannot read, and DeviceError for a
        machine that is off, has no stick, or has it plugged in.
        """
        state = self.state
        if state is None or state.settings.stick is None:
            raise DeviceError(
                f"{self.alias} has no stick, or is off",
                at=str(self.folder),
                hint=f"edgec devices boot emulated:{self.settings.board}+coral --whole",
            )
        # QEMU would let a second one wait for ever.
        if runs(state.stick_pid, self._mark):
            raise DeviceError(
                f"the stick is plugged into {self.alias}",
                at=str(self.folder),
                hint="unplug it first",
            )
        process = self._beside(
            *("-m", STICK_PROGRAM, str(self.folder / STICK_SOCKET), self._mark),
            *state.settings.stick,
        )
        self._save(replace(state, stick_pid=process.pid))
        assert process.stdout is not None
        with process.stdout:
            said = process.stdout.readline()
            if said != "ready\n":
                raise stick_error(said + process.stdout.read())

    def unplug(self) -> None:
        """Pull its stick out; raises DeviceError if none is plugged in."""
        state = self.state
        if state is None or not end(state.stick_pid, self._mark):
            raise DeviceError(
                f"no stick is plugged into {self.alias}",
                at=str(self.folder),
                hint="plug it in first",
            )

    def run(self, command: str, timeout: float = 60.0) -> str:
        """Run a shell command in the guest by ssh, and return its standard output.

        Raises DeviceError if it fails.
        """
        words = [
            program("ssh"),
            "-F",
            str(self.ssh_config),
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=10",
        ]
        try:
            result = subprocess.run(
                [*words, self.alias, command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"no answer within {timeout:.0f} s",
                at=self.alias,
                hint="look at its console",
            ) from None
        if result.returncode:
            message = result.stderr.strip()[-400:] or "no message"
            raise DeviceError(
                f"status {result.returncode}: {message}",
                at=self.alias,
                hint=f"try by hand: {command}",
            )
        return result.stdout

    # ---- parts of it

    def _release(self, fresh: bool) -> str:
        """Return the release on the disk, or the requested one without a disk."""
        requested = self.settings.release
        if requested not in (None, *RELEASES):
            hint = f"use {' or '.join(RELEASES)}"
            raise InputError(
                f'"{requested}" is not a release of Debian that can be booted',
                hint=hint,
            )
        path = self.folder / _DISK
        if fresh or not path.exists():
            return requested or RELEASES[0]

        # A machine that is on writes to its disk, which cannot be read meanwhile.
        state = self.state
        booted = state.release if state and self.running else None
        installed = booted or disk.release(path)
        if requested and requested != installed:
            hint = f"--fresh makes a new disk; --name {requested} keeps this one"
            raise InputError(
                f"the disk of {self.alias} has Debian {installed}, not {requested}",
                at=str(path),
                hint=hint,
            )
        return installed

    def _make_disk(self, source: Path) -> None:
        """Make the disk, with the machine's keys and the name of the board."""
        keys.make_keys(self.folder)
        temporary = self.folder / "disk.new"
        model = self.folder / "board-model"
        model.write_bytes(self._model.encode() + b"\0")
        disk.copy(source, temporary)
        disk.write(
            temporary,
            {
                **keys.guest_files(self.folder, accounts.UID),
                "/etc/board-model": (model, 0o644, 0),
            },
        )
        temporary.replace(self.folder / _DISK)

    def _switch_on(self, image: Image, port: int | None) -> None:
        """Start the emulator, and make the serial line and the ssh configuration."""
        settings = self.settings
        started = launch(
            image,
            self.folder / _DISK,
            Hardware(
                self._cpu,
                settings.memory,
                settings.icount,
                settings.stick is not None,
            ),
            port,
        )
        state = MachineState(
            settings, started.pid, None, started.port, release=image.release
        )
        # Saved at once, so that cut() finds the process.
        self._save(state)
        keys.write_config(self.folder, self.alias, USER, started.port)
        # line.py makes the serial line.
        process = self._beside(
            line.__file__, started.pty, str(settings.baud or 0), self._mark
        )
        self._save(replace(state, line_pid=process.pid))
        assert process.stdout is not None
        with process.stdout:
            pty = process.stdout.readline().strip()
        link = self.folder / f"{_SERIAL}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(pty)
        link.replace(self.folder / _SERIAL)
        if settings.stick is not None:
            self.plug_in()

    def _beside(self, *words: str) -> subprocess.Popen[str]:
        """Start a Python program that goes on beside QEMU, and says what it has to say
        on its standard output.
        """
        return subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def _save(self, state: MachineState) -> None:
        """Write state.json, whole or not at all."""
        temporary = self.folder / f"{_STATE}.new"
        temporary.write_text(json.dumps(asdict(state), indent=1) + "\n")
        temporary.replace(self.folder / _STATE)

    def _boot_id(self) -> str:
        return self.run("cat /proc/sys/kernel/random/boot_id", timeout=15).strip()

    def _wait_for_login(self, ready: Callable[[], bool] | None = None) -> None:
        """Wait until a login succeeds: sshd answers before it accepts one."""
        ready = ready or (lambda: bool(self._boot_id()))
        state = self.state
        until = time.monotonic() + BOOT_S
        why = f"no login after {BOOT_S:.0f} s"
        hint = "start it again with a new disk (--fresh)"
        while state is not None and time.monotonic() < until:
            with contextlib.suppress(DeviceError):
                if _answers(state.port) and ready():
                    return
            if not runs(state.pid, self._mark):
                why = "the emulator ended"
                hint = "start it again; its disk is kept"
                break
            time.sleep(0.3)
        lines = []
        if self.console_log.exists():
            lines = self.console_log.read_text(errors="replace").strip().splitlines()
        raise DeviceError(
            f"{self.alias} does not come up: {why}; its console says: "
            f"{'; '.join(lines[-3:])[-300:] or 'nothing'}",
            at=str(self.console_log),
            hint=hint,
        )


def find(name: str) -> Machine | None:
    """Return the machine of a name, if it is on."""
    return next((m for m in machines() if m.folder.name == name), None)


def machines(on: bool | None = True) -> tuple[Machine, ...]:
    """Return the machines of edgec's cache that are on.

    If `on` is false, they are those that were neither stopped nor are on: their power
    was cut. If it is None, they are both.
    """
    chosen = []
    for folder in sorted(cache_dir("machines").iterdir()):
        state = Machine(folder, Settings()).state if folder.is_dir() else None
        if state:
            machine = Machine(folder, state.settings)
            if on is None or machine.running == on:
                chosen.append(machine)
    return tuple(chosen)


def start(
    settings: Settings,
    name: str | None = None,
    fresh: bool = False,
    progress: Progress = _silent,
) -> Machine:
    """Boot a machine that goes on after this program, by default named as its board.

    Raises InputError for another name or board.
    """
    name = name or settings.board
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,40}", name):
        raise InputError(
            f'"{name}" is not a name for a machine', hint="use a-z, 0-9 and -"
        )
    _hardware(settings.board)
    machine = Machine(cache_dir("machines", name), settings)
    machine.start(fresh, progress)
    return machine


@contextmanager
def boot(
    settings: Settings, folder: Path | None = None, fresh: bool = False
) -> Iterator[Machine]:
    """Provide a machine that is on in a `with` block.

    `folder` is the place of its disk, by default a folder for each board in edgec's
    cache. For the other parameters see `Settings` and `Machine.start`.
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    machine = Machine(folder or cache_dir("machines", settings.board), settings)
    machine.start(fresh)
    try:
        yield machine
    finally:
        machine.stop()


def _hardware(board: str) -> tuple[str, str]:
    """Return QEMU's name of a board's CPU, and the board's model.

    Raises InputError for a board that cannot be emulated.
    """
    facts = Board.load(board)
    cpus = [t.qemu_cpu for t in facts.targets if t.name == "linux-aarch64"]
    if not cpus or board == "host":
        raise InputError(
            f"{board} cannot be emulated as a whole machine",
            hint="use pi4, for example",
        )
    return cpus[0], facts.model


def _answers(port: int) -> bool:
    """Return whether the guest's sshd answers: QEMU itself accepts any connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as s:
            s.settimeout(3)
            return s.recv(4) == b"SSH-"
    except OSError:
        return False
