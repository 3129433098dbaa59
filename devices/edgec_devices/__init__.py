"""edgec_devices: the boards edgec compiles for, and the devices bundles run on."""

from __future__ import annotations

from .boards import ArchTarget, Board, Target, boards
from .device import Device, device_for

__all__ = ["ArchTarget", "Board", "Device", "Target", "boards", "device_for"]
