"""The options of the verbs about devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgec_devices.options import (
    AskOptions,
    FilePath,
    FlashOptions,
    argument,
    option,
)

if TYPE_CHECKING:
    from edgec_devices.transfer import Sending

SHARE = option(
    "what a maintainer needs and nothing personal, to send (docs/measured.md)",
    metavar="FILE",
)
"""The metadata of --share."""


def device_url(device: str) -> str:
    """Return the URL of a device from its URL or its name in edgec.toml.

    Raises InputError for other texts.
    """
    # Imported at the call, so that --help stays fast.
    from edgec_devices.listing import resolve

    return resolve(device, Path.cwd())


@dataclass(frozen=True)
class OnOption:
    """The device of a verb that runs a bundle on one."""

    on: str = field(
        default="local:",
        metadata=option(
            "local: (default), emulated:pi4, ssh://pi@host, … or a name of edgec.toml",
            metavar="DEVICE",
        ),
    )

    @property
    def url(self) -> str:
        """The URL of the device. Raises InputError for a text that is not a device."""
        return device_url(self.on)


@dataclass(frozen=True, kw_only=True)
class ThreadsOption:
    """The threads of a verb that runs a bundle."""

    threads: int = field(
        default=1,
        metadata=option(
            "of the CPU, as the bundle was compiled for",
            metavar="N",
            show_default=True,
            is_general=True,
        ),
    )


@dataclass(frozen=True)
class BundleArgument:
    """The bundle of a verb."""

    bundle: FilePath = field(metadata=argument("the .edgec file"))


@dataclass(frozen=True, kw_only=True)
class TargetOptions(AskOptions):
    """The devices of a verb that takes several."""

    on: str | Sequence[str] = field(
        kw_only=False,
        metadata=option(
            "ssh://pi@host, serial:///dev/ttyUSB0?baud=115200, local:, … or names of "
            "edgec.toml",
            python="a device or several, as in `run`",
            metavar="DEVICE[,DEVICE…]",
            multiple=True,
        ),
    )

    @property
    def urls(self) -> list[str]:
        """The URLs of the devices. Raises InputError for a text that is not a device."""
        texts = [self.on] if isinstance(self.on, str) else self.on
        urls = []
        for text in texts:
            for device in text.split(","):
                # A comma at the end is not a device.
                if device.strip():
                    urls.append(device_url(device))
        return urls

    @property
    def asks(self) -> bool:
        """Whether a person can type a password.

        With several devices in parallel, nobody could tell whose password is meant.
        """
        return self.ask and len(self.urls) == 1


@dataclass(frozen=True, kw_only=True)
class FlashCall(FlashOptions, TargetOptions, BundleArgument):
    """The options of `edgec flash`."""

    progress: Callable[[str, Any], None] | None = field(
        default=None,
        metadata=option(
            "called with the URL and what was sent of how much, from any thread",
            python_only=True,
        ),
    )

    def report(self, url: str, sending: Sending) -> None:
        """Call `progress`, if there is one."""
        if self.progress is not None:
            self.progress(url, sending)


@dataclass(frozen=True, kw_only=True)
class RollbackOptions(TargetOptions):
    """The options of `edgec rollback`."""

    app: str | None = field(
        default=None,
        metadata=option("the folder on the device (default: the only one there)"),
    )


@dataclass(frozen=True)
class _Key:
    key: FilePath = field(metadata=argument("the public key's file", metavar="KEY.pub"))


@dataclass(frozen=True, kw_only=True)
class TrustOptions(TargetOptions, _Key):
    """The options of `edgec trust`."""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(AskOptions):
    """The options of `edgec doctor`."""

    on: str | None = field(
        default=None,
        kw_only=False,
        metadata=option(
            "ssh://pi@host, serial:///dev/ttyUSB0, … or a name of edgec.toml; without "
            "it, this machine",
            metavar="DEVICE",
        ),
    )
    share: FilePath | None = field(default=None, metadata=SHARE)

    @property
    def url(self) -> str | None:
        """The URL of the device; None: this machine."""
        return None if self.on is None else device_url(self.on)


@dataclass(frozen=True, kw_only=True)
class DevicesOptions:
    """The options of `edgec devices`."""

    probe: bool = field(
        default=False,
        metadata=option("log in to serial ports too, to see what answers"),
    )
