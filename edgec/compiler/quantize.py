"""Stage 4 of a compile: quantization of a float model to int8.

Scales come from calibration, or are made up for models that are only looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgec_devices.boards import Target
from edgec_partitioner.legalize import Applied, legalize
from threadpoolctl import threadpool_limits

from edgec.comparing.changes import Changes, channel_changes
from edgec.compiler import nonfinite
from edgec.compiler.host import Host
from edgec.compiler.native import NativeGraph, least_ms, runner
from edgec.compiler.optimise import disabled, simplify
from edgec.compiler.place import costs
from edgec.compiler.samples import Samples
from edgec.errors import InputError
from edgec.float16.choose import Float16Choice
from edgec.ir import Graph, Run, verify
from edgec.options.compile import COMPILE_RECIPE, EXPLAIN_RECIPE, Options
from edgec.passes._int16 import without_bounds
from edgec.quantize.change.convert import assumed, evenly, is_quantized
from edgec.quantize.change.recipe import Recipe
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.float_ops.limits import (
    AccuracyGoal,
    CostBudget,
    PlanLimits,
    Pricer,
    share,
)
from edgec.quantize.float_ops.plan import leave_in_float
from edgec.quantize.float_ops.pruning import Pruned, prune
from edgec.quantize.observe.calibration import CachedSamples, Sample, label
from edgec.quantize.observe.judgement import Judge
from edgec.quantize.select.apply import QuantizedModel, apply_recipe
from edgec.quantize.select.holdout import held_out_parts

_PRECISION_OPTIONS = (
    "prune",
    "float_ops",
    "accuracy",
    "budget",
    "data",
)
"""The options about the precision of an int8 form of a float model."""
_TIMED_RUNS = 10**9
"""Announced runs of graphs that are timed: enough for any graph to be compiled."""


@dataclass(frozen=True)
class QuantizeOptions:
    """The options of quantization.

    Attributes:
        file_name: the name of the model file, for messages.
        recipe: the recipe.
        recipe_name: the name of the recipe, as given; None: the default one.
        calibrate: whether there are samples to calibrate with.
        assume: whether made-up scales are enough, as the model is only looked at.
        allow_float: whether a model without samples may stay float on a target with an
            Edge TPU.
        goal: the accuracy to keep by leaving operations in float.
        budget: the largest cost of operations in float.
        prune: the allowed change of outputs by pruned channels, as a part.
        precision_options: the given options about precision, in words.
        passes_off: the passes to leave out.
        rewrites_off: the rewrites for the Edge TPU to leave out.
        optimistic: whether rewrites may use operations that were never tried on an
            Edge TPU.
    """

    file_name: str
    recipe: Recipe
    recipe_name: str | None
    calibrate: bool
    assume: bool
    allow_float: bool
    goal: AccuracyGoal
    budget: CostBudget
    prune: float | None
    precision_options: str
    passes_off: frozenset[str]
    rewrites_off: frozenset[str]
    optimistic: bool

    @classmethod
    def of(cls, options: Options, file_name: str, assume: bool) -> QuantizeOptions:
        """Return the options for the model of a file.

        assume: whether the model is only looked at, and made-up scales are enough.

        Raises InputError for impossible values, and options in contradiction.
        """
        passes_off, rewrites_off = disabled(options.disable)
        # All are read first: an impossible value goes before all other errors.
        prune = share("--prune", options.prune)
        goal = AccuracyGoal.parse(options.accuracy)
        budget = CostBudget.parse(options.budget)
        precision_options = _precision_options(options)
        _check_precision(options, precision_options, budget)
        name = None if options.quantize is None else str(options.quantize)
        recipe = Recipe.load(name or (EXPLAIN_RECIPE if assume else COMPILE_RECIPE))
        slowdown = budget.max_slowdown
        if slowdown is not None and budget.is_relative and not goal:
            # A slowdown alone takes the place of the recipe's own.
            recipe = replace(recipe, slowdown=slowdown)
            budget = CostBudget()
        # The guard keeps them in float too, so that the choice is fair.
        names = tuple(options.float_ops)
        return cls(
            file_name=file_name,
            recipe=recipe.changed(lambda c: leave_in_float(c, names)),
            recipe_name=name,
            calibrate=options.calibrate is not None,
            assume=assume,
            allow_float=options.allow_float,
            goal=goal,
            budget=budget,
            prune=prune,
            precision_options=precision_options,
            passes_off=frozenset(passes_off),
            rewrites_off=frozenset(rewrites_off),
            optimistic=options.optimistic,
        )


def _precision_options(options: Options) -> str:
    """Return the given options about precision, with commas."""
    given = [
        n for n in _PRECISION_OPTIONS if getattr(options, n, None) not in (None, ())
    ]
    return ", ".join(f"--{n.replace('_', '-')}" for n in given)


def _check_precision(options: Options, given: str, budget: CostBudget) -> None:
    """Raise InputError for options about precision in contradiction.

    given: these options, in words.
    """
    if options.calibrate is None and given:
        what = f"{given} is for a float model that becomes int8"
        hint = "give a folder of photos or an .npz file"
        raise InputError(what, "--calibrate", hint)

    # Without an Edge TPU the limit would have no effect, silently.
    has_share = budget.min_tpu_share is not None
    if has_share and not Target.parse(options.target).coral:
        raise InputError(
            f"{options.target} has no Edge TPU",
            "--budget",
            "give a target with one: pi4+coral",
        )


@dataclass(frozen=True)
class FinalModel:
    """A model in its final precision.

    Attributes:
        graph: the graph.
        quantized: the model that a recipe made int8; None if edgec did not quantize.
        reference: runs the model before pruning and rewrites for the Edge TPU, where a
            recipe made it int8.
        pruned: the result of pruning; None without --prune.
        assumed: whether the scales are made up.
        rewritten: the rewrites for the Edge TPU that were made before quantization.
        float_on_cpu: whether the model was left in float, so that nothing runs on the
            target's Edge TPU.
        taken_as_it_is: whether the file was quantized already.
        notes: remarks on its precision.
        float16: the choice of float16 for what is float; None without one.
    """

    graph: Graph
    quantized: QuantizedModel | None = None
    reference: Run | None = None
    pruned: Pruned | None = None
    assumed: bool = False
    rewritten: tuple[Applied, ...] = ()
    float_on_cpu: bool = False
    taken_as_it_is: bool = False
    notes: tuple[str, ...] = ()
    float16: Float16Choice | None = None

    def changes(self) -> Changes:
        """Return the factors and terms of the recipe for each channel, by value."""
        if self.quantized is None:
            return {}
        q = self.quantized
        return channel_changes(q.source_graph, q.float_graph, q.parts)


@dataclass(frozen=True)
class Quantizer:
    """Brings canonical graphs to the precision for a target.

    Attributes:
        target: the board, with or without an Edge TPU.
        options: how float models become int8.
        price: estimates what a quantized graph costs on the target.
        host: the C compiler of this machine.
        judge: judges int8 forms on labelled pictures; None: there are none.
    """

    target: Target
    options: QuantizeOptions
    price: Pricer
    host: Host
    judge: Judge | None = None

    def quantize(self, graph: Graph, samples: Samples) -> FinalModel:
        """Quantize a canonical graph, unless it is int8 already or may stay float.

        Raises InputError for a float model without samples whose target has an Edge
        TPU, and for options about precision of a model that is int8.
        """
        options = self.options
        if is_quantized(graph):
            return self._quantized_already(graph)

        uncalibrated = self.target.coral and not options.calibrate
        if uncalibrated and not (options.assume or options.allow_float):
            raise self._lacks_samples()
        is_assumed = uncalibrated and options.assume and not options.allow_float
        if not (options.calibrate or is_assumed):
            notes = tuple(self._unused_recipe("the model stays in float"))
            return FinalModel(graph, float_on_cpu=uncalibrated, notes=notes)

        # int8 scales take the place of clamps to int16, and without these clamps the
        # graph may have another canonical form.
        plain = self._simplify(graph) if without_bounds(graph) else graph
        prepared, rewritten = self._for_edgetpu(plain)
        if options.calibrate:
            # Rewrites change float results by rounding, so accuracy is measured against
            # the graph without them.
            before = plain if rewritten else None
            model = self._calibrated(prepared, before, samples)
        else:
            notes = tuple(self._unused_recipe("int8 scales are made up"))
            model = FinalModel(assumed(prepared), assumed=True, notes=notes)
        verify(model.graph, "quantized")
        int8 = self._simplify(model.graph)
        self.host.dump("quantize", int8)
        return replace(model, graph=int8, rewritten=rewritten)

    def _quantized_already(self, graph: Graph) -> FinalModel:
        """Return a quantized graph as it is; raises InputError for precision options."""
        options = self.options
        if options.precision_options:
            what = (
                f"{graph.name} is quantized already, "
                "and edgec takes such models as they are"
            )
            raise InputError(what, options.precision_options, "give the float model")
        notes = tuple(self._taken_as_it_is())
        return FinalModel(graph, taken_as_it_is=True, notes=notes)

    def _simplify(self, graph: Graph) -> Graph:
        return simplify(graph, self.options.passes_off, self.host.dump)

    def _for_edgetpu(self, graph: Graph) -> tuple[Graph, tuple[Applied, ...]]:
        """Rewrite operations that almost map to the Edge TPU."""
        if not self.target.coral:
            return graph, ()
        options = self.options
        # Before quantization, since a rewrite of a float graph may be inexact: the scales
        # are calibrated on the result.
        rewritten, applied = legalize(
            graph,
            exact=False,
            optimistic=options.optimistic,
            disabled=options.rewrites_off,
        )
        return self._simplify(rewritten), tuple(applied)

    def _calibrated(
        self, graph: Graph, plain: Graph | None, samples: Samples
    ) -> FinalModel:
        """Return the int8 form of a float graph.

        plain: the graph before rewrites, if there were any.
        """
        # Pruned first: the recipe has to calibrate the channels that are left.
        pruned = self._pruned(graph, samples.calibrate)
        if pruned is not None:
            plain = plain or graph
            graph = pruned.graph
        self._check_finite(graph, samples.calibrate)

        options = self.options
        host = self.host
        limits = PlanLimits(options.goal, options.budget, self.price, self.judge)
        # Samples run side by side already: threads of a matrix product would only wait
        # for cores, and busily.
        with threadpool_limits(1, "blas"):
            # The samples to verify with are not shown: scales must not depend on them.
            quantized = apply_recipe(
                options.recipe,
                graph,
                samples.calibrate,
                host.runners(),
                host.say,
                limits,
            )
        # The recipe has compiled the same graph already where nothing was changed.
        reference = quantized.float_run
        if plain is not None or not isinstance(reference, NativeGraph):
            original = plain or quantized.float_graph
            reference = runner(original, len(samples.verify), host.compiler, host.say)
        notes = tuple(costs(quantized))
        int8 = quantized.int8_graph
        return FinalModel(int8, quantized, reference, pruned, notes=notes)

    def _pruned(self, graph: Graph, samples: Sequence[Sample]) -> Pruned | None:
        """Prune the channels of a float graph; None without --prune."""
        allowed = self.options.prune
        if allowed is None:
            return None
        # The samples are split into those to fit and those to judge by, as for recipes.
        state = QuantizationState(graph, CachedSamples(samples))
        fit, held = next(held_out_parts(state))
        runners = self.host.runners()
        pruned = prune(graph, fit.samples, held, runners, allowed, self.price)
        if pruned.kept is None:
            return pruned

        # Times do not depend on scales, so evenly spread ones are enough.
        graphs = (graph, pruned.graph)
        runs = [runners.int8(evenly(g), _TIMED_RUNS) for g in graphs]
        return replace(pruned, ms_here=tuple(least_ms(runs, held[0])))

    def _check_finite(self, graph: Graph, samples: Sequence[Sample]) -> None:
        """Raise InputError for a sample with outputs that are not finite."""
        count = len(samples)
        run = self.host.runners().floats(graph, count)
        names = [label(samples, i) for i in range(count)]
        nonfinite.check_calibration(graph, samples, run, names)

    def _taken_as_it_is(self) -> Iterator[str]:
        """Yield the note on a quantized model whose options have no effect."""
        given = ["--calibrate"] if self.options.calibrate else []
        if self.options.recipe_name is not None:
            given.append(f"--quantize {self.options.recipe_name}")
        if given:
            verb = "does" if len(given) == 1 else "do"
            yield (
                "the model is quantized already and is taken exactly as it is: "
                f"{' and '.join(given)} {verb} nothing"
            )

    def _unused_recipe(self, outcome: str) -> Iterator[str]:
        """Yield the note on a recipe without samples, which has no effect.

        outcome: the precision of the model, in words.
        """
        name = self.options.recipe_name
        if name is not None:
            yield f"{outcome}: --quantize {name} needs --calibrate"

    def _lacks_samples(self) -> InputError:
        """Return the error of a float model without samples for an Edge TPU."""
        what = (
            f"{self.options.file_name} is a float model, and without calibration data "
            "nothing of it can run on the Edge TPU"
        )
        hint = (
            "--calibrate FOLDER (photos) or .npz makes it int8; "
            "--allow-float runs all of it on the CPU"
        )
        return InputError(what, f"--target {self.target.name}", hint)
