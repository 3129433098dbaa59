"""Defines `edgec diff`, which compares two ways to run a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from edgec.cli.declared import given, options_of
from edgec.cli.echo import echo
from edgec.compiler.options import InputOptions
from edgec.report.diff.text import ORDERS, threshold, to_text
from edgec.report.files import check_place, write_whole
from edgec.report.terminal import progress

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("a")
@click.argument("b")
@click.option(
    "--inputs",
    required=True,
    type=_FILE,
    help="photos, a folder of them, or an .npz, to compare on",
)
@click.option(
    "--samples",
    default=8,
    show_default=True,
    metavar="N",
    help="at most so many of them, spread over all",
)
@click.option(
    "--calibrate",
    type=_FILE,
    help="for int8:, data to quantize with (default: the inputs)",
)
@click.option(
    "--quantize",
    default="fast",
    show_default=True,
    metavar="RECIPE",
    help="for int8:, as for compile",
)
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
@click.option("--cc", help="a C compiler of this machine, instead of zig")
@options_of(InputOptions)
def diff(
    a: str,
    b: str,
    min_sqnr: float | None,
    json_file: Path | None,
    html: Path | None,
    **options: Any,
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
    from edgec.verbs.diff import Request
    from edgec.verbs.diff import diff as compare

    # "-" is the usual name of standard output, and no file is called so.
    to_screen = json_file == Path("-")
    # A bad path is refused before the work, which may take minutes.
    if html is not None:
        check_place(html, "--html")
    if json_file is not None and not to_screen:
        check_place(json_file, "--json")
    order = options.pop("order")
    every = options.pop("every")
    model_inputs = given(InputOptions, options)
    others = {
        name: options[name]
        for name in ("inputs", "samples", "calibrate", "quantize", "cc")
    }
    request = Request(a, b, model_inputs=model_inputs, **others)
    with progress() as say:
        comparison = compare(request, say)

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
