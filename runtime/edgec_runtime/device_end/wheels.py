"""Unpacks wheels beside an application's slots, so that the device needs no pip and
nothing is installed.

    ~/.edgec/<app>/site/<sha256>/    the files of one wheel, wheel.json with the hash of each, and
                                     wheel.sig with the signature
    ~/.edgec/<app>/site/active.json  the wheels in use; one rename replaces it, after the new ones
                                     were imported together

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from edgec_runtime.device_end.disk import (
    Refused,
    digest,
    make_folder,
    opened,
    replace,
    sync_all,
)
from edgec_runtime.device_end.programs import environment
from edgec_runtime.device_end.reception import App
from edgec_runtime.device_end.trust import MAX_SIGNATURE_BYTES, Untrusted, check_wheel

if TYPE_CHECKING:
    import zipfile

MAX_UNPACKED_BYTES = 1 << 30
MAX_WHEEL_FILES = 1 << 14
MAX_LIST_BYTES = 8 << 20
TRY_S = 120.0
LIST = "wheel.json"
SIGNATURE = "wheel.sig"
ACTIVE = "active.json"
Execute = Callable[..., "subprocess.CompletedProcess[bytes]"]

_BLOCK = 1 << 20
_PACKED = (0, 8)  # stored, deflated: other methods may need any amount of memory
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PART = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9_.+@~() ,=-]+"
_MEMBER = re.compile(rf"{_PART}(?:/{_PART})*")


class WheelSite:
    """The wheels of one application."""

    def __init__(self, app: App, execute: Execute = subprocess.run) -> None:
        self.app = app
        self.disk = app.disk
        self.execute = execute

    def there(self) -> List[str]:
        """Return the sha256 of the usable wheels.

        They are undamaged, and signed if the device has a key.
        """
        folder = self.app.at("site")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        return [n for n in names if _SHA256.fullmatch(n) and self._usable(n)]

    def active(self) -> List[str]:
        """Return the sha256 of the wheels in use."""
        try:
            with opened(self.app.at("site", ACTIVE), MAX_LIST_BYTES) as f:
                return [
                    n for n in json.loads(f.read().decode()) if _SHA256.fullmatch(n)
                ]
        except (OSError, ValueError, TypeError, RecursionError):
            return []

    def _usable(self, name: str) -> bool:
        try:
            self.environment([name])
        except Refused:
            return False
        return True

    def _files(self, name: str) -> Optional[Dict[str, str]]:
        """Return the sha256 of each file of a wheel; None if its folder differs."""
        folder = self.app.at("site", name)
        try:
            with opened(os.path.join(folder, LIST), MAX_LIST_BYTES) as f:
                files: Dict[str, str] = json.loads(f.read().decode())
            sizes = _file_sizes(folder)
            if sizes is None:
                return None
            # This is before any file is read: hashing a huge one would take minutes.
            most = MAX_UNPACKED_BYTES + MAX_LIST_BYTES + MAX_SIGNATURE_BYTES
            if sum(sizes.values()) > most:
                return None
            for name, sha256 in files.items():
                is_member = _MEMBER.fullmatch(name)
                if not is_member or digest(os.path.join(folder, name)) != sha256:
                    return None
            return files if {*sizes} - {SIGNATURE} == {LIST, *files} else None
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return None

    def environment(self, wheels: List[str]) -> Dict[str, str]:
        """Return the environment of a Python with these wheels.

        With a key on the device every byte of them is compared with the signed hashes.

        Raises:
            Refused: a wheel is damaged, or not signed
        """
        keys = self.app.trusted()
        for name in wheels:
            files = self._files(name)
            if files is None:
                raise Refused(
                    "device",
                    f"a wheel of {self.app.name} is damaged",
                    "edgec flash --with-runtime",
                )
            if keys:
                self._vouch(files, self._signature(name))
        paths = os.pathsep.join(self.app.at("site", name) for name in wheels)
        # Python must write no .pyc: a folder has to have exactly the files of its list.
        return {
            **environment(bool(keys)),
            "PYTHONPATH": paths,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
        }

    def _signature(self, name: str) -> bytes:
        try:
            with opened(self.app.at("site", name, SIGNATURE)) as f:
                return f.read(MAX_SIGNATURE_BYTES)
        except OSError:
            return b""

    def _vouch(self, files: Dict[str, str], signature: bytes) -> None:
        keys = self.app.trusted()
        try:
            if keys:
                check_wheel(files, signature, keys)
        except Untrusted as e:
            raise Refused("input", e.what, e.hint) from e

    def unpack(self, signature: bytes) -> str:
        """Unpack the sent wheel, without using it yet; return its sha256.

        Args:
            signature: the text of its signature file, which may be empty
        """
        import zipfile

        plan = self.app.plan
        if plan is None:
            raise Refused("device", "no wheel was announced", "flash again")
        new = self.app.at("new")
        self.disk.remove(new)
        make_folder(self.disk, new)
        wheel = os.path.join(new, "wheel")
        self.app.assemble(plan, wheel)
        files = os.path.join(new, "files")
        try:
            with zipfile.ZipFile(wheel) as archive:
                self._vouch(self._extract(archive, files), signature)
        except (
            zipfile.BadZipFile,
            RuntimeError,
            ValueError,
            EOFError,
            zlib.error,
        ) as e:
            self.disk.remove(new)
            raise Refused(
                "input", f"the wheel is damaged: {e}", "download it again"
            ) from e
        except BaseException:
            with contextlib.suppress(OSError):
                self.disk.remove(new)
            raise
        if signature:
            self.disk.write(os.path.join(files, SIGNATURE), 0, signature)
        sync_all(self.disk, new)
        destination = self.app.at("site", plan.sha256)
        make_folder(self.disk, self.app.at("site"))
        self.disk.remove(destination)
        self.disk.rename(files, destination)
        self.disk.sync(self.app.at("site"))
        self.disk.remove(new)
        self.disk.remove(self.app.at("incoming"))
        self.app.plan = None
        return str(plan.sha256)

    def _extract(self, archive: zipfile.ZipFile, folder: str) -> Dict[str, str]:
        """Unpack a wheel; return the sha256 of each of its files."""
        entries = [e for e in archive.infolist() if not e.filename.endswith("/")]
        for e in entries:
            if not _is_safe_member(e):
                raise Refused(
                    "input",
                    f"the wheel has an unsafe file: {e.filename!r:.80}",
                    "do not use this wheel",
                )

        # These are the stated sizes; the reader of the zip extracts no more than them.
        total = sum(e.file_size for e in entries)
        if len(entries) > MAX_WHEEL_FILES or total > MAX_UNPACKED_BYTES:
            raise Refused(
                "input",
                "the wheel unpacks to more than a wheel should",
                "do not use this wheel",
            )

        free = shutil.disk_usage(self.app.path).free
        if total > free:
            what = (
                f"{self.app.path} has {free / 1e6:.1f} MB free, "
                f"{total / 1e6:.1f} MB are needed"
            )
            raise Refused("device", what, "free some space on the device: df -h ~")
        make_folder(self.disk, folder, durable=False)
        hashes = {}
        for e in entries:
            path = os.path.join(folder, e.filename)
            self._unpack_file(archive, e, path)

            # Hashing the written file shows a fault of the disk now, not at the next use.
            hashes[e.filename] = digest(path)
        self.disk.write(os.path.join(folder, LIST), 0, json.dumps(hashes).encode())
        return hashes

    def _unpack_file(
        self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: str
    ) -> None:
        """Write a file of a wheel to a path."""
        make_folder(self.disk, os.path.dirname(path), durable=False)
        self.disk.write(path, 0, b"")
        offset = 0
        # `open` reads no more than the size that was checked, and checks the CRC.
        with archive.open(entry) as f:
            for block in iter(lambda: f.read(_BLOCK), b""):
                self.disk.write(path, offset, block)
                offset += len(block)

    def adopt(self, wheels: List[str]) -> str:
        """Put wheels in use if the runtime can be imported with them.

        Return the version of the runtime. After a refusal the former wheels stay in use.
        """
        _check_list(wheels)
        try:
            version = self._try(wheels)
        except Refused:
            self._remove_others(self.active())
            raise
        replace(self.disk, self.app.at("site", ACTIVE), json.dumps(wheels).encode())
        self._remove_others(wheels)
        return version

    def run(
        self, wheels: List[str], words: List[str], limit: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run Python with some wheels.

        Args:
            wheels: their hashes
            words: its command line
            limit: in seconds

        Raises:
            Refused: a wheel is damaged or not signed, or it takes longer
        """
        try:
            # Modules in the working directory are imported before those of the wheels;
            # only root can put some into /.
            return self.execute(
                [sys.executable, *words],
                cwd="/",
                env=self.environment(wheels),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            raise Refused(
                "device", "the runtime could not be imported in time", "try again"
            ) from None

    def _try(self, wheels: List[str]) -> str:
        program = "import edgec_runtime as e; e.Session; print(e.__version__)"
        process = self.run(wheels, ["-c", program], TRY_S)
        if process.returncode:
            lines = process.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"status {process.returncode}"
            hint = (
                "sudo apt-get install python3-numpy on the device, "
                "or give wheels for it with --wheel"
            )
            raise Refused(
                "device",
                f"the runtime cannot be imported with these wheels: {reason[:300]}",
                hint,
            )
        return process.stdout.decode(errors="replace").strip()

    def _remove_others(self, wheels: List[str]) -> None:
        folder = self.app.at("site")
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if _SHA256.fullmatch(name) and name not in wheels:
                self.disk.remove(os.path.join(folder, name))


def _file_sizes(folder: str) -> Optional[Dict[str, int]]:
    """Return the bytes of every file below a folder; None if there is a link."""
    sizes: Dict[str, int] = {}
    for below, folders, names in os.walk(folder):
        if any(os.path.islink(os.path.join(below, n)) for n in (*folders, *names)):
            return None
        for name in names:
            path = os.path.join(below, name)
            sizes[os.path.relpath(path, folder)] = os.path.getsize(path)
    return sizes


def _is_safe_member(entry: zipfile.ZipInfo) -> bool:
    """Return whether an entry of a wheel is a plain file with a safe name."""
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if entry.compress_type not in _PACKED or kind not in (0, stat.S_IFREG):
        return False
    # The list and its signature are written here, and must not come from the wheel.
    name = entry.filename
    return _MEMBER.fullmatch(name) is not None and name not in (LIST, SIGNATURE)


def _check_list(wheels: Any) -> None:
    """Raise Refused unless `wheels` is a list of one or more sha256."""
    is_valid = (
        isinstance(wheels, list)
        and wheels
        and all(isinstance(n, str) and _SHA256.fullmatch(n) for n in wheels)
    )
    if not is_valid:
        raise Refused("input", "the list of wheels is impossible", "flash again")
