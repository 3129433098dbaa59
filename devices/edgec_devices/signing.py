"""Signs bundles and hands devices the keys that they shall trust (docs/packages.md)."""

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
from edgec_runtime.device_end.slots import check_name
from edgec_runtime.device_end.trust import (
    MAX_COUNTER,
    Key,
    Signature,
    message,
    wheel_message,
    wheel_signature_text,
)

from edgec_devices import answers
from edgec_devices.device import TIMEOUT_S
from edgec_devices.flash import FlashOutcome, each
from edgec_devices.protocol import Connection
from edgec_devices.pushing import runtime_wheel
from edgec_devices.stream import stream_for
from edgec_devices.transfer import app_name
from edgec_devices.wheel import Wheel, signature_path

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_LARGEST_KEY = 1 << 16  # bytes of its file
_NEW = "edgec sign --new-key FILE makes one"


def new_key(path: Path) -> Key:
    """A new private key at `path`, readable by its user only, and `path`.pub.

    Raises InputError, never overwrites.
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
        path.unlink()
        raise
    return key


def public_path(path: Path) -> Path:
    """Where new_key() puts the public half."""
    return path.with_name(f"{path.name}.pub")


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb"
        ) as f:
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
    """Signs a bundle, in its place or to `output`; the signature.

    Signing again replaces it.

    app: the application on the device that it is for; default is the model's name.
    counter: grows from one version to the next, so that a device takes none that is
    older than what it had; default is the time in seconds.
    """
    private = _load(key_path)
    counter = int(time.time()) if counter is None else counter
    if not 0 <= counter <= MAX_COUNTER:
        raise InputError(
            f"{counter} cannot be a counter",
            hint="give --counter a number from 0 on that grows",
        )
    with Bundle.open(bundle) as opened:
        whose = app or app_name(opened.manifest.name)
        try:
            check_name(whose)  # no device would take it
        except Refused as e:
            raise InputError(e.what, hint=e.hint) from e
        made = private.sign(message(opened.manifest_text, whose, counter))
        signature = Signature(_public(private), whose, counter, made)
        try:
            write_signed(output or bundle, opened, signature.to_json())
        except OSError as e:
            raise InputError(
                f"cannot write {output or bundle}: {e.strerror}",
                hint="check the folder",
            ) from e
    return signature


def sign_wheel(wheel: Wheel, path: Path, key_path: Path) -> None:
    """Writes the file beside a wheel, which is at `path`, that says who made it."""
    private = _load(key_path)
    text = wheel_signature_text(
        _public(private), private.sign(wheel_message(wheel.digests()))
    )
    _write(signature_path(path), text)


def sign_runtime(folder: Path, key_path: Path) -> Path:
    """Writes the slim runtime of this edgec and its signature; its path, which goes to
    --wheel.
    """
    wheel = runtime_wheel()
    path = folder / wheel.name
    _write(path, wheel.data)
    sign_wheel(wheel, path, key_path)
    return path


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as e:
        raise InputError(
            f"cannot write {path}: {e.strerror}", hint="check the folder"
        ) from e


@dataclass(frozen=True)
class Signed:
    """fingerprint: of the key.  lines: what was done, for a person.  runtime: the wheel
    that was written, if any.
    """

    fingerprint: str
    lines: tuple[str, ...]
    runtime: Path | None


def sign_or_make(
    file: Path | None,
    key: Path | None,
    new_key_path: Path | None,
    output: Path | None = None,
    app: str | None = None,
    counter: int | None = None,
    runtime: bool = False,
) -> Signed:
    """What `edgec sign` does: makes a key if one is asked for, and signs a bundle or a
    wheel with it or with `key`.

    runtime: that of this edgec, too, written to this folder.  Raises InputError where
    there is nothing to do, or no key to do it with.
    """
    lines = []
    if new_key_path is not None:
        made = new_key(new_key_path)
        lines.append(
            f"{new_key_path} {made.fingerprint}; "
            f"devices trust it by {public_path(new_key_path)}"
        )
    elif file is None and not runtime:
        raise InputError(
            "there is nothing to sign", hint="edgec sign out.edgec --key FILE"
        )
    used = key or new_key_path
    if used is None:
        raise InputError(
            "there is no key to sign with",
            hint="add --key FILE, or --new-key FILE for the first time",
        )
    fingerprint = Key(_public(_load(used)), "").fingerprint
    if file is not None and file.suffix == ".whl":
        if output is not None or app is not None or counter is not None:
            what = "a wheel is signed beside itself, for any application"
            raise InputError(what, hint="leave -o, --app and --counter out")
        sign_wheel(Wheel.of(file), file, used)
        lines.append(
            f"{signature_path(file)} says that {file.name} is signed with {fingerprint}"
        )
    elif file is not None:
        found = sign(file, used, output, app, counter)
        lines.append(
            f"{output or file} is signed with {fingerprint} for {found.app}, "
            f"counter {found.counter}"
        )
    return Signed(
        fingerprint, tuple(lines), sign_runtime(Path(), used) if runtime else None
    )


def _public(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


def _load(path: Path) -> Ed25519PrivateKey:
    """Of a private key file: PEM (PKCS #8) or OpenSSH's, not encrypted."""
    _library()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        data = given(path, _LARGEST_KEY)
    except OSError as e:
        raise InputError(f"cannot read the key {path}: {e.strerror}", hint=_NEW) from e
    openssh = b"OPENSSH PRIVATE KEY" in data
    try:
        found: object
        if openssh:
            found = serialization.load_ssh_private_key(data, None)
        else:
            found = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        hint = "give the private key, not encrypted; " + _NEW
        raise InputError(
            f"{path} is not a private key that can be used: {e!s:.120}", hint=hint
        ) from e
    if not isinstance(found, Ed25519PrivateKey):
        raise InputError(f"{path} is a key of another kind than ed25519", hint=_NEW)
    return found


def _library() -> None:
    try:
        import cryptography
    except ImportError as e:
        raise ToolError(
            "the library that signs is not installed", hint="pip install cryptography"
        ) from e
    del cryptography


def read_public(path: Path) -> Key:
    """A public key file.

    Raises InputError, also for a private key: that must not leave this machine.
    """
    try:
        text = given(path, _LARGEST_KEY).decode()
    except (OSError, UnicodeDecodeError) as e:
        said = e.strerror if isinstance(e, OSError) else e
        raise InputError(
            f"cannot read the key {path}: {said}", hint="give the .pub file; " + _NEW
        ) from e
    with contextlib.suppress(ValueError):
        return Key.parse(text)
    raise InputError(
        f"{path} is not an ssh-ed25519 public key", hint="give the .pub file; " + _NEW
    )


def trust(
    key_path: Path, urls: Sequence[str], ask: bool = False, timeout: float = TIMEOUT_S
) -> tuple[FlashOutcome, ...]:
    """From now on these devices take only bundles that are signed with this key, or one
    that they trust already.
    """
    key = read_public(key_path)

    def one(url: str) -> FlashOutcome:
        with Connection(stream_for(url, ask, timeout)) as connection:
            done, _ = connection.ask("trust", answers.Trusted, key.line.encode())
            return FlashOutcome(url, f"trusts {done.fingerprint}, {done.path}")

    return each(urls, one)
