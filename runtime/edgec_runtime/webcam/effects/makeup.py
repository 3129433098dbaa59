"""makeup=lips:#a03050,…: lips, brows, lids and hair in other colours, softly.

A coloured pixel keeps its light and shade: it gets the colour, as bright as the pixel
is beside the mean of the part.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError, did_you_mean
from ...face.face_picture import RingedFace
from ...face.geometry import smooth_step
from ...face.makeup_areas import HAIR, LIDS, PARTS, lid_shares, part_shares, share_warp
from ...face.points import results_of
from ...vision.tasks.base import Result
from ...vision.tasks.segmentation import Segments
from .base import Effect, EffectSetting
from .faces import SteadyFace
from .painter import Painter

Array = NDArray[Any]

EXAMPLE = "makeup=lips:#a03050,brows:#402010"
STRENGTH: Mapping[str, float] = {"lips": 0.65, "brows": 0.7, LIDS: 0.5, HAIR: 0.7}
"""How much of a pixel is the new colour, at most."""
LUMA = np.array([0.299, 0.587, 0.114], np.float32)
DARKER = (0.08, 0.3)
"""By how much brows are darker than what is around them, in parts: no brow, all of it."""
LIGHTEST = 1.8
"""The largest brightness of a pixel beside the mean of its part."""
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")


def makeup(setting: EffectSetting) -> Effect:
    """Return the effect that colours parts of a face.

    Raises InputError for a part or a colour that there is not.
    """
    if not setting.value:
        raise InputError("the effect makeup needs parts and colours", hint=EXAMPLE)
    colors: Dict[str, Array] = {}
    for entry in setting.value.split(","):
        part, color = _entry(entry)
        colors[part] = color
    return Makeup(colors, setting.painter)


def _entry(entry: str) -> Tuple[str, Array]:
    """Return the part of a face and the colour of one entry."""
    part, _, color = entry.strip().partition(":")
    if part not in PARTS:
        what = f'makeup has no "{part:.40}"{did_you_mean(part, PARTS)}'
        raise InputError(what, hint=f"use {', '.join(PARTS)}: {EXAMPLE}")
    if not _COLOR.fullmatch(color):
        what = f'"{color:.40}" is not a colour for {part}'
        raise InputError(what, hint=f"write it as #rrggbb: {EXAMPLE}")
    levels = bytes.fromhex(color[1:])
    return part, np.array(list(levels), np.float32)


class Makeup(Effect):
    """Colours of parts of a face."""

    smooths = True

    def __init__(self, colors: Mapping[str, Array], painter: Painter) -> None:
        """Take the colours, red first [3] by the part."""
        self._colors = colors
        self._painter = painter
        self._steady = SteadyFace()
        self._mesh = RingedFace()
        self._shares = part_shares(self._mesh)

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the frame with makeup; without a face as it is."""
        face: Optional[Array] = self._steady(result, at)
        if face is None:
            return frame
        out = np.array(frame)
        corners = self._mesh.placed(face)
        for part, color in self._colors.items():
            place, alpha = self._alpha(part, corners, frame)
            region = out[place]
            if part == HAIR:
                alpha = alpha * self._hair(frame, result)[place]
            if part == "brows":
                alpha = alpha * _dark(region, alpha)
            if alpha.any():
                out[place] = colored(region, alpha * STRENGTH[part], color)
        return out

    def _alpha(
        self, part: str, corners: Array, frame: Array
    ) -> Tuple[Tuple[slice, slice], Array]:
        """Return the rectangle of a part in the frame, and its shares, 0…1 [h, w]."""
        shares = self._shares[part]
        if part == LIDS:
            shares = lid_shares(shares, corners)
        warp = share_warp(self._mesh, corners, shares)
        points = warp.end[np.unique(warp.triangles)]
        size = np.array([frame.shape[1], frame.shape[0]])
        low = np.clip(np.floor(points.min(axis=0)), 0, size).astype(int)
        high = np.clip(np.ceil(points.max(axis=0)), 0, size).astype(int)
        place = slice(low[1], high[1]), slice(low[0], high[0])
        levels = np.zeros((high[1] - low[1], high[0] - low[0], 3), np.uint8)
        if levels.size:
            moved = warp.moved(-low)
            self._painter.warp_into(moved, levels)
        return place, levels[..., 0].astype(np.float32) / 255

    def _hair(self, frame: Array, result: Result) -> Array:
        """Return how much of each pixel is the person or, where a network knows it,
        hair, 0…1 [H, W].

        Raises InputError where no network says it.
        """
        for found in results_of(result):
            if isinstance(found, Segments):
                named = [i for i, label in found.labels if label == HAIR]
                if found.classes is not None and named:
                    return np.asarray(found.classes_of_frame() == named[0], np.float32)
                if found.classes is None:
                    return self._painter.matte(frame, found).astype(np.float32) / 255
        raise InputError(
            "makeup=hair needs a segmentation beside the points of the face",
            hint="leave out hair, or compile a cascade with a network that finds "
            "persons or hair",
        )


def _dark(region: Array, alpha: Array) -> Array:
    """Return how far pixels are hairs of a brow, 0…1: they are darker than the skin.

    Args:
        region: uint8 [h, w, 3]
        alpha: how far they belong to the brows [h, w]
    """
    luma = region @ LUMA
    skin = float(np.percentile(luma[alpha > 0], 80)) if (alpha > 0).any() else 1.0
    darker = 1 - luma / max(skin, 1.0)
    return smooth_step(darker, *DARKER)


def colored(region: Array, alpha: Array, color: Array) -> Array:
    """Return pixels in another colour, with their own light and shade.

    Args:
        region: uint8 [h, w, 3]
        alpha: the share of the colour, 0…1 [h, w]
        color: red first, 0…255 [3]
    """
    luma = region @ LUMA
    total = max(float(alpha.sum()), 1e-6)
    mean = max(float((luma * alpha).sum()) / total, 1.0)
    relative = np.clip(luma / mean, 0, LIGHTEST)
    wanted = color * relative[..., None]
    share = alpha[..., None]
    mixed = region * (1 - share) + wanted * share
    return np.asarray(np.clip(mixed + 0.5, 0, 255), np.uint8)
