"""Runs a bundle as its own program does (csrc/main.c), but on the Edge TPU if it can.

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
from typing import Any, Dict, List, Optional

import numpy as np

from .device_end.printable import printable
from .errors import EdgecError, InputError
from .model.inputs import noise_inputs
from .model.timing import Times
from .session.session import TPU_MODES, Session
from .vision.photo import PHOTO_SUFFIXES, read_photo
from .webcam.stream_measurement import streamed


def run(options: argparse.Namespace) -> Dict[str, object]:
    """Warm up, time the runs, and write the outputs.

    Return the report of main.c with a "backend" for each segment.
    """
    with Session(options.bundle, tpu=options.tpu, threads=options.threads) as session:
        # From the start of the process to a loaded model.
        load = None
        if options.launched is not None:
            load = time.monotonic_ns() - options.launched
        times = session.time(
            _inputs(session, options.input),
            runs=options.runs,
            seconds=options.seconds,
            warmup=options.warmup,
        )
        if options.output:
            _save_outputs(session, options.output)
        return {
            "name": session.manifest.name,
            "unit": "ns",
            "load": load,
            "warmup": times.warmup,
            "at": list(times.at),
            "total": list(times.total),
            "segments": _segment_times(session, times),
            "rss": _resident(),
        }


def _inputs(session: Session, paths: List[str]) -> Dict[str, Any]:
    """Return the inputs of files in the model's order, or noise where there are none.

    Raises InputError for more files than inputs, and for a cascade.
    """
    hint = "run it from Python: edgec_runtime.Session(BUNDLE).result(frame)"
    session.manifest.check_alone(str(session.bundle.path), hint)
    if not paths:
        return noise_inputs(session.manifest)
    names = (*session.manifest.inputs, *session.manifest.kept)
    if len(paths) > len(names):
        raise InputError(
            f"{len(paths)} files are more than the model has inputs, {len(names)}",
            at="--input",
            hint=f"give one file for each of: {', '.join(names)}",
        )
    arrays = [_load(Path(path)) for path in paths]

    # A missing one is the session's to report.
    return dict(zip(names, arrays))


def _save_outputs(session: Session, folder: str) -> None:
    """Write each output to a file output<i>.npy."""
    for i, info in enumerate(session.outputs):
        # Numbers, since a tensor's name may be no name of a file.
        path = os.path.join(folder, f"output{i}.npy")
        np.save(path, session.tensor(info.name))


def _segment_times(session: Session, times: Times) -> List[Dict[str, object]]:
    """Return the times of each segment, with its backend."""
    rows: List[Dict[str, object]] = []
    for i, s in enumerate(session.manifest.segments):
        rows.append(
            {
                "name": s.name,
                "place": s.place,
                "backend": session.backends[s.name],
                "ns": [parts[i] for parts in times.parts],
            }
        )
    return rows


def _stream(options: argparse.Namespace) -> Dict[str, object]:
    """Run frames through a stream; return its figures."""
    figures = streamed(options.bundle, options.stream, options.source, options.tpu)
    return {"stream": figures.as_dict()}


def _load(path: Path) -> Any:
    """Return the elements of an .npy file, or the pixels of a photo."""
    if path.suffix.lower() in PHOTO_SUFFIXES:
        return read_photo(path)
    # Pickles could run code.
    return np.load(path, allow_pickle=False)


def _resident() -> Optional[int]:
    """Return the highest resident size of this process in bytes.

    None where the system does not say.
    """
    # The operating system's own figure counts the mapped weights, too.
    try:
        with open("/proc/self/status", encoding="utf-8") as f:
            found = re.search(r"^VmHWM:\s*(\d+) kB", f.read(), re.M)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def main() -> int:
    """Run the command line; return exit code 0, or that of an error."""
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
