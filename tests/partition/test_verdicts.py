"""Verdicts on every sample of every op: rules never stumble over what they are asked
about.
"""

from __future__ import annotations

import pytest
from edgec_partitioner.verdicts import verdicts

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.ir import OpDef
from tests.harness import sample_graph


@pytest.mark.parametrize("kind", sorted(OpDef.registry))
def test_each_sample_has_a_verdict(kind: str) -> None:
    for sample in OpDef.registry[kind].samples():
        graph = sample_graph(sample)
        (verdict,) = verdicts(graph).values()
        for refusal in verdict.refusals:
            assert refusal.rule
            assert refusal.constraint.strip()
            assert refusal.seen
            assert refusal.fix is None or (
                refusal.fix and not refusal.fix.startswith("none")
            )
        if any(v.type.dtype not in ("int8", "uint8") for v in graph.outputs):
            assert verdict.place() == "cpu"
