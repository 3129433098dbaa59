"""Defines the interface of devices; links/ has a file for each kind of device."""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgec_runtime.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from edgec_runtime import Bundle
    from edgec_runtime.model.inputs import Array

    from edgec_devices.measurement import Measurement, MeasuringPlan

LINKS = Path(__file__).parent / "links"
Progress = Callable[[str], None]
Infer = Callable[[Mapping[str, "Array"]], dict[str, "Array"]]
"""Runs one inference: from inputs to outputs, by name."""
TIMEOUT_S = 30.0
"""Time without any progress after which a device is given up, unless --timeout is
given, s.
"""


class Device(ABC):
    """A device that runs bundles."""

    url: str
    timeout = TIMEOUT_S
    """Time without any progress after which the device is given up, s.

    It has no effect on a device of this machine.
    """

    @abstractmethod
    def run(
        self, bundle: Bundle, inputs: Mapping[str, Array], threads: int = 1
    ) -> dict[str, Array]:
        """Run one inference and return the outputs by name.

        Raises InputError for inputs that do not fit, and for more threads than the
        bundle has code for; DeviceError or ToolError if the device fails.
        """

    @contextmanager
    def inferences(self, bundle: Bundle, threads: int = 1) -> Iterator[Infer]:
        """Give a function that runs one inference after the other, as `run` does.

        Raises the errors of `run`.
        """
        # A device of this machine needs no connection to keep.
        yield lambda inputs: self.run(bundle, inputs, threads)

    @abstractmethod
    def measure(
        self, bundle: Bundle, plan: MeasuringPlan, say: Progress = lambda text: None
    ) -> Measurement:
        """Measure latencies, with reproducible noise as inputs.

        `say` receives the progress. Raises the errors of `run`.
        """


def device_for(url: str, timeout: float = TIMEOUT_S) -> Device:
    """Return the device of a URL such as "local:" or "emulated:pi4".

    `timeout` is the time without progress after which it is given up (s). Raises
    InputError for a URL that no file of links/ knows, and for an invalid timeout.
    """
    _, module, address = link_module(url)
    device: Device = module.open_device(address)
    device.timeout = patience(timeout)
    return device


def patience(timeout: float) -> float:
    """Return the timeout (s); raises InputError unless it is finite and at least 1."""
    # NaN fails this comparison too, and infinity would wait for a dead device for ever.
    if not 1 <= timeout < math.inf:
        raise InputError(
            f"cannot wait for {timeout:g} seconds",
            hint="give a timeout of 1 second or more",
        )
    return timeout


def link_module(url: str) -> tuple[str, ModuleType, str]:
    """Return the kind of a URL, the module of links/ for it, and the address.

    Raises InputError for a kind without a module.
    """
    # A new file in links/ is a new kind of device: nothing else lists them.
    kind, _, address = url.strip().partition(":")
    kinds = []
    for path in sorted(LINKS.glob("*.py")):
        if not path.stem.startswith("_"):
            kinds.append(path.stem)
    if kind not in kinds:
        # Only for a message are all links imported: some import a whole library.
        usages = " or ".join(sorted(map(usage, kinds)))
        raise InputError(
            f'"{url}" is not a device{did_you_mean(kind, kinds)}', hint=f"use {usages}"
        )
    return kind, importlib.import_module(f"edgec_devices.links.{kind}"), address


def usage(kind: str) -> str:
    """Return the form of a URL of this kind, for messages."""
    text: str = importlib.import_module(f"edgec_devices.links.{kind}").USAGE
    return text
