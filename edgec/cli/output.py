"""Writes to the terminal without control characters.

Names and messages come from files, devices and programs.
"""

from __future__ import annotations

import click
from edgec_runtime.device_end.printable import printable


def echo(text: str = "", err: bool = False, nl: bool = True) -> None:
    """Write the printable part of a text to standard output or standard error."""
    # A control character of a file's name could move the cursor or retitle the terminal.
    click.echo(printable(text), err=err, nl=nl)
