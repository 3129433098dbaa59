"""Rewrites ops that almost map to the Edge TPU into ops that map.

One rewrite per file of this folder, found by its name.

The docstring of such a module says: pattern, condition, replacement, proof, and when it
pays. The module has

    OPS: tuple[type[OpDef], ...]            the ops that it is asked about, and only when the
                                            rules refuse them
    BOUND: float                            0: bit-exact on int8, so it is made on quantized
                                            graphs. Otherwise it is made on
                                            float graphs before they are quantized, and this is
                                            the largest difference of the
                                            results, relative to the largest magnitude of the
                                            original's
    rewrite(r: Rewriter, op: Op, spec: OpDef) -> bool
                                            edits around `op`, whose spec is one of OPS, where
                                            pattern and condition hold; False: nothing done
    example(rng: numpy Generator) -> Graph  a random graph that it rewrites, for the generated
                                            tests
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from edgec.ir import Graph, Op, OpDef
from edgec.ir.rewrite import Rewriter
from edgec_partitioner.verdicts import Verdict, refusals

MAX_ROUNDS = 100
"""More rounds than any model needs: rewrites that undo one another are a bug."""


@dataclass(frozen=True)
class Rewrite:
    """One module of this folder.

    Attributes:
        name: the name of the module.
        doc: its docstring.
        ops: the types of the ops it may rewrite.
        bound: the largest relative difference of the results, 0 if exact.
        apply: edits the graph around an op, and returns whether it did.
        example: makes a random graph that the rewrite applies to.
    """

    name: str
    doc: str
    ops: tuple[type[OpDef], ...]
    bound: float
    apply: Callable[[Rewriter, Op, Any], bool]
    example: Callable[[np.random.Generator], Graph]


@dataclass(frozen=True)
class Applied:
    """One rewrite that was made.

    Attributes:
        rewrite: the name of the rewrite.
        at: the name of the first output of the op that did not map.
        source: the node of the file that the op comes from.
        made: the names of the first outputs of the ops that took its place.
    """

    rewrite: str
    at: str
    source: str
    made: tuple[str, ...]


@cache
def rewrites() -> Mapping[str, Rewrite]:
    """Return every rewrite by name."""
    table: dict[str, Rewrite] = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        table[info.name] = Rewrite(
            name=info.name,
            doc=module.__doc__ or "",
            ops=module.OPS,
            bound=module.BOUND,
            apply=module.rewrite,
            example=module.example,
        )
    return table


def legalize(
    graph: Graph,
    *,
    exact: bool,
    optimistic: bool = False,
    disabled: Collection[str] = (),
    skip: Collection[tuple[str, str]] = (),
) -> tuple[Graph, list[Applied]]:
    """Return a copy of the graph with refused ops rewritten, and the rewrites made.

    An op that no rewrite fits stays. exact: make the bit-exact rewrites, for a
    quantized graph; else the others, for a float graph that will be quantized.
    disabled: names of rewrites to leave out. skip: (rewrite, name of the op's first
    output) to leave out.
    """
    table: list[Rewrite] = []
    for candidate in rewrites().values():
        # Inexact rewrites are for float graphs: quantization hides their difference.
        if (candidate.bound == 0) == exact and candidate.name not in disabled:
            table.append(candidate)

    result = graph.copy()
    applied: list[Applied] = []
    # The result of a rewrite may be refused in turn, hence several rounds.
    for _ in range(MAX_ROUNDS):
        r = Rewriter(result)
        for op in r.ops():
            # Rewrites cut tensors into parts, of which an empty one has none.
            if not all(v.type.size for v in (*op.inputs, *op.outputs)):
                continue
            name = op.outputs[0].name
            allowed = [w for w in table if (w.name, name) not in skip]
            record = _apply_first(r, op, allowed, optimistic)
            if record is not None:
                applied.append(record)
        if not r.changed:
            return result, applied
    raise AssertionError(f"rewrites do not settle on {graph.name}: {applied[-4:]}")


def _apply_first(
    r: Rewriter, op: Op, table: Sequence[Rewrite], optimistic: bool
) -> Applied | None:
    """Make the first rewrite that fits a refused op, and return a record of it.

    None if no rewrite fits, or if the rules let the op map.
    """
    name = op.outputs[0].name
    source = op.source
    for candidate in table:
        if not isinstance(op.spec, candidate.ops) or not _refused(op, optimistic):
            continue
        before = set(r.graph.ops)
        # A rewrite checks its own condition.
        if not candidate.apply(r, op, op.spec):
            continue
        # An op that was updated in place counts as new.
        new_ops = [o for o in r.graph.ops if o not in before or o is op]
        new_names = tuple(o.outputs[0].name for o in new_ops)
        return Applied(candidate.name, name, source, new_names)
    return None


def _refused(op: Op, optimistic: bool) -> bool:
    """Return whether the rules keep the op from the Edge TPU.

    The rule for int8 tensors does not count, as a float graph is not quantized yet.
    """
    broken = tuple(x for x in refusals(op) if x.rule != "int8_tensors")
    return Verdict(broken).place(optimistic) == "cpu"
