"""Sums up the files of a bundle by what they are for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from edgec_runtime import Bundle
from edgec_runtime.bundle.archive import MANIFEST
from edgec_runtime.device_end.trust import SIGNATURE

from edgec.emit.tflite import MODEL_TFLITE
from edgec.inspecting.facts import InspectedPart

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
