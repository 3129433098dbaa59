"""What every device can do.

The devices themselves are in links/, one file per kind.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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
TIMEOUT_S = 30.0
"""How long nothing may move on the way to a device, unless --timeout says otherwise."""


class Device(ABC):
    """Something that runs bundles."""

    url: str
    timeout = TIMEOUT_S
    """Seconds for which nothing may move on the way to it; of no effect on a device
    that is here.
    """

    @abstractmethod
    def run(
        self, bundle: Bundle, inputs: Mapping[str, Array], threads: int = 1
    ) -> dict[str, Array]:
        """One inference: outputs by name.

        Raises InputError for inputs that do not fit and for more threads than the
        bundle's code is for, DeviceError or ToolError.
        """

    @abstractmethod
    def measure(
        self, bundle: Bundle, plan: MeasuringPlan, say: Progress = lambda text: None
    ) -> Measurement:
        """Latencies, with reproducible noise as inputs.  say: told what is being done.

        Raises as run does.
        """


def device_for(url: str, timeout: float = TIMEOUT_S) -> Device:
    """The device of "local:", "emulated:pi4" and the like.  timeout: seconds for which
    nothing may move.

    Raises InputError for a URL that none of links/ knows, and for a timeout that is
    none.
    """
    _, module, rest = link_module(url)
    opened: Device = module.open_device(rest)
    opened.timeout = patience(timeout)
    return opened


def patience(timeout: float) -> float:
    """The timeout.  Raises InputError for what is no number of seconds from 1 on."""
    if not 1 <= timeout < math.inf:
        raise InputError(
            f"nothing can be waited for {timeout:g} seconds",
            hint="give a timeout of 1 second or more",
        )
    return timeout


def link_module(url: str) -> tuple[str, ModuleType, str]:
    """The kind of a URL, the file of links/ that knows it, and the rest of the URL.

    Raises InputError.
    """
    kind, _, rest = url.strip().partition(":")
    kinds = sorted(p.stem for p in LINKS.glob("*.py") if not p.stem.startswith("_"))
    if kind not in kinds:
        raise InputError(
            f'"{url}" is no device{did_you_mean(kind, kinds)}',
            hint=f"use {' or '.join(sorted(usage(k) for k in kinds))}",
        )
    return kind, importlib.import_module(f"edgec_devices.links.{kind}"), rest


def usage(kind: str) -> str:
    """How a URL of this kind is written, for messages."""
    text: str = importlib.import_module(f"edgec_devices.links.{kind}").USAGE
    return text
