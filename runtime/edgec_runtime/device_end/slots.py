"""An application's folder on a device: two slots, a link to the active one, what is under way (docs/protocol.md).

    ~/.edgec/<app>/current -> a            changed by one rename, after everything that it points to is on the disk
    ~/.edgec/<app>/{a,b}/model.edgec       and slot.json, bin/<target>/{main,weights.bin}, lib/<target>/libmodel.so
    ~/.edgec/<app>/try/                    the same, before it becomes a slot, or for a run that changes none
    ~/.edgec/<app>/incoming/<sha256>       parts on their way; what arrived before a cut stays for the next run

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import struct
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from edgec_runtime.device_end.trust import FOLDER, Key, Untrusted, check, trusted

if TYPE_CHECKING:
    import zipfile  # where it is used otherwise: a slow board takes long to import it, and not every request needs it

SLOTS = ("a", "b")
SCRATCH = "try"
MODEL, STATE = "model.edgec", "slot.json"
WEIGHTS_FILE = "weights.bin"  # beside its program, which looks for it there (csrc/program_weights.h)
MAX_BUNDLE_BYTES = 2 << 30
MAX_FILES = 4096
MAX_MANIFEST_BYTES = 16 << 20
MAX_NAME = 240
ELF_MACHINES = {"linux-aarch64": 183, "linux-armv7": 40, "linux-x86_64": 62}

_APP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,63}")
_MEMBER = re.compile(r"[A-Za-z0-9_+@-][A-Za-z0-9_.+@-]*(/[A-Za-z0-9_+@-][A-Za-z0-9_.+@-]*)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 20


def safe_name(name: str) -> bool:
    """Whether a file of a bundle may be called this: relative, plain, within its folder."""
    return len(name) <= MAX_NAME and _MEMBER.fullmatch(name) is not None


class Refused(Exception):
    """What the host is told.  kind: "input", "bundle" or "device", whose errors they are (edgec_runtime/errors.py)."""

    def __init__(self, kind: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.kind, self.what, self.hint = kind, what, hint


def machine_target() -> str:
    """Whose library this process can load, for example "linux-aarch64"; right for 32 bits on a 64-bit kernel too."""
    machine = platform.machine().lower()
    bits = struct.calcsize("P") * 8
    if machine in ("aarch64", "arm64") or machine.startswith("armv"):
        machine = "aarch64" if bits == 64 else "armv7"
    elif machine in ("amd64", "x86_64", "x86-64"):
        machine = "x86_64" if bits == 64 else "i686"
    return f"{platform.system().lower()}-{machine}"


class Disk:
    """Every change of the file system, one method each, so that a test can fail or undo any of them."""

    def mkdir(self, path: str) -> None:
        """With parents; nothing happens where it is there."""
        os.makedirs(path, 0o755, exist_ok=True)

    def write(self, path: str, offset: int, data: bytes, mode: int = 0o644) -> None:
        """Cuts the file at `offset` and adds `data` there.  The file is made if it is missing."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, mode)
        try:
            os.ftruncate(fd, offset)
            os.lseek(fd, offset, os.SEEK_SET)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def sync(self, path: str) -> None:
        """Waits until a file's bytes, or a folder's entries, are on the disk."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            with contextlib.suppress(OSError, AttributeError):  # so that reading back reads the disk, not the memory
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Atomic.  A file or link at `new` is replaced."""
        os.rename(old, new)

    def link(self, target: str, path: str) -> None:
        """A symbolic link."""
        os.symlink(target, path)

    def remove(self, path: str) -> None:
        """A file, link or folder; nothing happens where there is none."""
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)


def read(path: str, offset: int = 0, length: int = MAX_BUNDLE_BYTES) -> Iterator[bytes]:
    """A range of a file in blocks."""
    with open(path, "rb") as f:
        f.seek(offset)
        while length > 0:
            block = f.read(min(length, _BLOCK))
            if not block:
                return
            length -= len(block)
            yield block


