"""The noise that int8 operations add to the outputs of a model.

The noise of an output is a part of its power: 10 ** (-SQNR / 10). What each group of
operations adds is measured with all others in float; the sum over groups estimates the
noise of any choice of groups without running it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgec.ir import Array, Op
from edgec.measure.agreement import Tally, tally
from edgec.measure.decibels import part_of_decibels
from edgec.quantize.change.simulate import Simulation, outputs
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.float_ops.op_groups import OpGroup, op_groups
from edgec.quantize.observe.calibration import Sample
from edgec.steps import each

SENSITIVITY_SAMPLES = 8
"""The samples on which the noise of one group alone is measured."""
TINY_NOISE = 1e-30
"""The least sum of noises: its logarithm is taken."""
LEAST_TIME_SHARE = 0.005
"""A run of groups whose cost is a smaller share of the model's time counts with this
share.
"""


def compare_outputs(
    want: Mapping[str, Array],
    got: Mapping[str, Array],
    tallies: dict[str, Tally] | None = None,
) -> list[float]:
    """Return the noise of each output on one sample.

    tallies: sums for each output, to which the sample is added.
    """
    noises = []
    for name, y in want.items():
        noises.append(part_of_decibels(tally(y, got[name]).result().judged_db))
        if tallies is not None:
            tallies.setdefault(name, Tally()).add(y, got[name])

    return noises


@dataclass
class Sensitivity:
    """The noise that each group of operations that may stay in float adds in int8.

    Attributes:
        simulation: runs the model with any choice of int8 operations.
        samples: the samples to measure on.
        want: the outputs of the float model on each sample.
        groups: the groups, in the graph's order.
        alone: the noise of each group with all others in float, for each sample and
            output; on `SENSITIVITY_SAMPLES`.
        refused: runs of groups that gained less than they promised.
    """

    simulation: Simulation
    samples: Sequence[Sample]
    want: Sequence[Mapping[str, Array]]
    groups: Sequence[OpGroup]
    alone: Mapping[OpGroup, Array] = field(default_factory=dict)
    refused: set[OpGroup] = field(default_factory=set)

    @classmethod
    def of(cls, state: QuantizationState, samples: Sequence[Sample]) -> Sensitivity:
        """Measure each group of a quantized model."""
        simulation = Simulation(state)
        run = state.float_run()
        groups = op_groups(state.graph, simulation.ops)
        sensitivity = cls(simulation, samples, [*outputs(run, samples)], groups)

        # One simulation for each group: the others are exact, so that noises add up.
        alone = {}
        for group in each(groups, len(groups), "measure sensitivity", state.say):
            alone[group] = sensitivity.noise(group.ops, SENSITIVITY_SAMPLES)

        sensitivity.alone = alone

        return sensitivity

    @property
    def work(self) -> int:
        """The work of all groups."""
        return sum(group.work for group in self.groups)

    def alone_sum(self, groups: Iterable[OpGroup]) -> Array:
        """Return the estimated noise of several groups in int8 together."""
        return np.asarray(sum(self.alone[group] for group in groups))

    def noise(
        self,
        int8: Collection[Op],
        samples: int | None = None,
        tallies: dict[str, Tally] | None = None,
    ) -> Array:
        """Return the noise with these operations in int8, [samples x outputs].

        samples: the number of samples; None: all.
        tallies: sums for each output, to which the samples are added.
        """
        run = self.simulation.run(int8)

        # Several samples run at once, and come back in order.
        got = outputs(run, self.samples[:samples])
        noises: list[float] = []
        for want, result in zip(self.want[:samples], got, strict=True):
            noises += compare_outputs(want, result, tallies)
        return np.array(noises)
