"""Declares options of verbs: once, for Python, the command line and the manual.

A verb's options are the fields of a frozen dataclass whose metadata `option` or
`argument` makes (docs/api.md). Options of this package's own functions are here, the
others in `edgec.options`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from edgec_devices.device import TIMEOUT_S

FilePath = str | Path
OPTION = "option"
"""The key of a field's metadata under which its `OptionText` is."""


class Section(StrEnum):
    """The sections of --help, in their order, by their titles."""

    TARGET = "Where it runs"
    INT8 = "int8"
    INPUTS = "What its inputs are"
    OUTPUTS = "What its outputs mean"
    REPORT = "The report"
    OTHER = "Other"


@dataclass(frozen=True)
class OptionText:
    """How an option is explained, and how the command line spells it.

    Attributes:
        help: what it does, as --help and the manual say it
        python: what it does in Python, where that differs
        section: its section of --help, where the verb has sections; None: only
            --help-all shows it
        metavar: what its value looks like
        flags: its names on the command line; without any, that of the field
        multiple: whether the command line takes it several times
        parse: makes the field's value of the text, or the texts, of the command line
        show_default: whether --help shows the field's default
        bare: the value where the command line has its flag alone
        python_only: whether its value is an object, which no command line could give
        is_argument: whether the command line takes it without a flag
        is_general: whether many verbs have it: it stands after the verb's own
    """

    help: str
    python: str = ""
    section: Section | None = None
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    multiple: bool = False
    parse: Callable[[Any], Any] | None = None
    show_default: bool = False
    bare: str = ""
    python_only: bool = False
    is_argument: bool = False
    is_general: bool = False


def option(help: str, **text: Any) -> dict[str, OptionText]:
    """Return the metadata of a dataclass field that is an option.

    text: the other fields of `OptionText`.
    """
    return {OPTION: OptionText(help, **text)}


def argument(help: str, **text: Any) -> dict[str, OptionText]:
    """Return the metadata of a field that the command line takes without a flag."""
    return option(help, is_argument=True, **text)


def path_of(file: FilePath | None) -> Path | None:
    """Return the path of a file; None if it was not given."""
    return None if file is None else Path(file)


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """The options of every verb that reaches a device."""

    timeout: float = field(
        default=TIMEOUT_S,
        metadata=option(
            "give up when for S seconds nothing moved on the way to the device",
            metavar="S",
            show_default=True,
            is_general=True,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class AskOptions(LinkOptions):
    """The options of a verb that logs in to devices."""

    ask: bool = field(
        default=False,
        metadata=option(
            "a person is there to type a password", python_only=True, is_general=True
        ),
    )


@dataclass(frozen=True, kw_only=True)
class FlashOptions(AskOptions):
    """How a bundle is put on devices."""

    app: str | None = field(
        default=None,
        metadata=option("name of the folder on the device (default: the model's name)"),
    )
    health: str | None = field(
        default=None,
        metadata=option(
            "a latency that must be kept on the device, or the old one stays",
            metavar="'p95<=40ms'",
        ),
    )
    service: bool | str = field(
        default=False,
        metadata=option(
            "systemd runs it from then on, and again when it fails: its program, or "
            "'serve --zmq …' (docs/frigate.md)",
            metavar="[serve]",
            bare="program",
        ),
    )
    with_runtime: bool = field(
        default=False,
        metadata=option(
            "edgec-runtime too, unpacked beside the bundle; nothing is installed"
        ),
    )
    wheels: Sequence[FilePath] = field(
        default=(),
        metadata=option(
            "with the runtime: a .whl, or what pip downloads for the device, such as "
            "ai-edge-litert",
            flags=("--wheel",),
            metavar="FILE|NAME",
            multiple=True,
        ),
    )
    allow_downgrade: bool = field(
        default=False,
        metadata=option("a signed bundle may be older than what the device had"),
    )


@dataclass(frozen=True, kw_only=True)
class SignOptions:
    """The options of `edgec sign`."""

    file: FilePath | None = field(
        default=None,
        kw_only=False,
        metadata=argument(
            "the .edgec file, or a wheel, whose signature goes beside it"
        ),
    )
    key: FilePath | None = field(default=None, metadata=option("the private key"))
    new_key: FilePath | None = field(
        default=None,
        metadata=option("make a key: FILE and FILE.pub", metavar="FILE"),
    )
    app: str | None = field(
        default=None,
        metadata=option(
            "the application on the device that the bundle is for (default: the "
            "model's name)"
        ),
    )
    counter: int | None = field(
        default=None,
        metadata=option(
            "grows from one version to the next (default: the time in seconds)"
        ),
    )
    runtime: bool = field(
        default=False,
        metadata=option("write the runtime's wheel here, signed, for flash --wheel"),
    )
    output: FilePath | None = field(
        default=None,
        metadata=option(
            "the signed bundle (default: in its place)", flags=("-o", "--output")
        ),
    )
