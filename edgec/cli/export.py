"""Defines `edgec export`: an option for each kind of parts."""

from __future__ import annotations

from pathlib import Path

import click

import edgec
from edgec.cli.echo import echo
from edgec.exporting import kinds


def _option(kind: str, text: str) -> click.Option:
    """Return the option of a kind, whose value is a new folder."""
    path = click.Path(path_type=Path)
    return click.Option([f"--{kind}"], type=path, metavar="DIR", help=text)


def _export(bundle: Path, **folders: Path | None) -> None:
    """Take the parts out of a bundle that other tools read, each kind into a new folder
    with a README.
    """
    wanted = {kind: folder for kind, folder in folders.items() if folder is not None}
    for folder in edgec.export(bundle, **wanted):
        echo(f"{folder}: its README.md says how to use it")


# The options come from the files of the room, which no decorator could name.
export = click.Command(
    "export",
    callback=_export,
    params=[
        click.Argument(["bundle"], type=click.Path(path_type=Path)),
        *(_option(kind, text) for kind, text in kinds().items()),
    ],
    help=_export.__doc__,
)
