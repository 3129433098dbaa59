"""Values of a model that are not finite numbers (docs/accuracy.md).

A NaN constant is refused: nobody trained for it. Infinite constants are kept and
reported, since masks consist of them. NaN and infinite outputs are reported; samples with
these outputs are refused for calibration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from edgec.errors import InputError
from edgec.executors import cores, in_order
from edgec.ir import Array, Graph, Op, Run, Value, interp


@dataclass(frozen=True)
class NotFinite:
    """A value with NaN or infinite elements.

    Attributes:
        op: the op that computes or reads the value first.
        value: the value.
        nan: the number of NaN elements.
        infinite: the number of infinite elements.
    """

    op: Op
    value: Value
    nan: int
    infinite: int

    def __str__(self) -> str:
        counts = []
        if self.nan:
            counts.append(f"{self.nan} NaN")
        if self.infinite:
            counts.append(f"{self.infinite} infinite")
        elements = f"{' and '.join(counts)} of {self.value.type.size} elements"

        # The node of the model's file, where a person finds it.
        node = f" ({self.op.source})" if self.op.source else ""
        verb = "computes" if self.computed else "reads"
        return f"{elements} of {self.value.name}, which {self.op.kind}{node} {verb}"

    @property
    def computed(self) -> bool:
        """Whether the op computes the value; else it is a constant."""
        return self.value in self.op.outputs


def _counted(op: Op, v: Value, array: Array) -> NotFinite | None:
    """Count the NaN and infinite elements of a value; None if there are none."""
    if array.dtype.kind != "f":
        return None
    # One pass decides for most values; the kinds are only counted in the others.
    finite = int(np.isfinite(array).sum())
    if finite == array.size:
        return None
    nan = int(np.isnan(array).sum())
    return NotFinite(op, v, nan, array.size - finite - nan)


def constants(graph: Graph) -> Iterator[NotFinite]:
    """Yield the constants with NaN or infinite elements, in the order of their readers."""
    seen: set[Value] = set()
    for op in graph.ops:
        for v in op.inputs:
            if v.const is None or v in seen:
                continue
            seen.add(v)
            counted = _counted(op, v, v.const)
            if counted is not None:
                yield counted


def check_constants(graph: Graph) -> Iterator[str]:
    """Yield a note on infinite constants. Raise InputError for the first with NaN."""
    bad = [*constants(graph)]
    nan = next((c for c in bad if c.nan), None)
    if nan is not None:
        raise InputError(
            f"the model holds what is not a number: {nan}",
            at=graph.name,
            hint="weights like that give no results: train or export the model again",
        )
    if bad:
        more = f"; so do {len(bad) - 1} other constants" if len(bad) > 1 else ""
        yield f"infinite constants: {bad[0]}{more}"


def first(
    graph: Graph, sample: Mapping[str, Array], run: Run | None = None
) -> NotFinite | None:
    """Return the first computed value with NaN or infinity, in the order of the ops.

    run: runs the graph; default: `interp`.
    """
    seen: list[NotFinite] = []
    producer = {v: op for op in graph.ops for v in op.outputs}

    # Values behind the first mostly inherit its NaN, so only the first is counted.
    def observe(v: Value, array: Array) -> None:
        if seen or v not in producer:
            return
        counted = _counted(producer[v], v, array)
        if counted is not None:
            seen.append(counted)

    (run or partial(interp, graph))(sample, observe)
    return seen[0] if seen else None


def is_finite(outputs: Mapping[str, Array]) -> bool:
    """Return whether all elements of all outputs are finite."""
    floats = [y for y in outputs.values() if y.dtype.kind == "f"]
    return all(np.isfinite(y).all() for y in floats)


def check_calibration(
    graph: Graph, samples: Sequence[Mapping[str, Array]], run: Run, names: Sequence[str]
) -> None:
    """Check that the outputs of a float graph are finite on every sample.

    run: runs the graph's C. names: the samples' names.

    Raises InputError for the first other sample.
    """
    # Outputs alone are looked at first: observing all values is slow, and only needed
    # for the message.
    finite = in_order(lambda s: is_finite(run(s, None)), samples, cores())
    for i, (good, name) in enumerate(zip(finite, names, strict=True)):
        if good:
            continue
        what = f"no int8 form can be made: on {name} the float model's outputs are not finite"
        # The C may overflow where the reference does not.
        where = first(graph, samples[i])
        if where is not None:
            what += f"; first {where}"
        hint = "leave such samples out of --calibrate, or mend the model"
        raise InputError(what, at=graph.name, hint=hint)
