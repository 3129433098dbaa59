"""Defines the verb models, which lists ready networks, and its verb get."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

import edgec
from edgec.cli.output import echo
from edgec.errors import InputError
from edgec.report.tables import table
from edgec.report.terminal import progress
from edgec.report.wording import count

if TYPE_CHECKING:
    from edgec.catalogue.listing import ListedModel


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="machine-readable, to standard output"
)
def models(as_json: bool) -> None:
    """List ready networks and pictures of the package index, and cascades of them
    (docs/models.md). A name stands wherever a model is given: edgec compile models:faces.
    """
    from edgec.catalogue.listing import listed_cascades

    listed = edgec.models()
    cascades = listed_cascades()
    if as_json:
        everything = [one.to_json() for one in listed]
        everything += [one.to_json() for one in cascades]
        echo(json.dumps(everything, indent=1))
        return
    rows: list[tuple[str, ...]] = []
    for one in listed:
        here = "here" if one.path is not None else ""
        macs = count(one.entry.macs) if one.entry.macs else ""
        rows.append((one.name, here, macs, one.entry.purpose))
    for cascade in cascades:
        here = "here" if cascade.here else ""
        what = cascade.cascade
        purpose = f"{what.purpose} ({', '.join(what.networks)})"
        rows.append((cascade.name, here, count(cascade.macs), purpose))
    echo(table(("name", "", "MACs", "what it is for"), rows, "llrl"), nl=False)
    echo(f"\n{_sources(listed)}")


@click.command()
@click.argument("names", nargs=-1, metavar="NAME…")
@click.option("--all", "every", is_flag=True, help="everything that is listed")
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
def get(names: Sequence[str], every: bool, quiet: bool) -> None:
    """Download networks or pictures into the cache; the wheels around them are not
    kept.
    """
    if bool(names) == every:
        what = "give names, or --all" if every else "no name was given"
        raise InputError(what, "edgec models get", "see the names: edgec models")
    if every:
        names = [one.name for one in edgec.models()]
    with progress(quiet) as say:
        fetched = edgec.models(names, progress=say)
    if quiet:
        return
    for one in fetched:
        echo(f"{one.name}: {one.path}")
    echo(_sources(fetched))


def _sources(listed: Sequence[ListedModel]) -> str:
    """Return a line for each wheel and licence: origin, licence, place of its text."""
    lines: list[str] = []
    for one in listed:
        wheel = one.wheel
        lines.append(
            f"{wheel.project} {wheel.version}: {one.license} "
            f"(its text: {one.license_text} in the wheel)"
        )
    # Most files of a wheel have the same licence.
    return "\n".join(dict.fromkeys(lines))
