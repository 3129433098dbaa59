"""Defines `edgec inspect`."""

from __future__ import annotations

import json
from pathlib import Path

import click

import edgec
from edgec.cli.echo import echo

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("bundle", type=_FILE)
@click.option(
    "--key",
    type=_FILE,
    metavar="FILE.pub",
    help="a public key: whether the signature is of it",
)
@click.option(
    "--json", "as_json", is_flag=True, help="machine-readable, to standard output"
)
@click.option("--html", type=_FILE, metavar="FILE", help="a page to look at")
def inspect(bundle: Path, key: Path | None, as_json: bool, html: Path | None) -> None:
    """Show what is in a bundle: networks, inputs and outputs, where they run, accuracy,
    sizes, licences, signature.
    """
    from edgec.report.files import check_place, write_whole
    from edgec.report.inspect.page import page
    from edgec.report.inspect.text import to_text

    if html is not None:
        check_place(html, "--html")
    found = edgec.inspect(bundle, key=key)
    if html is not None:
        write_whole(html, page(found))
    if as_json:
        echo(json.dumps(found.to_json(), indent=1))
    else:
        echo(to_text(found), nl=False)
