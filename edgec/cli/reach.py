"""How every verb is told which device it is about: --on, and how long to wait for it:
--timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


class _On(click.Option):
    """--on, also as --to, which no help shows: the verbs that put things on devices
    once had that.
    """

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """With both names."""
        shown = self.opts
        self.opts = [*shown, "--to"]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def on_one(name: str, **settings: Any) -> Callable[[_F], _F]:
    """The option for one device.  name: of the parameter.  settings: as click.option
    takes them.
    """
    shown = {
        "metavar": "DEVICE",
        "help": "local:, emulated:pi4, ssh://pi@host, … or a name of edgec.toml",
    }
    return click.option("--on", name, cls=_On, **{**shown, **settings})


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
    """--workers of a verb that tries many things. what: they are, at a time."""
    return click.option(
        "--workers",
        metavar="N|URL",
        help=f"{what}; or dask://host:port: a Dask cluster",
    )


def resolved(device: str) -> str:
    """The URL of a device that is given by URL or by its name in edgec.toml.

    Raises InputError.
    """
    from edgec_devices.listing import resolve

    return resolve(device, Path.cwd())


def all_resolved(devices: Iterable[str]) -> list[str]:
    """Of `--on a,b --on c`."""
    return [resolved(d) for text in devices for d in text.split(",") if d.strip()]
