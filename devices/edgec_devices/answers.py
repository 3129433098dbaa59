"""Defines the answer of a device to each request (docs/protocol.md).

An answer of another shape is an error of its device alone.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

Count = msgspec.Meta(ge=0, le=1 << 53)


# msgspec ignores unknown fields, so that a newer device end may tell more.
class Begun(Struct, frozen=True):
    """The answer to `begin`.

    Attributes:
        same: the slot that has this bundle already
        lacks: missing parts: number, bytes that are there, and their SHA-256
    """

    same: str | None = None
    lacks: tuple[tuple[int, int, str], ...] = ()


class Installed(Struct, frozen=True):
    """The answer to `install`."""

    slot: str


class Switched(Struct, frozen=True):
    """The answer to `activate` and `rollback`.

    Attributes:
        active: the active slot
        service: the reason why the service still runs the other version
    """

    active: str
    service: str | None = None


class Serving(Struct, frozen=True):
    """The answer to `service`."""

    unit: str
    lingers: bool


class Trusted(Struct, frozen=True):
    """The answer to `trust`."""

    path: str
    fingerprint: str


class Info(Struct, frozen=True):
    """The answer to `info`: facts about the device."""

    target: str
    python: str
    os: str
    kernel: str
    board: str
    cpu: str
    emulated: bool
    page: int
    free: int
    root: str


class SlotFacts(Struct, frozen=True):
    """Facts about a slot that is not damaged."""

    sha256: str | None = None
    name: str | None = None
    bytes: int | None = None
    target: str | None = None
    installed: int | None = None


class AppFacts(Struct, frozen=True):
    """Facts about an application; a damaged slot is None."""

    app: str
    active: str | None
    slots: dict[str, SlotFacts | None]


class StatusAnswer(Struct, frozen=True):
    """The answer to `status`."""

    apps: tuple[AppFacts, ...]


class SiteAnswer(Struct, frozen=True):
    """The answer to `site`: wheels on the device, and the active ones."""

    wheels: tuple[str, ...]
    active: tuple[str, ...]


class Adopted(Struct, frozen=True):
    """The answer to `adopt`."""

    runtime: str


class RunAnswer(Struct, frozen=True):
    """The answer to `run`; `outputs` has the sizes of the files in the blob."""

    status: int
    report: str
    error_output: str
    outputs: tuple[int, ...]
    vitals: dict[str, Any] | None = None


class ShowAnswer(Struct, frozen=True):
    """The answer to `shown`.

    Attributes:
        said: lines of JSON since the last request
        status: exit status of the program; None while it runs
        error_output: error output of the program
    """

    said: str
    status: int | None
    error_output: str


class Facts(Struct, frozen=True):
    """The answer to `facts`."""

    facts: dict[str, Any]


class Done(Struct, frozen=True):
    """The answer to requests without a result."""
