"""Signs bundles, and gives devices the keys to trust (docs/packages.md)."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgec_runtime import Bundle, InputError, ToolError
from edgec_runtime.bundle.archive import write_signed
from edgec_runtime.device_end.disk import Refused, given
from edgec_runtime.device_end.requests import TRUST, Empty
from edgec_runtime.device_end.slots import check_name
from edgec_runtime.device_end.trust import (
    MAX_COUNTER,
    Key,
    Signature,
    message,
    wheel_message,
    wheel_signature_text,
)

from edgec_devices.device import TIMEOUT_S
from edgec_devices.flash import FlashOutcome, each
from edgec_devices.options import SignOptions, path_of
from edgec_devices.protocol import Connection
from edgec_devices.stream import stream_for
from edgec_devices.transfer import app_name
from edgec_devices.wheel import Wheel, signature_path
from edgec_devices.wheel_transfer import runtime_wheel

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_KEY_BYTES = 1 << 16
"""Bytes of the file of a key."""
NEW_KEY_HINT = "edgec sign --new-key FILE makes one"


def new_key(path: Path) -> Key:
    """Make a private key at `path`, readable only by its user, and `path`.pub.

    Raises InputError if a file cannot be written, or exists already.
    """
    _library()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    kind = serialization.PrivateFormat.PKCS8
    text = private.private_bytes(
        serialization.Encoding.PEM, kind, serialization.NoEncryption()
    )
    key = Key(_public(private), f"{getpass.getuser()}@{platform.node()}")
    _write_new(path, text, 0o600)
    try:
        _write_new(public_path(path), key.line.encode(), 0o644)
    except InputError:
        # Half a pair of keys is of no use.
        path.unlink()
        raise
    return key


def public_path(path: Path) -> Path:
    """Return the file where new_key() puts the public key."""
    return path.with_name(f"{path.name}.pub")


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a new file, which nobody can read before it has its mode."""
    try:
        # O_EXCL: a key that others trust must never be overwritten.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as f:
            f.write(data)
    except FileExistsError:
        raise InputError(
            f"{path} is there already",
            hint="choose another name; a key that is lost is lost",
        ) from None
    except OSError as e:
        raise InputError(
            f"cannot write {path}: {e.strerror}", hint="check the folder"
        ) from e


def sign(
    bundle: Path,
    key_path: Path,
    output: Path | None = None,
    app: str | None = None,
    counter: int | None = None,
) -> Signature:
    """Sign a bundle, and return the signature; it replaces an earlier one.

    Args:
        bundle: the bundle
        key_path: file of the private key
        output: the signed bundle; by default it replaces `bundle`
        app: the application on the device; the model's name by default
        counter: number that grows with each version, so that a device refuses older
            ones; the time in seconds by default
    """
    private = _load(key_path)
    # The time grows by itself, without a file that remembers the last counter.
    counter = int(time.time()) if counter is None else counter
    if not 0 <= counter <= MAX_COUNTER:
        raise InputError(
            f"{counter} cannot be a counter",
            hint="give --counter a number from 0 on that grows",
        )
    with Bundle.open(bundle) as opened:
        application = app or app_name(opened.manifest.name)
        try:
            # No device would accept a wrong name.
            check_name(application)
        except Refused as e:
            raise InputError(e.what, hint=e.hint) from e
        data = message(opened.manifest_text, application, counter)
        signature = Signature(
            _public(private), application, counter, private.sign(data)
        )
        try:
            write_signed(output or bundle, opened, signature.to_json())
        except OSError as e:
            raise InputError(
                f"cannot write {output or bundle}: {e.strerror}",
                hint="check the folder",
            ) from e
    return signature


def sign_wheel(wheel: Wheel, path: Path, key_path: Path) -> None:
    """Write the signature of a wheel beside the wheel, which is at `path`."""
    private = _load(key_path)
    text = wheel_signature_text(
        _public(private), private.sign(wheel_message(wheel.digests()))
    )
    _write(signature_path(path), text)


def sign_runtime(folder: Path, key_path: Path) -> Path:
    """Write the slim runtime of this edgec and its signature.

    Returns the path of the wheel, for --wheel.
    """
    wheel = runtime_wheel()
    path = folder / wheel.name
    _write(path, wheel.data)
    sign_wheel(wheel, path, key_path)
    return path


def _write(path: Path, data: bytes) -> None:
    """Write a file; raises InputError."""
    try:
        path.write_bytes(data)
    except OSError as e:
        raise InputError(
            f"cannot write {path}: {e.strerror}", hint="check the folder"
        ) from e


