"""Verifies the signature of a bundle (signature.json) with the trusted keys of a device
(docs/packages.md).

    /etc/edgec/trusted/*.pub     the administrator's keys; if there are any, no others count
    ~/.edgec/trusted/*.pub       the keys that `edgec trust` has copied

A device without a key takes every bundle.  This is part of the device end, see wire.py.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import struct
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Tuple

from edgec_runtime.device_end.disk import given
from edgec_runtime.device_end.ed25519 import KEY_BYTES, SIGNATURE_BYTES, verify

if TYPE_CHECKING:
    import zipfile

SIGNATURE = "signature.json"
MAX_SIGNATURE_BYTES = 4096
MAX_KEY_BYTES = 4096
FOLDER = "trusted"
SYSTEM_FOLDER = "/etc/edgec/trusted"
KIND = b"ssh-ed25519"  # type of key in the one line of OpenSSH's public key files
MAX_COUNTER = 1 << 62
# They begin a signed text, so that a signature for another purpose is not valid here.
_PURPOSE = b"edgec bundle 2\n"
_WHEEL_PURPOSE = b"edgec wheel 1\n"
# bytes of a zip's records without names: an entry of the central directory, and its end
_CENTRAL = 46
_END = 22


class Untrusted(Exception):
    """A bundle is not trusted.

    Attributes:
        what: the reason
        hint: one action for the person at the host
    """

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class Key(NamedTuple):
    """A public key (32 bytes), and the comment in its file's line."""

    public: bytes
    comment: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the key, as `ssh-keygen -l` shows it."""
        digest = hashlib.sha256(_blob(self.public)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def line(self) -> str:
        """The one line of the key's file."""
        return (
            f"{KIND.decode()} {base64.b64encode(_blob(self.public)).decode()} "
            f"{self.comment}".rstrip()
            + "\n"
        )

    @staticmethod
    def parse(text: str) -> "Key":
        """Return the key in a public key file's text.

        Raises:
            ValueError: no line is a key
        """
        words = text.strip().split(None, 2)
        if (
            len(words) < 2
            or not text.strip().replace("\t", " ").isprintable()
            or words[0] != KIND.decode()
        ):
            raise ValueError("not the one line of an ssh-ed25519 public key")
        try:
            blob = base64.b64decode(words[1], validate=True)
        except binascii.Error as e:
            raise ValueError(f"not base64: {e}") from e
        if len(blob) < KEY_BYTES or blob != _blob(blob[-KEY_BYTES:]):
            raise ValueError("not an ssh-ed25519 public key")
        return Key(blob[-KEY_BYTES:], words[2] if len(words) == 3 else "")


def _blob(public: bytes) -> bytes:
    """Return a public key as OpenSSH encodes it (RFC 8709, section 4)."""
    return struct.pack(">I", len(KIND)) + KIND + struct.pack(">I", KEY_BYTES) + public


class Signature(NamedTuple):
    """The content of a signature.json.

    Attributes:
        public: the signer's public key, 32 bytes
        app: the application for which the bundle is signed
        counter: a number that grows from one version to the next
        signature: the signature, 64 bytes
    """

    public: bytes
    app: str
    counter: int
    signature: bytes

    @property
    def key(self) -> Key:
        """The key of the signer, without a comment."""
        return Key(self.public, "")

    def to_json(self) -> bytes:
        """Return the content of the signature's file."""
        fields = {
            "schema": 2,
            "key": self.public.hex(),
            "signature": self.signature.hex(),
        }
        return (
            json.dumps(
                {**fields, "app": self.app, "counter": self.counter},
                sort_keys=True,
                indent=1,
            ).encode()
            + b"\n"
        )


def message(manifest: bytes, app: str, counter: int) -> bytes:
    """Return the signed text: the application, and the manifest's sha256.

    The manifest has the hashes of all other files, so every byte is signed.
    """
    return _PURPOSE + f"{app}\n{counter}\n".encode() + hashlib.sha256(manifest).digest()


