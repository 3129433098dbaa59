"""The options of `edgec run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgec_devices.options import FilePath, LinkOptions, option

from edgec.options.devices import BundleArgument, OnOption, ThreadsOption


@dataclass(frozen=True)
class _Inputs:
    inputs: Mapping[str, Any] | FilePath = field(
        metadata=option(
            ".npz by input name, .npy, or a photo",
            python="arrays by name, or a file: an .npz by input name, an .npy or a "
            "photo. An image input takes a photo as an array too, uint8 "
            "[height, width, 3] of any size (docs/preprocessing.md)",
            flags=("--input",),
        )
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(LinkOptions, ThreadsOption, OnOption, _Inputs, BundleArgument):
    """The options of `edgec run`."""

    output: FilePath | None = field(
        default=None,
        metadata=option(
            "file for the result: .png or .jpg, drawn; .json; or .npz, the outputs as "
            "they are",
            flags=("--output", "--out"),
        ),
    )
    effect: str | None = field(
        default=None,
        metadata=option(
            "what --out shows, as of edgec webcam (default: overlay)",
            python="what the picture shows, as of `webcam` (default: overlay)",
            metavar="NAME",
        ),
    )
    mask: bool = field(
        default=False,
        metadata=option(
            "of a segmentation: --out x.png has the class of each pixel, not the photo"
        ),
    )
    raw: bool = field(
        default=False,
        metadata=option("the outputs as they are, not what they mean"),
    )