@dataclass(frozen=True)
class Signed:
    """The result of `edgec sign`.

    Attributes:
        fingerprint: fingerprint of the key
        lines: the signed files in words
        runtime: the written wheel of the runtime, if any
    """

    fingerprint: str
    lines: tuple[str, ...]
    runtime: Path | None


def sign_or_make(options: SignOptions) -> Signed:
    """Make a key on request, and sign a bundle or a wheel, as `edgec sign` does.

    Raises InputError if there is nothing to do, or no key.
    """
    lines = []
    file = path_of(options.file)
    new = path_of(options.new_key)
    if new is not None:
        pair = new_key(new)
        lines.append(
            f"{new} {pair.fingerprint}; devices trust it by {public_path(new)}"
        )
    elif file is None and not options.runtime:
        raise InputError(
            "there is nothing to sign", hint="edgec sign out.edgec --key FILE"
        )
    key = path_of(options.key) or new
    if key is None:
        raise InputError(
            "there is no key to sign with",
            hint="add --key FILE, or --new-key FILE for the first time",
        )
    # The key is read before anything is written.
    fingerprint = Key(_public(_load(key)), "").fingerprint
    output = path_of(options.output)
    app, counter = options.app, options.counter
    if file is not None and file.suffix == ".whl":
        # Silently ignored, these would give a false sense of what is signed.
        if output is not None or app is not None or counter is not None:
            message = "a wheel is signed beside itself, for any application"
            raise InputError(message, hint="leave -o, --app and --counter out")
        sign_wheel(Wheel.of(file), file, key)
        lines.append(
            f"{signature_path(file)} says that {file.name} is signed with {fingerprint}"
        )
    elif file is not None:
        signature = sign(file, key, output, app, counter)
        lines.append(
            f"{output or file} is signed with {fingerprint} for "
            f"{signature.app}, counter {signature.counter}"
        )
    wheel = sign_runtime(Path(), key) if options.runtime else None
    return Signed(fingerprint, tuple(lines), wheel)


def _public(private: Ed25519PrivateKey) -> bytes:
    """Return the 32 bytes of the public key."""
    return private.public_key().public_bytes_raw()


def _load(path: Path) -> Ed25519PrivateKey:
    """Load a private key: PEM (PKCS #8) or OpenSSH's, not encrypted."""
    _library()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        data = given(path, MAX_KEY_BYTES)
    except OSError as e:
        raise InputError(
            f"cannot read the key {path}: {e.strerror}", hint=NEW_KEY_HINT
        ) from e
    try:
        private: object
        # ssh-keygen writes its own format, and calls it PEM too.
        if b"OPENSSH PRIVATE KEY" in data:
            private = serialization.load_ssh_private_key(data, None)
        else:
            private = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        hint = "give the private key, not encrypted; " + NEW_KEY_HINT
        raise InputError(
            f"{path} is not a private key that can be used: {e!s:.120}", hint=hint
        ) from e
    if not isinstance(private, Ed25519PrivateKey):
        raise InputError(
            f"{path} is a key of another kind than ed25519", hint=NEW_KEY_HINT
        )
    return private


def _library() -> None:
    """Raise ToolError unless the library that signs is installed."""
    try:
        import cryptography
    except ImportError as e:
        raise ToolError(
            "the library that signs is not installed", hint="pip install cryptography"
        ) from e
    # Only its presence matters here.
    del cryptography


def read_public(path: Path) -> Key:
    """Read a public key.

    Raises InputError, also for a private key: it must not leave this machine.
    """
    try:
        text = given(path, MAX_KEY_BYTES).decode()
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else e
        raise InputError(
            f"cannot read the key {path}: {reason}",
            hint="give the .pub file; " + NEW_KEY_HINT,
        ) from e
    with contextlib.suppress(ValueError):
        return Key.parse(text)
    raise InputError(
        f"{path} is not an ssh-ed25519 public key",
        hint="give the .pub file; " + NEW_KEY_HINT,
    )


def trust(
    key_path: Path, urls: Sequence[str], ask: bool = False, timeout: float = TIMEOUT_S
) -> tuple[FlashOutcome, ...]:
    """Make devices trust a key.

    They then accept only bundles signed with this key, or with another key that they
    trust already.
    """
    key = read_public(key_path)

    def trust_on(url: str) -> FlashOutcome:
        with Connection(stream_for(url, ask, timeout)) as connection:
            answer, _ = connection.ask(TRUST, Empty(), key.line.encode())
            return FlashOutcome(url, f"trusts {answer.fingerprint}, {answer.path}")

    return each(urls, trust_on)
