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
from edgec.quantize.change.rewrite import Int8, RoundedParameters, rewrite
from edgec.quantize.observe.calibration import Sample
from edgec.quantize.observe.ranges import Range
from edgec.quantize.observe.survey import Survey
from edgec.steps import Progress, each

T = TypeVar("T")
Ends = tuple[Array, Array]
"""The smallest and the largest element of each channel."""


def over_all(every: Sequence[Ends]) -> Ends:
    """The ends of each channel over all samples, float64."""
    lows, highs = (
        np.stack(ends).astype(np.float64) for ends in zip(*every, strict=True)
    )
    return lows.min(0), highs.max(0)


_WITH = {"graph": ("graph", "parts")}
"""What a step may change beside what it says."""


class Runners(Protocol):
    """Makes what runs graphs."""

    def floats(self, graph: Graph, samples: int) -> Run:
        """Of a float graph, for so many runs: the same results on every machine."""

    def int8(self, graph: Graph, samples: int) -> Run:
        """Of a quantized graph, as fast as this machine can; threads may call it at
        once.
        """

    def renew(self, run: Run, op: Op) -> None:
        """Let a run of a quantized graph take in what the constants of one of its ops
        are now.
        """


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
    """One step of a recipe. name: in recipes; that of its file. changes: the one part
    of `QuantizationState` that it may change.
    """

    name: ClassVar[str]
    changes: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def run(self, work: QuantizationState) -> None:
        """Do it, on calibration samples alone."""


@dataclass
class QuantizationState:
    """What steps read and change.

    graph: the float model. samples: to calibrate with. seed: of all that is drawn.
    passes: how often steps go through the samples, about. parts: of channels that got
    tensors of their own, by what a convolution wrote before; they go with the graph.
    ranges: of the float values. precision: "float" for ops that do not become int8.
    weights: int8 weights that are not just the nearest, by op. biases: real ones in
    place of the model's, by op; each is a change of one step, and belongs to `graph`.
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
    _kept: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def on(self, samples: Sequence[Sample]) -> QuantizationState:
        """The same on other samples, with nothing known of them."""
        return replace(self, samples=samples, _kept={})

    def do(self, step: RecipeStep) -> QuantizationState:
        """What the step makes of it; this stays as it is."""
        result = replace(self)
        step.run(result)
        may = _WITH.get(step.changes, (step.changes,))
        for f in fields(QuantizationState):
            if f.name not in may and getattr(result, f.name) is not getattr(
                self, f.name
            ):
                raise InternalError(
                    f"the step {step.name} changed {f.name}; it may change {step.changes}"
                )
        return result

    def keep(self, name: Hashable, make: Callable[[], T]) -> T:
        """What `make` makes for this graph, once for all candidates."""
        key = (id(self.graph), name)
        if key not in self._kept:
            # the graph is kept with it: no other graph can get its id then
            self._kept[key] = self.graph, make()
        made: T = self._kept[key][1]
        return made

    def run(self) -> Run:
        """Runs the float graph."""
        return self.keep(
            "run",
            lambda: self.runners.floats(self.graph, self.passes * len(self.samples)),
        )

    def watch(
        self,
        of_sample: Callable[[int], tuple[T, Observe]],
        what: str,
        numbers: Sequence[int] | None = None,
    ) -> Iterator[T]:
        """Show every value of the float graph to the observer of each sample, or of
        those of these numbers.

        Several samples run at once. What comes with an observer is given back when it
        has seen all, in the order of the samples: to be added up, so that sums are the
        same on any number of cores.
        """
        run = self.run()
        chosen = range(len(self.samples)) if numbers is None else numbers

        def watched(i: int) -> T:
            found, observe = of_sample(i)
            run(self.samples[i], observe)
            return found

        return each(in_order(watched, chosen, cores()), len(chosen), what, self.say)

    def extremes(self) -> dict[Value, Range]:
        """The smallest and the largest finite element of every value."""
        return self.survey().ranges()

    def channels(self, names: Container[str]) -> dict[Value, list[Ends]]:
        """Of the float values of these names: the ends of each channel in each sample."""

        def of_sample(i: int) -> tuple[dict[Value, Ends], Observe]:
            seen = dict[Value, Ends]()

            def observe(v: Value, array: Array) -> None:
                if v.name in names and v.type.dtype == "float32":
                    rows = array.reshape(-1, array.shape[-1])
                    seen[v] = rows.min(0), rows.max(0)

            return seen, observe

        found: dict[Value, list[Ends]] = {}
        for seen in self.watch(of_sample, "measure channels"):
            for v, ends in seen.items():
                found.setdefault(v, []).append(ends)
        return found

    def survey(self) -> Survey:
        """What the samples are like, each by itself."""

        def find() -> Survey:
            found = Survey(self.graph)
            for seen in self.watch(lambda i: found.sample(), "calibrate"):
                found.add(seen)
            return found

        return self.keep("survey", find)

    def int8(self) -> Int8:
        """The int8 form by what was found so far."""
        return rewrite(
            self.graph,
            self.ranges,
            RoundedParameters(self.weights, self.biases),
            self.precision,
        )
