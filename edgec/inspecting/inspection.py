"""Reads the facts about a bundle of one network, or of a cascade."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgec_devices.boards import Board, boards
from edgec_runtime import Bundle
from edgec_runtime.cascade.parameters import CascadeNetwork

from edgec.inspecting.facts import InspectedNetwork, Inspection
from edgec.inspecting.network import NetworkPlace, network_of
from edgec.inspecting.parts import parts_of
from edgec.inspecting.signature import known_keys, signature_of


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
