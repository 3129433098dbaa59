"""What a device answers, by request (docs/protocol.md): an answer of another shape is
an error of that device alone.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

Count = msgspec.Meta(ge=0, le=1 << 53)


class Begun(Struct, frozen=True):
    """To `begin`.  same: the slot that has it already; lacks: part, bytes of it that
    are there, their sha256.
    """

    same: str | None = None
    lacks: tuple[tuple[int, int, str], ...] = ()


class Installed(Struct, frozen=True):
    """To `install`."""

    slot: str


class Switched(Struct, frozen=True):
    """To `activate` and `rollback`.  service: why its service still runs the other
    version.
    """

    active: str
    service: str | None = None


class Serving(Struct, frozen=True):
    """To `service`."""

    unit: str
    lingers: bool


class Trusted(Struct, frozen=True):
    """To `trust`."""

    path: str
    fingerprint: str


class Info(Struct, frozen=True):
    """To `info`."""

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
    """Of a whole slot."""

    sha256: str | None = None
    name: str | None = None
    bytes: int | None = None
    target: str | None = None
    installed: int | None = None


class AppFacts(Struct, frozen=True):
    """Of an application.  slots: None for one that is damaged."""

    app: str
    active: str | None
    slots: dict[str, SlotFacts | None]


class StatusAnswer(Struct, frozen=True):
    """To `status`."""

    apps: tuple[AppFacts, ...]


class SiteAnswer(Struct, frozen=True):
    """To `site`."""

    wheels: tuple[str, ...]
    active: tuple[str, ...]


class Adopted(Struct, frozen=True):
    """To `adopt`."""

    runtime: str


class RunAnswer(Struct, frozen=True):
    """To `run`.  outputs: sizes of the files in the blob."""

    status: int
    report: str
    error_output: str
    outputs: tuple[int, ...]
    vitals: dict[str, Any] | None = None


class ShowAnswer(Struct, frozen=True):
    """To `shown`.  said: lines of JSON since the last time.  status: of the program,
    once it has ended.
    """

    said: str
    status: int | None
    error_output: str


class Facts(Struct, frozen=True):
    """To `facts`."""

    facts: dict[str, Any]


class Done(Struct, frozen=True):
    """To what has nothing to say."""
