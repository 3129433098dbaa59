"""USB devices by Linux's usbfs: found in sysfs, driven by ioctl on /dev/bus/usb/BBB/DDD.

Numbers and structures are those of include/uapi/linux/usbdevice_fs.h; the kernel's
Documentation/driver-api/usb/usb.rst describes the calls. A transfer is a URB: it is
submitted, the kernel works on it, and it is reaped when it has ended, in any order.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, Union

from ..device_end.facts import ADD_UDEV_RULES
from ..errors import DeviceError

BULK = 3
INTERRUPT = 1
CAPABILITY_SCATTER_GATHER = 0x8
"""The kernel can collect a long transfer from pages of memory that are not neighbours."""
IN = 0x80
"""This bit of an endpoint's address means towards the host."""


class LostError(DeviceError):
    """The device is unplugged, or does not answer any more."""


class StalledError(DeviceError):
    """A transfer has failed or does not end; the device itself is still there."""


class _ControlTransfer(ctypes.Structure):
    _fields_ = [
        ("bRequestType", ctypes.c_uint8),
        ("bRequest", ctypes.c_uint8),
        ("wValue", ctypes.c_uint16),
        ("wIndex", ctypes.c_uint16),
        ("wLength", ctypes.c_uint16),
        ("timeout", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
    ]


class _UrbStructure(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_ubyte),
        ("endpoint", ctypes.c_ubyte),
        ("status", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("buffer", ctypes.c_void_p),
        ("buffer_length", ctypes.c_int),
        ("actual_length", ctypes.c_int),
        ("start_frame", ctypes.c_int),
        ("number_of_packets", ctypes.c_int),
        ("error_count", ctypes.c_int),
        ("signr", ctypes.c_uint),
        ("usercontext", ctypes.c_void_p),
    ]


def _number(direction: int, command: int, size: int) -> int:
    """Return an ioctl's number as asm-generic/ioctl.h composes it."""
    return direction << 30 | size << 16 | ord("U") << 8 | command


_POINTER = ctypes.sizeof(ctypes.c_void_p)
_WRITE, _READ = 1, 2
_CONTROL = _number(_READ | _WRITE, 0, ctypes.sizeof(_ControlTransfer))
_SUBMITURB = _number(_READ, 10, ctypes.sizeof(_UrbStructure))
_DISCARDURB = _number(0, 11, 0)
_REAPURBNDELAY = _number(_WRITE, 13, _POINTER)
_CLAIMINTERFACE = _number(_READ, 15, 4)
_RELEASEINTERFACE = _number(_READ, 16, 4)
_RESET = _number(0, 20, 0)
_CLEAR_HALT = _number(_READ, 21, 4)
_GET_CAPABILITIES = _number(_READ, 26, 4)

# fcntl.ioctl copies an argument of up to 1024 bytes, but a URB has to stay where it is
# until it is reaped.
_ioctl = ctypes.CDLL(None, use_errno=True).ioctl
_ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)
_ioctl.restype = ctypes.c_int

_GONE = (errno.ENODEV, errno.ESHUTDOWN, errno.ENXIO)
_CANCELLED = (errno.ENOENT, errno.ECONNRESET)
# A device that is being unplugged ends transfers with these before the hub says so.
_NO_ANSWER = (errno.EPROTO, errno.EILSEQ, errno.ETIME)


@dataclass(frozen=True)
class UsbDevice:
    """A device that the kernel has enumerated.

    Attributes:
        port: the port that it is plugged into, as sysfs names it: "1-1.2"; it stays when
            the device starts anew
        vendor, product: its identifiers
        node: its file for usbfs
        mbps: its speed in Mb/s, 0 if unknown
    """

    port: str
    vendor: int
    product: int
    node: str
    mbps: int


def find_devices(
    identifiers: Tuple[Tuple[int, int], ...], root: str = "/"
) -> List[UsbDevice]:
    """Return the devices with one of these (vendor, product), by their ports.

    Args:
        identifiers: pairs of vendor and product
        root: folder that has sys and dev
    """
    folder = os.path.join(root, "sys/bus/usb/devices")
    try:
        ports = sorted(os.listdir(folder))
    except OSError:
        return []
    devices = []
    for port in ports:
        # A device may vanish between any two reads.
        with contextlib.suppress(OSError, ValueError):
            values = os.path.join(folder, port)
            pair = _value(values, "idVendor", 16), _value(values, "idProduct", 16)
            if pair not in identifiers:
                continue
            bus, number = _value(values, "busnum"), _value(values, "devnum")
            node = os.path.join(root, f"dev/bus/usb/{bus:03}/{number:03}")
            try:
                mbps = int(float(_text(values, "speed")))
            except (OSError, ValueError, OverflowError):
                mbps = 0
            devices.append(UsbDevice(port, *pair, node, mbps))
    return devices


