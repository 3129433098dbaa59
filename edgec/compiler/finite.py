"""What is no finite number in a model, and what becomes of it (docs/accuracy.md).

A constant that is not a number (NaN) is refused: nobody trained for it. Infinite
constants are kept and told of: masks are made of them. Outputs that are not finite are
told of; an int8 model is not made by samples that give such outputs.
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
    """A value of which some elements are no finite numbers; the op is the first that
    computes or reads such a one.
    """

    op: Op
    value: Value
    nan: int
    infinite: int

    def __str__(self) -> str:
        kinds = ((self.nan, "NaN"), (self.infinite, "infinite"))
        counts = " and ".join(f"{n} {kind}" for n, kind in kinds if n)
        node = f" ({self.op.source})" if self.op.source else ""
        place = f"of {self.value.name}, which {self.op.kind}{node} " + (
            "computes" if self.computed else "reads"
        )
        return f"{counts} of {self.value.type.size} elements {place}"

    @property
    def computed(self) -> bool:
        """By the op, that is; else it is a constant."""
        return self.value in self.op.outputs


def _counted(op: Op, v: Value, array: Array) -> NotFinite | None:
    if array.dtype.kind != "f":
        return None
    finite = int(np.isfinite(array).sum())
    nan = 0 if finite == array.size else int(np.isnan(array).sum())
    if finite == array.size:
        return None
    return NotFinite(op, v, nan, array.size - finite - nan)


def constants(graph: Graph) -> Iterator[NotFinite]:
    """In the order in which they are first read."""
    seen = set[Value]()
    for op in graph.ops:
        for v in op.inputs:
            if (
                v.const is not None
                and v not in seen
                and (found := _counted(op, v, v.const))
            ):
                yield found
            seen.add(v)


def check_constants(graph: Graph) -> Iterator[str]:
    """A note on the infinite ones. Raises InputError for the first that holds NaN."""
    found = [*constants(graph)]
    nan = next((f for f in found if f.nan), None)
    if nan is not None:
        hint = "weights like that give no results: train or export the model again"
        raise InputError(
            f"the model holds what is not a number: {nan}", at=graph.name, hint=hint
        )
    if found:
        more = f"; so do {len(found) - 1} other constants" if len(found) > 1 else ""
        yield f"infinite constants: {found[0]}{more}"


def first(
    graph: Graph, sample: Mapping[str, Array], run: Run | None = None
) -> NotFinite | None:
    """The first value that is computed and not finite, in the order of the ops."""
    seen = list[NotFinite]()
    writer = {v: op for op in graph.ops for v in op.outputs}

    def observe(v: Value, array: Array) -> None:
        if not seen and v in writer and (found := _counted(writer[v], v, array)):
            seen.append(found)

    (run or partial(interp, graph))(sample, observe)
    return next(iter(seen), None)


def is_finite(outputs: Mapping[str, Array]) -> bool:
    """All elements of all of them."""
    return all(np.isfinite(y).all() for y in outputs.values() if y.dtype.kind == "f")


def check_calibration(
    graph: Graph, samples: Sequence[Mapping[str, Array]], run: Run, names: Sequence[str]
) -> None:
    """Raises InputError for a sample on which the outputs of a float graph are not
    finite. run: the graph's C.
    """
    every = in_order(lambda s: is_finite(run(s, None)), samples, cores())
    for i, (good, name) in enumerate(zip(every, names, strict=True)):
        if not good:
            where = first(graph, samples[i]) or "none of them alone"
            what = (
                f"no int8 form can be made: on {name} the float model's outputs "
                "are "
                f"not finite; first {where}"
            )
            hint = "leave such samples out of --calibrate, or mend the model"
            raise InputError(what, at=graph.name, hint=hint)
