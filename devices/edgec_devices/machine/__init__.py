"""Emulates a whole Raspberry Pi: Debian on QEMU with a serial console, sshd and a disk.

The disk survives a power cut.

    with boot(Settings("pi4")) as machine:
        flash(bundle, [machine.ssh_url])

debian.py fetches packages with apt; image.py makes kernel, initial RAM disk and root
file system from them, once; qemu.py starts QEMU; machine.py starts, restarts and ends
machines.
"""

from __future__ import annotations

from .machine import (
    PASSWORD,
    USER,
    Machine,
    MachineState,
    Settings,
    boot,
    find,
    machines,
    start,
)

__all__ = [
    "PASSWORD",
    "USER",
    "Machine",
    "MachineState",
    "Settings",
    "boot",
    "find",
    "machines",
    "start",
]
