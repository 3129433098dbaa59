"""The ways to run a graph that must agree with `interp`, and how far they may be off."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.fuzzing.to_onnx import Writer, expressed, to_onnx
from edgec.emit.tflite import write_tflite
from edgec.errors import EdgecError
from edgec.frontends import read_model
from edgec.ir import (
    Array,
    Graph,
    Op,
    Value,
    interp,
    parse,
    print_graph,
    verify,
)
from edgec.ir.interp import run_op
from edgec.ops.softmax import Softmax
from edgec.ops.uint8 import beside_uint8, has_asymmetric_weights
from edgec.passes.pipeline import optimize
from tests.harness import NO_REFERENCE, random_inputs, run_tflite
from tests.schedule.fuzz import Chance, random_case, results
from tests.schedule.runner import BUILDS, Case, core_of

_NUDGES = 6
_NUDGE = 1e-5
"""Of an element, and of the tensor's largest: what floats are changed by to see what
hangs on their last bits.
"""
_SLACK = 1e-5
"""Of the largest element of an output: what any way may be off by itself."""
_LONG_ROW = 1000
"""Elements of a row whose sum in float32, one after the other, is 1e-5 off."""
_NEAR_0 = 1e-2
"""What 6e-8 is less than `_SLACK` of."""
_GROWTH = 8.0
"""How much more than by nudges a way may be off."""


_CHOOSING = ("detections", "grid_sample", "roi_align")
"""Ops of floats that go one way or another."""
_SQUARING = ("instance_norm", "l2_norm", "layer_norm", "local_response_norm")
_ROOT = 1e17
"""Sums of squares of larger numbers are larger than float32's."""


PLAIN = "plain"
"""Of no core: plain kernels, on this machine."""


@dataclass(frozen=True)
class Manner:
    """How a graph becomes C.

    Attributes:
        core: a core of BUILDS, or PLAIN
        level: the optimization of the compiler
        chance: the seed that draws schedules, rules, caches and threads among all legal
            ones; None for those that analysis prefers, and one thread
    """

    core: str = "x86_64_v3"
    level: str = "-O1"
    chance: int | None = None

    @property
    def build(self) -> str:
        """The name of the compiler and emulator in BUILDS."""
        return "x86_64_v3" if self.core == PLAIN else self.core

    @property
    def command(self) -> list[str]:
        """The compiler and its flags."""
        flags = [
            self.level if flag == "-O1" else flag for flag in BUILDS[self.build][0]
        ]
        return [
            flag
            for flag in flags
            if self.core != PLAIN or not flag.startswith("-mcpu=")
        ]

    def case(self, graph: Graph, inputs: Mapping[str, Array]) -> Case:
        """Return the case of a graph with inputs."""
        if self.chance is None:
            return Case(graph, inputs, core_of(self.core))
        return random_case(
            self.core, graph, inputs, Chance(np.random.default_rng(self.chance))
        )