def _text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="ascii") as f:
        return f.read()


def _value(folder: str, name: str, base: int = 10) -> int:
    return int(_text(folder, name), base)


class Urb:
    """A bulk transfer, which can be submitted again after it was reaped.

    The kernel reads or writes its memory in between.

    Attributes:
        endpoint: the endpoint's address
        length: number of bytes
        note: a number for its owner
        address: where its structure is
    """

    def __init__(
        self,
        endpoint: int,
        memory: bytearray,
        offset: int = 0,
        length: Optional[int] = None,
    ) -> None:
        """Prepare a transfer.

        Args:
            endpoint: the endpoint's address
            memory: what is sent, or where it goes
            offset: its first byte in the memory
            length: number of bytes; None for all after the offset
        """
        self.endpoint = endpoint
        self.length = len(memory) - offset if length is None else length
        self.note = 0
        self._bytes = memoryview(memory)[offset : offset + self.length]
        # As long as this array exists, the bytearray cannot be moved.
        self._array = (ctypes.c_char * self.length).from_buffer(memory, offset)
        self._urb = _UrbStructure(
            type=BULK,
            endpoint=endpoint,
            buffer=ctypes.addressof(self._array),
            buffer_length=self.length,
        )
        self.address = ctypes.addressof(self._urb)

    @classmethod
    def interrupt(cls, endpoint: int, memory: bytearray) -> "Urb":
        """Return a transfer of an interrupt endpoint."""
        urb = cls(endpoint, memory)
        urb._urb.type = INTERRUPT
        return urb

    @property
    def status(self) -> int:
        """0, or the number of the error that ended it, as errno has it."""
        return -int(self._urb.status)

    @property
    def received(self) -> int:
        """Number of bytes that were transferred."""
        return int(self._urb.actual_length)

    @property
    def cancelled(self) -> bool:
        """Whether it was ended by `UsbHandle.discard`."""
        return self.status in _CANCELLED

    def bytes(self) -> memoryview:
        """Return the bytes that were transferred."""
        return self._bytes[: self.received]


