"""What each part of the back-end is worth: one part off at a time, on six networks, in
estimated cycles of a board.

Parts are the rules of a schedule (fusion, views, bands, …), every family of kernels
(its calls are computed by the family that comes next, or by plain kernels), the
searched schedules, and fused multiply-adds (a product and a sum in their place: clang
contracts nothing by itself, so those of the intrinsics are all there are).  Cycles as
in bench_arm; where a program comes out the same without a part, it has no use for it.

Markdown on the screen, build/ablation.json.  What gains nothing on any network that
uses it is named at the end.

    python -m benchmarks.ablation [--board pi4] [--models a,b,FILE] [--parts fusion,tuning]
        [--jobs 2]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from edgec_devices.boards import Board

from benchmarks.arm_programs import Program, compile_for
from benchmarks.bench_arm import cycles_of, files, geo_mean
from benchmarks.picycles import ROOT, SHARED, missing
from edgec.ir import KernelCall
from edgec.schedule import kernels
from edgec.schedule.cores import Core, core
from edgec.schedule.steps import DEFAULT
from edgec.schedule.variant import Rules, Schedule, Variant, legal, preferred, tuned

MODELS = "mnv2_tf2_i8,movenet_lightning_i8,resnet8_f32,mnv1_025_224_f32,mp_selfie_land,pfld_ghostone"
WORK = ROOT / "build" / "ablation"

WORTH = 1.001
"""A part that makes no network faster by more, and none smaller, gains nothing."""

NO_FMA = """#include <arm_neon.h>
#define vfmaq_f32(c, a, b) vaddq_f32(c, vmulq_f32(a, b))
#undef vfmaq_laneq_f32
#define vfmaq_laneq_f32(c, a, b, lane) vaddq_f32(c, vmulq_laneq_f32(a, b, lane))
"""


@dataclass(frozen=True)
class Part:
    """What can be off. rules: without it. prelude: of the C without it."""

    name: str
    rules: Rules = DEFAULT
    prelude: str = ""


@dataclass(frozen=True)
class Without:
    """A way to choose that leaves out some variants."""

    left_out: frozenset[Variant]

    def __call__(self, call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
        """As `choice`, among the others."""
        best = tuned(call, core)
        if best is not None and best[0] not in self.left_out:
            return best
        return next(
            (way for way in legal(call, core) if way[0] not in self.left_out), None
        )


@dataclass(frozen=True)
class Figure:
    """A network without a part, "" being none. cycles: of one inference; arena, text:
    bytes. digest: of its program.
    """

    model: str
    part: str
    cycles: float
    arena: int
    text: int
    digest: str


def parts(board: str) -> dict[str, Part]:
    """All that a board's core has, by name."""
    isa = core(Board.load(board).targets[0].mcpu).isa
    off: dict[str, dict[str, Any]] = {
        f.name: {f.name: False} for f in fields(Rules) if f.type == "bool"
    }
    found = [Part(name, replace(DEFAULT, **one)) for name, one in off.items()]
    for module in pkgutil.iter_modules(kernels.__path__):
        family = importlib.import_module(f"{kernels.__name__}.{module.name}").VARIANTS
        if own := frozenset(v for v in family if v.isa <= isa):
            found.append(
                Part(f"kernels {module.name}", replace(DEFAULT, choose=Without(own)))
            )
    found += [
        Part("tuning", replace(DEFAULT, choose=preferred)),
        Part("fused multiply-adds", prelude=NO_FMA),
    ]
    return {p.name: p for p in found}


def measure(model: str, file: Path, board: str, names: Sequence[str]) -> list[Figure]:
    """The network as it is, then without each part."""
    known: dict[str, float] = {}

    def figure(part: Part) -> Figure:
        made: Program = compile_for(file, board, part.rules, part.prelude)
        if made.digest not in known:
            folder = WORK / f"{model}-{board}-{part.name.replace(' ', '_')}"
            known[made.digest] = cycles_of(made, made.write(folder), board)
        return Figure(
            model, part.name, known[made.digest], made.arena, made.text, made.digest
        )

    return [figure(Part("")), *(figure(parts(board)[name]) for name in names)]


def markdown(found: Sequence[Figure], names: Sequence[str]) -> Iterator[str]:
    """What it costs to be without each part; then the arena where that differs; then
    what gains nothing.
    """
    rows = {(f.model, f.part): f for f in found}
    models = list(dict.fromkeys(f.model for f in found))
    yield f"| without | {' | '.join(models)} | geometric mean |"
    yield "| --- " * (len(models) + 2) + "|"
    whole = " | ".join(f"{rows[m, ''].cycles / 1e6:.2f} M cycles" for m in models)
    yield f"| nothing | {whole} | 1 |"
    for name in names:
        ratios = [_ratio(rows, m, name) for m in models]
        cells = " | ".join(
            "–" if _same(rows, m, name) else f"{r:.3f}"
            for m, r in zip(models, ratios, strict=True)
        )
        yield f"| {name} | {cells} | {geo_mean(ratios):.3f} |"
    yield from (
        "",
        f"| arena without | {' | '.join(models)} |",
        "| --- " * (len(models) + 1) + "|",
    )
    for name in ("", *names):
        sizes = [rows[m, name].arena for m in models]
        if not name or sizes != [rows[m, ""].arena for m in models]:
            yield f"| {name or 'nothing'} | {' | '.join(f'{n:,}' for n in sizes)} |"
    unused = [name for name in names if all(_same(rows, m, name) for m in models)]
    idle = [
        name
        for name in names
        if name not in unused and not any(_gains(rows, m, name) for m in models)
    ]
    yield from ("", f"these have no use for: {', '.join(unused) or 'none'}")
    yield f"gains nothing on those that use it: {', '.join(idle) or 'none'}"


def _ratio(rows: Mapping[tuple[str, str], Figure], model: str, part: str) -> float:
    return rows[model, part].cycles / rows[model, ""].cycles


def _same(rows: Mapping[tuple[str, str], Figure], model: str, part: str) -> bool:
    return rows[model, part].digest == rows[model, ""].digest


def _gains(rows: Mapping[tuple[str, str], Figure], model: str, part: str) -> bool:
    return (
        _ratio(rows, model, part) > WORTH
        or rows[model, part].arena > rows[model, ""].arena
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if (SHARED / "models").is_dir():
        here = MODELS
    else:
        here = ",".join(map(str, (ROOT / "fixtures").glob("*/*.onnx")))
    parser.add_argument("--board", default="pi4")
    parser.add_argument("--models", default=here, help="names, or files, with commas")
    parser.add_argument("--parts", help="names, with commas; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "ablation.json", metavar="FILE"
    )
    return parser.parse_args()


def main() -> int:
    """Prints the tables and writes build/ablation.json."""
    given = _parse()
    found = list[Figure]()
    known = parts(given.board)
    names = given.parts.split(",") if given.parts else list(known)
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"there is no part {unknown[0]}: there are {', '.join(known)}")
    if reason := missing():
        print(f"{reason}: cycles are those of edgec's own model of the pipelines\n")
    networks = [*files(given.models.split(","))]
    with ProcessPoolExecutor(max(1, given.jobs)) as pool:
        running = [
            pool.submit(measure, model, file, given.board, names)
            for model, file in networks
        ]
        for (model, _), future in zip(networks, running, strict=True):
            found += future.result()
            print(f"{model} on {given.board}: {len(names)} parts", file=sys.stderr)
    print("\n".join(markdown(found, names)))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(
        json.dumps(
            {"board": given.board, "figures": [asdict(f) for f in found]}, indent=1
        )
        + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
