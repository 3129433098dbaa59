"""Defines the verbs for fleets: package, sign and trust."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from edgec.cli.devices import finish
from edgec.cli.echo import echo
from edgec.cli.reach import ON_MANY, TIMEOUT, all_resolved, may_ask

_BUNDLE = click.Path(path_type=Path)


@click.command()
@click.argument("bundle", type=_BUNDLE)
@click.option(
    "--format",
    "format_",
    default="deb",
    show_default=True,
    help="deb, or tar (.tar.gz with install.sh)",
)
@click.option(
    "--arch", help="arm64, armhf or amd64, where the bundle has programs for several"
)
@click.option("--app", help="the service is edgec-APP (default: the model's name)")
@click.option(
    "--version",
    help="of the package (default: edgec's and the bundle's hash, which does not grow)",
)
@click.option("--maintainer", help='"Name <address>", shown by apt')
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="file or folder (default: its own name, here)",
)
def package(
    bundle: Path,
    format_: str,
    maintainer: str | None,
    output: Path | None,
    **options: Any,
) -> None:
    """Make a Debian package of a bundle: program, bundle, runtime and a systemd
    service.
    """
    from edgec_devices import package as packages

    made = packages.package(
        bundle, format_, maintainer=maintainer or packages.MAINTAINER, **options
    )
    echo(str(packages.write(made, output)))


@click.command()
@click.argument("file", type=_BUNDLE, required=False)
@click.option("--key", type=click.Path(path_type=Path), help="the private key")
@click.option(
    "--new-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="make a key: FILE and FILE.pub",
)
@click.option(
    "--app",
    help="the application on the device that the bundle is for (default: the model's name)",
)
@click.option(
    "--counter",
    type=int,
    help="grows from one version to the next (default: the time in seconds)",
)
@click.option(
    "--runtime",
    is_flag=True,
    help="write the runtime's wheel here, signed, for flash --wheel",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="the signed bundle (default: in its place)",
)
def sign(
    file: Path | None, key: Path | None, new_key: Path | None, **options: Any
) -> None:
    """Sign a bundle, or a wheel, so that devices with a trusted key take it."""
    from edgec_devices import signing

    signed = signing.sign_or_make(file, key, new_key, **options)
    # Lines are for people; a script reads the path of the wheel alone.
    for line in signed.lines:
        echo(line, err=True)
    if signed.runtime is not None:
        echo(str(signed.runtime))


@click.command()
@click.argument("key", type=click.Path(path_type=Path), metavar="KEY.pub")
@ON_MANY
@TIMEOUT
@click.option(
    "--json", "as_json", is_flag=True, help="machine-readable, to standard output"
)
def trust(key: Path, urls: Sequence[str], timeout: float, as_json: bool) -> None:
    """Have devices take only bundles that are signed with this key, or one that they
    trust already.
    """
    from edgec_devices import signing

    targets = all_resolved(urls)
    outcomes = signing.trust(key, targets, ask=may_ask(targets), timeout=timeout)
    finish(outcomes, as_json)


VERBS: tuple[click.Command, ...] = (package, sign, trust)
