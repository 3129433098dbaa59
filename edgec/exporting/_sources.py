"""Writes the C of a bundle into a folder, with its weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgec_runtime import Bundle
from edgec_runtime.bundle.archive import EDGETPU_FILE

from edgec.errors import InputError
from edgec.report.wording import plain, shortened

SOURCES = "src/"
"""The C of a bundle: a folder for each target, and beside them the kernels."""

LONGEST_NAME = 60
"""Characters of a tensor's name in a README."""


def write_sources(bundle: Bundle, folder: Path) -> tuple[str, ...]:
    """Write src/ of a bundle, and beside each target's C its weights and the programs for
    a stick.

    Returns the targets. Raises InputError for a bundle without C.
    """
    manifest = bundle.manifest
    names = [name for name in bundle.names if name.startswith(SOURCES)]
    # Kernels are included from the folder above, so the layout stays as it is.
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bundle.read(name))

    # Kernels have folders of their own beside those of the targets.
    listed = (name.split("/") for name in names)
    targets = sorted(parts[1] for parts in listed if parts[-1] == "CMakeLists.txt")
    if not targets:
        raise InputError(
            "the bundle has no C",
            at=str(bundle.path),
            hint="compile the model again",
        )
    # The program maps the files beside itself, so each target has copies of its own.
    for target in targets:
        if target in manifest.weights:
            weights = folder / SOURCES / target / "weights.bin"
            weights.write_bytes(bundle.read(manifest.weights[target]))
        if EDGETPU_FILE in bundle.names:
            beside = folder / SOURCES / target / Path(EDGETPU_FILE).name
            beside.write_bytes(bundle.read(EDGETPU_FILE))
    return tuple(targets)


def tensors_text(bundle: Bundle) -> str:
    """Return a sentence with the type and shape of each input and output."""
    manifest = bundle.manifest
    kinds = (("input", manifest.input_infos()), ("output", manifest.output_infos()))
    parts = []
    for kind, infos in kinds:
        for info in infos:
            shape = "x".join(map(str, info.shape))
            dtype = info.numpy_dtype.name
            name = shortened(plain(info.name), LONGEST_NAME)
            parts.append(f"{kind} `{name}` is {dtype} {shape}")
    return f"{'; '.join(parts)}."


def make_commands(targets: Sequence[str]) -> str:
    """Return the command that builds the C for each target, the first by default."""
    # A person with one target need not know that there could be several.
    if len(targets) == 1:
        return "`make`"
    others = (f"`make MODEL_TARGET={t}` for {t}" for t in targets[1:])
    return ", ".join((f"`make` for {targets[0]}", *others))
