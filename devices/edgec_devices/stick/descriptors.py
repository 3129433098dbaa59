"""What the stick says of itself: descriptors of the boot loader and of the firmware.

Names of fields: USB 3.2, chapter 9; Device Firmware Upgrade 1.1, chapter 4. Numbers of
the devices, interfaces and endpoints: driver/usb in google-coral/libedgetpu.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from edgec_devices.stick.rates import Rates

DEVICE = 1
CONFIGURATION = 2
STRING = 3
INTERFACE = 4
ENDPOINT = 5
QUALIFIER = 6
OTHER_SPEED = 7
BOS = 15
DFU_FUNCTIONAL = 0x21
COMPANION = 48

BOOT = (0x1A6E, 0x089A)
FIRMWARE = (0x18D1, 0x9302)
DFU_BLOCK = 256
"""Bytes of a block of firmware."""
BULK_OUT, BULK_IN, EVENT_IN, INTERRUPT_IN = 0x01, 0x81, 0x82, 0x83

_BULK, _INTERRUPT = 2, 3
_SUPER_PACKET, _HIGH_PACKET = 1024, 512


@dataclass(frozen=True)
class Port:
    """The port that the stick is in.

    Attributes:
        super_speed: whether it is one of USB 3
        rates: how fast bytes cross it; None for at once
    """

    super_speed: bool
    rates: Rates | None = None

    @property
    def speed(self) -> int:
        """Return Linux's number of the speed."""
        return 5 if self.super_speed else 3

    @property
    def packet(self) -> int:
        """Return the most bytes of a bulk packet."""
        return _SUPER_PACKET if self.super_speed else _HIGH_PACKET


def device(port: Port, ids: tuple[int, int]) -> bytes:
    """Return the device descriptor."""
    release, packet = (0x0310, 9) if port.super_speed else (0x0210, 64)
    fields = (18, DEVICE, release, 0, 0, 0, packet, *ids, 0x0100, 0, 0, 0, 1)
    return struct.pack("<BBHBBBBHHHBBBB", *fields)


def configuration(port: Port, ids: tuple[int, int]) -> bytes:
    """Return the only configuration with its interface and endpoints."""
    parts = _dfu_interface() if ids == BOOT else _interface(port)
    current = 112 if port.super_speed else 250
    head = (9, CONFIGURATION, 9 + len(parts), 1, 1, 0, 0x80, current)
    return struct.pack("<BBHBBBBB", *head) + parts


def interfaces(ids: tuple[int, int]) -> tuple[tuple[int, int, int], ...]:
    """Return class, subclass and protocol of the interface."""
    return ((0xFE, 1, 2),) if ids == BOOT else ((0xFF, 0xFF, 0xFF),)


def binary_object_store(port: Port) -> bytes:
    """Return the BOS descriptor: link power management, and super speed where it is."""
    extension = struct.pack("<BBBI", 7, 16, 2, 2)
    speeds = struct.pack("<BBBBHBBH", 10, 16, 3, 0, 0xE, 1, 10, 0x7FF)
    parts = [extension, speeds] if port.super_speed else [extension]
    total = 5 + sum(map(len, parts))
    return struct.pack("<BBHB", 5, BOS, total, len(parts)) + b"".join(parts)


def descriptor(port: Port, ids: tuple[int, int], kind: int, index: int) -> bytes | None:
    """Return a descriptor by its number; None for one that the stick does not have."""
    if kind == DEVICE:
        return device(port, ids)
    if kind == CONFIGURATION and index == 0:
        return configuration(port, ids)
    if kind == BOS:
        return binary_object_store(port)
    if kind == STRING and index == 0:
        return struct.pack("<BBH", 4, STRING, 0x0409)
    if kind == QUALIFIER and not port.super_speed:
        return struct.pack("<BBHBBBBBB", 10, QUALIFIER, 0x0210, 0, 0, 0, 64, 1, 0)
    return None


def _dfu_interface() -> bytes:
    """Return the boot loader's interface: downloads and uploads, does not survive the
    manifestation without a reset.
    """
    interface = struct.pack("<BBBBBBBBB", 9, INTERFACE, 0, 0, 0, 0xFE, 1, 2, 0)
    functional = (9, DFU_FUNCTIONAL, 0b0011, 1000, DFU_BLOCK, 0x0101)
    return interface + struct.pack("<BBBHHH", *functional)


def _interface(port: Port) -> bytes:
    """Return the firmware's interface with its endpoints.

    With the firmware for one endpoint outwards, 2 and 3 are there and unused.
    """
    outwards = [(number, _BULK, port.packet, 0) for number in (1, 2, 3)]
    inwards = [(number, _BULK, port.packet, 0) for number in (BULK_IN, EVENT_IN)]
    interval = 4 if port.super_speed else 1
    endpoints = [*outwards, *inwards, (INTERRUPT_IN, _INTERRUPT, 64, interval)]
    head = (9, INTERFACE, 0, 0, len(endpoints), 0xFF, 0xFF, 0xFF, 0)
    parts = [struct.pack("<BBBBBBBBB", *head)]
    for address, kind, packet, wait in endpoints:
        parts.append(struct.pack("<BBBBHB", 7, ENDPOINT, address, kind, packet, wait))
        if port.super_speed:
            per_interval = packet if kind == _INTERRUPT else 0
            parts.append(struct.pack("<BBBBH", 6, COMPANION, 0, 0, per_interval))
    return b"".join(parts)
