"""Receives the lacking parts of a bundle, and assembles it.

~/.edgec/<app>/incoming/<sha256> is a part that has arrived partly or completely; after
an interruption it stays, so that it is not sent again.  The bundle is assembled in
~/.edgec/<app>/new/, which becomes try/.

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

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
    """A range of bytes of the bundle."""

    offset: int
    bytes: int
    sha256: str


class WritePlan:
    """How a bundle is assembled: parts with known hashes, and `glue`, the bytes between."""

    def __init__(self, recipe: Any, glue: bytes) -> None:
        """Check and read a recipe.

        Args:
            recipe: sha256, size in bytes and parts of the bundle, as JSON of any type
            glue: the bytes between and after the parts

        Raises:
            Refused: no host of ours makes such a recipe
        """
        try:
            self.sha256 = recipe["sha256"]
            self.bytes = recipe["bytes"]
            self.glue = glue
            self.parts = [Part(*p) for p in recipe["parts"]]
            is_possible = self._has_numbers() and self._has_hashes() and self._fits()
        except (KeyError, TypeError, ValueError):
            is_possible = False
        if not is_possible or len(self.parts) > MAX_FILES:
            raise Refused(
                "bundle",
                "the list of the bundle's parts is impossible",
                "compile the model again",
            )
        self.sources: Dict[str, Tuple[str, int]] = {}
        """The file and the offset of each part, by its sha256."""

    def _has_numbers(self) -> bool:
        """Return whether all numbers are integers of a possible size."""
        numbers = [self.bytes]
        for part in self.parts:
            numbers += (part.offset, part.bytes)
        # A bool is an int as well, but no host sends one.
        return all(type(n) is int and 0 <= n <= MAX_BUNDLE_BYTES for n in numbers)

    def _has_hashes(self) -> bool:
        """Return whether all hashes are hexadecimal: they become names of files."""
        hashes = [self.sha256, *(part.sha256 for part in self.parts)]
        return all(_SHA256.fullmatch(sha256) for sha256 in hashes)

    def _fits(self) -> bool:
        """Return whether the parts do not overlap, and fill the bundle with the glue."""
        end = 0
        total = len(self.glue)
        for part in self.parts:
            if part.offset < end or part.bytes <= 0:
                return False
            end = part.offset + part.bytes
            total += part.bytes
        return bool(end <= self.bytes and total == self.bytes)


def _first_with(part: Part, places: List[Tuple[str, int]]) -> Optional[Tuple[str, int]]:
    """Return the first place (file and offset) with a part's bytes; None if there is none."""
    for path, offset in places:
        if digest(path, offset, part.bytes) == part.sha256:
            return path, offset
    return None


def _partial_size(path: str, part: Part) -> int:
    """Return how many bytes of an incomplete part its file has."""
    size = os.path.getsize(path) if os.path.exists(path) else 0
    # A file of the full size with another hash is damaged, so the part is sent anew.
    return size if size < part.bytes else 0


