"""Defines the verbs for fleets: package, sign and trust."""

from __future__ import annotations

import sys
from typing import Any

import click
from edgec_devices.options import SignOptions

import edgec
from edgec.cli.devices import finish
from edgec.cli.options import JSON, given, options_of
from edgec.cli.output import echo
from edgec.options.devices import TrustOptions
from edgec.options.files import PackageOptions


@click.command()
@options_of(PackageOptions)
def package(**values: Any) -> None:
    """Make a Debian package of a bundle: program, bundle, runtime and a systemd
    service.
    """
    echo(str(edgec.package(**given(PackageOptions, values))))


@click.command()
@options_of(SignOptions)
def sign(**values: Any) -> None:
    """Sign a bundle, or a wheel, so that devices with a trusted key take it."""
    signed = edgec.sign(**given(SignOptions, values))
    # Lines are for people; a script reads the path of the wheel alone.
    for line in signed.lines:
        echo(line, err=True)
    if signed.runtime is not None:
        echo(str(signed.runtime))


@click.command()
@options_of(TrustOptions)
@JSON
def trust(as_json: bool, **values: Any) -> None:
    """Have devices take only bundles that are signed with this key, or one that they
    trust already.
    """
    options = given(TrustOptions, values)
    finish(edgec.trust(**options, ask=sys.stdin.isatty()), as_json)


VERBS: tuple[click.Command, ...] = (package, sign, trust)
