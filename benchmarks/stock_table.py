"""The stock column of `edgec explain` beside public logs of edgetpu_compiler: the share
of operators that it maps.

Markdown on the screen, build/stock-table.json. Only public commands of edgec are used.
Needs the data folder (EDGEC_SHARED, default ../shared).

    python -m benchmarks.stock_table [--only name,name]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data_folder import BUILD, SHARED
from benchmarks.tables import markdown as table
from benchmarks.tables import names, write_json
from tests.networks_logged import LOGGED

MAPPED = "Mapped to Edge TPU"
POINTS = 0.05
"""How far the shares may be apart."""
KNOWN = {
    "YOLOv5 with Focus": "logged with uint8 inputs, whose QUANTIZE is the first set, "
    "and all of it"
}
"""Networks whose logged file was not made as the column assumes, and what differs."""
FILES = [
    (
        "BlazeFace",
        "models/mp_blazeface_short_onnx_b",
        "zye1996/facemesh_EdgeTPU",
        "face_detection_front_128",
    ),
    (
        "SSD MobileNet v1",
        "models/ssd_mnv1_coco_u8",
        "iwatake2222/EdgeTPU_Analysis",
        "coco_ssd_mobilenet_v1_1.0_quant",
    ),
]
"""Models of the data folder whose network was logged: (name, folder, repository, part
of the log's path).
"""


@dataclass(frozen=True)
class Row:
    """One network.

    Attributes:
        name: its name
        source: the repository of the log
        log_mapped: the operators that are mapped by the log
        log_ops: all operators of the log
        our_mapped: the operators that are mapped by the stock column
        our_ops: all operators of the stock column
    """

    name: str
    source: str
    log_mapped: int
    log_ops: int
    our_mapped: int
    our_ops: int

    @property
    def apart(self) -> float:
        """The share of the stock column minus that of the log."""
        return self.our_mapped / self.our_ops - self.log_mapped / self.log_ops

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        pairs = ((self.log_mapped, self.log_ops), (self.our_mapped, self.our_ops))
        shares = [f"{mapped} of {ops} ({mapped / ops:.1%})" for mapped, ops in pairs]
        return [self.name, self.source, *shares, f"{100 * self.apart:+.1f} points"]


def read_logs() -> list[dict[str, Any]]:
    """Return all logs of the data folder."""
    path = SHARED / "edgetpu" / "logs.json"
    if not path.is_file():
        sys.exit(f"no data folder at {SHARED} (set EDGEC_SHARED)")
    logs: list[dict[str, Any]] = json.loads(path.read_text())
    return logs


def logged(logs: list[dict[str, Any]], source: str, part: str) -> tuple[int, int]:
    """Return the mapped and all operators of the one log of a source with a part of its
    path or note; raise LookupError if there is no such log, or several that differ.
    """
    counts = set()
    for log in logs:
        text = f"{log['path']}\n{log.get('note', '')}"
        if log["source"].startswith(source) and part in text:
            rows = log["rows"]
            mapped = sum(r["count"] for r in rows if r["status"] == MAPPED)
            counts.add((mapped, sum(r["count"] for r in rows)))
    if len(counts) != 1:
        raise LookupError(f"{len(counts)} logs of {source} have {part}")
    return counts.pop()


def explained(model: Path) -> Mapping[str, Any]:
    """Return the comparison of `edgec explain --json`."""
    command = [sys.executable, "-m", "edgec", "explain", str(model)]
    command += ["--target", "pi4+coral", "--json"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    comparison: Mapping[str, Any] = json.loads(process.stdout)["comparison"]
    return comparison


def rows(only: Collection[str]) -> Iterator[Row]:
    """Yield the rows of some networks, or of all."""
    logs = read_logs()
    makers: list[tuple[str, Callable[[Path], Path], str, str]] = [*LOGGED]
    for name, folder, source, part in FILES:
        paths = (SHARED / folder).iterdir()
        (file,) = (p for p in paths if p.suffix in (".onnx", ".tflite"))
        makers.append((name, lambda _, file=file: file, source, part))  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        for name, make, source, part in makers:
            if not only or name in only:
                stock = explained(make(Path(folder) / "model.onnx"))["stock"]
                counts = (*logged(logs, source, part), stock["tpu_ops"], stock["ops"])
                yield Row(name, source, *counts)


def markdown(found: list[Row]) -> Iterator[str]:
    """Yield the table, and the differences that are known."""
    heads = ("network", "log", "mapped in the log", "stock column", "apart")
    yield from table(heads, (row.cells() for row in found), texts=2)
    yield from (f"\n{r.name}: {KNOWN[r.name]}" for r in found if r.name in KNOWN)


def main() -> int:
    """Print the table; return 1 if a share is too far from the log's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=names, default=[], help="networks")
    networks = list(rows(parser.parse_args().only))
    print("\n".join(markdown(networks)))
    write_json(BUILD / "stock-table.json", networks)
    return int(any(abs(r.apart) > POINTS and r.name not in KNOWN for r in networks))


if __name__ == "__main__":
    sys.exit(main())
