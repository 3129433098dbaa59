"""Reads the facts about a bundle of one network, or of a cascade."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from edgec_devices.boards import Board, boards
from edgec_devices.signing import read_public
from edgec_runtime import Bundle
from edgec_runtime.bundle.archive import MANIFEST
from edgec_runtime.bundle.tflite_file import is_compiled
from edgec_runtime.cascade.parameters import CascadeNetwork
from edgec_runtime.device_end.disk import given
from edgec_runtime.device_end.ed25519 import verify
from edgec_runtime.device_end.trust import (
    SIGNATURE,
    Key,
    Untrusted,
    message,
    parse_signature,
    trusted,
)

from edgec.emit.tflite import MODEL_TFLITE
from edgec.errors import InputError
from edgec.inspecting.compiled import LARGEST, CompiledInspection, inspect_compiled
from edgec.inspecting.facts import (
    InspectedNetwork,
    InspectedPart,
    InspectedSignature,
    Inspection,
)
from edgec.inspecting.network import NetworkPlace, network_of


def inspect_file(
    path: Path, key: Path | None = None
) -> Inspection | CompiledInspection:
    """Return the facts about a bundle, or about a .tflite file of edgetpu_compiler.

    key: a public key's file, to compare with a bundle's signer.

    Raises InputError or BundleError as `inspect_bundle` and `inspect_compiled` do.
    """
    # Others than compiled files are refused as the bundles that they are not.
    if not _is_compiled(path):
        return inspect_bundle(path, key)
    if key is not None:
        raise InputError(
            f"{path.name} is a .tflite file, and only bundles are signed",
            "--key",
            "leave the option out",
        )
    return inspect_compiled(path)


def _is_compiled(path: Path) -> bool:
    """Return whether a file is of edgetpu_compiler."""
    try:
        return is_compiled(given(path, LARGEST))
    except OSError:
        return False


def inspect_bundle(path: Path, key: Path | None = None) -> Inspection:
    """Return the facts about a bundle.

    Args:
        path: the .edgec file.
        key: a public key's file, to compare the signer's with.

    Raises:
        BundleError: a damaged bundle, or one of another version.
        InputError: a key that cannot be read, or a damaged report within the bundle.
    """
    # A wrong key ends before the work.
    keys = known_keys(key)
    with Bundle.open(path) as bundle:
        manifest = bundle.manifest
        cascade = manifest.cascade
        rules = {}
        if cascade is not None:
            rules = {"objects": cascade.objects, "every": cascade.every}
        return Inspection(
            path=str(path),
            name=manifest.name,
            target=manifest.target,
            board=_board(manifest.board),
            bytes=path.stat().st_size,
            sha256=bundle.sha256,
            edgec=manifest.edgec,
            schema=manifest.schema,
            cascade=cascade is not None,
            cascade_rules=rules,
            networks=tuple(_networks(bundle)),
            parts=parts_of(bundle),
            detached=_detached(bundle),
            signature=signature_of(bundle, keys),
        )


def _networks(bundle: Bundle) -> Iterator[InspectedNetwork]:
    """Yield the networks; one that shares another's bundle too."""
    manifest = bundle.manifest
    if manifest.cascade is None:
        size = bundle.path.stat().st_size
        yield network_of(bundle, NetworkPlace(manifest.name, size))
        return
    for row in manifest.cascade.networks:
        with bundle.network(row.name) as inner:
            size = manifest.files[row.path].bytes
            place = NetworkPlace(row.name, size, _role(row), row.like or "")
            yield network_of(inner, place)


def _role(row: CascadeNetwork) -> str:
    """Return what a network of a cascade sees."""
    # The first network is the detector.
    if row.after is None:
        return "sees whole frames"
    sees = f"sees a crop around each object of {row.after}"
    if row.again is not None:
        sees += ", in the next frame around its own result"
    return sees if row.like is None else f"{sees}; the same network as {row.like}"


def _board(name: str) -> str:
    """Return the name of a board for people; that of an unknown board as it is."""
    # A newer edgec may know boards that this one does not.
    return Board.load(name).model if name in boards() else name


def _detached(bundle: Bundle) -> tuple[str, ...]:
    files = bundle.manifest.files
    return tuple(sorted(name for name, info in files.items() if info.detached))


_ABOUT: Mapping[str, str] = {
    MANIFEST: "the facts about the bundle, and a hash of each file",
    SIGNATURE: "who made it",
    "networks": "the bundle of each network",
    "segments": "segments for the Edge TPU",
    MODEL_TFLITE: "the whole int8 model, for other tools",
    "lib": "the network as a library, which Python loads",
    "bin": "the network as a program, for bench and services",
    "src": "the C of the network, for apps of one's own",
    "task": "files of the task",
    "state": "the first values of state",
    "report": "facts for reports",
}
"""What the folders of a bundle are for (docs/bundle.md)."""

_COMPILED = "_edgetpu.tflite"
"""The ending of a segment that edgetpu_compiler made."""


def parts_of(bundle: Bundle) -> tuple[InspectedPart, ...]:
    """Return the parts of a bundle, the largest first; the last is the zip's own."""
    manifest = bundle.manifest
    # Weights may lie in a folder of libraries, but are no code.
    weights = set(manifest.weights.values())
    groups: dict[tuple[str, str], list[int]] = {}
    for name in bundle.names:
        group = _group(name, name in weights)
        groups.setdefault(group, []).append(manifest.files[name].bytes)

    groups[(MANIFEST, _ABOUT[MANIFEST])] = [len(bundle.manifest_text)]
    if bundle.signature is not None:
        groups[(SIGNATURE, _ABOUT[SIGNATURE])] = [len(bundle.signature)]
    parts = []
    for (name, about), sizes in groups.items():
        parts.append(InspectedPart(name, about, len(sizes), sum(sizes)))
    parts.sort(key=lambda part: (-part.bytes, part.name))

    # Names and sizes of the files, which each zip has.
    rest = bundle.path.stat().st_size - sum(part.bytes for part in parts)
    return (*parts, InspectedPart("zip", "names and sizes of the files", 0, rest))


def _group(name: str, is_weights: bool) -> tuple[str, str]:
    """Return the name of a file's part, and what it is for."""
    path = PurePosixPath(name)
    if is_weights:
        return name, "the weights, which the code maps"
    folder = path.parts[0]
    if folder in ("lib", "bin"):
        # Code for each target: a person may ask why a bundle is large.
        return str(path.parent), _ABOUT[folder]
    if name.endswith(_COMPILED):
        return f"*{_COMPILED}", "segments as edgetpu_compiler made them"
    # Newer compilers may pack files that this one does not know.
    about = _ABOUT.get(folder, "another file")
    is_folder = folder in _ABOUT and len(path.parts) > 1
    return (f"{folder}/" if is_folder else name), about


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
    signature = parse_signature(bundle.signature)
    # The manifest has the hashes of all files, which opening a bundle has compared.
    text = message(bundle.manifest_text, signature.app, signature.counter)
    names = [key.comment for key in keys if key.public == signature.public]
    return InspectedSignature(
        fingerprint=signature.key.fingerprint,
        app=signature.app,
        counter=signature.counter,
        valid=verify(signature.public, text, signature.signature),
        trusted=names[0] if names else None,
        compared=len(keys),
    )
