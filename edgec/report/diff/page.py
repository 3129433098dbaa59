"""`edgec diff --html`: one page that opens from a disk: the culprit, error along the
graph, ranges, images.

The form is diff.html.
"""

from __future__ import annotations

import base64
import io
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
from edgec.report.markup import rendered
from edgec.report.terms import explained
from edgec.report.wording import plain

_GOOD_DB = 30.0
_FAIR_DB = 20.0
_BADGES = (
    ("good", f"own ≥ {_GOOD_DB:g} dB", ""),
    ("fair", f"≥ {_FAIR_DB:g} dB", ""),
    ("poor", "less", ""),
    ("faulty", "fault", "no rounding explains it"),
)
_LEAST_PIXELS = 16


def page(found: Diff) -> str:
    """The page as text."""
    return rendered(
        "diff/diff.html",
        title=plain(f"{_file(found.a)} and {_file(found.b)}"),
        summary=plain(
            f"A {found.a} ({found.a_how}), B {found.b} ({found.b_how}); "
            f"{samples(found)}; {compared(found)}"
        ),
        warning="",
        culprit=culprit_lines(found),
        nothing=nothing(found),
        fault=found.culprit is not None and found.culprit.fault,
        outputs=[OUTPUT_HEAD, *output_rows(found)],
        chart=along(found.layers),
        graph=_graph(found),
        badges=_BADGES,
        layers=[HEAD, *(row(one, 60) for one in found.layers)],
        classes=[_class(one) for one in found.layers],
        terms=explained(TERMS),
        images=[*_images(found)],
        notes=[*task(found), *changed(found), *(plain(n) for n in found.notes)],
        data=_data(found),
    )


def _file(name: str) -> str:
    if ":" not in name:
        return name.replace("\\", "/").rsplit("/", 1)[-1]
    return name.split(":")[0] + ":" + _file(name.split(":", 1)[1])


def _class(one: Layer) -> str:
    """How a layer is coloured."""
    if one.fault is not None:
        return "faulty"
    own = one.own_centred_db if one.own_centred_db is not None else one.centred_db
    return "good" if own >= _GOOD_DB else "fair" if own >= _FAIR_DB else "poor"


def _graph(found: Diff) -> Markup:
    """The layers as boxes, coloured by what they lose by themselves."""
    boxes: list[NodeBox] = []
    writer: dict[str, int] = {}
    edges: dict[tuple[int, int], bool] = {}
    parts = {one.value: one.part for one in found.layers}
    for one in found.layers:
        node = len(boxes)
        boxes.append(
            NodeBox(
                f"{one.kind} {decibel(one.own_centred_db)}",
                short(short_name(one.value)),
                f"op {_class(one)}",
                one.index,
            )
        )
        for name in one.reads:
            if name in writer:
                edges[writer[name], node] = parts[name] != one.part
        writer[one.value] = node
    return picture(boxes, edges, f"graph of {found.b}")


def _data(found: Diff) -> list[dict[str, object]]:
    """What the script shows of a layer that is chosen."""
    rows: list[dict[str, object]] = []
    for one in found.layers:
        figures = [
            ("value", plain(one.value)),
            ("from", plain(one.source)),
            ("type", one.type),
            ("in", one.part),
            ("own", decibel(one.own_centred_db)),
            ("inherited", decibel(one.inherited_db)),
            ("whole", decibel(one.sqnr_db)),
            ("centred", decibel(one.centred_db)),
            ("cosine", f"{one.cosine:.6f}"),
            ("max error", f"{one.max_error:.4g}"),
            ("in steps", "" if one.steps is None else f"{one.steps:.2f} rms, own"),
            ("range used", "" if one.used is None else f"{one.used:.0%}"),
            ("clipped", "" if one.clipped is None else f"{one.clipped:.2%}"),
        ]
        said = [{"fault": f.fault, "text": f.text, "fix": f.fix} for f in one.findings]
        shown = {
            "index": one.index,
            "kind": one.kind,
            "figures": figures,
            "findings": said,
        }
        rows.append({**shown, "edges": _ends(one.edges), "a": one.a, "b": one.b})
    return rows


def _ends(edges: Sequence[float]) -> list[float]:
    """The first and the last, and how many: bins are equal."""
    if edges:
        return [float(f"{edges[0]:.6g}"), float(f"{edges[-1]:.6g}"), len(edges) - 1]
    return []


def _images(found: Diff) -> Iterator[tuple[str, str, str, str]]:
    """(output, A's, B's, ten times the difference) as data of pictures, for outputs
    that can be looked at.
    """
    for name, (a, b) in found.images.items():
        pair = [_as_image(x) for x in (a, b)]
        if pair[0] is None or pair[1] is None:
            continue
        low = float(pair[0].min())
        high = float(pair[0].max())
        span = (0.0, 1.0) if low >= -0.01 and high <= 1.01 else (low, high)
        scaled = [
            np.clip((x - span[0]) / max(1e-12, span[1] - span[0]), 0, 1)
            for x in pair
            if x is not None
        ]
        yield (
            plain(name),
            _png(scaled[0]),
            _png(scaled[1]),
            _png(np.clip(10 * np.abs(scaled[0] - scaled[1]), 0, 1)),
        )


def _as_image(array: Array) -> Array | None:
    """[height, width, 1 or 3] of one image; None for what is none."""
    if array.ndim != 4 or array.shape[0] != 1 or not np.isfinite(array).all():
        return None
    image = array[0]
    if image.shape[0] in (1, 3) and image.shape[-1] not in (1, 3):
        image = image.transpose(1, 2, 0)
    if image.shape[-1] not in (1, 3) or min(image.shape[:2]) < _LEAST_PIXELS:
        return None
    return np.asarray(image)


def _png(image: Array) -> str:
    """A data URI."""
    from PIL import Image

    pixels = np.rint(image * 255).astype(np.uint8)
    made = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    out = io.BytesIO()
    made.save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
