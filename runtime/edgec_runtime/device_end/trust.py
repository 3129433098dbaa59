"""Whose bundles a device takes: signature.json of a bundle, and the device's trusted keys (docs/packages.md).

    /etc/edgec/trusted/*.pub     the administrator's keys; where there are any, only these count
    ~/.edgec/trusted/*.pub       those that `edgec trust` put there

Without a key, a device takes every bundle.  This is part of the device end, see wire.py.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import struct
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Tuple

from edgec_runtime.device_end.ed25519 import KEY_BYTES, SIGNATURE_BYTES, verify

if TYPE_CHECKING:
    import zipfile

SIGNATURE = "signature.json"
MAX_SIGNATURE_BYTES = 4096
FOLDER = "trusted"
SYSTEM_FOLDER = "/etc/edgec/trusted"
KIND = b"ssh-ed25519"  # of the one line of OpenSSH's public key files
_PURPOSE = b"edgec bundle 1\n"  # so that a signature made for anything else is none of a bundle


class Untrusted(Exception):
    """Why a bundle is not taken.  what, hint: for the person at the host."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class Key(NamedTuple):
    """A public key, and what its file's line says about whose it is."""

    public: bytes
    comment: str

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` shows it."""
        digest = hashlib.sha256(_blob(self.public)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def line(self) -> str:
        """The one line of its file."""
        return f"{KIND.decode()} {base64.b64encode(_blob(self.public)).decode()} {self.comment}".rstrip() + "\n"

    @staticmethod
    def parse(text: str) -> "Key":
        """Of a public key file's text.  Raises ValueError for what is no such line."""
        words = text.strip().split(None, 2)
        if len(words) < 2 or "\n" in text.strip() or words[0] != KIND.decode():
            raise ValueError("not the one line of an ssh-ed25519 public key")
        try:
            blob = base64.b64decode(words[1], validate=True)
        except binascii.Error as e:
            raise ValueError(f"not base64: {e}") from e
        if len(blob) < KEY_BYTES or blob != _blob(blob[-KEY_BYTES:]):
            raise ValueError("not an ssh-ed25519 public key")
        return Key(blob[-KEY_BYTES:], words[2] if len(words) == 3 else "")


def _blob(public: bytes) -> bytes:
    return struct.pack(">I", len(KIND)) + KIND + struct.pack(">I", KEY_BYTES) + public


def message(manifest: bytes) -> bytes:
    """What is signed: the manifest's sha256, and so, as it has those of all other files, every byte of them."""
    return _PURPOSE + hashlib.sha256(manifest).digest()


def signature_text(public: bytes, signature: bytes) -> bytes:
    """signature.json."""
    fields = {"schema": 1, "key": public.hex(), "signature": signature.hex()}
    return json.dumps(fields, sort_keys=True, indent=1).encode() + b"\n"


def parse_signature(text: bytes) -> Tuple[bytes, bytes]:
    """Public key and signature of a signature.json.  Raises ValueError for what is none."""
    try:
        fields = json.loads(text.decode())
        if fields["schema"] != 1:
            raise ValueError(f"schema {fields['schema']!r:.20} instead of 1")
        public, signature = bytes.fromhex(fields["key"]), bytes.fromhex(fields["signature"])
    except (KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ValueError(f"{SIGNATURE} is damaged: {e!r:.80}") from e
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        raise ValueError(f"{SIGNATURE} has a key of {len(public)} and a signature of {len(signature)} bytes")
    return public, signature


def administered() -> bool:
    """Whether the administrator's keys are the ones that count."""
    return os.path.isdir(SYSTEM_FOLDER) and any(n.endswith(".pub") for n in os.listdir(SYSTEM_FOLDER))


def trusted(root: str) -> List[Key]:
    """The device's keys.  root: ~/.edgec.  A key file that cannot be read is an error, not a key less."""
    for folder in (SYSTEM_FOLDER, os.path.join(root, FOLDER)):
        try:
            names = sorted(n for n in os.listdir(folder) if n.endswith(".pub"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        keys = [_read_key(os.path.join(folder, name)) for name in names]
        if keys:
            return keys
    return []


def _read_key(path: str) -> Key:
    try:
        with open(path, encoding="utf-8") as f:
            return Key.parse(f.read(4096))
    except ValueError as e:
        raise Untrusted(f"the device's trusted key {path} cannot be read: {e}", f"on the device: rm {path}") from e


def check(archive: zipfile.ZipFile, manifest_text: bytes, manifest: Dict[str, Any], keys: List[Key]) -> None:
    """Raises Untrusted unless one of `keys` signed the manifest and every file is the one that it names."""
    names = archive.namelist()
    if SIGNATURE not in names:
        raise Untrusted("the bundle is not signed, and this device takes only signed ones", "edgec sign it first")
    if archive.getinfo(SIGNATURE).file_size > MAX_SIGNATURE_BYTES:
        raise Untrusted(f"{SIGNATURE} is too large", "edgec sign it again")
    try:
        public, signature = parse_signature(archive.read(SIGNATURE))
    except ValueError as e:
        raise Untrusted(str(e), "edgec sign it again") from e
    if public not in [k.public for k in keys]:
        who = Key(public, "").fingerprint
        known = ", ".join(f"{k.fingerprint} {k.comment}".strip() for k in keys)
        raise Untrusted(f"the bundle is signed with {who}; this device trusts {known}", "edgec sign it with that key")
    if not verify(public, message(manifest_text), signature):
        raise Untrusted("the bundle was changed after it was signed", "get it again from whoever signed it")
    files = manifest["files"]
    listed = sorted([*files, "manifest.json", SIGNATURE])
    for name in sorted(names):
        if name in files and _digest(archive, name) != files[name]["sha256"]:
            raise Untrusted(f'"{name}" was changed after the bundle was signed', "get it again from whoever signed it")
    if sorted(names) != listed:
        raise Untrusted("the signed bundle has other files than its manifest lists", "get it from whoever signed it")


def _digest(archive: zipfile.ZipFile, name: str) -> str:
    found = hashlib.sha256()
    with archive.open(name) as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()
