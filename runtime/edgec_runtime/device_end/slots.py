"""Manages an application's folder on a device: two slots, and a link to the active one
(docs/protocol.md).

    ~/.edgec/<app>/current -> a       the link; one rename changes it, after the whole slot is
                                      on the disk
    ~/.edgec/<app>/{a,b}/model.edgec  the bundle of a slot; beside it slot.json,
                                      bin/<target>/{main,weights.bin},
                                      lib/<target>/libmodel.so
    ~/.edgec/<app>/try/               a version that may become a slot, with the same files
    ~/.edgec/<app>/{a,b}.old/         the former content of a slot during a switch; an empty
                                      folder if the slot was empty
    ~/.edgec/<app>/counter            the highest counter of a signed version that was active
                                      (trust.py)

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from typing import Any, Dict, List, NamedTuple, Optional, get_type_hints

from edgec_runtime.device_end.bundles import (
    MAX_BUNDLE_BYTES,
    MODEL,
    Executed,
    executed,
    manifest_text,
    parse,
    program_path,
    trouble,
)
from edgec_runtime.device_end.bundles import machine_target as machine_target
from edgec_runtime.device_end.disk import (
    Disk,
    Refused,
    digest,
    keep_to_ourselves,
    make_folder,
    opened,
    plain,
    replace,
)
from edgec_runtime.device_end.requests import AppFacts, SlotFacts, decode
from edgec_runtime.device_end.trust import (
    FOLDER,
    Key,
    Signature,
    Untrusted,
    check,
    trusted,
)

SLOTS = ("a", "b")
SCRATCH = "try"
STATE = "slot.json"
COUNTER = "counter"
MAX_STATE_BYTES = 4 << 20

_APP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,63}")


def _slot_facts(state: Dict[str, Any]) -> SlotFacts:
    """Return the facts in slot.json for `edgec status`; a value of a wrong type is None."""
    facts = {}
    for name, kind in get_type_hints(SlotFacts).items():
        with contextlib.suppress(ValueError):
            facts[name] = decode(state.get(name), kind)
    return SlotFacts(**facts)


class Slot(NamedTuple):
    """The content of a slot: slot.json, the manifest, and its signature if required."""

    state: Dict[str, Any]
    manifest: Dict[str, Any]
    signature: Optional[Signature]


class Slots:
    """One application's folder.

    All code is compared with its bundle's manifest right before it is executed.
    """

    def __init__(self, root: str, name: str, disk: Disk) -> None:
        check_name(name)
        self.name = name
        self.root = root
        self.path = os.path.join(root, name)
        self.disk = disk
        self._lock: Optional[int] = None

    def at(self, *parts: str) -> str:
        """Return a path in the folder."""
        return os.path.join(self.path, *parts)

    def lock(self, make: bool = True) -> None:
        """Lock the folder for one host until close(), and repair it.

        Args:
            make: whether to make the folder if there is none
        """
        import fcntl  # here, because the host imports this file on other systems too

        if self._lock is None:
            if make:
                make_folder(self.disk, self.path)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

            # The kernel frees the lock of a process that dies.
            fd = os.open(self.at("lock"), flags, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                raise Refused(
                    "device",
                    f"somebody else is flashing {self.name}",
                    "wait a minute, try again",
                ) from None
            self._lock = fd
            self.recover()

    def close(self) -> None:
        """Unlock the application for others."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---- the content

    def active(self) -> Optional[str]:
        """Return the slot to which `current` points; None if there is none."""
        try:
            slot = os.readlink(self.at("current"))
        except OSError:
            return None
        return slot if slot in SLOTS else None

    def inactive(self) -> str:
        """Return the slot that is not active."""
        return SLOTS[self.active() == SLOTS[0]]

    def whole(self, slot: str) -> Optional[Dict[str, Any]]:
        """Return slot.json if the slot has every byte of its bundle and code; else None."""
        try:
            return self._read(slot, vouch=False).state
        except Refused:
            return None

    def verified(self, slot: str) -> Slot:
        """Return the content of a slot, after every byte and the signature are verified.

        A signature is required if the device has a key.

        Raises Refused, also for a bundle that was flashed before the key was trusted.
        """
        _check_slot(slot)
        return self._read(slot, vouch=True)

    def program(self, slot: str) -> List[str]:
        """Return the command line of a slot's program, after the slot is verified.

        It includes the hash of the graph, which the program compares with its own.
        """
        manifest = self.verified(slot).manifest
        if manifest.get("cascade"):
            raise Refused(
                "bundle",
                "a cascade has no program of its own",
                "show it: edgec webcam BUNDLE --on DEVICE",
            )
        if program_path() not in executed(manifest):
            raise Refused(
                "bundle",
                f"the bundle has no program for {machine_target()}",
                "compile it for this board",
            )
        return [self.at(slot, program_path()), *_graph(manifest)]

    def _read(self, slot: str, vouch: bool) -> Slot:
        import zipfile

        model = self.at(slot, MODEL)
        signature = None
        damaged = Refused(
            "device", f"slot {slot} of {self.name} is empty or damaged", "edgec flash"
        )
        if not (
            plain(self.at(slot), folder=True)
            and plain(model)
            and plain(self.at(slot, STATE))
        ):
            raise damaged
        try:
            state = self.state(slot)
            if (
                os.path.getsize(model) > MAX_BUNDLE_BYTES
                or digest(model) != state["sha256"]
            ):
                raise damaged
            with zipfile.ZipFile(model) as archive:
                text = manifest_text(archive)
                manifest = parse(text)
                if vouch:
                    signature = self.vouch(archive, text, manifest)
            files = executed(manifest)
        except trouble() as e:
            raise damaged from e
        except OSError as e:
            raise damaged from e
        if self._differs(slot, files):
            raise damaged
        return Slot(state, manifest, signature)

    def _differs(self, slot: str, files: Dict[str, Executed]) -> bool:
        """Return whether bin/ and lib/ differ from the files of the manifest.

        Args:
            slot: the slot
            files: the files of the manifest, by their paths in the slot
        """
        present: List[str] = []
        for top in ("bin", "lib"):
            if os.path.islink(self.at(slot, top)):
                return True
            for folder, folders, names in os.walk(self.at(slot, top)):
                paths = [os.path.join(folder, n) for n in (*names, *folders)]
                if any(os.path.islink(p) for p in paths):
                    return True
                present += [
                    os.path.relpath(os.path.join(folder, n), self.at(slot))
                    for n in names
                ]
        if sorted(present) != sorted(files):
            return True
        return not all(_has_content(self.at(slot, p), f) for p, f in files.items())

    def state(self, slot: str) -> Dict[str, Any]:
        """Return the object in slot.json.

        It is not trusted: callers rely on it only as far as hashes confirm it.

        Raises OSError or ValueError if it cannot be read.
        """
        with opened(self.at(slot, STATE), MAX_STATE_BYTES) as f:
            state = json.loads(f.read().decode())
        if not isinstance(state, dict):
            raise ValueError("slot.json is not an object")
        return state

    def status(self) -> AppFacts:
        """Return the state of both slots for `edgec status`."""
        slots: Dict[str, Optional[SlotFacts]] = {}
        for slot in SLOTS:
            if os.path.lexists(self.at(slot)):
                state = self.whole(slot)
                slots[slot] = _slot_facts(state) if state else None
        return AppFacts(self.name, self.active(), slots)

    # ---- signatures

    def trusted(self) -> List[Key]:
        """Return the trusted keys of the device.

        A device with a key executes only signed code.
        """
        try:
            return trusted(self.root)
        except Untrusted as e:
            raise Refused("device", e.what, e.hint) from e

    def vouch(
        self, archive: Any, text: bytes, manifest: Dict[str, Any]
    ) -> Optional[Signature]:
        """Verify and return the signature of a bundle; None if the device has no key.

        Args:
            archive: the opened bundle
            text: the bytes of its manifest
            manifest: the parsed manifest

        Raises:
            Refused: it is not signed with a trusted key
        """
        keys = self.trusted()
        try:
            return check(archive, text, manifest, keys, self.name) if keys else None
        except Untrusted as e:
            raise Refused("bundle", e.what, e.hint) from e

    def check_age(self, signature: Optional[Signature], downgrade: bool) -> None:
        """Refuse a signed bundle older than a formerly active one.

        Args:
            downgrade: whether it may be older
        """
        if (
            signature is not None
            and not downgrade
            and signature.counter < self._newest()
        ):
            what = (
                f"the bundle's counter is {signature.counter}, "
                "and "
                f"{self._newest()} "
                "was active here: it is older"
            )
            raise Refused(
                "bundle",
                what,
                "edgec rollback goes back one version; or flash with --allow-downgrade",
            )

    def _newest(self) -> int:
        """Return the highest counter of a version that was active."""
        with contextlib.suppress(OSError, ValueError):
            with opened(self.at(COUNTER)) as f:
                number, crc = f.read(100).decode("ascii").split()
            if crc == _crc(number):
                return int(number)

        # The counter's file is damaged or missing: the slots are the next best record.
        counters = [0]
        for slot in SLOTS:
            with contextlib.suppress(Refused):
                signature = self.verified(slot).signature
                counters.append(signature.counter if signature else 0)
        return max(counters)

    # ---- the switch

    def activate(self, downgrade: bool = False) -> str:
        """Make the version in `try` a slot, and the active one; return the slot.

        The version before stays in the other slot. After an interruption at any point
        recover() undoes or finishes it.
        """
        self.recover()
        signature = self.verified(SCRATCH).signature
        self.check_age(signature, downgrade)
        slot = self._destination()
        old = self.at(f"{slot}.old")
        try:
            if signature is not None and (
                downgrade or signature.counter > self._newest()
            ):
                number = str(signature.counter)
                replace(
                    self.disk, self.at(COUNTER), f"{number} {_crc(number)}\n".encode()
                )
            if os.path.lexists(self.at(slot)):
                self.disk.rename(self.at(slot), old)
            else:
                self.disk.mkdir(old)
            self.disk.sync(self.path)
            self.disk.rename(self.at(SCRATCH), self.at(slot))
            self.disk.sync(self.path)
            self._point(slot)
            self.disk.remove(old)
            self.disk.sync(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                self.recover()
            raise
        return slot

    def _destination(self) -> str:
        """Return the slot for the next version, which is never the only whole one."""
        active = self.active()
        if active is None:
            return next((s for s in SLOTS if self.whole(s) is None), SLOTS[0])
        damaged = self.whole(active) is None and self.whole(self.inactive()) is not None
        return active if damaged else self.inactive()

    def _point(self, slot: str) -> None:
        if self.active() == slot:
            return
        aside = self.at("current.new")
        self.disk.remove(aside)
        # A folder was not made by the device end, and no link could replace it.
        if plain(self.at("current"), folder=True):
            self.disk.remove(self.at("current"))
        self.disk.link(slot, aside)
        self.disk.rename(aside, self.at("current"))
        self.disk.sync(self.path)

    def rollback(self) -> str:
        """Make the other slot the active one again."""
        self.recover()
        slot = self.inactive()
        if self.active() is None or self.whole(slot) is None:
            raise Refused(
                "input",
                f"{self.name} has no whole earlier version to go back to",
                "flash another version first; edgec status --on DEVICE shows both slots",
            )
        self.verified(slot)
        self._point(slot)
        return slot

    def discard(self) -> None:
        """Discard the version in `try`."""
        self.disk.remove(self.at(SCRATCH))

    def recover(self) -> None:
        """Repair the folder after an interruption.

        A switch visible in `current` is finished, any other undone. A folder in order
        is not changed.
        """
        for slot in SLOTS:
            if os.path.lexists(self.at(f"{slot}.old")):
                if slot == self.active() and self.whole(slot):
                    self._finish(slot)
                else:
                    self._undo(slot)
                self.disk.sync(self.path)

        # Left by an interruption before the switch; nothing refers to them.
        for name in ("new", "current.new", f"{SCRATCH}.old", f"{COUNTER}.new"):
            if os.path.lexists(self.at(name)):
                self.disk.remove(self.at(name))

        # Files of an earlier version may be writable for others, because of its umask.
        for folder in (*SLOTS, SCRATCH, "site"):
            if plain(self.at(folder), folder=True):
                for below, _, names in os.walk(self.at(folder)):
                    keep_to_ourselves(below, *(os.path.join(below, n) for n in names))
        keep_to_ourselves(self.path)

    def _finish(self, slot: str) -> None:
        """Remove the old content of a slot after a switch.

        If that content is whole and the other slot is damaged, it replaces the other.
        """
        old = f"{slot}.old"
        other = SLOTS[slot == SLOTS[0]]

        # A version to go back to is worth more than an order of slots.
        if self.whole(other) is None and self.whole(old) is not None:
            self.disk.remove(self.at(other))
            self.disk.rename(self.at(old), self.at(other))
        else:
            self.disk.remove(self.at(old))

    def _undo(self, slot: str) -> None:
        """Take the new content out of a slot, and put the old content back."""
        old = self.at(f"{slot}.old")
        if os.path.lexists(self.at(slot)):
            self.disk.remove(self.at(SCRATCH))
            self.disk.rename(self.at(slot), self.at(SCRATCH))

        if os.path.lexists(self.at(f"{slot}.old", STATE)):
            self.disk.rename(old, self.at(slot))
        else:
            self.disk.remove(old)


def _has_content(path: str, file: Executed) -> bool:
    """Return whether a path is a plain file with the content of the manifest."""
    # The size comes first: hashing a sparse file of a terabyte would take hours.
    return (
        plain(path)
        and os.path.getsize(path) == file.bytes
        and digest(path) == file.sha256
    )


def check_name(name: str) -> None:
    """Raise Refused for an impossible name of an application."""
    if not isinstance(name, str) or not _APP.fullmatch(name) or name == FOLDER:
        raise Refused(
            "input",
            f'"{name!s:.80}" cannot be the name of a folder',
            "give another with --app",
        )


def _check_slot(slot: str) -> None:
    if slot not in (*SLOTS, SCRATCH):
        raise Refused("input", f'"{slot!s:.80}" is not a slot', "give a, b or try")


def _graph(manifest: Dict[str, Any]) -> List[str]:
    """Return the options that tell a program the manifest's hash of the graph."""
    graph = manifest.get("graph", "")
    if graph != "" and not (isinstance(graph, str) and graph.isalnum()):
        raise Refused(
            "bundle",
            f"the bundle's graph is {graph!r:.80}, which is not a hash",
            "compile the model again",
        )
    return ["--graph", graph] if graph else []


def _crc(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def recover_all(root: str, disk: Disk) -> None:
    """Repair every application's folder but those in use by a host.

    A folder that cannot be repaired stays as it is.
    """
    keep_to_ourselves(root, os.path.join(root, FOLDER))
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else ():
        with contextlib.suppress(Refused, OSError):
            app = Slots(root, name, disk)
            if plain(app.path, folder=True):
                try:
                    app.lock(make=False)
                finally:
                    app.close()