@dataclass
class Trial:
    """A graph with inputs, and the values that `interp` computes.

    Attributes:
        graph: the graph
        inputs: the inputs by name
        manner: how it becomes C
        refused: the reason of each way that cannot run it in full
    """

    graph: Graph
    inputs: Mapping[str, Array]
    manner: Manner = Manner()
    refused: dict[str, str] = field(default_factory=dict)

    @cached_property
    def values(self) -> dict[Value, Array]:
        """The values by interp, without constants."""
        return _run(self.graph, self.inputs, lambda a: a)

    @cached_property
    def nudged(self) -> list[dict[Value, Array]]:
        """The values with every float a little off, several times.

        What only rounding decides is not the same there.
        """
        if not any(a.dtype.kind == "f" for a in self.values.values()):
            return []
        found = []
        for seed in range(_NUDGES):
            rng = np.random.default_rng(seed)
            given = {
                n: _off(a, rng) if a.dtype.kind == "f" else a
                for n, a in self.inputs.items()
            }
            found.append(_run(self.graph, given, lambda a, rng=rng: _off(a, rng)))  # type: ignore[misc]
        return found

    @cached_property
    def is_open(self) -> bool:
        """Whether the result of an op is not defined.

        An op may choose by NaN or make an integer of it, which ways do differently; or it
        sums squares beyond float32, which some ways do in double.
        """
        for op in self.graph.ops:
            arrays = [
                self.values[v]
                for v in op.inputs
                if v.const is None and v.type.np_dtype.kind == "f"
            ]
            if op.kind in _SQUARING and any((np.abs(a) > _ROOT).any() for a in arrays):
                return True
            chooses = op.kind in _CHOOSING or any(
                v.type.np_dtype.kind != "f" for v in op.outputs
            )
            if (
                chooses
                and op.kind not in ("is_nan", "is_inf")
                and any(np.isnan(a).any() for a in arrays)
            ):
                return True
        return False

    def difference(self, v: Value, got: Array) -> str:
        """Return how a value differs from interp's; "" if it does not."""
        want = self.values[v] if v.const is None else v.const
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            return (
                f"{v.name} is {got.dtype}{list(got.shape)}, "
                f"not {want.dtype}{list(want.shape)}"
            )
        others = [run[v] for run in self.nudged] if v.const is None else []
        wrong = _wrong(got, want, others)
        if not wrong.any():
            return ""
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        return (
            f"{v.name}{list(at)} is {got[at]!r}, "
            f"not {want[at]!r} "
            f"({int(wrong.sum())} of "
            f"{wrong.size} elements)"
        )

    @property
    def computed(self) -> dict[Value, Array]:
        """The values of the ops before the first one that raises."""
        ops = self.graph.ops
        for n in range(len(ops), -1, -1):
            try:
                return _run(
                    Graph("", self.graph.inputs, [], ops[:n]), self.inputs, lambda a: a
                )
            except Exception:  # then with one op less
                continue
        return {}

    def part(self, takes: Callable[[Op], bool]) -> Graph | None:
        """Return the ops that a way takes as a graph, None without one.

        Values that other ops compute become inputs.
        """
        ops = [op for op in self.graph.ops if takes(op)]
        made = {v for op in ops for v in op.outputs}
        needed = dict.fromkeys(
            v for op in ops for v in op.inputs if v.const is None and v not in made
        )
        read = {v for op in ops for v in op.inputs}
        ends = [v for v in made if v not in read or v in self.graph.outputs]
        order = {v: i for i, v in enumerate(self.values)}
        ends = sorted(ends, key=order.__getitem__)
        # Outputs may also be inputs and constants, and may be listed again.
        others = [v for v in self.graph.outputs if v in needed or v.const is not None]
        again = [v for v in made if self.graph.outputs.count(v) > 1]
        ends += [*others, *sorted(again, key=order.__getitem__)]
        return Graph("part", list(needed), ends, ops) if ops else None

    def given(self, graph: Graph) -> dict[str, Array]:
        """Return the inputs of a part by name."""
        return {v.name: self.values[v] for v in graph.inputs}


def _run(
    graph: Graph, inputs: Mapping[str, Array], change: Callable[[Array], Array]
) -> dict[Value, Array]:
    env = {v: np.asarray(inputs[v.name]) for v in graph.inputs}
    with np.errstate(all="ignore"):
        for op in graph.ops:
            for v, y in zip(op.outputs, run_op(op, env), strict=True):
                env[v] = change(y) if y.dtype.kind == "f" else y
    return env


def _off(a: Array, rng: np.random.Generator) -> Array:
    """Return an array with every element a little off, and zeros to both sides.

    NaN becomes any number, since kernels may take it for one.
    """
    finite = np.abs(a[np.isfinite(a)])
    scale = min(float(finite.max(initial=1e-30)), 1e30)
    noise = rng.uniform(-_NUDGE, _NUDGE, (2, *a.shape))
    near = a * (1 + noise[0]) + scale * 0.1 * noise[1]
    return np.where(np.isnan(a), rng.normal(0, 4, a.shape), near).astype(a.dtype)


def _wrong(got: Array, want: Array, others: Sequence[Array]) -> Array:
    """Return which elements differ by more than rounding explains."""
    if want.dtype.kind != "f":
        if others:
            steady = np.logical_and.reduce([o == want for o in others])
        else:
            steady = np.ones(want.shape, bool)
        return np.asarray((got != want) & steady)
    with np.errstate(all="ignore"):
        wide = got.astype(np.float64)
        exact = want.astype(np.float64)
        spread = np.zeros(want.shape)
        steady = np.ones(want.shape, bool)
        for other in others:
            same_kind = (np.isfinite(other) == np.isfinite(want)) & (
                np.isnan(other) == np.isnan(want)
            )
            steady &= same_kind
            spread = np.fmax(spread, np.abs(other.astype(np.float64) - exact))
        largest = np.abs(exact[np.isfinite(exact)]).max(initial=1e-6)
        near = np.abs(wide - exact) <= _SLACK * (
            largest + np.abs(exact)
        ) + _GROWTH * np.nan_to_num(spread)
    alike = (wide == exact) | (np.isnan(wide) & np.isnan(exact)) | near
    return np.asarray(~alike & steady)