def wheel_message(files: Dict[str, str]) -> bytes:
    """Return the signed text of a wheel: the sha256 of every file in it, by name."""
    return (
        _WHEEL_PURPOSE
        + hashlib.sha256(json.dumps(files, sort_keys=True).encode()).digest()
    )


def parse_signature(text: bytes) -> Signature:
    """Return the signature in a signature.json.

    Raises:
        ValueError: the text is not a signature.json of this version
    """
    fields, public, signature = _fields(text, 2, SIGNATURE)
    app = fields.get("app")
    counter = fields.get("counter")
    if (
        not isinstance(app, str)
        or not app.isprintable()
        or type(counter) is not int
        or not 0 <= counter <= MAX_COUNTER
    ):
        raise ValueError(
            f"{SIGNATURE} has an impossible app or counter: {app!r:.80}, {counter!r:.40}"
        )
    return Signature(public, app, counter, signature)


def wheel_signature_text(public: bytes, signature: bytes) -> bytes:
    """Return the text of the signature file beside a wheel."""
    return (
        json.dumps(
            {"schema": 1, "key": public.hex(), "signature": signature.hex()}
        ).encode()
        + b"\n"
    )


def check_wheel(files: Dict[str, str], text: bytes, keys: List[Key]) -> None:
    """Raise Untrusted unless one of the keys signed a wheel.

    Args:
        files: the sha256 of each file of the wheel
        text: the text of its signature file; b"" if there is none
        keys: the trusted keys
    """
    if not text:
        hint = (
            "edgec sign FILE.whl --key KEY; the runtime: "
            "edgec sign --runtime "
            "--key KEY, then flash it with --wheel"
        )
        raise Untrusted(
            "the wheel is not signed, and this device takes only signed ones", hint
        )
    try:
        _, public, signature = _fields(text, 1, "the wheel's signature")
    except ValueError as e:
        raise Untrusted(str(e), "edgec sign it again") from e
    _check_key(public, keys, "the wheel")
    if not verify(public, wheel_message(files), signature):
        raise Untrusted(
            "the wheel was changed after it was signed",
            "get it again from whoever signed it",
        )


