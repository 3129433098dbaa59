"""Reads a bundle on a device: its manifest, and the files that the machine executes
(docs/bundle.md).

This is part of the device end, see wire.py; the runtime has the same limits
(edgec_runtime/bundle/).
"""

from __future__ import annotations

import json
import os
import platform
import re
import stat
import struct
from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Tuple, Type

from edgec_runtime.device_end.disk import Disk, Refused, make_folder
from edgec_runtime.device_end.elf import fault as elf_fault

if TYPE_CHECKING:
    # Elsewhere it is imported by the functions that need it, since the import takes a
    # slow board long.
    import zipfile

MODEL = "model.edgec"
MANIFEST = "manifest.json"
# beside the program, which looks for it there (csrc/program_weights.h)
WEIGHTS_FILE = "weights.bin"
# the programs for a stick, in the bundle; beside the program without its folder, which
# looks for it there (csrc/program_stick.h)
EDGETPU_FILE = "segments/edgetpu.bin"
MAX_BUNDLE_BYTES = 2 << 30
MAX_FILES = 4096
MAX_MANIFEST_BYTES = 16 << 20
MAX_NAME = 240

_MEMBER = re.compile(
    r"[A-Za-z0-9_+@-][A-Za-z0-9_.+@-]*(/[A-Za-z0-9_+@-][A-Za-z0-9_.+@-]*)*"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 20
_DAMAGED = (
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    IndexError,
    RuntimeError,
    EOFError,
    struct.error,
    MemoryError,
    OverflowError,
)


def safe_name(name: str) -> bool:
    """Return whether a name is allowed in a bundle: a plain relative path inside it."""
    return len(name) <= MAX_NAME and _MEMBER.fullmatch(name) is not None


def machine_target() -> str:
    """Return the target whose libraries this process can load, e.g. "linux-aarch64".

    The size of a pointer decides, since a 64-bit kernel may run a 32-bit process.
    """
    machine = platform.machine().lower()
    bits = struct.calcsize("P") * 8
    if machine in ("aarch64", "arm64") or machine.startswith("armv"):
        machine = "aarch64" if bits == 64 else "armv7"
    elif machine in ("amd64", "x86_64", "x86-64"):
        machine = "x86_64" if bits == 64 else "i686"
    return f"{platform.system().lower()}-{machine}"


class Executed(NamedTuple):
    """A file of a bundle for this machine to execute or load.

    Attributes:
        source: its path in the bundle
        sha256: its hash by the manifest
        bytes: its size by the manifest
        code: whether it is code
        library: whether that is a library
    """

    source: str
    sha256: str
    bytes: int
    code: bool
    library: bool


def program_path() -> str:
    """Return the path in a slot of the program for this machine."""
    return f"bin/{machine_target()}/main"


def executed(manifest: Dict[str, Any]) -> Dict[str, Executed]:
    """Return the files that this machine executes, by their paths in a slot.

    Raises the errors of `trouble` for a damaged manifest.
    """
    target = machine_target()
    sources = {
        key: (manifest[key][target], path)
        for key, path in (
            ("programs", program_path()),
            ("libraries", f"lib/{target}/libmodel.so"),
            ("weights", f"bin/{target}/{WEIGHTS_FILE}"),
        )
        if target in manifest.get(key, {})
    }
    if "programs" in sources and EDGETPU_FILE in manifest["files"]:
        beside = f"bin/{target}/{os.path.basename(EDGETPU_FILE)}"
        sources["edgetpu"] = EDGETPU_FILE, beside
    files = {}
    for key, (source, path) in sources.items():
        if manifest["files"][source].get("detached"):
            continue
        sha256 = manifest["files"][source]["sha256"]
        size = manifest["files"][source]["bytes"]
        if not _SHA256.fullmatch(sha256):
            raise ValueError(f"{sha256!r:.80} is not a sha256")
        is_code = key in ("programs", "libraries")
        files[path] = Executed(source, sha256, size, is_code, key == "libraries")
    return files


def manifest_text(archive: zipfile.ZipFile) -> bytes:
    """Return the manifest of a bundle.

    Raises:
        Refused: an entry is not a plain file, stored in the bundle
    """
    entries = archive.infolist()
    size = os.fstat(archive.fp.fileno()).st_size if archive.fp else 0
    for e in entries:
        if not _is_plain_entry(e, size):
            raise Refused(
                "bundle",
                f"the bundle has an unsafe file: {e.filename!r:.80}",
                "do not use this bundle",
            )
    total = sum(e.file_size for e in entries)
    if (
        len(entries) > MAX_FILES
        or total > size
        or archive.getinfo(MANIFEST).file_size > MAX_MANIFEST_BYTES
    ):
        raise Refused(
            "bundle",
            "the bundle claims to hold more than it can",
            "do not use this bundle",
        )
    return archive.read(MANIFEST)


def _is_plain_entry(entry: zipfile.ZipInfo, size: int) -> bool:
    """Return whether an entry is a plain file with a safe name, stored as it is.

    Args:
        entry: the entry
        size: bytes of the bundle
    """
    import zipfile

    kind = stat.S_IFMT(entry.external_attr >> 16)
    is_encrypted = entry.flag_bits & 1
    if kind not in (0, stat.S_IFREG) or is_encrypted:
        return False
    # A stored entry can be read in place, and does not grow when it is read.
    if entry.compress_type != zipfile.ZIP_STORED:
        return False
    is_inside = entry.file_size == entry.compress_size <= size
    return is_inside and safe_name(entry.filename)


def parse(text: bytes) -> Dict[str, Any]:
    """Return the manifest in a text.

    Raises:
        ValueError: the text is not an object of JSON
    """
    manifest = json.loads(text.decode())
    if not isinstance(manifest, dict):
        raise ValueError("the manifest is not an object")
    return manifest


def damaged(error: Exception) -> Refused:
    """Return the refusal for an exception while a bundle is read."""
    return Refused(
        "bundle", f"the bundle is damaged: {error!r:.200}", "compile the model again"
    )


def trouble() -> Tuple[Type[Exception], ...]:
    """Return the exceptions that reading a damaged bundle can raise."""
    import zipfile

    return (zipfile.BadZipFile, *_DAMAGED)


def unpack(
    disk: Disk, archive: zipfile.ZipFile, manifest: Dict[str, Any], folder: str
) -> Dict[str, str]:
    """Unpack the files that this machine executes; return the sha256 of each path.

    Args:
        disk: writes the files
        archive: the bundle
        manifest: its manifest
        folder: where they go

    Raises:
        Refused: the code is for another machine, or there is none for this one
    """
    target = machine_target()
    files = {}
    for path, file in executed(manifest).items():
        destination = os.path.join(folder, path)
        _unpack_file(disk, archive, file, destination)

        # A loader would crash on such a file, not refuse it.
        fault = elf_fault(destination, target, file.library) if file.code else None
        if fault:
            hint = "compile it with the --target of this board"
            raise Refused("bundle", f'"{file.source}" {fault}', hint)
        files[path] = file.sha256

    if manifest.get("cascade"):
        _check_networks(archive, manifest, target)
    elif not any(file.code for file in executed(manifest).values()):
        raise _no_code(manifest, target)
    return files


def _check_networks(
    archive: zipfile.ZipFile, manifest: Dict[str, Any], target: str
) -> None:
    """Raise Refused unless each network of a cascade has code for a target.

    The networks stay in the bundle, from which the runtime loads them.
    """
    import zipfile

    for name in sorted(manifest["files"]):
        with archive.open(name) as file, zipfile.ZipFile(file) as network:
            inner = parse(network.read(MANIFEST))
        library = inner.get("libraries", {}).get(target)
        if library is None or inner["files"][library].get("detached"):
            raise _no_code(inner, target)


def _unpack_file(
    disk: Disk, archive: zipfile.ZipFile, file: Executed, path: str
) -> None:
    """Write a file of a bundle to a path."""
    make_folder(disk, os.path.dirname(path), durable=False)
    mode = 0o755 if file.code else 0o644
    offset = 0
    with archive.open(file.source) as f:
        for block in iter(lambda: f.read(_BLOCK), b""):
            disk.write(path, offset, block, mode)
            offset += len(block)
    # An empty file has no block.
    if not offset:
        disk.write(path, 0, b"")


def _no_code(manifest: Dict[str, Any], target: str) -> Refused:
    """Return the refusal of a bundle without code for a target."""
    code = {**manifest["programs"], **manifest["libraries"]}
    targets = sorted(t for t in code if not manifest["files"][code[t]].get("detached"))
    names = ", ".join(targets) or "none"
    return Refused(
        "bundle",
        f"the bundle has no code for {target}; it has {names}",
        "compile it with the --target of this board; "
        "for a 32-bit system with --also armv7",
    )
