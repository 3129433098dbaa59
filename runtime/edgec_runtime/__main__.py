"""Runs a bundle like its own program (csrc/main.c), but with a Session, so on the Edge
TPU where there is one.

    python -m edgec_runtime BUNDLE [--tpu MODE] [--runs N] [--seconds S] [--warmup S]
        [--launched NS] [--input FILE …] [--output DIR] [--json] [--threads N]
        [--stream N [--source WHAT]]

--stream: frames through a stream, in place of runs one after the other; the report is
its figures alone. --input: an .npy file for each input, in order, with a prepared
tensor or a photo's pixels; or a photo (needs Pillow).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, Optional

import numpy as np

from .device_end.printable import printable
from .errors import EdgecError
from .model.inputs import noise_inputs
from .session.session import TPU_MODES, Session
from .vision.photo import PHOTO_SUFFIXES, read_photo
from .webcam.streamed import streamed


def run(options: argparse.Namespace) -> Dict[str, object]:
    """Warms up, times the runs, writes the outputs; the report is main.c's with a
    "backend" for each segment.
    """
    with Session(options.bundle, tpu=options.tpu, threads=options.threads) as session:
        if options.launched is None:
            load = None
        else:
            load = time.monotonic_ns() - options.launched
        inputs: Dict[str, Any] = noise_inputs(session.manifest)
        if options.input:
            arrays = [_load(Path(path)) for path in options.input]
            inputs = dict(
                zip((*session.manifest.inputs, *session.manifest.kept), arrays)
            )
        times = session.time(
            inputs, runs=options.runs, seconds=options.seconds, warmup=options.warmup
        )
        for i, info in enumerate(session.outputs if options.output else ()):
            np.save(
                os.path.join(options.output, f"output{i}.npy"),
                session.tensor(info.name),
            )
        segments = [
            {
                "name": s.name,
                "place": s.place,
                "backend": session.backends[s.name],
                "ns": [p[i] for p in times.parts],
            }
            for i, s in enumerate(session.manifest.segments)
        ]
        series = {
            "at": list(times.at),
            "total": list(times.total),
            "segments": segments,
        }
        about = {
            "name": session.manifest.name,
            "unit": "ns",
            "load": load,
            "warmup": times.warmup,
        }
        return {**about, **series, "rss": _resident()}


def _stream(options: argparse.Namespace) -> Dict[str, object]:
    return {
        "stream": streamed(
            options.bundle, options.stream, options.source, options.tpu
        ).as_dict()
    }


def _load(path: Path) -> Any:
    """The elements of an .npy file, or the pixels of a photo."""
    if path.suffix.lower() in PHOTO_SUFFIXES:
        return read_photo(path)
    return np.load(path, allow_pickle=False)


def _resident() -> Optional[int]:
    """The highest resident size of this process, bytes; None where the system does not
    tell.
    """
    try:
        with open("/proc/self/status", encoding="utf-8") as f:
            found = re.search(r"^VmHWM:\s*(\d+) kB", f.read(), re.M)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def main() -> int:
    """Exit code 0, or an error's own."""
    parser = argparse.ArgumentParser(
        prog="python -m edgec_runtime", description="Runs a bundle and times it."
    )
    parser.add_argument("bundle")
    parser.add_argument("--tpu", choices=TPU_MODES, default="auto")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--warmup", type=float, default=0.0)
    parser.add_argument("--launched", type=int)
    parser.add_argument("--input", nargs="+", default=[])
    parser.add_argument("--output")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--stream", type=int)
    parser.add_argument("--source")
    options = parser.parse_args()
    try:
        report = run(options) if options.stream is None else _stream(options)
    except EdgecError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    except (OSError, ValueError) as e:
        print(printable(f"error: {e}\n  hint: check the files"), file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
