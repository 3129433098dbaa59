"""A model while the steps of a recipe quantize it."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from edgec.errors import InternalError
from edgec.executors import cores, in_order
from edgec.ir import Array, Graph, Observe, Op, Run, Value, interp
from edgec.quantize.change.channel_groups import Parts
from edgec.quantize.change.rewrite import Int8Model, RoundedParameters, rewrite
from edgec.quantize.observe.calibration import Sample
from edgec.quantize.observe.ranges import Range
from edgec.quantize.observe.survey import Survey
from edgec.steps import Progress, each

T = TypeVar("T")
ChannelExtremes = tuple[Array, Array]
"""The smallest and the largest element of each channel, each [C]."""


def over_samples(each_sample: Sequence[ChannelExtremes]) -> ChannelExtremes:
    """Return the extremes of each channel over all samples, float64."""
    lows, highs = zip(*each_sample, strict=True)

    # float64, since the differences of such extremes are computed.
    low = np.stack(lows).astype(np.float64).min(0)
    high = np.stack(highs).astype(np.float64).max(0)
    return low, high


CHANGED_TOGETHER = {"graph": ("graph", "parts")}
"""The fields that a step may change, for a `RecipeStep.changes` with several."""


class Runners(Protocol):
    """Makes functions that run graphs."""

    def floats(self, graph: Graph, samples: int) -> Run:
        """Return a runner of a float graph, with the same results on every machine.

        samples: how often it will run, about.
        """

    def int8(self, graph: Graph, samples: int) -> Run:
        """Return a runner of a quantized graph, as fast as this machine can.

        Threads may call it at once.
        """

    def renew(self, run: Run, op: Op) -> None:
        """Let a runner of a quantized graph read the constants of an operation anew."""


class InterpRunners:
    """Runs graphs by `interp` alone, which is slow and needs no C compiler."""

    def floats(self, graph: Graph, samples: int) -> Run:
        """Return `interp` of a float graph."""
        return partial(interp, graph)

    def int8(self, graph: Graph, samples: int) -> Run:
        """Return `interp` of a quantized graph."""
        return partial(interp, graph)

    def renew(self, run: Run, op: Op) -> None:
        """Do nothing: `interp` reads constants anew at every run."""


class RecipeStep(Protocol):
    """One step of a recipe: a dataclass whose fields are its options.

    Attributes:
        name: the step's name in recipes; that of its file.
        changes: the one field of `QuantizationState` that it may change.
    """

    name: ClassVar[str]
    changes: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def run(self, state: QuantizationState) -> None:
        """Change the state, by calibration samples alone."""


@dataclass
class QuantizationState:
    """Everything that steps read and change.

    Attributes:
        graph: the float model.
        samples: the samples to calibrate with.
        runners: what runs graphs.
        say: shows people the step of the work.
        seed: the seed of every random choice.
        passes: how often the steps go through the samples, about.
        parts: the channel groups with tensors of their own, by the name of the
            convolution's result that was split; they change with the graph.
        ranges: the ranges of the float values.
        precision: "float" for the operations that do not become int8.
        weights: int8 weights that are not the nearest integers, by operation.
        biases: real biases in place of the model's, by operation of `graph`.
    """

    graph: Graph
    samples: Sequence[Sample]
    runners: Runners = field(default_factory=InterpRunners)
    say: Progress = lambda text: None
    seed: int = 0
    passes: int = 1
    parts: Mapping[str, Parts] = field(default_factory=dict)
    ranges: Mapping[Value, Range] = field(default_factory=dict)
    precision: Mapping[Op, str] = field(default_factory=dict)
    weights: Mapping[Op, Array] = field(default_factory=dict)
    biases: Mapping[Op, Array] = field(default_factory=dict)
    _cache: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def with_samples(self, samples: Sequence[Sample]) -> QuantizationState:
        """Return the same model with other samples, and nothing observed on them."""
        return replace(self, samples=samples, _cache={})

    def after(self, step: RecipeStep) -> QuantizationState:
        """Return the state after a step; this state stays as it is.

        Raises InternalError where the step changes a field that it may not change.
        """
        result = replace(self)
        step.run(result)
        allowed = CHANGED_TOGETHER.get(step.changes, (step.changes,))
        for f in fields(QuantizationState):
            is_changed = getattr(result, f.name) is not getattr(self, f.name)
            if is_changed and f.name not in allowed:
                raise InternalError(
                    f"the step {step.name} changed {f.name}; it may change {step.changes}"
                )

        return result

    def cached(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make` for this graph, made once for all candidates.

        name: tells results of one graph apart.
        """
        key = (id(self.graph), name)
        if key not in self._cache:
            # The graph is kept beside it: no other graph can get its id then.
            self._cache[key] = (self.graph, make())

        result: T = self._cache[key][1]

        return result

    def float_run(self) -> Run:
        """Return the runner of the float graph."""
        count = self.passes * len(self.samples)
        return self.cached("run", lambda: self.runners.floats(self.graph, count))

    def observe_samples(
        self,
        of_sample: Callable[[int], tuple[T, Observe]],
        step_name: str,
        numbers: Sequence[int] | None = None,
    ) -> Iterator[T]:
        """Show every value of the float graph to an observer for each sample.

        Several samples run at once. Results are yielded in the order of the samples, so
        that sums over them are the same on any number of cores.

        of_sample: returns a result for a sample's number and the observer that fills
            it in.
        step_name: shown to people with the number of the sample.
        numbers: the samples to run; None: all.
        """
        run = self.float_run()
        chosen = range(len(self.samples)) if numbers is None else numbers

        def observed(i: int) -> T:
            result, observe = of_sample(i)
            run(self.samples[i], observe)
            return result

        results = in_order(observed, chosen, cores())
        return each(results, len(chosen), step_name, self.say)

    def observed_ranges(self) -> dict[Value, Range]:
        """Return the smallest and the largest finite element of every value."""
        return self.survey().ranges()

    def channel_extremes(
        self, names: Container[str]
    ) -> dict[Value, list[ChannelExtremes]]:
        """Return the extremes of each channel in each sample, for values of these names."""

        def of_sample(i: int) -> tuple[dict[Value, ChannelExtremes], Observe]:
            extremes: dict[Value, ChannelExtremes] = {}

            # Only the extremes are kept: the arrays belong to the run.
            def observe(v: Value, array: Array) -> None:
                if v.name in names and v.type.dtype == "float32":
                    rows = array.reshape(-1, array.shape[-1])
                    extremes[v] = (rows.min(0), rows.max(0))

            return extremes, observe

        # Values by those of this graph, in the order of the samples.
        by_value: dict[Value, list[ChannelExtremes]] = {}
        for extremes in self.observe_samples(of_sample, "measure channels"):
            for v, of_channels in extremes.items():
                by_value.setdefault(v, []).append(of_channels)

        return by_value

    def survey(self) -> Survey:
        """Return the ranges of every sample, and how the samples differ."""

        def make() -> Survey:
            survey = Survey(self.graph)
            for sample in self.observe_samples(
                lambda i: survey.observer(), "calibrate"
            ):
                survey.add(sample)
            return survey

        return self.cached("survey", make)

    def int8(self) -> Int8Model:
        """Return the int8 form by the ranges and constants so far."""
        rounded = RoundedParameters(self.weights, self.biases)
        return rewrite(self.graph, self.ranges, rounded, self.precision)
