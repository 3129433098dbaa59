"""The initial RAM disk: busybox, the kernel modules that QEMU's devices need, and guest/init."""

from __future__ import annotations

import gzip
import lzma
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from edgec_runtime import ToolError

from .tree import package_files

MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_rng")
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
    """A "newc" archive (kernel: driver-api/early-userspace/buffer-format) of path -> (mode, content), all root's."""
    out = bytearray()
    for number, (path, (mode, data)) in enumerate([*entries.items(), ("TRAILER!!!", (0, b""))], 1):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        out += b"070701" + b"".join(b"%08x" % n for n in fields) + name
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return bytes(out)


def kernel_files(package: Path) -> tuple[bytes, dict[str, bytes]]:
    """The kernel of a Debian kernel package, and its MODULES after those they depend on.  Raises ToolError."""
    kernel, found = b"", {}
    with package_files(package) as members:
        for member, read in members:
            name = PurePosixPath(member.name)
            if member.isfile() and name.name.startswith("vmlinuz-"):
                kernel = read()
            elif member.isfile() and re.search(r"/kernel/.*\.ko(\.xz)?$", member.name):
                data = read()
                found[name.name.split(".")[0].replace("-", "_")] = (
                    lzma.decompress(data) if name.suffix == ".xz" else data
                )
    if not kernel or any(m not in found for m in MODULES[2:]):
        raise ToolError(f"{package.name} has no kernel for QEMU's machine", hint="report it")
    return kernel, ordered(found)


def ordered(found: Mapping[str, bytes]) -> dict[str, bytes]:
    """MODULES and what they depend on, each after its own; by file name.  What is built in is not among `found`."""
    order: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in found and f"{name}.ko" not in order:
            depends = re.search(rb"\0depends=([^\0]*)\0", found[name])
            for other in depends[1].decode().split(",") if depends else ():
                add(other.replace("-", "_"))
            order[f"{name}.ko"] = found[name]

    for name in MODULES:
        add(name)
    return order
