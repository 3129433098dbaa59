"""Runs a bundle like its own program (csrc/main.c), but on the Edge TPU if there is one.

    python -m edgec_runtime BUNDLE [--tpu MODE] [--runs N] [--seconds S] [--warmup S]
        [--launched NS] [--input FILE …] [--output DIR] [--json] [--threads N]
        [--stream N [--source WHAT]]

With --stream, N frames pass through a stream, and the report has only its figures.
--input takes a file for each input, in order: an .npy file with a prepared tensor or the
pixels of a photo, or a photo (needs Pillow).
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
        # This is the time from the start of the process to a loaded model.
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
    """Return the inputs of files in the model's order, or noise without files.

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

    # The session reports missing inputs.
    return dict(zip(names, arrays))


def _save_outputs(session: Session, folder: str) -> None:
    """Write each output to a file output<i>.npy."""
    for i, info in enumerate(session.outputs):
        # The name of a tensor may not be possible for a file, so files have numbers.
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
    """Return the highest resident size of this process in bytes; None if unknown."""
    # This figure of the operating system includes the mapped weights.
    try:
        with open("/proc/self/status", encoding="utf-8") as f:
            match = re.search(r"^VmHWM:\s*(\d+) kB", f.read(), re.M)
    except OSError:
        return None
    return int(match.group(1)) * 1024 if match else None


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
