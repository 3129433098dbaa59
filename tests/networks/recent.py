"""The twelve networks of 2025 and 2026 that edgec is compared with others on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.networks.mobile import (
    convnext_v2_atto,
    fastvit_t8,
    mobilenet_v4_s,
    pp_liteseg,
    repvit_m0_9,
)
from tests.networks.transformers import (
    conformer,
    efficientformer_v2_s0,
    efficientvit_b0,
    swin_nano,
    vit_tiny,
)
from tests.networks.yolo import yolo11n, yolo26n

RECENT: dict[str, Callable[[Path], Path]] = {
    "yolo11n_320": partial(yolo11n, size=320),
    "yolo26n_320": partial(yolo26n, size=320),
    "mobilenet_v4_s": mobilenet_v4_s,
    "fastvit_t8": fastvit_t8,
    "efficientvit_b0": efficientvit_b0,
    "vit_tiny": vit_tiny,
    "swin_nano": swin_nano,
    "repvit_m0_9": repvit_m0_9,
    "efficientformer_v2_s0": efficientformer_v2_s0,
    "convnext_v2_atto": convnext_v2_atto,
    "conformer": conformer,
    "pp_liteseg": pp_liteseg,
}
"""By name; the YOLO ones also at 640 pixels: `yolo26n(path, 640)`."""