def digest(path: str, offset: int = 0, length: int = MAX_BUNDLE_BYTES) -> str:
    """sha256 of a range of a file; of nothing where it cannot be read."""
    found = hashlib.sha256()
    with contextlib.suppress(OSError):
        for block in read(path, offset, length):
            found.update(block)
    return found.hexdigest()


class Part(NamedTuple):
    """A range of the bundle that is to be written."""

    offset: int
    bytes: int
    sha256: str


class Plan:
    """A bundle that is to be written: parts known by their hash, and `glue`, the bytes between and after them."""

    def __init__(self, recipe: Dict[str, Any], glue: bytes) -> None:
        """Raises Refused for a recipe that no host of ours makes."""
        try:
            self.sha256, self.bytes, self.glue = recipe["sha256"], recipe["bytes"], glue
            self.parts = [Part(*p) for p in recipe["parts"]]
            ends = [0, *(p.offset + p.bytes for p in self.parts)]
            numbers = [self.bytes, *(n for p in self.parts for n in p[:2])]
            good = all(type(n) is int and 0 <= n <= MAX_BUNDLE_BYTES for n in numbers)
            good = good and all(_SHA256.fullmatch(s) for s in (self.sha256, *(p.sha256 for p in self.parts)))
            good = good and all(p.offset >= end and p.bytes > 0 for p, end in zip(self.parts, ends))
            good = good and max(ends) <= self.bytes and len(glue) + sum(p.bytes for p in self.parts) == self.bytes
        except (KeyError, TypeError, ValueError):
            good = False
        if not good or len(self.parts) > MAX_FILES:
            raise Refused("bundle", "the list of the bundle's parts is impossible", "compile the model again")
        self.sources: Dict[str, Tuple[str, int]] = {}  # by sha256: a file and an offset where the part is


