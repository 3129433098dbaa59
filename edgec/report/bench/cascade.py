"""Writes the bench of a cascade: Markdown, JUnit XML, a page and a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgec.benching.cascade_report import MS_PER_S, CascadeBench
from edgec.benching.verdicts import WORDS
from edgec.report.bench import wording
from edgec.report.bench.junit import bench_suite, suite_of
from edgec.report.bench.text import (
    markdown_table,
    stage_rows,
    stream_section,
    to_markdown,
    verdict_section,
)
from edgec.report.bench.trace import Trace
from edgec.report.cascade_page import CascadePage, PageTable
from edgec.report.junit import VerdictSuite, to_xml
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
    head = f"## {plain(bench.model)} on {wording.device(bench.first)}"
    blocks = [markdown_table(NETWORKS, _networks(bench), "lrrl")]
    by_objects = _objects(bench)
    if by_objects:
        blocks += [markdown_table(OBJECTS, by_objects, "rrr"), f"({ALONE})"]
    if bench.stream is not None:
        blocks.append(stream_section(bench.stream, wording.mark(bench.first, False)))
    judged = verdict_section(bench.verdicts(), verdicts_last)
    blocks = [*blocks, judged] if verdicts_last else [judged, *blocks]
    # A terminal would scroll the tables away, which are what a person looks at first.
    if not verdicts_last:
        for report in bench.networks.values():
            blocks.append(to_markdown(report).rstrip("\n"))
    return "\n\n".join(filter(None, [head, *blocks])) + "\n"


def cascade_page(bench: CascadeBench, pages: Mapping[str, str]) -> CascadePage:
    """Return the page of all networks together; `pages` has each network's own."""
    tables = [
        PageTable("Each network", NETWORKS, _networks(bench)),
        PageTable("By the number of objects", OBJECTS, _objects(bench), 0),
    ]
    if bench.stream is not None:
        stages = stage_rows(bench.stream, wording.mark(bench.first, False))
        tables.append(PageTable("A stream of frames", STAGES, stages, 2))
    # A verdict is what a person opens the page for, so its table is the first.
    judged = []
    for verdict in bench.verdicts():
        state = WORDS[verdict.state]
        judged.append((state, verdict.name, verdict.value, verdict.margin, verdict.why))
    tables.insert(0, PageTable("Must hold", VERDICTS, judged, 5))
    device = wording.device(bench.first)
    summary = "passed" if bench.passed() else "failed: see what must hold"
    title = f"{bench.model} on {device}"
    return CascadePage(title, summary, tables, (ALONE,), pages)


def _networks(bench: CascadeBench) -> Sequence[tuple[str, ...]]:
    """Return the rows of the table of networks."""
    rows = []
    for row in bench.cascade.networks:
        report = bench.report(row.name)
        latency = bench.latency(row.name)
        how = report.latency.how
        if report.latency.estimated:
            how = f"estimate: {how}"
        p50 = "no figure"
        if latency is not None:
            p50 = f"{wording.mark(report, report.estimated)}{latency:.2f} ms"
        rows.append((row.name, p50, f"{bench.runs(row.name, 1):.2f}", how))
    return rows


def _objects(bench: CascadeBench) -> Sequence[tuple[str, ...]]:
    """Return the rows of the table of times by the number of objects."""
    rows = []
    # One estimate among the times of a frame makes their sum an estimate.
    estimated = any(report.estimated for report in bench.networks.values())
    mark = wording.mark(bench.first, estimated)
    for objects, rate in bench.frames_per_second().items():
        ms = MS_PER_S / rate
        rows.append((str(objects), f"{mark}{ms:.2f} ms", f"{mark}{rate:.1f}"))
    return rows


def cascade_junit(bench: CascadeBench) -> str:
    """Return an XML document with a suite for the whole and one for each network."""
    # A suite each, so that a CI system shows which network missed its budget.
    suites = [_own_suite(bench)]
    for name, report in bench.networks.items():
        suites.append(suite_of(report, f"{bench.model} {name}"))
    return to_xml(suites)


def _own_suite(bench: CascadeBench) -> VerdictSuite:
    """Return the suite of the verdicts on the whole."""
    first = bench.first
    properties = {"cascade": bench.model, "device": wording.device(first)}
    for objects, rate in bench.frames_per_second().items():
        properties[f"fps.{objects}"] = f"{rate:.2f} fps"
    return bench_suite(first, bench.model, properties, bench.own_verdicts())


def cascade_trace(traces: Mapping[str, Trace]) -> Trace:
    """Return the traces of all networks as one, each network's processes named by it."""
    events = []
    about: dict[str, Any] = {}
    for number, (name, trace) in enumerate(traces.items()):
        for event in trace["traceEvents"]:
            events.append(_of_network(event, name, number * PIDS_APART))
        about[name] = trace["otherData"]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _of_network(event: Mapping[str, Any], name: str, pids: int) -> dict[str, Any]:
    """Return an event with the process of a network."""
    # Viewers tell processes apart by their number alone.
    moved = {**event, "pid": event["pid"] + pids}
    if event["name"] == "process_name":
        moved["args"] = {"name": f"{name}: {event['args']['name']}"}
    return moved
