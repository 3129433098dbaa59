"""What a person chose about a compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgec_devices.boards import Target
from edgec_partitioner.partition import Wishes
from edgec_runtime.bundle.manifest import MAX_THREADS

from edgec.compiler.optimise import disabled
from edgec.compiler.quantize import QuantizeOptions
from edgec.compiler.read import ReadOptions
from edgec.errors import InputError
from edgec.frontends.ultralytics import Head
from edgec.quantize.change.recipe import Recipe
from edgec.quantize.float_ops.limits import AccuracyGoal, CostBudget, share
from edgec.quantize.float_ops.plan import leave_in_float

_SLOWDOWN = "--max-slowdown"
COMPILE_RECIPE = "best"
EXPLAIN_RECIPE = "fast"
"""Where operations run hardly depends on the recipe, and a person who asks for it
should not wait for minutes.
"""
SHARES = ("auto", "all")
"""What the Edge TPU gets of what it can run: what is faster with it, or all."""


@dataclass(frozen=True)
class Options:
    """What a person chose about a compile; the same for `explain`.

    Attributes:
        target: "host", "pi4", "pi4+coral", ….
        calibrate: a folder of photos or an .npz, by which a float model becomes int8.
        preprocess: how photos become inputs (docs/preprocessing.md).
        input_shapes: the shapes of dynamic inputs, by name.
        disable: names of passes, and of rewrites for the Edge TPU, to leave out.
        min_cosine: a quantized model whose outputs are less like the float model's than
            this is refused.
        optimistic: whether the Edge TPU gets operations of which it is not known
            whether they map.
        validate: as calibrate, to verify with; default: samples held back from
            calibration.
        allow_float: whether a float model without calibration data runs on the CPU
            though the target has an Edge TPU.
        threads: the most threads that the C can use, 1 to 4.
        tuned: a database of schedules (docs/tune.md), or "none" for no searches at all;
            None: the default one, if it is there.
        quantize: a recipe (docs/quantization.md): "best", "fast" or a .toml file; None:
            COMPILE_RECIPE, or EXPLAIN_RECIPE where the model is only looked at.
        edgetpu: what the Edge TPU gets of what it can run, one of SHARES.
        prune: how far outputs may change when channels are taken out, as max_drop.
        float_ops: names of operations that stay float.
        max_drop, min_sqnr: see `AccuracyGoal.of`.
        max_ms, min_tpu_share: see `CostBudget.of`.
        max_slowdown: how much more time operations in float may cost where there are no
            such limits; None: what the recipe says.
        fix: the values of inputs that are constants, by name.
        state: the outputs that come back as inputs at the next call, by input.
        also: code that the bundle has beside the board's, see `Board.with_optional`.
        head: where a network that picks its boxes itself may end: it does where that
            cannot be int8, or cannot be read.
        keep_head: whether it does not.
    """

    target: str = "host"
    calibrate: Path | None = None
    preprocess: str | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    disable: Sequence[str] = ()
    min_cosine: float = 0.9
    optimistic: bool = False
    validate: Path | None = None
    allow_float: bool = False
    threads: int = 1
    tuned: str | None = None
    quantize: str | None = None
    edgetpu: str = "auto"
    prune: str | None = None
    float_ops: Sequence[str] = ()
    max_drop: str | None = None
    min_sqnr: float | None = None
    max_ms: float | None = None
    min_tpu_share: str | None = None
    max_slowdown: str | None = None
    fix: Mapping[str, Sequence[float]] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    also: Sequence[str] = ()
    head: Head | None = None
    keep_head: bool = False

    @property
    def goal(self) -> AccuracyGoal:
        """The accuracy for which operations are left in float.

        Raises InputError for values that no goal has.
        """
        return AccuracyGoal.of(self.max_drop, self.min_sqnr)

    @property
    def cost_budget(self) -> CostBudget:
        """The cost that operations in float may have.

        Raises InputError for values that no budget has.
        """
        return CostBudget.of(self.max_ms, self.min_tpu_share)

    @property
    def precision_options(self) -> str:
        """The options about precision that were given, with commas."""
        limits = {**self.goal.to_json(), **self.cost_budget.to_json()}
        names = ["prune", "float_ops", *limits, "max_slowdown"]
        given = [n for n in names if getattr(self, n) not in (None, ())]
        return ", ".join(f"--{n.replace('_', '-')}" for n in given)

    def reading(self, assume: bool) -> ReadOptions:
        """Return how the model file is read. assume: see `quantizing`."""
        return ReadOptions(
            preprocess=self.preprocess,
            input_shapes=self.input_shapes,
            fix=self.fix,
            state=self.state,
            head=None if self.keep_head else self.head,
            becomes_int8=self.calibrate is not None
            or (assume and not self.allow_float),
            opaque=assume,
        )

    def quantizing(self, file_name: str, assume: bool) -> QuantizeOptions:
        """Return how a float model becomes int8.

        assume: whether the model is only looked at: made-up scales do then.
        """
        passes_off, rewrites_off = disabled(self.disable)
        return QuantizeOptions(
            file_name=file_name,
            recipe=self._recipe(EXPLAIN_RECIPE if assume else COMPILE_RECIPE),
            recipe_name=self.quantize,
            calibrate=self.calibrate is not None,
            assume=assume,
            allow_float=self.allow_float,
            goal=self.goal,
            budget=self.cost_budget,
            prune=share("--prune", self.prune),
            precision_options=self.precision_options,
            passes_off=frozenset(passes_off),
            rewrites_off=frozenset(rewrites_off),
            optimistic=self.optimistic,
        )

    def wishes(self) -> Wishes:
        """Return what the Edge TPU is to get."""
        _, rewrites_off = disabled(self.disable)
        everything = self.edgetpu == "all"
        return Wishes(self.optimistic, rewrites_off, everything=everything)

    def _recipe(self, default: str) -> Recipe:
        """Return the recipe that was named, with what is to be left in float."""
        recipe = Recipe.load(self.quantize or default)
        slowdown = share(_SLOWDOWN, self.max_slowdown)
        if slowdown is not None:
            recipe = replace(recipe, slowdown=slowdown)
        names = tuple(self.float_ops)
        candidates = tuple(leave_in_float(c, names) for c in recipe.candidates)
        return replace(recipe, candidates=candidates)

    def check(self) -> None:
        """Raise InputError for values that cannot be."""
        share("--prune", self.prune)
        self._check_precision()
        if not -1 <= self.min_cosine <= 1:
            raise InputError(
                f"no cosine can be {self.min_cosine:g} or more",
                "--min-cosine",
                "give one of -1 to 1: 0.9",
            )
        if not 1 <= self.threads <= MAX_THREADS:
            raise InputError(
                f"no code is for {self.threads} threads",
                "--threads",
                f"give 1 to {MAX_THREADS}",
            )
        if self.edgetpu not in SHARES:
            raise InputError(
                f"an Edge TPU cannot get {self.edgetpu}",
                "--edgetpu",
                f"give {' or '.join(SHARES)}",
            )

    def _check_precision(self) -> None:
        """Raise InputError for options about precision that do not fit together."""
        if self.calibrate is None and self.precision_options:
            what = f"{self.precision_options} is for a float model that becomes int8"
            hint = "give a folder of photos or an .npz file"
            raise InputError(what, "--calibrate", hint)
        has_limits = bool(self.goal) or bool(self.cost_budget)
        if share(_SLOWDOWN, self.max_slowdown) is not None and has_limits:
            what = (
                "what stays float is either as little as a limit wants, "
                "or what a slowdown allows"
            )
            hint = "leave it out, or the limits; a budget beside a goal is --max-ms"
            raise InputError(what, _SLOWDOWN, hint)
        if self.min_tpu_share is not None and not Target.parse(self.target).coral:
            raise InputError(
                f"{self.target} has no Edge TPU",
                "--min-tpu-share",
                "give a target with one: pi4+coral",
            )