class App:
    """One application's folder.  All that it reads there is checked by hash before it is used."""

    def __init__(self, root: str, name: str, disk: Disk) -> None:
        if not isinstance(name, str) or not _APP.fullmatch(name) or name == FOLDER:
            raise Refused("input", f'"{name!s:.80}" cannot be the name of a folder', "give another with --app")
        self.name, self.root, self.path, self.disk = name, root, os.path.join(root, name), disk
        self.plan: Optional[Plan] = None
        self._lock: Optional[int] = None

    def at(self, *parts: str) -> str:
        """A path in the folder."""
        return os.path.join(self.path, *parts)

    def lock(self) -> None:
        """One host at a time.  Kept until close()."""
        import fcntl  # here, because the host imports this file on other systems too

        if self._lock is None:
            if not os.path.isdir(self.path):
                self.disk.mkdir(self.path)
                root = os.path.dirname(self.path)
                self.disk.sync(root)
                self.disk.sync(os.path.dirname(root))
            fd = os.open(self.at("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                raise Refused("device", f"somebody else is flashing {self.name}", "wait a minute, try again") from None
            self._lock = fd

    def close(self) -> None:
        """Lets others in."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---- what is there

    def active(self) -> Optional[str]:
        """The slot that `current` points to."""
        try:
            slot = os.readlink(self.at("current"))
        except OSError:
            return None
        return slot if slot in SLOTS else None

    def inactive(self) -> str:
        """The slot that is written next."""
        return SLOTS[self.active() == SLOTS[0]]

    def _state(self, slot: str) -> Dict[str, Any]:
        with open(self.at(slot, STATE), encoding="utf-8") as f:
            state: Dict[str, Any] = json.load(f)
        return state

    def whole(self, slot: str) -> Optional[Dict[str, Any]]:
        """What slot.json says, if every file it lists is there with its hash; else None."""
        try:
            state = self._state(slot)
            files = state["files"]
            if files[MODEL] != state["sha256"]:
                return None
            for name, sha256 in files.items():
                if not safe_name(name) or digest(self.at(slot, name)) != sha256:
                    return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return state

    def program(self, slot: str) -> str:
        """The path of a slot's program for this machine, every byte of the slot checked."""
        self._check(slot)
        name = f"bin/{machine_target()}/main"
        if name not in self._state(slot)["files"]:
            raise Refused("bundle", f"the bundle has no program for {machine_target()}", "compile it for this board")
        return self.at(slot, name)

    def _stock(self) -> Dict[str, Tuple[str, int]]:
        """Where parts of the slots' bundles are, by hash.  Not yet compared with that hash."""
        found: Dict[str, Tuple[str, int]] = {}
        for slot in (*SLOTS, SCRATCH):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                for part in self._state(slot)["parts"]:
                    found[part[2]] = (self.at(slot, MODEL), int(part[0]))
        return found

    # ---- a new bundle

    def begin(self, plan: Plan) -> List[Tuple[int, int, str]]:
        """Gets ready.  Returns what is lacking: index of the part, how much of it is there, and that much's sha256."""
        self.plan = plan
        self._recover()
        self.disk.mkdir(self.at("incoming"))
        wanted = {p.sha256 for p in plan.parts}
        for name in os.listdir(self.at("incoming")):
            if name not in wanted:
                self.disk.remove(self.at("incoming", name))
        stock, lacks, need = self._stock(), [], 0
        for i, part in enumerate(plan.parts):
            if part.sha256 in plan.sources:
                continue
            here = (self.at("incoming", part.sha256), 0)
            plan.sources[part.sha256] = here
            for path, offset in [here, *([stock[part.sha256]] if part.sha256 in stock else [])]:
                if digest(path, offset, part.bytes) == part.sha256:
                    plan.sources[part.sha256] = (path, offset)
                    break
            else:
                there = os.path.getsize(here[0]) if os.path.exists(here[0]) else 0
                there = there if there < part.bytes else 0
                lacks.append((i, there, digest(here[0], 0, there) if there else ""))
                need += part.bytes - there
        self._check_space(need + 2 * plan.bytes)
        return lacks

    def _check_space(self, need: int) -> None:
        room = os.statvfs(self.path)
        free = room.f_bavail * room.f_frsize
        if free < need:
            what = f"{self.path} has {free / 1e6:.1f} MB free, {need / 1e6:.1f} MB are needed"
            raise Refused("device", what, "free some space on the device: df -h ~")

    def _recover(self) -> None:
        """After a cut between the two renames of install(), the slot that was to be replaced is put back."""
        for slot in (*SLOTS, SCRATCH):
            if os.path.isdir(self.at(f"{slot}.old")) and not os.path.exists(self.at(slot)):
                self.disk.rename(self.at(f"{slot}.old"), self.at(slot))
            self.disk.remove(self.at(f"{slot}.old"))
        self.disk.remove(self.at("new"))

    def put(self, index: int, offset: int, data: bytes) -> None:
        """Adds a piece to a part that is lacking."""
        part = self.plan.parts[index] if self.plan and 0 <= index < len(self.plan.parts) else None
        if part is None or self.plan is None or offset < 0 or offset + len(data) > part.bytes:
            raise Refused("device", f"a piece came for no part ({index}, {offset})", "flash again")
        path, _ = self.plan.sources[part.sha256]
        there = os.path.getsize(path) if os.path.exists(path) else 0
        if path != self.at("incoming", part.sha256) or offset > there:
            raise Refused("device", f"a piece of part {index} came at {offset}, not {there}", "flash again")
        self.disk.write(path, offset, data)

    def install(self) -> None:
        """Writes the bundle to `try`, where it can be run.  Neither slot changes."""
        plan = self.plan
        if plan is None:
            raise Refused("device", "no bundle was announced", "flash again")
        new = self.at("new")
        self.disk.remove(new)
        self.disk.mkdir(new)
        self.assemble(plan, os.path.join(new, MODEL))
        name, files = self._extract(new)
        state = {"sha256": plan.sha256, "name": name, "bytes": plan.bytes, "parts": plan.parts}
        state.update(target=machine_target(), files={MODEL: plan.sha256, **files}, installed=int(time.time()))
        self.disk.write(os.path.join(new, STATE), 0, json.dumps(state, indent=1).encode())
        for folder, _, names in os.walk(new, topdown=False):
            for file in names:
                self.disk.sync(os.path.join(folder, file))
            self.disk.sync(folder)
        if self.whole("new") is None:
            raise Refused("device", "the disk gave back other bytes than were written", "check the SD card")
        self._move(new, SCRATCH)
        self.disk.remove(self.at("incoming"))
        self.plan = None

    def _move(self, source: str, slot: str) -> None:
        """Puts a folder that is on the disk in a slot's place."""
        if os.path.lexists(self.at(slot)):
            self.disk.rename(self.at(slot), self.at(f"{slot}.old"))
        self.disk.rename(source, self.at(slot))
        self.disk.sync(self.path)
        self.disk.remove(self.at(f"{slot}.old"))

    def assemble(self, plan: Plan, path: str) -> None:
        """Writes the parts and the glue to a file, whose sha256 is then checked."""
        at = used = 0
        for part in [*plan.parts, Part(plan.bytes, 0, "")]:
            between = part.offset - at
            self.disk.write(path, at, plan.glue[used : used + between])
            at, used = at + between, used + between
            if part.bytes:
                source, offset = plan.sources[part.sha256]
                with contextlib.suppress(FileNotFoundError):
                    for block in read(source, offset, part.bytes):
                        self.disk.write(path, at, block)
                        at += len(block)
        self.disk.sync(path)
        if digest(path) != plan.sha256:
            self.disk.remove(self.at("incoming"))
            raise Refused("device", "the bundle on the device does not have its sha256", "flash again")

    def _extract(self, folder: str) -> Tuple[str, Dict[str, str]]:
        """Checks the bundle as docs/bundle.md says and unpacks what this machine executes: name, sha256 by path."""
        import zipfile

        try:
            with zipfile.ZipFile(os.path.join(folder, MODEL)) as archive:
                manifest = self._manifest(archive)
                name, target, files = str(manifest["name"]), machine_target(), {}
                code, weights = (f"bin/{target}/main", f"lib/{target}/libmodel.so"), f"bin/{target}/{WEIGHTS_FILE}"
                for key, path in zip(("programs", "libraries", "weights"), (*code, weights)):
                    if target in manifest.get(key, {}):
                        source = manifest[key][target]
                        files[path] = manifest["files"][source]["sha256"]
                        self._unpack(archive, source, os.path.join(folder, path), target if path in code else None)
                there = sorted({*manifest["programs"], *manifest["libraries"]})
        except (zipfile.BadZipFile, KeyError, TypeError, AttributeError, ValueError, NotImplementedError) as e:
            raise Refused("bundle", f"the bundle is damaged: {e!r}", "compile the model again") from e
        if target not in there:
            what = f"the bundle has no code for {target}; it has {', '.join(there) or 'none'}"
            raise Refused("bundle", what, "compile it with the --target of this board")
        return name, files

    def _unpack(self, archive: zipfile.ZipFile, name: str, path: str, target: Optional[str]) -> None:
        """target: what it must be code for, if it is code."""
        self.disk.mkdir(os.path.dirname(path))
        at, head = 0, b""
        with archive.open(name) as f:
            for block in iter(lambda: f.read(_BLOCK), b""):
                head = head or block[:20]
                self.disk.write(path, at, block, 0o755 if target else 0o644)
                at += len(block)
        machine = struct.unpack_from("<H", head.ljust(20, b"\0"), 18)[0]
        if target and (head[:4] != b"\x7fELF" or machine != ELF_MACHINES.get(target, machine)):
            raise Refused("bundle", f'"{name}" is not code for {target}', "compile it with the --target of this board")

    # ---- the switch

    def activate(self) -> str:
        """Makes what is in `try` the inactive slot and that the active one.  Returns it."""
        self._check(SCRATCH)
        slot = self.inactive()
        self._move(self.at(SCRATCH), slot)
        self._switch(slot)
        return slot

    def _check(self, slot: str) -> None:
        if self.whole(slot) is None:
            raise Refused("device", f"slot {slot} of {self.name} is empty or damaged", "edgec flash")
        self.vouch(slot)

    def vouch(self, slot: str) -> None:
        """Refuses a whole slot that nobody signed whom the device trusts: it may be older than that trust."""
        if self.trusted():
            import zipfile

            with zipfile.ZipFile(self.at(slot, MODEL)) as archive:
                self._manifest(archive)

    def trusted(self) -> List[Key]:
        """The keys of the device.  Where there are any, it executes nothing that is not signed."""
        try:
            return trusted(self.root)
        except Untrusted as e:
            raise Refused("device", e.what, e.hint) from e

    def _manifest(self, archive: zipfile.ZipFile) -> Dict[str, Any]:
        """Of a bundle whose entries are plain and, where the device has a key, signed."""
        text = _manifest_text(archive)
        manifest: Dict[str, Any] = json.loads(text.decode())
        keys = self.trusted()
        try:
            if keys:
                check(archive, text, manifest, keys)
        except Untrusted as e:
            raise Refused("bundle", e.what, e.hint) from e
        return manifest

    def _switch(self, slot: str) -> None:
        self._check(slot)
        aside = self.at("current.new")
        self.disk.remove(aside)
        self.disk.link(slot, aside)
        self.disk.rename(aside, self.at("current"))
        self.disk.sync(self.path)

    def rollback(self) -> str:
        """Goes back to the other slot, which is then the active one."""
        slot = self.inactive()
        if self.active() is None or self.whole(slot) is None:
            raise Refused("input", f"{self.name} has no whole earlier version to go back to", "edgec status")
        self._switch(slot)
        return slot

    def discard(self) -> None:
        """Throws away what is in `try`."""
        self.disk.remove(self.at(SCRATCH))

    def status(self) -> Dict[str, Any]:
        """For `edgec status`."""
        slots = {}
        for slot in SLOTS:
            if os.path.lexists(self.at(slot)):
                state = self.whole(slot)
                keys = ("sha256", "name", "bytes", "target", "installed")
                slots[slot] = {k: state.get(k) for k in keys} if state else None
        return {"app": self.name, "active": self.active(), "slots": slots}


def _manifest_text(archive: zipfile.ZipFile) -> bytes:
    """The manifest of a bundle whose entries are all plain, stored and within it."""
    import zipfile

    entries = archive.infolist()
    size = os.fstat(archive.fp.fileno()).st_size if archive.fp else 0
    for e in entries:
        plain = stat.S_IFMT(e.external_attr >> 16) in (0, stat.S_IFREG) and not e.flag_bits & 1
        stored = e.compress_type == zipfile.ZIP_STORED and e.file_size == e.compress_size <= size
        if not (plain and stored and safe_name(e.filename)):
            raise Refused("bundle", f"the bundle has an unsafe file: {e.filename!r:.80}", "do not use this bundle")
    total = sum(e.file_size for e in entries)
    if len(entries) > MAX_FILES or total > size or archive.getinfo("manifest.json").file_size > MAX_MANIFEST_BYTES:
        raise Refused("bundle", "the bundle claims to hold more than it can", "do not use this bundle")
    return archive.read("manifest.json")


TROUBLE = {
    errno.ENOSPC: "free some space on the device: df -h ~",
    errno.EDQUOT: "free some space on the device: quota",
    errno.EROFS: "sudo mount -o remount,rw / on the device; an SD card that failed goes read-only by itself",
    errno.EACCES: "check who owns the folder on the device: ls -ld ~/.edgec",
    errno.EIO: "the disk of the device has errors: dmesg",
}


def refusal(error: OSError) -> Refused:
    """What to tell about a disk that refuses."""
    where = f" ({error.filename})" if error.filename else ""
    hint = TROUBLE.get(error.errno or 0, "look at the device's log: dmesg")
    return Refused("device", f"{error.strerror or error}{where}", hint)
