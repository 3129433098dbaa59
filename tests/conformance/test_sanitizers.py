"""Generated C of every op under the sanitizers, fed with NaN, infinities and extremes:
two samples of each op.

Which they are changes with the kernels' text. `make sanitize-ops` runs all samples, on
all cores of this machine.
"""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from edgec.emit.c import CSRC, segment_source
from edgec.ir import Graph, OpDef
from edgec.schedule.cores import PLAIN, core
from tests.conformance.sanitizing import CASES, KINDS, found, own_variant
from tests.harness import X86, has, sample_graph

SEED = zlib.crc32(b"".join(p.read_bytes() for p in sorted(CSRC.rglob("*.h"))))
GROUPS = 12
VARIANTS = 30


def _two(kind: str) -> list[Graph]:
    """The first sample of a kind and one of the others."""
    first, *others = (sample_graph(sample) for sample in OpDef.registry[kind].samples())
    return [first, *random.Random(f"{SEED}{kind}").sample(others, min(1, len(others)))]


@pytest.mark.sweep(6)
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
    samples = [
        sample_graph(sample)
        for kind in KINDS
        for sample in OpDef.registry[kind].samples()
    ]
    own = [g for g in samples if own_variant(segment_source(g, "seg", core(name)))]
    some = random.Random(SEED).sample(own, min(VARIANTS, len(own)))
    assert some
    assert not [*found(some, tmp_path, core(name), flags, CASES)]
