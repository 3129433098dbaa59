"""Starts QEMU as a whole machine."""

from __future__ import annotations

import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime import ToolError

from .image import Image
from .programs import program

CPUS = 2
STICK_SOCKET = "stick"


@dataclass(frozen=True)
class StartedMachine:
    """A machine that was switched on.

    Attributes:
        pid: QEMU's process
        pty: the serial line
        port: the port that leads to sshd
    """

    pid: int
    pty: str
    port: int


@dataclass(frozen=True)
class Hardware:
    """What a machine has.

    Attributes:
        cpu: QEMU's name of the CPU
        memory: MiB
        icount: whether the guest's clock counts instructions
        stick: whether a stick can be plugged in, at STICK_SOCKET beside the disk
    """

    cpu: str
    memory: int
    icount: bool = False
    stick: bool = False


def launch(
    image: Image, disk: Path, hardware: Hardware, port: int | None
) -> StartedMachine:
    """Switch a machine on; raises ToolError.

    The process is a daemon and writes the console's text to console.log beside the
    disk.

    Args:
        image: kernel and initial RAM disk
        disk: the disk
        hardware: what it has
        port: the port of the last start, which is used again if it is free
    """
    # The same port again, so that open configurations stay valid.
    output = ""
    for chosen in (port or free_port(), free_port(), free_port()):
        pid_file = disk.with_name("qemu.pid")
        pid_file.unlink(missing_ok=True)
        command = [
            program("qemu-system-aarch64"),
            *arguments(image, disk, hardware, chosen),
        ]
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        output = (result.stdout + result.stderr).strip()
        # QEMU tells the name of the pty only in this message.
        pty = re.search(r"redirected to (/dev/\S+)", output)
        if result.returncode == 0 and pty:
            return StartedMachine(int(pid_file.read_text()), pty[1], chosen)
        # Another program may have taken the port: then another one is tried.
        if "forward" not in output:
            break
    raise ToolError(
        f"qemu-system-aarch64 does not start: {output[-400:] or 'no message'}",
        hint="see that 1 GB is free",
    )


def arguments(image: Image, disk: Path, hardware: Hardware, port: int) -> list[str]:
    """Return the arguments of QEMU."""
    folder = disk.parent
    socket = f"socket,id=stick,path={_escaped(folder / STICK_SOCKET)}"
    stick = (
        *("-device", "qemu-xhci", "-chardev", f"{socket},server=on,wait=off"),
        *("-device", "usb-redir,chardev=stick"),
    )
    icount = hardware.icount
    return [
        *(
            "-M",
            "virt,gic-version=2",
            "-cpu",
            hardware.cpu,
            "-m",
            str(hardware.memory),
            "-nodefaults",
            "-no-user-config",
        ),
        # Counted instructions need one thread for all CPUs.
        *(
            "-accel",
            "tcg,thread=single" if icount else "tcg,thread=multi",
            "-smp",
            "1" if icount else str(CPUS),
        ),
        *(("-icount", "shift=0,sleep=on") if icount else ()),
        *(
            "-display",
            "none",
            "-monitor",
            "none",
            "-daemonize",
            "-pidfile",
            str(folder / "qemu.pid"),
        ),
        *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
        *("-append", "console=ttyAMA0,115200 quiet panic=1"),
        *(
            "-chardev",
            f"pty,id=console,logfile={_escaped(folder / 'console.log')}",
            "-serial",
            "chardev:console",
        ),
        *(
            "-drive",
            f"file={_escaped(disk)},format=raw,if=none,id=disk",
            "-device",
            "virtio-blk-pci,drive=disk",
        ),
        *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"),
        *("-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"),
        *(stick if hardware.stick else ()),
    ]


def _escaped(path: Path) -> str:
    """Return a path for an option of QEMU, where a comma is written twice."""
    return str(path).replace(",", ",,")


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port
