"""The effect makeup=lips:#a03050,…: lips, brows, lids and hair in other colours.

A coloured pixel keeps its light and shade: the colour is scaled by the brightness of the
pixel relative to the mean of the part.
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
"""Largest share of the new colour in a pixel."""
LUMA = np.array([0.299, 0.587, 0.114], np.float32)
DARKER = (0.08, 0.3)
"""How much darker a pixel is than the skin, as a fraction, for no brow and all brow."""
LIGHTEST = 1.8
"""Largest brightness of a pixel relative to the mean of its part."""
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")


def makeup(setting: EffectSetting) -> Effect:
    """Return the effect that colours parts of a face.

    Raises InputError for an unknown part, or a text that is not a colour.
    """
    if not setting.value:
        raise InputError("the effect makeup needs parts and colours", hint=EXAMPLE)
    colors: Dict[str, Array] = {}
    for entry in setting.value.split(","):
        part, color = _entry(entry)
        colors[part] = color
    return Makeup(colors, setting.painter)


def _entry(entry: str) -> Tuple[str, Array]:
    """Return the part of a face and its colour, float32 [3], in an entry, part:#rrggbb."""
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
    """The effect that colours parts of a face."""

    smooths = True

    def __init__(self, colors: Mapping[str, Array], painter: Painter) -> None:
        """Prepare the parts of a face.

        Args:
            colors: the colour of each part, 0…255, red first [3]
            painter: paints
        """
        self._colors = colors
        self._painter = painter
        self._steady = SteadyFace()
        self._mesh = RingedFace()
        self._shares = part_shares(self._mesh)

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the frame with makeup; a frame without a face is not changed."""
        face: Optional[Array] = self._steady(result, at)
        if face is None:
            return frame
        out = np.array(frame)
        corners = self._mesh.placed(face)
        for part, color in self._colors.items():
            area, alpha = self._alpha(part, corners, frame)
            region = out[area]
            if part == HAIR:
                alpha = alpha * self._hair(frame, result)[area]
            if part == "brows":
                alpha = alpha * _brow_share(region, alpha)
            if alpha.any():
                out[area] = colored(region, alpha * STRENGTH[part], color)
        return out

    def _alpha(
        self, part: str, corners: Array, frame: Array
    ) -> Tuple[Tuple[slice, slice], Array]:
        """Return the rectangle of a part of the face, and the share of each pixel in it.

        The shares are 0…1 [h, w].
        """
        shares = self._shares[part]
        if part == LIDS:
            shares = lid_shares(shares, corners)
        warp = share_warp(self._mesh, corners, shares)
        points = warp.end[np.unique(warp.triangles)]
        size = np.array([frame.shape[1], frame.shape[0]])
        low = np.clip(np.floor(points.min(axis=0)), 0, size).astype(int)
        high = np.clip(np.ceil(points.max(axis=0)), 0, size).astype(int)
        area = slice(low[1], high[1]), slice(low[0], high[0])
        levels = np.zeros((high[1] - low[1], high[0] - low[0], 3), np.uint8)
        if levels.size:
            self._painter.warp_into(warp.moved(-low), levels)
        return area, levels[..., 0].astype(np.float32) / 255

    def _hair(self, frame: Array, result: Result) -> Array:
        """Return the share of hair in each pixel, 0…1 [H, W].

        If no network knows hair, it is the share of the person.

        Raises InputError if no network knows either.
        """
        for segments in results_of(result):
            if isinstance(segments, Segments):
                hair = [i for i, label in segments.labels if label == HAIR]
                if segments.classes is not None and hair:
                    classes = segments.classes_of_frame()
                    return np.asarray(classes == hair[0], np.float32)
                if segments.classes is None:
                    matte = self._painter.matte(frame, segments)
                    return matte.astype(np.float32) / 255
        raise InputError(
            "makeup=hair needs a segmentation beside the points of the face",
            hint="leave out hair, or compile a cascade with a network that finds "
            "persons or hair",
        )


def _brow_share(region: Array, alpha: Array) -> Array:
    """Return the share of hair in pixels of the brows, 0…1 [h, w].

    Hair is recognized by being darker than the skin.

    Args:
        region: uint8 [h, w, 3]
        alpha: the share of the brows' area in each pixel, 0…1 [h, w]
    """
    luma = region @ LUMA
    skin = float(np.percentile(luma[alpha > 0], 80)) if (alpha > 0).any() else 1.0
    darker = 1 - luma / max(skin, 1.0)
    return smooth_step(darker, *DARKER)


def colored(region: Array, alpha: Array, color: Array) -> Array:
    """Return pixels in another colour with their own light and shade, uint8 [h, w, 3].

    Args:
        region: the pixels, uint8 [h, w, 3]
        alpha: the share of the colour in each, 0…1 [h, w]
        color: the colour, red first, 0…255 [3]
    """
    luma = region @ LUMA
    total = max(float(alpha.sum()), 1e-6)
    mean = max(float((luma * alpha).sum()) / total, 1.0)
    relative = np.clip(luma / mean, 0, LIGHTEST)
    shaded = color * relative[..., None]
    share = alpha[..., None]
    levels = region * (1 - share) + shaded * share
    return np.asarray(np.clip(levels + 0.5, 0, 255), np.uint8)
