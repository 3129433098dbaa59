"""Signs bundles and hands devices the keys that they shall trust (docs/packages.md)."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgec_runtime import Bundle, InputError, ToolError
from edgec_runtime.bundle import write_signed
from edgec_runtime.device_end.trust import Key, message, signature_text

from edgec_devices.device import TIMEOUT_S
from edgec_devices.flash import Outcome, each
from edgec_devices.protocol import Connection
from edgec_devices.stream import stream_for

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_NEW = "edgec sign --new-key FILE makes one"


def new_key(path: Path) -> Key:
    """A new private key at `path`, readable by its user only, and `path`.pub.  Raises InputError, never overwrites."""
    _library()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    kind = serialization.PrivateFormat.PKCS8
    text = private.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())
    key = Key(_public(private), f"{getpass.getuser()}@{platform.node()}")
    _write_new(path, text, 0o600)
    try:
        _write_new(public_path(path), key.line.encode(), 0o644)
    except InputError:
        path.unlink()
        raise
    return key


def public_path(path: Path) -> Path:
    """Where new_key() puts the public half."""
    return path.with_name(f"{path.name}.pub")


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as f:
            f.write(data)
    except FileExistsError:
        raise InputError(f"{path} is there already", hint="choose another name; a key that is lost is lost") from None
    except OSError as e:
        raise InputError(f"cannot write {path}: {e.strerror}", hint="check the folder") from e


def sign(bundle: Path, key_path: Path, output: Path | None = None) -> Key:
    """Signs a bundle, in its place or to `output`; whose key it is.  Signing again replaces the signature."""
    private = _load(key_path)
    public = _public(private)
    with Bundle.open(bundle) as opened:
        signature = signature_text(public, private.sign(message(opened.manifest_text)))
        try:
            write_signed(output or bundle, opened, signature)
        except OSError as e:
            raise InputError(f"cannot write {output or bundle}: {e.strerror}", hint="check the folder") from e
    return Key(public, "")


def sign_or_make(bundle: Path | None, key: Path | None, new_key_path: Path | None, output: Path | None = None) -> Key:
    """Makes a key if one is asked for, and signs a bundle with it or with `key`, if there is a bundle.

    Raises InputError where there is nothing to do, or no key to do it with.
    """
    made = new_key(new_key_path) if new_key_path is not None else None
    if bundle is None:
        if made is None:
            raise InputError("there is no bundle to sign", hint="edgec sign out.edgec --key FILE")
        return made
    if (key := key or new_key_path) is None:
        raise InputError("there is no key to sign with", hint="add --key FILE, or --new-key FILE for the first time")
    return sign(bundle, key, output)


def _public(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


def _load(path: Path) -> Ed25519PrivateKey:
    """Of a private key file: PEM (PKCS #8) or OpenSSH's, not encrypted."""
    _library()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        data = path.read_bytes()
    except OSError as e:
        raise InputError(f"cannot read the key {path}: {e.strerror}", hint=_NEW) from e
    openssh = b"OPENSSH PRIVATE KEY" in data
    load = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
    try:
        found = load(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        hint = "give the private key, not encrypted; " + _NEW
        raise InputError(f"{path} is not a private key that can be used: {e!s:.120}", hint=hint) from e
    if not isinstance(found, Ed25519PrivateKey):
        raise InputError(f"{path} is a key of another kind than ed25519", hint=_NEW)
    return found


def _library() -> None:
    try:
        import cryptography
    except ImportError as e:
        raise ToolError("the library that signs is not installed", hint="pip install cryptography") from e
    del cryptography


def read_public(path: Path) -> Key:
    """A public key file.  Raises InputError, also for a private key: that must not leave this machine."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot read the key {path}: {e}", hint="give the .pub file; " + _NEW) from e
    with contextlib.suppress(ValueError):
        return Key.parse(text)
    raise InputError(f"{path} is not an ssh-ed25519 public key", hint="give the .pub file; " + _NEW)


def trust(key_path: Path, urls: Sequence[str], ask: bool = False, timeout: float = TIMEOUT_S) -> tuple[Outcome, ...]:
    """From now on these devices take only bundles that are signed with this key, or one that they trust already."""
    key = read_public(key_path)

    def one(url: str) -> Outcome:
        with Connection(stream_for(url, ask, timeout)) as connection:
            head, _ = connection.request("trust", key.line.encode())
            return Outcome(url, f"trusts {head['fingerprint']}, {head['path']}")

    return each(urls, one)
