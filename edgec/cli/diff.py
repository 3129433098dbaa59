"""Defines `edgec diff`, which compares two ways to run a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import edgec
from edgec.cli.options import given, options_of
from edgec.cli.output import echo
from edgec.options.diff import DiffOptions
from edgec.report.diff.text import ORDERS, threshold, to_text
from edgec.report.files import check_place, write_whole
from edgec.report.terminal import progress

_FILE = click.Path(path_type=Path)


@click.command()
@options_of(DiffOptions)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default="worst",
    show_default=True,
    help="of the layers: worst first, or as they run",
)
@click.option("--all", "every", is_flag=True, help="every layer, not only the worst")
@click.option(
    "--min-sqnr",
    type=float,
    metavar="DB",
    help="exit code 1 if an output has less (default: only report)",
)
@click.option(
    "--json",
    "json_file",
    type=_FILE,
    metavar="FILE",
    help="all figures, machine-readable (- for standard output)",
)
@click.option(
    "--html",
    type=_FILE,
    metavar="FILE",
    help="a page: error along the graph, ranges, images before and after",
)
def diff(
    order: str,
    every: bool,
    min_sqnr: float | None,
    json_file: Path | None,
    html: Path | None,
    **values: Any,
) -> int:
    """Compare A with B on the same inputs, layer by layer, and name the layer of B to
    look at first.

    A and B are models (.onnx, .tflite, .pt2) or bundles (.edgec), each perhaps after
    what is to run it: interp:, c:, int8: (quantize it here), litert:, litert-opt:,
    onnxruntime:, edgetpu:. A float model against its bundle:

        edgec diff net.onnx net.edgec --inputs photos/

    Exit code 1: an output is below --min-sqnr. See docs/diff.md.
    """
    from edgec.report.diff.page import page

    # "-" is the usual name of standard output, and no file is called so.
    to_screen = json_file == Path("-")
    # A bad path is refused before the work, which may take minutes.
    if html is not None:
        check_place(html, "--html")
    if json_file is not None and not to_screen:
        check_place(json_file, "--json")
    with progress() as say:
        comparison = edgec.diff(**given(DiffOptions, values), progress=say)

    if html is not None:
        write_whole(html, page(comparison))
    # NaN is no JSON: other languages could not read the file.
    text = json.dumps(comparison.to_json(), indent=1, allow_nan=False)
    if json_file is not None and not to_screen:
        write_whole(json_file, text + "\n")
    echo(text if to_screen else to_text(comparison, order, every))

    missed = ""
    if min_sqnr is not None:
        missed = threshold(comparison, min_sqnr)
    if missed:
        # Behind JSON on standard output, the line would make it unreadable.
        echo(missed, err=to_screen)
    return 1 if missed else 0
