"""Drives a Coral USB Accelerator: opens it, runs models on it, and recovers it.

It needs neither libedgetpu nor libusb nor an interpreter. One process at a time has a
stick, and one thread at a time uses a driver.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Set

from ..device_end.facts import EDGETPU_IDS
from ..edgetpu_file.executable import Package
from ..edgetpu_file.flatbuffer import DamagedError
from ..errors import DeviceError, InputError, did_you_mean
from .chip import (
    CLOCKS,
    Register,
    Registers,
    clearing_warning,
    switching_off,
    switching_on,
)
from .firmware import find_firmware, load_firmware
from .layouts import Array
from .program import Model, Run, link_model
from .transfers import Transfers, drain
from .usbfs import (
    CAPABILITY_SCATTER_GATHER,
    LostError,
    StalledError,
    UsbDevice,
    UsbHandle,
    find_devices,
)

CLOCK_VARIABLE = "EDGEC_EDGETPU_CLOCK"
"""The variable of the environment with the clock: a key of CLOCKS."""
_LOADER, _STICK = (
    tuple(int(number, 16) for number in identifier.split(":"))
    for identifier in EDGETPU_IDS
)
_ENUMERATION_S = 5.0
"""Longest time in which a stick is back after it got its firmware."""
_SLOWER = 10
"""Later inferences may pause for so many times the longest inference."""
_CANCEL_S = 1.0
# A long transfer is collected from pages; a kernel or controller that cannot do that
# needs one piece of memory, which is hard to find if it is long.
_CHUNK, _SMALL_CHUNK = 1 << 20, 256 << 10
_HIGH_SPEED_MBPS = 480
_PACKET, _HIGH_SPEED_PACKET = 1024, 256


@dataclass(frozen=True)
class StickOptions:
    """Which stick, and how it is driven.

    Attributes:
        port: the port as sysfs names it, such as "1-1.2"; None for any
        clock: a key of CLOCKS; None for that of the environment, or "high"
        firmware: a file with the firmware; None to look for it
        patience: longest pause between transfers in a model's first inference in
            seconds; libedgetpu has 6, too
        least_patience: the same of later ones, where inferences are shorter
        root: folder that has sys and dev
    """

    port: Optional[str] = None
    clock: Optional[str] = None
    firmware: Optional[str] = None
    patience: float = 6.0
    least_patience: float = 0.25
    root: str = "/"

    def clock_name(self) -> str:
        """Return the clock; raise InputError for an unknown one."""
        name = self.clock or os.environ.get(CLOCK_VARIABLE) or "high"
        if name not in CLOCKS:
            raise InputError(
                f'the Edge TPU has no clock "{name}"{did_you_mean(name, CLOCKS)}',
                hint=f"set {CLOCK_VARIABLE} to " + ", ".join(CLOCKS),
            )
        return name


@dataclass(frozen=True, eq=False)
class Ticket:
    """An inference that was submitted.

    Attributes:
        model: what runs
        run: its memory
    """

    model: Model
    run: Run


@dataclass
class Counts:
    """What happened since the stick was opened.

    Attributes:
        inferences: that ended
        cached: how often parameters were put into the chip
        recovered: how often the chip was reset after a fault
        warnings: of heat
    """

    inferences: int = 0
    cached: int = 0
    recovered: int = 0
    warnings: int = 0


def sticks(root: str = "/") -> List[UsbDevice]:
    """Return the sticks of this machine, those with firmware first."""
    found = find_devices((_LOADER, _STICK), root)  # type: ignore[arg-type]
    return sorted(found, key=lambda d: (d.vendor, d.product) != _STICK)


def open_stick(options: StickOptions) -> "StickDriver":
    """Return the driver of the first stick that is free.

    A stick without firmware gets it, which takes about a second.

    Raises:
        DeviceError: there is none, or none can be opened; the hint says what to do
        InputError: the clock or the firmware's file is wrong
    """
    clock = options.clock_name()
    candidates = [d for d in sticks(options.root) if options.port in (None, d.port)]
    if not candidates:
        raise LostError(
            "there is no Edge TPU on USB"
            + ("" if options.port is None else f" at the port {options.port}"),
            hint="plug the stick in; `edgec doctor` says what the machine sees",
        )
    first_error: Optional[DeviceError] = None
    for device in candidates:
        try:
            handle = _with_firmware(device, options)
            patience = options.patience, options.least_patience
            return StickDriver(handle, clock, *patience)
        except DeviceError as e:
            first_error = first_error or e
    assert first_error is not None
    raise first_error


def _with_firmware(device: UsbDevice, options: StickOptions) -> UsbHandle:
    """Return an open stick, which has got its firmware if it had none."""
    if (device.vendor, device.product) == _STICK:
        return UsbHandle(device)
    firmware = find_firmware(options.firmware, options.root)
    load_firmware(UsbHandle(device), firmware)
    end = time.monotonic() + _ENUMERATION_S
    error: DeviceError = LostError(
        "the Edge TPU did not come back with its firmware",
        at=device.node,
        hint="plug the stick in again, into a port with enough power",
    )
    while time.monotonic() < end:
        for back in sticks(options.root):
            if back.port != device.port or back.node == device.node:
                continue
            if (back.vendor, back.product) != _STICK:
                raise error  # it has lost its power meanwhile, and the firmware
            try:
                return UsbHandle(back)
            except DeviceError as e:
                error = e  # udev has not set the permissions yet
        time.sleep(0.02)
    raise error


@dataclass
class StickDriver:
    """An open stick.

    Args:
        handle: the stick; the driver closes it
        clock: a key of CLOCKS
        patience, least_patience: see StickOptions

    Attributes:
        counts: what happened since it was opened
        lost: whether it is gone, so that it has to be opened again

    Raises:
        DeviceError: it cannot be switched on; the handle is closed
    """

    handle: UsbHandle
    clock: str
    patience: float
    least_patience: float
    counts: Counts = field(default_factory=Counts)
    lost: bool = False

    def __post_init__(self) -> None:
        self._registers = Registers(self.handle)
        device = self.handle.device
        self._high_speed = 0 < device.mbps <= _HIGH_SPEED_MBPS
        self._packet = _HIGH_SPEED_PACKET if self._high_speed else _PACKET
        self._token = 0
        self._cached: Set[bytes] = set()
        self._models: Dict[bytes, Model] = {}
        self._flying: List[Ticket] = []
        self._longest: Dict[bytes, float] = {}
        with self._losing():
            self.handle.claim(0)
            gathers = self.handle.capabilities() & CAPABILITY_SCATTER_GATHER
            self._chunk = _CHUNK if gathers else _SMALL_CHUNK
            self._transfers = self._switched_on()

    def close(self) -> None:
        """Switch the chip off and close the stick."""
        if not self.lost:
            self.lost = True
            with contextlib.suppress(DeviceError):
                self.handle.cancel_all(_CANCEL_S)
                self._registers.go_through(switching_off())
        self.handle.close()

    def load(self, package: Package, data: bytes, where: str) -> Model:
        """Return a model that can be run.

        The same package gives the same model.

        Args:
            package: the programs
            data: the file that they are in
            where: the file's name, for messages

        Raises:
            InputError: the programs cannot run, or are damaged
        """
        try:
            model = link_model(package, data, self._chunk)
            if model.key not in self._models:
                model.runs.append(model.main.new_run())
                self._models[model.key] = model
        except DamagedError as e:
            raise InputError(
                f"the file cannot be run: {e}",
                at=where,
                hint="the file is damaged or cut short: copy or compile it again",
            ) from None
        except ValueError as e:
            raise InputError(
                f"the model cannot run on an Edge TPU on USB: {e}",
                at=where,
                hint="run it on the CPU",
            ) from None
        return self._models[model.key]

    def run(
        self, model: Model, inputs: Dict[str, Array], outputs: Dict[str, Array]
    ) -> None:
        """Run one inference: `submit` and `collect`."""
        self.collect(self.submit(model, inputs), outputs)

    def submit(self, model: Model, inputs: Dict[str, Array]) -> Ticket:
        """Begin an inference behind those that were submitted before.

        Args:
            model: of `load`
            inputs: its inputs by the names of the layers, with their bytes as in TFLite

        Raises:
            InputError: an input is missing or has another size
            DeviceError: the stick is gone
        """
        run = model.runs.pop() if model.runs else model.main.new_run()
        try:
            model.main.write(run, inputs)
        except ValueError as e:
            model.runs.append(run)
            raise InputError(str(e), hint="give the model's inputs") from None
        ticket = Ticket(model, run)
        self._flying.append(ticket)
        try:
            try:
                self._start(ticket)
            except StalledError:
                self._recover_and_restart()
        except DeviceError:
            self._give_up()
            raise
        return ticket

    def collect(self, ticket: Ticket, outputs: Dict[str, Array]) -> None:
        """Wait for an inference and read its outputs.

        A stalled program is stopped and run again, once.

        Args:
            ticket: of `submit`
            outputs: arrays that get the outputs, by the names of the layers

        Raises:
            InputError: an array is missing or has another size
            DeviceError: the stick is gone, or stalls again
        """
        if ticket not in self._flying:
            raise DeviceError(
                "the inference was given up with the stick",
                hint="plug the stick in again",
            )
        try:
            try:
                self._finish(ticket)
            except StalledError:
                self._recover_and_restart()
                self._finish(ticket)
        except DeviceError:
            self._give_up()
            raise
        model, run = ticket.model, ticket.run
        if model.known is None:
            model.known = _copies(run.inputs), _copies(run.outputs)
        try:
            model.main.read(run, outputs)
        except ValueError as e:
            raise InputError(
                str(e), hint="give arrays for the model's outputs"
            ) from None
        finally:
            self._flying.remove(ticket)
            model.runs.append(run)
        self.counts.inferences += 1

    def _start(self, ticket: Ticket) -> None:
        """Queue an inference, and before it the parameters that the chip lacks."""
        model = ticket.model
        # Programs with another token, or with none, overwrite all parameters
        # (driver/driver.cc).
        if model.token == 0 or model.token != self._token:
            self._token = 0
            self._cached.clear()
        if model.caching is not None and model.key not in self._cached:
            # Its transfers refer to its memory, which lives until they have ended.
            self._transfers.start(model.caching.new_run())
            self._token = model.token
            self._cached.add(model.key)
            self.counts.cached += 1
        self._transfers.start(ticket.run)

    def _finish(self, ticket: Ticket) -> None:
        key = ticket.model.key
        longest = self._longest.get(key)
        patience = self.patience
        if longest is not None:
            # A process that was stopped meanwhile has measured more than the stick took.
            patience = min(patience, max(self.least_patience, _SLOWER * longest))
        start = time.monotonic()
        self._transfers.wait(ticket.run, patience)
        self._longest[key] = max(longest or 0.0, time.monotonic() - start)

    # ---- after a fault
    # ----------------------------------------------------------------------------------

    def _recover_and_restart(self) -> None:
        """Reset the chip, check it, and begin all inferences again that had not ended."""
        with self._losing():
            self.handle.cancel_all(_CANCEL_S)
            self._transfers = self._switched_on()
            self.counts.recovered += 1
            self._check()
            for ticket in self._flying:
                self._start(ticket)

    def _switched_on(self) -> Transfers:
        """Empty the endpoints, reset the chip, and return its transfers."""
        self._token = 0
        self._cached.clear()
        drain(self.handle, self._packet)
        self._registers.go_through(switching_on(CLOCKS[self.clock], self._high_speed))
        return Transfers(self.handle, self._chunk, self._packet, self._interrupted)

    def _check(self) -> None:
        """Run an inference whose outputs are known: that of a model in flight, if there is
        one. Where nothing is known yet, run one that is in flight, twice.

        Raises:
            LostError: its outputs are others than before
            DeviceError: it does not end
        """
        candidates = [t.model for t in self._flying] + list(self._models.values())
        model = next((m for m in candidates if m.known is not None), None)
        if model is not None and model.known is not None:
            inputs, expected = model.known
        elif self._flying:
            model, inputs = self._flying[0].model, _copies(self._flying[0].run.inputs)
            expected = self._outputs(model, inputs)
        else:
            return
        if self._outputs(model, inputs) != expected:
            raise LostError(
                "the Edge TPU computes something else after a reset",
                at=self.handle.device.node,
                hint="unplug the stick and plug it in again",
            )

    def _outputs(self, model: Model, inputs: Dict[str, bytes]) -> Dict[str, bytes]:
        """Return the outputs of one inference, both as the chip has them."""
        run = model.main.new_run()
        for name, values in inputs.items():
            run.inputs[name][:] = values
        self._start(Ticket(model, run))
        self._transfers.wait(run, self.patience)
        return _copies(run.outputs)

    def _interrupted(self, bits: int) -> None:
        """Handle an interrupt: bit 0 is a fault, bits 1 to 4 are those of the top level."""
        if bits & 1:
            status = self._registers.read(Register.HIB_ERROR_STATUS)
            first = self._registers.read(Register.HIB_FIRST_ERROR_STATUS)
            raise StalledError(
                f"the Edge TPU reports a fault ({status:#x}, first {first:#x})",
                at=self.handle.device.node,
                hint="unplug the stick and plug it in again",
            )
        if bits & 1 << 4:
            self.counts.warnings += 1
            self._registers.go_through(clearing_warning())

    def _give_up(self) -> None:
        """Close a stick that is gone or cannot be recovered; it is to be opened again."""
        self.lost = True
        self._flying.clear()
        self.handle.close()

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        """Close the stick at LostError, and at any error while it is opened."""
        try:
            yield
        except DeviceError as e:
            if isinstance(e, LostError) or not hasattr(self, "_transfers"):
                self._give_up()
            raise


def _copies(memory: Dict[str, bytearray]) -> Dict[str, bytes]:
    return {name: bytes(values) for name, values in memory.items()}
