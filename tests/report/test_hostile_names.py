"""A model whose names are made to break out, through the command line: page, text and
message show them as text.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

from edgec.cli.main import cli
from edgec.errors import UnsupportedError
from tests.report.test_explain_html import Page

REPORT = Path(__file__).parents[2] / "edgec" / "report"
NAME = (
    '</script><script>alert(1)</script>"><img src=x '
    "onerror=alert(2)>\x1b[31mRED\x1b]0;title\x07{{ 7 * 7 }}&lt;"
)


def save(path: Path, kind: str = "Relu") -> Path:
    x, y, node = (f"{n}{NAME}" for n in ("x", "y", "node"))
    nodes = [
        helper.make_node(
            "Conv", [x, "w"], ["mid" + NAME], name=node, kernel_shape=[3, 3]
        ),
        helper.make_node(kind, ["mid" + NAME], [y], name=node + "2"),
    ]
    weights = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    ends = (
        helper.make_tensor_value_info(n, 1, s)
        for n, s in ((x, (1, 3, 8, 8)), (y, None))
    )
    graph = helper.make_graph(nodes, NAME, [next(ends)], [next(ends)], [weights])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path
    )
    return path


def test_explain_shows_names_as_text(tmp_path: Path) -> None:
    model = save(tmp_path / "a<img src=x onerror=alert(3)>.onnx")
    html = tmp_path / "page.html"
    words = ["explain", str(model), "--target", "pi4+coral", "--ops"]
    done = CliRunner().invoke(cli, [*words, "--html", str(html)])
    assert done.exit_code == 0, done.output
    assert "alert(1)" in done.output
    assert not [c for c in done.output if not c.isprintable() and c != "\n"]
    assert all(len(line) <= 120 for line in done.output.splitlines())
    text = html.read_text()
    seen = Page(text)
    assert len(seen.scripts) == 2
    assert "<img" not in text
    assert "alert(1)" in seen.text
    assert "{{ 7 * 7 }}" in seen.text, "a name is no template"
    assert "\x1b" not in text


def test_an_error_shows_names_as_text(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", "Foo\x1b[31m")
    with pytest.raises(UnsupportedError, match="Foo") as caught:
        CliRunner().invoke(
            cli, ["explain", str(model)], catch_exceptions=False, standalone_mode=False
        )
    assert "\x1b" not in str(caught.value)
    assert "\x07" not in str(caught.value)


def test_no_form_of_a_page_takes_text_for_markup() -> None:
    """All pages are made of these, which escape what they are given."""
    forms = sorted(REPORT.rglob("*.html"))
    assert len(forms) >= 8
    for form in forms:
        text = form.read_text()
        assert not re.search(r"\|\s*safe|autoescape", text), form
    # Of Python, markup.py alone says that a text is markup already.
    for path in REPORT.rglob("*.py"):
        if path.name != "markup.py":
            assert not re.search(r"Markup\(\s*[^\s)]", path.read_text()), path
