"""Random layers by random legal schedules: what must be equal to what the ops mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any

import numpy as np

from edgec.comparing.measure import FLOAT16_LAW
from edgec.ir import Array, Graph, KernelCall, interp
from edgec.ir.float16 import rounded
from edgec.schedule.cores import Core
from edgec.schedule.steps import DEFAULT
from edgec.schedule.variant import Rules, Schedule, Variant, legal
from tests.harness import (
    FLOAT_TOLERANCE,
    assert_agree,
    but_for_nan_of_zeros,
    float16_graph,
    with_nan,
)
from tests.schedule import (
    layers,
    layers_attention,
    layers_blocks,
    layers_f32,
    layers_simd,
)
from tests.schedule.layers import Layer, stream
from tests.schedule.runner import Case, CrashError, core_of, nan_of, run

MAKERS = (
    *layers.MAKERS * 3,
    *layers_f32.MAKERS,
    *layers_simd.MAKERS,
    *layers_blocks.MAKERS,
    *layers_attention.MAKERS,
)
"""Of one round; those with most tiles and tables come more often."""

PLAIN = ("plain kernels", "")
_OFF = 0.2
"""How often each rule is off."""
_NAN = 0.02
"""How many elements are NaN where some are."""


@dataclass
class Chance:
    """A choice among the legal ways: any variant, and any of its schedules.

    used: the variants that were chosen, and their C functions.
    """

    rng: np.random.Generator
    used: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
        """One of them."""
        by_name: dict[str, list[tuple[Variant, Schedule]]] = {}
        for variant, schedule in legal(call, core):
            by_name.setdefault(variant.name, []).append((variant, schedule))
        if not by_name:
            return None
        ways = list(by_name.values())[self.rng.integers(len(by_name))]
        variant, schedule = ways[self.rng.integers(len(ways))]

        def apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
            # The core is as the schedules of the call's elements see it already.
            made = variant.apply(call, core, schedule)
            elements = " of float16" if call.is_float16 else ""
            self.used.append((variant.name + elements, made.kernel.name + elements))
            return made

        return replace(variant, apply=apply), self._beyond(schedule)

    def _beyond(self, schedule: Schedule) -> Schedule:
        """Sometimes what no analysis would ask for, and kernels must do all the same."""
        if "by_panels" in schedule and self.rng.random() < 0.3:
            return {**schedule, "by_panels": 1 - schedule["by_panels"]}
        if "columns" in schedule and self.rng.random() < 0.5:
            return {**schedule, "columns": int(self.rng.choice([1, 3, 5]))}
        return schedule


@dataclass(frozen=True)
class Verdict:
    """One case. number: in its stream; used: variants and their C functions; why: it is
    wrong, else empty.
    """

    number: int
    family: str
    used: tuple[tuple[str, str], ...]
    what: str
    why: str = ""


def verdicts(name: str, first: int, count: int, seed: int) -> Iterator[Verdict]:
    """Of so many cases of a stream, from `first` on, on a core (a name of
    runner.BUILDS).
    """
    made = list(islice(stream(MAKERS, seed), first, first + count))
    chances = [Chance(np.random.default_rng([seed, first + i])) for i in range(count)]
    made = [
        _perhaps_nan(x, nan_of(name), np.random.default_rng([seed, first + i, 1]))
        for i, x in enumerate(made)
    ]
    # The cores whose vectors hold float16.
    if core_of(name).computing(float16=True).isa:
        made = [_perhaps_float16(x, c) for x, c in zip(made, chances, strict=True)]
    cases = [
        random_case(name, x.graph, x.inputs, chance)
        for x, chance in zip(made, chances, strict=True)
    ]
    for i, (layer, case, chance, got) in enumerate(
        zip(made, cases, chances, results(name, cases), strict=True)
    ):
        what = (
            f"{'+'.join(str(op.spec) for op in layer.graph.ops)} of "
            f"{layer.graph.inputs[0].type} "
            f"in {case.parts}"
        )
        if isinstance(got, str):
            why = got
        else:
            why = _difference(layer, chance, got)
        # plain kernels of ops that follow, and of those that no variant takes, are not
        # what is tried here
        yield Verdict(
            first + i,
            layer.family,
            tuple(dict.fromkeys(chance.used)) or (PLAIN,),
            what,
            why,
        )


def random_case(
    name: str, graph: Graph, inputs: Mapping[str, Array], chance: Chance
) -> Case:
    """A core with random caches; as many threads as there are parts, so that a part's
    scratch is the last there is.
    """
    rng = chance.rng
    on = replace(
        core_of(name),
        l1=int(rng.choice([256, 4096, 32768])),
        l2=int(rng.choice([1024, 1 << 18])),
    )
    parts = int(rng.choice([1, 1, 2, 3, 4]))
    off: dict[str, Any] = {
        f.name: False for f in fields(Rules) if f.type == "bool" and rng.random() < _OFF
    }
    return Case(graph, inputs, on, replace(DEFAULT, choose=chance, **off), parts, parts)


def results(
    name: str, cases: Sequence[Case], command: Sequence[str] = ()
) -> list[Mapping[str, Array] | str]:
    """Outputs; of a case that kills the program, what it said: those behind it are run
    without it.
    """
    try:
        return list(run(name, cases, command))
    except CrashError as e:
        before = run(name, cases[: e.at], command) if e.at else []
        if e.at + 1 < len(cases):
            behind = results(name, cases[e.at + 1 :], command)
        else:
            behind = []
        return [*before, e.why, *behind]


def _perhaps_float16(layer: Layer, chance: Chance) -> Layer:
    """Half of the layers of floats with float16, where csrc has the kernels."""
    half = float16_graph(layer.graph)
    if half is None or chance.rng.random() < 0.5:
        return layer
    inputs = {name: rounded(x) for name, x in layer.inputs.items()}
    return replace(layer, graph=half, inputs=inputs)


def _perhaps_nan(layer: Layer, nan: float, rng: np.random.Generator) -> Layer:
    """A quarter of the layers with some NaN in their inputs of floats."""
    if rng.random() < 0.75:
        return layer
    inputs = {
        name: with_nan(x, _NAN, rng, nan) if x.dtype.kind == "f" else x
        for name, x in layer.inputs.items()
    }
    return replace(layer, inputs=inputs)


def _difference(layer: Layer, chance: Chance, got: Mapping[str, Array]) -> str:
    graph = layer.graph
    is_half = any(v.type.dtype == "float16" for v in graph.values())
    tolerance = FLOAT16_LAW if is_half else FLOAT_TOLERANCE
    functions = [function for _, function in chance.used]
    want = {
        name: but_for_nan_of_zeros(graph, functions, got[name], y)
        for name, y in interp(graph, layer.inputs).items()
    }
    try:
        assert_agree(got, want, tolerance)
    except AssertionError as e:
        return str(e) or "another shape or type"
    return ""
