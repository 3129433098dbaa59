"""The page of `edgec diff` in a real browser: a chosen layer is told about; nothing is
wider than the window.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgec.comparing.result import Diff
from edgec.ir import Graph
from edgec.report.diff.page import page
from edgec.verbs.diff_sides import InterpSide
from tests.comparing.nets import compared, small
from tests.comparing.planted import plant
from tests.quantize.nets import Net, samples
from tests.report.test_explain_browser import told


def image_net() -> Graph:
    """To an image of three channels."""
    net = Net("image", 1)
    return net.done(net.conv(net.conv(net.input(1, 24, 20, 3), 8), 3, act="none"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Diff:
    floats, int8, tries = small()
    planted = plant("scale", int8, 1, tmp_path_factory.mktemp("csrc"))
    return compared(
        InterpSide("float", floats), InterpSide("int8", planted.graph), tries[:2], 0
    )


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_layer_is_told_about_and_nothing_is_cut(
    found: Diff, width: int, tmp_path: Path
) -> None:
    assert found.culprit is not None
    culprit = next(one for one in found.layers if one.value == found.culprit.value)
    ask = f"""
        const hit = page.querySelector('[data-layer="{culprit.index}"]');
        hit.dispatchEvent(new MouseEvent("click", {{ bubbles: true }}));
        const about = page.getElementById("about");
        return {{ wide: page.documentElement.scrollWidth, text: about.textContent,
          bars: about.querySelectorAll("svg.spread rect").length,
          faulty: page.querySelectorAll("#graph .op.faulty").length }};
    """
    seen = told(page(found), ask, tmp_path, width)
    assert seen["wide"] <= width
    assert culprit.value in seen["text"]
    assert found.culprit.why in seen["text"]
    assert seen["bars"] > 5
    assert seen["faulty"] == 1


def test_images_are_in_the_page() -> None:
    graph = image_net()
    tries = samples(graph, 2)
    twin = graph.copy()
    w = twin.ops[0].inputs[1]
    assert w.const is not None
    w.const = w.const * np.float32(1.01)
    html = page(compared(InterpSide("a", graph), InterpSide("b", twin), tries, 0))
    assert html.count("data:image/png;base64,") == 3


def test_names_from_files_are_no_markup(found: Diff) -> None:
    from dataclasses import replace

    evil = "<script>alert(1)</script>"
    layers = [replace(one, value=evil, source=evil) for one in found.layers]
    html = page(
        replace(
            found,
            a=evil,
            b=evil,
            layers=layers,
            notes=[evil],
            outputs={evil: next(iter(found.outputs.values()))},
        )
    )
    assert evil not in html
