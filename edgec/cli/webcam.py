"""Defines `edgec webcam`, which shows a live picture."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

import edgec
from edgec.cli.options import given, options_of
from edgec.cli.output import echo
from edgec.options.webcam import WebcamOptions


@click.command()
@options_of(WebcamOptions)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="the figures machine-readable, to standard output",
)
def webcam(as_json: bool, **values: Any) -> None:
    """Show a live picture that a BUNDLE changes, before and after; the page switches
    between several.
    """

    def say(text: str) -> None:
        # Standard output is for the JSON alone.
        echo(text, err=as_json)

    def confirm(question: str) -> bool:
        # A script has nobody who could answer.
        return sys.stdin.isatty() and click.confirm(question, default=True, err=True)

    options = given(WebcamOptions, values)
    shown = edgec.webcam(**options, progress=say, confirm=confirm)
    echo(json.dumps(shown.to_json(), indent=1) if as_json else shown.text())
