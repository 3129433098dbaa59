"""`explain`: where each operation of a model runs, and why, before anything is compiled."""

from __future__ import annotations

from pathlib import Path

from edgec_partitioner.explain import Report, explain

from edgec.lowering import Lowered, Options, lower


def explain_model(model: Path, options: Options) -> Report:
    """Lower a model file and report; a float model without calibration data is judged with assumed scales."""
    return report(lower(model, options, assume=True))


def report(lowered: Lowered) -> Report:
    """The report on a model that is already lowered."""
    return explain(lowered.partition, lowered.graph.name, lowered.target.name, lowered.assumed)
