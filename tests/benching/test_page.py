"""The page: self-contained, well-formed, names stay text, every estimate marked,
everything of the report in it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from edgec_devices.measurement import Measurement

from edgec.benching.result import EMULATOR, BenchReport
from edgec.emit.graph_file import GraphFile
from edgec.report.bench.charts import Launched, inferences_svg
from edgec.report.bench.page import page
from tests.benching.example import (
    EXAMPLES,
    GRAPH,
    HOSTILE,
    emulated,
    estimate,
    estimated,
    hostile,
    measured,
    measurement,
    missed,
    throttled,
)
from tests.report.test_explain_html import Page

HOSTILE_GRAPH = GraphFile(
    tuple(
        replace(op, kind=HOSTILE, source=HOSTILE, output=HOSTILE, type=HOSTILE)
        for op in GRAPH.ops
    ),
    GRAPH.segments,
)


def text_of(report: BenchReport, m: Measurement | None = None) -> str:
    return page(report, GRAPH, m or measurement())


@pytest.mark.parametrize("name", EXAMPLES)
def test_well_formed_and_nothing_is_loaded_from_elsewhere(name: str) -> None:
    text = text_of(EXAMPLES[name](), estimate() if name == "estimated" else None)
    text.encode("utf-8")
    seen = Page(text)
    assert seen.urls == []
    assert "default-src 'none'" in text
    assert not re.search(
        r"https?:|@import|url\(|fetch\(|XMLHttpRequest|innerHTML", text
    )
    assert not re.search(r"<!--[A-Z]+-->|\bnan\b|\binf\b", text)


def test_every_operation_is_drawn_with_its_place_and_time() -> None:
    seen = Page(text_of(measured()))
    assert [int(o["data-op"] or -1) for o in seen.ops] == [op.index for op in GRAPH.ops]
    for drawn, op in zip(seen.ops, GRAPH.ops, strict=True):
        assert (drawn["class"] or "").split() == ["op", op.place]
    for s in measured().segments:
        for timed in s.ops:
            assert f"{timed.ms:.3f} ms" in seen.text
    times = [op["time"] for op in json.loads(seen.scripts[0])["ops"]]
    assert [bool(t) for t in times] == [op.call is not None for op in GRAPH.ops]


def test_a_segment_for_the_edge_tpu_that_ran_as_c_has_the_colour_of_the_cpu() -> None:
    r = measured()
    twin = replace(
        r, segments=tuple(replace(s, backend="c", parts={}) for s in r.segments)
    )
    assert {o["class"] for o in Page(text_of(twin)).ops} == {"op cpu"}
    assert "CPU, for Edge TPU" in text_of(twin)


def test_verdicts_are_there() -> None:
    seen = unescape(Page(text_of(missed())).text)
    assert "FAIL" in seen
    for check in missed().budgets:
        assert check.what in seen
        assert check.why in seen
    comparison = missed().comparison
    assert comparison is not None
    assert comparison.sentence in seen


def test_names_from_a_file_stay_text() -> None:
    seen = Page(page(hostile(), HOSTILE_GRAPH, measurement()))
    assert len(seen.scripts) == 2  # the data and the page's own
    assert seen.scripts[1] == Page(text_of(measured())).scripts[1]
    assert "alert(1)" in seen.text
    assert "alert(1)" in json.loads(seen.scripts[0])["ops"][0]["source"]


def test_every_estimate_is_marked() -> None:
    text = text_of(estimated(), estimate())
    seen = " ".join(Page(text).text.split())
    for figure in re.finditer(r"(est\. (?:\d+\.\d+ to )?)?-?\d+\.\d+ ms\b", seen):
        assert figure[1], seen[figure.start() - 60 : figure.end()]
    tiles = re.findall(r"<dt>(\w+)( <span class=\"est\">est\.</span>)?</dt>", text)
    assert tiles
    assert all(mark for _, mark in tiles)
    assert "est." not in re.sub(
        r"by the cost model:.*", "", Page(text_of(measured())).text
    )


@pytest.mark.parametrize("name", ["estimated", "emulated"])
def test_no_rate_of_a_board_that_was_not_run(name: str) -> None:
    text = text_of(EXAMPLES[name](), estimate() if name == "estimated" else None)
    assert "fps" not in re.sub(r"(?s)<style>.*?</style>|<script.*?</script>", "", text)
    assert "<dt>fps" in text_of(measured())


def test_an_emulators_time_is_called_one() -> None:
    text = text_of(emulated())
    seen = " ".join(unescape(Page(text).text).split())
    assert seen.index(EMULATOR) < seen.index("p50"), "before any figure"
    assert "--on emulated:pi4" in seen
    assert "est. 21 to 27 ms" in seen, (
        "the models' estimate of the board stands beside it"
    )
    tiles = re.findall(r"<dt>(\w+)(?: <span class=\"est\">([^<]*)</span>)?</dt>", text)
    assert tiles == [("rss", ""), ("celsius", "")], "no time of an emulator is large"
    assert seen.count("est.") == seen.count("est. 21 to 27"), (
        "nothing else is an estimate"
    )


def test_bars_show_the_edge_tpu_and_the_cpu() -> None:
    text = text_of(estimated(), estimate())
    ops = text[text.index('id="ops"') : text.index('id="picture"')]
    bars = re.findall(r'<div class="(edgetpu|cpu)"><span class="name">(\S+)', ops)
    assert bars[0] == ("edgetpu", "seg1"), "the slowest of all"
    assert {place for place, _ in bars} == {"edgetpu", "cpu"}


def test_throttling_is_marked_in_the_pictures() -> None:
    assert 'class="alarm"' in text_of(throttled(), measurement(hot=True))
    assert 'class="alarm"' not in text_of(measured())


def test_a_bundle_without_a_graph_still_has_a_page() -> None:
    seen = Page(page(measured(), GraphFile(), measurement()))
    assert not seen.ops
    assert "compile the model again" in seen.text


def test_a_long_run_is_thinned_but_nothing_that_stands_out_is_lost() -> None:
    ms = [10.0 + 0.001 * (i % 7) for i in range(50_000)]
    ms[31_234] = 11.0
    drawn = inferences_svg([Launched(ms, 10)], "ms")
    assert drawn.count("h0") < 6_000
    heights = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)h0", drawn)]
    assert sum(y < min(heights) + 1 for y in heights) == 1


@pytest.mark.skipif(
    shutil.which("node") is None, reason="no node to parse JavaScript with"
)
def test_the_script_parses(tmp_path: Path) -> None:
    script = tmp_path / "page.js"
    script.write_text(Page(text_of(measured())).scripts[1])
    subprocess.run(["node", "--check", script], check=True)
