"""Searches the schedules that edgec comes with: edgec/schedule/tuned/<core>.json.

Networks of the data folder are compiled by analysis, `edgec tune` searches on each emulated
board, and schedules that are more than 3 % faster stay. Then each network is compiled with
them; if it needs more of the arena or more time as a whole, its schedules are dropped.
Results are in build/tuned.json, so a search that was stopped goes on.

    python -m benchmarks.tuned [--models a,b] [--boards pi3,pi4,pi5] [--ops 12] [--jobs 2]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from edgec_devices.boards import Board
from edgec_runtime import Bundle

import edgec
from benchmarks.bench_arm import BOARDS
from benchmarks.networks import NETWORKS, files
from edgec.emit.calls_file import CALLS_FILE
from edgec.report.files import write_whole
from edgec.report.terminal import progress
from edgec.report.tuning import WORTH_SHOWING, to_text
from edgec.schedule.database import SHIPPED, Database

BUILD = Path(__file__).parents[1] / "build"
FOUND = BUILD / "tuned.json"


def search(
    models: Sequence[tuple[str, Path]], board: str, ops: int, jobs: int
) -> dict[str, Path]:
    """Tune all networks, and return their bundles by analysis."""
    bundles = {}
    for name, path in models:
        bundles[name] = BUILD / f"tuned-{name}-{board}.edgec"
        edgec.compile(path, board, bundles[name], tuned="none", allow_float=True)
        with progress() as say:
            done = edgec.tune(
                bundles[name],
                f"emulated:{board}",
                ops=ops,
                workers=jobs,
                output=FOUND,
                progress=say,
            )
        print(f"{name}: {to_text(done)}\n", flush=True)
    return bundles


def better(core: str) -> Database:
    """Return the schedules of a core that are worth a line."""
    known = Database.load(FOUND).of(core)
    return Database(
        cores={
            core: {
                key: f
                for key, f in known.items()
                if f.default_ms > WORTH_SHOWING * f.ms
            }
        }
    )


def without_harm(
    models: Sequence[tuple[str, Path]], board: str, core: str, bundles: dict[str, Path]
) -> Database:
    """Return the better schedules but for those that harm a whole network."""
    kept = better(core)
    url = f"emulated:{board}"
    aside = BUILD / "tuned-kept.json"
    for name, path in models:
        write_whole(aside, json.dumps(kept.to_json()))
        after = BUILD / "tuned.edgec"
        edgec.compile(path, board, after, tuned=aside, allow_float=True)
        both = bundles[name], after
        arenas = list(map(_arena, both))
        ms = [_estimate(b, url) for b in both]
        print(
            f"{name} on {board}: est. {ms[0]:.3f} -> {ms[1]:.3f} ms, "
            f"arena {arenas[0]} -> {arenas[1]}",
            flush=True,
        )
        if arenas[1] > arenas[0] or ms[1] > ms[0]:
            own = _signatures(bundles[name])
            kept = Database(
                cores={
                    core: {key: f for key, f in kept.of(core).items() if key not in own}
                }
            )
            print(f"{name} on {board}: what it has of that is dropped", flush=True)
    return kept


def _arena(path: Path) -> int:
    with Bundle.open(path) as bundle:
        return max(s.arena for s in bundle.manifest.segments)


def _estimate(path: Path, url: str) -> float:
    found = edgec.bench(path, url).report.latency.summary()
    assert found is not None, f"no estimate of {path}"
    return found.p50


def _signatures(path: Path) -> set[str]:
    with Bundle.open(path) as bundle:
        targets = json.loads(bundle.read(CALLS_FILE))["targets"]
    return {
        call["signature"]
        for cores in targets.values()
        for calls in cores.values()
        for call in calls
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--boards", default=",".join(BOARDS))
    parser.add_argument(
        "--ops", type=int, default=12, help="of each network, the largest"
    )
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    models = list(files(asked.models.split(",")))
    for board in asked.boards.split(","):
        core = Board.load(board).targets[0].mcpu
        kept = without_harm(
            models, board, core, search(models, board, asked.ops, asked.jobs)
        )
        write_whole(
            SHIPPED / f"{core}.json", json.dumps(kept.to_json(), indent=1) + "\n"
        )
        print(f"{SHIPPED / core}.json: {len(kept.of(core))} schedules", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
