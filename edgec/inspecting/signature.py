"""Checks the signature of a bundle (docs/packages.md)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edgec_devices.signing import read_public
from edgec_runtime import Bundle
from edgec_runtime.device_end.ed25519 import verify
from edgec_runtime.device_end.trust import (
    Key,
    Untrusted,
    message,
    parse_signature,
    trusted,
)

from edgec.errors import InputError
from edgec.inspecting.facts import InspectedSignature


def known_keys(given: Path | None) -> list[Key]:
    """Return the keys to compare a signer with: a given one, else this machine's.

    Raises InputError for a key that cannot be read.
    """
    # A person who names a key asks about that one alone.
    if given is not None:
        return [read_public(given)]
    root = os.path.expanduser(os.environ.get("EDGEC_ROOT") or "~/.edgec")
    try:
        return trusted(root)
    except Untrusted as e:
        raise InputError(e.what, hint=e.hint) from e


def signature_of(bundle: Bundle, keys: Sequence[Key]) -> InspectedSignature | None:
    """Return whose signature a bundle has, and whether it fits; None without one."""
    if bundle.signature is None:
        return None
    found = parse_signature(bundle.signature)
    # The manifest has the hashes of all files, which opening a bundle has compared.
    text = message(bundle.manifest_text, found.app, found.counter)
    names = [key.comment for key in keys if key.public == found.public]
    return InspectedSignature(
        fingerprint=found.key.fingerprint,
        app=found.app,
        counter=found.counter,
        valid=verify(found.public, text, found.signature),
        trusted=names[0] if names else None,
        compared=len(keys),
    )
