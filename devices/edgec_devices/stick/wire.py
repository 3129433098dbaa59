"""The messages of USB/IP 1.1.1, the form in which a host and the stick talk.

Layouts: Documentation/usb/usbip_protocol.rst of Linux. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

VERSION = 0x0111
DEVLIST_REQUEST = 0x8005
DEVICE_BYTES = 312
"""Bytes of a device after an import."""
DEVLIST_REPLY = 0x0005
IMPORT_REQUEST = 0x8003
IMPORT_REPLY = 0x0003
BUSID_BYTES = 32
OP_BYTES = 8
URB_BYTES = 48

SUBMIT = 1
UNLINK = 2
SUBMITTED = 3
UNLINKED = 4

TAKEN_BACK = -104
"""ECONNRESET: the status of an unlink whose transfer had not ended."""
BUSY = 2
"""Status of an import: another client has the device."""
NOT_THERE = 4
"""Status of an import: no device with this name."""

_OP = struct.Struct(">HHI")
_DEVICE = struct.Struct(">256s32sIIIHHHBBBBBB")
_HEADER = struct.Struct(">IIIII")
_SUBMIT = struct.Struct(">IIIII8s")
_REPLY = struct.Struct(">iIIII8x")
_UNLINK = struct.Struct(">I24x")
_UNLINKED = struct.Struct(">i24x")


@dataclass(frozen=True)
class Description:
    """What a host learns about a device before it imports it.

    Attributes:
        busid: its name at this server
        bus, address: numbers of the bus and of the device on it
        speed: 3 for high speed (USB 2), 5 for super speed (USB 3)
        vendor, product, release: idVendor, idProduct and bcdDevice
        device_class: class, subclass and protocol of the device
        configuration: the number of the configuration that is set; 0 for none
        interfaces: class, subclass and protocol of each interface
    """

    busid: str
    bus: int
    address: int
    speed: int
    vendor: int
    product: int
    release: int
    device_class: tuple[int, int, int]
    configuration: int
    interfaces: tuple[tuple[int, int, int], ...]

    def packed(self) -> bytes:
        """Return the 312 bytes of the device, without its interfaces."""
        return _DEVICE.pack(
            f"/sys/devices/edgec/usb{self.bus}/{self.busid}".encode(),
            self.busid.encode(),
            self.bus,
            self.address,
            self.speed,
            self.vendor,
            self.product,
            self.release,
            *self.device_class,
            self.configuration,
            1,
            len(self.interfaces),
        )


@dataclass(frozen=True)
class Submit:
    """A transfer that the host begins.

    Attributes:
        number: of the message; the reply has the same
        endpoint: 0 to 15
        inwards: whether the device sends
        length: bytes to send, or the most that the host takes
        setup: the 8 bytes of a control transfer's setup packet
    """

    number: int
    endpoint: int
    inwards: bool
    length: int
    setup: bytes


@dataclass(frozen=True)
class Unlink:
    """The host takes a transfer back.

    Attributes:
        number: of the message
        submit: number of the transfer
    """

    number: int
    submit: int


def read_op(data: bytes | bytearray) -> tuple[int, int]:
    """Return the version and code at the start of a connection."""
    version, code, _ = _OP.unpack(data)
    return version, code


def devlist_reply(devices: list[Description]) -> bytes:
    """Return the list of devices with their interfaces."""
    parts = [_OP.pack(VERSION, DEVLIST_REPLY, 0), struct.pack(">I", len(devices))]
    for device in devices:
        parts.append(device.packed())
        parts += [bytes((*i, 0)) for i in device.interfaces]
    return b"".join(parts)


def import_reply(device: Description | None, status: int) -> bytes:
    """Return the answer to an import; the device follows only where the status is 0."""
    head = _OP.pack(VERSION, IMPORT_REPLY, status)
    return head if device is None or status else head + device.packed()


def read_message(data: bytes) -> Submit | Unlink:
    """Return the message of 48 bytes; of an outward transfer the bytes follow it.

    Raises:
        ValueError: the command is neither of the two
    """
    command, number, _, direction, endpoint = _HEADER.unpack_from(data)
    if command == SUBMIT:
        _, length, _, _, _, setup = _SUBMIT.unpack_from(data, _HEADER.size)
        return Submit(number, endpoint, direction == 1, length, setup)
    if command == UNLINK:
        return Unlink(number, _UNLINK.unpack_from(data, _HEADER.size)[0])
    raise ValueError(f"{command} is not a command of USB/IP")


def submit_reply(number: int, status: int, actual: int, data: bytes) -> bytes:
    """Return the end of a transfer.

    status: 0, or a negative error number of Linux. actual: bytes that were sent.
    data: those of an inward transfer.
    """
    return (
        _HEADER.pack(SUBMITTED, number, 0, 0, 0)
        + _REPLY.pack(status, actual, 0, 0, 0)
        + data
    )


def unlink_reply(number: int, status: int) -> bytes:
    """Return the end of an unlink: TAKEN_BACK, or 0 if the transfer had ended."""
    return _HEADER.pack(UNLINKED, number, 0, 0, 0) + _UNLINKED.pack(status)


@dataclass(frozen=True)
class Reply:
    """The end of a transfer or of an unlink.

    Attributes:
        number: of the message that it answers
        unlink: whether that was an unlink
        status: 0, or a negative error number of Linux
        actual: bytes that were sent; those of an inward transfer follow
    """

    number: int
    unlink: bool
    status: int
    actual: int


def import_request(busid: str) -> bytes:
    """Return the request for a device."""
    return _OP.pack(VERSION, IMPORT_REQUEST, 0) + struct.pack("32s", busid.encode())


def import_status(data: bytes) -> int:
    """Return the status of an import, which the device follows where it is 0."""
    status: int = _OP.unpack(data)[2]
    return status


def submit(message: Submit) -> bytes:
    """Return the message that begins a transfer, without the bytes outwards."""
    head = (SUBMIT, message.number, 1, int(message.inwards), message.endpoint)
    rest = (0, message.length, 0, 0, 0, message.setup)
    return _HEADER.pack(*head) + _SUBMIT.pack(*rest)


def unlink(message: Unlink) -> bytes:
    """Return the message that takes a transfer back."""
    return _HEADER.pack(UNLINK, message.number, 1, 0, 0) + _UNLINK.pack(message.submit)


def read_reply(data: bytes) -> Reply:
    """Return the reply of 48 bytes."""
    command, number, _, _, _ = _HEADER.unpack_from(data)
    status, actual, _, _, _ = _REPLY.unpack_from(data, _HEADER.size)
    unlinked = command == UNLINKED
    return Reply(number, unlinked, status, 0 if unlinked else actual)
