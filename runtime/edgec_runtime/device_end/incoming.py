"""A bundle on its way into an application's folder: the parts that are lacking, and
what is made of them.

    ~/.edgec/<app>/incoming/<sha256>  parts on their way; what arrived before a cut stays for the
                                      next run
    ~/.edgec/<app>/new/               what is being put together; becomes try/

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from edgec_runtime.device_end.bundles import (
    MAX_BUNDLE_BYTES,
    MAX_FILES,
    MODEL,
    damaged,
    machine_target,
    manifest_text,
    parse,
    trouble,
    unpack,
)
from edgec_runtime.device_end.disk import (
    Disk,
    Refused,
    digest,
    make_folder,
    plain,
    read,
    sync_all,
)
from edgec_runtime.device_end.slots import SCRATCH, SLOTS, STATE, Slots

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Part(NamedTuple):
    """A range of the bundle that is to be written."""

    offset: int
    bytes: int
    sha256: str


class WritePlan:
    """A bundle that is to be written: parts known by their hash, and `glue`, the bytes
    between and after them.
    """

    def __init__(self, recipe: Any, glue: bytes) -> None:
        """Raises Refused for a recipe that no host of ours makes."""
        try:
            self.sha256 = recipe["sha256"]
            self.bytes = recipe["bytes"]
            self.glue = glue
            self.parts = [Part(*p) for p in recipe["parts"]]
            ends = [0, *(p.offset + p.bytes for p in self.parts)]
            numbers = [self.bytes, *(n for p in self.parts for n in p[:2])]
            good = all(type(n) is int and 0 <= n <= MAX_BUNDLE_BYTES for n in numbers)
            good = good and all(
                _SHA256.fullmatch(s)
                for s in (self.sha256, *(p.sha256 for p in self.parts))
            )
            good = good and all(
                p.offset >= end and p.bytes > 0 for p, end in zip(self.parts, ends)
            )
            good = (
                good
                and max(ends) <= self.bytes
                and len(glue) + sum(p.bytes for p in self.parts) == self.bytes
            )
        except (KeyError, TypeError, ValueError):
            good = False
        if not good or len(self.parts) > MAX_FILES:
            raise Refused(
                "bundle",
                "the list of the bundle's parts is impossible",
                "compile the model again",
            )
        # by sha256: a file and an offset where the part is
        self.sources: Dict[str, Tuple[str, int]] = {}


class App(Slots):
    """An application's folder, and what comes into it."""

    def __init__(self, root: str, name: str, disk: Disk) -> None:
        super().__init__(root, name, disk)
        self.plan: Optional[WritePlan] = None

    def _stock(self) -> Dict[str, Tuple[str, int]]:
        """Where parts of the slots' bundles are, by hash.

        Not yet compared with that hash.
        """
        found: Dict[str, Tuple[str, int]] = {}
        for slot in (*SLOTS, SCRATCH):
            with contextlib.suppress(
                OSError, ValueError, KeyError, TypeError, IndexError, RecursionError
            ):
                for offset, _, sha256 in self.state(slot)["parts"]:
                    if type(offset) is int and 0 <= offset <= MAX_BUNDLE_BYTES:
                        found[sha256] = (self.at(slot, MODEL), offset)
        return found

    def begin(self, plan: WritePlan) -> List[Tuple[int, int, str]]:
        """Gets ready.

        Returns what is lacking: index of the part, how much of it is there, and that
        much's sha256.
        """
        self.plan = plan
        self.recover()
        if not os.path.isdir(self.at("incoming")) or os.path.islink(
            self.at("incoming")
        ):
            self.disk.remove(self.at("incoming"))
        make_folder(self.disk, self.at("incoming"))
        wanted = {p.sha256 for p in plan.parts}
        for name in os.listdir(self.at("incoming")):
            if name not in wanted or not plain(self.at("incoming", name)):
                self.disk.remove(self.at("incoming", name))
        stock = self._stock()
        lacks = []
        need = 0
        for i, part in enumerate(plan.parts):
            if part.sha256 in plan.sources:
                continue
            here = (self.at("incoming", part.sha256), 0)
            plan.sources[part.sha256] = here
            for path, offset in [
                here,
                *([stock[part.sha256]] if part.sha256 in stock else []),
            ]:
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
            what = (
                f"{self.path} has {free / 1e6:.1f} MB free, "
                f"{need / 1e6:.1f} MB are needed"
            )
            raise Refused("device", what, "free some space on the device: df -h ~")

    def put(self, index: int, offset: int, data: bytes) -> None:
        """Adds a piece to a part that is lacking."""
        numbers = type(index) is int and type(offset) is int
        if numbers and self.plan and 0 <= index < len(self.plan.parts):
            part = self.plan.parts[index]
        else:
            part = None
        if (
            part is None
            or self.plan is None
            or offset < 0
            or offset + len(data) > part.bytes
        ):
            raise Refused(
                "device",
                f"a piece came for no part ({index!r:.40}, {offset!r:.40})",
                "flash again",
            )
        path, _ = self.plan.sources[part.sha256]
        there = os.path.getsize(path) if os.path.exists(path) else 0
        if path != self.at("incoming", part.sha256) or offset > there:
            raise Refused(
                "device",
                f"a piece of part {index} came at {offset}, not {there}",
                "flash again",
            )
        self.disk.write(path, offset, data)

    def install(self, downgrade: bool = False) -> None:
        """Writes the bundle to `try`, where it can be run.

        Neither slot changes.  downgrade: it may be older.
        """
        plan = self.plan
        if plan is None:
            raise Refused("device", "no bundle was announced", "flash again")
        new = self.at("new")
        self.disk.remove(new)
        make_folder(self.disk, new)
        self.assemble(plan, os.path.join(new, MODEL))
        name, files = self._extract(new, downgrade)
        state = {
            "sha256": plan.sha256,
            "name": name,
            "bytes": plan.bytes,
            "parts": plan.parts,
        }
        state.update(
            target=machine_target(),
            files={MODEL: plan.sha256, **files},
            installed=int(time.time()),
        )
        self.disk.write(
            os.path.join(new, STATE), 0, json.dumps(state, indent=1).encode()
        )
        sync_all(self.disk, new)
        if self.whole("new") is None:
            raise Refused(
                "device",
                "the disk gave back other bytes than were written",
                "check the SD card",
            )
        self.disk.remove(self.at(SCRATCH))
        self.disk.rename(new, self.at(SCRATCH))
        self.disk.sync(self.path)
        self.disk.remove(self.at("incoming"))
        self.plan = None

    def assemble(self, plan: WritePlan, path: str) -> None:
        """Writes the parts and the glue to a file, whose sha256 is then checked."""
        at = used = 0
        for part in [*plan.parts, Part(plan.bytes, 0, "")]:
            between = part.offset - at
            self.disk.write(path, at, plan.glue[used : used + between])
            at = at + between
            used = used + between
            if part.bytes:
                source, offset = plan.sources[part.sha256]
                with contextlib.suppress(FileNotFoundError):
                    for block in read(source, offset, part.bytes):
                        self.disk.write(path, at, block)
                        at += len(block)
        self.disk.sync(path)
        if digest(path) != plan.sha256:
            self.disk.remove(self.at("incoming"))
            raise Refused(
                "device",
                "the bundle on the device does not have its sha256",
                "flash again",
            )

    def _extract(self, folder: str, downgrade: bool) -> Tuple[str, Dict[str, str]]:
        """Checks the bundle as docs/bundle.md says and unpacks what this machine
        executes: name, sha256 by path.
        """
        import zipfile

        try:
            with zipfile.ZipFile(os.path.join(folder, MODEL)) as archive:
                text = manifest_text(archive)
                manifest = parse(text)
                self.check_age(self.vouch(archive, text, manifest), downgrade)
                return str(manifest["name"]), unpack(
                    self.disk, archive, manifest, folder
                )
        except trouble() as e:
            raise damaged(e) from e
