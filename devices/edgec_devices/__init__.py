"""edgec_devices: the boards edgec compiles for, and the devices bundles run on."""

from __future__ import annotations

from .boards import ArchTarget, Board, Target, boards
from .device import BenchResult, Device, Series, device_for

__all__ = ["ArchTarget", "BenchResult", "Board", "Device", "Series", "Target", "boards", "device_for"]
