"""Writes and reads bundles, `model.edgec` (docs/bundle.md).

The same inputs always give the same bytes, and a reader trusts nothing in a bundle.  It
is a zip of stored (uncompressed) files, so that a reader knows every size before it
reads, and no file grows when it is unpacked.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from types import TracebackType
from typing import (
    IO,
    Any,
    Collection,
    Dict,
    List,
    Mapping,
    NoReturn,
    Optional,
    Tuple,
    Type,
    Union,
)

import numpy as np

from ..device_end.bundles import EDGETPU_FILE as EDGETPU_FILE
from ..device_end.bundles import (
    MAX_BUNDLE_BYTES,
    MAX_FILES,
    MAX_MANIFEST_BYTES,
    safe_name,
)
from ..device_end.bundles import WEIGHTS_FILE as WEIGHTS_FILE
from ..device_end.trust import MAX_SIGNATURE_BYTES, SIGNATURE, parse_signature
from ..errors import BundleError, InputError, did_you_mean
from .atomic_write import atomic_write
from .cache import CODE, keep, kept
from .manifest import SCHEMA, Contents, Manifest, check_manifest, parse_manifest
from .tflite_file import is_tflite, refuse_as_bundle

MANIFEST = "manifest.json"

_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say
# What zipfile raises for a damaged file (NotImplementedError is a RuntimeError).
_ZIP_TROUBLE = (
    zipfile.BadZipFile,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    KeyError,
    MemoryError,
)

PathLike = Union[str, "os.PathLike[str]"]


# ---- writing
# --------------------------------------------------------------------------------------


def write_bundle(
    path: PathLike,
    contents: Union[Contents, Mapping[str, Any]],
    files: Mapping[str, bytes],
    detached: Collection[str] = (),
) -> Manifest:
    """Write a bundle; return its checked manifest.

    The file appears whole or not at all: it is written beside its place and renamed.

    Args:
        contents: the manifest without "schema" and "files", also in JSON's types
        files: the files by path in the bundle
        detached: the paths of files to keep in the cache of this machine instead (see
            FileInfo)

    Raises:
        BundleError: a reader would refuse the manifest or a name
        OSError: the disk failed
    """
    full = contents.to_json() if isinstance(contents, Contents) else dict(contents)
    full["schema"] = SCHEMA
    full["files"] = {n: _file_info(files[n], n in detached) for n in sorted(files)}
    _check_names([MANIFEST, SIGNATURE, *files])
    text = json.dumps(
        full,
        sort_keys=True,
        indent=1,
        ensure_ascii=False,
        allow_nan=False,
        default=_plain,
    )
    checked = check_manifest(json.loads(text))

    # The cache before the bundle: a bundle without its files would be useless.
    for name in detached:
        keep(name, files[name])
    inside = {n: files[n] for n in sorted(files) if n not in detached}
    _write_whole(Path(path), {MANIFEST: text.encode("utf-8") + b"\n", **inside})
    return checked


def _file_info(data: bytes, detached: bool) -> Dict[str, Any]:
    """Return the manifest's entry for a file."""
    info: Dict[str, Any] = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
    }
    return {**info, "detached": True} if detached else info


def write_signed(path: PathLike, bundle: "Bundle", signature: bytes) -> None:
    """Write a copy of a bundle with a signature.json, which replaces an earlier one.

    All other files keep their bytes.  Raises OSError if the file cannot be written.

    Args:
        path: the new file, which may be the bundle's own
        bundle: the bundle
        signature: the text of signature.json
    """
    files = {
        MANIFEST: bundle.manifest_text,
        SIGNATURE: signature,
        **{n: bundle.read(n) for n in sorted(bundle.names)},
    }
    _write_whole(Path(path), files)


