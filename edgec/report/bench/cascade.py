"""Writes the bench of a cascade: Markdown, JUnit XML, a page and a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgec.benching.cascade_report import MS_PER_S, CascadeBench
from edgec.benching.verdicts import WORDS, passed, verdicts
from edgec.report.bench import wording
from edgec.report.bench.junit import bench_suite, suite_of
from edgec.report.bench.text import (
    markdown_table,
    paragraphs,
    report_body,
    report_head,
    report_terms,
    stage_rows,
    stream_section,
    verdict_section,
)
from edgec.report.bench.trace import Trace
from edgec.report.bench.wording import latency_terms
from edgec.report.cascade_page import CascadePage, PageTable
from edgec.report.junit import VerdictSuite, to_xml
from edgec.report.terms import legend
from edgec.report.wording import plain

NETWORKS = ("network", "p50", "runs a frame", "how")
OBJECTS = ("objects", "a frame", "frames/s")
STAGES = ("stage", "by", "p50 ms", "p95 ms")
VERDICTS = ("", "must hold", "value", "margin", "why")
"""Headers of tables."""
ALONE = "the networks alone: without the camera, crops and pictures"
PIDS_APART = 1000
"""Processes of the traces of two networks have numbers so far apart: more than the
launches of a bench."""


def cascade_markdown(bench: CascadeBench, verdicts_last: bool = False) -> str:
    """Return the tables of all networks together, then the report on each.

    `verdicts_last` is for a terminal, where the end stays on the screen; the report on
    each network is left out there.
    """
    model = plain(bench.model)
    device = wording.device(bench.first)
    head = f"## {model} on {device}"
    tables = _tables(bench)
    judged = verdict_section(bench.verdicts(), verdicts_last)
    if verdicts_last:
        blocks = [head, *tables, legend(latency_terms(bench.first)), judged]
    else:
        # A terminal would scroll the tables away, which are what a person looks at.
        blocks = [head, judged, *tables]
        terms: list[str] = []
        for report in bench.networks.values():
            verdict_block = verdict_section(verdicts(report), last=False)
            blocks += [report_head(report), verdict_block, report_body(report)]
            terms += report_terms(report)
        blocks.append(legend(dict.fromkeys(terms)))
    return paragraphs(*blocks) + "\n"


def _tables(bench: CascadeBench) -> list[str]:
    """Return the tables of all networks together, in Markdown."""
    networks = _networks(bench)
    objects = _objects(bench)
    tables = [markdown_table(NETWORKS, networks, "lrrl")]
    if objects:
        table = markdown_table(OBJECTS, objects, "rrr")
        tables.append(table)
        tables.append(f"({ALONE})")
    if bench.stream is not None:
        mark = wording.mark(bench.first, False)
        stream = stream_section(bench.stream, mark)
        tables.append(stream)
    return tables


def cascade_page(bench: CascadeBench, pages: Mapping[str, str]) -> CascadePage:
    """Return the page of all networks together; `pages` has each network's own."""
    networks = _networks(bench)
    objects = _objects(bench)
    judged = _judged(bench)
    # A verdict is what a person opens the page for, so its table is the first.
    tables = [
        PageTable("Must hold", VERDICTS, judged, left=5),
        PageTable("Each network", NETWORKS, networks),
        PageTable("By the number of objects", OBJECTS, objects, left=0),
    ]
    if bench.stream is not None:
        mark = wording.mark(bench.first, False)
        stages = stage_rows(bench.stream, mark)
        table = PageTable("A stream of frames", STAGES, stages, left=2)
        tables.append(table)
    device = wording.device(bench.first)
    return CascadePage(
        title=f"{bench.model} on {device}",
        summary="passed" if passed(bench.verdicts()) else "failed: see what must hold",
        tables=tables,
        notes=(ALONE,),
        networks=pages,
    )


def _judged(bench: CascadeBench) -> Sequence[tuple[str, ...]]:
    """Return the rows of the table of verdicts."""
    rows = []
    for verdict in bench.verdicts():
        state = WORDS[verdict.state]
        row = (
            state,
            verdict.name,
            verdict.value,
            verdict.margin,
            verdict.why,
        )
        rows.append(row)
    return rows


def _networks(bench: CascadeBench) -> Sequence[tuple[str, ...]]:
    """Return the rows of the table of networks."""
    rows = []
    for network in bench.cascade.networks:
        name = network.name
        report = bench.report(name)
        how = report.latency.how
        if report.estimated:
            how = f"estimate: {how}"
        p50 = "no figure"
        latency = bench.latency(name)
        if latency is not None:
            mark = wording.mark(report, report.estimated)
            p50 = f"{mark}{latency:.2f} ms"
        runs = bench.runs(name, 1)
        row = (name, p50, f"{runs:.2f}", how)
        rows.append(row)
    return rows


def _objects(bench: CascadeBench) -> Sequence[tuple[str, ...]]:
    """Return the rows of the table of times by the number of objects."""
    rows = []
    # One estimate among the times of a frame makes their sum an estimate.
    reports = bench.networks.values()
    estimated = any(report.estimated for report in reports)
    mark = wording.mark(bench.first, estimated)
    rates = bench.frames_per_second()
    for objects, rate in rates.items():
        ms = MS_PER_S / rate
        row = (
            str(objects),
            f"{mark}{ms:.2f} ms",
            f"{mark}{rate:.1f}",
        )
        rows.append(row)
    return rows


def cascade_junit(bench: CascadeBench) -> str:
    """Return an XML document with a suite for the whole and one for each network."""
    # A suite each, so that a CI system shows which network missed its budget.
    suites = [_own_suite(bench)]
    for name, report in bench.networks.items():
        model = f"{bench.model} {name}"
        suite = suite_of(report, model)
        suites.append(suite)
    return to_xml(suites)


def _own_suite(bench: CascadeBench) -> VerdictSuite:
    """Return the suite of the verdicts on the whole."""
    first = bench.first
    properties = {
        "cascade": bench.model,
        "device": wording.device(first),
    }
    rates = bench.frames_per_second()
    for objects, rate in rates.items():
        name = f"fps.{objects}"
        properties[name] = f"{rate:.2f} fps"
    return bench_suite(first, bench.model, properties, bench.own_verdicts())


def cascade_trace(traces: Mapping[str, Trace]) -> Trace:
    """Return the traces of all networks as one, each network's processes named by it."""
    events = []
    about: dict[str, Any] = {}
    pids = 0
    for name, trace in traces.items():
        for event in trace["traceEvents"]:
            moved = _of_network(event, name, pids)
            events.append(moved)
        about[name] = trace["otherData"]
        pids += PIDS_APART
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": about,
    }


def _of_network(event: Mapping[str, Any], name: str, pids: int) -> dict[str, Any]:
    """Return an event with the process of a network."""
    # Viewers tell processes apart by their number alone.
    moved = dict(event)
    moved["pid"] += pids
    if moved["name"] == "process_name":
        process = moved["args"]["name"]
        moved["args"] = {"name": f"{name}: {process}"}
    return moved
