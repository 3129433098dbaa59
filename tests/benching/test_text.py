"""The Markdown: verdicts, every estimate marked, tables that are tables whatever a name
is made of.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from edgec.benching.bundle import BundleBench
from edgec.benching.result import EMULATOR, BenchReport, Series
from edgec.report.bench.histogram import histogram
from edgec.report.bench.text import to_markdown
from edgec.report.legend import TERMS
from tests.benching.example import (
    EXAMPLES,
    emulated,
    estimated,
    measured,
    missed,
    throttled,
    unsure,
)


def tables(text: str) -> list[list[list[str]]]:
    """Rows of cells, as GitHub reads them: a pipe that a backslash stands before is in
    a cell.
    """
    found: list[list[list[str]]] = []
    inside = fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if line.startswith("|") and not fenced:
            if not inside:
                found.append([])
            cells = re.findall(r"((?:\\.|[^|\\])*)\|", line[1:])
            found[-1].append([c.strip() for c in cells])
        inside = line.startswith("|")
    return found


def markdown(report: BenchReport, verdicts_last: bool = False) -> str:
    return to_markdown(BundleBench("m", {"m": report}), verdicts_last)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("last", [False, True])
def test_tables_are_tables(name: str, last: bool) -> None:
    text = markdown(EXAMPLES[name](), last)
    text.encode("utf-8")
    assert text.isascii() or all(c.isprintable() or c == "\n" for c in text)
    found = tables(text)
    assert len(found) >= 4
    for table in found:
        assert {len(row) for row in table} == {len(table[0])}, table
        assert all(re.fullmatch(r"-+[-:]", cell) for cell in table[1])


def test_what_a_name_is_made_of_means_nothing() -> None:
    text = markdown(EXAMPLES["hostile"]())
    outside = re.sub(r"`[^`]*`", "", text.replace("\\`", ""))
    assert not re.search(r"(?<!\\)<[a-z/!]|(?<!\\)\[a\]\(b\)", outside)


def test_commands_in_notes_can_be_copied() -> None:
    assert (
        "| sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
        in markdown(measured())
    )


def test_verdicts_come_first_and_on_a_terminal_last() -> None:
    first = markdown(missed())
    last = markdown(missed(), verdicts_last=True)
    assert first.splitlines()[2] == last.splitlines()[-1] == "FAIL: 4 of 6 do not hold"
    assert first.splitlines()[0] == last.splitlines()[0]
    assert sorted(first.splitlines()) == sorted(last.splitlines())


def rows_of(report: BenchReport) -> dict[str, list[str]]:
    (table,) = (t for t in tables(markdown(report)) if t[0][1] == "must hold")
    return {row[1]: row for row in table[2:]}


def test_a_row_for_each_verdict() -> None:
    rows = rows_of(missed())
    assert rows["`p95<=11ms`"] == [
        "FAIL",
        "`p95<=11ms`",
        "12.3 ms",
        "-1.3 ms",
        "seg1 on the Edge TPU, 6.5 ms",
    ]
    assert rows["`rss<=80MB`"][:4] == ["PASS", "`rss<=80MB`", "41.02 MB", "38.98 MB"]
    assert rows["`tpu.transfer<=3ms`"][2:4] == [
        "upper end of est. 3.6 to 4.5 ms",
        "est. -1.5 ms",
    ]
    assert rows["`celsius<=50C`"][2:] == [
        "none",
        "",
        "the device does not tell its temperature",
    ]
    assert rows["`p50 against bench/attic.json`"][0] == "FAIL"
    assert "slower by 12 %" in rows["`p50 against bench/attic.json`"][4]


def test_throttling_fails_unless_it_was_accepted() -> None:
    assert rows_of(throttled())["`no throttling`"][0] == "FAIL"
    assert "FAIL: 1 of 3 does not hold" in markdown(throttled())
    settings = {**throttled().settings, "accept_throttling": True}
    accepted = replace(throttled(), settings=settings)
    row = rows_of(accepted)["`no throttling`"]
    assert row[0] == "UNKNOWN"
    assert "82.5 °C" in row[4]
    assert "PASS: 2 hold, 1 unknown" in markdown(accepted)


def test_without_a_budget_nothing_is_claimed() -> None:
    r = measured()
    assert r.vitals is not None
    silent = replace(
        r, budgets=(), comparison=None, vitals=replace(r.vitals, known=False)
    )
    assert (
        markdown(silent, verdicts_last=True).splitlines()[-1]
        == "PASS: nothing failed, 1 unknown"
    )
    assert "PASS" not in markdown(replace(silent, vitals=None))


def test_what_cannot_be_told_passes_but_says_so() -> None:
    assert rows_of(unsure())["`p50 against bench/attic.json`"][0] == "UNKNOWN"
    assert "9,000 runs" in markdown(unsure())


def test_every_estimate_is_marked() -> None:
    text = markdown(estimated())
    for line in text.splitlines():
        for figure in re.finditer(
            r"(est\. (?:\d+\.\d+ to )?)?-?\d+\.\d+ (ms|fps)", line
        ):
            assert figure[1], line
    timed = [t for t in tables(text) if any("ms" in cell for cell in t[0])]
    assert timed
    for table in timed:
        columns = [i for i, cell in enumerate(table[0]) if cell.endswith("ms")]
        assert all(row[i].startswith("est. ") for row in table[2:] for i in columns)
    assert "est. " in text.splitlines()[0]


def test_no_rate_of_a_board_that_was_not_run() -> None:
    assert "fps" not in markdown(estimated())
    assert "fps" not in markdown(emulated())
    assert "fps" in markdown(measured()).splitlines()[0]


def test_an_emulators_time_is_called_one_and_satisfies_no_budget() -> None:
    text = markdown(emulated())
    assert "nothing follows from them for a board" in text.splitlines()[0]
    assert "| emulator's ms |" in text
    marked = [line for line in text.splitlines() if "est." in line]
    assert marked == [
        "- note: The board itself: est. 21 to 27 ms, more by edgec bench cartoon.edgec "
        "--on emulated:pi4."
    ]
    rows = rows_of(emulated())
    assert rows["`p95<=33s`"][0] == "FAIL", "not even with --accept-estimates"
    assert EMULATOR in rows["`p95<=33s`"][4]
    assert "--on emulated:pi4" in rows["`p95<=33s`"][4]
    assert rows["`rss<=80MB`"][0] == "PASS", (
        "bytes are bytes on an emulated machine, too"
    )


@pytest.mark.parametrize("last", [False, True])
def test_terms_are_explained_once_at_the_end(last: bool) -> None:
    text = markdown(estimated(), last)
    assert len(re.findall(r"^\(", text, re.M)) == 1
    legend = " ".join(text[text.index("\n(") :].split())
    for term in ("est.", "cost model", "invoke", "planned", "arena"):
        assert legend.count(f"{term} = {TERMS[term]}") == 1
    # Only the verdicts of a terminal come after it.
    below = text[text.index("\n(") :].partition("\n\n")[2]
    assert below.startswith("|") if last else not below


def test_all_that_takes_time_is_ranked_the_edge_tpu_too() -> None:
    (table,) = (t for t in tables(markdown(estimated())) if t[0][0] == "op")
    assert table[2][:3] == ["`seg1`", "Edge TPU", "whole segment"]
    lower, upper = zip(
        *(map(float, row[5].removeprefix("est. ").split(" to ")) for row in table[2:]),
        strict=True,
    )
    assert sum(lower) == pytest.approx(11.9 * 0.88, rel=0.02)
    assert sum(upper) == pytest.approx(11.9 * 1.12, rel=0.02)


def test_nothing_measured_is_marked() -> None:
    marked = [line for line in markdown(measured()).splitlines() if "est." in line]
    assert len(marked) == 1
    assert "by the cost model" in marked[0]


def test_a_run_without_latency_says_why() -> None:
    nothing = Series((), True, "no estimate of the Edge TPU")
    r = replace(
        estimated(),
        latency=nothing,
        segments=tuple(replace(s, latency=nothing) for s in estimated().segments),
    )
    assert (
        "no latency: seg0 has no latency: no estimate of the Edge TPU"
        in markdown(r).splitlines()[0]
    )


def test_it_says_when_it_was_not_steady() -> None:
    assert "NOT STEADY" in markdown(throttled())
    assert "then steady" in markdown(measured())


def test_lines_fit_a_terminal() -> None:
    """But for those that end in words, which may go on in the next line."""
    for line in markdown(missed()).splitlines():
        assert len(line) <= 120 or not line.startswith("|") or line.count("|") == 6, (
            line
        )


@pytest.mark.parametrize(
    "samples", [[1.0], [1.0] * 9, [1.0, 2.0], [*range(1, 99)], [1.0] * 99 + [50.0]]
)
def test_the_histogram_counts_every_sample_once(samples: list[float]) -> None:
    bins = histogram(samples, 8)
    assert sum(b.count for b in bins) == len(samples)
    assert (bins[0].low, bins[-1].high) == (min(samples), max(samples))
    for one, after in pairwise(bins):
        assert one.high == after.low


def test_outliers_do_not_squeeze_the_histogram() -> None:
    bins = histogram([10 + 0.01 * (i % 50) for i in range(200)] + [90.0] * 3, 8)
    assert bins[-1].count == 3
    assert sum(b.count > 0 for b in bins[:-1]) == 8
