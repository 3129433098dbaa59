"""The initial RAM disk: busybox, the kernel modules that QEMU's devices need, and
guest/init.
"""

from __future__ import annotations

import gzip
import lzma
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgec_runtime import ToolError

from .tree import package_files

MODULES = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_rng",
    "crc32c_generic",
    "ext4",
)
"""What is in some kernels and a module of others."""
USB_MODULES = ("xhci_pci",)
"""The controller that a stick is plugged into."""
NEEDED = ("virtio_net", "virtio_rng")
CAMERA_MODULES = ("vivid", "uvcvideo", "vhci_hcd")
"""A program is a USB camera by USB/IP.

Not a gadget on dummy_hcd: usb_f_uvc is isochronous, which dummy_hcd is not, and
gadgetfs ends a SET_CUR before its program has read it, which stalls the GET_CUR that
follows.
"""
GUEST = Path(__file__).parent / "guest"
_FOLDERS = ("bin", "dev", "proc", "sys", "disk", "modules")


def initramfs(busybox: bytes, modules: Mapping[str, bytes]) -> bytes:
    """A gzipped cpio archive.  modules: files by name, in the order they are loaded in."""
    entries: dict[str, tuple[int, bytes]] = dict.fromkeys(_FOLDERS, (16877, b""))
    entries["init"] = (0o100755, (GUEST / "init").read_bytes())
    entries["bin/busybox"] = (0o100755, busybox)
    for name, data in modules.items():
        entries[f"modules/{name}"] = (0o100644, data)
    entries["modules/order"] = (0o100644, " ".join(modules).encode())
    return gzip.compress(cpio(entries), 6, mtime=0)


def cpio(entries: Mapping[str, tuple[int, bytes]]) -> bytes:
    """A "newc" archive (kernel: driver-api/early-userspace/buffer-format) of path ->
    (mode, content), all root's.
    """
    out = bytearray()
    for number, (path, (mode, data)) in enumerate(
        [*entries.items(), ("TRAILER!!!", (0, b""))], 1
    ):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        out += b"070701" + b"".join(b"%08x" % n for n in fields) + name
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return bytes(out)


@dataclass(frozen=True)
class LinuxKernel:
    """Of a Debian kernel package.  modules: all it has, by name, as files.  version: of
    the folder that they are in.
    """

    image: bytes
    version: str
    modules: Mapping[str, bytes]

    def ordered(self, names: Iterable[str]) -> dict[str, bytes]:
        """Those and what they depend on, each after its own; by file name.

        What is built in is not among them.
        """
        order: dict[str, bytes] = {}

        def add(name: str) -> None:
            if name in self.modules and f"{name}.ko" not in order:
                for other in self.depends(name):
                    add(other)
                order[f"{name}.ko"] = self.modules[name]

        for name in names:
            add(name)
        return order

    def depends(self, name: str) -> list[str]:
        """What a module says that it depends on."""
        match = re.search(rb"\0depends=([^\0]*)\0", self.modules[name])
        if match:
            return [w.replace("-", "_") for w in match[1].decode().split(",") if w]
        return []


def read_kernel(package: Path) -> LinuxKernel:
    """Raises ToolError for a package that is none for QEMU's machine."""
    kernel = b""
    version = ""
    modules = {}
    with package_files(package) as members:
        for member, read in members:
            name = PurePosixPath(member.name)
            if member.isfile() and name.name.startswith("vmlinuz-"):
                kernel = read()
                version = name.name.removeprefix("vmlinuz-")
            elif member.isfile() and re.search(r"/kernel/.*\.ko(\.xz)?$", member.name):
                data = read()
                modules[name.name.split(".")[0].replace("-", "_")] = (
                    lzma.decompress(data) if name.suffix == ".xz" else data
                )
    if not kernel or any(m not in modules for m in NEEDED):
        raise ToolError(
            f"{package.name} has no kernel for QEMU's machine", hint="report it"
        )
    return LinuxKernel(kernel, version, modules)
