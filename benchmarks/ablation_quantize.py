"""What each step of quantization is worth: on and off, on ten models, on photos that
none calibrated on.

Of each model half of the photos, drawn by each seed, calibrate; the others test. The
figure of a way is the signal to noise of the int8 model against the float model over
the test photos, in dB, the mean over outputs; that of a step the mean over the seeds of
the difference that it makes:

    on   added to min/max ranges and nearest integers alone; "centre" to equalization
    off  taken out of all steps together (WHOLE): what it is worth beside the others;
         "clipping little" and "equalize large maps" in place of ranges that clip
         wherever it pays and of equalization of all

A step that gains less than WORTH on every model, on and off, is named at the end, and
the exit code is 1: it goes. Markdown on the screen, build/ablation-quantize.json.
Figures of a model and a seed are kept in build/accuracy, and measured again only where
what they hang on changed.

    python -m benchmarks.ablation_quantize [--models a,b] [--parts equalize,gptq] [--seeds
        0,1,2] [--photos N]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.accuracy_rows import ROOT, SHARED, Case, digest
from benchmarks.accuracy_ways import PREPROCESS, sources
from edgec.compiler.native import HostRunners, native_compiler
from edgec.frontends import read_model
from edgec.measure.agreement import compare
from edgec.passes.pipeline import optimize
from edgec.quantize.change.histograms import METHODS
from edgec.quantize.change.pipeline import StepPipeline
from edgec.quantize.change.recipe import Candidate, Recipe
from edgec.quantize.change.state import QuantizationState, RecipeStep, Runners
from edgec.quantize.change.steps.bias import BiasCorrection
from edgec.quantize.change.steps.choose import Choose
from edgec.quantize.change.steps.equalize import Equalize
from edgec.quantize.change.steps.lower import Lower
from edgec.quantize.change.steps.minmax import MinMaxRanges
from edgec.quantize.change.steps.ranges import Ranges

MODELS = (
    "resnet8_f32,vww96_f32,mnv1_025_224_f32,mp_blazeface_short_onnx_b,mp_selfie_land_onnx,mp_face_landmark_onnx,"
    "pfld_ghostone,fastestdet_onnx,yunet_n_320,yolox_nano_416"
)
WORTH = 0.3
"""dB."""
ALONE = BiasCorrection(inherited=False)
PLAIN: tuple[RecipeStep, ...] = (Lower(), MinMaxRanges())
WHOLE = Recipe.load("best").candidate.steps
"""Lower, separate, centre, equalize, choose, gptq, bias."""
LARGE = tuple(replace(s, rows=4000) if isinstance(s, Equalize) else s for s in WHOLE)
"""The same, but only large maps are equalized."""
LITTLE = tuple(replace(s, clipping=10.0) if isinstance(s, Choose) else s for s in WHOLE)
"""The same, but ranges clip little."""


@dataclass(frozen=True)
class Part:
    """One step. on: pairs of ways without and with it."""

    name: str
    on: tuple[tuple[RecipeStep, ...], tuple[RecipeStep, ...]]
    off: tuple[tuple[RecipeStep, ...], tuple[RecipeStep, ...]] | None = None


def without(step: RecipeStep) -> tuple[tuple[RecipeStep, ...], tuple[RecipeStep, ...]]:
    """The whole recipe without one of its steps, and with it."""
    return tuple(s for s in WHOLE if s is not step), WHOLE


def parts() -> list[Part]:
    """All steps but the first, which every int8 model needs, and the methods for
    ranges.
    """
    first, separate, centre, equalize, choose, gptq, bias = WHOLE
    (little,) = (s for s in LITTLE if s.name == "choose")
    (large,) = (s for s in LARGE if s.name == "equalize")
    assert isinstance(choose, Choose)
    assert isinstance(bias, BiasCorrection)
    plain = MinMaxRanges()
    tight = replace(choose, room=1.0)
    base = (first, separate, centre, equalize)
    broken = replace(bias, whole=False)
    found = [
        Part("separate", (PLAIN, (first, separate, plain)), without(separate)),
        Part(
            "centre",
            ((first, equalize, plain), (first, centre, equalize, plain)),
            without(centre),
        ),
        Part("equalize", (PLAIN, (first, equalize, plain)), without(equalize)),
        Part("choose", (PLAIN, (first, choose)), ((*base, plain, gptq, bias), WHOLE)),
        Part("equalize large maps", (PLAIN, (first, large, plain)), (WHOLE, LARGE)),
        Part(
            "clipping little",
            ((first, choose), (first, little)),
            (WHOLE, LITTLE),
        ),
        Part(
            "room",
            ((first, tight), (first, choose)),
            ((*base, tight, gptq, bias), WHOLE),
        ),
        Part(
            "gptq",
            ((*PLAIN, ALONE), (*PLAIN, gptq, ALONE)),
            ((*base, choose, bias), WHOLE),
        ),
        Part(
            "bias, each by itself",
            (PLAIN, (*PLAIN, ALONE)),
            (WHOLE[:-1], (*WHOLE[:-1], ALONE)),
        ),
        Part(
            "bias, inherited",
            ((*PLAIN, ALONE), (*PLAIN, bias)),
            ((*WHOLE[:-1], ALONE), WHOLE),
        ),
        Part(
            "bias in whole steps",
            ((*PLAIN, broken), (*PLAIN, bias)),
            ((*WHOLE[:-1], broken), WHOLE),
        ),
    ]
    for method in [m for m in METHODS if m != "minmax"]:
        others = replace(choose, methods=tuple(m for m in METHODS if m != method))
        found.append(
            Part(
                f"{method} ranges",
                (PLAIN, (first, Ranges(method))),
                ((*base, others, gptq, bias), WHOLE),
            )
        )
    return found


def measure(
    case: Case, runners: Runners, wanted: Sequence[Part]
) -> dict[str, tuple[float, float]]:
    """By part, what it adds on and off, of one model and one half of the photos."""
    graph = optimize(read_model(case.file, {}))
    name = graph.inputs[0].name
    calibrate, test = ([{name: x} for x in np.load(half)["x"]] for half in case.photos)
    line = StepPipeline(QuantizationState(graph, calibrate, runners, passes=40))
    run = runners.floats(graph, len(test))
    want = [run(s, None) for s in test]
    known: dict[tuple[RecipeStep, ...], float] = {}

    def db(steps: tuple[RecipeStep, ...]) -> float:
        if steps not in known:
            int8 = runners.int8(line.of(Candidate("", steps)).int8().graph, len(test))
            found = compare((w, int8(s, None)) for w, s in zip(want, test, strict=True))
            known[steps] = float(np.mean([a.sqnr_db for a in found.values()]))
        return known[steps]

    def gain(
        pair: tuple[tuple[RecipeStep, ...], tuple[RecipeStep, ...]] | None,
    ) -> float:
        return 0.0 if pair is None else db(pair[1]) - db(pair[0])

    return {part.name: (gain(part.on), gain(part.off)) for part in wanted}


def kept(
    case: Case, runners: Runners, wanted: Sequence[Part]
) -> dict[str, tuple[float, float]]:
    """What was measured before, if all that it hangs on is the same, or what is
    measured now.
    """
    path = case.folder / "ablation.json"
    key = digest([*sources(), Path(__file__)], case.digest, *(p.name for p in wanted))
    known = json.loads(path.read_text()) if path.exists() else {}
    if known.get("key") != key:
        known = {"key": key, "gains": measure(case, runners, wanted)}
        path.write_text(json.dumps(known) + "\n")
    return {name: (on, off) for name, (on, off) in known["gains"].items()}


def useless(rows: Mapping[str, Mapping[str, tuple[float, float]]]) -> Iterator[str]:
    """Parts, by model and name, that gain nothing anywhere."""
    for name in next(iter(rows.values()), {}):
        if max(max(row[name]) for row in rows.values()) < WORTH:
            yield name


def markdown(rows: Mapping[str, Mapping[str, tuple[float, float]]]) -> Iterator[str]:
    """A row for each part, a column for each model: dB on / off."""
    yield f"| step | {' | '.join(rows)} |"
    yield "| --- |" + " --: |" * len(rows)
    for name in next(iter(rows.values()), {}):
        yield (
            f"| {name} | "
            + " | ".join(
                f"{row[name][0]:+.1f} / {row[name][1]:+.1f}" for row in rows.values()
            )
            + " |"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=MODELS)
    parser.add_argument(
        "--parts", default="", help="those whose names begin so; default: all"
    )
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument(
        "--photos",
        type=int,
        default=1000,
        help="at most so many, half of them to calibrate with",
    )
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "ablation-quantize.json"
    )
    args = parser.parse_args()
    index = {
        m["name"]: m for m in json.loads((SHARED / "models" / "index.json").read_text())
    }
    wanted = [p for p in parts() if p.name.startswith(tuple(args.parts.split(",")))]
    seeds = [int(s) for s in args.seeds.split(",")]
    runners = HostRunners(native_compiler(None), lambda text: None)
    rows: dict[str, dict[str, tuple[float, float]]] = {}
    every: dict[str, list[dict[str, tuple[float, float]]]] = {}
    for model in args.models.split(","):
        entry = index[model]
        for seed in seeds:
            case = Case(entry, PREPROCESS[entry["preproc"]], args.photos, seed)
            every.setdefault(model, []).append(kept(case, runners, wanted))
            print(f"{model}, seed {seed}: done", file=sys.stderr, flush=True)
        of_model = every[model]
        rows[model] = {
            p.name: (
                float(np.mean([r[p.name][0] for r in of_model])),
                float(np.mean([r[p.name][1] for r in of_model])),
            )
            for p in wanted
        }
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(
            json.dumps({"seeds": seeds, "mean": rows, "each": every}, indent=1)
        )
    print("\n".join(markdown(rows)))
    found = list(useless(rows))
    for name in found:
        print(f"{name}: gains less than {WORTH} dB on each of {len(rows)} models")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
