"""Renders the result of `edgec diff --html` as one page that opens from a disk.

The page has the culprit, the error along the graph, the graph, ranges and images. Its
form is diff.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from markupsafe import Markup

from edgec.comparing.result import Diff, Layer
from edgec.ir import Array
from edgec.report.diff.charts import along
from edgec.report.diff.text import (
    HEAD,
    OUTPUT_HEAD,
    TERMS,
    changed,
    compared,
    culprit_lines,
    decibel,
    nothing,
    output_rows,
    row,
    samples,
    short_name,
    task,
)
from edgec.report.graph_svg import NodeBox, picture, short
from edgec.report.legend import explained
from edgec.report.markup import rendered
from edgec.report.pictures import exact_url
from edgec.report.wording import plain

GOOD_DB = 30.0
FAIR_DB = 20.0
"""Ratios of signal to own noise from which a layer is coloured good or fair, dB."""
BADGES = (
    ("good", f"own ≥ {GOOD_DB:g} dB", ""),
    ("fair", f"≥ {FAIR_DB:g} dB", ""),
    ("poor", "less", ""),
    ("faulty", "fault", "no rounding explains it"),
)
"""The key to the colours: CSS class, text, explanation."""
MIN_IMAGE_SIDE = 16
"""A smaller output is no image, px."""
MAX_NAME = 60
"""Characters of a value's name in the table of layers."""


def page(comparison: Diff) -> str:
    """Return the page of a comparison."""
    notes = [plain(note) for note in comparison.notes]
    return rendered(
        "diff/diff.html",
        title=plain(f"{_file(comparison.a)} and {_file(comparison.b)}"),
        summary=plain(
            f"A {comparison.a} ({comparison.a_how}), B {comparison.b} ({comparison.b_how}); "
            f"{samples(comparison)}; {compared(comparison)}"
        ),
        warning="",
        culprit=culprit_lines(comparison),
        nothing=nothing(comparison),
        fault=comparison.culprit is not None and comparison.culprit.fault,
        outputs=[OUTPUT_HEAD, *output_rows(comparison)],
        chart=along(comparison.layers),
        graph=_graph(comparison),
        badges=BADGES,
        layers=[HEAD, *(row(layer, MAX_NAME) for layer in comparison.layers)],
        classes=[_layer_class(layer) for layer in comparison.layers],
        terms=explained(TERMS),
        images=[*_images(comparison)],
        notes=[*task(comparison), *changed(comparison), *notes],
        data=[_details(layer) for layer in comparison.layers],
    )


def _file(side: str) -> str:
    """Return the name of a side with the file's name in place of its path."""
    if ":" in side:
        kind, path = side.split(":", 1)
        return f"{kind}:{_file(path)}"
    return side.replace("\\", "/").rsplit("/", 1)[-1]


def _layer_class(layer: Layer) -> str:
    """Return the CSS class of a layer, by its own noise."""
    if layer.fault is not None:
        return "faulty"
    ratio = layer.own_centred_db
    if ratio is None:
        ratio = layer.centred_db
    if ratio >= GOOD_DB:
        return "good"
    return "fair" if ratio >= FAIR_DB else "poor"


def _graph(comparison: Diff) -> Markup:
    """Return the picture of the layers, coloured by their own noise."""
    boxes: list[NodeBox] = []
    edges: dict[tuple[int, int], bool] = {}
    producers: dict[str, int] = {}
    parts = {layer.value: layer.part for layer in comparison.layers}
    for node, layer in enumerate(comparison.layers):
        boxes.append(
            NodeBox(
                f"{layer.kind} {decibel(layer.own_centred_db)}",
                short(short_name(layer.value)),
                f"op {_layer_class(layer)}",
                layer.index,
            )
        )
        for name in layer.reads:
            # Inputs of the model have no box.
            if name in producers:
                crossing = parts[name] != layer.part
                edges[producers[name], node] = crossing
        producers[layer.value] = node
    return picture(boxes, edges, f"graph of {comparison.b}")