_NOT_IN_TFLITE = ("uint16", "uint32", "uint64", "float16", "float64")
"""Element types that edgec does not write to TFLite."""

Way = Callable[[Trial], Iterator[str]]
"""Yields the failures of a trial by one way."""


def as_text(trial: Trial) -> Iterator[str]:
    """Print the graph and parse it."""
    if parse(print_graph(trial.graph)) != trial.graph:
        yield "the text form is of another graph"


def optimized(trial: Trial) -> Iterator[str]:
    """Run the graph after all passes by `interp`."""
    graph = optimize(trial.graph.copy())
    verify(graph, "partitioned")
    with np.errstate(all="ignore"):
        got = interp(graph, {v.name: trial.inputs[v.name] for v in graph.inputs})
    for v, name in zip(
        trial.graph.outputs, [o.name for o in graph.outputs], strict=True
    ):
        if why := trial.difference(v, got[name]):
            yield why


def by_onnxruntime(trial: Trial) -> Iterator[str]:
    """Run what ONNX can express by onnxruntime, and as edgec reads the file."""
    part = trial.part(lambda op: _in_onnx(op) and not _far_out(trial, op))
    if part is None:
        return
    file = to_onnx(part, trial.manner.chance is not None)
    assert file is not None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    given = list(trial.given(part).values())
    feeds = {f"in{i}": a for i, a in enumerate(given)}
    try:
        session = onnxruntime.InferenceSession(
            file, options, providers=["CPUExecutionProvider"]
        )
        got = session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})
    except Exception as e:
        # it has no kernel for some types, and refuses places out of range
        trial.refused["onnxruntime"] = str(e)
        return
    yield from (
        f"onnxruntime: {why}"
        for v, y in zip(part.outputs, got, strict=True)
        if (why := trial.difference(v, y))
    )
    values = [v for op in part.ops for v in (*op.inputs, *op.outputs)]
    if not any(
        0 in v.type.shape or v.type.dtype in ("float16", "float64") for v in values
    ):
        # edgec takes a dimension of 0 for an unknown one, and computes every float as
        # float32
        yield from _read_back(trial, part, file, "m.onnx")


def _far_out(trial: Trial, op: Op) -> bool:
    """Return whether onnxruntime computes an op otherwise for these values.

    Places may be so far outside of an image that float32 has few numbers there; a curve so
    near 0 that onnxruntime's own error of 6e-8 is much of it; and what is not finite stays
    in its running sum of squares over the channels behind.
    """
    if op.kind == "local_response_norm":
        return not np.isfinite(trial.values[op.output]).all()
    if op.kind in ("logistic", "elu"):
        return bool(np.abs(trial.values[op.output]).max(initial=0) < _NEAR_0)
    grid = trial.values.get(op.inputs[1]) if op.kind == "grid_sample" else None
    return grid is not None and not np.abs(grid).max(initial=0) < 1e3


def _in_onnx(op: Op) -> bool:
    w = Writer()
    return expressed(w, op, ["x"] * len(op.inputs)) is not None


def by_litert(trial: Trial) -> Iterator[str]:
    """Run what TFLite can express by LiteRT's reference kernels, and as edgec reads the
    file.
    """
    uint8 = any(map(has_asymmetric_weights, trial.graph.ops))
    part = trial.part(lambda op: _in_tflite(op, uint8) and _is_said(trial, op))
    if part is None:
        return
    part.outputs = [v for v in part.outputs if v.type.dtype not in _NOT_IN_TFLITE]
    try:
        file = write_tflite(part)
    except EdgecError as e:
        trial.refused["tflite"] = e.what
        return
    try:
        got = run_tflite(part, trial.given(part))
    except (RuntimeError, ValueError) as e:
        trial.refused["litert"] = str(e)
    else:
        yield from (
            f"LiteRT: {why}"
            for v in part.outputs
            if (why := trial.difference(v, got[v.name]))
        )
    # read as floats
    if not any(v.type.is_quantized and v.type.dtype == "int16" for v in part.values()):
        yield from _read_back(trial, part, file, "m.tflite")