def _fields(text: bytes, schema: int, name: str) -> Tuple[Dict[str, Any], bytes, bytes]:
    """Return the object of a signature file, its public key and its signature.

    Args:
        text: the file's text
        schema: the version that it has to have
        name: the file's name, for the error

    Raises:
        ValueError: the text has another form
    """
    try:
        fields = json.loads(text[: MAX_SIGNATURE_BYTES + 1].decode())
        if fields["schema"] != schema:
            raise ValueError(
                f"{name} has schema {fields['schema']!r:.20} instead of {schema}"
            )
        public = bytes.fromhex(fields["key"])
        signature = bytes.fromhex(fields["signature"])
    except (KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ValueError(f"{name} is damaged: {e!r:.80}") from e
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        raise ValueError(
            f"{name} has a key of {len(public)} and a signature of {len(signature)} bytes"
        )
    return fields, public, signature


def administered() -> bool:
    """Return whether the administrator's keys count."""
    return os.path.isdir(SYSTEM_FOLDER) and any(
        n.endswith(".pub") for n in os.listdir(SYSTEM_FOLDER)
    )


def trusted(root: str) -> List[Key]:
    """Return the device's trusted keys.

    Args:
        root: the folder of applications, ~/.edgec

    Raises:
        Untrusted: a key cannot be read; to ignore it would weaken the device
    """
    for folder in (SYSTEM_FOLDER, os.path.join(root, FOLDER)):
        try:
            names = sorted(n for n in os.listdir(folder) if n.endswith(".pub"))
        except OSError as e:
            # Only a missing folder has no keys. An unreadable one may have some, and so
            # may a link to a disk that is not mounted.
            if isinstance(e, FileNotFoundError) and not os.path.islink(folder):
                continue
            raise Untrusted(
                f"the device's trusted keys in {folder} cannot be read: {e.strerror}",
                f"ls {folder}",
            ) from e
        keys = [_read_key(os.path.join(folder, name)) for name in names]
        if keys:
            return keys
    return []


def _read_key(path: str) -> Key:
    try:
        return Key.parse(given(path, MAX_KEY_BYTES).decode())
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else e
        raise Untrusted(
            f"the device's trusted key {path} cannot be read: {reason}",
            f"on the device: rm {path}",
        ) from e


def check(
    archive: zipfile.ZipFile,
    manifest_text: bytes,
    manifest: Dict[str, Any],
    keys: List[Key],
    app: str,
) -> Signature:
    """Return the signature of a bundle after it is verified.

    Args:
        archive: the opened bundle
        manifest_text: the bytes of its manifest
        manifest: the parsed manifest
        keys: the trusted keys
        app: the application

    Raises:
        Untrusted: none of the keys signed the manifest for this application, or a file
            has another hash than in the manifest
    """
    signature = _read_signature(archive)
    _check_key(signature.public, keys, "the bundle")
    if not verify(
        signature.public,
        message(manifest_text, signature.app, signature.counter),
        signature.signature,
    ):
        raise Untrusted(
            "the bundle was changed after it was signed",
            "get it again from whoever signed it",
        )
    _check_app(signature, app)
    _check_layout(archive)
    _check_files(archive, manifest["files"])
    return signature


def _read_signature(archive: zipfile.ZipFile) -> Signature:
    if SIGNATURE not in archive.namelist():
        raise Untrusted(
            "the bundle is not signed, and this device takes only signed ones",
            "edgec sign it first",
        )
    if archive.getinfo(SIGNATURE).file_size > MAX_SIGNATURE_BYTES:
        raise Untrusted(f"{SIGNATURE} is too large", "edgec sign it again")
    try:
        return parse_signature(archive.read(SIGNATURE))
    except ValueError as e:
        raise Untrusted(str(e), "edgec sign it again") from e


def _check_app(signature: Signature, app: str) -> None:
    if signature.app != app:
        what = (
            f'the bundle is signed for the application "{signature.app}", not "{app}"'
        )
        raise Untrusted(
            what,
            f"flash it with --app {signature.app}, or edgec sign it with --app {app}",
        )


def _check_layout(archive: zipfile.ZipFile) -> None:
    """Raise Untrusted for a zip with bytes beside its files and central directory.

    No byte may be before, between or after them, and each file's local header has to
    agree with the directory.
    """
    file = archive.fp
    end = 0
    is_covered = True
    assert file is not None
    entries = sorted(archive.infolist(), key=lambda e: e.header_offset)
    for entry in entries:
        header = entry.FileHeader(zip64=False)
        file.seek(entry.header_offset)
        is_covered = (
            is_covered
            and entry.header_offset == end
            and file.read(len(header)) == header
        )
        end += len(header) + entry.compress_size
    end += sum(_CENTRAL + len(e.filename) for e in entries) + _END
    if not is_covered or end != os.fstat(file.fileno()).st_size:
        raise Untrusted(
            "the signed bundle holds bytes that no signature covers",
            "get it from whoever signed it",
        )


def _check_files(archive: zipfile.ZipFile, files: Dict[str, Any]) -> None:
    """Raise Untrusted for a bundle with other files than those of its manifest."""
    inside = [n for n in files if not files[n].get("detached")]
    names = sorted(archive.namelist())
    for name in names:
        if name in inside and _digest(archive, name) != files[name]["sha256"]:
            raise Untrusted(
                f'"{name}" was changed after the bundle was signed',
                "get it again from whoever signed it",
            )
    if names != sorted([*inside, "manifest.json", SIGNATURE]):
        raise Untrusted(
            "the signed bundle has other files than its manifest lists",
            "get it from whoever signed it",
        )


def _check_key(public: bytes, keys: List[Key], name: str) -> None:
    if public not in [k.public for k in keys]:
        signer = Key(public, "").fingerprint
        known = ", ".join(f"{k.fingerprint} {k.comment}".strip() for k in keys)
        raise Untrusted(
            f"{name} is signed with {signer}; this device trusts {known}",
            "edgec sign it with that key",
        )


def _digest(archive: zipfile.ZipFile, name: str) -> str:
    sha256 = hashlib.sha256()
    with archive.open(name) as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            sha256.update(block)
    return sha256.hexdigest()
