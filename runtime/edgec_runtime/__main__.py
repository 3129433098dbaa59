"""Runs a bundle like its own program (csrc/main.c), but with a Session, so on the Edge TPU where there is one.

python -m edgec_runtime BUNDLE [--runs N] [--input FILE.npy …] [--output DIR] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Dict, List

import numpy as np

from .errors import EdgecError
from .inputs import noise_inputs
from .session import Session


def run(options: argparse.Namespace) -> Dict[str, object]:
    """Warms up, times the runs, writes the outputs; the report is main.c's with a "backend" for each segment."""
    with Session(options.bundle) as session:
        inputs = noise_inputs(session.manifest)
        if options.input:
            arrays = [np.load(path, allow_pickle=False) for path in options.input]
            inputs = {info.name: array for info, array in zip(session.inputs, arrays)}
        outputs = session.run(inputs)
        profile = session.profile(inputs, runs=options.runs, warmup=0)
        for i, info in enumerate(session.outputs if options.output else ()):
            np.save(os.path.join(options.output, f"output{i}.npy"), outputs[info.name])
        segments: List[Dict[str, object]] = [
            {
                "name": s.name,
                "place": s.place,
                "backend": session.backends[s.name],
                "ns": list(profile.segments[s.name]),
            }
            for s in session.manifest.segments
        ]
        total = list(profile.total)
        return {"name": session.manifest.name, "runs": options.runs, "unit": "ns", "segments": segments, "total": total}


def main() -> int:
    """Exit code 0, or an error's own."""
    parser = argparse.ArgumentParser(prog="python -m edgec_runtime", description="Runs a bundle and times it.")
    parser.add_argument("bundle")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--input", nargs="+", default=[])
    parser.add_argument("--output")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        report = run(options)
    except EdgecError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    except (OSError, ValueError) as e:
        print(f"error: {e}\n  hint: check the files", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
