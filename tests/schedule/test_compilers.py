"""gcc and clang take every variant with the flags that bundles name, and mean the same
by it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from edgec.emit.c import CSRC
from edgec.ir import Graph, KernelCall, interp
from edgec.schedule.cores import core
from edgec.schedule.variant import preferred
from edgec.toolchain.cc import CODE_FLAGS
from tests import builds
from tests.harness import X86, assert_agree, has, random_inputs
from tests.schedule.runner import run_on
from tests.schedule.test_fuse import WANTED, graph_of
from tests.schedule.test_parts import graphs_with_c

_ZIG = (*builds.ZIG, "-fno-sanitize=all", "-target")
_ARM_GCC = ("aarch64-linux-gnu-gcc", "-static")
COMPILERS = {
    "cortex_a53": (
        (*_ARM_GCC, "-mcpu=cortex-a53"),
        (*_ZIG, "aarch64-linux-musl", "-mcpu=cortex_a53"),
    ),
    "cortex_a72": (
        (*_ARM_GCC, "-mcpu=cortex-a72"),
        (*_ZIG, "aarch64-linux-musl", "-mcpu=cortex_a72"),
    ),
    "cortex_a76": (
        (*_ARM_GCC, "-mcpu=cortex-a76"),
        (*_ZIG, "aarch64-linux-musl", "-mcpu=cortex_a76"),
    ),
    "x86_64_v3": (("gcc",), (*_ZIG, "x86_64-linux-musl", "-mcpu=x86_64_v3")),
    "x86_64_v4_vnni": (("gcc",), (*_ZIG, "x86_64-linux-musl", "-mcpu=x86_64_v3")),
}
"""gcc and clang for each core."""

LIKE = {"cortex_a72": "cortex_a53"}
"""The core whose functions another has, but for some."""


def chosen(graph: Graph, name: str) -> list[KernelCall]:
    """The calls by variants, of a graph of one op."""
    calls = graph.ops[0].spec.calls(graph.ops[0])
    found = [(call, preferred(call, core(name))) for call in calls]
    return [v[0].applied(call, core(name), v[1]) for call, v in found if v is not None]


def functions(graph: Graph, name: str) -> set[str]:
    """The functions that variants use, with the tiles that they pass them."""
    return {
        f"{c.kernel} {[x for x in c.operands if isinstance(x, str)]}"
        for c in chosen(graph, name)
    }


def sample_graphs(name: str) -> Iterator[Graph]:
    """A graph for each function that variants use on a core, and each tile that they
    pass it; without those of a core that it is like.
    """
    seen = set[str]()
    for graph in graphs_with_c():
        seen |= functions(graph, LIKE[name]) if name in LIKE else set()
        new = functions(graph, name) - seen
        seen |= new
        if new:
            yield graph


def test_the_samples_need_all_headers_of_variants() -> None:
    paths = (path.relative_to(CSRC).as_posix() for path in CSRC.rglob("ek_*.h"))
    every = {header for header in paths if "/" in header}
    used = {
        call.kernel.header
        for name in COMPILERS
        for graph in sample_graphs(name)
        for call in chosen(graph, name)
    }
    assert {header for header in every if not _has_parts_only(header)} <= used


def _has_parts_only(header: str) -> bool:
    """Of kernels, or of what several ops are together: test_fuse, test_bands,
    test_chains and test_attention have those.
    """
    return header.rsplit("/", 1)[1].startswith(
        (
            "ek_requant_",
            "ek_gemm_s8_pieces_",
            "ek_simd",
            "ek_epilogue",
            "ek_tile_",
            "ek_after_",
            "ek_row_bands_",
            "ek_chain",
            "ek_attention",
            "ek_gates_",
            "ek_map_",
        )
    )


@pytest.mark.sweep(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.arm if "cortex" in n else pytest.mark.cc)
        for n in COMPILERS
    ],
)
def test_gcc_and_clang_take_all_variants(name: str) -> None:
    gcc, clang = COMPILERS[name]
    if shutil.which(gcc[0]) is None:
        pytest.skip(f"no {gcc[0]}")
    if not has(X86.get(name, ("fp",))[0]) and name in X86:
        pytest.skip(f"this processor has no {X86[name][0]}")
    graphs = [
        *sample_graphs(name),
        *(() if name in LIKE else (graph_of(build) for build in WANTED)),
    ]
    assert len(graphs) > (0 if name in LIKE else 50)
    inputs = [random_inputs(g, i) for i, g in enumerate(graphs)]
    want = [interp(g, given) for g, given in zip(graphs, inputs, strict=True)]
    for compiler, level in ((gcc, "-O3"), (clang, "-O2")):
        flags = (*CODE_FLAGS, *core(name).flags, level)
        results = run_on(name, graphs, inputs, command=(*compiler, *flags))
        for graph, got, right in zip(graphs, results, want, strict=True):
            assert_agree(got, right, of=graph)