def _write_whole(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a zip atomically: after an interruption the old file is unchanged."""
    with atomic_write(path) as aside, aside.open("wb") as f:
        _write_zip(f, files)

        # Without this, a power cut could leave a renamed file without content.
        f.flush()
        os.fsync(f.fileno())


def _write_zip(f: IO[bytes], files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED, allowZip64=True) as z:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, _DATE)
            # The value is Unix on every system, so that all write the same bytes.
            info.create_system = 3
            info.external_attr = (
                stat.S_IFREG | (0o755 if name.startswith(CODE) else 0o644)
            ) << 16
            z.writestr(info, data)


def _plain(value: Any) -> Any:
    """Return a numpy scalar or array as a type of JSON; raise TypeError for others."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"the manifest cannot hold a {type(value).__name__}: {value!r:.80}")


# ---- checks shared by both sides
# --------------------------------------------------------------------------------------


def _check_names(names: List[str]) -> None:
    """Raise BundleError for an unsafe name, or two that differ only in case."""
    by_lower: Dict[str, str] = {}
    for name in names:
        if not safe_name(name):
            raise BundleError(
                f"the bundle has a file with an unsafe name: {name!r:.80}",
                hint="do not use this file; get it again from whoever made it",
            )

        # In a file system that ignores case, one file would replace the other.
        if name.lower() in by_lower:
            raise BundleError(
                f'the bundle has two files called "{name}"',
                hint="compile the model again",
            )
        by_lower[name.lower()] = name
    for name in by_lower:
        # A name cannot be a file and a folder at once.
        parts = name.split("/")
        for n in range(1, len(parts)):
            if "/".join(parts[:n]) in by_lower:
                raise BundleError(
                    f'the bundle has a file "{name}" inside a file',
                    hint="compile the model again",
                )


class Bundle:
    """An open bundle, whose names, sizes, hashes and manifest have been checked.

    Use `Bundle.open(path)`; it is a context manager.

    Attributes:
        path: the file
        manifest: the typed content of manifest.json
    """

    def __init__(
        self,
        path: Path,
        archive: zipfile.ZipFile,
        manifest: Manifest,
        text: bytes,
        signature: Optional[bytes],
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.manifest_text = text
        # Of manifest.json, whose hashes cover every other byte.
        self.sha256 = hashlib.sha256(text).hexdigest()
        # signature.json, well-formed; whose it is, and whether it fits, trust.py checks
        self.signature = signature
        self._zip = archive

    @classmethod
    def open(cls, path: PathLike) -> "Bundle":
        """Open and check a bundle; raise BundleError if it is missing or damaged."""
        path = Path(path)
        archive = _open_zip(path)
        return cls._checked(path, archive, path.stat().st_size)

    @classmethod
    def of_bytes(cls, data: bytes, path: PathLike) -> "Bundle":
        """Open and check a bundle in memory.

        Args:
            data: the content of a .edgec file
            path: the name for messages

        Raises:
            BundleError: the content is wrong
        """
        path = Path(path)
        if is_tflite(data):
            refuse_as_bundle(data, str(path))
        try:
            archive = zipfile.ZipFile(io.BytesIO(data))
        except _ZIP_TROUBLE as e:
            _refuse(path, f"the bundle is cut off or damaged ({e})")
        return cls._checked(path, archive, len(data))

    def network(self, name: str) -> "Bundle":
        """Open the bundle of a network of a cascade.

        It is in memory, and independent of this one.  For messages its path is that of
        the cascade, followed by its own path in the cascade.

        Raises InputError if there is no network of that name.
        """
        cascade = self.manifest.cascade
        if cascade is None:
            raise InputError(
                f'the bundle has no network "{name}": it is not a cascade',
                at=str(self.path),
                hint="leave the network out",
            )
        inside = cascade.network(name).path
        path = self.path / inside
        inner = self.of_bytes(self.read(inside), path)
        if inner.manifest.cascade is not None:
            _refuse(path, "a network of a cascade cannot be a cascade")
        _check_board(path, inner.manifest, self.manifest)
        return inner

    @classmethod
    def _checked(cls, path: Path, archive: zipfile.ZipFile, size: int) -> "Bundle":
        """Check an archive, and return its bundle; size: bytes of the file."""
        try:
            _check_entries(path, archive, size)
            text = _read(path, archive, MANIFEST)
            try:
                manifest = parse_manifest(text)
            except BundleError as e:
                raise BundleError(e.what, at=f"{path}: {e.at}", hint=e.hint) from e

            # Hashing all content takes the longest, so it comes after all other checks.
            _check_files(path, archive, manifest)
            signature = _signature(path, archive)
        except BaseException:
            archive.close()
            raise
        return cls(path, archive, manifest, text, signature)

    @property
    def names(self) -> Tuple[str, ...]:
        """The files in the bundle, without manifest.json, signature.json and detached
        ones.
        """
        return tuple(
            name for name, info in self.manifest.files.items() if not info.detached
        )

    def manifest_fields(self) -> Dict[str, Any]:
        """Return the manifest as write_bundle() takes it.

        It has types of JSON, and no "schema" and "files".
        """
        fields: Dict[str, Any] = json.loads(self.manifest_text.decode("utf-8"))
        return {
            key: value
            for key, value in fields.items()
            if key not in ("schema", "files")
        }

    def read(self, name: str) -> bytes:
        """Return the bytes of a file.

        They are hashed again, since the bundle on the disk may have changed.

        Raises BundleError for an unknown file, or one that has changed or is detached
        and not in the cache.
        """
        info = self.manifest.files.get(name)
        if info is None:
            raise BundleError(
                f'the bundle has no file "{name}"',
                at=str(self.path),
                hint="compile the model again",
            )
        if info.detached:
            return self._read_detached(name, info.sha256)

        data = _read(self.path, self._zip, name)
        if hashlib.sha256(data).hexdigest() != info.sha256:
            _refuse(self.path, f'"{name}" changed while the bundle was open')
        return data

    def _read_detached(self, name: str, sha256: str) -> bytes:
        path = kept(name, sha256)
        if path is None:
            raise BundleError(
                f'"{name}" is not in the bundle: it stayed in the cache of the machine '
                "that compiled it",
                at=str(self.path),
                hint="compile it with --also host, or run it with --on "
                f"emulated:{self.manifest.board}",
            )
        return path.read_bytes()

    def crc32(self, name: str) -> int:
        """Return the CRC-32 of a file, which the zip has and open() has checked."""
        if self.manifest.files[name].detached:
            return zlib.crc32(self.read(name))
        return self._zip.getinfo(name).CRC

    def close(self) -> None:
        """Close the file; the manifest stays readable."""
        self._zip.close()

    def __enter__(self) -> "Bundle":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"Bundle({str(self.path)!r}, {self.manifest.name!r} for "
            f"{self.manifest.target})"
        )


# ---- reading
# --------------------------------------------------------------------------------------


def _refuse(
    path: Path,
    what: str,
    hint: str = "copy the bundle again or compile the model again",
) -> NoReturn:
    raise BundleError(what, at=str(path), hint=hint)


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        info = path.stat()
    except OSError as e:
        beside = [p.name for p in path.parent.glob("*.edgec")]
        _refuse(
            path,
            f"cannot read the bundle: {e.strerror}{did_you_mean(path.name, beside)}",
            "check the path; `edgec compile` makes bundles",
        )
    if not stat.S_ISREG(info.st_mode):
        _refuse(
            path,
            "the bundle is not a file",
            "check the path; `edgec compile` makes bundles",
        )

    # Before the directory is read, which takes memory for each entry.
    if info.st_size > MAX_BUNDLE_BYTES:
        _refuse(
            path, f"the bundle has {info.st_size} bytes, more than {MAX_BUNDLE_BYTES}"
        )
    start = b""
    try:
        # Metadata at the end of a .tflite are a zip, so its start decides.
        with path.open("rb") as file:
            start = file.read(8)
            if is_tflite(start):
                refuse_as_bundle(start + file.read(), str(path))
        return zipfile.ZipFile(path)
    except PermissionError as e:
        _refuse(
            path,
            f"cannot read the bundle: {e.strerror}",
            "check who may read it: ls -l",
        )
    except _ZIP_TROUBLE as e:
        if start[:4] == b"PK\x03\x04":
            _refuse(path, f"the bundle is cut off or damaged ({e})")
        _refuse(
            path,
            "this is not a bundle",
            "give the .edgec file that `edgec compile` wrote",
        )


def _check_board(path: Path, network: Manifest, cascade: Manifest) -> None:
    """Refuse a network that was compiled for another board than its cascade."""
    boards = [f"{m.target} (board {m.board})" for m in (network, cascade)]
    if boards[0] != boards[1]:
        _refuse(
            path, f"the network is for {boards[0]}, and its cascade for {boards[1]}"
        )


def _check_entries(path: Path, archive: zipfile.ZipFile, limit: int) -> None:
    """Refuse a zip with an impossible directory, before any content is read.

    limit: the bytes of the zip.
    """

    entries = archive.infolist()
    if len(entries) > MAX_FILES:
        _refuse(path, f"the bundle has {len(entries)} files, more than {MAX_FILES}")
    try:
        _check_names([e.filename for e in entries])
    except BundleError as e:
        raise BundleError(e.what, at=str(path), hint=e.hint) from e
    if MANIFEST not in archive.NameToInfo:
        _refuse(
            path,
            "this is not a bundle: no manifest.json in it",
            "give the .edgec file that `edgec compile` wrote",
        )
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        _check_stored(path, entry)
        # Entries that overlap could hold more than the file has bytes.
        if entry.header_offset < end or entry.file_size > limit - entry.header_offset:
            _refuse(
                path,
                f'"{entry.filename}" has {entry.file_size} bytes, '
                "which is more than the bundle can hold",
            )
        end = entry.header_offset + 30 + len(entry.filename) + entry.file_size
    if archive.getinfo(MANIFEST).file_size > MAX_MANIFEST_BYTES:
        _refuse(path, f"the manifest is larger than {MAX_MANIFEST_BYTES} bytes")


def _check_stored(path: Path, entry: zipfile.ZipInfo) -> None:
    """Refuse an entry that is not a plain file, stored as it is."""
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        _refuse(
            path,
            f'"{entry.filename}" is a link or a device, not a file',
            "do not use this file",
        )
    if entry.flag_bits & 1:
        _refuse(path, f'"{entry.filename}" is encrypted')
    is_stored = entry.compress_type == zipfile.ZIP_STORED
    if not is_stored or entry.compress_size != entry.file_size:
        _refuse(path, f'"{entry.filename}" is compressed; bundles store')


def _read(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except _ZIP_TROUBLE as e:
        _refuse(path, f'"{name}" is damaged: {e}')


def _check_files(path: Path, archive: zipfile.ZipFile, manifest: Manifest) -> None:
    there = set(archive.namelist()) - {MANIFEST, SIGNATURE}
    for name in sorted(there - set(manifest.files)):
        _refuse(
            path,
            f'the bundle has a file that its manifest does not list: "{name}"',
            "do not use this file",
        )
    for name, info in manifest.files.items():
        if info.detached:
            if name in there:
                _refuse(
                    path,
                    f'the bundle has the file "{name}", which its manifest says is not '
                    "in it",
                )
            continue
        if name not in there:
            _refuse(path, f'the bundle lacks the file "{name}"')
        size = archive.getinfo(name).file_size
        if size != info.bytes:
            _refuse(path, f'"{name}" has {size} bytes, the manifest says {info.bytes}')
        if _hash(path, archive, name) != info.sha256:
            _refuse(path, f'"{name}" does not have the sha256 that the manifest says')


def _signature(path: Path, archive: zipfile.ZipFile) -> Optional[bytes]:
    if SIGNATURE not in archive.NameToInfo:
        return None
    if archive.getinfo(SIGNATURE).file_size > MAX_SIGNATURE_BYTES:
        _refuse(path, f"{SIGNATURE} is larger than {MAX_SIGNATURE_BYTES} bytes")
    text = _read(path, archive, SIGNATURE)
    try:
        parse_signature(text)
    except ValueError as e:
        _refuse(path, str(e))
    return text


def _hash(path: Path, archive: zipfile.ZipFile, name: str) -> str:
    digest = hashlib.sha256()
    try:
        with archive.open(name) as f:
            for chunk in iter(lambda: f.read(1 << 20), b""):
                digest.update(chunk)
    except _ZIP_TROUBLE as e:
        _refuse(path, f'"{name}" is damaged: {e}')
    return digest.hexdigest()
