"""Generated C of every op under the sanitizers, fed with NaN, infinities and extremes:
two samples of each op, and one with float16.

Which they are changes with the kernels' text. `make sanitize-ops` runs all samples, on
all cores of this machine.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgec.emit.c import CSRC, segment_source
from edgec.ir import Graph, OpDef
from edgec.schedule.cores import PLAIN, core
from tests.conformance.sanitizing import CASES, KINDS, found, own_variant, samples_of
from tests.harness import X86, has

SEED = zlib.crc32(b"".join(p.read_bytes() for p in sorted(CSRC.rglob("*.h"))))
GROUPS = 12
VARIANTS = 15


def _two(kind: str) -> list[Graph]:
    """The first sample of a kind, one of the others and one with float16, if there are
    any.
    """
    chance = random.Random(f"{SEED}{kind}")
    graphs = samples_of(kind)
    halves = [graph for graph in graphs if _is_float16(graph)]
    first, *others = (graph for graph in graphs if graph not in halves)
    return [first, *_some(chance, others, 1), *_some(chance, halves, 1)]


def _some(chance: random.Random, graphs: Sequence[Graph], count: int) -> list[Graph]:
    """So many of some graphs, or all where there are no more."""
    return chance.sample(graphs, min(count, len(graphs)))


def _is_float16(graph: Graph) -> bool:
    return any(v.type.dtype == "float16" for v in graph.values())


@pytest.mark.sweep(4)
@pytest.mark.cc
@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_samples_run_clean(group: int, tmp_path: Path) -> None:
    kinds = [
        k
        for k in KINDS[group::GROUPS]
        if any(True for _ in OpDef.registry[k].samples())
    ]
    graphs = [g for kind in kinds for g in _two(kind)]
    assert not [*found(graphs, tmp_path, PLAIN, [], CASES)]


@pytest.mark.sweep(1)
@pytest.mark.cc
@pytest.mark.slow
@pytest.mark.parametrize("name", X86)
def test_variants_run_clean_on_x86(name: str, tmp_path: Path) -> None:
    """Some of the samples that this core computes by kernels of its own."""
    feature, flags = X86[name]
    if not has(feature):
        pytest.skip(f"this processor has no {feature}")
    samples = [graph for kind in KINDS for graph in samples_of(kind)]
    own = [g for g in samples if own_variant(segment_source(g, "seg", core(name)))]
    halves = [g for g in own if _is_float16(g)]
    assert halves
    chance = random.Random(SEED)
    some = [*_some(chance, own, VARIANTS), *_some(chance, halves, VARIANTS // 3)]
    assert not [*found(some, tmp_path, core(name), flags, CASES)]
