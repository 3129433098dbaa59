"""What `--share` of bench and doctor writes (docs/measured.md)."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any

from edgec_devices.doctor import device_facts, examine, local_facts
from edgec_devices.findings import DoctorReport
from edgec_devices.options import path_of
from edgec_runtime import Manifest

from edgec.benching.result import BenchReport
from edgec.emit.graph_file import GraphFile
from edgec.errors import EdgecError
from edgec.options.devices import DoctorOptions
from edgec.report.files import check_place, write_whole
from edgec.sharing.bench_facts import latency_row, network_row
from edgec.sharing.machine import board_row, machine_row
from edgec.sharing.schema import REPORT, SCHEMA
from edgec.version import VERSION

_LOCAL = "local:"
_NOT_THERE = "emulated:"
"""The beginning of the URL of a board that is estimated."""


def shared_bench(
    manifest: Manifest,
    graph: GraphFile,
    report: BenchReport,
    estimate: BenchReport | None,
) -> str:
    """Return the text of a bench's file.

    Args:
        manifest: of the bundle.
        graph: its report/graph.json.
        report: the bench.
        estimate: the same by the models of the board, beside a measured one.
    """
    machine = board_row(report.device)
    url = report.device.url
    if not url.startswith(_NOT_THERE):
        try:
            facts = local_facts() if url == _LOCAL else device_facts(url)
            machine = machine_row(facts)
        except EdgecError:
            # A program alone answers on some links: what the bench knows must do.
            pass
    parts = {
        "machine": machine,
        "network": network_row(manifest, graph, report, estimate),
        "latency": latency_row(report, estimate),
    }
    # The bench's time begins with the day.
    return shared_text("bench", report.when[:10], parts)


def examine_device(options: DoctorOptions) -> DoctorReport:
    """Examine a device, and write the file of `share`.

    Raises InputError where the file cannot be written, before the device is examined.
    """
    share = path_of(options.share)
    if share is not None:
        check_place(share, "--share")

    report = examine(options.url, options.ask, options.timeout)
    if share is not None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        parts = {"machine": machine_row(report.facts)}
        write_whole(share, shared_text("doctor", today, parts))
    return report


def shared_text(of: str, day: str, parts: Mapping[str, Any]) -> str:
    """Return the JSON of a file.

    Args:
        of: "bench" or "doctor".
        day: YYYY-MM-DD; the time of day is nobody's business.
        parts: "machine", and for a bench "network" and "latency".
    """
    collected = {
        "share_schema": SCHEMA,
        "of": of,
        "edgec": VERSION,
        "date": day,
        **parts,
    }
    # Nothing is written that did not go through the list of fields.
    return f"{json.dumps(REPORT.clean(collected), indent=1)}\n"