class App(Slots):
    """An application's folder, with the bundle that it receives."""

    def __init__(self, root: str, name: str, disk: Disk) -> None:
        super().__init__(root, name, disk)
        self.plan: Optional[WritePlan] = None

    def _stock(self) -> Dict[str, Tuple[str, int]]:
        """Return the file and offset of each part in the slots' bundles, by hash.

        They are of slot.json, which is not trusted: begin() compares the hashes.
        """
        places: Dict[str, Tuple[str, int]] = {}
        for slot in (*SLOTS, SCRATCH):
            with contextlib.suppress(
                OSError, ValueError, KeyError, TypeError, IndexError, RecursionError
            ):
                for offset, _, sha256 in self.state(slot)["parts"]:
                    if type(offset) is int and 0 <= offset <= MAX_BUNDLE_BYTES:
                        places[sha256] = (self.at(slot, MODEL), offset)
        return places

    def begin(self, plan: WritePlan) -> List[Tuple[int, int, str]]:
        """Prepare for a bundle; return its lacking parts.

        Returns:
            for each lacking part its index, the bytes that have arrived, and their sha256
        """
        self.plan = plan
        self.recover()
        self._clear_incoming({p.sha256 for p in plan.parts})
        stock = self._stock()
        lacking: List[Tuple[int, int, str]] = []
        need = 0
        for i, part in enumerate(plan.parts):
            # Equal parts are sent once.
            if part.sha256 in plan.sources:
                continue
            incoming = self.at("incoming", part.sha256)
            places = [(incoming, 0)]
            if part.sha256 in stock:
                places.append(stock[part.sha256])

            source = _first_with(part, places)
            plan.sources[part.sha256] = source or (incoming, 0)
            if source is None:
                size = _partial_size(incoming, part)
                sha256 = digest(incoming, 0, size) if size else ""
                lacking.append((i, size, sha256))
                need += part.bytes - size

        # Space is needed also for the assembled bundle, and for its unpacked files.
        self._check_space(need + 2 * plan.bytes)
        return lacking

    def _clear_incoming(self, hashes: Set[str]) -> None:
        """Make the folder of parts, and remove everything else from it.

        Args:
            hashes: sha256 of the parts
        """
        folder = self.at("incoming")
        # A link could lead out of the application's folder.
        if not os.path.isdir(folder) or os.path.islink(folder):
            self.disk.remove(folder)
        make_folder(self.disk, folder)
        for name in os.listdir(folder):
            if name not in hashes or not plain(self.at("incoming", name)):
                self.disk.remove(self.at("incoming", name))

    def _check_space(self, need: int) -> None:
        """Raise Refused if the disk has less than `need` bytes of free space."""
        disk = os.statvfs(self.path)
        free = disk.f_bavail * disk.f_frsize
        if free < need:
            what = (
                f"{self.path} has {free / 1e6:.1f} MB free, "
                f"{need / 1e6:.1f} MB are needed"
            )
            raise Refused("device", what, "free some space on the device: df -h ~")

    def put(self, index: int, offset: int, data: bytes) -> None:
        """Add a piece to a lacking part.

        Args:
            index: number of the part
            offset: where the piece begins in it
            data: the piece

        Raises:
            Refused: there is no such part, or bytes before the piece are lacking
        """
        part = self._part_of_piece(index, offset, len(data))
        if part is None or self.plan is None:
            raise Refused(
                "device",
                f"a piece came for no part ({index!r:.40}, {offset!r:.40})",
                "flash again",
            )
        path, _ = self.plan.sources[part.sha256]
        size = os.path.getsize(path) if os.path.exists(path) else 0
        # A part in a slot must not be written to.
        if path != self.at("incoming", part.sha256) or offset > size:
            raise Refused(
                "device",
                f"a piece of part {index} came at {offset}, not {size}",
                "flash again",
            )
        self.disk.write(path, offset, data)

    def _part_of_piece(self, index: int, offset: int, size: int) -> Optional[Part]:
        """Return the part of a piece; None if there is none.

        The numbers come from the wire, so their types are checked, too.
        """
        if type(index) is not int or type(offset) is not int or self.plan is None:
            return None
        if not 0 <= index < len(self.plan.parts):
            return None
        part = self.plan.parts[index]
        is_inside = offset >= 0 and offset + size <= part.bytes
        return part if is_inside else None

    def install(self, downgrade: bool = False) -> None:
        """Write the bundle to `try`, where it can be run; neither slot changes.

        Args:
            downgrade: whether a signed bundle may be older than one that was active
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

        # Read back from the disk: cheap SD cards lie about what they wrote.
        if self.whole("new") is None:
            raise Refused(
                "device",
                "the disk gave back other bytes than were written",
                "check the SD card",
            )
        self.disk.remove(self.at(SCRATCH))

        # A rename is atomic: try/ is the new version or does not exist.
        self.disk.rename(new, self.at(SCRATCH))
        self.disk.sync(self.path)
        self.disk.remove(self.at("incoming"))
        self.plan = None

    def assemble(self, plan: WritePlan, path: str) -> None:
        """Write the parts and the glue to a file, and check its sha256."""
        at = used = 0  # bytes of the file, and of the glue
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

        # Each part may have its hash while the recipe is wrong: all are sent again.
        if digest(path) != plan.sha256:
            self.disk.remove(self.at("incoming"))
            raise Refused(
                "device",
                "the bundle on the device does not have its sha256",
                "flash again",
            )

    def _extract(self, folder: str, downgrade: bool) -> Tuple[str, Dict[str, str]]:
        """Check the bundle by docs/bundle.md, and unpack the files of this machine.

        Return the bundle's name, and the sha256 of each unpacked path.
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
