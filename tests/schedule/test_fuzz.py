"""A sample of the schedule fuzzer for each core (make schedule-fuzz runs 10,000), and
what its harness sees.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from benchmarks.schedule_fuzz import jobs, markdown, seed_of
from edgec.ir import Builder, Graph, KernelCall, Quant, Rounding, TensorType, interp
from edgec.ops.conv import Conv2D
from edgec.ops.resize import ResizeBilinear
from edgec.ops.shape import COPY, Reshape
from edgec.schedule.cores import Core
from edgec.schedule.kernels import binary, elementwise
from edgec.schedule.steps import DEFAULT
from edgec.schedule.variant import Rules, Schedule, Variant, legal
from tests.harness import assert_agree, random_inputs, sample_graph
from tests.schedule import layers_simd
from tests.schedule.fuzz import PLAIN, verdicts
from tests.schedule.on import on
from tests.schedule.runner import (
    BUILDS,
    SANITIZED,
    Case,
    CrashError,
    build,
    core_of,
    run,
    start,
)

SAMPLE = 110
"""Five rounds of all families."""


@pytest.mark.sweep(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", on("sanitized", "sanitized_vnni", "sanitized_a72", "sanitized_a76")
)
def test_sanitizers_find_nothing(name: str) -> None:
    found = list(verdicts(name, 0, SAMPLE // 5, seed_of(name, 7)))
    assert [(v.number, v.what, v.used, v.why) for v in found if v.why] == []


@pytest.mark.parametrize("name", on("sanitized", "sanitized_a72"))
def test_sanitizers_see_an_overflow(name: str) -> None:
    text = (
        "int main(int argc, char **argv) { volatile int x = %s; (void)argv, "
        "x += argc; return 0; }\n"
    )
    right, wrong = (
        start(name, build(BUILDS[name][0], text % x))
        for x in ("2147483646", "2147483647")
    )
    assert right.returncode == 0
    assert wrong.returncode != 0


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "name", on(*(name for name in BUILDS if name not in SANITIZED))
)
def test_random_schedules_of_random_layers_compute_what_the_ops_mean(name: str) -> None:
    found = list(verdicts(name, 0, SAMPLE, seed_of(name, 7)))
    assert [(v.number, v.what, v.used, v.why) for v in found if v.why] == []
    assert sum(v.used != (PLAIN,) for v in found) > 0.7 * SAMPLE, (
        "most layers have a variant"
    )
    assert len({function for v in found for _, function in v.used}) > 20


def _copying(more: int, back: int = 0) -> Rules:
    """A schedule whose copies take so many bytes too many, from so many bytes further
    in front.
    """

    def choose(call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
        def apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
            x, y, count = call.operands
            assert isinstance(count, int)
            return KernelCall.of(
                COPY,
                *(replace(p, offset=-back) for p in (x, y)),  # type: ignore[type-var]
                count + more,
            )

        if more:
            return (
                Variant(COPY, "wrong", frozenset(), lambda c, o: [{}], apply),
                {},
            )
        return None

    return Rules(choose, views=False)


def _copy() -> Graph:
    build = Builder("copy")
    build.graph.outputs = [
        build.add(Reshape((7, 3)), [build.input("x", TensorType((3, 7)))], "y")
    ]
    return build.graph


@pytest.mark.cc
@pytest.mark.parametrize("wrong", [_copying(4096), _copying(4), _copying(4, 4)])
def test_harness_sees_bytes_beside_a_tensor(wrong: Rules) -> None:
    graph = _copy()
    x = random_inputs(graph)
    right = Case(graph, x, core_of("x86_64_v3"), replace(DEFAULT, views=False))
    with pytest.raises(CrashError) as crash:
        run("x86_64_v3", [right, replace(right, rules=wrong), right])
    assert crash.value.at == 1


@pytest.mark.cc
def test_harness_runs_what_is_right() -> None:
    graph = _copy()
    x = random_inputs(graph)
    (got,) = run("x86_64_v3", [Case(graph, x, core_of("x86_64_v3"), _copying(0))])
    np.testing.assert_array_equal(got["y"], x["x"].reshape(7, 3))


@pytest.mark.parametrize("name", on("x86_64_v3", "cortex_a72"))
def test_no_group_fetches_beyond_its_channels(name: str) -> None:
    """Found by case 81 of an x86's stream, and 28 of an A72's: the last group fetched
    as much of images and of results as the first.
    """
    rng = np.random.default_rng(0)
    build = Builder("groups")
    w, bias = (
        build.const(rng.normal(size=s).astype(np.float32), "c")
        for s in ((99, 1, 3, 21), (99,))
    )
    x = build.input("x", TensorType((2, 1, 8, 63)))
    build.graph.outputs = [
        build.add(Conv2D((1, 1), (0, 2, 0, 0), (3, 1)), [x, w, bias], "y")
    ]

    def fetching(call: KernelCall, on: Core) -> tuple[Variant, Schedule]:
        variant, schedule = legal(call, on)[0]
        return variant, {**schedule, "touch": 3}

    inputs = random_inputs(build.graph)
    cases = [Case(build.graph, inputs, core_of(name), Rules(fetching))] * 2
    for got in run(name, cases):
        assert_agree(got, interp(build.graph, inputs), of=build.graph)


@pytest.mark.cc
def test_a_border_that_is_blended_in_thirds_is_not_exact() -> None:
    """Found by case 208 of an x86's stream of seed 12: what is half way between two
    bytes went up, not down.
    """
    build = Builder("thirds")
    x = build.input("x", TensorType((1, 1, 20, 16), "int8", Quant.per_tensor(0.1, 3)))
    build.graph.outputs = [
        build.add(
            ResizeBilinear((3, 2), "half_pixel", rounding=Rounding.TFLITE_UINT8),
            [x],
            "y",
        )
    ]
    inputs = random_inputs(build.graph)
    (got,) = run("x86_64_v3", [Case(build.graph, inputs, core_of("x86_64_v3"))])
    assert_agree(got, interp(build.graph, inputs))


def test_cases_are_shared_by_all_cores() -> None:
    found = list(jobs(["a", "b", "c"], 1000, 250))
    assert found[:3] == [("a", 0, 250), ("b", 0, 250), ("c", 0, 250)]
    assert sum(count for _, _, count in found) == 1000
    assert "| all | 0 | 0 |" in list(markdown([]))


def test_every_vector_function_is_fuzzed() -> None:
    """Those of floats and of pairs of floats follow from the variants: one that is
    added is among the layers.
    """
    for operands, module in ((1, elementwise), (2, binary)):
        specs = layers_simd.elementwise(operands, "float32")
        graphs = [
            sample_graph(s)
            for spec in specs
            for s in type(spec).samples()
            if s.spec == spec
        ]
        reached = {
            call.kernel for graph in graphs for op in graph.ops for call in op.calls()
        }
        assert {v.of for v in module.VARIANTS if v.of.vectorized} <= reached
