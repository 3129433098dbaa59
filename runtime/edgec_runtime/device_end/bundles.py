"""A bundle as the device end reads it: its manifest, and what of it a machine executes
(docs/bundle.md).

This is part of the device end, see wire.py; the runtime has the same limits
(edgec_runtime/bundle.py).
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
    # where it is used otherwise: a slow board takes long to import it, and not every
    # request needs it
    import zipfile

MODEL = "model.edgec"
MANIFEST = "manifest.json"
# beside its program, which looks for it there (csrc/program_weights.h)
WEIGHTS_FILE = "weights.bin"
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
    """Whether a file of a bundle may be called this: relative, plain, within its
    folder.
    """
    return len(name) <= MAX_NAME and _MEMBER.fullmatch(name) is not None


def machine_target() -> str:
    """Whose library this process can load, for example "linux-aarch64"; right for 32
    bits on a 64-bit kernel too.
    """
    machine = platform.machine().lower()
    bits = struct.calcsize("P") * 8
    if machine in ("aarch64", "arm64") or machine.startswith("armv"):
        machine = "aarch64" if bits == 64 else "armv7"
    elif machine in ("amd64", "x86_64", "x86-64"):
        machine = "x86_64" if bits == 64 else "i686"
    return f"{platform.system().lower()}-{machine}"


class Executed(NamedTuple):
    """A file that a machine executes or loads.  source: in the bundle.  sha256, bytes:
    by the manifest.

    library: of code.
    """

    source: str
    sha256: str
    bytes: int
    code: bool
    library: bool


def program_path() -> str:
    """Of the program for this machine, in a slot."""
    return f"bin/{machine_target()}/main"


def executed(manifest: Dict[str, Any]) -> Dict[str, Executed]:
    """What this machine executes of a bundle, by its path in a slot.

    Raises what a damaged manifest gives.
    """
    target = machine_target()
    paths = {"programs": program_path(), "libraries": f"lib/{target}/libmodel.so"}
    paths["weights"] = f"bin/{target}/{WEIGHTS_FILE}"
    found = {}
    for key, path in paths.items():
        if target in manifest.get(key, {}):
            source = manifest[key][target]
            if manifest["files"][source].get("detached"):
                continue
            sha256 = manifest["files"][source]["sha256"]
            size = manifest["files"][source]["bytes"]
            if not _SHA256.fullmatch(sha256):
                raise ValueError(f"{sha256!r:.80} is no sha256")
            found[path] = Executed(
                source, sha256, size, key != "weights", key == "libraries"
            )
    return found


def manifest_text(archive: zipfile.ZipFile) -> bytes:
    """The manifest of a bundle whose entries are all plain, stored and within it.

    Raises Refused otherwise.
    """
    import zipfile

    entries = archive.infolist()
    size = os.fstat(archive.fp.fileno()).st_size if archive.fp else 0
    for e in entries:
        regular = (
            stat.S_IFMT(e.external_attr >> 16) in (0, stat.S_IFREG)
            and not e.flag_bits & 1
        )
        stored = (
            e.compress_type == zipfile.ZIP_STORED
            and e.file_size == e.compress_size <= size
        )
        if not (regular and stored and safe_name(e.filename)):
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


def parse(text: bytes) -> Dict[str, Any]:
    """The manifest of its text.  Raises ValueError for what is none."""
    found = json.loads(text.decode())
    if not isinstance(found, dict):
        raise ValueError("the manifest is not an object")
    return found


def damaged(error: Exception) -> Refused:
    """Of what reading a bundle raised."""
    return Refused(
        "bundle", f"the bundle is damaged: {error!r:.200}", "compile the model again"
    )


def trouble() -> Tuple[Type[Exception], ...]:
    """What reading a damaged bundle raises."""
    import zipfile

    return (zipfile.BadZipFile, *_DAMAGED)


def unpack(
    disk: Disk, archive: zipfile.ZipFile, manifest: Dict[str, Any], folder: str
) -> Dict[str, str]:
    """Unpacks what this machine executes; sha256 by path.

    Raises Refused for code of another machine, or for none.
    """
    target = machine_target()
    files = {}
    for path, what in executed(manifest).items():
        place = os.path.join(folder, path)
        at = 0
        make_folder(disk, os.path.dirname(place), durable=False)
        with archive.open(what.source) as f:
            for block in iter(lambda f=f: f.read(_BLOCK), b""):  # type: ignore[misc]
                disk.write(place, at, block, 0o755 if what.code else 0o644)
                at += len(block)
        if not at:
            disk.write(place, 0, b"")
        fault = elf_fault(place, target, what.library) if what.code else None
        if fault:
            hint = "compile it with the --target of this board"
            raise Refused("bundle", f'"{what.source}" {fault}', hint)
        files[path] = what.sha256
    if not any(what.code for what in executed(manifest).values()):
        code = {**manifest["programs"], **manifest["libraries"]}
        inside = sorted(
            t for t in code if not manifest["files"][code[t]].get("detached")
        )
        what_is = (
            f"the bundle has no code for {target}; it has {', '.join(inside) or 'none'}"
        )
        hint = (
            "compile it with the --target of this board; "
            "for a 32-bit system with --also armv7"
        )
        raise Refused("bundle", what_is, hint)
    return files