def _is_said(trial: Trial, op: Op) -> bool:
    """Return whether TFLite defines the result of an op.

    Its kernels compare NaN in any way, and convert and shift like C, where infinities and
    numbers out of range have no meaning. A flat softmax ends its process, and the running
    sum of a long one loses digits.
    """
    if isinstance(op.spec, Softmax) and op.inputs[0] in trial.values:
        x = op.inputs[0]
        if op.spec.ends_litert(trial.values[x], x.type):
            return False
        if x.type.np_dtype.kind == "f" and x.type.shape[-1] > _LONG_ROW:
            return False
    floats = [v for v in op.inputs if v.type.np_dtype.kind == "f"]
    arrays = [trial.values[v] if v.const is None else v.const for v in floats]
    if any(np.isnan(a).any() for a in arrays):
        return False
    if (
        op.kind == "quantize"
        and not floats
        and op.inputs[0].type.scale >= op.output.type.scale * (1 << 22)
    ):
        return False
    to = op.output.type if op.kind in ("quantize", "cast") else None
    scale = to.scale if to is not None and to.is_quantized else 1.0
    return to is None or all(
        np.abs(a).max(initial=0) < scale * (1 << 30) for a in arrays
    )


def _in_tflite(op: Op, uint8: bool) -> bool:
    """Return whether TFLite has an op.

    Args:
        op: the op
        uint8: whether the file will be of uint8, where some ops have another meaning
    """
    values = (*op.inputs, *op.outputs)
    if op.kind in NO_REFERENCE or any(
        0 in v.type.shape or v.type.dtype in _NOT_IN_TFLITE for v in values
    ):
        return False
    try:
        same = op.spec.as_tflite() == op.spec and not (uint8 and _is_of_int8(op))
        return (
            same
            and op.spec.to_tflite(op) is not None
            and not op.spec.tflite_needs_uint8(op)
        )
    except AssertionError:  # pads that are legalised first
        return False


def _is_of_int8(op: Op) -> bool:
    """Return whether TFLite's uint8 kernel differs or does not exist."""
    return op.kind == "squared_difference" or beside_uint8(op) != op.spec


def _read_back(trial: Trial, part: Graph, file: bytes, name: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / name
        path.write_bytes(file)
        try:
            graph = read_model(path)
        except EdgecError as e:
            trial.refused[f"reading {name}"] = e.what
            return
    verify(graph, "imported")
    given = dict(
        zip((v.name for v in graph.inputs), trial.given(part).values(), strict=True)
    )
    for how in ("read", "read and optimized"):
        with np.errstate(all="ignore"):
            got = interp(graph, given)
        ends = [got[o.name] for o in graph.outputs]
        for v, y in zip(part.outputs, ends, strict=True):
            if why := trial.difference(v, y):
                yield f"{name} {how}: {why}"
        graph = optimize(graph)


WAYS: Mapping[str, Way] = {
    "text": as_text,
    "passes": optimized,
    "onnx": by_onnxruntime,
    "tflite": by_litert,
}
"""The ways that run one trial; others compile the C of many."""


def trial_of(graph: Graph, seed: int, manner: Manner) -> Trial:
    """Return the trial of a graph with random inputs."""
    return Trial(graph, random_inputs(graph, seed), manner)


def by_c(trials: Sequence[Trial]) -> list[list[str]]:
    """Return the failures of each trial as C; all are for one core, in one program."""
    found = []
    for trial, got in zip(trials, _compiled(trials), strict=True):
        if isinstance(got, str):
            found.append([got])
        else:
            found.append(
                [
                    why
                    for v in trial.graph.outputs
                    if (why := trial.difference(v, got[v.name]))
                ]
            )
    return found


def _compiled(trials: Sequence[Trial]) -> list[Mapping[str, Array] | str]:
    """Return the outputs of each trial, or the error of one whose C cannot be built.

    The trials are halved until such a one stands alone.
    """
    if not trials:
        return []
    try:
        cases = [t.manner.case(t.graph, t.inputs) for t in trials]
        return results(trials[0].manner.build, cases, trials[0].manner.command)
    except Exception as e:
        if len(trials) == 1:
            return [f"{type(e).__name__}: {str(e)[:600]}"]
    half = len(trials) // 2
    return [*_compiled(trials[:half]), *_compiled(trials[half:])]
