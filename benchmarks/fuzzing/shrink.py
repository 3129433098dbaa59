"""Shrinks a graph that fails: fewer outputs, fewer ops, inputs instead of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.fuzzing.ways import Trial
from edgec.ir import Array, Graph, Value

Fails = Callable[[Trial], bool]


def shrunk(trial: Trial, fails: Fails) -> Trial:
    """Return the smallest graph that still fails, with the values of its inputs."""
    while True:
        smaller = next(
            (t for t in _smaller(trial) if _is_smaller(t, trial) and fails(t)), None
        )
        if smaller is None:
            return trial
        trial = smaller


def _is_smaller(a: Trial, b: Trial) -> bool:
    return _size(a) < _size(b)


def _size(t: Trial) -> tuple[int, int, int]:
    return len(t.graph.ops), len(t.graph.outputs), len(t.graph.inputs)


def _smaller(trial: Trial) -> Iterator[Trial]:
    """Yield smaller trials, the smallest first."""
    graph = trial.graph
    for v in graph.outputs if len(graph.outputs) > 1 else ():
        yield _kept(trial, [v])
    n = len(graph.ops)
    for k in (n // 2, n // 4, n // 8):  # the first ones become inputs
        if k:
            yield _cut(trial, set(range(k)))
    for k in (n // 2, n // 4, n // 8):  # the last ones go: what they read is looked at
        if k:
            yield _headless(trial, n - k)
    for i in reversed(range(n)):
        yield _headless_of(trial, i)
    for i in range(n):
        yield _cut(trial, {i})


def _kept(
    trial: Trial, outputs: list[Value], values: dict[Value, Array] | None = None
) -> Trial:
    """Return a trial with some outputs alone; `values` become inputs."""
    given = {v: trial.inputs[v.name] for v in trial.graph.inputs} | (values or {})
    graph = Graph(
        trial.graph.name,
        list(given),
        outputs,
        [op for op in trial.graph.ops if not set(op.outputs) & set(given)],
    )
    graph.drop_unused()
    used = {v for op in graph.ops for v in op.inputs} | set(graph.outputs)
    graph.inputs = [v for v in given if v in used]
    return Trial(graph, {v.name: given[v] for v in graph.inputs}, trial.manner)


def _cut(trial: Trial, which: set[int]) -> Trial:
    """Return a trial in which the results of some ops are inputs."""
    made = [v for i in which for v in trial.graph.ops[i].outputs]
    outputs = [v for v in trial.graph.outputs if v not in made]
    values = trial.computed
    if values.keys() >= set(made):
        return _kept(trial, outputs, {v: values[v] for v in made})
    return trial


def _headless(trial: Trial, n: int) -> Trial:
    """Return a trial of the first n ops, whose outputs are the values that none reads."""
    ops = trial.graph.ops[:n]
    read = {v for op in ops for v in op.inputs}
    ends = [
        v for op in ops for v in op.outputs if v not in read or v in trial.graph.outputs
    ]
    return _kept(
        Trial(
            Graph(trial.graph.name, trial.graph.inputs, ends, ops),
            trial.inputs,
            trial.manner,
        ),
        ends,
    )


def _headless_of(trial: Trial, i: int) -> Trial:
    """Return a trial without an op whose results none reads."""
    op = trial.graph.ops[i]
    others = [v for v in trial.graph.outputs if v not in op.outputs]
    ends = dict.fromkeys(
        [
            *others,
            *(v for v in op.inputs if v.const is None and v not in trial.graph.inputs),
        ]
    )
    rest = [o for o in trial.graph.ops if o is not op]
    if any(v in o.inputs for o in rest for v in op.outputs):
        return trial
    return _kept(
        Trial(
            Graph(trial.graph.name, trial.graph.inputs, list(ends), rest),
            trial.inputs,
            trial.manner,
        ),
        list(ends),
    )
