"""Defines the options for devices of every verb, --on and --timeout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from edgec_devices.device import TIMEOUT_S

_F = TypeVar("_F", bound=Callable[..., Any])

TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(1),
    metavar="S",
    default=TIMEOUT_S,
    show_default=True,
    help="give up when for S seconds nothing moved on the way to the device",
)


SHARE = click.option(
    "--share",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="what a maintainer needs and nothing personal, to send (docs/measured.md)",
)


class _On(click.Option):
    """The option --on, which is also --to.

    --to is in no help: it is the earlier name in the verbs that put files on devices.
    """

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add both names."""
        # Only the shown names are in the help.
        shown = self.opts
        self.opts = [*shown, "--to"]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def on_one(name: str, **settings: Any) -> Callable[[_F], _F]:
    """Return the option for one device.

    `name` is the parameter, and `settings` are for click.option.
    """
    defaults = {
        "metavar": "DEVICE",
        "help": "local:, emulated:pi4, ssh://pi@host, … or a name of edgec.toml",
    }
    return click.option("--on", name, cls=_On, **{**defaults, **settings})


ON_MANY = click.option(
    "--on",
    "urls",
    cls=_On,
    required=True,
    multiple=True,
    metavar="DEVICE[,DEVICE…]",
    help="ssh://pi@host, serial:///dev/ttyUSB0?baud=115200, local:, "
    "… or names of edgec.toml",
)


def workers_option(what: str) -> Callable[[_F], _F]:
    """Return --workers of a verb; `what` describes the tasks of the workers."""
    return click.option(
        "--workers",
        metavar="N|URL",
        help=f"{what}; or dask://host:port: a Dask cluster",
    )


def resolved(device: str) -> str:
    """Return the URL of a device from its URL or its name in edgec.toml.

    Raises InputError for other texts.
    """
    # Imported at the call, so that --help stays fast.
    from edgec_devices.listing import resolve

    return resolve(device, Path.cwd())


def all_resolved(devices: Iterable[str]) -> list[str]:
    """Return the URLs of `--on a,b --on c`."""
    urls = []
    for text in devices:
        for device in text.split(","):
            # A comma at the end is no device.
            if device.strip():
                urls.append(resolved(device))
    return urls


def may_ask(targets: Sequence[str]) -> bool:
    """Return whether a person can type a password: at a terminal, for one device."""
    # With several devices in parallel, nobody could tell whose password is meant.
    return len(targets) == 1 and sys.stdin.isatty()