class UsbHandle:
    """An open device. One thread uses it at a time.

    Raises:
        DeviceError: it cannot be opened; the hint says what to do
    """

    def __init__(self, device: UsbDevice) -> None:
        self.device = device
        self._pending: Dict[int, Urb] = {}
        self._claimed: List[int] = []
        self._reaped = ctypes.c_void_p()
        self._reaped_at = ctypes.addressof(self._reaped)
        try:
            self._file = os.open(device.node, os.O_RDWR | os.O_CLOEXEC)
        except OSError as e:
            raise _open_error(device, e) from None
        try:
            # A second process is refused here, before it sends anything to the device.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise _in_use(device) from None
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLOUT)

    @property
    def pending(self) -> int:
        """Number of transfers that are submitted and not reaped."""
        return len(self._pending)

    def close(self) -> None:
        """Close the device; the kernel ends all its transfers."""
        if self._file < 0:
            return
        for interface in self._claimed:
            argument = ctypes.c_uint(interface)
            _ioctl(self._file, _RELEASEINTERFACE, ctypes.byref(argument))
        file = self._file
        self._file = -1
        os.close(file)
        self._pending.clear()

    def claim(self, interface: int) -> None:
        """Take an interface for this process.

        Raises:
            DeviceError: another program has it
        """
        try:
            self._call(_CLAIMINTERFACE, ctypes.byref(ctypes.c_uint(interface)))
        except StalledError as e:
            raise _in_use(self.device) from e
        self._claimed.append(interface)

    def capabilities(self) -> int:
        """Return the kernel's abilities as bits, such as CAPABILITY_SCATTER_GATHER."""
        bits = ctypes.c_uint32(0)
        self._call(_GET_CAPABILITIES, ctypes.byref(bits))
        return int(bits.value)

    def reset(self) -> None:
        """Reset the port; a device that then describes itself differently is gone."""
        self._call(_RESET, None)

    def clear_halt(self, endpoint: int) -> None:
        """End the halt of an endpoint that has refused a transfer."""
        self._call(_CLEAR_HALT, ctypes.byref(ctypes.c_uint(endpoint)))

    def control_out(
        self, setup: Tuple[int, int, int, int], data: bytes, timeout: float
    ) -> None:
        """Send a control request.

        Args:
            setup: bmRequestType, bRequest, wValue, wIndex
            data: what follows
            timeout: in seconds
        """
        self._control(setup, ctypes.create_string_buffer(data, len(data)), timeout)

    def control_in(
        self, setup: Tuple[int, int, int, int], length: int, timeout: float
    ) -> bytes:
        """Return the answer to a control request, of at most `length` bytes."""
        memory = ctypes.create_string_buffer(length)
        received = self._control(setup, memory, timeout)
        return memory.raw[:received]

    def _control(
        self, setup: Tuple[int, int, int, int], memory: Any, timeout: float
    ) -> int:
        request = _ControlTransfer(
            *setup,
            len(memory),
            max(1, int(timeout * 1000)),
            ctypes.addressof(memory),
        )
        return self._call(_CONTROL, ctypes.byref(request))

    def submit(self, urb: Urb) -> None:
        """Begin a transfer; its buffer belongs to the kernel until it is reaped."""
        self._pending[urb.address] = urb
        if _ioctl(self._file, _SUBMITURB, urb.address) < 0:
            del self._pending[urb.address]
            raise self._error(ctypes.get_errno())

    def discard(self, urb: Urb) -> None:
        """Ask the kernel to end a transfer; it is still to be reaped."""
        # An error means that it has ended already.
        if urb.address in self._pending:
            _ioctl(self._file, _DISCARDURB, urb.address)

    def reap(self, timeout: float) -> Optional[Urb]:
        """Return a transfer that has ended; None if none ends in time.

        Args:
            timeout: in seconds

        Raises:
            LostError: the device is gone
        """
        end = time.monotonic() + timeout
        left = timeout
        while left > 0:
            # It returns at once if a transfer has ended already.
            events = self._poll.poll(left * 1000 + 1)
            urb = self.reap_now()
            if urb is not None:
                return urb
            # All transfers have ended with the device; the last ones may have had data.
            if events and events[0][1] & (select.POLLHUP | select.POLLERR):
                raise _lost(self.device, "it is unplugged")
            left = end - time.monotonic()
        return None

    def reap_now(self) -> Optional[Urb]:
        """Return a transfer that has ended; None if there is none."""
        if _ioctl(self._file, _REAPURBNDELAY, self._reaped_at) == 0:
            return self._pending.pop(self._reaped.value or 0, None)
        number = ctypes.get_errno()
        if number in (errno.EAGAIN, errno.EINTR):
            return None
        raise self._error(number)

    def cancel_all(self, timeout: float) -> None:
        """End all transfers and reap them.

        Raises:
            LostError: the device is gone, or a transfer does not end in time
        """
        for urb in list(self._pending.values()):
            self.discard(urb)
        end = time.monotonic() + timeout
        while self._pending:
            if self.reap(max(0.001, end - time.monotonic())) is None:
                raise _lost(self.device, "its transfers cannot be ended")

    def _call(self, number: int, argument: Any) -> int:
        result = int(_ioctl(self._file, number, argument))
        if result < 0:
            raise self._error(ctypes.get_errno())
        return result

    def _error(self, number: int) -> DeviceError:
        return transfer_error(self.device, number)


def transfer_error(device: UsbDevice, number: int) -> Union[LostError, StalledError]:
    """Return the error for a transfer that ended with an errno."""
    reason = f"{os.strerror(number)}, {errno.errorcode.get(number, number)}"
    if number in _GONE or number == errno.EBADF:
        return _lost(device, "it is unplugged")
    if number in _NO_ANSWER:
        return StalledError(
            f"the Edge TPU's USB connection failed ({reason})",
            at=device.node,
            hint="use another cable or port, or a hub with its own power supply",
        )
    if number == errno.ENOMEM:
        return StalledError(
            "the kernel has no memory for the Edge TPU's transfers",
            at=device.node,
            hint="echo 64 | sudo tee /sys/module/usbcore/parameters/usbfs_memory_mb",
        )
    return StalledError(
        f"the Edge TPU did not take part in a transfer ({reason})",
        at=device.node,
        hint="unplug the stick and plug it in again",
    )


def _lost(device: UsbDevice, why: str) -> LostError:
    return LostError(
        f"the Edge TPU is gone: {why}",
        at=device.node,
        hint="plug the stick in again",
    )


def _in_use(device: UsbDevice) -> DeviceError:
    return DeviceError(
        "the Edge TPU is in use by another program",
        at=device.node,
        hint=f"end that program: sudo fuser -v {device.node}",
    )


def _open_error(device: UsbDevice, error: OSError) -> DeviceError:
    if error.errno in (errno.EACCES, errno.EPERM):
        return DeviceError(
            "this user may not use the Edge TPU on USB",
            at=device.node,
            hint=ADD_UDEV_RULES,
        )
    if error.errno in (errno.ENOENT, *_GONE):
        return _lost(device, "it is unplugged")
    return DeviceError(
        f"the Edge TPU cannot be opened: {error.strerror}",
        at=device.node,
        hint="unplug the stick and plug it in again",
    )
