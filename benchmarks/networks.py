"""The networks that edgec is compared with others on, and their files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.data_folder import BUILD, MODELS, ROOT
from tests.networks.recent import RECENT

NETWORKS = {
    "mnv2_tf2_i8": ("mnv2_tf2_i8",),
    "mnv1_025_128_u8": ("mnv1_025_128_u8",),
    "resnet8_i8": ("resnet8_i8",),
    "vww96_i8": ("vww96_i8",),
    "prisma_i8": ("prisma_i8",),
    "deeplab_dm05_u8": ("deeplab_dm05_u8",),
    "movenet_lightning_i8": ("movenet_lightning_i8",),
    "mnv1_025_224_f32": ("mnv1_025_224_f32",),
    "prisma_f32": ("prisma_f32", "prisma_onnx"),
    "deeplabv3_257_f32": ("deeplabv3_257_f32",),
    "mp_selfie_land": ("mp_selfie_land_f16", "mp_selfie_land_onnx"),
    "mp_face_landmark": ("mp_face_landmark_f16", "mp_face_landmark_onnx"),
    "ultraface_rfb320": ("ultraface_rfb320_tflite", "ultraface_rfb320"),
    "hourglass_pose": ("hourglass_pose",),
    "fns_udnie": ("fns_udnie_std_256",),
    "yolox_nano": ("yolox_nano_416",),
    "pfld_ghostone": ("pfld_ghostone",),
}
"""The data folder's names of each network, one for each format; LiteRT reads the first
if it reads any.
"""
ONNX_NETWORKS = {
    "yunet_n_320": ("yunet_n_320",),
    "fastestdet": ("fastestdet_onnx",),
    "sinet": ("sinet_portrait_onnx",),
}
"""Further networks that the data folder has as ONNX files alone."""


def available(*names: str) -> list[str]:
    """Return these networks, or the fixtures' files if there is no data folder."""
    if MODELS.is_dir():
        return list(names)
    return [str(path) for path in (ROOT / "fixtures").glob("*/*.onnx")]


def files(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield the name and the file of each network that edgec reads."""
    for name, formats in files_by_format(names):
        yield name, formats[0]


def files_by_format(names: Iterable[str]) -> Iterator[tuple[str, Sequence[Path]]]:
    """Yield the name and all files of each network: first the one that edgec reads.

    Args:
        names: networks, folders of the data folder's models, or paths of model files

    Exits if there is no such network.
    """
    for name in names:
        if Path(name).is_file():
            paths = [Path(name)]
        elif name in RECENT:
            folder = BUILD / "networks"
            folder.mkdir(parents=True, exist_ok=True)
            paths = [RECENT[name](folder / f"{name}.onnx")]
        else:
            folders = {**NETWORKS, **ONNX_NETWORKS}.get(name, (name,))
            paths = [p for f in folders for p in sorted((MODELS / f).glob(f"{f}.*"))]
            paths = [p for p in paths if p.suffix in (".tflite", ".onnx")]
        if not paths:
            sys.exit(f"no network {name}: give a file, or a name of {MODELS}")
        yield Path(name).stem, paths
