"""What a person at a terminal sees while something takes its time."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click


def progress(quiet: bool = False) -> Callable[[str], None]:
    """Stages on a terminal's standard error, overwritten in place, "" for none; nothing in a log or when quiet."""
    if quiet or not sys.stderr.isatty():
        return lambda text: None
    return lambda text: click.echo(f"\r\033[K{text}…" if text else "\r\033[K", err=True, nl=False)