def _details(layer: Layer) -> dict[str, object]:
    """Return the facts about a layer that the page's script shows after a click."""
    steps = "" if layer.steps is None else f"{layer.steps:.2f} rms, own"
    used = "" if layer.used is None else f"{layer.used:.0%}"
    clipped = "" if layer.clipped is None else f"{layer.clipped:.2%}"

    figures = [
        ("value", plain(layer.value)),
        ("from", plain(layer.source)),
        ("type", layer.type),
        ("in", layer.part),
        ("own", decibel(layer.own_centred_db)),
        ("inherited", decibel(layer.inherited_db)),
        ("whole", decibel(layer.sqnr_db)),
        ("centred", decibel(layer.centred_db)),
        ("cosine", f"{layer.cosine:.6f}"),
        ("max error", f"{layer.max_error:.4g}"),
        ("in steps", steps),
        ("range used", used),
        ("clipped", clipped),
    ]
    findings = []
    for finding in layer.findings:
        findings.append(
            {"fault": finding.fault, "text": finding.text, "fix": finding.fix}
        )
    return {
        "index": layer.index,
        "kind": layer.kind,
        "figures": figures,
        "findings": findings,
        "edges": _bin_edges(layer.edges),
        "a": layer.a,
        "b": layer.b,
    }


def _bin_edges(edges: Sequence[float]) -> list[float]:
    """Return the first and the last edge and the number of bins, which are equal."""
    if not edges:
        return []
    first = float(f"{edges[0]:.6g}")
    last = float(f"{edges[-1]:.6g}")
    return [first, last, len(edges) - 1]


def _images(comparison: Diff) -> Iterator[tuple[str, str, str, str]]:
    """Yield (output, A's image, B's image, ten times the difference) as data URIs.

    Only outputs that are images are there.
    """
    for name, (array_a, array_b) in comparison.images.items():
        image_a = _as_image(array_a)
        image_b = _as_image(array_b)
        if image_a is None or image_b is None:
            continue
        # A's range is the scale of both, so that a shift of B is visible.
        span = _brightness(image_a)
        scaled_a = _scaled(image_a, span)
        scaled_b = _scaled(image_b, span)
        # Ten times, since differences of a good int8 network are invisible.
        difference = np.clip(10 * np.abs(scaled_a - scaled_b), 0, 1)
        yield plain(name), _png(scaled_a), _png(scaled_b), _png(difference)


def _brightness(image: Array) -> tuple[float, float]:
    """Return the values shown as black and white; 0 and 1 if the image is within."""
    low = float(image.min())
    high = float(image.max())
    if low >= -0.01 and high <= 1.01:
        return (0.0, 1.0)
    return (low, high)


def _scaled(image: Array, span: tuple[float, float]) -> Array:
    """Return the image with black at 0 and white at 1."""
    black, white = span
    contrast = max(1e-12, white - black)
    return np.asarray(np.clip((image - black) / contrast, 0, 1))


def _as_image(array: Array) -> Array | None:
    """Return [height, width, 1 or 3] of an output, or None if it is no image."""
    if array.ndim != 4 or array.shape[0] != 1:
        return None
    if not np.isfinite(array).all():
        return None
    image = array[0]

    # An ONNX model has channels first, a picture has them last.
    channels_first = image.shape[0] in (1, 3) and image.shape[-1] not in (1, 3)
    if channels_first:
        image = image.transpose(1, 2, 0)
    if image.shape[-1] not in (1, 3):
        return None
    if min(image.shape[:2]) < MIN_IMAGE_SIDE:
        return None
    return np.asarray(image)


def _png(image: Array) -> str:
    """Return an image with values from 0 to 1 as a data URI."""
    pixels = np.rint(image * 255).astype(np.uint8)
    if pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    return exact_url(pixels)
