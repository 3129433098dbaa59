"""The stock column of `edgec explain` beside public logs of edgetpu_compiler: the share
of operators that it maps.

Markdown on the screen, build/stock-table.json. Only public commands of edgec are used.
Needs the data folder (EDGEC_SHARED, default ../shared).

    python -m benchmarks.stock_table [--only name,name]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.networks_logged import LOGGED

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
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
    """Operators that the log says are mapped, and all of them; the same of the stock
    column.
    """

    name: str
    source: str
    log_mapped: int
    log_ops: int
    our_mapped: int
    our_ops: int

    @property
    def apart(self) -> float:
        """Our share less the log's."""
        return self.our_mapped / self.our_ops - self.log_mapped / self.log_ops


def read_logs() -> list[dict[str, Any]]:
    """All logs of the data folder."""
    found: list[dict[str, Any]] = json.loads(
        (SHARED / "edgetpu" / "logs.json").read_text()
    )
    return found


def logged(logs: list[dict[str, Any]], source: str, part: str) -> tuple[int, int]:
    """(mapped, all) operators of the one log of this source whose path or note has this
    part.
    """
    found = [
        e
        for e in logs
        if e["source"].startswith(source)
        and part in f"{e['path']}\n{e.get('note', '')}"
    ]
    if not found:
        raise LookupError(f"no log of {source} has {part}")
    counts = {
        (
            sum(r["count"] for r in e["rows"] if r["status"] == MAPPED),
            sum(r["count"] for r in e["rows"]),
        )
        for e in found
    }
    if len(counts) > 1:
        raise LookupError(f"{len(found)} logs of {source} have {part}")
    return counts.pop()


def explained(model: Path) -> Mapping[str, Any]:
    """The comparison of `edgec explain --json`."""
    command = [
        sys.executable,
        "-m",
        "edgec",
        "explain",
        str(model),
        "--target",
        "pi4+coral",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    comparison: Mapping[str, Any] = json.loads(done.stdout)["comparison"]
    return comparison


def rows(only: set[str]) -> Iterator[Row]:
    """One for each network."""
    logs = read_logs()
    makers: list[tuple[str, Callable[[Path], Path], str, str]] = [*LOGGED]
    for name, folder, source, part in FILES:
        (file,) = (
            f for f in (SHARED / folder).iterdir() if f.suffix in (".onnx", ".tflite")
        )
        makers.append((name, lambda _, file=file: file, source, part))  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        for name, make, source, part in makers:
            if not only or name in only:
                stock = explained(make(Path(folder) / "model.onnx"))["stock"]
                yield Row(
                    name,
                    source,
                    *logged(logs, source, part),
                    stock["tpu_ops"],
                    stock["ops"],
                )


def markdown(found: list[Row]) -> Iterator[str]:
    """The table."""
    yield "| network | log | mapped in the log | stock column | apart |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for r in found:
        log = f"{r.log_mapped} of {r.log_ops}"
        ours = f"{r.our_mapped} of {r.our_ops}"
        shares = (
            f"{log} ({r.log_mapped / r.log_ops:.1%}) | {ours} "
            f"({r.our_mapped / r.our_ops:.1%})"
        )
        yield f"| {r.name} | {r.source} | {shares} | {100 * r.apart:+.1f} points |"
    for r in found:
        if r.name in KNOWN:
            yield f"\n{r.name}: {KNOWN[r.name]}"


def main() -> int:
    """Print the table; exit 1 when a share is too far from the log's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    if not (SHARED / "edgetpu" / "logs.json").is_file():
        print(f"no data folder at {SHARED}: set EDGEC_SHARED")
        return 2
    found = list(rows({n for n in args.only.split(",") if n}))
    print("\n".join(markdown(found)))
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "stock-table.json").write_text(
        json.dumps([asdict(r) for r in found], indent=1) + "\n"
    )
    return int(any(abs(r.apart) > POINTS and r.name not in KNOWN for r in found))


if __name__ == "__main__":
    sys.exit(main())
